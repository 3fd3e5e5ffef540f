"""The failing store, over a store made for the test."""

import pytest

from pokayoke.stores.base import Store
from pokayoke.testing import FailingStore


class Shelf(Store):
    """A store that keeps what it was called with, and one thing no other store has."""

    durable = True
    place = "cellar"

    def __init__(self):
        self.done = []

    def admit(self, request):
        """Keep it."""
        self.done.append(("admit", request))
        return request

    def settle(self, settlement):
        """Keep it."""
        self.done.append(("settle", settlement))
        return True

    def record(self, key):
        """Keep it."""
        self.done.append(("record", key))

    def load_run(self, run_id):
        """Keep it."""
        self.done.append(("load_run", run_id))

    def save_run(self, state):
        """Keep it."""
        self.done.append(("save_run", state))

    def propose(self, approval):
        """Keep it."""
        self.done.append(("propose", approval))

    def approvals(self):
        """Keep it."""
        self.done.append(("approvals", None))
        return ()

    def decide(self, approval_id, *, approved, by, reason, now):
        """Keep it."""
        self.done.append(("decide", (approval_id, approved, by, reason, now)))

    def close(self):
        """Keep it."""
        self.done.append(("close", None))


CALLS = {
    "admit": lambda store: store.admit("x"),
    "settle": lambda store: store.settle("x"),
    "record": lambda store: store.record("x"),
    "load_run": lambda store: store.load_run("x"),
    "save_run": lambda store: store.save_run("x"),
    "propose": lambda store: store.propose("x"),
    "approvals": lambda store: store.approvals(),
    "decide": lambda store: store.decide("x", approved=True, by="me", reason="so", now=1.0),
    "close": lambda store: store.close(),
}


def test_every_method_of_a_store_is_covered():
    """No method of a store slips past the wrapper, also one that is added later."""
    public = {name for name, value in vars(Store).items() if not name.startswith("_") and callable(value)}
    assert public <= set(vars(FailingStore))
    assert {name.removeprefix("a") for name in public if name in ("aadmit", "asettle")} <= set(CALLS)
    assert {name for name in public if name not in ("aadmit", "asettle")} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_healthy_store_answers_as_before(name):
    """Without a rule every call reaches the store unchanged and its answer comes back."""
    shelf, plain = Shelf(), Shelf()
    assert CALLS[name](FailingStore(shelf)) == CALLS[name](plain)
    assert shelf.done == plain.done != []


@pytest.mark.parametrize("name", CALLS)
def test_a_named_method_fails_and_does_nothing(name):
    """The named method raises before the store sees the call; the others go through."""
    shelf = Shelf()
    store = FailingStore(shelf, name)
    for other, call in CALLS.items():
        if other == name:
            with pytest.raises(OSError, match="cannot be reached"):
                call(store)
        else:
            call(store)
    assert [method for method, _ in shelf.done] == [other for other in CALLS if other != name]
    assert store.failed == [name]


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ((), [1, 2, 3]),
        (["admit", "settle"], []),
        (["record"], [1, 2, 3]),
        ({"admit": [2]}, [1, 3]),
        ({"settle": [1]}, [1, 2, 3]),
        (lambda name, number: name == "admit" and number > 1, [1]),
    ],
)
def test_rules(rule, kept):
    """Exactly the calls the rule names fail, by name and by number."""
    shelf = Shelf()
    store = FailingStore(shelf, rule)
    for thing in (1, 2, 3):
        try:
            store.admit(thing)
        except OSError:
            assert ("admit", thing) not in shelf.done
    assert [thing for _, thing in shelf.done] == kept
    assert store.calls == ["admit"] * 3
    assert len(store.failed) == 3 - len(kept)


def test_the_answer_can_be_lost_after_the_deed():
    """With `after`, the store has done it and only the caller does not know."""
    shelf = Shelf()
    store = FailingStore(shelf, {"admit": [1]}, after=True, error=lambda: ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        store.admit("x")
    assert shelf.done == [("admit", "x")]
    assert store.admit("y") == "y"


async def test_async_methods_go_by_the_plain_name():
    """`aadmit` and `asettle` fail under the names admit and settle, before or after the deed."""
    shelf = Shelf()
    store = FailingStore(shelf, {"admit": [2], "settle": [1]})
    assert await store.aadmit("x") == "x"
    with pytest.raises(OSError, match="cannot be reached"):
        await store.aadmit("y")
    with pytest.raises(OSError, match="cannot be reached"):
        await store.asettle("x")
    late = FailingStore(shelf, "settle", after=True)
    with pytest.raises(OSError, match="cannot be reached"):
        await late.asettle("z")
    assert shelf.done == [("admit", "x"), ("settle", "z")]


def test_a_store_can_be_healed():
    """The rule can be changed while the store is in use; call numbers go on counting."""
    store = FailingStore(Shelf(), "admit")
    with pytest.raises(OSError, match="cannot be reached"):
        store.admit(1)
    store.fail_on(())
    assert store.admit(2) == 2
    store.fail_on({"admit": [3]})
    with pytest.raises(OSError, match="cannot be reached"):
        store.admit(3)


def test_it_is_a_store_like_the_one_it_wraps():
    """A guard takes it for a store, as durable as the real one, with what only that one has."""
    store = FailingStore(Shelf())
    assert isinstance(store, Store)
    assert store.durable
    assert store.place == "cellar"
    with pytest.raises(AttributeError):
        _ = store.missing
