"""What one reply of a model consisted of, as it came over the wire.

The view of a model notes it down here (`langchain_model.py`). What no view has heard, such as another middleware's
message or one from a cache, is read from the message as far as LangChain has kept it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Self, cast

from pokayoke.adapters._host.bounded_cache import Known
from pokayoke.adapters._host.run import Asked, Hosted, stand_in, written
from pokayoke.core.call import ToolCall
from pokayoke.core.intake.reading import is_cut
from pokayoke.core.json.strict import dump_compact
from pokayoke.core.messages.messages import field, items

__all__ = ["CALL_BLOCKS", "Heard", "as_heard", "asked_in", "hearing", "shield", "stop_of"]

CALL_BLOCKS = frozenset({
    "tool_use", "function_call", "custom_tool_call", "tool_call", "tool_call_chunk", "invalid_tool_call",
    "input_json_delta",
})  # fmt: skip
"""Types of content blocks in which providers repeat what stands in `tool_calls`."""
_STOPS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")


class Heard:
    """What one reply consisted of, as it came over the wire. Inside a with block of it, views note down what comes.

    Attributes:
        calls: its calls in order; empty if nothing was noted down.
        stop: why a stream said it ended, or "incomplete" if it did not say where it always does; else None.
        streamed: True if it came in pieces, which somebody may have read.
    """

    __slots__ = ("_cut", "_open", "_token", "calls", "stop", "streamed")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.begin(None)

    def begin(self, stop: str | None, *, streamed: bool = False) -> None:
        """Forget an attempt before this one, such as one that was retried."""
        self.calls: list[Asked] = []
        self.stop, self.streamed, self._cut = stop, streamed, False
        self._open: dict[Any, int] = {}

    def __enter__(self) -> Self:
        """Listen."""
        self._token = _listening.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        """Listen no more."""
        _listening.reset(self._token)

    def whole(self, response: Any) -> None:
        """Note down a chat completion, and put stand-ins where LangChain could not read the arguments."""
        self.begin(None)
        choices = items(field(response, "choices"))
        message = field(choices[0], "message") if choices else None
        for call in items(field(message, "tool_calls")):
            function = field(call, "function")
            if function is not None:
                self._function(field(call, "id"), function)

    def response(self, response: Any) -> None:
        """Note down a response of the Responses API, likewise."""
        self.begin(None)
        for item in items(field(response, "output")):
            if field(item, "type") == "function_call":
                self._function(field(item, "call_id"), item)

    def piece(self, piece: Any) -> None:
        """Note down a piece of a stream."""
        message = piece.message
        told = stop_of(piece.generation_info or {}) or stop_of(message.response_metadata)
        # What comes after it takes nothing back: a cut once said stays said.
        if told and not self._cut:
            self.stop, self._cut = told, is_cut(told)
        for part in getattr(message, "tool_call_chunks", None) or ():
            self._part(part)

    def _function(self, ident: Any, function: Any) -> None:
        self.calls.append(Asked(ident, field(function, "name") or "", shield(function)))

    def _part(self, part: Mapping[str, Any]) -> None:
        at, ident, name = part.get("index"), part.get("id"), part.get("name") or ""
        place = None if at is None else self._open.get(at)
        if place is not None and ident and self.calls[place].id not in (None, ident):
            place = None  # another call under the same number
        if place is None:
            self._open[at] = len(self.calls)
            self.calls.append(Asked(ident, name, part.get("args") or ""))
            return
        known = self.calls[place]
        self.calls[place] = Asked(known.id or ident, known.name + name, f"{known.arguments}{part.get('args') or ''}")


def shield(function: Any) -> str:
    """Put a stand-in where LangChain could not read the arguments of a call; return them as they came."""
    name, text = field(function, "name") or "", field(function, "arguments")
    text = text if isinstance(text, str) else "" if text is None else dump_compact(text).decode()
    if text.strip() and not text.lstrip().startswith("{"):
        shown = dump_compact(stand_in(ToolCall("", name, text), name=True)).decode()
        if isinstance(function, dict):
            function["arguments"] = shown
        else:
            function.arguments = shown
    return text


_listening: ContextVar[Heard | None] = ContextVar("pokayoke_langchain_heard", default=None)


def hearing() -> Heard | None:
    """Return what notes down in this moment, if something does."""
    return _listening.get()


def stop_of(metadata: Mapping[str, Any]) -> str | None:
    """Return why a message ended, as its provider spells it; None if it does not say."""
    for name in _STOPS:
        if stop := metadata.get(name):
            return str(stop)
    return None


def asked_in(message: Any, heard: Heard | None = None) -> list[Asked]:
    """Return the calls of a message in order, their arguments as they came, where that is known.

    Args:
        message: an `AIMessage`.
        heard: what was noted down when it came.
    """
    found = [_read(call) for call in (*message.tool_calls, *message.invalid_tool_calls)]
    if not found:
        old = message.additional_kwargs.get("function_call")  # the former spelling of one call
        return [Asked(None, field(old, "name") or "", field(old, "arguments") or "")] if old else []
    if heard is not None and len(heard.calls) == len(found):
        return _merged(found, heard.calls) or found
    return _in_order(found, message.content) if isinstance(message.content, list) else found


def _read(call: Mapping[str, Any]) -> Asked:
    """What LangChain made of a call; a stand-in is what it stands for."""
    given = call["args"]
    if isinstance(given, dict):
        meant: Any = written(None, call["name"] or "", given)
        return Asked(call["id"], meant.name, meant.arguments)
    return Asked(call["id"], call["name"] or "", given or "")


def _merged(found: list[Asked], heard: list[Asked]) -> list[Asked] | None:
    """The calls that were heard, unless somebody between model and guard has exchanged them."""
    rest, merged = list(found), list[Asked]()
    for one in heard:
        place = next((n for n, other in enumerate(rest) if (other.id, other.name) == (one.id, one.name)), None)
        if place is None:
            return None
        other = rest.pop(place)
        merged.append(other if _edited(cast("str", one.arguments), other.arguments) else one)
    return merged


def _edited(text: str, given: Any) -> bool:
    """Whether arguments are others than those of a text that leaves no question."""
    if not isinstance(given, dict):
        return False
    try:
        meant = json.loads(text)
    except ValueError:
        return False
    return isinstance(meant, dict) and meant != given


def _in_order(found: list[Asked], content: list[Any]) -> list[Asked]:
    """The calls in the order of the content blocks, where each has one; some hold the text of the arguments."""
    blocks = [block for block in content if field(block, "type") in CALL_BLOCKS]
    by_id = {one.id: one for one in found}
    names = [field(block, "call_id") or field(block, "id") for block in blocks]
    if len(by_id) != len(found) or sorted(map(str, names)) != sorted(map(str, by_id)):
        return found
    ordered = list[Asked]()
    for block, ident in zip(blocks, names, strict=True):
        one, text = by_id[ident], field(block, "arguments")
        raw = isinstance(text, str) and not _edited(text, one.arguments)
        ordered.append(one._replace(arguments=text) if raw else one)
    return ordered


def as_heard(hosted: Hosted) -> Known[str, tuple[str, dict[str, Any], ToolCall]]:
    """Return the calls that stand in the history of a run as they count: how each is shown, and what the model wrote.

    Args:
        hosted: the run.
    """
    known: Known[str, tuple[str, dict[str, Any], ToolCall]] = hosted.notes.setdefault("heard", Known())
    return known
