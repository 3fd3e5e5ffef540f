"""The tools' side of the OpenAI Agents SDK: each call goes through the guard, which runs the tool if it may.

In: the SDK's function tools and guardrails. Out: the same, guarded. Never: a tool that the SDK runs with arguments
other than those that the guard let through.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Self

from agents import (
    FunctionTool,
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
from msgspec import structs

from pokayoke.adapters._host.approvals import PersonAnswer, call_and_answer
from pokayoke.adapters._host.control_flow import invoke_without_tool, not_started
from pokayoke.adapters._host.frames import frame_result, history_form, value_text
from pokayoke.adapters._host.proxy import Proxy
from pokayoke.adapters._host.run import AdapterRun, text_for_user
from pokayoke.adapters._host.tools import ToolSide
from pokayoke.adapters.openai_agents._approvals import approval_rule, is_unfit
from pokayoke.adapters.openai_agents._handoffs import refuse_handoff
from pokayoke.adapters.openai_agents._run import AgentRun, agent_run_var, current_agent_run, original_call
from pokayoke.core.call import Outcome
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.json.values import read_field
from pokayoke.core.messages.media import media_block_for

_TRIPWIRES = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
"""Exceptions that end a run by the SDK's own rules, also from inside a tool. What happened before them happened."""
_mcp_results_var: ContextVar[list[Any] | None] = ContextVar("pokayoke_openai_agents_mcp", default=None)
_SIGNATURE = inspect.signature(lambda context, text: (context, text))
"""What every guarded tool takes. The SDK inspects it before each call, which is slow without this."""


def guard_tool(tool: Any, *, asks: bool, typed: bool) -> Any:
    """Return a function tool whose calls go through the guard.

    Args:
        tool: the tool.
        asks: True if the guard may want to ask a person first.
        typed: True if a schema says what it returns, so that a value that looks like a picture is data.
    """
    # The SDK would turn an exception into a result, with its text; the guard has to see the exception.
    bare, name = copy.copy(tool), tool.qualified_name
    bare._failure_error_function, bare._use_default_failure_error_function = None, False  # noqa: SLF001 - public nowhere

    async def invoke_tool(context: Any, text: str) -> Any:
        agent_run = current_agent_run()
        call = original_call(context.tool_call_id, name, text, context.tool_call)
        nested = agent_run.nested_run(call.id)
        side = _ToolInvocation(bare, context, nested, typed=typed)
        try:
            outcome = await side.take_call(agent_run.adapter_run, call)
        finally:
            if not side.is_interrupted:
                agent_run.runs.close_run(nested.ident)
        if side.tripwire is not None:
            raise side.tripwire
        return side.nested_result if side.is_interrupted else _framework_result(agent_run, name, outcome, side.own)

    invoke_tool.__signature__ = _SIGNATURE  # type: ignore[attr-defined]  # where `inspect.signature` looks first
    invoke_tool.__annotations__.clear()  # the SDK evaluates them before every call
    guarded = copy.copy(tool)
    guarded.on_invoke_tool = invoke_tool
    guarded.timeout_seconds = None  # the contract's counts, and a call that is over time is recorded
    guarded.tool_input_guardrails = [_wrap_input_guardrail(one, name) for one in tool.tool_input_guardrails or ()]
    guarded.tool_output_guardrails = [_wrap_output_guardrail(one) for one in tool.tool_output_guardrails or ()]
    if asks or tool.needs_approval:
        guarded.needs_approval = approval_rule(name, tool.needs_approval)
    return guarded


class ObservedMCPServer(Proxy):
    """An MCP server whose raw results are kept: the SDK drops the flag that says that a call has failed.

    Args:
        inner: the server.
    """

    async def call_tool(self, *given: Any, **named: Any) -> Any:
        """Call a tool."""
        result = await self._inner.call_tool(*given, **named)
        if (results := _mcp_results_var.get()) is not None:
            results.append(result)
        return result


class _ToolInvocation(ToolSide):
    """One call of a function tool.

    Attributes:
        tripwire: the exception that ends the run once the call is settled.
        is_interrupted: True if the agent behind the tool waits for a person; the same call resumes it.
        nested_result: what that agent returned.
        own: what the SDK would have kept of the call.
    """

    def __init__(self, bare: Any, context: Any, nested: AgentRun, *, typed: bool) -> None:
        self._bare, self._context, self._nested, self._typed = bare, context, nested, typed
        self.tripwire: Exception | None = None
        self.is_interrupted, self.nested_result, self.own = False, None, None

    async def run_tool(self, arguments: dict[str, Any]) -> Any:
        bare, context = self._bare, self._context
        context.tool_arguments = text = json.dumps(arguments)
        # The SDK has prepared arguments from the text that the model wrote.
        context._function_tool_arguments = None  # noqa: SLF001 - public nowhere
        seen: list[Any] = []
        inside, results = agent_run_var.set(self._nested), _mcp_results_var.set(seen)
        try:
            result = await bare.on_invoke_tool(context, text)
        except _TRIPWIRES as tripwire:
            self.tripwire = tripwire
            raise
        except ModelBehaviorError as refusal:
            if str(refusal).startswith(f"Invalid JSON input for tool {bare.name}"):
                raise ToolNotStarted("the arguments do not fit the tool's own types", blame="model") from refusal
            raise
        finally:
            _mcp_results_var.reset(results)
            agent_run_var.reset(inside)
        if bare._is_agent_tool and self._is_waiting():  # noqa: SLF001 - public nowhere
            self.is_interrupted, self.nested_result = True, result
            raise ToolNotStarted("an agent waits for a person")
        self.own = result
        if seen:
            return seen[-1]
        return result if self._typed else _to_blocks(result)

    def person_answer(self, approval: str) -> PersonAnswer | None:  # noqa: ARG002 - the SDK knows calls, not questions
        approved = self._context.is_tool_approved(self._bare.qualified_name, self._context.tool_call_id)
        return PersonAnswer(True, "RunState.approve") if approved else None

    def _is_waiting(self) -> bool:
        """Return whether the agent behind the tool was interrupted."""
        scope = get_agent_tool_state_scope(self._context)
        nested = peek_agent_tool_run_result(self._context.tool_call, scope_id=scope)
        return bool(getattr(nested, "interruptions", None))


# -- results ------------------------------------------------------------------------------------------


class ResultText(str):
    """The text of a call for the model, with its outcome."""

    __slots__ = ("outcome",)
    outcome: Outcome

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        """Return the same object, as for any text: the SDK copies the item of each call."""
        return self


class _ResultBlocks(list[Any]):
    """The content blocks of a call for the model, with its outcome."""

    outcome: Outcome


class _ResultObject(dict[str, Any]):
    """An object that a tool returned; the SDK's item of the call holds it as JSON instead of a repr."""

    def __str__(self) -> str:
        return value_text(self)


class _ResultArray(list[Any]):
    """An array that a tool returned; as `_ResultObject`."""

    def __str__(self) -> str:
        return value_text(self)


def _to_blocks(result: Any) -> Any:
    """Return the SDK's own texts, pictures and files as content blocks; any other result unchanged."""
    found = None if isinstance(result, str) else ItemHelpers._convert_tool_output_as_structured(result)  # noqa: SLF001 - as above
    if found is None:
        return result
    return [{**part, "type": "text"} if part["type"] == "input_text" else part for part in found]


def _framework_result(agent_run: AgentRun, name: str, outcome: Outcome, own: Any = None) -> Any:
    """Return what the SDK keeps: what the model reads, text and media, or a value that its requests frame.

    Args:
        agent_run: the run.
        name: the tool's name in the history.
        outcome: the call's outcome.
        own: what the SDK would have kept of the call.
    """
    result: Any = ResultText(outcome.text)
    if agent_run.on_wire and not outcome.content:
        result = history_form(agent_run.adapter_run, outcome, name, _result_forms(own, outcome.value), _item_text)
        if result is not outcome.text:
            return result
        # In a block of its own, which no request frames: the SDK's item has no other place to say whose text it is.
        is_ours = frame_result(agent_run.adapter_run, name, outcome.call_id, result) is None
        result = ResultText(result) if is_ours else _ResultBlocks([{"type": "text", "text": result}])
    elif outcome.content:
        media = [block for one in outcome.content if (block := media_block_for(one, "responses")) is not None]
        own = [{**block, "type": block["type"].removeprefix("input_")} for block in media]
        result = _ResultBlocks([{"type": "text", "text": outcome.text}, *own]) if own else result
    result.outcome = outcome
    return result


def _result_forms(own: Any, value: Any) -> Iterator[Any]:
    """Yield what the SDK could keep of a result: the tool's own object, its JSON value, or the text of that."""
    yield own
    if isinstance(value, (dict, list)):
        yield _ResultObject(value) if isinstance(value, dict) else _ResultArray(value)
    yield value_text(value)


def _item_text(form: Any) -> str:
    """Return what the SDK's item of a call holds of a result.

    Raises:
        TypeError: the SDK would take it for pictures, files or texts of its own.
    """
    if ItemHelpers._convert_tool_output_as_structured(form) is not None:  # noqa: SLF001 - as above
        raise TypeError
    return str(form)


def frame_items(adapter_run: AdapterRun, items: list[Any]) -> list[Any]:
    """Return the items of a history with the results as the model reads them."""
    names = {item.get("call_id"): qualified_name(item) for item in items if item.get("type") == "function_call"}

    def frame_item(item: Any) -> Any:
        if item.get("type") != "function_call_output":
            return item
        ident, output = item["call_id"], item["output"]
        if isinstance(output, list):
            text = output[0].get("text") if len(output) == 1 else None
        else:
            text = frame_result(adapter_run, names.get(ident, ""), ident, output)
        return item if text is None else {**item, "output": text}

    return [*map(frame_item, items)]


def qualified_name(call: Any) -> str:
    """Return the name of a call's tool as the SDK qualifies it.

    A tool that was loaded late is in a namespace of its own name.
    """
    name, space = read_field(call, "name"), read_field(call, "namespace")
    return f"{space}.{name}" if space and space != name else str(name)


def _outcome_of(output: Any) -> Outcome | None:
    """Return the outcome of a call whose output is the guard's own text; None for a tool's own value."""
    outcome = output.outcome if isinstance(output, (ResultText, _ResultBlocks)) else None
    return outcome if isinstance(outcome, Outcome) else None


def _output_value(output: Any) -> Any:
    """Return the value that a tool returned, from what the SDK keeps of the call; of a failed call, what was said."""
    outcome = _outcome_of(output)
    if outcome is None:
        return output
    if not outcome.ok:
        return outcome.text
    if outcome.value is None and (outcome.content or outcome.status == "replayed"):
        return output
    return outcome.value


def final_output_behavior(behaviour: Any) -> Any:
    """Return an agent's `tool_use_behavior` that judges values instead of the texts for the model.

    A failed call never ends the run: the model is asked again.
    """
    if behaviour == "run_llm_again":
        return behaviour

    def choose_final_output(context: Any, results: list[Any]) -> Any:
        if callable(behaviour):
            return behaviour(context, [replace(one, output=_output_value(one.output)) for one in results])
        stops = None if isinstance(behaviour, str) else behaviour.get("stop_at_tool_names", ())
        chosen = results[:1] if stops is None else [one for one in results if one.tool.name in stops][:1]
        outcome = _outcome_of(chosen[0].output) if chosen else None
        if not chosen or (outcome is not None and not outcome.ok):
            return ToolsToFinalOutputResult(is_final_output=False)
        final = _output_value(chosen[0].output)
        if outcome is not None and outcome.status == "replayed":
            final = text_for_user(current_agent_run().runs.guard.snapshot, outcome)
        return ToolsToFinalOutputResult(is_final_output=True, final_output=final)

    return choose_final_output


# -- guardrails ---------------------------------------------------------------------------------------

_call_rejected = not_started("a guardrail of the tool's input has rejected it", blame="policy")


def _wrap_input_guardrail(guardrail: Any, name: str) -> Any:
    """Return the guardrail so that it judges the arguments that will run.

    The run records a call that it rejects, and no person is asked about that call.
    """

    async def run_guardrail(data: Any) -> Any:
        context = data.context
        adapter_run = current_agent_run().adapter_run
        call = original_call(context.tool_call_id, name, context.tool_arguments, context.tool_call)
        verdict = adapter_run.run.check(call)
        if is_unfit(verdict):
            return ToolGuardrailFunctionOutput.allow()
        if verdict.repairs or verdict.corrections:
            data = replace(data, context=copy.copy(context))
            data.context.tool_arguments = json.dumps(verdict.arguments)
        output = await guardrail.run(data)
        if output.behavior["type"] == "reject_content":
            answer = PersonAnswer(False, guardrail.get_name())
            await call_and_answer(adapter_run, call, _call_rejected, lambda _: answer)
        return output

    other = copy.copy(guardrail)
    other.run = run_guardrail
    return other


def _wrap_output_guardrail(guardrail: Any) -> Any:
    """Return the guardrail so that it judges what the tool returned instead of what the model reads."""
    other = copy.copy(guardrail)
    other.run = lambda data: guardrail.run(replace(data, output=_output_value(data.output)))
    return other


# -- calls without a tool -----------------------------------------------------------------------------


def tool_definition(contract: Contract) -> Any:
    """Return the definition of a tool that the guard itself answers."""
    schema = dict(contract.input_schema)
    return FunctionTool(contract.name, contract.description, schema, _answer_unknown_call, strict_json_schema=False)


async def _answer_unknown_call(context: Any, text: str) -> Any:
    """Answer a call that no tool of the agent can take."""
    agent_run = current_agent_run()
    adapter_run = agent_run.adapter_run
    call = original_call(context.tool_call_id, context.tool_name, text, context.tool_call)
    run, handoff = adapter_run.run, agent_run.handoffs.get(call.name)
    wrong = handoff.check_arguments(call.arguments, run.snapshot)[1] if handoff and call.stop_reason is None else ()
    if wrong:
        return refuse_handoff(run, call, wrong).text
    invoke = invoke_without_tool(run, call.name)
    outcome = await adapter_run.acall(call, invoke)
    if invoke is not None:
        known = agent_run.offered.by_name if agent_run.offered is not None else ()
        said = f"{outcome.tool} is not among your tools now. There are: {', '.join(known) or 'none'}."
        outcome = structs.replace(outcome, text=f"{said}\n{outcome.text}")
    return _framework_result(agent_run, call.name, outcome)


def unknown_tool(name: str) -> Any:
    """Return what answers calls of a tool that an agent does not have, by its name.

    No model is offered it: `ModelRequest` adds it to the list of tools that the SDK reads a reply with, for the one
    reply that needs it.
    """
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return FunctionTool(name, "", schema, _answer_unknown_call, strict_json_schema=False)
