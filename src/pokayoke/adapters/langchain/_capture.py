"""One reply of a chat model, captured as it comes over the wire.

In: a chat model of LangChain. Out: a wrapper of it that captures calls and finish reason. Never: a change of the
user's own model.

LangChain parses argument texts as it goes: an array ends the run, `null` becomes `{}`, and the pieces of a stream are
completed to something that parses. A reply that no wrapper has captured, such as another middleware's or one from a
cache, is read from the message, as far as LangChain has kept it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Self, cast

from langchain_core.language_models import BaseChatModel

from pokayoke.adapters._host.calls import ReplyCall, decode_call, encode_unreadable_call, parse_object
from pokayoke.adapters._host.proxy import Proxy, forward, wrap_part
from pokayoke.adapters.langchain._wrapper import wrap_object
from pokayoke.core.call import ToolCall
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.values import as_sequence, read_field

CALL_BLOCKS = frozenset({
    "tool_use", "function_call", "custom_tool_call", "tool_call", "tool_call_chunk", "invalid_tool_call",
    "input_json_delta",
})  # fmt: skip
"""Types of content blocks in which providers repeat what stands in `tool_calls`."""
_REASON_FIELDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")


class CapturedReply:
    """The calls and the finish reason of one reply. Inside its with block, wrappers of models add what comes.

    Attributes:
        calls: its calls in order; empty if no wrapper has captured it.
        stop: why a stream said it ended, or "incomplete" if it did not say where it always does; else None.
        streamed: True if it came in pieces, which a user may have read.
    """

    __slots__ = ("_cut", "_open", "_token", "calls", "stop", "streamed")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.reset_capture(None)

    def reset_capture(self, stop: str | None, *, streamed: bool = False) -> None:
        """Forget an attempt before this one, such as one that was retried."""
        self.calls: list[ReplyCall] = []
        self.stop, self.streamed, self._cut = stop, streamed, False
        self._open: dict[Any, int] = {}

    def __enter__(self) -> Self:
        """Capture the reply of the requests from here on."""
        self._token = _capture_var.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        """Capture nothing more."""
        _capture_var.reset(self._token)

    def capture_completion(self, response: Any) -> None:
        """Take a chat completion, and hide the arguments that LangChain could not read."""
        self.reset_capture(None)
        choices = as_sequence(read_field(response, "choices"))
        message = read_field(choices[0], "message") if choices else None
        for call in as_sequence(read_field(message, "tool_calls")):
            function = read_field(call, "function")
            if function is not None:
                self._add_call(read_field(call, "id"), function)

    def capture_response(self, response: Any) -> None:
        """Take a response of the Responses API, likewise."""
        self.reset_capture(None)
        for item in as_sequence(read_field(response, "output")):
            if read_field(item, "type") == "function_call":
                self._add_call(read_field(item, "call_id"), item)

    def capture_piece(self, piece: Any) -> None:
        """Take a piece of a stream."""
        message = piece.message
        reason = finish_reason(piece.generation_info or {}) or finish_reason(message.response_metadata)
        # A later piece does not take back a cut.
        if reason and not self._cut:
            self.stop, self._cut = reason, is_cut(reason)
        for part in getattr(message, "tool_call_chunks", None) or ():
            self._add_chunk(part)

    def _add_call(self, ident: Any, function: Any) -> None:
        self.calls.append(ReplyCall(ident, read_field(function, "name") or "", _hide_unreadable_arguments(function)))

    def _add_chunk(self, part: Mapping[str, Any]) -> None:
        at, ident, name = part.get("index"), part.get("id"), part.get("name") or ""
        place = None if at is None else self._open.get(at)
        if place is not None and ident and self.calls[place].id not in (None, ident):
            place = None  # another call under the same number
        if place is None:
            self._open[at] = len(self.calls)
            self.calls.append(ReplyCall(ident, name, part.get("args") or ""))
            return
        known = self.calls[place]
        self.calls[place] = ReplyCall(
            known.id or ident, known.name + name, f"{known.arguments}{part.get('args') or ''}"
        )


def _hide_unreadable_arguments(function: Any) -> str:
    """Encode the arguments of a call if LangChain could not read them; returns them as they came."""
    name, text = read_field(function, "name") or "", read_field(function, "arguments")
    text = text if isinstance(text, str) else "" if text is None else dump_compact(text).decode()
    if text.strip() and not text.lstrip().startswith("{"):
        shown = dump_compact(encode_unreadable_call(ToolCall("", name, text), name=True)).decode()
        if isinstance(function, dict):
            function["arguments"] = shown
        else:
            function.arguments = shown
    return text


_capture_var: ContextVar[CapturedReply | None] = ContextVar("pokayoke_langchain_heard", default=None)


def finish_reason(metadata: Mapping[str, Any]) -> str | None:
    """Return why a message ended, as its provider spells it; None if it does not say."""
    for name in _REASON_FIELDS:
        if stop := metadata.get(name):
            return str(stop)
    return None


def reply_calls(message: Any, captured: CapturedReply | None = None) -> list[ReplyCall]:
    """Return the calls of a message in order, their arguments as they came, where that is known.

    Args:
        message: an `AIMessage`.
        captured: what was captured when it came.
    """
    found = [_reply_call(call) for call in (*message.tool_calls, *message.invalid_tool_calls)]
    if not found:
        old = message.additional_kwargs.get("function_call")  # the former spelling of one call
        return [ReplyCall(None, read_field(old, "name") or "", read_field(old, "arguments") or "")] if old else []
    if captured is not None and len(captured.calls) == len(found):
        return _merge_captured(found, captured.calls) or found
    return _order_by_content(found, message.content) if isinstance(message.content, list) else found


def _reply_call(call: Mapping[str, Any]) -> ReplyCall:
    """Return a call as LangChain has parsed it, decoded if its arguments were hidden."""
    given = call["args"]
    if isinstance(given, dict):
        decoded: Any = decode_call(None, call["name"] or "", given)
        return ReplyCall(call["id"], decoded.name, decoded.arguments)
    return ReplyCall(call["id"], call["name"] or "", given or "")


def _merge_captured(found: list[ReplyCall], captured: list[ReplyCall]) -> list[ReplyCall] | None:
    """Return the calls as captured, unless code between model and guard has exchanged them; then None."""
    rest, merged = list(found), list[ReplyCall]()
    for one in captured:
        place = next((n for n, other in enumerate(rest) if (other.id, other.name) == (one.id, one.name)), None)
        if place is None:
            return None
        other = rest.pop(place)
        merged.append(other if _is_edited(cast("str", one.arguments), other.arguments) else one)
    return merged


def _is_edited(text: str, given: Any) -> bool:
    """Return whether arguments are not those of a text that is sound JSON."""
    written = parse_object(text) if isinstance(given, dict) else None
    return written is not None and written != given


def _order_by_content(found: list[ReplyCall], content: list[Any]) -> list[ReplyCall]:
    """Return the calls in the order of the content blocks if each has one; some hold the text of the arguments."""
    blocks = [block for block in content if read_field(block, "type") in CALL_BLOCKS]
    by_id = {one.id: one for one in found}
    names = [read_field(block, "call_id") or read_field(block, "id") for block in blocks]
    if len(by_id) != len(found) or sorted(map(str, names)) != sorted(map(str, by_id)):
        return found
    ordered = list[ReplyCall]()
    for block, ident in zip(blocks, names, strict=True):
        one, text = by_id[ident], read_field(block, "arguments")
        raw = isinstance(text, str) and not _is_edited(text, one.arguments)
        ordered.append(one._replace(arguments=text) if raw else one)
    return ordered


# -- the wrapper of a model ----------------------------------------------------------------------------

_STREAMS_WITH_REASON = frozenset({"BaseChatOpenAI", "ChatAnthropic"})
"""Classes of models whose streams always say why they ended; one that does not has broken off."""


def observed_model(model: Any) -> Any:
    """Return a wrapper of a chat model that captures its replies; any other object, such as a binding, unchanged."""
    return wrap_object(model, _wrapper_methods) if isinstance(model, BaseChatModel) else model


def _wrapper_methods(kind: type) -> dict[str, Any]:
    """Return the methods of a wrapper; only those that the class has: LangChain looks for them."""
    base, root = cast("Any", kind), cast("Any", BaseChatModel)
    unsaid = "incomplete" if any(one.__name__ in _STREAMS_WITH_REASON for one in kind.__mro__) else None
    methods: dict[str, Any] = {}
    if hasattr(kind, "_create_chat_result"):  # OpenAI's chat completions, and classes with their code
        plain = base._create_chat_result  # noqa: SLF001 - the class is extended

        def create_chat_result(self: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
            if (captured := _capture_var.get()) is not None:
                captured.capture_completion(response)
            return plain(self, response, *args, **kwargs)

        methods["_create_chat_result"] = create_chat_result
    for name in ("root_client", "root_async_client"):
        if name in getattr(kind, "model_fields", {}):
            methods[name] = _client_property(name)
    if (streamed := base._stream) is not root._stream:  # noqa: SLF001 - as above

        def observe_stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            captured = _capture_var.get()
            pieces = streamed(self, *args, **kwargs)
            return pieces if captured is None else _capture_pieces(captured, pieces, unsaid)

        methods["_stream"] = observe_stream
    if (astreamed := base._astream) is not root._astream:  # noqa: SLF001 - as above

        def observe_stream_async(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            captured = _capture_var.get()
            pieces = astreamed(self, *args, **kwargs)
            return pieces if captured is None else _capture_pieces_async(captured, pieces, unsaid)

        methods["_astream"] = observe_stream_async
    return methods


def _capture_pieces(captured: CapturedReply, pieces: Iterable[Any], unsaid: str | None) -> Iterator[Any]:
    captured.reset_capture(unsaid, streamed=True)
    for piece in pieces:
        captured.capture_piece(piece)
        yield piece


async def _capture_pieces_async(
    captured: CapturedReply, pieces: AsyncIterator[Any], unsaid: str | None
) -> AsyncIterator[Any]:
    captured.reset_capture(unsaid, streamed=True)
    async for piece in pieces:
        captured.capture_piece(piece)
        yield piece


# -- OpenAI's Responses API: LangChain has no hook between its client and its parser ------------------


def _client_property(name: str) -> property:
    def get_client(self: Any) -> Any:
        plain = self.__dict__.get(name)
        return plain if plain is None or _capture_var.get() is None else _Client(plain)

    return property(get_client)


class _RawResponses(Proxy):
    def create(self, **payload: Any) -> Any:
        return _wrap_answer(self._inner.create(**payload), _RawResponse)

    def parse(self, **payload: Any) -> Any:
        return _wrap_answer(self._inner.parse(**payload), _RawResponse)


class _RawResponse(Proxy):
    """A whole response."""

    def parse(self) -> Any:
        response = self._inner.parse()
        if (captured := _capture_var.get()) is not None:
            captured.capture_response(response)
        return response


class _EventStream(Proxy):
    """A stream of events. Only the last one repeats whole calls."""

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    __exit__, __aexit__ = forward("__exit__"), forward("__aexit__")

    def __iter__(self) -> Iterator[Any]:
        return map(_hide_event_arguments, self._inner)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._inner:
            yield _hide_event_arguments(event)


class _Responses(Proxy):
    with_raw_response = wrap_part("with_raw_response", _RawResponses)

    def create(self, **payload: Any) -> Any:
        return _wrap_answer(self._inner.create(**payload), _EventStream)


class _Client(Proxy):
    responses = wrap_part("responses", _Responses)


def _hide_event_arguments(event: Any) -> Any:
    if read_field(event, "type") in ("response.completed", "response.incomplete"):
        for item in as_sequence(read_field(read_field(event, "response"), "output")):
            if read_field(item, "type") == "function_call":
                _hide_unreadable_arguments(item)
    return event


def _wrap_answer(answer: Any, around: type[Proxy]) -> Any:
    """Return the answer in a proxy, or an awaitable of it."""
    return _wrap_awaitable(answer, around) if hasattr(type(answer), "__await__") else around(answer)


async def _wrap_awaitable(answer: Awaitable[Any], around: type[Proxy]) -> Any:
    return around(await answer)
