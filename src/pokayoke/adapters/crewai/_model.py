"""One request of a CrewAI agent to its model: what is asked, and how the calls of the reply get to their tools.

CrewAI parses the reply and runs tools where no id and no text of the model is left. So each call goes on with a
token among its arguments, and the history gets back what the model wrote before the model sees it again.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from crewai.agents.constants import ACTION_INPUT_REGEX, FINAL_ANSWER_ACTION

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import ReplyCall, effective_call, encode_unreadable_call, is_encoded_call
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import ToolVisibility, is_hidden, paging_tool
from pokayoke.adapters.crewai._tools import TOKEN, UNKNOWN_TOOL_NAME, crewai_name
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.tool_definitions import build_definitions
from pokayoke.runtime.threads.forks import process_token

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

_counter = itertools.count()
_TOKENS = re.compile(rf'"{TOKEN}": "([0-9a-f]+-[0-9a-f]+)"')


class AgentRun:
    """What is known of one run beside the run itself.

    Attributes:
        hosted: the run.
        answered: True if the model's latest reply was an answer: what it is asked next begins a turn.
        written: the call that stood in the text of the latest reply, for models without tool calls of their own.
        restored: what the history gets back, by token.
        offer: the latest offer to the model.
    """

    def __init__(self, hosted: AdapterRun) -> None:
        """Begin before the first request."""
        self.hosted = hosted
        self.answered = True
        self.written: ToolCall | None = None
        self.restored: BoundedCache[str, dict[str, Any]] = BoundedCache()
        self.offer: OfferedTools | None = None


class OfferedTools:
    """Which of the definitions that CrewAI offers the model sees: worked out once, until something of it changes.

    Attributes:
        look: what it depends on.
        names: names of all that CrewAI offers.
        shown: the definitions for the model.
    """

    __slots__ = ("look", "names", "shown")

    def __init__(self, run: Run, tools: list[dict[str, Any]]) -> None:
        """Look at every definition."""
        self.look = ToolVisibility(run, tools)
        self.names = {tool["function"]["name"] for tool in tools}
        hidden = {
            UNKNOWN_TOOL_NAME,
            *(name for name in self.names if name != UNKNOWN_TOOL_NAME and is_hidden(run, name)),
        }
        self.shown = [tool for tool in tools if tool["function"]["name"] not in hidden]
        if (more := paging_tool(run)) is not None:
            self.shown += build_definitions([more], format="openai")


class PendingCall(NamedTuple):
    """A call on its way to its tool."""

    hosted: AdapterRun
    call: ToolCall
    stand_in: dict[str, Any]


class ModelRequest:
    """One request and its reply.

    Args:
        record: of the run.
        messages: the history, as CrewAI keeps it.
        tools: definitions that CrewAI offers; None if the model writes its calls down in text.
        heard: where calls wait for their tools.
        ends: tells whether the result of a call is to be the answer.
    """

    def __init__(
        self,
        record: AgentRun,
        messages: list[Any],
        tools: list[dict[str, Any]] | None,
        heard: BoundedCache[str, PendingCall],
        ends: Callable[[ToolCall], bool],
    ) -> None:
        """Shape the request."""
        self._record, self._hosted, self._heard, self._ends = record, record.hosted, heard, ends
        _restore_history(record, messages)
        if record.answered:
            self._hosted.run.user(_user_text(messages))
            record.answered = False
        asked = self._hosted.begin_request()
        self._final, self._texts = asked.final, tools is None
        offer = record.offer
        if offer is None or not offer.look.is_unchanged(record.hosted.run, tools or ()):
            offer = record.offer = OfferedTools(record.hosted.run, tools or [])
        self._offered = offer.names
        self.tools = None if tools is None or asked.final else [*offer.shown] or None
        self.messages = messages
        if asked.instruction is not None:
            self.messages = [*messages, {"role": "system", "content": asked.instruction}]

    def take_reply(self, reply: Any, stop_reason: Any, tokens: int | None) -> Any:
        """Take the reply; returns what CrewAI goes on with."""
        if tokens is not None:
            self._hosted.run.usage(tokens)
        if isinstance(reply, list):
            return self._take_calls(reply, stop_reason) if reply and not self._final else self._final_text(None)
        if reply is not None and not isinstance(reply, str):
            return reply  # an object that the caller asked for
        return self._take_text_reply(reply or "", stop_reason) if self._texts else self._final_text(reply)

    def _final_text(self, text: str | None) -> str:
        self._record.answered = True
        self._hosted.run.guard.trace.flush()
        return self._hosted.final_text(text)

    # -- calls of a provider -------------------------------------------------------------------------

    def _take_calls(self, reply: list[Any], stop_reason: Any) -> list[Any]:
        calls = self._hosted.take_reply(map(reply_call, reply), stop_reason)
        made = [self._framework_call(call) for call in calls]
        if reply and all(type(one).__qualname__ == "Part" for one in reply) and made:
            # Gemini has to see its own parts again: they are signed.
            self._record.restored.put("parts", {"ids": [one["id"] for one in made], "parts": list(reply)})
        return made

    def _framework_call(self, call: ToolCall) -> dict[str, Any]:
        """Return a call as CrewAI takes it to a tool."""
        name = self._target_tool(call)
        text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, default=str)
        given = _parse_object(text)
        if name is None:
            # A tool of CrewAI's own: nothing of it is known here, but a cut message runs nothing of it either.
            sound = given is not None and not is_cut(call.stop_reason)
            return _openai_call(call.id, crewai_name(call.name), text if sound else f"!{text}")
        token = _new_token()
        sound = given is not None and not is_cut(call.stop_reason) and not is_encoded_call(given)
        if (meant := effective_call(self._hosted.run, call, given)) is not None:
            # Hooks of the user judge a call before the guard does: they have to see what will run.
            stand_in = meant[1]
            kept = text if sound else json.dumps(encode_unreadable_call(call))
            sent = json.dumps({**stand_in, TOKEN: token})
        elif sound and given is not None:
            kept, stand_in = text, given
            # The model's own text with one more member, which comes last and so is the one that counts.
            sent = f'{text.rstrip()[:-1]}{", " if given else ""}"{TOKEN}": "{token}"}}'
        else:
            stand_in = encode_unreadable_call(call)
            kept, sent = json.dumps(stand_in), json.dumps({**stand_in, TOKEN: token})
        self._heard.put(token, PendingCall(self._hosted, call, stand_in))
        self._record.restored.put(token, {"name": history_name(call.name), "arguments": kept})
        return _openai_call(call.id, name, sent)

    def _target_tool(self, call: ToolCall) -> str | None:
        """Return the tool that answers a call; None if CrewAI has one that is not guarded."""
        found = self._hosted.run.snapshot.find_plan(call.name)
        if not isinstance(found, Finding) and found.contract.name in self._offered:
            return found.contract.name
        own = crewai_name(call.name) in self._offered or UNKNOWN_TOOL_NAME not in self._offered
        return None if own else UNKNOWN_TOOL_NAME

    # -- calls in a text -----------------------------------------------------------------------------

    def _take_text_reply(self, text: str, stop_reason: Any) -> str:
        """Take a reply in CrewAI's own notation for models without tool calls."""
        found = None if FINAL_ANSWER_ACTION in text else ACTION_INPUT_REGEX.search(text)
        if found is None or self._final:
            head, mark, said = text.rpartition(FINAL_ANSWER_ACTION)
            if not mark and found is None and text.strip() and not self._final:
                return text  # not in the notation: CrewAI explains it to the model
            return f"{head}{FINAL_ANSWER_ACTION} {self._final_text(said.strip() if mark else None)}"
        # A model that does not stop after its call goes on with a result of its own.
        raw = found.group(2).partition("\nObservation")[0].strip()
        name = found.group(1).strip().strip("*").strip()
        (call,) = self._hosted.take_reply([ReplyCall(None, name, raw)], stop_reason)
        if self._ends(call):
            self._record.written = call
            return text
        token = _new_token()
        self._heard.put(token, PendingCall(self._hosted, call, {}))
        between = text[found.end(1) : found.start(2)]
        sent = f"{text[: found.start(1)]}{UNKNOWN_TOOL_NAME}{between}{json.dumps({TOKEN: token})}"
        self._record.restored.put(token, {"sent": sent, "text": text})
        return sent


def has_text_calls(messages: list[Any]) -> bool:
    """True if the model was told to write its calls down, in CrewAI's own notation."""
    return any("Action Input:" in content for one in messages if isinstance(content := one.get("content"), str))


def reply_call(one: Any) -> ReplyCall:
    """Return a call in any of the shapes that CrewAI's models return."""
    inner = _get_field(one, "function") or _get_field(one, "function_call") or one
    arguments = next(
        (given for key in ("arguments", "args", "input") if (given := _get_field(inner, key)) is not None), ""
    )
    ident = _get_field(one, "call_id") or _get_field(one, "id") or _get_field(one, "toolUseId")
    text = (
        arguments if isinstance(arguments, str) else dict(arguments) if hasattr(arguments, "keys") else repr(arguments)
    )
    return ReplyCall(ident or None, _get_field(inner, "name") or "", text)


def _get_field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _openai_call(ident: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def _new_token() -> str:
    # A history of another process may hold tokens, too.
    return f"{process_token()}-{next(_counter):x}"


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return a text as CrewAI will read it; None if it is no object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _user_text(messages: list[Any]) -> str:
    """Return what the agent is asked: the latest message of the user's."""
    content = next((one.get("content") for one in reversed(messages) if one.get("role") == "user"), None)
    return content if isinstance(content, str) else ""


def _restore_history(record: AgentRun, messages: list[Any]) -> None:
    """Give the history back what the model wrote, from the end to where that was done before."""
    names: dict[str, str] = {}
    answers: list[dict[str, Any]] = []
    for said in reversed(messages):
        if not said.get("tool_calls"):
            if said.get("role") == "tool":
                answers.append(said)
            _restore_text(record, said)
        elif (found := _restore_calls(record, said)) is not None:
            names.update(found)
        else:
            break
    for said in answers:
        if said.get("tool_call_id") in names:
            said["name"] = names[said["tool_call_id"]]


def _restore_text(record: AgentRun, said: dict[str, Any]) -> None:
    content = said.get("content")
    if said.get("role") != "assistant" or not isinstance(content, str) or TOKEN not in content:
        return
    for token in _TOKENS.findall(content):
        if (kept := record.restored.get(token)) is not None:
            content = content.replace(kept["sent"], kept["text"])
    said["content"] = content


def _restore_calls(record: AgentRun, said: dict[str, Any]) -> dict[str, str] | None:
    """Restore the calls of a message; returns names by id, or None if there was nothing to restore."""
    names: dict[str, str] = {}
    for one in said["tool_calls"]:
        function = one["function"]
        if TOKEN in function["arguments"]:
            # Behind whatever a model wrote that looks like one.
            kept = next(map(record.restored.get, reversed(_TOKENS.findall(function["arguments"]))), None)
            function.update(kept or {"arguments": _without_token(function["arguments"])})
            names[one["id"]] = function["name"]
    if not names:
        return None
    parts = record.restored.get("parts")
    if parts is not None and parts["ids"] == [one["id"] for one in said["tool_calls"]]:
        said["raw_tool_call_parts"] = parts["parts"]
    return names


def _without_token(text: str) -> str:
    arguments = _parse_object(text) or {}
    arguments.pop(TOKEN, None)
    return json.dumps(arguments)
