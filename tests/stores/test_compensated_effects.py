"""What a repetition is told of an effect that was taken back, or may have been; over every store and both drivers."""

import asyncio
import time

import msgspec
import pytest

from pokayoke import Contract, Envelope, Guard, ToolCall
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.compensation import BusinessRow
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.reconcile import Comparison, build_compensations
from pokayoke.core.ledger.records import Claim, Resolution
from pokayoke.runtime.compensate import Compensator
from pokayoke.testing import FailingStore


def refusing(_):
    raise OSError("the target does not answer")


class Shop:
    """An agent's run over one store, and the operator who takes its order back."""

    def __init__(self, store, kind, compensate=lambda _: "R-1", *, handler=None, **fields):
        self.store, self.kind, self.ordered = store, kind, []
        self.contract = Contract.from_schema(
            "order",
            {"type": "object"},
            output_schema={},
            handler=handler or self.order,
            compensate=compensate,
            **fields,
        )
        self.run = Guard([self.contract], store=store).run("r")

    def order(self):
        """The tool."""
        self.ordered.append(len(self.ordered))
        return {"ref": "PO-1"}

    def call(self, ident, occurrence=0):
        """The agent calls it."""
        call = ToolCall(ident, "order", {}, occurrence=occurrence)
        return self.run.call(call) if self.kind == "sync" else asyncio.run(self.run.acall(call))

    def undo(self, key, row=None):
        """The operator undoes it, or one row of it."""
        found = Comparison("duplicate" if row else "matched", key, record=self.store.record(key), surplus=(row,))
        (step,) = build_compensations(found, "chosen")
        return Compensator(self.store, by="ann").undo_effect(self.contract, step)


@pytest.fixture(params=["sync", "async"])
def kind(request):
    """Which driver."""
    return request.param


@pytest.mark.parametrize(
    ("compensate", "became", "undoing"), [(lambda _: "R-1", "undone", "completed"), (refusing, "in_doubt", "in_doubt")]
)
def test_an_undone_effect_is_not_replayed(store, kind, compensate, became, undoing):
    """Nor is one whose undoing is in doubt: the call is refused and says so; another occurrence runs."""
    shop = Shop(store, kind, compensate)
    done = shop.call("c1")
    assert shop.call("c2").status == "replayed"
    assert shop.undo(done.key).status == became
    again = shop.call("c3")
    assert (again.status, again.value, again.effect, again.key) == ("refused", None, "none", done.key)
    (finding,) = again.findings
    assert (finding.code, finding.data["undoing"], again.stop_reason) == ("compensated", undoing, "loop_detected")
    assert shop.call("c4", occurrence=1).ok
    assert len(shop.ordered) == 2


@pytest.mark.parametrize("compensate", [lambda _: "R-1", refusing])
def test_an_undone_effect_is_not_said_to_be_done(store, kind, compensate):
    """The answer of a reopened run names what stands, and nothing that was undone or may have been."""
    shop = Shop(store, kind, compensate)
    undone, stands = shop.call("c1"), shop.call("c2", occurrence=1)
    shop.undo(undone.key)
    reopened = Guard([shop.contract], store=store).run("r")
    assert reopened.answer("").text == "I could not finish this safely. Done: order."
    shop.undo(stands.key)
    assert "Done" not in Guard([shop.contract], store=store).run("r").answer("").text


@pytest.mark.parametrize("state", ["failed_retriable", "failed_final"])
def test_what_failed_by_somebodys_word_and_was_undone_does_not_run_again(store, kind, state):
    """What is undone has happened: the ledger says so before, whoever has denied it, and the equal call is refused."""
    answers = iter([TimeoutError()] if state == "failed_retriable" else [])

    def order():
        shop.ordered.append(1)
        for error in answers:
            raise error
        return {"ok": False, "error": "sold out"}

    shop = Shop(store, kind, handler=order, envelope=Envelope(ok="/ok", error="/error"))
    key = shop.call("c1").key
    if state == "failed_retriable":
        store.decide(Resolution(key, False, "bob", "no such order", time.time()))
    assert store.record(key).state == state
    row = BusinessRow(1, key, "PO-1")
    (step,) = build_compensations(
        Comparison("extra", key, record=store.record(key), rows=(row,), surplus=(row,)), "extra"
    )
    compensator = Compensator(store, by="ann")
    assert [compensator.undo_effect(shop.contract, step).status for _ in range(2)] == ["undone", "undone_before"]
    record = store.record(key)
    assert (record.state, record.reference, record.decided_by) == ("completed", "PO-1", "ann")
    assert [finding.code for finding in shop.call("c2").findings] == ["compensated"]
    assert shop.ordered == [1]


def test_what_runs_again_meanwhile_is_not_undone(store, kind):
    """The record is no failure any more when its undoing comes: that is refused, and may be asked for again."""
    shop = Shop(store, kind, no_effect_errors=(LookupError,), handler=lambda: {}["nothing"])
    key = shop.call("c1").key
    (step,) = build_compensations(
        Comparison("extra", key, record=store.record(key), rows=(BusinessRow(1, key, "PO-1"),)), "extra"
    )
    wish = Claim(key, store.record(key).args_hash, "c9", "order", "order@1", "r", time.time(), 40.0)
    assert store.admit(AdmissionRequest("r", "order", "write", (), time.time(), wish)).kind == "execute"
    undone = Compensator(store, by="ann").undo_effect(shop.contract, step)
    assert (undone.status, "executing" in undone.message) == ("refused", True)
    assert store.record(compensation_key(key)).state == "failed_retriable"
    assert store.record(key).state == "executing"


def test_what_ran_again_after_its_undoing_is_not_said_to_be_undone(store, kind):
    """The undoing of an earlier attempt is no undoing of this one: that is left to a person, and said."""
    shop = Shop(store, kind)
    key = shop.call("c1").key
    assert [shop.undo(key).status for _ in range(2)] == ["undone", "undone_before"]
    later = msgspec.structs.replace(store.record(key), claimed_at=store.record(compensation_key(key)).claimed_at + 1)
    (step,) = build_compensations(Comparison("matched", key, record=later), "chosen")
    done = Compensator(store, by="ann").undo_effect(shop.contract, step)
    assert (done.status, "run again since" in done.message) == ("refused", True)


def test_an_effect_that_stands_is_replayed(store, kind):
    """The undoing of a surplus row of it takes nothing from the effect itself."""
    shop = Shop(store, kind)
    done = shop.call("c1")
    assert shop.undo(done.key, BusinessRow(2, done.key, "PO-2")).status == "undone"
    assert shop.call("c2").status == "replayed"


def test_an_undone_effect_stays_so_where_repetitions_are_asked_about(store, kind):
    """`repeats="once"`: in the same turn nothing is asked, and the more telling reason is given."""
    shop = Shop(store, kind, repeats="once")
    shop.undo(shop.call("c1").key)
    assert [finding.code for finding in shop.call("c2").findings] == ["compensated"]


def test_what_cannot_be_looked_up_is_not_replayed(store, kind):
    """A store that fails right then: refused, as nobody can tell whether the effect stands; it is not denied either."""
    failing = FailingStore(store)
    shop = Shop(failing, kind)
    shop.call("c1")
    failing.fail_on("record")
    again = shop.call("c2")
    assert (again.status, [finding.code for finding in again.findings]) == ("refused", ["store_unavailable"])
    assert (again.effect, again.value) == ("done", None)
    assert "already took effect" in again.text
    assert "not started" not in again.text
    assert "the ledger cannot be reached" in again.message
    assert len(shop.ordered) == 1
