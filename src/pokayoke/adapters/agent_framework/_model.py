"""Around one request to the model of Microsoft Agent Framework: what is asked, and what the reply becomes."""

from __future__ import annotations

import contextlib
import copy
import json
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from agent_framework import (
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    Message,
    ResponseStream,
    _tools,
)
from pydantic_core import PydanticSerializationError, to_jsonable_python

from pokayoke.adapters._host.calls import ReplyCall, effective_call, encode_unreadable_call, is_encoded_call
from pokayoke.adapters._host.finish_reasons import cut_or_last
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import ToolVisibility, allowed_tool_choice, is_hidden, paging_tool
from pokayoke.adapters.agent_framework._tools import Placeholder
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.stop_reasons import is_cut

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

PendingCall = tuple[AdapterRun, ToolCall, Any]
KeepCall = Callable[[str, PendingCall], None]

# How the framework itself sees that arguments were changed since it read them; public nowhere.
_PREPARED = "_prepared_function_arguments"
_token_of = getattr(_tools, "_argument_comparison_token", None)
# Whose streams always say why they ended.
_STREAMS_WITH_REASON = ("openai.", "anthropic.")
_TOOL_OPTIONS = frozenset({"tools", "tool_choice", "allow_multiple_tool_calls"})


class ModelLoop:
    """One request of the framework's user, and all model requests that it takes.

    Args:
        hosted: the run.
        tools: the framework's own list: what stands in it can be called, and it is looked at anew for each reply.
        ident: id of a run that ends with this loop; None if its session goes on.
    """

    __slots__ = ("_look", "hosted", "ident", "tools")

    def __init__(self, hosted: AdapterRun, tools: list[Any], ident: str | None) -> None:
        """Look at nothing yet."""
        self.hosted, self.tools, self.ident = hosted, tools, ident
        self._look: ToolVisibility | None = None

    def visible_tools(self) -> list[Any]:
        """Return the tools that the model may see; the list itself if that is all of them."""
        run, tools = self.hosted.run, self.tools
        if self._look is not None and self._look.is_unchanged(run, tools):
            return tools
        shown = self._find_visible_tools(run)
        all_of_them = len(shown) == len(tools)
        self._look = ToolVisibility(run, tools) if all_of_them else None
        return tools if all_of_them else shown

    def _find_visible_tools(self, run: Run) -> list[Any]:
        tools = self.tools
        # The type and not isinstance: the framework's classes are abstract, which makes that slow.
        if any(type(tool) is Placeholder for tool in tools):
            tools[:] = [tool for tool in tools if type(tool) is not Placeholder]
        if (more := paging_tool(run)) is not None and all(tool.name != more.name for tool in tools):
            tools.append(Placeholder(more.name, description=more.description, input_model=dict(more.input_schema)))
        # Another list than the framework's own, which is that of what can be called.
        return [tool for tool in tools if not (isinstance(tool, FunctionTool) and is_hidden(run, tool.name))]


class ModelRequest:
    """One request and its reply."""

    def __init__(
        self, loop: ModelLoop, options: Mapping[str, Any], keep: KeepCall, end: Callable[[ModelLoop], None]
    ) -> None:
        """Begin a round.

        Args:
            loop: the loop it belongs to.
            options: of the request, as the framework made them.
            keep: told of each call that the framework is going to run: its occurrence; its run, what was written and
                what that says.
            end: told that the loop has its last answer.
        """
        self._loop, self._options = loop, options
        self._keep, self._end = keep, end
        self._asked = loop.hosted.begin_request()
        # The framework, too, may have taken the tools away: at the end of its own budgets.
        self._final = self._asked.final or options.get("tool_choice") == "none"

    def shape_request(self) -> Mapping[str, Any]:
        """Return the options of the request."""
        tools, options = self._loop.tools, self._options
        shown = self._loop.visible_tools()
        final = self._asked.final or (not shown and bool(tools))
        if not final and self._asked.instruction is None and shown is tools:
            return options
        changed = {key: value for key, value in options.items() if not final or key not in _TOOL_OPTIONS}
        if not final and shown is not tools:
            changed["tools"] = shown
            if (choice := allowed_tool_choice(self._loop.hosted.run, changed.pop("tool_choice", None))) is not None:
                changed["tool_choice"] = choice
        if self._asked.instruction is not None:
            # As an instruction it is part of this request alone, even where the service keeps the messages.
            changed["instructions"] = _join_instructions(options.get("instructions"), self._asked.instruction)
        return changed

    def take_reply(self, response: ChatResponse, stop_reason: Any) -> list[Any]:
        """Take a whole reply and why it ended; returns what came to it, for a stream that has told the rest already."""
        hosted = self._loop.hosted
        if (tokens := (response.usage_details or {}).get("total_token_count")) is not None:
            hosted.run.usage(tokens)
        found = [one for said in response.messages for one in said.contents if is_local_call(one)]
        if found and not self._final:
            self._take_calls(found, stop_reason)
            return found
        if any(one.type == "function_approval_request" for one in reply_contents(response)):
            return []
        for said in response.messages if found else ():
            said.contents = [one for one in said.contents if not is_local_call(one)]
        added = self._set_final_text(response)
        self._end(self._loop)
        return added

    def _take_calls(self, found: list[Any], stop_reason: Any) -> None:
        """Give each call an id, arguments that the framework's parser takes, and somebody to answer it."""
        hosted, tools = self._loop.hosted, self._loop.tools
        names = {tool.name for tool in tools if isinstance(tool, FunctionTool)}
        asked = [ReplyCall(one.call_id or None, one.name or "", call_arguments(one)) for one in found]
        for content, call in zip(found, hosted.take_reply(asked, stop_reason), strict=True):
            content.call_id = call.id
            content.id = uuid.uuid4().hex  # a provider's own may come again, in this reply or in another session's
            content.arguments, said = _readable_arguments(call)
            if (meant := effective_call(hosted.run, call, said)) is not None:
                # The framework, its middleware and a person judge a call before the guard does.
                content.arguments, said = meant[1], copy.deepcopy(meant[1])
            self._keep(content.id, (hosted, call, said))
            if call.name not in names:
                content.name = _framework_name(hosted.run, call.name, names)
            if content.name not in names:
                names.add(content.name)
                tools.append(Placeholder(content.name))

    def _set_final_text(self, response: ChatResponse) -> list[Any]:
        """Let the run have the last word; returns what it added."""
        text = "\n".join(one.text for one in reply_contents(response) if one.type == "text" and one.text)
        if text.strip() and self._options.get("response_format") is not None:
            return []  # words after it would break what the caller is going to parse
        word = self._loop.hosted.final_text(text)
        if word == text:
            return []
        added = Content.from_text(word.removeprefix(text) if text.strip() else word)
        _last_contents(response).append(added)
        return [added]

    def wrap_stream(self, inner: Any) -> Any:
        """Return a stream that lets the text through as it comes; calls are held back until the reply is whole."""
        response: Any = None

        async def stream_updates() -> AsyncIterator[ChatResponseUpdate]:
            nonlocal response
            items: list[Any] = []
            stops: list[Any] = []
            message: str | None = None
            async with inner:
                async for update in inner:
                    items.extend(_call_items(update))
                    if update.finish_reason is not None:
                        stops.append(update.finish_reason)
                    message = update.message_id or message
                    yield _without_calls(update)
                response = await inner.get_final_response()
            _restore_calls(response, items)
            if added := self.take_reply(response, cut_or_last(stops) or _unstated_reason(response)):
                ident, contents = response.response_id, list(map(copy.copy, added))
                # Under the id of what came before it: who shows the stream shows one message.
                yield ChatResponseUpdate(
                    contents=contents, role="assistant", response_id=ident, message_id=message or ident
                )

        return ResponseStream(stream_updates(), finalizer=lambda _: response)


def _unstated_reason(response: ChatResponse) -> str | None:
    """Return why a stream ended that did not say so: it broke off, where the provider always says it."""
    raw: Any = response.raw_representation
    seen = raw if isinstance(raw, list) else [raw]
    return "incomplete" if any(type(one).__module__.startswith(_STREAMS_WITH_REASON) for one in seen) else None


def _call_items(update: Any) -> Iterable[Any]:
    """Return the call that an event of the Responses API holds: the framework merges those that share an id."""
    event = update.raw_representation
    if getattr(event, "type", None) != "response.output_item.done":
        return ()
    return (event.item,) if getattr(event.item, "type", None) == "function_call" else ()


def _restore_calls(response: Any, items: list[Any]) -> None:
    """Put back the calls of a stream that the framework merged or dropped, for want of an id of their own."""
    contents = reply_contents(response)
    hosted = {one.name for one in contents if one.type == "function_call" and not is_local_call(one)}
    items = [item for item in items if item.name not in hosted]
    if len(items) <= sum(map(is_local_call, contents)):
        return
    for said in response.messages:
        said.contents = [one for one in said.contents if not is_local_call(one)]
    _last_contents(response).extend(
        Content.from_function_call(item.call_id or "", item.name, arguments=item.arguments) for item in items
    )


def _last_contents(response: Any) -> list[Any]:
    """Return the contents of the last message, made if there is none."""
    if not response.messages:
        response.messages = [Message("assistant", [])]
    response.messages[-1].contents = list(response.messages[-1].contents)
    return response.messages[-1].contents  # type: ignore[no-any-return]  # the framework is Any here


def _framework_name(run: Run, name: str, names: Collection[str]) -> str:
    """Return the name under which the framework answers a call of a name it does not know."""
    plan = run.snapshot.find_plan(name)
    if not isinstance(plan, Finding) and plan.contract.name in names:
        return plan.contract.name
    return history_name(name)


def _readable_arguments(call: ToolCall) -> tuple[Any, Any]:
    """Return arguments for the history, the model's own text where that is sound, and what that text says."""
    text = call.arguments
    if isinstance(text, str) and not is_cut(call.stop_reason):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        # Arguments that look like a stand-in are none, and are put into one.
        if isinstance(parsed, dict) and not is_encoded_call(parsed):
            return text, parsed
    return encode_unreadable_call(call), None


def with_changed_arguments(call: ToolCall, said: Any, context: FunctionInvocationContext) -> ToolCall:
    """Return the call with what middleware in front of the guard has made of its arguments.

    Args:
        call: as the model wrote it; the framework's own reading drops what it does not know, and changes types.
        said: what its text says; None if that could not be read.
        context: the framework's, of this call.
    """
    arguments, prepared = context.arguments, context.metadata.get(_PREPARED)
    if said is not None and _equal_json(arguments, said):
        return call
    if prepared is not None:
        changed = _token_of is not None and _token_of(arguments) != prepared.token
    else:  # the framework could not take them, and shows middleware what they parse to
        shown, parsed = _readable_arguments(call)
        changed = arguments != (shown if parsed is None else parsed)
    if not changed:
        return call
    with contextlib.suppress(PydanticSerializationError):  # what is no JSON is the guard's to refuse
        arguments = to_jsonable_python(arguments)
    return msgspec.structs.replace(call, arguments=arguments)


def _equal_json(arguments: Any, said: Any) -> bool:
    """Return whether two are the same JSON; 1, 1.0 and true are not."""
    try:
        return orjson.dumps(arguments) == orjson.dumps(said) and bool(arguments == said)
    except TypeError:  # what orjson does not know
        return False


def call_arguments(content: Any) -> str | dict[str, Any]:
    """Return the arguments of a call as they came."""
    arguments = content.arguments
    return dict(arguments) if arguments is not None and not isinstance(arguments, str) else arguments or ""


def is_local_call(content: Any) -> bool:
    """True for a call that the framework would run, not the provider."""
    return content.type == "function_call" and not content.informational_only and not content.hosted


def _without_calls(update: Any) -> Any:
    if not any(map(is_local_call, update.contents)):
        return update
    rest = copy.copy(update)
    rest.contents = [one for one in update.contents if not is_local_call(one)]
    return rest


def reply_contents(response: Any) -> list[Any]:
    """Return all parts of a response."""
    return [one for said in response.messages for one in said.contents]


def user_texts(messages: Iterable[Any]) -> list[str]:
    """Return the user's texts since the last reply, oldest first."""
    found: list[str] = []
    for said in reversed(list(messages)):
        if said.role in ("assistant", "tool"):
            break
        if said.role == "user" and said.text:
            found.append(said.text)
    return found[::-1]


def _join_instructions(instructions: Any, more: str) -> Any:
    if not instructions:
        return more
    return f"{instructions}\n{more}" if isinstance(instructions, str) else [*instructions, more]
