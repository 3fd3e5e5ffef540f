"""Questions to people: what counts as consent, and what an answer is about."""

import pytest

from pokayoke import Contract, Guard, ToolCall

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
