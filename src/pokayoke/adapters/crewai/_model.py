"""A CrewAI model whose requests and replies go through the guard.

In: a request of an agent's loop, and the model's reply. Out: the same, as the guard lets them stand. Never: a history
that shows the model other words than its own.

CrewAI parses the reply and runs tools with neither the call's id nor the model's text. So each call carries a token
among its arguments, and the history gets the model's own text back before the model sees it again.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from types import NoneType
from typing import Any, Self

from crewai import BaseLLM
from crewai.agents.constants import ACTION_INPUT_REGEX, FINAL_ANSWER_ACTION
from crewai.llms.base_llm import call_stream_override

from pokayoke.adapters._host.calls import (
    ReplyCall,
    effective_call,
    encode_unreadable_call,
    find_tool_name,
    is_encoded_call,
    parse_object,
)
from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters._host.model import ModelSide
from pokayoke.adapters._host.run import PendingCall
from pokayoke.adapters._host.visibility import OfferedTools
from pokayoke.adapters.crewai._contracts import crewai_name
from pokayoke.adapters.crewai._run import TOKEN, UNKNOWN_TOOL_NAME, AgentRun, AgentRuns, Who
from pokayoke.adapters.crewai._tools import GuardedTool, require_guarded
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.context.open_calls import has_open_calls
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.values import read_field
from pokayoke.core.messages.tool_definitions import build_definitions
from pokayoke.errors import UsageError
from pokayoke.runtime.guard.guard import Guard
from pokayoke.runtime.run.run import Run
from pokayoke.runtime.threads.forks import process_token

_counter = itertools.count()
_TOKENS = re.compile(rf'"{TOKEN}": "([0-9a-f]+-[0-9a-f]+)"')
_NO_RESULTS = "CrewAI writes results into texts for models without tool calls, where none can be told apart"
_UNCHANGED: AbstractContextManager[None] = nullcontext()


def guarded(
    guard: Guard,
    llm: Any,
    tools: Iterable[Any],
    *,
    run_id: str | Callable[[], str] | None = None,
    who: Who | None = None,
    unguarded: Collection[str] = (),
    frame: Frame = "history",
) -> tuple[Any, list[Any]]:
    """Return a language model and tools for agents: `Agent(llm=llm, tools=tools)`.

    Args:
        guard: the guard; its contracts are those of the tools, see `contracts`.
        llm: the model, of any of CrewAI's classes or of your own; it stays as it is.
        tools: the tools. One more comes back: it answers calls of tools that do not exist, and the model is never
            offered it.
        run_id: your own id of the kickoff, or a function that returns it, so that a restart knows its writes again.
            Each task is a run of its own below it.
        who: called with task and agent (None if there is none); returns `tenant` and `principal` as for `Guard.run`.
        unguarded: names of tools that CrewAI may run as they are. Any other tool of an agent or a task that is not
            one of `guarded` is a `UsageError` when the model is first asked; those of CrewAI's own pass.
        frame: only `history`, for the reason that the error says.

    Raises:
        UsageError: it is no model of CrewAI, or `frame` is another word.
    """
    require_frame(frame, _NO_RESULTS)
    if not isinstance(llm, BaseLLM):
        raise UsageError(f"{type(llm).__name__} is no BaseLLM of CrewAI: hand over LLM(model=...) and not its name")
    runs = AgentRuns(guard, run_id, who, unguarded)
    made = [GuardedTool.wrap_tool(tool, runs) for tool in (*tools, None)]
    runs.tools.update({crewai_name(tool.name): tool for tool in made[:-1]})
    return _guarded_copy(llm, runs), list(made)


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of what `LLM.call` returned, in order; it does not say whether the message was cut."""
    found = map(_reply_call, reply if isinstance(reply, list) else ())
    return [ToolCall(one.id or "", one.name, one.arguments) for one in found]


def message(outcome: Outcome) -> dict[str, Any]:
    """Return the message that answers a call."""
    return {"role": "tool", "tool_call_id": outcome.call_id, "name": crewai_name(outcome.tool), "content": outcome.text}


class ModelRequest(ModelSide):
    """One request and its reply.

    Args:
        runs: the runs of the model.
        agent_run: the run of this request.
        messages: the history, as CrewAI keeps it.
        tools: definitions that CrewAI offers; None if the model writes its calls down in text.

    Attributes:
        messages: those to send.
        tools: the definitions to send.
        ending: how the reply ends, as far as the model's class says.
    """

    def __init__(
        self, runs: AgentRuns, agent_run: AgentRun, messages: list[Any], tools: list[dict[str, Any]] | None
    ) -> None:
        """Shape the request."""
        self._runs, self._agent_run, self._writes_text = runs, agent_run, tools is None
        self.ending = _ReplyEnd()
        _restore_history(agent_run, messages)
        said = [_user_text(messages)] if agent_run.is_answered else []
        agent_run.is_answered = False
        shape = self.begin_request(agent_run.adapter_run, user_texts=said, history=messages)
        offered = agent_run.offered
        if offered is None or not offered.is_current(agent_run.adapter_run.run, tools or ()):
            offered = agent_run.offered = _offered_tools(agent_run.adapter_run.run, tools or [])
        self._offered: Collection[str] = offered.by_name
        self.tools = None if tools is None or shape.final else [*offered.shown] or None
        self.messages = messages
        if shape.instruction is not None:
            self.messages = [*messages, {"role": "system", "content": shape.instruction}]

    def answer_open_calls(self) -> None:
        """Put what the ledger knows into the request for each call of its history that nobody answered."""
        if has_open_calls(self.messages):
            self._replace_history(self.adapter_run.run.answer_open_calls(self.messages))

    async def aanswer_open_calls(self) -> None:
        """`answer_open_calls` for asynchronous code."""
        if has_open_calls(self.messages):
            self._replace_history(await self.adapter_run.run.aanswer_open_calls(self.messages))

    def _replace_history(self, messages: Sequence[Any]) -> None:
        self.messages = [*messages]
        self.adapter_run.run.set_history(messages)

    # -- the reply -----------------------------------------------------------------------------------

    def total_tokens(self, reply: Any) -> int | None:  # noqa: ARG002 - the reply itself does not say
        """Return what the model's class says of the reply."""
        return self.ending.tokens

    def calls(self, reply: Any) -> list[ReplyCall]:
        """Return its calls, or the one that stands in a text."""
        if isinstance(reply, list):
            return [*map(_reply_call, reply)]
        found = self._find_action(reply)
        if found is None:
            return []
        # A model that does not stop after its call goes on with a result of its own.
        text = found.group(2).partition("\nObservation")[0].strip()
        return [ReplyCall(None, found.group(1).strip().strip("*").strip(), text)]

    def with_calls(self, reply: Any, calls: list[ToolCall]) -> Any:
        """Return the reply with its calls as CrewAI takes them to their tools."""
        if isinstance(reply, str):
            return self._with_text_call(reply, calls[0])
        made = [self._framework_call(call) for call in calls]
        if all(type(one).__qualname__ == "Part" for one in reply):
            # Gemini has to see its own parts again: they are signed.
            self._agent_run.restored.put("parts", {"ids": [one["id"] for one in made], "parts": list(reply)})
        return made

    def without_calls(self, reply: Any) -> Any:
        """Return an empty reply in the place of one with calls: its text leads up to them."""
        return "" if isinstance(reply, list) or self._find_action(reply) else reply

    def may_change_text(self, reply: Any, text: str | None) -> bool:
        """Return whether the reply is an answer: no object that the caller wants, and no text in a wrong notation."""
        if isinstance(reply, str) and self._writes_text and text is None and not self.is_final:
            return not reply.strip()  # CrewAI explains its notation to the model
        return isinstance(reply, (str, list, NoneType))

    def final_text(self, text: str | None) -> str:
        """Return the text for the user; the next request begins a turn."""
        self._agent_run.is_answered = True
        self.adapter_run.run.guard.trace.flush()
        return super().final_text(text)

    def text(self, reply: Any) -> str | None:
        """Return the answer; None if there is none, or no mark of one in a text that needs it."""
        if not isinstance(reply, str) or not self._writes_text:
            return reply if isinstance(reply, str) else None
        _, mark, answer = reply.rpartition(FINAL_ANSWER_ACTION)
        return answer.strip() if mark else None

    def with_text(self, reply: Any, text: str) -> str:
        """Return the answer in the notation of the model."""
        before = (reply or "").rpartition(FINAL_ANSWER_ACTION)[0]
        return f"{before}{FINAL_ANSWER_ACTION} {text}" if self._writes_text else text

    # -- calls of a provider -------------------------------------------------------------------------

    def _framework_call(self, call: ToolCall) -> dict[str, Any]:
        """Return a call as CrewAI takes it to a tool."""
        name = self._target_tool(call)
        text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, default=str)
        given = parse_object(text)
        sound = None if is_cut(call.stop_reason) else given
        if name is None:
            # A tool of CrewAI's own has no contract, but a cut message runs no call of it either.
            return _openai_call(call.id, crewai_name(call.name), f"!{text}" if sound is None else text)
        if sound is not None and is_encoded_call(sound):
            sound = None
        token, own = _new_token(), encode_unreadable_call(call) if sound is None else sound
        # Hooks of the user judge a call before the guard does: they have to see what will run.
        effective = effective_call(self.adapter_run.run, call, given)
        stand_in = own if effective is None else effective[1]
        if sound is not None and effective is None:
            # The model's own text with one more member, which comes last and so is the one that counts.
            sent = f'{text.rstrip()[:-1]}{", " if sound else ""}"{TOKEN}": "{token}"}}'
        else:
            sent = json.dumps({**stand_in, TOKEN: token})
        kept = json.dumps(own) if sound is None else text
        self._runs.pending.put(token, PendingCall(self.adapter_run, call, stand_in))
        self._agent_run.restored.put(token, {"name": history_name(call.name), "arguments": kept})
        return _openai_call(call.id, name, sent)

    def _target_tool(self, call: ToolCall) -> str | None:
        """Return the tool that answers a call; None if CrewAI has one that is not guarded."""
        if (name := find_tool_name(self.adapter_run.run, call.name, self._offered)) is not None:
            return name
        own = crewai_name(call.name) in self._offered or UNKNOWN_TOOL_NAME not in self._offered
        return None if own else UNKNOWN_TOOL_NAME

    # -- calls in a text -----------------------------------------------------------------------------

    def _find_action(self, reply: Any) -> re.Match[str] | None:
        """Return the call in a text, in CrewAI's own notation for models without tool calls."""
        if not self._writes_text or not isinstance(reply, str) or FINAL_ANSWER_ACTION in reply:
            return None
        found: re.Match[str] | None = ACTION_INPUT_REGEX.search(reply)
        return found

    def _with_text_call(self, text: str, call: ToolCall) -> str:
        found = self._find_action(text)
        assert found is not None, "a text with a call"
        tool = self._runs.tools.get(crewai_name(call.name))
        if tool is not None and tool.result_as_answer:  # CrewAI has to find this tool by its name in the text
            self._agent_run.text_call = call
            return text
        token = _new_token()
        self._runs.pending.put(token, PendingCall(self.adapter_run, call, {}))
        between = text[found.end(1) : found.start(2)]
        sent = f"{text[: found.start(1)]}{UNKNOWN_TOOL_NAME}{between}{json.dumps({TOKEN: token})}"
        self._agent_run.restored.put(token, {"sent": sent, "text": text})
        return sent


def _offered_tools(run: Run, tools: list[dict[str, Any]]) -> OfferedTools:
    offered = OfferedTools(run, tools, _definition_name, _define_tool)
    offered.shown = [tool for tool in offered.shown if _definition_name(tool) != UNKNOWN_TOOL_NAME]
    return offered


def _definition_name(tool: dict[str, Any]) -> str:
    name: str = tool["function"]["name"]
    return name


def _define_tool(contract: Contract) -> Any:
    return build_definitions([contract], format="openai")[0]


def _reply_call(one: Any) -> ReplyCall:
    """Return a call in any of the shapes that CrewAI's models return."""
    inner = read_field(one, "function") or read_field(one, "function_call") or one
    found = (given for key in ("arguments", "args", "input") if (given := read_field(inner, key)) is not None)
    arguments = next(found, "")
    ident = read_field(one, "call_id") or read_field(one, "id") or read_field(one, "toolUseId")
    if not isinstance(arguments, str):
        arguments = dict(arguments) if hasattr(arguments, "keys") else repr(arguments)
    return ReplyCall(ident or None, read_field(inner, "name") or "", arguments)


def _openai_call(ident: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def _new_token() -> str:
    # A history of another process may hold tokens, too.
    return f"{process_token()}-{next(_counter):x}"


def _user_text(messages: list[Any]) -> str:
    """Return the latest message of the user."""
    content = next((one.get("content") for one in reversed(messages) if one.get("role") == "user"), None)
    return content if isinstance(content, str) else ""


# -- the history -------------------------------------------------------------------------------------


def _restore_history(agent_run: AgentRun, messages: list[Any]) -> None:
    """Put the model's own words back into the history, from its end to the last message that has them already."""
    names: dict[str, str] = {}
    answers: list[dict[str, Any]] = []
    for said in reversed(messages):
        if not said.get("tool_calls"):
            if said.get("role") == "tool":
                answers.append(said)
            _restore_text(agent_run, said)
        elif found := _restore_calls(agent_run, said):
            names.update(found)
        else:
            break
    for said in answers:
        if said.get("tool_call_id") in names:
            said["name"] = names[said["tool_call_id"]]


def _restore_text(agent_run: AgentRun, said: dict[str, Any]) -> None:
    content = said.get("content")
    if said.get("role") != "assistant" or not isinstance(content, str) or TOKEN not in content:
        return
    for token in _TOKENS.findall(content):
        if (kept := agent_run.restored.get(token)) is not None:
            content = content.replace(kept["sent"], kept["text"])
    said["content"] = content


def _restore_calls(agent_run: AgentRun, said: dict[str, Any]) -> dict[str, str]:
    """Restore the calls of a message; returns the names of those that were restored, by id."""
    names: dict[str, str] = {}
    for one in said["tool_calls"]:
        function = one["function"]
        if TOKEN in function["arguments"]:
            # The last one: a model may have written something that looks like a token.
            kept = next(map(agent_run.restored.get, reversed(_TOKENS.findall(function["arguments"]))), None)
            rest = {key: value for key, value in (parse_object(function["arguments"]) or {}).items() if key != TOKEN}
            function.update(kept or {"arguments": json.dumps(rest)})
            names[one["id"]] = function["name"]
    parts = agent_run.restored.get("parts") if names else None
    if parts is not None and parts["ids"] == [one["id"] for one in said["tool_calls"]]:
        said["raw_tool_call_parts"] = parts["parts"]
    return names


# -- the model ---------------------------------------------------------------------------------------


class _ReplyEnd:
    """How a reply ended and what it cost, as far as the model's class says. Events inside its with block count."""

    def __init__(self) -> None:
        self.stop_reason: Any = None
        self.tokens: int | None = None
        self.streams: bool | None = False

    def take_event(self, stop_reason: Any, usage: Any) -> None:
        # A later event does not take back a cut.
        if stop_reason not in (None, ...) and not is_cut(self.stop_reason):
            self.stop_reason = stop_reason
        if isinstance(usage, dict) and isinstance(total := usage.get("total_tokens"), int):
            self.tokens = total

    def __enter__(self) -> Self:
        self._token = _reply_end_var.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _reply_end_var.reset(self._token)


_reply_end_var: ContextVar[_ReplyEnd | None] = ContextVar("pokayoke_crewai_ending", default=None)


class _GuardedLLM:
    """Stands before a class of CrewAI's models, so that each request and reply passes the guard."""

    _pokayoke: AgentRuns
    _effective_stream: Callable[[], bool | None]
    _effective_api: Callable[[], str]  # of those models that have several APIs

    def call(self, messages: Any, tools: Any = None, *rest: Any, **more: Any) -> Any:
        """Ask the model once."""
        request = self._build_guarded_request(messages, tools, more)
        if request is None:
            return super().call(messages, tools, *rest, **more)  # type: ignore[misc]  # the class this stands before
        request.answer_open_calls()
        with request.ending as ending, self._force_whole_reply(request):
            ending.streams = self._effective_stream()
            reply = super().call(request.messages, request.tools, *rest, **more)  # type: ignore[misc]  # as above
        return request.take_reply(reply, ending.stop_reason)

    async def acall(self, messages: Any, tools: Any = None, *rest: Any, **more: Any) -> Any:
        """`call` for asynchronous code."""
        request = self._build_guarded_request(messages, tools, more)
        if request is None:
            return await super().acall(messages, tools, *rest, **more)  # type: ignore[misc]  # as above
        await request.aanswer_open_calls()
        with request.ending as ending, self._force_whole_reply(request):
            ending.streams = self._effective_stream()
            reply = await super().acall(request.messages, request.tools, *rest, **more)  # type: ignore[misc]  # as above
        return request.take_reply(reply, ending.stop_reason)

    def __copy__(self) -> Any:
        """Stay guarded: CrewAI copies a crew with its models, and some classes build the copy from their settings."""
        return self._guard_twin(super().__copy__())  # type: ignore[misc]  # as above

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        """Stay guarded, by the same guard."""
        known = {} if memo is None else memo
        known[id(self._pokayoke)] = self._pokayoke
        return self._guard_twin(super().__deepcopy__(known))  # type: ignore[misc]  # as above

    # The model's own call has the retries for its rate limit already.
    call._crewai_rate_limit_wrapped = True  # type: ignore[attr-defined]  # noqa: SLF001 - its mark for that
    acall._crewai_rate_limit_wrapped = True  # type: ignore[attr-defined]  # noqa: SLF001 - as above

    def _guard_twin(self, twin: Any) -> Any:
        return twin if isinstance(twin, _GuardedLLM) else _guarded_copy(twin, self._pokayoke)

    def _force_whole_reply(self, request: ModelRequest) -> AbstractContextManager[None]:
        """Ask for a whole reply where CrewAI loses the calls of a stream: at the Responses API."""
        kind: Any = type(self)
        if request.tools and _has_apis(kind) and self._effective_api() == "responses":
            whole: AbstractContextManager[None] = call_stream_override(self, False)
            return whole
        return _UNCHANGED

    def _build_guarded_request(self, messages: Any, tools: Any, more: Mapping[str, Any]) -> ModelRequest | None:
        """Return the request as it is sent; None for one outside of an agent's loop, such as a summary."""
        task, agent = more.get("from_task"), more.get("from_agent")
        if not isinstance(messages, list) or more.get("available_functions"):
            return None
        if not tools and (agent is None or not _has_text_calls(messages)):
            return None
        own = (*(getattr(task, "tools", None) or ()), *(getattr(agent, "tools", None) or ()))
        runs = self._pokayoke
        require_guarded(own, runs.unguarded)
        return ModelRequest(runs, runs.run_for_task(task, agent), messages, tools or None)

    def _emit_call_completed_event(self, *args: Any, **more: Any) -> None:
        """Take why the message ended, which `call` does not return, from the event that the model's class sends."""
        if (ending := _reply_end_var.get()) is not None:
            reason = more.get("finish_reason", ...)
            # A stream that broke off has no reason, where its class passes on the reason of a stream.
            ending.take_event("incomplete" if reason is None and ending.streams else reason, more.get("usage"))
        super()._emit_call_completed_event(*args, **more)  # type: ignore[misc]  # as above

    def _extract_finish_reason_and_response_id(self, reply: Any) -> tuple[Any, Any]:
        """Take the reason where the class of the LiteLLM route reads it: it sends no event for a reply with calls."""
        found: tuple[Any, Any] = super()._extract_finish_reason_and_response_id(reply)  # type: ignore[misc]  # as above
        if (ending := _reply_end_var.get()) is not None:
            ending.take_event(found[0], None)
        return found


def _has_text_calls(messages: list[Any]) -> bool:
    """Return whether the prompt tells the model to write its calls down, in CrewAI's own notation."""
    return any("Action Input:" in content for one in messages if isinstance(content := one.get("content"), str))


def _guarded_copy(llm: Any, runs: AgentRuns) -> Any:
    """Return a copy of a model whose calls are guarded; client, settings and counters are those of the model."""
    twin = copy.copy(llm)
    kind: Any = type(llm)
    object.__setattr__(twin, "__class__", _guarded_class(kind))
    object.__setattr__(twin, "_pokayoke", runs)
    return twin


@functools.cache
def _has_apis(kind: Any) -> bool:
    """Return whether models of a class have several APIs: pydantic is slow at an attribute that does not exist."""
    return hasattr(kind, "_effective_api")


@functools.cache
def _guarded_class(kind: Any) -> Any:
    return type(kind)(f"Guarded{kind.__name__}", (_GuardedLLM, kind), {"__module__": __name__})
