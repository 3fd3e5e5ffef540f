"""The failing store, over a store made for the test."""

import inspect

import pytest

from pokayoke.stores import operations as acts
from pokayoke.stores.base import RecordQuery, Store
from pokayoke.testing import FailingStore


class Shelf(Store):
    """A store that keeps what it was called with, and one thing no other store has."""

    durable, sealed = True, False
    place = "cellar"

    def __init__(self):
        self.done = []

    def kept(self, name, thing=None):
        """Keep it, and answer with it."""
        self.done.append((name, thing))
        return thing

    def run(self, act):
        """Keep the act's name and what it reads."""
        return self.kept(act.name, act.need)

    async def arun(self, act):
        """Keep it under its asynchronous name."""
        return self.kept(f"a{act.name}", act.need)

    def settle_on(self, conn, settlement):
        """Keep it."""
        return self.kept("settle_on", (conn, settlement))

    async def asettle_on(self, conn, settlement):
        """Keep it under its asynchronous name."""
        return self.kept("asettle_on", (conn, settlement))

    def record(self, key):
        """Keep it."""
        return self.kept("record", key)

    def records(self, query):
        """Keep it."""
        return self.kept("records", query)

    def load_run(self, run_id):
        """Keep it."""
        return self.kept("load_run", run_id)

    def approvals(self):
        """Keep it."""
        return self.kept("approvals")

    def switches(self):
        """Keep it."""
        return self.kept("switches")

    def rates(self):
        """Keep it."""
        return self.kept("rates")

    def approval(self, approval_id):
        """Keep it."""
        return self.kept("approval", approval_id)

    def audit(self, *, after=0, limit=1_000):
        """Keep it."""
        return self.kept("audit", (after, limit))

    def effects(self, wanted):
        """Keep it."""
        return self.kept("effects", wanted)

    def count_effects(self, wanted):
        """Keep it."""
        return self.kept("count_effects", wanted)

    def waiting_approvals(self, now, *, after=None, limit=50):
        """Keep it."""
        return self.kept("waiting_approvals", (now, after, limit))

    def audit_lines(self, wanted):
        """Keep it."""
        return self.kept("audit_lines", wanted)

    def runs(self, wanted):
        """Keep it."""
        return self.kept("runs", wanted)

    def overview(self, now):
        """Keep it."""
        return self.kept("overview", now)

    def board(self):
        """Keep it."""
        return self.kept("board")

    def pulse(self, now):
        """Keep it."""
        return self.kept("pulse", now)

    def prune(self, before, *, by, now):
        """Keep it."""
        return self.kept("prune", (before, by, now))

    def weaknesses(self):
        """Keep it."""
        return self.kept("weaknesses")

    def close(self):
        """Keep it."""
        return self.kept("close")


def an_act(name, number=0):
    return acts.Operation(name, acts.ReadSet(record=str(number)), lambda books: (acts.NO_WRITES, None))


ACTS = ("admit", "settle", "change_run", "propose", "answer", "decide", "observe", "flip", "note")
CALLS = {
    **{name: lambda store, name=name: store.run(an_act(name)) for name in ACTS},
    "settle_on": lambda store: store.settle_on("conn", "x"),
    "record": lambda store: store.record("x"),
    "records": lambda store: store.records(RecordQuery()),
    "load_run": lambda store: store.load_run("x"),
    "approval": lambda store: store.approval("x"),
    "approvals": lambda store: store.approvals(),
    "switches": lambda store: store.switches(),
    "rates": lambda store: store.rates(),
    "audit": lambda store: store.audit(after=3, limit=4),
    "effects": lambda store: store.effects("x"),
    "count_effects": lambda store: store.count_effects("x"),
    "waiting_approvals": lambda store: store.waiting_approvals(1.0, after=(2.0, "f"), limit=3),
    "audit_lines": lambda store: store.audit_lines("x"),
    "runs": lambda store: store.runs("x"),
    "overview": lambda store: store.overview(1.0),
    "board": lambda store: store.board(),
    "pulse": lambda store: store.pulse(1.0),
    "prune": lambda store: store.prune(1.0, by="me", now=2.0),
    "weaknesses": lambda store: store.weaknesses(),
    "close": lambda store: store.close(),
}


def test_every_method_of_a_store_is_covered():
    """No method of a store slips past the wrapper, also one that is added later: each is an operation or is wrapped itself."""
    public = {name for name, value in vars(Store).items() if not name.startswith("_") and callable(value)}
    acting = {name for name in public if "run(operations." in inspect.getsource(vars(Store)[name])}
    assert public - acting - set(vars(FailingStore)) == set()
    plain = {name for name in public if not inspect.iscoroutinefunction(vars(Store)[name])} - {"run"}
    assert plain == set(CALLS)
    assert {name for name in acting if not inspect.iscoroutinefunction(vars(Store)[name])} == set(ACTS)


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
            store.run(an_act("admit", thing))
        except OSError:
            assert str(thing) not in [need.record for _, need in shelf.done]
    assert [int(need.record) for _, need in shelf.done] == kept
    assert store.calls == ["admit"] * 3
    assert len(store.failed) == 3 - len(kept)


@pytest.mark.parametrize("name", CALLS)
def test_the_answer_can_be_lost_after_the_deed(name):
    """With `after`, the store has done it and only the caller does not know."""
    shelf = Shelf()
    store = FailingStore(shelf, {name: [1]}, after=True, error=lambda: ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        CALLS[name](store)
    assert [done for done, _ in shelf.done] == [name]
    CALLS[name](store)
    assert store.failed == [name]


@pytest.mark.parametrize("name", [*ACTS, "settle_on"])
@pytest.mark.parametrize("after", [False, True])
async def test_async_methods_go_by_the_plain_name(name, after):
    """`aadmit`, `asettle_on` and the like fail under the plain names, before or after the deed."""
    shelf = Shelf()
    store = FailingStore(shelf, {name: [2]}, after=after)

    def once():
        return store.asettle_on("conn", "x") if name == "settle_on" else store.arun(an_act(name))

    assert await once() is not None
    with pytest.raises(OSError, match="cannot be reached"):
        await once()
    assert [done for done, _ in shelf.done] == [f"a{name}"] * (2 if after else 1)
    assert store.calls == [name, name]


def test_a_store_can_be_healed():
    """The rule can be changed while the store is in use; call numbers go on counting."""
    store = FailingStore(Shelf(), "admit")
    with pytest.raises(OSError, match="cannot be reached"):
        store.run(an_act("admit"))
    store.fail_on(())
    assert store.run(an_act("admit")).record == "0"
    store.fail_on({"admit": [3]})
    with pytest.raises(OSError, match="cannot be reached"):
        store.run(an_act("admit"))


def test_it_is_a_store_like_the_one_it_wraps():
    """A guard takes it for a store, as durable and as sealed as the real one, with what only that one has."""
    store = FailingStore(Shelf())
    assert isinstance(store, Store)
    assert (store.durable, store.sealed) == (True, False)
    assert store.place == "cellar"
    with pytest.raises(AttributeError):
        _ = store.missing


@pytest.mark.parametrize(
    "rule",
    [
        "admitt", ["admit", "setle"], {"reords": [1]}, "sealed", "__init__", "run", "aadmit", {"asettle_on": [1]},
        {"admit": ["a"]}, {"admit": "1"}, {"admit": 1}, {"admit": [1, 0]}, {"admit": [True]}, {"admit": [1.0]},
    ],
)  # fmt: skip
def test_a_call_that_no_store_has_is_refused(rule):
    """A name or number of no call would make a test pass that tests nothing, at once and when the rule is changed."""
    for made in (lambda: FailingStore(Shelf(), rule), lambda: FailingStore(Shelf()).fail_on(rule)):
        with pytest.raises(ValueError, match=r"no store has|would never fail|such as"):
            made()
