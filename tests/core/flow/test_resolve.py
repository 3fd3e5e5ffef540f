"""When "not found" is proof enough to execute again, how long that takes, and what is asked before."""

import msgspec
import pytest

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow import resolve
from pokayoke.core.flow.admit import admit_with_proof
from pokayoke.core.flow.steps import Admit, CheckOwner, LookUp, ReadRecord, Returned, Settle
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import Admission, Claim, Record

WISH = Claim("k", "h", "c1", "pay", "pay@1", "r", 100.0, 40.0)
RECORD = Record("k", "h", "executing", 1, "c0", 105.0, "pay", "pay@1", "r", 95.0, owner="them")
BUSY = Admission("refuse", Finding(code="in_progress"), RECORD, retry_after=5.0)


def contract(safe, **more):
    more = {"settle_after": 30.0} if safe == "settled" else more
    return Contract.from_schema(
        "pay", {"type": "object"}, on_ambiguous="lookup", lookup=lambda key, arguments: resolve.UNKNOWN, lookup_safe=safe,
        forwards_key=True, **more,
    )  # fmt: skip


def changed(answer, record=None, **changes):
    record = answer.record if record is None else msgspec.structs.replace(answer.record, **record)
    return msgspec.structs.replace(answer, record=record, **changes)


@pytest.mark.parametrize(
    ("safe", "dead_since", "now", "wait"),
    [
        ("downstream_key", None, None, 0.0),
        ("downstream_key", 90.0, 100.0, 0.0),
        ("executor_dead", None, 50.0, None),
        ("executor_dead", 10.0, None, 0.0),
        ("executor_dead", 45.0, 50.0, 0.0),
        ("settled", None, 50.0, None),
        ("settled", 45.0, 50.0, 25.0),
        ("settled", 20.0, 50.0, 0.0),
        ("settled", 10.0, 50.0, -10.0),
        # Another machine, or another boot: no clock of ours says how long it has been.
        ("settled", 10.0, None, None),
    ],
)
def test_how_long_to_wait(safe, dead_since, now, wait):
    """Seconds until a second execution is safe, row by row; None is never."""
    assert resolve._seconds_until_proof(contract(safe), dead_since, now) == wait


@pytest.mark.parametrize(("safe", "is_open"), [("downstream_key", True), ("executor_dead", False), ("settled", False)])
def test_only_a_key_leaves_the_first_request_open(safe, is_open):
    """After "not found" a target that drops repeats may still run the first request; a dead executor sends none."""
    owner = "them" if safe == "settled" else ""  # how long ago one died is known only where its death is asked for
    record = msgspec.structs.replace(RECORD, state="resolving", resolver="c1", owner=owner, dead_since=10.0)
    request = AdmissionRequest("r", "pay", "write", None, 100.0, WISH)
    walk = resolve.resolve_doubt(request, contract(safe), {}, Admission("resolve", None, record), 1.0)
    step = next(walk)
    if isinstance(step, CheckOwner):
        step = walk.send(90.0)
    assert isinstance(step, LookUp)
    step = walk.send(Returned(resolve.NOT_FOUND))
    assert isinstance(step, Admit)
    assert bool(step.request.claim.doubt) is is_open


@pytest.mark.parametrize(
    ("safe", "owner", "dead_since", "asks"),
    [
        ("downstream_key", "them", None, False),
        ("executor_dead", "", None, False),
        ("executor_dead", "them", None, True),
        ("executor_dead", "them", 90.0, False),
        ("settled", "them", None, True),
        ("settled", "them", 90.0, True),
        ("settled", "", 90.0, False),
    ],
)
def test_proof_of_death_is_asked_for_before_the_target(safe, owner, dead_since, asks):
    """Only where it could change the answer, and where somebody is known who could be dead; never afterwards."""
    record = msgspec.structs.replace(RECORD, state="resolving", resolver="c1", owner=owner, dead_since=dead_since)
    request = AdmissionRequest("r", "pay", "write", None, 100.0, WISH)
    walk = resolve.resolve_doubt(request, contract(safe), {}, Admission("resolve", None, record), 1.0)
    step = next(walk)
    if asks:
        assert step == CheckOwner("them")
        step = walk.send(None)
    assert isinstance(step, LookUp)
    step = walk.send(Returned(resolve.UNKNOWN))
    assert isinstance(step, Settle)
    assert step.settlement.state == "in_doubt"


@pytest.mark.parametrize(
    ("answer", "claim"),
    [
        (Admission("execute", None, RECORD), WISH),
        (Admission("replay", None, RECORD, retry_after=5.0), WISH),
        (Admission("in_doubt", Finding(code="in_doubt"), RECORD, retry_after=5.0), WISH),
        (changed(BUSY, {"owner": ""}), WISH),
        (changed(BUSY, {"state": "resolving"}), WISH),
        (changed(BUSY, retry_after=None), WISH),
        (Admission("refuse", Finding(code="kill_switch")), WISH),
        (Admission("refuse", Finding(code="quota_exceeded")), None),
        (BUSY, None),
    ],
)
def test_who_is_not_asked_about(answer, claim):
    """Nobody looks for a death where no executor holds the claim, or where no answer could change."""
    walk = admit_with_proof(AdmissionRequest("r", "pay", "write", None, 100.0, claim))
    assert isinstance(next(walk), Admit)
    with pytest.raises(StopIteration) as end:
        walk.send(answer)
    assert end.value.value == answer


@pytest.mark.parametrize("seen", [None, 17.0])
def test_a_dead_executor_is_asked_about_once_more(seen):
    """With proof the claim is asked for again, naming the dead claim and when it was seen; without it the answer stays."""
    walk = admit_with_proof(AdmissionRequest("r", "pay", "write", None, 100.0, WISH))
    next(walk)
    assert walk.send(BUSY) == CheckOwner("them")
    if seen is None:
        with pytest.raises(StopIteration) as end:
            walk.send(None)
        assert end.value.value == BUSY
        return
    again = walk.send(seen)
    assert (again.request.claim.dead, again.request.claim.dead_at) == ("c0", 17.0)
    assert again.request.claim.proceed is False
    with pytest.raises(StopIteration):
        walk.send(Admission("resolve", None, RECORD))


def test_a_ledger_that_is_lost_after_the_proof_takes_back_no_word():
    """It had said that somebody is at work, and nobody has denied that: the call is not told that nothing happened."""
    walk = admit_with_proof(AdmissionRequest("r", "pay", "write", None, 100.0, WISH))
    next(walk)
    walk.send(BUSY)
    walk.send(17.0)
    with pytest.raises(StopIteration) as end:
        walk.send(Admission("refuse", Finding(code="store_unavailable")))
    assert end.value.value == BUSY


def test_a_second_execution_that_is_not_admitted_is_not_executed():
    """The proof is there, and admission says no: the doubt is put back, and the caller hears why."""
    record = msgspec.structs.replace(RECORD, state="resolving", resolver="c1", dead_since=90.0)
    request = AdmissionRequest("r", "pay", "write", None, 100.0, WISH)
    for kind in ("refuse", "pending"):
        walk = resolve.resolve_doubt(request, contract("executor_dead"), {}, Admission("resolve", None, record), 1.0)
        next(walk)
        again = walk.send(Returned(resolve.NOT_FOUND))
        assert again.request.claim.proceed
        said = Admission(kind, Finding(code="kill_switch"))
        assert isinstance(walk.send(said), Settle)
        with pytest.raises(StopIteration) as end:
            walk.send(None)
        assert end.value.value == (said, None)
    walk = resolve.resolve_doubt(request, contract("executor_dead"), {}, Admission("resolve", None, record), 1.0)
    next(walk)
    walk.send(Returned(resolve.NOT_FOUND))
    with pytest.raises(StopIteration) as end:
        walk.send(Admission("execute", None, record))
    assert end.value.value == (Admission("execute", None, record), None)


UNREAD = Finding(code="store_unavailable", message="no answer")


@pytest.mark.parametrize(
    ("undoing", "said"),
    [
        (None, None),
        (UNREAD, "already took effect"),
        ({"state": "completed"}, "was undone"),
        ({"state": "executing"}, "may be undone"),
        ({"state": "resolving"}, "may be undone"),
        ({"state": "in_doubt"}, "may be undone"),
        ({"state": "failed_retriable"}, None),
        ({"state": "failed_final"}, None),
        ({"state": "completed", "claimed_at": 95.0}, "was undone"),
        # It undid what an earlier attempt had left behind; this effect came after it.
        ({"state": "completed", "claimed_at": 90.0}, None),
    ],
)
def test_whether_an_effect_stands(undoing, said):
    """It does unless an undoing that was claimed after it is completed or open; what cannot be read is told."""
    walk = resolve.undone_finding(RECORD)
    assert next(walk) == ReadRecord(compensation_key("k"), "pay")
    if isinstance(undoing, dict):
        undoing = msgspec.structs.replace(RECORD, **{"claimed_at": 96.0, "compensates": "k"} | undoing)
    with pytest.raises(StopIteration) as end:
        walk.send(undoing)
    told = end.value.value
    assert (told is None) == (said is None)
    if said is not None:
        assert said in f"{told.code} {told.message} {told.hint}"
        assert undoing is UNREAD or (told.code, told.data["key"]) == ("compensated", "k")
