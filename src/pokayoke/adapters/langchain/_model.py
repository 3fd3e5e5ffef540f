"""What one reply of a model consisted of, as it came over the wire.

The view of a model notes it down here (`langchain_model.py`). What no view has heard, such as another middleware's
message or one from a cache, is read from the message as far as LangChain has kept it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Self, cast

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import ReplyCall, decode_call, encode_unreadable_call
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.call import ToolCall
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.values import as_sequence, read_field

__all__ = [
    "CALL_BLOCKS",
    "CapturedReply",
    "call_cache",
    "current_capture",
    "finish_reason",
    "hide_unreadable_arguments",
    "reply_calls",
]

CALL_BLOCKS = frozenset({
    "tool_use", "function_call", "custom_tool_call", "tool_call", "tool_call_chunk", "invalid_tool_call",
    "input_json_delta",
})  # fmt: skip
"""Types of content blocks in which providers repeat what stands in `tool_calls`."""
_REASON_FIELDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")


class CapturedReply:
    """What one reply consisted of, as it came over the wire. Inside a with block of it, views note down what comes.

    Attributes:
        calls: its calls in order; empty if nothing was noted down.
        stop: why a stream said it ended, or "incomplete" if it did not say where it always does; else None.
        streamed: True if it came in pieces, which somebody may have read.
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
        """Listen."""
        self._token = _capture_var.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        """Listen no more."""
        _capture_var.reset(self._token)

    def capture_completion(self, response: Any) -> None:
        """Note down a chat completion, and put stand-ins where LangChain could not read the arguments."""
        self.reset_capture(None)
        choices = as_sequence(read_field(response, "choices"))
        message = read_field(choices[0], "message") if choices else None
        for call in as_sequence(read_field(message, "tool_calls")):
            function = read_field(call, "function")
            if function is not None:
                self._add_call(read_field(call, "id"), function)

    def capture_response(self, response: Any) -> None:
        """Note down a response of the Responses API, likewise."""
        self.reset_capture(None)
        for item in as_sequence(read_field(response, "output")):
            if read_field(item, "type") == "function_call":
                self._add_call(read_field(item, "call_id"), item)

    def capture_piece(self, piece: Any) -> None:
        """Note down a piece of a stream."""
        message = piece.message
        told = finish_reason(piece.generation_info or {}) or finish_reason(message.response_metadata)
        # What comes after it takes nothing back: a cut once said stays said.
        if told and not self._cut:
            self.stop, self._cut = told, is_cut(told)
        for part in getattr(message, "tool_call_chunks", None) or ():
            self._add_chunk(part)

    def _add_call(self, ident: Any, function: Any) -> None:
        self.calls.append(ReplyCall(ident, read_field(function, "name") or "", hide_unreadable_arguments(function)))

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


def hide_unreadable_arguments(function: Any) -> str:
    """Put a stand-in where LangChain could not read the arguments of a call; return them as they came."""
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


def current_capture() -> CapturedReply | None:
    """Return what notes down in this moment, if something does."""
    return _capture_var.get()


def finish_reason(metadata: Mapping[str, Any]) -> str | None:
    """Return why a message ended, as its provider spells it; None if it does not say."""
    for name in _REASON_FIELDS:
        if stop := metadata.get(name):
            return str(stop)
    return None


def reply_calls(message: Any, heard: CapturedReply | None = None) -> list[ReplyCall]:
    """Return the calls of a message in order, their arguments as they came, where that is known.

    Args:
        message: an `AIMessage`.
        heard: what was noted down when it came.
    """
    found = [_reply_call(call) for call in (*message.tool_calls, *message.invalid_tool_calls)]
    if not found:
        old = message.additional_kwargs.get("function_call")  # the former spelling of one call
        return [ReplyCall(None, read_field(old, "name") or "", read_field(old, "arguments") or "")] if old else []
    if heard is not None and len(heard.calls) == len(found):
        return _merge_captured(found, heard.calls) or found
    return _order_by_content(found, message.content) if isinstance(message.content, list) else found


def _reply_call(call: Mapping[str, Any]) -> ReplyCall:
    """What LangChain made of a call; a stand-in is what it stands for."""
    given = call["args"]
    if isinstance(given, dict):
        meant: Any = decode_call(None, call["name"] or "", given)
        return ReplyCall(call["id"], meant.name, meant.arguments)
    return ReplyCall(call["id"], call["name"] or "", given or "")


def _merge_captured(found: list[ReplyCall], heard: list[ReplyCall]) -> list[ReplyCall] | None:
    """The calls that were heard, unless somebody between model and guard has exchanged them."""
    rest, merged = list(found), list[ReplyCall]()
    for one in heard:
        place = next((n for n, other in enumerate(rest) if (other.id, other.name) == (one.id, one.name)), None)
        if place is None:
            return None
        other = rest.pop(place)
        merged.append(other if _is_edited(cast("str", one.arguments), other.arguments) else one)
    return merged


def _is_edited(text: str, given: Any) -> bool:
    """Whether arguments are others than those of a text that leaves no question."""
    if not isinstance(given, dict):
        return False
    try:
        meant = json.loads(text)
    except ValueError:
        return False
    return isinstance(meant, dict) and meant != given


def _order_by_content(found: list[ReplyCall], content: list[Any]) -> list[ReplyCall]:
    """The calls in the order of the content blocks, where each has one; some hold the text of the arguments."""
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


def call_cache(hosted: AdapterRun) -> BoundedCache[str, tuple[str, dict[str, Any], ToolCall]]:
    """Return the calls that stand in the history of a run as they count: how each is shown, and what the model wrote.

    Args:
        hosted: the run.
    """
    known: BoundedCache[str, tuple[str, dict[str, Any], ToolCall]] = hosted.notes.setdefault("heard", BoundedCache())
    return known
