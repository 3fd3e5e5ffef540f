"""Pydantic AI's deferred tool requests and the guard's questions.

In: a person's answers as `DeferredToolResults` brings them. Out: the same answers to the guard's questions, and calls
as the person has to see them. Never: a person who judges other arguments than those that will run.
"""

from __future__ import annotations

from asyncio import to_thread
from contextlib import suppress
from typing import Any

from msgspec import structs
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, RunContext, ToolApproved, ToolDenied

from pokayoke.adapters._host.approvals import (
    PersonAnswer,
    answer_question_async,
    call_and_answer,
    call_denied,
    find_question,
)
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.call import ToolCall, Verdict
from pokayoke.core.ledger.admission import Approval
from pokayoke.errors import StoreError


def may_defer(ctx: RunContext[Any]) -> bool:
    """Return whether the agent's output type, or another capability, takes calls that wait for a person."""
    output = getattr(ctx.agent, "output_type", None)
    if DeferredToolRequests in (output if isinstance(output, (list, tuple)) else [output]):
        return True
    others: list[Any] = []
    if ctx.root_capability is not None:
        ctx.root_capability.apply(others.append)
    base = AbstractCapability.handle_deferred_tool_calls
    return any(type(one).handle_deferred_tool_calls is not base for one in others)


def show_effective_call(part: ToolCallPart, verdict: Verdict) -> None:
    """Write into a call the arguments with which it runs: a person judges those, and the history keeps them."""
    if verdict.arguments is not None and (verdict.repairs or verdict.corrections):
        part.args, part.id = verdict.arguments, None


def person_answer(metadata: Any, approved: bool, reason: str = "") -> PersonAnswer:
    """Return a person's answer; `metadata` is that of `DeferredToolResults`, and may hold `by` and `reason`."""
    given: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    return PersonAnswer(approved, str(given.get("by", "pydantic-ai")), str(given.get("reason", reason)))


async def pass_answer(adapter_run: AdapterRun, call: ToolCall, answer: Any, metadata: Any) -> None:
    """Pass on an answer that lets a call not run as it was asked about: a denial, or an approval of other arguments.

    A plain approval is passed on when the call runs, see `ToolInvocation.person_answer`.

    Args:
        adapter_run: the run.
        call: the call that was asked about.
        answer: the framework's: a bool, `ToolApproved` or `ToolDenied`; anything else is no answer of a person.
        metadata: as in `person_answer`.
    """
    if isinstance(answer, ToolDenied):
        question = await _find_question(adapter_run, call)
        if question is not None or adapter_run.run.check(call).decision == "ask":
            # Called, so that the run knows what was not done.
            denial = person_answer(metadata, False, answer.message)
            await call_and_answer(adapter_run, call, call_denied, lambda _: denial)
    elif isinstance(answer, ToolApproved) and answer.override_args is not None:
        instead = structs.replace(call, arguments=answer.override_args)
        verdict = adapter_run.run.check(instead)
        if adapter_run.run.check(call).arguments != verdict.arguments:
            await _close_question(adapter_run, call, person_answer(metadata, False, "approved with other arguments"))
            # Asked and answered here: when it runs, a yes counts only for what was asked before.
            asked = await adapter_run.acall(instead, call_denied) if verdict.decision == "ask" else None
            if asked is not None and asked.status == "pending" and asked.approval is not None:
                await answer_question_async(adapter_run.run.guard, asked.approval, person_answer(metadata, True))


async def _close_question(adapter_run: AdapterRun, call: ToolCall, answer: PersonAnswer) -> None:
    with suppress(StoreError):
        question = await _find_question(adapter_run, call)
        if question is not None:
            await answer_question_async(adapter_run.run.guard, question.id, answer)
            key = (await adapter_run.acall(call, call_denied)).key
            adapter_run.run.progress.matters.forget_key(key or "")


async def _find_question(adapter_run: AdapterRun, call: ToolCall) -> Approval | None:
    return await to_thread(find_question, adapter_run, call, waiting=True)
