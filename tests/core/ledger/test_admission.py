"""Mode, latch, limits, approval and claim, decided in one act."""

from math import inf

import msgspec
import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.limits import default_amounts
from pokayoke.core.flow.plan import build_snapshot
from pokayoke.core.ledger.admission import (
    AdmissionRequest,
    Approval,
    Charge,
    Endorsement,
    LimitUsage,
    StoredState,
    admit,
    approval_fingerprint,
    build_charges,
)
from pokayoke.core.ledger.records import UNASKED, Claim, Record
from pokayoke.core.policy import LimitPolicy, Policy
from pokayoke.core.state.kill_switch import Switch
from pokayoke.core.state.run_state import RunState, Taint, latch, step_down_to
from pokayoke.errors import ContractError

RUN = RunState("r")
WISH = Claim("k", "h1", "c1", "pay", "pay@1", "r", now=100.0, lease=10.0)
ASKED = Approval("ap-1", "f", "pay", "pay@1", {"amount": 1}, "r", asked_at=90.0, expires_at=200.0)
DONE = Record("k", "h1", "completed", 1, "c0", 105.0, "pay", "pay@1", "r", 95.0, settled_at=99.0, output=b"1")


def request(**changes):
    return msgspec.structs.replace(AdmissionRequest("r", "pay", "write", None, 100.0, WISH), **changes)


def test_a_first_write_is_claimed():
    """Nothing in the way: the answer is execute, and the record is to be kept."""
    kept = admit(request(), StoredState(RUN))
    assert (kept.answer.kind, kept.record.state) == ("execute", "executing")


def test_a_read_is_admitted_without_a_record():
    """Reads are never ledgered."""
    kept = admit(request(effect="read", claim=None), StoredState(RUN))
    assert (kept.answer.kind, kept.record) == ("execute", None)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (step_down_to(RUN, "stopped", "kill_switch"), "run_stopped"),
        (step_down_to(RUN, "final_answer", "loop_detected"), "tools_off"),
        (step_down_to(RUN, "safe_mode", "kill_switch"), "writes_off"),
        (latch(RUN, Taint("profile", "x", 1, "html")), "latched"),
    ],
)
def test_the_mode_is_part_of_the_claim(state, code):
    """A run that must not write gets no claim, not even one that would be answered from the ledger."""
    for held in (StoredState(state), StoredState(state, DONE)):
        kept = admit(request(), held)
        assert (kept.answer.kind, kept.answer.finding.code, kept.record) == ("refuse", code, None)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(("halted", "code"), [("run", "run_stopped"), ("switch", "kill_switch"), (None, None)])
def test_a_claim_at_work_goes_on_and_its_next_try_is_a_new_start(halted, code, again):
    """Whatever was stopped since, an answer that was lost is given again; another execution needs leave to begin."""
    state = step_down_to(RUN, "stopped", "kill_switch") if halted == "run" else RUN
    switches = (Switch("*", "open"),) if halted == "switch" else ()
    at_work = admit(request(), StoredState(RUN)).record
    kept = admit(request(again=again), StoredState(state, at_work, switches=switches))
    refused = again and halted is not None
    assert kept.answer.kind == ("refuse" if refused else "execute")
    assert (kept.answer.finding.code if kept.answer.finding else None) == (code if refused else None)
    assert (kept.record is None) is refused


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (None, "pending", "awaiting_approval"),
        ("waiting", "pending", "awaiting_approval"),
        ("used", "pending", "awaiting_approval"),
        ("approved", "execute", None),
        ("denied", "refuse", "approval_denied"),
        ("expired", "refuse", "approval_expired"),
    ],
)
def test_what_a_question_leads_to(status, kind, code):
    """Only an approved question lets the call through; everything else starts nothing."""
    known = None if status is None else msgspec.structs.replace(ASKED, status=status)
    kept = admit(request(approval=ASKED), StoredState(RUN, approval=known))
    assert kept.answer.kind == kind
    assert (kept.answer.finding.code if kept.answer.finding else None) == code
    assert (kept.record is None) is (kind != "execute")


@pytest.mark.parametrize(
    ("approvers", "first", "said"),
    [
        (1, None, f"approval {ASKED.id}"),
        (2, None, f"approval {ASKED.id} of two people"),
        (2, Endorsement("ann", "", 1.0), f"approval {ASKED.id} of a second person, beside ann"),
    ],
)
def test_a_question_says_how_many_people_it_waits_for(approvers, first, said):
    """One person is the rule and not named; of two, the one who has said yes is."""
    known = msgspec.structs.replace(ASKED, approvers=approvers, first=first)
    kept = admit(request(approval=known), StoredState(RUN, approval=known))
    assert kept.answer.finding.message.endswith(f"needs {said}")


@pytest.mark.parametrize(("claim", "kept"), [(WISH, None), (None, "used")])
def test_a_read_uses_its_yes_up(claim, kept):
    """A write's record says that it ran; a read has none, so the yes itself says so, and is a yes no more."""
    known = msgspec.structs.replace(ASKED, status="approved")
    admitted = admit(request(claim=claim, approval=ASKED), StoredState(RUN, approval=known))
    assert admitted.answer.kind == "execute"
    assert (admitted.approval.status if admitted.approval else None) == kept
    assert [one.granted for one in (ASKED, known, admitted.approval or known)] == [False, True, True]


def test_a_no_does_not_expire():
    """What a person has denied stays denied after the question's time, too."""
    known = msgspec.structs.replace(ASKED, status="denied", expires_at=100.0)
    assert known.at(1e9) == known
    assert admit(request(approval=ASKED), StoredState(RUN, approval=known)).answer.finding.code == "approval_denied"


@pytest.mark.parametrize(
    ("status", "by", "said"),
    [
        ("waiting", "", ("without a decision", "Nobody approved")),
        ("approved", "ann", ("given by ann and expired unused", "has expired")),
        ("approved", "", ("given by a person and expired unused", "has expired")),
    ],
)
def test_approvals_expire(status, by, said):
    """A question nobody answered, and a consent nobody used, are void at their end, and told apart; a new one is asked."""
    known = msgspec.structs.replace(ASKED, status=status, by=by, expires_at=100.0)
    kept = admit(request(approval=ASKED), StoredState(RUN, approval=known))
    finding = kept.answer.finding
    assert finding.code == "approval_expired"
    assert (said[0] in finding.message, said[1] in finding.hint) == (True, True)
    assert kept.approval == ASKED


@pytest.mark.parametrize("status", ["waiting", "approved", "denied"])
@pytest.mark.parametrize(("ahead", "void"), [(3_600.0, False), (3_600.1, True)])
def test_a_question_from_a_clock_that_was_far_ahead_is_void(status, ahead, void):
    """Once the clock is put right, a yes does not hold as much longer; an hour that machines differ by does no harm."""
    known = msgspec.structs.replace(ASKED, status=status, asked_at=ahead, expires_at=ahead + 110.0)
    assert (known.at(0.0).status == "expired") is (void and status != "denied")


def test_a_repetition_asks_nobody_and_costs_nothing():
    """A completed write is answered from the ledger: no question, no charge."""
    charge = Charge("run:pay:r", 1, None, 0.0)
    kept = admit(request(approval=ASKED, charges=(charge,)), StoredState(RUN, DONE, {"run:pay:r": LimitUsage(1)}))
    assert (kept.answer.kind, kept.used, kept.approval) == ("replay", {}, None)


@pytest.mark.parametrize(
    ("used", "value", "kind"),
    [
        (LimitUsage(0, 0.0), 60.0, "execute"),
        (LimitUsage(1, 40.0), 60.0, "execute"),
        (LimitUsage(1, 40.5), 60.0, "refuse"),
        (LimitUsage(2, 0.0), 1.0, "refuse"),
    ],
)
def test_limits_hold_to_the_last_unit(used, value, kind):
    """Two calls and a sum of 100 are allowed; the third call or the 100.5th unit is not."""
    charge = Charge("x", 2, 100.0, value)
    kept = admit(request(charges=(charge,)), StoredState(RUN, used={"x": used}))
    assert kept.answer.kind == kind
    if kind == "execute":
        assert kept.used == {"x": LimitUsage(used.calls + 1, used.amount + value)}
    else:
        assert (kept.answer.finding.code, kept.used, kept.record) == ("quota_exceeded", {}, None)


@pytest.mark.parametrize("state", ["failed_retriable", "in_doubt"])
def test_another_attempt_of_the_same_write_is_charged_once(state):
    """Limits count effects, not attempts: what may run again passes a limit that its first attempt has used up."""
    before = msgspec.structs.replace(DONE, state=state)
    wish = msgspec.structs.replace(WISH, reruns=True)
    charge = Charge("x", 1, 5.0, 5.0)
    kept = admit(request(claim=wish, charges=(charge,)), StoredState(RUN, before, {"x": LimitUsage(1, 5.0)}))
    assert (kept.answer.kind, kept.record.attempt, kept.used) == ("execute", 2, {})


@pytest.mark.parametrize("state", ["failed_retriable", "in_doubt"])
@pytest.mark.parametrize("status", [None, "waiting", "denied", "expired"])
def test_another_attempt_asks_again(status, state):
    """A retry that nobody has approved does not run, and its record stays; a doubt about the first try is told."""
    known = None if status is None else msgspec.structs.replace(ASKED, status=status)
    before = msgspec.structs.replace(DONE, state=state)
    wish = msgspec.structs.replace(WISH, reruns=True)
    kept = admit(request(claim=wish, approval=ASKED), StoredState(RUN, before, approval=known))
    assert (kept.answer.kind, kept.record) == ("pending" if status in (None, "waiting") else "refuse", None)
    assert kept.answer.record == (before if state == "in_doubt" else None)
    assert ("not known whether an earlier try" in kept.answer.finding.hint) is (state == "in_doubt")


def test_the_same_request_again_gets_the_same_answer():
    """A claim whose receipt was lost is recognised first: no limit, question, latch or switch turns it into a refusal."""
    first = admit(request(), StoredState(RUN, epoch=3))
    held = StoredState(
        step_down_to(RUN, "stopped", "kill_switch"),
        first.record,
        {"x": LimitUsage(9)},
        switches=(Switch("*", "open"),),
        epoch=4,
    )
    again = admit(request(charges=(Charge("x", 1, None, 0.0),), approval=ASKED), held)
    assert (again.answer.kind, again.record, again.used) == ("execute", first.record, {})
    other = admit(request(claim=msgspec.structs.replace(WISH, claim_id="c2")), held)
    assert other.answer.finding.code == "run_stopped"
    forked = admit(request(claim=msgspec.structs.replace(WISH, owner="a child")), held)
    assert forked.answer.finding.code == "run_stopped"
    settled = msgspec.structs.replace(held, record=msgspec.structs.replace(first.record, state="in_doubt"))
    assert admit(request(), settled).answer.finding.code == "run_stopped"


@pytest.mark.parametrize(
    ("switches", "changes", "code"),
    [
        ((), {}, None),
        ((Switch("crm", "closed", 2),), {}, None),
        ((Switch("crm", "open", 2),), {}, "kill_switch"),
        ((Switch("crm", "open", 2),), {"sources": ("crm", "x")}, "kill_switch"),
        ((Switch("crm", "open", 2),), {"sources": ("x",)}, None),
        ((Switch("crm", "open", 2),), {"sources": ()}, None),
        ((Switch("pay", "open", 2),), {"sources": ()}, "kill_switch"),
        ((Switch("*", "open", 2),), {"sources": ()}, "kill_switch"),
        ((Switch("*", "open", 2),), {"effect": "destructive"}, "kill_switch"),
        ((Switch("*", "open", 2),), {"effect": "read", "claim": None}, None),
        ((Switch("a", "closed"), Switch("crm", "open", 2)), {"sources": ("crm",)}, "kill_switch"),
    ],
)
def test_the_kill_switch_is_part_of_the_claim(switches, changes, code):
    """An open switch leaves no claim behind; the claim of what may go on carries the epoch it was admitted in."""
    asked = request(**changes)
    kept = admit(asked, StoredState(RUN, switches=switches, epoch=2))
    assert (kept.answer.finding.code if kept.answer.finding else None) == code
    assert (kept.answer.kind, kept.record is None) == (("refuse", True) if code else ("execute", asked.claim is None))
    if kept.record is not None:
        assert kept.record.epoch == 2


def test_a_resolver_with_proof_still_needs_admission():
    """Between the lookup and the second execution a switch may open, a run may stop: then nothing starts."""
    resolving = msgspec.structs.replace(DONE, state="resolving", settled_at=None, resolver="c1")
    wish = request(claim=msgspec.structs.replace(WISH, proceed=True))
    assert admit(wish, StoredState(RUN, resolving)).answer.kind == "execute"
    for held in (
        StoredState(step_down_to(RUN, "safe_mode", "tool_failure"), resolving),
        StoredState(latch(RUN, Taint("crm", "i", 1, "html")), resolving),
        StoredState(RUN, resolving, switches=(Switch("crm", "open", 1),)),
    ):
        kept = admit(wish, held)
        assert (kept.answer.kind, kept.record) == ("refuse", None)


@pytest.mark.parametrize(
    ("state", "kind"),
    [("in_doubt", "resolve"), ("completed", "replay"), ("failed_final", "failed"), ("executing", "refuse")],
)
def test_what_does_not_execute_asks_nobody_and_takes_nothing(state, kind):
    """Lookups, replays and refusals of the ledger leave limits and questions alone."""
    known = msgspec.structs.replace(DONE, state=state)
    wish = msgspec.structs.replace(WISH, resolves=True)
    asked = request(claim=wish, charges=(Charge("x", 0, None, 0.0),), approval=ASKED)
    kept = admit(asked, StoredState(RUN, known))
    assert (kept.answer.kind, kept.used, kept.approval) == (kind, {}, None)
    assert (kept.record is not None) is (state == "in_doubt")


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({}, True),
        ({"claim": None}, False),
        ({"claim": None, "approval": ASKED}, True),
        ({"claim": None, "charges": (Charge("x", 1, None, 0.0),)}, True),
    ],
)
def test_what_the_store_has_to_be_asked_for(changes, shared):
    """A claim, a question or a limit needs the store; a plain read needs only its run."""
    assert request(**changes).needs_shared_state is shared


def test_a_new_question_is_kept_and_an_open_one_is_not_replaced():
    """The first call leaves its question; the next one finds it and adds none."""
    first = admit(request(approval=ASKED), StoredState(RUN))
    assert (first.approval, first.answer.approval) == (ASKED, "ap-1")
    again = admit(request(approval=ASKED), StoredState(RUN, approval=first.approval))
    assert (again.approval, again.answer.approval) == (None, "ap-1")
    denied = msgspec.structs.replace(ASKED, status="denied", by="ann", reason="too much")
    refused = admit(request(approval=ASKED), StoredState(RUN, approval=denied))
    assert (refused.answer.approval, refused.approval) == ("ap-1", None)
    assert "denied by ann: too much" in refused.answer.finding.message
    nameless = admit(
        request(approval=ASKED), StoredState(RUN, approval=msgspec.structs.replace(ASKED, status="denied"))
    )
    assert "denied by a person: no reason given" in nameless.answer.finding.message


@pytest.mark.parametrize(
    ("charge", "said"),
    [
        (Charge("day:pay", 10, None, 0.0), "3 of 10 calls are used, and this call takes 1 (day:pay)"),
        (Charge("day:pay", None, 1_000.0, 6.5), "450.5 of 1,000 in sum is used, and this call takes 6.5 (day:pay)"),
        (
            Charge("day:pay", None, 9.0, inf),
            "450.5 of 9 in sum is used, and this call takes an amount that cannot be measured (day:pay)",
        ),
    ],
)
def test_a_question_says_what_its_limits_have_given_out(charge, said):
    """The person reads how much is used and what the call takes; a second try, which was counted before, takes none."""
    held = StoredState(RUN, used={"day:pay": LimitUsage(3, 450.5)})
    asked = admit(request(charges=(charge,), approval=ASKED), held).approval
    assert [one.sentence for one in asked.limits] == [said]
    tried = msgspec.structs.replace(DONE, state="failed_retriable", output=None)
    again = admit(request(charges=(charge,), approval=ASKED), msgspec.structs.replace(held, record=tried))
    assert again.approval.limits == ()


@pytest.mark.parametrize(("calls", "amount", "what"), [(1, 50.0, "calls"), (5, 5.0, "amount")])
def test_a_used_up_limit_says_which(calls, amount, what):
    """The finding names the limit, what is used and what is allowed."""
    charge = Charge("x", calls, amount, 6.0)
    finding = admit(request(charges=(charge,)), StoredState(RUN, used={"x": LimitUsage(1, 0.0)})).answer.finding
    assert (finding.code, finding.data["limit"]) == ("quota_exceeded", what)
    assert finding.data["allowed"] == (calls if what == "calls" else amount)
    assert finding.data["used"] == (1 if what == "calls" else 0.0)


@pytest.mark.parametrize(
    ("per", "counter"),
    [
        ("run", "run:*:r"),
        ("user", "user:*:u"),
        ("tool", "tool:pay"),
        ("day", "day:*:2026-11-21"),
        ("user_day", "user_day:*:2026-11-21:u"),
    ],
)
def test_what_is_counted_together(per, counter):
    """Each kind of limit counts what its name says; days are UTC days."""
    (charge,) = build_charges(
        (LimitPolicy(per=per, calls=1),), {}, tool="pay", run_id="r", user="u", tenant=None, now=1795219200.0
    )
    assert charge.counter == counter


@pytest.mark.parametrize("user", ["u", None])
def test_users_of_two_tenants_are_counted_apart(user):
    """The same id names another person in each tenant; without a tenant nothing changes."""
    limits = (LimitPolicy(per="user", calls=1),)
    counted = [
        build_charges(limits, {}, tool="pay", run_id="r", user=user, tenant=tenant, now=0.0)[0].counter
        for tenant in (None, "a", "b")
    ]
    assert counted == [f"user:*:{whose}{user or ''}" for whose in ("", "a\x1f", "b\x1f")]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"amount": 5}, 5.0),
        ({"amount": -5}, 5.0),
        ({"amount": 2.5}, 2.5),
        ({"amount": "5"}, 5.0),
        ({"amount": "-1e3"}, 1000.0),
        ({"amount": None}, inf),
        ({}, 0.0),
        ({"amount": "5 EUR"}, inf),
        ({"amount": "nan"}, inf),
        ({"amount": [5]}, inf),
        ({"amount": 10**400}, inf),
    ],
)
def test_amounts_are_sizes(arguments, value):
    """A negative amount must not buy room for a positive one; what cannot be measured passes no limit."""
    (charge,) = build_charges(
        (LimitPolicy(field="amount", amount=9),), arguments, tool="t", run_id="r", user=None, tenant=None, now=0.0
    )
    assert charge.value == value


NUMBER = {"type": "number"}


@pytest.mark.parametrize(
    ("schema", "counted"),
    [
        ({}, {}),
        ({"other": NUMBER}, {}),
        ({"amount": {"type": "number", "default": 400}}, {"amount": 400}),
        ({"amount": {"type": ["number", "null"], "default": None}}, {"amount": None}),
        ({"amount": {"anyOf": [NUMBER, {"type": "null"}], "default": 7}}, {"amount": 7}),
        (
            {"amount": {"anyOf": [{"type": "number", "default": 3}, {"type": "string", "default": "-9"}]}},
            {"amount": "-9"},
        ),
        ({"amount": {"$ref": "#/$defs/sum"}}, {"amount": 5}),
        ({"amount": NUMBER}, {"amount": None}),
    ],
)
def test_a_declared_default_counts_where_the_argument_is_left_out(schema, counted):
    """The largest default counts, null stands for what nobody knows, and a tool without the argument spends nothing."""
    whole = {"type": "object", "properties": schema, "$defs": {"sum": {"type": "number", "default": 5}}}
    tool = Contract.from_schema("pay", whole, output_schema={})
    limits = (LimitPolicy(calls=1), LimitPolicy(calls=1, field="other"), LimitPolicy(amount=9, field="amount"))
    assert default_amounts(tool, limits) == counted
    assert default_amounts(tool, ()) == {}


@pytest.mark.parametrize("amount", [NUMBER, {"type": ["number", "null"], "default": None}])
def test_a_limit_for_a_tool_may_not_count_what_nobody_knows(amount):
    """A limit that names the tool is refused while building, unless the argument is required or has a default."""
    limits, quota = (LimitPolicy(tool="pay", amount=9, field="amount"),), (LimitPolicy(amount=9, field="amount"),)
    schema = {"type": "object", "properties": {"amount": amount}}
    with pytest.raises(ContractError, match=r"'amount'.*Make it required"):
        default_amounts(Contract.from_schema("pay", schema, output_schema={}), limits)
    with pytest.raises(ContractError, match="'amount'"):
        build_snapshot((Contract.from_schema("pay", schema, output_schema={}, quota=quota),), Policy())
    asked = Contract.from_schema("pay", {**schema, "required": ["amount"]}, output_schema={})
    assert default_amounts(asked, limits) == {"amount": None}


@pytest.mark.parametrize(
    ("argument", "fits"),
    [
        ({"type": "string"}, False),
        ({"type": ["string", "null"], "maxLength": 9}, False),
        ({"type": "string", "format": "email"}, False),
        ({"enum": ["ann", "bob"]}, False),
        ({"type": "object"}, False),
        ({}, True),
        ({"type": "boolean"}, True),
        ({"anyOf": [NUMBER, {"type": "string"}]}, True),
        ({"type": "string", "pattern": "^[0-9]+$"}, True),
        ({"type": "string", "format": "decimal"}, True),
        ({"enum": ["5", "10"]}, True),
        ({"type": "string", "default": "0"}, True),
    ],
)
def test_a_limit_for_a_tool_may_not_count_what_is_no_number(argument, fits):
    """A limit or quota that sums up plain text is refused while building; text that is described may be a number."""
    limit, schema = LimitPolicy(tool="pay", amount=9, field="who"), {"type": "object", "properties": {"who": argument}}
    schema["required"] = ["who"]
    tool = Contract.from_schema("pay", schema, output_schema={})
    own = Contract.from_schema("pay", schema, output_schema={}, quota=(LimitPolicy(amount=9, field="who"),))
    for contract, policy in ((tool, Policy(limits=(limit,))), (own, Policy())):
        if fits:
            assert build_snapshot((contract,), policy).plans
        else:
            with pytest.raises(ContractError, match=r"pay: a limit counts 'who', .*declare this one as a number"):
                build_snapshot((contract,), policy)


def test_a_limit_without_a_field_counts_calls_only():
    """No field, no amount."""
    (charge,) = build_charges(
        (LimitPolicy(per="user", calls=1),), {"amount": 5}, tool="t", run_id="r", user=None, tenant=None, now=0.0
    )
    assert (charge.value, charge.counter) == (0.0, "user:*:")


@pytest.mark.parametrize("turn", [1, -1])
def test_limits_on_one_tool_do_not_overwrite_each_other(turn):
    """A sum, another sum and a count of the same tool and run: each is kept, in whatever order they stand."""
    limits = (
        LimitPolicy(amount=100, field="amount"),
        LimitPolicy(amount=9, field="weight"),
        LimitPolicy(calls=5),
    )[::turn]
    taken = build_charges(limits, {"amount": 60, "weight": 1}, tool="t", run_id="r", user=None, tenant=None, now=0.0)
    kept = admit(request(claim=None, charges=taken), StoredState(RUN))
    again = admit(request(claim=None, charges=taken), StoredState(RUN, used=kept.used))
    assert (kept.answer.kind, again.answer.finding.code) == ("execute", "quota_exceeded")


def test_an_edited_call_needs_a_new_approval():
    """Version, scope, arguments and repetition are all part of what was approved."""
    base = ("pay@1", ("run", "r"), "h1", 0)
    others = [("pay@2", *base[1:]), ("pay@1", ("run", "q"), "h1", 0), ("pay@1", ("run", "r"), "h2", 0), (*base[:3], 1)]
    assert len({approval_fingerprint(*base), *(approval_fingerprint(*other) for other in others)}) == 5


@pytest.mark.parametrize(
    ("allowed", "amounts", "last"),
    [
        (0.3, [0.1, 0.1, 0.1], "execute"),
        (1000.0, [333.30, 333.30, 333.30, 0.10], "execute"),
        (1000.0, [333.30, 333.30, 333.30, 0.11], "refuse"),
        (1e9, [999_999_999.99, 0.02], "refuse"),
        (1e-6, [1e-6, 1e-9], "refuse"),
        (0.0, [0.0], "execute"),
        (0.0, [1e-9], "refuse"),
        (1000.0, [inf], "refuse"),
    ],
)
def test_a_sum_may_reach_its_limit_in_any_parts(allowed, amounts, last):
    """Parts that add up to the limit are within it, however floats add; the smallest coin more is not."""
    used = {}
    for amount in amounts:
        kept = admit(
            request(effect="read", claim=None, charges=(Charge("x", None, allowed, amount),)),
            StoredState(RUN, used=used),
        )
        used = kept.used
    assert kept.answer.kind == last


@pytest.mark.parametrize(
    ("status", "now", "kind"),
    [
        (None, 100.0, "unasked"),
        ("waiting", 100.0, "pending"),
        ("approved", 100.0, "execute"),
        ("used", 100.0, "unasked"),
        ("denied", 100.0, "unasked"),
        ("waiting", 250.0, "unasked"),  # it has expired
        ("approved", 250.0, "unasked"),
    ],
)
def test_a_call_that_resumes_asks_nobody_anew(status, now, kind):
    """Only a question that was asked before, and still stands, may let it run."""
    held = None if status is None else msgspec.structs.replace(ASKED, status=status)
    kept = admit(request(approval=ASKED, resumes=True, now=now), StoredState(RUN, approval=held))
    assert ("unasked" if kept.answer is UNASKED else kept.answer.kind) == kind
    assert kept.approval is None
    if kind != "execute":
        assert kept.record is None
    asked = admit(request(approval=ASKED, now=now), StoredState(RUN, approval=held)).answer
    assert asked is not UNASKED


def test_a_yes_to_a_repetition_is_for_that_repetition():
    """The effect that would be repeated is part of what is asked, and so is how it ended."""
    base = ("pay@1", ("run", "r"), "h1", 1)
    failed = msgspec.structs.replace(DONE, state="failed_final")
    other = msgspec.structs.replace(DONE, claim_id="c9")
    marks = [approval_fingerprint(*base, repeated) for repeated in (None, DONE, failed, other)]
    assert len(set(marks)) == 4
    assert marks[0] == approval_fingerprint(*base)


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        ("call", "approved", "the same call runs when it is sent again"),
        ("call", "used", "the same call asks again"),
        ("call", "denied", "the same call stays refused"),
        ("output", "approved", "its output no longer holds back writes"),
        ("output", "used", "its output no longer holds back writes"),
        ("output", "denied", "its output still holds back writes"),
    ],
)
def test_an_answer_says_what_it_means(kind, status, says):
    """The sentence fits the kind of the question and the answer."""
    assert msgspec.structs.replace(ASKED, kind=kind, status=status).consequence == says
