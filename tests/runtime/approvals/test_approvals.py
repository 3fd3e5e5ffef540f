"""Questions to people: what counts as consent, and what an answer is about."""

import asyncio

import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.state.run_state import Taint, latch
from pokayoke.errors import StoreError
from pokayoke.runtime.approvals.approvals import Approvals, review_operation
from pokayoke.stores import MemoryStore
from pokayoke.stores.operations import ReadSet
from pokayoke.testing import FailingStore, FrozenClock

TRANSFER = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "parts": {"type": "array", "items": {"type": "integer"}}},
    "required": ["to"],
}
CALL = ToolCall("c1", "transfer", '{"to": "ann", "parts": [1]}')


@pytest.fixture
def effects():
    return []


@pytest.fixture
def guarded(effects):
    """Build a guard around a tool that always asks."""

    def build(on_ask=None):
        contract = Contract.from_schema(
            "transfer", TRANSFER, output_schema={}, approval=True, handler=lambda **given: effects.append(given) or {}
        )
        return Guard([contract], on_ask=on_ask)

    return build


async def never_awaited(approval):
    return False


def raising(error):
    def ask(approval):
        raise error

    return ask


@pytest.mark.parametrize(
    "ask",
    [lambda approval: "no", lambda approval: 1, lambda approval: [False], raising(ValueError), raising(StopIteration)],
)
def test_only_true_is_consent(guarded, effects, driver, ask):
    """A text, a number, an exception: the question goes on waiting, nothing runs, and the trace says why."""
    run = guarded(ask).run("r")
    outcome = driver.call(run, CALL)
    assert (outcome.status, effects) == ("pending", [])
    assert any(event["event"] == "approval" and "on_ask gave" in event["reason"] for event in run.trace)
    run.guard.approvals.approve(outcome.approval)
    assert driver.call(run, CALL).ok


def test_a_coroutine_that_nobody_awaits_is_no_consent(guarded, effects):
    """An asynchronous callback under a synchronous call leaves the question open."""
    assert guarded(never_awaited).run("r").call(CALL).status == "pending"
    assert effects == []


def test_what_was_asked_cannot_be_changed_by_who_is_asked(guarded, effects, driver):
    """The callback gets a copy of the arguments, down to the last list."""

    def ask(approval):
        approval.arguments["to"] = "mallory"
        approval.arguments["parts"].append(2)
        return True

    assert driver.call(guarded(ask).run("r"), CALL).ok
    assert effects == [{"to": "ann", "parts": [1]}]


def test_a_decision_made_elsewhere_wins_over_the_callback(guarded, effects, driver):
    """Denied by a person while the callback says yes: the denial holds, and the call ends in an outcome."""

    def ask(approval):
        guard.approvals.deny(approval.id, by="ann", reason="no")
        return True

    guard = guarded(ask)
    assert driver.call(guard.run("r"), CALL).stop_reason == "approval_denied"
    assert effects == []


def test_an_answer_that_comes_too_late_leaves_a_question_that_waits(effects, driver):
    """A yes after the end of its question runs nothing, and the question that replaces it can be answered."""
    clock = FrozenClock()
    contract = Contract.from_schema(
        "transfer", TRANSFER, output_schema={}, approval=True, handler=lambda **given: effects.append(given) or {}
    )

    def ask(approval):
        clock.advance(6.0)
        return True

    guard = Guard([contract], on_ask=ask, clock=clock, config={"approvals": {"expires_seconds": 5.0}})
    late = driver.call(guard.run("r"), CALL)
    assert ([finding.code for finding in late.findings], effects) == (["approval_expired"], [])
    (renewed,) = guard.approvals.list()
    assert (renewed.asked_at, renewed.expires_at) == (clock.now(), clock.now() + 5.0)
    guard.approvals.approve(renewed.id)
    assert driver.call(guard.run("r"), CALL).ok


@pytest.mark.parametrize("asks", [True, False], ids=["at once", "later"])
def test_a_yes_to_a_read_is_for_one_call(driver, asks):
    """It runs once for each yes, also where a callback gives it, and where the one call is tried several times."""
    ran, questions = [], []

    def look():
        ran.append(len(questions))
        if len(ran) == 1:
            raise ConnectionError
        return {}

    read = Contract.from_schema(
        "look", {"type": "object"}, effect="read", approval=True, output_schema={}, handler=look
    )
    guard = Guard([read], clock=FrozenClock(), on_ask=(lambda one: questions.append(one) or True) if asks else None)
    run, call = guard.run("r"), ToolCall("c1", "look", "{}")
    for number in (1, 2):
        if not asks:
            pending = driver.call(run, call)
            assert pending.status == "pending"
            questions.append(guard.approvals.approve(pending.approval))
        assert driver.call(run, call).ok
        assert len(questions) == number
    assert ran == [1, 1, 2]
    assert driver.call(run, call).status == ("ok" if asks else "pending")


def test_a_review_is_asked_for_when_the_output_has_come(driver):
    """A tool that takes longer than a question stays open leaves one that a person can still answer."""
    clock = FrozenClock()
    slow = Contract.from_schema(
        "look", {"type": "object"}, effect="read", output_schema={"type": "object"}, handler=lambda: clock.advance(6.0)
    )
    config = {"approvals": {"expires_seconds": 5.0}, "safe_mode": {"on_invalid_output": "human_review"}}
    guard = Guard([slow], clock=clock, config=config)
    run = guard.run("r")
    assert not driver.call(run, ToolCall("c1", "look", "{}")).ok
    (review,) = guard.approvals.list()
    assert (review.kind, review.asked_at) == ("output", clock.now())
    guard.approvals.approve(review.id)
    assert run.mode == "normal"


# -- waiting ---------------------------------------------------------------------------------------


def question(number=1, *, expires=100.0, kind="call", at=0.0, **fields):
    prefix = "ap" if kind == "call" else "rv"
    return Approval(
        f"{prefix}-{number}", f"f{number}", "look", "look@1", {"identity": "i"}, "r1", at, at + expires, kind=kind
    )


@pytest.fixture
def clock():
    return FrozenClock(now=0.0)


@pytest.fixture
def store():
    return FailingStore(MemoryStore())


def test_waiting_looks_less_and_less_often(store, clock):
    """An hour of waiting is looked up at most every two seconds, and ends at the time that was given."""
    store.propose(question(expires=9_999.0))
    assert Approvals(store, clock).wait("ap-1", 3_600.0).status == "waiting"
    assert clock.now() == pytest.approx(3_600.0)
    assert max(clock.slept) == 2.0
    assert store.calls.count("approvals") < 1_900


def test_waiting_without_a_time_ends_when_the_question_does(store, clock):
    """None waits until the answer or the expiry."""
    store.propose(question(expires=100.0))
    assert Approvals(store, clock).wait("ap-1", None).status == "expired"
    assert 100.0 <= clock.now() < 103.0


def test_awaiting_ends_with_the_answer(store):
    """The event loop goes on meanwhile: somebody answers in it."""
    approvals = Approvals(store, FrozenClock(now=0.0))
    store.propose(question())

    async def main():
        waiting = asyncio.create_task(approvals.await_("ap-1", None))
        approvals.approve("ap-1", by="ann")
        return await waiting

    assert asyncio.run(main()).by == "ann"


@pytest.mark.parametrize(
    "ask", [lambda a: a.get("x"), lambda a: a.wait("x"), lambda a: a.approve("rv-x"), lambda a: a.deny("x")]
)
def test_a_question_nobody_asked_cannot_be_answered(store, clock, ask):
    """An unknown id is an error that says where to look."""
    with pytest.raises(StoreError, match="approvals list"):
        ask(Approvals(store, clock))


# -- reviews ---------------------------------------------------------------------------------------


@pytest.fixture
def latched(store):
    store.change_run(
        "r1", lambda state: latch(latch(state, Taint("look", "i", 1, "html")), Taint("look", "j", 2, "html"))
    )
    store.propose(question(kind="output"))
    return store


def taints(store):
    return {(taint.tool, taint.identity) for taint in store.load_run("r1").taints}


@pytest.mark.parametrize("after", [False, True])
def test_consent_and_latch_are_one_act(latched, clock, after):
    """A store that fails in the middle keeps both or neither; the same answer at the same second is then harmless."""
    approvals = Approvals(latched, clock)
    latched.fail_on({"answer": [1]})
    latched._after = after
    with pytest.raises(OSError, match="reached"):
        approvals.approve("rv-1", by="ann", reason="fine")
    assert (approvals.get("rv-1").status, taints(latched)) == (
        ("approved", {("look", "j")}) if after else ("waiting", {("look", "i"), ("look", "j")})
    )
    assert approvals.approve("rv-1", by="ann", reason="fine").status == "approved"
    assert taints(latched) == {("look", "j")}
    assert [entry.kind for entry in latched.audit()] == ["approved"]


def test_a_no_to_a_review_leaves_the_latch_closed(latched, clock):
    """And a later yes is refused: it is decided."""
    told = []
    approvals = Approvals(latched, clock, told.append)
    approvals.deny("rv-1", by="ann")
    with pytest.raises(StoreError, match="denied already"):
        approvals.approve("rv-1", by="bob")
    assert len(taints(latched)) == 2
    assert told == []


def test_consent_to_a_latch_that_is_open_changes_nothing_else(latched, clock):
    """A valid output came first: the answer is kept, the run's state is not written."""
    latched.change_run("r1", lambda state: type(state)("r1"))
    version = latched.load_run("r1").version
    told = []
    assert Approvals(latched, clock, told.append).approve("rv-1", by="ann").status == "approved"
    assert latched.load_run("r1").version == version
    assert [approval.id for approval in told] == ["rv-1"]


def test_a_review_keeps_everybody_else_away_from_its_run():
    """The act changes question and run, so a store has to hold both; one that looks only is held for looking."""
    act = review_operation(question(kind="output"), by="ann", reason="", now=1.0)
    assert act.need == ReadSet(approval="rv-1", run="r1", keeps_run=False)
    assert review_operation(question(), by="ann", reason="", now=1.0).need == ReadSet(approval="ap-1")


@pytest.mark.parametrize(
    ("said", "again", "reason"),
    [(None, "pending", "awaiting_approval"), (False, "refused", "success"), (True, "failed", "success")],
)
def test_what_was_decided_is_not_waited_for(driver, said, again, reason):
    """A no, or a yes after which the tool fails, ends the wait: the closed run says that it waits only if it does."""

    def transfer(**_):
        raise ConnectionError("reset")

    contract = Contract.from_schema(
        "transfer", TRANSFER, output_schema={}, approval=True, handler=transfer, no_effect_errors=(ConnectionError,)
    )
    run = Guard([contract], config={"retry": {"retries": 0}}).run("r")
    waiting = driver.call(run, CALL)
    if said is not None:
        run.guard.approvals.answer(waiting.approval, approved=said, by="ann", reason="")
    assert driver.call(run, CALL).status == again
    run.close()
    assert run.stop_reason == reason
