"""Google ADK's confirmations and the guard's questions.

In: the confirmation that ADK brings with a call. Out: the guard's question as a confirmation, and its answer. Never:
an answer to the guard's question that reaches a question of the tool or of ADK itself, or the other way round.
"""

from __future__ import annotations

from typing import Any

from pokayoke.adapters._host.approvals import PersonAnswer, question_text
from pokayoke.core.call import Outcome
from pokayoke.runtime.ports import GuardPort

_CONFIRMATION = "adk_request_confirmation"
_APPROVAL = "approval"


def take_answer(context: Any) -> PersonAnswer | None:
    """Return the answer to the guard's question that came back with a call, and take it off; else None.

    The tool must not see it: it has asked nothing yet.
    """
    confirmation = context.tool_confirmation
    if confirmation is None or (question := _answered_question(context)) is None:
        return None
    context.tool_confirmation = None
    return PersonAnswer(confirmation.confirmed, context.user_id, "answered in the conversation", question)


def _answered_question(context: Any) -> str | None:
    """Return the guard's question that a call's confirmation answers; None if it answers the tool or ADK itself."""
    for event in reversed(context.session.events):
        for asked in event.get_function_calls():
            given: dict[str, Any] = asked.args or {}
            about: dict[str, Any] = given.get("originalFunctionCall") or {}
            if asked.name == _CONFIRMATION and about.get("id") == context.function_call_id:
                payload = (given.get("toolConfirmation") or {}).get("payload")
                return payload.get(_APPROVAL) if isinstance(payload, dict) else None
    return None


def request_confirmation(guard: GuardPort, outcome: Outcome, context: Any) -> None:
    """Ask the guard's question as one of ADK's confirmations; the run pauses."""
    context.request_confirmation(hint=question_text(guard, outcome.tool), payload={_APPROVAL: outcome.approval})
    context.actions.skip_summarization = True


def has_asked_person(context: Any) -> bool:
    """Return whether the tool itself has asked a person, so that ADK calls it again later."""
    actions, ident = context.actions, context.function_call_id
    return ident in actions.requested_tool_confirmations or ident in actions.requested_auth_configs


def ask_to_repeat(outcome: Outcome, context: Any) -> dict[str, Any]:
    """Drop the tool's question and ask the model to repeat the call: ADK asks about each call only once."""
    for asked in (context.actions.requested_tool_confirmations, context.actions.requested_auth_configs):
        asked.pop(context.function_call_id, None)
    return {"error": f"{outcome.tool} was allowed and now asks a person something itself. Send the same call again."}
