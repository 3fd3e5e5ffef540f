"""Google ADK's tools: how a guarded call reaches its tool, and the result that ADK hands on.

In: a call that the plugin has announced. Out: the tool's value for the guard, and the outcome in ADK's shapes. Never:
a tool that runs before the callbacks of the agent and ADK's own confirmation: the guard waits at the tool itself,
behind all of them, and they see the arguments that the tool will get.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast

import pydantic_core
from google.genai import types

from pokayoke.adapters._host.approvals import PersonAnswer
from pokayoke.adapters._host.control_flow import not_started
from pokayoke.adapters._host.frames import frame_result, history_form
from pokayoke.adapters._host.run import AdapterRun, PendingCall
from pokayoke.adapters._host.tools import ToolSide
from pokayoke.adapters.google_adk._approvals import ask_to_repeat, has_asked_person, request_confirmation, take_answer
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.errors import ToolError

_TRANSFER = "transfer_to_agent"
_CONTROL_ACTIONS = ("escalate", "transfer_to_agent", "skip_summarization")
_BESIDE = re.compile("(?:content|media)_[0-9]+")
"""Names under which a response holds what is not text."""
ON_WIRE = "on_wire"
"""State of an `AdapterRun`: True if the session holds the tools' own results, which each request frames."""
_PAUSED = "waits for a person"
_ENDS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)

verdict_changed = not_started("it may run now, and was refused a moment ago")
"""Stands for a tool whose call was refused when the plugin checked it."""


pending_call_var: ContextVar[tuple[Any, PendingCall | None]] = ContextVar("pokayoke_adk_waiting", default=(None, None))
"""ADK's tool context of a call on its way from the plugin to its tool, and that call."""


class GuardedRunAsync:
    """Replaces a tool's own `run_async`. A call that no plugin has announced passes unguarded.

    Args:
        tool: the tool.
    """

    def __init__(self, tool: Any) -> None:
        """Keep the tool's own method."""
        self._tool, self._run = tool, tool.run_async

    async def __call__(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        """Run the tool, guarded if a plugin has announced this very call."""
        context, announced = pending_call_var.get()
        if announced is None or context is not tool_context:
            return await self._run(args=args, tool_context=tool_context)
        pending_call_var.set((None, None))
        # A callback of the agent may have changed the arguments.
        return await self._run_guarded(announced.with_arguments(args), announced.adapter_run, tool_context)

    async def _run_guarded(self, call: ToolCall, adapter_run: AdapterRun, context: Any) -> Any:
        tool = _ToolInvocation(self._run, context)
        outcome = await tool.take_call(adapter_run, call)
        if outcome.status == "pending" and outcome.approval is not None and tool.may_ask:
            request_confirmation(adapter_run.run.guard, outcome, context)
            return function_response(outcome)
        if tool.interrupt is not None:
            raise tool.interrupt
        if tool.is_paused:
            return tool.result if tool.answer is None else ask_to_repeat(outcome, context)
        _remember_actions(outcome, adapter_run, context.actions)
        if outcome.status == "ok" and self._tool.is_long_running and not tool.result:
            return tool.result  # its answer comes later, from the application
        answer = result_for_adk(outcome, context)
        if is_node(context):
            return tool.returned if outcome.status == "ok" else answer
        if adapter_run.notes.get(ON_WIRE) and not tool.media:
            forms = (_as_response(tool.result), _as_response(outcome.value))
            own = history_form(adapter_run, outcome, self._tool.name, forms, _response_content)
            return answer if own is outcome.text else own
        for place, part in enumerate(tool.media, 1):
            answer[f"media_{place}"] = part
        return answer


class _ToolInvocation(ToolSide):
    """The tool of one guarded call, and what ADK has to know about it beside the outcome.

    Args:
        run: runs the tool.
        context: ADK's tool context of this call.

    Attributes:
        answer: a person's answer to the guard's question that came with the call.
        returned: the tool's return value.
        result: that value without its media.
        media: those media.
        is_paused: True if the tool did nothing yet and asked a person; ADK calls it again later.
        interrupt: the exception by which ADK interrupted the tool; no `Exception`, so that it is never a failure.
    """

    __slots__ = ("_context", "_run", "answer", "interrupt", "is_paused", "media", "result", "returned")

    def __init__(self, run: Callable[..., Awaitable[Any]], context: Any) -> None:
        """Begin before the tool has run."""
        self._run, self._context = run, context
        self.answer = take_answer(context)
        self.returned: Any = None
        self.result: Any = None
        self.media: list[Any] = []
        self.is_paused = False
        self.interrupt: BaseException | None = None

    @property
    def may_ask(self) -> bool:
        """True if ADK can ask a person about this call: nodes of a workflow cannot, and each call only once."""
        return self.answer is None and not is_node(self._context)

    def person_answer(self, approval: str) -> PersonAnswer | None:  # noqa: ARG002 - ADK knows one question per call
        """Return the answer that came with the call."""
        return None if is_node(self._context) else self.answer

    async def run_tool(self, arguments: dict[str, Any]) -> Any:
        """Run the tool; one that pauses is raised as not started, so that its claim is given back."""
        try:
            result = await self._run(args=arguments, tool_context=self._context)
        except (Exception, *_ENDS):
            raise
        except BaseException as interrupt:  # noqa: BLE001 - ADK's own derive from it
            self.interrupt = interrupt
            raise ToolNotStarted(_PAUSED) from None
        if has_asked_person(self._context):
            self.result, self.is_paused = result, True
            raise ToolNotStarted(_PAUSED)
        self.returned = result
        self.result, self.media = _split_media(result)
        return self.result


def wrap_run_async(tool: Any) -> None:
    """Replace a tool's `run_async`, once."""
    if not isinstance(tool.run_async, GuardedRunAsync):
        tool.run_async = GuardedRunAsync(tool)


def result_for_adk(outcome: Outcome, context: Any) -> Any:
    """Return a call's `function_response`, or its value if a node of a workflow made it: no model reads that one.

    Raises:
        ToolError: that node gets no value; its workflow must not go on with anything else.
    """
    if not is_node(context):
        return function_response(outcome)
    if not outcome.ok:
        raise ToolError(outcome.text)
    return outcome.value


def is_node(context: Any) -> bool:
    """Return whether a call is a node of a workflow, which can ask nobody."""
    return type(getattr(context, "node", None)).__name__ == "_ToolNode"  # it has no public name


def message(outcome: Outcome) -> Any:
    """Return the part of a content that answers a call."""
    response = function_response(outcome)
    return types.Part(
        function_response=types.FunctionResponse(id=outcome.call_id, name=outcome.tool, response=response)
    )


def function_response(outcome: Outcome) -> dict[str, Any]:
    """Return the response that ADK shows the model: `result`, or `error` if the call brought none."""
    has_result = outcome.ok or (outcome.status == "degraded" and outcome.value is not None)
    response: dict[str, Any] = {"result" if has_result else "error": outcome.text}
    for place, block in enumerate(outcome.content, 1):
        response[f"content_{place}"] = _to_part(block)
    return response


def _as_response(result: Any) -> dict[str, Any]:
    """Return what ADK alone makes of a tool's result."""
    return result if isinstance(result, dict) else {"result": result}


def _response_content(response: dict[str, Any]) -> Any:
    """Return what a response holds, as a stored session gives it back."""
    value = response["result"] if response.keys() == {"result"} else response
    return value if isinstance(value, str) else pydantic_core.to_jsonable_python(value)


def frame_response(adapter_run: AdapterRun, part: Any, call_id: str) -> None:
    """Change the answer in a part of a request to what the model reads; the session has a part of its own.

    Args:
        adapter_run: the run.
        part: the part; one without an answer stays as it is.
        call_id: id of the call that it answers.
    """
    answer = part.function_response
    response = (answer and answer.response) or {}
    texts = [one for key, one in response.items() if not _BESIDE.fullmatch(key)]
    if not response or (len(texts) == 1 and "error" in response):
        return  # a text of the guard, or of ADK
    said = response.get("result")
    if isinstance(said, str) and frame_result(adapter_run, answer.name, call_id, said) is None:
        return  # framed already, with media beside it
    framed = frame_result(adapter_run, answer.name, call_id, _response_content(response))
    if framed is not None:
        part.function_response = answer.model_copy(update={"response": {"result": framed}})


async def pass_unguarded_tool(
    tool: Any, arguments: dict[str, Any], adapter_run: AdapterRun, call: ToolCall
) -> dict[str, Any] | None:
    """Let a tool without a contract run, if its arguments are whole and can be read.

    Args:
        tool: the tool.
        arguments: those that ADK will call it with; replaced in place by what the model meant.
        adapter_run: the run.
        call: the call as the model wrote it.

    Returns:
        The response instead of the tool's, or None to run it.
    """
    if is_cut(call.stop_reason):
        return function_response(await adapter_run.acall(call))
    if isinstance(call.arguments, str):
        reading = read_arguments(call.arguments)
        meant = reading.value if reading.grade in ("exact", "lossless") else None
    else:
        meant = cast("dict[str, Any]", call.arguments)
    problem = "could not be read: send one JSON object" if meant is None else _transfer_problem(tool, meant)
    if problem is not None:
        await adapter_run.acall(call)  # it counts as a bad round
        return {"error": f"The arguments of {tool.name} {problem}."}
    arguments.clear()
    arguments.update(meant or {})
    return None


def _transfer_problem(tool: Any, arguments: dict[str, Any]) -> str | None:
    """Return what is wrong with a transfer: ADK ends the whole run when its agent does not exist."""
    if tool.name != _TRANSFER:
        return None
    schema: Any = tool._get_declaration().parameters_json_schema or {}  # noqa: SLF001 - the only way to its agents
    agents = schema.get("properties", {}).get("agent_name", {}).get("enum")
    if agents is None or arguments.get("agent_name") in agents:
        return None
    return f"name no agent to transfer to: agent_name is one of {', '.join(agents)}"


def _remember_actions(outcome: Outcome, adapter_run: AdapterRun, actions: Any) -> None:
    """Keep the actions by which a tool steered ADK, and repeat them when its call is replayed."""
    kept: dict[str | None, list[Any]] = adapter_run.notes.setdefault("steered", {})
    if outcome.status == "ok" and outcome.key is not None:
        if any(steered := [getattr(actions, name) for name in _CONTROL_ACTIONS]):
            kept[outcome.key] = steered
    elif outcome.status == "replayed":
        for name, value in zip(_CONTROL_ACTIONS, kept.get(outcome.key, ()), strict=False):
            setattr(actions, name, value)


def _split_media(result: Any) -> tuple[Any, list[Any]]:
    """Split off the parts that ADK hands to the model beside the text; it looks for them at the top level."""
    if isinstance(result, types.Part):
        return {}, [result]
    if not isinstance(result, (dict, list)):
        return result, []
    entries: Any = result
    media = [one for one in (entries.values() if isinstance(result, dict) else entries) if isinstance(one, types.Part)]
    if not media:
        return result, []
    if isinstance(result, dict):
        return {key: one for key, one in entries.items() if not isinstance(one, types.Part)}, media
    return [one for one in entries if not isinstance(one, types.Part)], media


def _to_part(block: Any) -> Any:
    """Return a block of a tool's result as ADK's own part if it is media, else as plain data."""
    held: dict[str, Any] = block if isinstance(block, dict) else block.model_dump(mode="json", by_alias=True)
    data, kind = held.get("data"), held.get("mimeType") or held.get("mime_type")
    if isinstance(data, str) and isinstance(kind, str):
        with contextlib.suppress(ValueError):
            return types.Part.from_bytes(data=base64.b64decode(data, validate=True), mime_type=kind)
    return held
