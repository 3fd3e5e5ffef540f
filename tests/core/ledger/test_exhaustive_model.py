"""Every history of a few callers, one key and a bounded number of misfortunes, over the shipped functions.

The wrong variants of the rules stand beside the right ones: a checker that does not find their second
effect would prove nothing.
"""

import msgspec
import pytest
from ledger_model import Bounds, Model, Setting, ViolationError

from pokayoke.core.flow import resolve
from pokayoke.core.flow.resolve import NOT_FOUND, UNKNOWN, Found
from pokayoke.core.flow.steps import Admit, CheckOwner, LookUp, Returned, Settle
from pokayoke.core.ledger import admission
from pokayoke.core.ledger import transitions as ledger
from pokayoke.core.ledger.findings import in_doubt_finding, mark_in_doubt
from pokayoke.core.ledger.records import Admission

pytestmark = pytest.mark.timeout(600)
DEAD = Setting(on_ambiguous="lookup", lookup_safe="executor_dead")
SETTLED = Setting(on_ambiguous="lookup", lookup_safe="settled", settle_after=15.0, remote=True)
KEYED = Setting(on_ambiguous="lookup", lookup_safe="downstream_key", dedupes=True, remote=True)

SAFE = {
    "a person settles doubts": Setting(),
    "harmless failures are tried again": Setting(harmless=True),
    "another caller, other arguments": Setting(callers=("h", "other")),
    "lookup, the executor proven dead": DEAD,
    "lookup, the target settled": SETTLED,
    "lookup, the target drops repeats": KEYED,
    "lookup, the target drops repeats, harmless failures": KEYED._replace(harmless=True),
    "the target drops repeats": Setting(on_ambiguous="downstream_key", dedupes=True, remote=True),
    "the target drops repeats, harmless failures": Setting(
        on_ambiguous="downstream_key", dedupes=True, remote=True, harmless=True
    ),
    "completed in its own transaction": Setting(early=True, remote=True),
    "completed in its own transaction, run again": Setting(on_ambiguous="rerun_safe", early=True, remote=True),
    "completed in its own transaction, looked up": DEAD._replace(early=True),
}
MISFORTUNES = {
    "crash and lapse": Bounds(crashes=1, lapses=2),
    "two crashes": Bounds(crashes=2, lapses=1),
    "lost replies": Bounds(crashes=1, lapses=1, faults=1),
    "people": Bounds(crashes=1, lapses=1, decisions=2),
    "switches and taints": Bounds(crashes=1, lapses=1, flips=2, taints=1),
}


@pytest.mark.parametrize("bounds", MISFORTUNES.values(), ids=MISFORTUNES)
@pytest.mark.parametrize("setting", SAFE.values(), ids=SAFE)
def test_the_invariants_hold_in_every_history(setting, bounds):
    """Two callers: at most one effect, honest answers, a final record, no claim under an open switch, nobody stuck."""
    assert Model(setting, bounds).check().seen > 100


@pytest.mark.parametrize("setting", SAFE.values(), ids=SAFE)
def test_the_invariants_hold_when_everything_goes_wrong_at_once(setting, full):
    """Crashes, lapses, lost replies, people, switches and taints in one history."""
    bounds = Bounds(1, 2, 1, 1, 1, 1) if full else Bounds(1, 1, 1, 1, 1, 1)
    assert Model(setting, bounds).check().seen > 100


@pytest.mark.parametrize("setting", SAFE.values(), ids=SAFE)
def test_the_invariants_hold_for_three_callers(setting, full):
    """The same with a third caller; at full size with crashes."""
    bounds = Bounds(crashes=1, lapses=1) if full else Bounds(crashes=0, lapses=1)
    assert Model(setting._replace(callers=(*setting.callers, "h")), bounds).check().seen > 100


def found(setting, bounds=None):
    """The first line of what the checker finds, and how many moves lead there."""
    with pytest.raises(ViolationError) as caught:
        Model(setting, bounds or Bounds(crashes=1, lapses=2)).check()
    lines = str(caught.value).splitlines()
    return lines[0], len(lines) - 1


def wrong(monkeypatch, module, name, function):
    """Put a wrong rule in the place of a right one; `function` gets the right one first."""
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: function(right, *args))


def test_a_lapsed_lease_is_no_licence(monkeypatch):
    """Executing again after expiry, as some idempotency libraries do: a second effect, although nobody crashed."""
    monkeypatch.setattr(
        ledger, "_answer_doubtful", lambda record, wish, changed: ledger._start_execution(wish, record.attempt + 1)
    )
    for bounds in (Bounds(), Bounds(crashes=0, lapses=1)):
        problem, moves = found(Setting(), bounds)
        assert problem.startswith(("I1", "I6"))
        assert moves <= 6


def test_not_found_is_no_licence(monkeypatch):
    """A plain lookup without a safe condition: a second effect, by a tool that only hangs."""
    monkeypatch.setattr(resolve, "_seconds_until_proof", lambda contract, dead_since, now: 0.0)
    assert found(DEAD, Bounds(crashes=0, lapses=1))[0].startswith(("I1", "I6"))


def test_a_fence_before_the_effect_is_not_enough(monkeypatch):
    """The tool looks whether it still holds the claim, and acts a moment later: a second effect all the same."""
    monkeypatch.setattr(resolve, "_seconds_until_proof", lambda contract, dead_since, now: 0.0)
    monkeypatch.setattr(Model, "_may_act", lambda model, world, tool: False)  # two may be alive; do both act?
    problem, moves = found(DEAD._replace(fence=True), Bounds(crashes=0, lapses=1))
    assert problem == "I1: a second effect"
    assert moves >= 10


def asking_for_proof_last(request, contract, arguments, answer, timeout):
    """The lookup first, the proof of death afterwards: between them the executor may act and die."""
    claim, record = request.claim, answer.record
    reaction = yield LookUp(contract, claim.key, arguments, timeout)
    said = reaction.value if isinstance(reaction, Returned) else UNKNOWN
    if isinstance(said, Found):
        return answer, said
    since = record.dead_since if record.dead_since is not None else (yield CheckOwner(record.owner))
    wait = resolve._seconds_until_proof(contract, since, request.now) if said is NOT_FOUND else None
    if wait is not None and wait <= 0:
        answer = yield Admit(msgspec.structs.replace(request, claim=msgspec.structs.replace(claim, proceed=True)))
        if answer.kind == "execute":
            return answer, None
    else:
        answer = Admission("in_doubt", in_doubt_finding(mark_in_doubt(record)), record, retry_after=wait)
    yield Settle(resolve._undecided_settlement(claim, record, said, since, request.now), claim.tool)
    return answer, None


def test_proof_of_death_comes_before_the_question(monkeypatch):
    """Asking for it afterwards finds an executor dead that was alive when the target was asked: a second effect."""
    monkeypatch.setattr(resolve, "resolve_doubt", asking_for_proof_last)
    assert found(DEAD)[0] == "I1: a second effect"


def test_a_remote_effect_outlives_its_executor(monkeypatch):
    """`executor_dead` is for effects that die with the process; for a remote one it allows a second effect."""
    assert found(DEAD._replace(remote=True))[0].startswith(("I1", "I6"))


def test_settle_after_counts_from_the_death(monkeypatch):
    """Not waiting for the target's longest processing time: a second effect by a request still on its way."""
    wrong(
        monkeypatch, resolve, "_seconds_until_proof", lambda right, contract, since, now: None if since is None else 0.0
    )
    assert found(SETTLED)[0].startswith(("I1", "I6"))


def test_a_target_that_does_not_drop_repeats(monkeypatch):
    """`downstream_key` over a target that does not dedupe: a second effect. The declaration is all there is."""
    for setting in (KEYED, Setting(on_ambiguous="downstream_key")):
        assert found(setting._replace(dedupes=False))[0].startswith(("I1", "I6"))


def test_an_exception_of_a_write_is_no_failure():
    """Settled as "failed, try again" although the tool had acted before it raised: a second effect."""

    class Hopeful(Model):
        def _settlements(self, world, number, caller, step):
            if step.settlement.state == "in_doubt":
                step = Settle(msgspec.structs.replace(step.settlement, state="failed_retriable"), step.tool)
            return super()._settlements(world, number, caller, step)

    with pytest.raises(ViolationError, match=r"I1: a second effect|I6|I9: failed"):
        Hopeful(Setting(), Bounds(crashes=0, lapses=0)).check()


def test_a_person_who_errs_can_cause_a_second_effect(monkeypatch):
    """A wrong "no" is a second effect in the model, too: only the person's word stands between."""
    monkeypatch.setattr(Model, "wrong", lambda model, before, after: "misled" if after.effects > 1 else None)
    assert found(Setting(careless=True), Bounds(crashes=0, lapses=1, decisions=1))[0] == "misled"


WRONG_SETTLING = {
    "anybody may report": lambda right, record, report: right(
        record and msgspec.structs.replace(record, claim_id=report.claim_id), report
    ),
    "a completion by somebody else is taken for one's own": lambda right, record, report: (
        (None, True) if record is not None and record.state == report.state == "completed" and record.settled_at else right(record, report)
    ),
    "a completed record may be written again": lambda right, record, report: right(
        record and msgspec.structs.replace(record, state="in_doubt" if record.state == "completed" else record.state), report
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", WRONG_SETTLING.values(), ids=WRONG_SETTLING)
def test_who_may_report_matters(monkeypatch, rule):
    """Each loosened rule of settling breaks an invariant in some setting."""
    wrong(monkeypatch, ledger, "settle", rule)
    assert found(DEAD, Bounds(crashes=1, lapses=1, faults=1))[0][:2] in {"I1", "I2", "I3", "I4", "I6"}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("open_switch_finding", lambda right, *_: None),
        ("block_finding", lambda right, *_: None),
        (
            "_mode_or_switch_finding",  # asked before a first claim only, as a check outside the claim would be
            lambda right, request, held: None if request.claim.proceed else right(request, held),
        ),
    ],
)
def test_switch_and_taint_are_part_of_the_claim(monkeypatch, name, function):
    """Without them in the same act, something is claimed while writes are off."""
    wrong(monkeypatch, admission, name, function)
    assert found(DEAD, MISFORTUNES["switches and taints"])[0].startswith("I13")


def test_other_arguments_must_not_pass(monkeypatch):
    """Without the comparison of arguments, a caller with other ones changes the record."""
    wrong(
        monkeypatch, admission, "claim_effect",
        lambda right, record, wish: right(record and msgspec.structs.replace(record, args_hash=wish.args_hash), wish),
    )  # fmt: skip
    assert found(DEAD._replace(callers=("h", "other")))[0].startswith("I5")


def test_a_resolver_that_dies_does_not_hold_the_key_for_ever(monkeypatch):
    """Without a lease on resolving, the key would be stuck: the checker sees that too."""
    wrong(
        monkeypatch, ledger, "_is_alive",
        lambda right, record, wish: record.state == "resolving" or right(record, wish),
    )  # fmt: skip
    assert found(DEAD)[0] == "I11: nobody will ever settle this"
