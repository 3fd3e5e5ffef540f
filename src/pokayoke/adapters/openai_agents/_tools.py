"""The tools' side of the OpenAI Agents SDK: each call is taken by the guard, which runs the tool if it may."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Self

from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.finish_reasons import Proxy
from pokayoke.adapters._host.run import AdapterRun, value_as_text
from pokayoke.adapters.openai_agents._run import AgentRun, agent_run_var, current_agent_run, original_call
from pokayoke.core.call import Outcome, ToolCall, Verdict
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.messages.media import media_block_for
from pokayoke.errors import MissingExtraError

try:
    from agents import (
        InputGuardrailTripwireTriggered,
        ItemHelpers,
        OutputGuardrailTripwireTriggered,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered,
        ToolsToFinalOutputResult,
    )
    from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
    from agents.exceptions import ModelBehaviorError
except ImportError as error:
    raise MissingExtraError("openai-agents", "openai-agents") from error

__all__ = ["ObservedMCPServer", "PendingApprovals", "ResultText", "final_output_behavior", "guard_tool"]

_TRIPWIRES = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
"""What ends a run by the SDK's own rules, also from inside a tool. It proves nothing about what happened before."""


_RESULTS: ContextVar[list[Any] | None] = ContextVar("pokayoke_openai_agents_mcp", default=None)
_SIGNATURE = inspect.signature(lambda context, text: (context, text))
"""What every guarded tool takes. The SDK asks for it before each call, and works it out where it is not told."""


def guard_tool(tool: Any, *, asks: bool, typed: bool) -> Any:
    """Return a function tool whose calls go through the guard.

    Args:
        tool: the tool.
        asks: True if the guard may want to ask a person first.
        typed: True if a schema says what it returns, so that what looks like a picture is data.
    """
    # The SDK would turn an exception into a result, with its text; the guard has to see it as what it is.
    bare, name = copy.copy(tool), tool.qualified_name
    bare._failure_error_function, bare._use_default_failure_error_function = None, False  # noqa: SLF001 - public nowhere

    async def invoke_tool(context: Any, text: str) -> Any:
        slot = current_agent_run()
        call = original_call(context.tool_call_id, name, text)
        inside = slot.nested_run(call.id)
        run = _ToolInvocation(bare, context, inside, typed=typed)
        try:
            outcome = await slot.adapter_run.acall(call, run)
            if outcome.status == "pending" and context.is_tool_approved(name, call.id):
                slot.adapter_run.run.guard.approvals.approve(str(outcome.approval), by="RunState.approve")
                outcome = await slot.adapter_run.acall(call, run)
        finally:
            if not run.interrupted:
                slot.runs.close_run(inside.ident)
        if run.steering is not None:
            raise run.steering
        return run.nested if run.interrupted else _framework_result(outcome)

    invoke_tool.__signature__ = _SIGNATURE  # type: ignore[attr-defined]  # where `inspect.signature` looks first
    invoke_tool.__annotations__.clear()  # the SDK evaluates them before every call
    guarded = copy.copy(tool)
    guarded.on_invoke_tool = invoke_tool
    guarded.timeout_seconds = None  # the contract's counts, and a call that is over time is recorded
    guarded.tool_input_guardrails = [_wrap_input_guardrail(one, name) for one in tool.tool_input_guardrails or ()]
    guarded.tool_output_guardrails = [_wrap_output_guardrail(one) for one in tool.tool_output_guardrails or ()]
    if asks or tool.needs_approval:
        guarded.needs_approval = _approval_rule(name, tool.needs_approval)
    return guarded


class ObservedMCPServer(Proxy):
    """An MCP server whose results are seen as they come: the SDK keeps the text of a failure, and drops that it is one.

    Args:
        inner: the server.
    """

    async def call_tool(self, *given: Any, **named: Any) -> Any:
        """Call a tool."""
        result = await self._inner.call_tool(*given, **named)
        if (seen := _RESULTS.get()) is not None:
            seen.append(result)
        return result


class _ToolInvocation:
    """Runs the tool, with the arguments that the guard lets through."""

    def __init__(self, bare: Any, context: Any, inside: AgentRun, *, typed: bool) -> None:
        self._bare, self._context, self._inside, self._typed = bare, context, inside, typed
        self.steering: Exception | None = None
        self.interrupted, self.nested = False, None

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        bare, context = self._bare, self._context
        context.tool_arguments = text = json.dumps(arguments)
        # What the SDK has prepared is for the text the model wrote.
        context._function_tool_arguments = None  # noqa: SLF001 - public nowhere
        seen: list[Any] = []
        inside, results = agent_run_var.set(self._inside), _RESULTS.set(seen)
        try:
            result = await bare.on_invoke_tool(context, text)
        except _TRIPWIRES as steering:
            self.steering = steering
            raise
        except ModelBehaviorError as refusal:
            if str(refusal).startswith(f"Invalid JSON input for tool {bare.name}"):
                raise ToolNotStarted("the arguments do not fit the tool's own types", blame="model") from refusal
            raise
        finally:
            _RESULTS.reset(results)
            agent_run_var.reset(inside)
        if bare._is_agent_tool and self._is_waiting():  # noqa: SLF001 - public nowhere
            self.interrupted, self.nested = True, result
            raise ToolNotStarted("an agent waits for a person")
        if seen:
            return seen[-1]
        return result if self._typed else _to_blocks(result)

    def _is_waiting(self) -> bool:
        """Whether the agent behind the tool was interrupted: it is resumed by the same call, and has not ended."""
        scope = get_agent_tool_state_scope(self._context)
        nested = peek_agent_tool_run_result(self._context.tool_call, scope_id=scope)
        return bool(getattr(nested, "interruptions", None))


class ResultText(str):
    """What the model reads of a call, with the outcome behind it."""

    __slots__ = ("outcome",)
    outcome: Outcome

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        """Stay the same, as any text does: the SDK copies the item of each call."""
        return self


class _ResultBlocks(list[Any]):
    """The same, where a result is not text alone."""

    outcome: Outcome


def _to_blocks(result: Any) -> Any:
    """The SDK's own texts, pictures and files, as blocks that the guard knows; any other result as it is."""
    found = None if isinstance(result, str) else ItemHelpers._convert_tool_output_as_structured(result)  # noqa: SLF001 - as above
    if found is None:
        return result
    return [{**part, "type": "text"} if part["type"] == "input_text" else part for part in found]


def _framework_result(outcome: Outcome) -> Any:
    """What the model reads: text, and the pictures and files that the SDK takes beside it."""
    told: Any = ResultText(outcome.text)
    if outcome.content:
        media = [block for one in outcome.content if (block := media_block_for(one, "responses")) is not None]
        own = [{**block, "type": block["type"].removeprefix("input_")} for block in media]
        told = _ResultBlocks([{"type": "text", "text": outcome.text}, *own]) if own else told
    told.outcome = outcome
    return told


def final_output_behavior(behaviour: Any) -> Any:
    """Return an agent's `tool_use_behavior` for what guarded tools return: a result that is the run's own last word.

    A call that failed is none: the model is asked again. A function of the user's is shown the plain values.
    """
    if behaviour == "run_llm_again":
        return behaviour

    def choose_final_output(context: Any, results: list[Any]) -> Any:
        if callable(behaviour):
            return behaviour(context, [replace(one, output=_output_value(one.output)) for one in results])
        stops = None if isinstance(behaviour, str) else behaviour.get("stop_at_tool_names", ())
        chosen = results[:1] if stops is None else [one for one in results if one.tool.name in stops][:1]
        if not chosen or not getattr(getattr(chosen[0].output, "outcome", None), "ok", True):
            return ToolsToFinalOutputResult(is_final_output=False)
        return ToolsToFinalOutputResult(is_final_output=True, final_output=_output_value(chosen[0].output))

    return choose_final_output


def _is_unfit(verdict: Verdict) -> bool:
    """Whether a call will be answered with what is wrong with its arguments, so that nobody has to judge them."""
    return verdict.decision == "refuse" and verdict.stop_reason == "invalid_arguments"


def _wrap_input_guardrail(guardrail: Any, name: str) -> Any:
    """The guardrail, which judges the arguments that will run.

    The run gets to know its no to a call; nobody else is asked about that call any more.
    """

    async def run_guardrail(data: Any) -> Any:
        context = data.context
        hosted, call = (
            current_agent_run().adapter_run,
            original_call(context.tool_call_id, name, context.tool_arguments),
        )
        verdict = hosted.run.check(call)
        if _is_unfit(verdict):
            return ToolGuardrailFunctionOutput.allow()
        if verdict.repairs or verdict.corrections:
            data = replace(data, context=copy.copy(context))
            data.context.tool_arguments = json.dumps(verdict.arguments)
        output = await guardrail.run(data)
        if output.behavior["type"] == "reject_content":
            outcome = await hosted.acall(call, _call_rejected)
            if outcome.status == "pending":
                hosted.run.guard.approvals.deny(str(outcome.approval), by=guardrail.get_name())
                await hosted.acall(call, _call_rejected)
        return output

    other = copy.copy(guardrail)
    other.run = run_guardrail
    return other


def _call_rejected(_arguments: dict[str, Any]) -> Any:
    raise ToolNotStarted("a guardrail of the tool's input has rejected it", blame="policy")


def _wrap_output_guardrail(guardrail: Any) -> Any:
    """The guardrail, shown what the tool has returned instead of what the model reads."""
    other = copy.copy(guardrail)
    other.run = lambda data: guardrail.run(replace(data, output=_output_value(data.output)))
    return other


def _output_value(output: Any) -> Any:
    outcome = getattr(output, "outcome", None)
    if not isinstance(outcome, Outcome) or not outcome.ok or (outcome.value is None and outcome.content):
        return output
    return value_as_text(outcome) if outcome.value is None and outcome.status == "replayed" else outcome.value


# -- approvals ----------------------------------------------------------------------------------------


class PendingApprovals:
    """What the guard knows of calls that wait for a person."""

    @staticmethod
    def interrupted_call(item: Any) -> ToolCall:
        """Return the call of an interruption."""
        return original_call(item.call_id or "", item.qualified_name or "", item.arguments or "")

    @staticmethod
    def find_question(hosted: AdapterRun, call: ToolCall) -> Approval | None:
        """Return the question about a call, answered or not; None if there is none, or nothing to ask."""
        verdict = hosted.run.check(call)
        if verdict.decision != "ask":
            return None
        about = (hosted.run.id, verdict.contract, verdict.arguments)
        known = hosted.run.guard.approvals.list(waiting=False)
        return next((one for one in known if (one.run_id, one.contract, one.arguments) == about), None)

    @staticmethod
    def record_denial(hosted: AdapterRun, call: ToolCall) -> None:
        """Take a person's no to a call, which the SDK will not hand on."""
        question = PendingApprovals.find_question(hosted, call)
        if question is not None and question.status == "waiting":
            hosted.run.guard.approvals.deny(question.id, by="RunState.reject")
            hosted.call(call, _call_denied)  # so that the run knows what was not done


def _call_denied(_arguments: dict[str, Any]) -> Any:
    raise ToolNotStarted("a person has denied it")


async def _needs_approval(own: Any, *given: Any) -> bool:
    """Whether the tool's own setting wants a person to be asked."""
    answer = own(*given) if callable(own) else own
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _approval_rule(name: str, own: Any) -> Callable[[Any, dict[str, Any], str], Any]:
    """What decides whether the SDK interrupts the run before a call."""

    async def needs_approval(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        hosted, call = current_agent_run().adapter_run, decode_call(call_id, name, arguments)
        verdict = hosted.run.check(call)
        if _is_unfit(verdict):
            return False
        if await _needs_approval(own, context, arguments if verdict.arguments is None else verdict.arguments, call_id):
            return True
        if verdict.decision != "ask":
            return False
        if (question := PendingApprovals.find_question(hosted, call)) is not None and question.status not in {
            "waiting",
            "used",
        }:
            return False
        # So that the question stands where others look for it, too.
        ticket = await hosted.run.abegin(call)
        if ticket.outcome is not None:
            return ticket.outcome.status == "pending"
        await hosted.run.afinish(ticket, error=ToolNotStarted("it is run later"))
        return False

    return needs_approval
