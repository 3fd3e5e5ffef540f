"""What a call leaves behind: nothing that the collector could not take away."""

import gc
import time
import weakref

import pytest

from pokayoke import Contract, Guard, ToolCall

ANY = {"type": "object"}


class LostError(Exception):
    """An exception that can be found again."""


def tools(how):
    """A contract whose functions belong to an object that keeps the last of its errors, and that object."""

    class Desk:
        last = None

        def fail(self, *_):
            try:
                raise LostError
            except LostError as error:
                self.last = error
                raise

        def keep(self):
            try:
                self.fail()
            except LostError:
                return {"detail": self.last, "desk": self}

        async def later(self):
            self.fail()

    desk = Desk()
    handler = {"returns": desk.keep, "awaits": desk.later, "checks": dict}.get(how, desk.fail)
    options = {"timeout": 5} if how == "in time" else {"invariants": (desk.fail,)} if how == "checks" else {}
    return Contract.from_schema("look", ANY, effect="read", output_schema=ANY, handler=handler, **options), desk


def gone(living):
    """Whether the collector takes all of it; a worker may need a moment to come to its end."""
    end = time.monotonic() + 10
    while any(one() is not None for one in living) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    return not any(one() is not None for one in living)


@pytest.mark.parametrize("how", ["raises", "returns", "awaits", "in time", "checks"])
def test_an_error_and_everything_around_it_can_be_collected(driver, how):
    """Its traceback leads to our frames, and from there to the guard and the tool: a circle, but no leak."""
    contract, desk = tools(how)
    guard = Guard([contract])
    assert driver.call(guard.run(), ToolCall("c", "look", {})).status != "ok"
    assert isinstance(desk.last, LostError)
    living = [weakref.ref(one) for one in (desk, desk.last, guard)]
    guard.close()
    del contract, desk, guard
    assert gone(living)
