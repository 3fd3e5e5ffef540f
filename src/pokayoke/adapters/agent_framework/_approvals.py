"""The bridge between approval requests of Microsoft Agent Framework and the guard's questions.

In: a call that waits for a person, and the framework's approval responses. Out: the framework's own request, and the
answer for the guard. Never: an answer to another question taken for one to the guard's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from agent_framework import Content, FunctionInvocationContext

from pokayoke.adapters._host.approvals import PersonAnswer, answer_question, find_question, record_denial
from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters.agent_framework._run import AgentRuns, call_arguments, is_local_call
from pokayoke.core.call import ToolCall
from pokayoke.errors import StoreError

_APPROVAL = "pokayoke_approval"
_REASON = "asked by the framework"


def approval_request(context: FunctionInvocationContext, adapter_run: AdapterRun, call: ToolCall, approval: str) -> Any:
    """Return the framework's own question; it shows the arguments as the tool would get them."""
    effective = adapter_run.run.check(call).arguments
    ident = context.metadata.get("function_call_occurrence_id") or call.id
    return _build_request(ident, call.id, context.function.name, effective, approval)


def waiting_requests(adapter_run: AdapterRun, messages: Iterable[Any]) -> list[Any]:
    """Return the questions about calls of a history that nobody has answered yet.

    The framework asks its model as soon as one of them is answered; a provider refuses a history with open calls.
    """
    parts = [part for message in messages for part in message.contents]
    answered = {part.call_id for part in parts if part.type == "function_result"}
    waiting: list[Any] = []
    for part in parts:
        if is_local_call(part) and part.call_id not in answered:
            call = decode_call(part.call_id, part.name, call_arguments(part))
            if (question := find_question(adapter_run, call, waiting=True)) is not None:
                ident = part.id or part.call_id
                waiting.append(_build_request(ident, part.call_id, part.name, question.arguments, question.id))
    return waiting


def _build_request(ident: str, call_id: str, name: str, arguments: Any, approval: str) -> Any:
    shown = Content.from_function_call(call_id, name, arguments=arguments, id=ident)
    return Content.from_function_approval_request(ident, shown, additional_properties={_APPROVAL: approval})


def approved_by_person(context: FunctionInvocationContext, approval: str, by: str) -> PersonAnswer | None:
    """Return a person's yes to this very question; None if there is none.

    The framework also marks calls beside the one that a person has approved, and those were not shown to anybody.
    """
    response = context.metadata.get("approval_response")
    if response is None or response.approved is not True:
        return None
    is_ours = response.additional_properties.get(_APPROVAL) == approval
    return PersonAnswer(True, by, _REASON, approval) if is_ours else None


def deny_question(runs: AgentRuns, response: Any, session: Any) -> None:
    """Pass a refusal on to the guard, and let the run know what was not done if a person has denied it."""
    approval = response.additional_properties.get(_APPROVAL)
    if not isinstance(approval, str):
        return
    answer_question(runs.guard, approval, PersonAnswer(False, runs.approver, _REASON))
    with contextlib.suppress(StoreError):
        if runs.guard.approvals.get(approval).status == "denied":
            asked = response.function_call
            call = decode_call(asked.call_id, asked.name, call_arguments(asked))
            record_denial(runs.run_for_session(session), call)
