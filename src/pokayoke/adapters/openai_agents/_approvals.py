"""The bridge between interruptions of the OpenAI Agents SDK and the guard's questions.

In: a call that may need approval, and the state of an interrupted run. Out: whether the SDK interrupts the run, and a
person's answer for the guard. Never: a person asked about arguments other than those that will run.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from typing import Any

from pokayoke.adapters._host.approvals import PersonAnswer, answer_question, find_question, may_repeat, record_denial
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters.openai_agents._run import current_agent_run, original_call
from pokayoke.core.call import ToolCall, Verdict
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.runtime.guard.guard import Guard


def is_unfit(verdict: Verdict) -> bool:
    """Return whether a call will be answered with what is wrong with its arguments, and needs no other judge."""
    return verdict.decision == "refuse" and verdict.stop_reason == "invalid_arguments"


def approval_rule(name: str, own: Any) -> Callable[[Any, dict[str, Any], str], Any]:
    """Return the `needs_approval` of a guarded tool: whether the SDK interrupts the run before a call.

    Args:
        name: the tool's qualified name.
        own: the tool's own `needs_approval`.
    """

    async def needs_approval(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        adapter_run, call = current_agent_run().adapter_run, original_call(call_id, name, arguments)
        verdict = adapter_run.run.check(call)
        if is_unfit(verdict):
            return False
        effective = arguments if verdict.arguments is None else verdict.arguments
        wanted = own(context, effective, call_id) if callable(own) else own
        if inspect.isawaitable(wanted):
            wanted = await wanted
        # The answer to the SDK's interruption counts for the guard, too, so the guard has to have asked before it.
        may_wait = verdict.decision == "ask" or may_repeat(adapter_run, verdict, call)
        waits = may_wait and await _ask_now(adapter_run, call)
        return bool(wanted) or waits

    return needs_approval


async def _ask_now(adapter_run: AdapterRun, call: ToolCall) -> bool:
    """Ask the guard's question about a call, so that other places show it, too; returns whether it waits."""
    question = find_question(adapter_run, call)
    # A yes may be for an effect before this one, which only the ledger knows; a read would use it up.
    is_open = {"waiting", "used"} if adapter_run.is_read(call) else {"waiting", "used", "approved"}
    if question is not None and question.status not in is_open:
        return False
    ticket = await adapter_run.run.abegin(call)
    if ticket.outcome is not None:
        return ticket.outcome.status == "pending"
    await adapter_run.run.afinish(ticket, error=ToolNotStarted("it is run later"))
    return False


def asking_run(guard: Guard, state: Any) -> str | None:
    """Return the id of the run whose questions a stored state waits for; None if the guard's books do not tell."""
    run = guard.run(f"state-{uuid.uuid4().hex}")  # only to read calls as a run does
    verdicts = [run.check(_interrupted_call(item)) for item in state.get_interruptions()]
    known = guard.approvals.list(waiting=False)
    asked = [
        {one.run_id for one in known if (one.contract, one.arguments) == (v.contract, v.arguments)} for v in verdicts
    ]
    runs = set[str]().union(*asked)
    return runs.pop() if len(runs) == 1 else None


def answer_interruptions(adapter_run: AdapterRun, state: Any) -> bool:
    """Put the answers to the guard's questions into the state of an interrupted run.

    Returns:
        True if no question of the guard waits any more.
    """
    settled = True
    for item in state.get_interruptions():
        question = find_question(adapter_run, _interrupted_call(item))
        if question is None:
            continue  # the tool's own wish, which its author's application answers
        if question.status == "waiting":
            settled = False
        elif question.granted:
            state.approve(item)
        else:
            state.reject(item, rejection_message=f"A person has denied this call of {item.tool_name}.")
    return settled


def record_denials(adapter_run: AdapterRun, state: Any) -> None:
    """Pass what a person has rejected in the state of an interrupted run on to the guard, which the SDK does not."""
    context = state._context  # noqa: SLF001 - public nowhere
    for item in state.get_interruptions():
        if context.get_approval_status(item.tool_name, item.call_id, current_invocation=item) is False:
            call = _interrupted_call(item)
            question = find_question(adapter_run, call)
            if question is not None and question.status == "waiting":
                answer_question(adapter_run.run.guard, question.id, PersonAnswer(False, "RunState.reject"))
                record_denial(adapter_run, call)


def _interrupted_call(item: Any) -> ToolCall:
    return original_call(item.call_id or "", item.qualified_name or "", item.arguments or "", item.raw_item)
