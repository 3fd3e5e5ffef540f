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

from pokayoke.adapters._host import run as host
from pokayoke.adapters._host.effective_call import as_it_runs
from pokayoke.adapters._host.finish_reasons import worst
from pokayoke.adapters._host.visibility import Look, hides, pager, wanted
from pokayoke.adapters.agent_framework._tools import Placeholder
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.reading import is_cut

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

Heard = tuple[host.Hosted, ToolCall, Any]
Keep = Callable[[str, Heard], None]

# How the framework itself sees that arguments were changed since it read them; public nowhere.
_PREPARED = "_prepared_function_arguments"
_token_of = getattr(_tools, "_argument_comparison_token", None)
# Whose streams always say why they ended.
_NAME_THEIR_END = ("openai.", "anthropic.")
_OFFERS = frozenset({"tools", "tool_choice", "allow_multiple_tool_calls"})


class Loop:
    """One request of the framework's user, and all model requests that it takes.

    Args:
        hosted: the run.
        tools: the framework's own list: what stands in it can be called, and it is looked at anew for each reply.
        ident: id of a run that ends with this loop; None if its session goes on.
    """

    __slots__ = ("_look", "hosted", "ident", "tools")

    def __init__(self, hosted: host.Hosted, tools: list[Any], ident: str | None) -> None:
        """Look at nothing yet."""
        self.hosted, self.tools, self.ident = hosted, tools, ident
        self._look: Look | None = None

    def shown(self) -> list[Any]:
        """Return the tools that the model may see; the list itself if that is all of them."""
        run, tools = self.hosted.run, self.tools
        if self._look is not None and self._look.holds(run, tools):
            return tools
        shown = self._looked(run)
        all_of_them = len(shown) == len(tools)
        self._look = Look(run, tools) if all_of_them else None
        return tools if all_of_them else shown

    def _looked(self, run: Run) -> list[Any]:
        tools = self.tools
        # The type and not isinstance: the framework's classes are abstract, which makes that slow.
        if any(type(tool) is Placeholder for tool in tools):
            tools[:] = [tool for tool in tools if type(tool) is not Placeholder]
        if (more := pager(run)) is not None and all(tool.name != more.name for tool in tools):
            tools.append(Placeholder(more.name, description=more.description, input_model=dict(more.input_schema)))
        # Another list than the framework's own, which is that of what can be called.
        return [tool for tool in tools if not (isinstance(tool, FunctionTool) and hides(run, tool.name))]


class Reply:
    """One request and its reply."""

    def __init__(self, loop: Loop, options: Mapping[str, Any], keep: Keep, end: Callable[[Loop], None]) -> None:
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
        self._asked = loop.hosted.before()
        # The framework, too, may have taken the tools away: at the end of its own budgets.
        self._final = self._asked.final or options.get("tool_choice") == "none"

    def request(self) -> Mapping[str, Any]:
        """Return the options of the request."""
        tools, options = self._loop.tools, self._options
        shown = self._loop.shown()
        final = self._asked.final or (not shown and bool(tools))
        if not final and self._asked.instruction is None and shown is tools:
            return options
        changed = {key: value for key, value in options.items() if not final or key not in _OFFERS}
        if not final and shown is not tools:
            changed["tools"] = shown
            if (choice := wanted(self._loop.hosted.run, changed.pop("tool_choice", None))) is not None:
                changed["tool_choice"] = choice
        if self._asked.instruction is not None:
            # As an instruction it is part of this request alone, even where the service keeps the messages.
            changed["instructions"] = _joined(options.get("instructions"), self._asked.instruction)
        return changed

    def took(self, response: ChatResponse, stop_reason: Any) -> list[Any]:
        """Take a whole reply and why it ended; returns what came to it, for a stream that has told the rest already."""
        hosted = self._loop.hosted
        if (tokens := (response.usage_details or {}).get("total_token_count")) is not None:
            hosted.run.usage(tokens)
        found = [one for said in response.messages for one in said.contents if ours(one)]
        if found and not self._final:
            self._hear(found, stop_reason)
            return found
        if any(one.type == "function_approval_request" for one in contents_of(response)):
            return []
        for said in response.messages if found else ():
            said.contents = [one for one in said.contents if not ours(one)]
        added = self._last_word(response)
        self._end(self._loop)
        return added

    def _hear(self, found: list[Any], stop_reason: Any) -> None:
        """Give each call an id, arguments that the framework's parser takes, and somebody to answer it."""
        hosted, tools = self._loop.hosted, self._loop.tools
        names = {tool.name for tool in tools if isinstance(tool, FunctionTool)}
        asked = [host.Asked(one.call_id or None, one.name or "", given(one)) for one in found]
        for content, call in zip(found, hosted.heard(asked, stop_reason), strict=True):
            content.call_id = call.id
            content.id = uuid.uuid4().hex  # a provider's own may come again, in this reply or in another session's
            content.arguments, said = _readable(call)
            if (meant := as_it_runs(hosted.run, call, said)) is not None:
                # The framework, its middleware and a person judge a call before the guard does.
                content.arguments, said = meant[1], copy.deepcopy(meant[1])
            self._keep(content.id, (hosted, call, said))
            if call.name not in names:
                content.name = _meant(hosted.run, call.name, names)
            if content.name not in names:
                names.add(content.name)
                tools.append(Placeholder(content.name))

    def _last_word(self, response: ChatResponse) -> list[Any]:
        """Let the run have the last word; returns what it added."""
        text = "\n".join(one.text for one in contents_of(response) if one.type == "text" and one.text)
        if text.strip() and self._options.get("response_format") is not None:
            return []  # words after it would break what the caller is going to parse
        word = self._loop.hosted.last_word(text)
        if word == text:
            return []
        added = Content.from_text(word.removeprefix(text) if text.strip() else word)
        _last(response).append(added)
        return [added]

    def stream(self, inner: Any) -> Any:
        """Return a stream that lets the text through as it comes; calls are held back until the reply is whole."""
        response: Any = None

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            nonlocal response
            items: list[Any] = []
            stops: list[Any] = []
            message: str | None = None
            async with inner:
                async for update in inner:
                    items.extend(_item(update))
                    if update.finish_reason is not None:
                        stops.append(update.finish_reason)
                    message = update.message_id or message
                    yield _without_calls(update)
                response = await inner.get_final_response()
            _restore(response, items)
            if added := self.took(response, worst(stops) or _unsaid(response)):
                ident, contents = response.response_id, list(map(copy.copy, added))
                # Under the id of what came before it: who shows the stream shows one message.
                yield ChatResponseUpdate(
                    contents=contents, role="assistant", response_id=ident, message_id=message or ident
                )

        return ResponseStream(updates(), finalizer=lambda _: response)


def _unsaid(response: ChatResponse) -> str | None:
    """Return why a stream ended that did not say so: it broke off, where the provider always says it."""
    raw: Any = response.raw_representation
    seen = raw if isinstance(raw, list) else [raw]
    return "incomplete" if any(type(one).__module__.startswith(_NAME_THEIR_END) for one in seen) else None


def _item(update: Any) -> Iterable[Any]:
    """Return the call that an event of the Responses API holds: the framework merges those that share an id."""
    event = update.raw_representation
    if getattr(event, "type", None) != "response.output_item.done":
        return ()
    return (event.item,) if getattr(event.item, "type", None) == "function_call" else ()


def _restore(response: Any, items: list[Any]) -> None:
    """Put back the calls of a stream that the framework merged or dropped, for want of an id of their own."""
    contents = contents_of(response)
    hosted = {one.name for one in contents if one.type == "function_call" and not ours(one)}
    items = [item for item in items if item.name not in hosted]
    if len(items) <= sum(map(ours, contents)):
        return
    for said in response.messages:
        said.contents = [one for one in said.contents if not ours(one)]
    _last(response).extend(
        Content.from_function_call(item.call_id or "", item.name, arguments=item.arguments) for item in items
    )


def _last(response: Any) -> list[Any]:
    """Return the contents of the last message, made if there is none."""
    if not response.messages:
        response.messages = [Message("assistant", [])]
    response.messages[-1].contents = list(response.messages[-1].contents)
    return response.messages[-1].contents  # type: ignore[no-any-return]  # the framework is Any here


def _meant(run: Run, name: str, names: Collection[str]) -> str:
    """Return the name under which the framework answers a call of a name it does not know."""
    plan = run.snapshot.find(name)
    if not isinstance(plan, Finding) and plan.contract.name in names:
        return plan.contract.name
    return history_name(name)


def _readable(call: ToolCall) -> tuple[Any, Any]:
    """Return arguments for the history, the model's own text where that is sound, and what that text says."""
    text = call.arguments
    if isinstance(text, str) and not is_cut(call.stop_reason):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        # Arguments that look like a stand-in are none, and are put into one.
        if isinstance(parsed, dict) and not host.stands_in(parsed):
            return text, parsed
    return host.stand_in(call), None


def as_it_comes(call: ToolCall, said: Any, context: FunctionInvocationContext) -> ToolCall:
    """Return the call with what middleware in front of the guard has made of its arguments.

    Args:
        call: as the model wrote it; the framework's own reading drops what it does not know, and changes types.
        said: what its text says; None if that could not be read.
        context: the framework's, of this call.
    """
    arguments, prepared = context.arguments, context.metadata.get(_PREPARED)
    if said is not None and _equal(arguments, said):
        return call
    if prepared is not None:
        changed = _token_of is not None and _token_of(arguments) != prepared.token
    else:  # the framework could not take them, and shows middleware what they parse to
        shown, parsed = _readable(call)
        changed = arguments != (shown if parsed is None else parsed)
    if not changed:
        return call
    with contextlib.suppress(PydanticSerializationError):  # what is no JSON is the guard's to refuse
        arguments = to_jsonable_python(arguments)
    return msgspec.structs.replace(call, arguments=arguments)


def _equal(arguments: Any, said: Any) -> bool:
    """Return whether two are the same JSON; 1, 1.0 and true are not."""
    try:
        return orjson.dumps(arguments) == orjson.dumps(said) and bool(arguments == said)
    except TypeError:  # what orjson does not know
        return False


def given(content: Any) -> str | dict[str, Any]:
    """Return the arguments of a call as they came."""
    arguments = content.arguments
    return dict(arguments) if arguments is not None and not isinstance(arguments, str) else arguments or ""


def ours(content: Any) -> bool:
    """True for a call that the framework would run, not the provider."""
    return content.type == "function_call" and not content.informational_only and not content.hosted


def _without_calls(update: Any) -> Any:
    if not any(map(ours, update.contents)):
        return update
    rest = copy.copy(update)
    rest.contents = [one for one in update.contents if not ours(one)]
    return rest


def contents_of(response: Any) -> list[Any]:
    """Return all parts of a response."""
    return [one for said in response.messages for one in said.contents]


def said_by_user(messages: Iterable[Any]) -> list[str]:
    """Return the user's texts since the last reply, oldest first."""
    found: list[str] = []
    for said in reversed(list(messages)):
        if said.role in ("assistant", "tool"):
            break
        if said.role == "user" and said.text:
            found.append(said.text)
    return found[::-1]


def _joined(instructions: Any, more: str) -> Any:
    if not instructions:
        return more
    return f"{instructions}\n{more}" if isinstance(instructions, str) else [*instructions, more]
