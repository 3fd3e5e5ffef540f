"""Mode, latch, limits, approval and claim, decided in one act."""

from math import inf

import msgspec
import pytest

from pokayoke.core.admission import Approval, Charge, Held, Request, Used, admit, charges, fingerprint
from pokayoke.core.ledger import Claim, Record
from pokayoke.core.policy import LimitPolicy
from pokayoke.core.state import RunState, Taint, latch, worsen

RUN = RunState("r")
WISH = Claim("k", "h1", "c1", "pay", "pay@1", "r", now=100.0, lease=10.0)
ASKED = Approval("ap-1", "f", "pay", "pay@1", {"amount": 1}, "r", asked_at=90.0, expires_at=200.0)
DONE = Record("k", "h1", "completed", 1, "c0", 105.0, "pay", "pay@1", "r", 95.0, output=b"1")


def request(**changes):
    return msgspec.structs.replace(Request("r", "pay", "write", None, 100.0, WISH), **changes)


def test_a_first_write_is_claimed():
    """Nothing in the way: the answer is execute, and the record is to be kept."""
    kept = admit(request(), Held(RUN))
    assert (kept.answer.kind, kept.record.state) == ("execute", "executing")


def test_a_read_is_admitted_without_a_record():
    """Reads are never ledgered."""
    kept = admit(request(effect="read", claim=None), Held(RUN))
    assert (kept.answer.kind, kept.record) == ("execute", None)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (worsen(RUN, "stopped", "kill_switch"), "run_stopped"),
        (worsen(RUN, "final_answer", "loop_detected"), "tools_off"),
        (worsen(RUN, "safe_mode", "kill_switch"), "writes_off"),
        (latch(RUN, Taint("profile", "x", 1, "html")), "latched"),
    ],
)
def test_the_mode_is_part_of_the_claim(state, code):
    """A run that must not write gets no claim, not even one that would be answered from the ledger."""
    for held in (Held(state), Held(state, DONE)):
        kept = admit(request(), held)
        assert (kept.answer.kind, kept.answer.finding.code, kept.record) == ("refuse", code, None)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (None, "pending", "awaiting_approval"),
        ("waiting", "pending", "awaiting_approval"),
        ("approved", "execute", None),
        ("denied", "refuse", "approval_denied"),
        ("expired", "refuse", "approval_expired"),
    ],
)
def test_what_a_question_leads_to(status, kind, code):
    """Only an approved question lets the call through; everything else starts nothing."""
    known = None if status is None else msgspec.structs.replace(ASKED, status=status)
    kept = admit(request(approval=ASKED), Held(RUN, approval=known))
    assert kept.answer.kind == kind
    assert (kept.answer.finding.code if kept.answer.finding else None) == code
    assert (kept.record is None) is (kind != "execute")


@pytest.mark.parametrize("status", ["waiting", "approved"])
def test_approvals_expire(status):
    """A question nobody answered, and a consent nobody used, are void at their end; a new one is asked."""
    known = msgspec.structs.replace(ASKED, status=status, expires_at=100.0)
    kept = admit(request(approval=ASKED), Held(RUN, approval=known))
    assert kept.answer.finding.code == "approval_expired"
    assert kept.approval == ASKED


def test_a_repetition_asks_nobody_and_costs_nothing():
    """A completed write is answered from the ledger: no question, no charge."""
    charge = Charge("run:pay:r", 1, None, 0.0)
    kept = admit(request(approval=ASKED, charges=(charge,)), Held(RUN, DONE, {"run:pay:r": Used(1)}))
    assert (kept.answer.kind, kept.used, kept.approval) == ("replay", {}, None)


@pytest.mark.parametrize(
    ("used", "value", "kind"),
    [
        (Used(0, 0.0), 60.0, "execute"),
        (Used(1, 40.0), 60.0, "execute"),
        (Used(1, 40.5), 60.0, "refuse"),
        (Used(2, 0.0), 1.0, "refuse"),
    ],
)
def test_limits_hold_to_the_last_unit(used, value, kind):
    """Two calls and a sum of 100 are allowed; the third call or the 100.5th unit is not."""
    charge = Charge("x", 2, 100.0, value)
    kept = admit(request(charges=(charge,)), Held(RUN, used={"x": used}))
    assert kept.answer.kind == kind
    if kind == "execute":
        assert kept.used == {"x": Used(used.calls + 1, used.amount + value)}
    else:
        assert (kept.answer.finding.code, kept.used, kept.record) == ("quota_exceeded", {}, None)


def test_a_retriable_failure_is_charged_again():
    """A new attempt of the same write passes through limits like a first one."""
    failed = msgspec.structs.replace(DONE, state="failed_retriable")
    kept = admit(request(charges=(Charge("x", 1, None, 0.0),)), Held(RUN, failed, {"x": Used(1)}))
    assert kept.answer.finding.code == "quota_exceeded"


@pytest.mark.parametrize(
    ("per", "counter"),
    [("run", "run:*:r"), ("user", "user:*:u"), ("tool", "tool:pay"), ("day", "day:*:2026-11-21")],
)
def test_what_is_counted_together(per, counter):
    """Each kind of limit counts what its name says; days are UTC days."""
    (charge,) = charges((LimitPolicy(per=per, calls=1),), {}, tool="pay", run_id="r", user="u", now=1795219200.0)
    assert charge.counter == counter


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"amount": 5}, 5.0),
        ({"amount": -5}, 5.0),
        ({"amount": 2.5}, 2.5),
        ({"amount": "5"}, 5.0),
        ({"amount": "-1e3"}, 1000.0),
        ({"amount": None}, 0.0),
        ({}, 0.0),
        ({"amount": "5 EUR"}, inf),
        ({"amount": "nan"}, inf),
        ({"amount": [5]}, inf),
        ({"amount": 10**400}, inf),
    ],
)
def test_amounts_are_sizes(arguments, value):
    """A negative amount must not buy room for a positive one; what cannot be measured passes no limit."""
    (charge,) = charges((LimitPolicy(field="amount", amount=9),), arguments, tool="t", run_id="r", user=None, now=0.0)
    assert charge.value == value


def test_a_limit_without_a_field_counts_calls_only():
    """No field, no amount."""
    (charge,) = charges((LimitPolicy(per="user", calls=1),), {"amount": 5}, tool="t", run_id="r", user=None, now=0.0)
    assert (charge.value, charge.counter) == (0.0, "user:*:")


@pytest.mark.parametrize("turn", [1, -1])
def test_limits_on_one_tool_do_not_overwrite_each_other(turn):
    """A sum, another sum and a count of the same tool and run: each is kept, in whatever order they stand."""
    limits = (
        LimitPolicy(amount=100, field="amount"),
        LimitPolicy(amount=9, field="weight"),
        LimitPolicy(calls=5),
    )[::turn]
    taken = charges(limits, {"amount": 60, "weight": 1}, tool="t", run_id="r", user=None, now=0.0)
    kept = admit(request(claim=None, charges=taken), Held(RUN))
    again = admit(request(claim=None, charges=taken), Held(RUN, used=kept.used))
    assert (kept.answer.kind, again.answer.finding.code) == ("execute", "quota_exceeded")


def test_an_edited_call_needs_a_new_approval():
    """Version, scope, arguments and repetition are all part of what was approved."""
    base = ("pay@1", ("run", "r"), "h1", 0)
    others = [("pay@2", *base[1:]), ("pay@1", ("run", "q"), "h1", 0), ("pay@1", ("run", "r"), "h2", 0), (*base[:3], 1)]
    assert len({fingerprint(*base), *(fingerprint(*other) for other in others)}) == 5
