"""What makes two writes the same, and what a repetition gets; through both drivers."""

import threading

import pytest

from pokayoke import Contract, Envelope, Guard, ToolCall, ToolError, this_effect
from pokayoke.core.ledger.key import compensation_key
from pokayoke.stores import MemoryStore
from pokayoke.stores.base import RecordQuery
from pokayoke.testing import FrozenClock

PAY = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "amount": {"type": "integer"},
        "trace": {"type": "string"},
        "currency": {"type": ["string", "null"], "default": "EUR"},
    },
    "required": ["to"],
}
PAID = {"type": "object", "properties": {"ref": {"type": "string"}}, "required": ["ref"]}


class Bank:
    """A target that counts what it did."""

    def __init__(self):
        self.paid, self.store, self.clock = [], MemoryStore(), FrozenClock()

    def pay(self, **arguments):
        """The tool."""
        self.paid.append(arguments)
        return {"ref": f"P{len(self.paid)}"}

    def run(self, *, guard=None, handler=None, **fields):
        """A run of an agent with this contract."""
        fields = {"output_schema": PAID, **fields}
        contract = Contract.from_schema("pay", PAY, handler=handler or self.pay, **fields)
        return Guard([contract], store=self.store, clock=self.clock, **(guard or {})).run("r")


@pytest.fixture
def bank():
    return Bank()


def pay(ident="c1", occurrence=0, **arguments):
    return ToolCall(ident, "pay", {"to": "ann", **arguments}, occurrence=occurrence)


def codes(outcome):
    return [finding.code for finding in outcome.findings]


@pytest.mark.parametrize(
    ("fields", "first", "second", "said", "paid"),
    [
        ({}, {"amount": 1}, {"amount": 1}, "replayed", 1),
        ({}, {"amount": 1}, {"amount": 2}, "ok", 2),
        ({}, {"amount": "1"}, {"amount": 1}, "replayed", 1),
        ({"identity": ("to",)}, {"amount": 1}, {"amount": 2}, "refused", 1),
        ({"volatile": ("trace",)}, {"trace": "a"}, {"trace": "b"}, "replayed", 1),
        ({"volatile": ("trace",)}, {"trace": "a"}, {}, "replayed", 1),
        ({"volatile": ("trace",)}, {"trace": "a", "amount": 1}, {"trace": "a", "amount": 2}, "ok", 2),
        ({"volatile": ("trace",), "identity": ("to",)}, {"trace": "a"}, {"trace": "b"}, "replayed", 1),
        ({"volatile": ("trace",), "identity": ("to",)}, {"amount": 1}, {"amount": 2}, "refused", 1),
        ({}, {}, {"currency": "EUR"}, "replayed", 1),
        ({}, {"currency": "EUR"}, {}, "replayed", 1),
        ({}, {}, {"currency": "USD"}, "ok", 2),
        ({}, {}, {"currency": None}, "ok", 2),
        ({"identity": ("to", "currency")}, {}, {"currency": "EUR"}, "replayed", 1),
        ({"identity": ("to", "currency")}, {}, {"currency": None}, "ok", 2),
        ({"identity": ("to",)}, {}, {"currency": "EUR"}, "replayed", 1),
        ({"volatile": ("trace",)}, {"trace": "a"}, {"currency": "EUR"}, "replayed", 1),
    ],
)
def test_what_makes_two_writes_the_same(bank, driver, fields, first, second, said, paid):
    """All arguments as they were corrected, or the identity; what is volatile makes no difference, other details do.

    An argument that was left out counts as its declared default, and the tool gets what was sent.
    """
    run = bank.run(**fields)
    assert driver.call(run, pay(**first)).ok
    again = driver.call(run, pay("c2", **second))
    assert (again.status, len(bank.paid)) == (said, paid)
    assert bank.paid[0] == {"to": "ann", **first} or "amount" in first
    assert said != "refused" or codes(again) == ["conflict"]


def test_a_raised_epoch_begins_anew(bank, driver):
    """Raised on purpose, every effect counts as new; a changed version of the contract does not."""
    assert driver.call(bank.run(), pay()).ok
    assert driver.call(bank.run(version="2"), pay("c2")).status == "replayed"
    assert driver.call(bank.run(key_epoch=1), pay("c3")).status == "ok"
    assert driver.call(bank.run(key_epoch=1), pay("c4")).status == "replayed"
    assert len(bank.paid) == 2


@pytest.mark.parametrize(
    ("fields", "reply", "more", "note"),
    [
        # Its output latches the run, so an equal call is held back.
        ({}, {}, {}, "pay ran, but its answer was unusable."),
        ({"identity": ("to",)}, {"ref": 1}, {"amount": 6}, "Not done: pay (the details did not fit)."),
        (
            {},
            {},
            {"amount": 6},
            "Not done: pay (an answer it may build on was unusable). pay ran, but its answer was unusable.",
        ),
    ],
)
def test_a_repetition_that_is_refused_leaves_nothing_undone(bank, driver, fields, reply, more, note):
    """What was done once is not told as not done because the model asked again; another effect of the tool is."""
    wanted = {"type": "object", "required": ["ref"]}
    run = bank.run(handler=lambda **_: reply, output_schema=wanted, **fields)
    assert driver.call(run, pay()).effect == "done"
    assert driver.call(run, pay("c2", **more)).status == "refused"
    assert run.answer("Paid.").text == ("Paid." if note is None else f"Paid.\n\n[{note}]")


@pytest.mark.parametrize("marked", ["ref", "trace"])
@pytest.mark.parametrize(("sealed", "kept"), [(True, {"ref": "canary-7"}), (False, None)])
def test_a_marked_output_is_kept_only_where_values_are_sealed(bank, driver, sealed, kept, marked):
    """A store that would write it down keeps that the effect happened, and no secret, nor one the arguments held."""
    bank.store.sealed = sealed
    run = bank.run(handler=lambda **_: {"ref": "canary-7"}, redact=(marked,))
    first, second = (driver.call(run, pay(ident, trace="canary-7")) for ident in ("c1", "c2"))
    assert (first.value, second.status, second.value) == ({"ref": "canary-7"}, "replayed", kept)
    assert ("canary-7" in repr(bank.store.record(first.key))) is sealed


def test_a_repetition_may_be_a_question(bank, driver):
    """`repeats="once"`: in a later turn it waits for a person and then runs; each yes is for one effect."""
    run = bank.run(repeats="once")
    run.can_ask = True
    assert driver.call(run, pay()).ok
    run.user("Once more.")
    waiting = driver.call(run, pay("c2"))
    assert (waiting.status, codes(waiting), len(bank.paid)) == ("pending", ["awaiting_approval"], 1)
    assert "P1" in waiting.text
    assert driver.call(run, pay("c3")).approval == waiting.approval
    run.guard.approvals.approve(waiting.approval, by="ann")
    again = driver.call(run, pay("c4"))
    assert (again.status, again.value, again.repeated, len(bank.paid)) == ("ok", {"ref": "P2"}, True, 2)
    assert driver.call(run, pay("c5")).status == "replayed"
    run.user("And a third time.")
    third = driver.call(run, pay("c6"))
    assert third.status == "pending"
    assert third.approval != waiting.approval
    run.guard.approvals.deny(third.approval, by="ann")
    assert codes(driver.call(run, pay("c7"))) == ["approval_denied"]
    assert len(bank.paid) == 2


@pytest.mark.parametrize(("said", "status", "paid"), [(True, "ok", 2), (False, "refused", 1), (None, "pending", 1)])
def test_a_question_about_a_repetition_may_be_answered_at_once(bank, driver, said, status, paid):
    """The callback is asked about exactly the second execution; the first one asks nobody."""
    asked = []
    run = bank.run(repeats="once", guard={"on_ask": lambda question: asked.append(question) or said})
    assert driver.call(run, pay()).ok
    run.user("Once more.")
    assert asked == []
    assert driver.call(run, pay("c2")).status == status
    assert (len(asked), len(bank.paid)) == (1, paid)


def test_the_handler_hands_the_key_on_by_itself(bank, driver):
    """`forwards_key`: every attempt sees the same key, whatever the attempt; the ledger knows it by that name."""
    seen = []

    def forwarding(**arguments):
        seen.append((this_effect().key, this_effect().attempt))
        if len(seen) == 1:
            raise ConnectionError("reset")
        return {"ref": "P1"}

    run = bank.run(on_ambiguous="downstream_key", forwards_key=True, handler=forwarding)
    assert driver.call(run, pay()).status == "in_doubt"
    assert driver.call(run, pay("c2")).ok
    (record,) = bank.store.records(RecordQuery())
    assert seen == [(record.key, 1), (record.key, 2)]


def test_what_the_handler_sees_of_its_write_cannot_be_changed_and_shows_no_more_than_it_says(bank, driver):
    """`this_effect()` is a value; printed, it names key, attempt and deadline, and nothing of the guard."""
    seen = []

    def curious(**arguments):
        with pytest.raises(AttributeError):
            this_effect().key = "another"
        seen.append((repr(this_effect()), this_effect().deadline))
        return {"ref": "P1"}

    assert driver.call(bank.run(handler=curious), pay()).ok
    (record,) = bank.store.records(RecordQuery())
    ((shown, deadline),) = seen
    assert shown == f"Effect(key={record.key!r}, attempt=1, deadline={deadline})"


def test_compensating_is_never_done_by_a_call(bank, driver):
    """A contract that can be undone is not undone by itself, whatever happens to its write."""
    undone = []

    def broken(**arguments):
        raise ConnectionError("reset")

    run = bank.run(compensate=undone.append, handler=broken)
    assert driver.call(run, pay()).status == "in_doubt"
    assert driver.call(run, pay("c2")).status == "in_doubt"
    (record,) = bank.store.records(RecordQuery())
    assert (undone, record.compensates) == ([], "")
    assert bank.store.record(compensation_key(record.key)) is None


@pytest.mark.parametrize(
    ("answer", "status", "state"),
    [
        ({"ok": False, "error": "no funds"}, "failed", "failed_final"),
        ({"ok": True, "ref": "P1"}, "ok", "completed"),
    ],
)
def test_a_failure_that_the_tool_declares_is_final(bank, driver, answer, status, state):
    """Its word is no proof that nothing happened: the write is not tried again."""
    run = bank.run(handler=lambda **_: answer, envelope=Envelope(ok="/ok", error="/error"))
    outcome = driver.call(run, pay())
    (record,) = bank.store.records(RecordQuery())
    assert (outcome.status, record.state) == (status, state)
    again = driver.call(run, pay("c2"))
    assert again.status == ("failed" if status == "failed" else "replayed")
    assert status == "ok" or codes(again) == ["failed_before"]


class SilentError(Exception):
    """One that cannot tell its own text."""

    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (SilentError(), "in_doubt", "(without a readable text)"),
        (ToolError("no funds"), "failed", "no funds"),
        (KeyError("x"), "in_doubt", "KeyError"),
    ],
)
def test_what_a_tool_raises_is_put_into_words(bank, driver, error, status, words):
    """Even an exception that raises when it is read ends in an outcome."""

    def broken(**arguments):
        raise error

    outcome = driver.call(bank.run(handler=broken), pay())
    assert outcome.status == status
    assert words in outcome.message


@pytest.mark.parametrize("hangs", [True, False])
def test_an_invariant_that_does_not_come_back_makes_the_output_unusable(bank, driver, hangs):
    """A check that exits or hangs is no check: the effect is done, the value is not handed out, nothing runs again."""
    free = threading.Event()

    def check(output, arguments):
        if not hangs:
            raise SystemExit(1)
        free.wait(10)

    run = bank.run(invariants=(check,), timeout=0.2, sources=())
    outcome = driver.call(run, pay())
    assert (outcome.status, outcome.effect, outcome.value) == ("invalid_output", "done", None)
    assert codes(outcome) == ["invariant_cut" if hangs else "invariant_raised"]
    assert codes(driver.call(run, pay("c2"))) == ["invalid_before"]
    free.set()
    assert len(bank.paid) == 1


def test_a_read_that_declares_a_failure_leaves_no_record(bank, driver):
    """Reads are never ledgered, also when they fail."""
    failing = Contract.from_schema(
        "crm", {"type": "object"}, effect="read", output_schema=PAID, envelope=Envelope(ok="/ok", error="/error"),
        handler=lambda: {"ok": False, "error": "no such customer"},
    )  # fmt: skip
    outcome = driver.call(Guard([failing], store=bank.store).run("r"), ToolCall("c1", "crm", {}))
    assert (outcome.status, outcome.effect, codes(outcome)) == ("failed", "none", ["tool_error"])
    assert bank.store.records(RecordQuery()) == ()


def test_a_write_that_found_no_thread_has_not_happened(bank, driver):
    """With every thread lost it is not started, which is proof: it may be tried again."""
    run = bank.run(timeout=5.0)
    run.guard.workers._max_lost = 0
    outcome = driver.call(run, pay())
    assert (outcome.status, outcome.effect, codes(outcome)) == ("failed", "none", ["not_started"])
    for number in range(3):  # however often: what never begins uses up no attempt
        assert codes(driver.call(run, pay(f"c1{number}"))) == ["not_started"]
    (record,) = bank.store.records(RecordQuery())
    assert (record.state, record.attempt, bank.paid) == ("failed_retriable", 0, [])
    run.guard.workers._max_lost = 8
    assert driver.call(run, pay("c2")).ok


@pytest.mark.parametrize(
    ("answer", "kept"), [({"ref": 5}, {"ref": 5}), ("no JSON", None)], ids=["misfit", "unreadable"]
)
def test_what_monitor_mode_handed_on_is_no_result_to_who_enforces(bank, driver, answer, kept):
    """It is recorded as broken: monitor mode hands it on again, and an enforcing guard hears that it must not be used.

    What nobody could read is not kept as an answer of null.
    """
    run = bank.run(handler=lambda **_: answer, guard={"config": {"mode": "monitor"}})
    first, again = [driver.call(run, pay(ident)) for ident in ("c1", "c2")]
    assert (first.status, again.status) == ("ok", "replayed")
    assert (first.value, again.value, codes(again)) == (kept, kept, ["already_done", "invalid_before"])
    enforced = driver.call(bank.run(), pay("c3"))
    assert (enforced.status, enforced.value, codes(enforced)) == ("invalid_output", None, ["invalid_before"])
    assert bank.store.record(first.key).output_ok is False
    assert kept is None or "5" not in str(enforced.text)
    assert bank.paid == []


@pytest.mark.parametrize(("error", "ends"), [(LookupError, False), (KeyboardInterrupt, True)])
def test_an_object_that_cannot_tell_what_it_is_ends_in_an_outcome(bank, driver, error, ends):
    """A read whose answer raises when it is looked at is not tried again, and not handed out; Ctrl-C goes through."""

    class Odd:
        @property
        def status_code(self):
            raise error("no status")

    read = Contract.from_schema("crm", {"type": "object"}, effect="read", output_schema=PAID, handler=Odd)
    run = Guard([read]).run("r")
    if ends:
        with pytest.raises(KeyboardInterrupt):
            driver.call(run, ToolCall("c1", "crm", {}))
        return
    outcome = driver.call(run, ToolCall("c1", "crm", {}))
    assert (outcome.status, outcome.attempts) == ("degraded", 1)
