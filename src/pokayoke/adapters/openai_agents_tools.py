"""The tools' side of the OpenAI Agents SDK: each call is taken by the guard, which runs the tool if it may."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable
from typing import Any

from pokayoke.adapters.hosted import Hosted, written
from pokayoke.adapters.openai_agents_model import SINK, WRAPPED, Slot, current, slot_in_use
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.steps import NotBegun
from pokayoke.errors import MissingExtraError

try:
    from agents import (
        FunctionTool,
        InputGuardrailTripwireTriggered,
        OutputGuardrailTripwireTriggered,
        ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered,
    )
    from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
    from agents.exceptions import ModelBehaviorError
except ImportError as error:
    raise MissingExtraError("openai-agents", "openai-agents") from error

__all__ = ["guarded_tool", "sink", "waits"]

_TRIPWIRES = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
"""What ends a run by the SDK's own rules, also from inside a tool. It proves nothing about what happened before."""


def guarded_tool(tool: Any, *, asks: bool) -> Any:
    """Return a function tool whose calls go through the guard.

    Args:
        tool: the tool.
        asks: True if the guard may want to ask a person first.
    """
    # The SDK would turn an exception into a result, with its text; the guard has to see it as what it is.
    bare = copy.copy(tool)
    bare._failure_error_function, bare._use_default_failure_error_function = None, False  # noqa: SLF001 - public nowhere

    async def invoke(context: Any, text: str) -> Any:
        slot = slot_in_use()
        call = _call(context.tool_call_id, tool.name, text)
        run = _Running(bare, context, slot.inside(call.id))
        outcome = await slot.hosted.acall(call, run)
        if outcome.status == "pending" and context.is_tool_approved(tool.name, call.id):
            slot.hosted.run.guard.approvals.approve(str(outcome.approval), by="RunState.approve")
            outcome = await slot.hosted.acall(call, run)
        if run.steering is not None:
            raise run.steering
        return run.nested if run.interrupted else _shown(outcome)

    guarded = copy.copy(tool)
    guarded.on_invoke_tool = invoke
    guarded.timeout_seconds = None  # the contract's counts, and a call that is over time is recorded
    if asks:
        guarded.needs_approval = _asking(tool.name, tool.needs_approval)
    return guarded


def sink() -> Any:
    """Return the tool that answers calls of tools an agent does not have."""

    async def invoke(context: Any, text: str) -> Any:
        slot = slot_in_use()
        outcome = await _unowned(slot.hosted, _call(context.tool_call_id, SINK, text))
        return outcome.text

    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return FunctionTool(SINK, "Answers what cannot be run.", schema, invoke, strict_json_schema=False)


async def _unowned(hosted: Hosted, call: ToolCall) -> Outcome:
    """Answer a call that no tool of the agent can take. The guard's own tools are known to it alone."""
    run = hosted.run
    plan = run.snapshot.find(call.name)
    contract = getattr(plan, "contract", None)
    if contract is None or contract is run.guard.pager:
        return await hosted.acall(call)

    def missing(_arguments: dict[str, Any]) -> Any:
        raise NotBegun(f"{contract.name} is not among the tools you have now", blame="model")

    return await hosted.acall(call, missing)


class _Running:
    """Runs the tool, with the arguments that the guard lets through."""

    def __init__(self, bare: Any, context: Any, inside: Slot) -> None:
        self._bare, self._context, self._inside = bare, context, inside
        self.steering: Exception | None = None
        self.interrupted, self.nested = False, None

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        bare, context = self._bare, self._context
        context.tool_arguments = text = json.dumps(arguments)
        # What the SDK has prepared is for the text the model wrote.
        context._function_tool_arguments = None  # noqa: SLF001 - public nowhere
        token = current.set(self._inside)
        try:
            result = await bare.on_invoke_tool(context, text)
        except _TRIPWIRES as steering:
            self.steering = steering
            raise
        except ModelBehaviorError as refusal:
            if str(refusal).startswith(f"Invalid JSON input for tool {bare.name}"):
                raise NotBegun("the arguments do not fit the tool's own types", blame="model") from refusal
            raise
        finally:
            current.reset(token)
        if bare._is_agent_tool and self._waits():  # noqa: SLF001 - public nowhere
            self.interrupted, self.nested = True, result
            raise NotBegun("an agent waits for a person")
        return result

    def _waits(self) -> bool:
        """Whether the agent behind the tool was interrupted: it is resumed by the same call, and has not ended."""
        scope = get_agent_tool_state_scope(self._context)
        nested = peek_agent_tool_run_result(self._context.tool_call, scope_id=scope)
        return bool(getattr(nested, "interruptions", None))


def _call(ident: str, name: str, text: str) -> ToolCall:
    """The call as the model wrote it."""
    if text.startswith(WRAPPED):
        return written(ident, name, json.loads(text))
    return ToolCall(ident, name, text)


def _shown(outcome: Outcome) -> Any:
    """What the model reads: text, and blocks that are none."""
    if not outcome.content:
        return outcome.text
    return [{"type": "text", "text": outcome.text}, *outcome.content]


# -- approvals ----------------------------------------------------------------------------------------


class waits:  # noqa: N801 - a name for three functions that belong together
    """What the guard knows of calls that wait for a person."""

    @staticmethod
    def asked(ident: str | None, name: str | None, arguments: str | None) -> ToolCall:
        """Return the call of an interruption."""
        return _call(ident or "", name or "", arguments or "")

    @staticmethod
    def decided(hosted: Hosted, call: ToolCall) -> str | None:
        """Return how a person has decided on a call: approved, denied, expired, or None."""
        verdict = hosted.run.check(call)
        if verdict.decision != "ask":
            return None
        return next(
            (
                known.status
                for known in hosted.run.guard.approvals.list(waiting=False)
                if known.status != "waiting"
                and (known.run_id, known.contract) == (hosted.run.id, verdict.contract)
                and known.arguments == verdict.arguments
            ),
            None,
        )


async def _wanted(own: Any, *given: Any) -> bool:
    """Whether the tool's own setting wants a person to be asked."""
    answer = own(*given) if callable(own) else own
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _asking(name: str, own: Any) -> Callable[[Any, dict[str, Any], str], Any]:
    """What decides whether the SDK interrupts the run before a call."""

    async def asks(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        if await _wanted(own, context, arguments, call_id):
            return True
        hosted, call = slot_in_use().hosted, written(call_id, name, arguments)
        if hosted.run.check(call).decision != "ask" or waits.decided(hosted, call) is not None:
            return False
        # So that the question stands where others look for it, too.
        ticket = await hosted.run.abegin(call)
        if ticket.outcome is not None:
            return ticket.outcome.status == "pending"
        await hosted.run.afinish(ticket, error=NotBegun("it is run later"))
        return False

    return asks
