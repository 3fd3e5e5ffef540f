"""The failing store, over a store made for the test."""

import pytest

from pokayoke.testing import FailingStore


class Shelf:
    """A tiny store with a sync and an async method."""

    name = "shelf"

    def __init__(self):
        self.things = []

    def put(self, thing):
        """Keep it."""
        self.things.append(thing)
        return len(self.things)

    async def aput(self, thing):
        """Keep it."""
        return self.put(thing)


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ((), [1, 2, 3]),
        ("put", []),
        (["put", "aput"], []),
        (["other"], [1, 2, 3]),
        ({"put": [2]}, [1, 3]),
        ({"other": [1]}, [1, 2, 3]),
        (lambda name, number: name == "put" and number > 1, [1]),
    ],
)
def test_only_the_named_calls_fail(rule, kept):
    """Exactly the calls the rule names fail, and a failed call never reaches the store."""
    shelf = Shelf()
    store = FailingStore(shelf, rule)
    for thing in (1, 2, 3):
        try:
            store.put(thing)
        except OSError:
            assert thing not in shelf.things
    assert shelf.things == kept
    assert store.calls == ["put"] * 3
    assert len(store.failed) == 3 - len(kept)


def test_the_answer_can_be_lost_after_the_deed():
    """With `after`, the store has done it and only the caller does not know."""
    shelf = Shelf()
    store = FailingStore(shelf, {"put": [1]}, after=True, error=lambda: ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        store.put("x")
    assert shelf.things == ["x"]
    assert store.put("y") == 2


async def test_async_methods_fail_alike():
    """An async method fails when awaited, before or after the deed, and else goes through."""
    shelf = Shelf()
    store = FailingStore(shelf, {"aput": [1]})
    with pytest.raises(OSError, match="cannot be reached"):
        await store.aput("x")
    assert await store.aput("y") == 1
    late = FailingStore(shelf, "aput", after=True)
    with pytest.raises(OSError, match="cannot be reached"):
        await late.aput("z")
    assert shelf.things == ["y", "z"]


def test_a_store_can_be_healed():
    """The rule can be changed while the store is in use; call numbers go on counting."""
    store = FailingStore(Shelf(), "put")
    with pytest.raises(OSError, match="cannot be reached"):
        store.put(1)
    store.fail_on(())
    assert store.put(2) == 1
    store.fail_on({"put": [3]})
    with pytest.raises(OSError, match="cannot be reached"):
        store.put(3)


def test_the_rest_of_the_store_shows_through():
    """Attributes and names of methods are the store's own; a missing one is an AttributeError."""
    store = FailingStore(Shelf())
    assert store.name == "shelf"
    assert store.put.__name__ == "put"
    assert store.put.__doc__ == "Keep it."
    with pytest.raises(AttributeError):
        _ = store.take
