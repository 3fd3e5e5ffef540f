"""Assembles a streamed reply.

In: a provider's stream events in order, as dicts or SDK objects.
Out: the reply as it would have come whole. Fragments of arguments are joined by their place in the message, as ids
mostly come once; several calls at one place by their ids, or, without ids, by a name after whole arguments.
Never: complete a cut text, as SDK helpers silently do; return a call before the stop reason is known.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.replies import to_dict

CUT_STOP_REASON: Final = "incomplete"
"""The stop reason of a stream that ended without one: it broke, so none of its calls may run."""


class Stream(Protocol):
    """Assembles one reply, for any of the providers."""

    def add_event(self, event: Any) -> str:
        """Add the next event, as a dict or an SDK object; return its text for the user, "" if it has none."""
        ...

    def build_reply(self) -> dict[str, Any]:
        """Return the events so far as a whole reply; while no stop reason has come, its own is `incomplete`."""
        ...


_Place = tuple[int, int]
"""The server's index and a number of our own: some servers give every call the index 0."""


class _PlaceIndex:
    """Maps the pieces of a reply to the calls and blocks they belong to."""

    def __init__(self) -> None:
        self._latest: dict[int, _Place] = {}
        self._named: dict[tuple[int | None, str], _Place] = {}
        self._count = 0

    def latest_place(self, index: int) -> _Place | None:
        """Return the place of the latest piece with this index."""
        return self._latest.get(index)

    def index_of(self, ident: Any, otherwise: int) -> int:
        """Return the index of the piece with this id, else `otherwise`."""
        known = self._named.get((None, ident)) if isinstance(ident, str) else None
        return otherwise if known is None else known[0]

    def place_of(self, index: int, ident: Any, *, begins: bool) -> _Place:
        """Return the place of a piece.

        Args:
            index: the server's index.
            ident: its id, if any. An id known at this index takes precedence over the index.
            begins: True if a piece without a known id at this index starts something new; otherwise it continues the
                piece with its id at another index, or the latest at this one.
        """
        known: _Place | None = None
        if named := isinstance(ident, str) and bool(ident):
            known = self._named.get((index, ident)) or (None if begins else self._named.get((None, ident)))
        place = known or (None if begins else self._latest.get(index))
        if place is None:
            self._count += 1
            place = (index, self._count)
        self._latest[index] = place
        if named:
            self._named[index, ident] = self._named[None, ident] = place
        return place


class ChatStream:
    """Chunks of an OpenAI chat completion, or of a server that speaks like it; only the first choice counts."""

    def __init__(self) -> None:
        """Start empty."""
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[_Place, _PartialCall] = {}
        self._places = _PlaceIndex()
        self._finish: Any = None
        self._usage: Any = None

    def add_event(self, event: Any) -> str:
        """Add a chunk; return its text for the user, "" if it has none."""
        chunk = to_dict(event)
        self._usage = chunk.get("usage") or self._usage
        said: list[str] = []
        for one in as_sequence(chunk.get("choices")):
            choice = to_dict(one)
            if choice.get("index"):  # only the first choice is guarded
                continue
            delta = to_dict(choice.get("delta") or {})
            self._finish = _stronger_stop_reason(self._finish, choice.get("finish_reason"))
            said.append(_piece_text(delta.get("content")))
            if isinstance(refusal := delta.get("refusal"), str):
                self._refusal.append(refusal)
            for place, part in enumerate(as_sequence(delta.get("tool_calls"))):
                self._add_piece(place, to_dict(part))
            if old := delta.get("function_call"):  # the deprecated form of a single call
                self._add_piece(0, {"function": old})
        self._text += said
        return "".join(said)

    def _add_piece(self, position: int, part: dict[str, Any]) -> None:
        index, ident = part.get("index"), part.get("id")
        if not isinstance(index, int):
            index = self._places.index_of(ident, position)
        latest = self._places.latest_place(index)
        begins = _named_piece(part)[0] if latest is None else self._calls[latest].is_followed_by(part)
        place = self._places.place_of(index, ident, begins=begins)
        self._calls.setdefault(place, _PartialCall()).add_piece(part)

    def build_reply(self) -> dict[str, Any]:
        """Return the chat completion so far; without a stop reason its `finish_reason` is `incomplete`."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._calls:
            message["tool_calls"] = [self._calls[place].build_call() for place in sorted(self._calls)]
        return {
            "choices": [{"message": message, "finish_reason": self._finish or CUT_STOP_REASON}],
            "usage": self._usage,
        }


def _stronger_stop_reason(known: Any, told: Any) -> Any:
    """Return the later stop reason, unless the earlier one proves that the reply was cut."""
    return known if is_cut(known) else told or known


def _piece_text(content: Any) -> str:
    """Return the text of a piece: some servers send it in parts, next to reasoning."""
    parts = [content] if isinstance(content, str) else [read_field(one, "text") for one in as_sequence(content)]
    return "".join([part for part in parts if isinstance(part, str)])


def _named_piece(part: dict[str, Any]) -> tuple[Any, Any]:
    """Return the tool name, which mostly only the first piece of a call has, and the arguments in a piece."""
    inner = to_dict(part.get("custom") or part.get("function") or {})
    return inner.get("name"), inner.get("arguments", inner.get("input"))


def _is_whole(given: Any) -> bool:
    """Return whether arguments are one whole object: nothing can follow them."""
    try:
        return isinstance(parse(given)[0] if isinstance(given, str) else given, dict)
    except StrictError:
        return False


class _PartialCall:
    """One call of a chat completion, as received so far."""

    def __init__(self) -> None:
        self.call: dict[str, Any] = {"id": None, "type": "function"}
        self.name = ""
        self.given: Any = None

    def is_followed_by(self, part: dict[str, Any]) -> bool:
        """Return whether a part begins another call.

        It has a name, as this call has, and another id; or no id, but this call has all its arguments already.
        """
        ident, (name, piece) = part.get("id"), _named_piece(part)
        if not (self.name and name) or (ident and ident == self.call["id"]):
            return False
        if ident:
            return bool(self.call["id"] or self.given or name != self.name)
        return bool(name != self.name or piece) and _is_whole(self.given)

    def add_piece(self, part: dict[str, Any]) -> None:
        name, piece = _named_piece(part)
        self.call["id"] = self.call["id"] or part.get("id")
        self.call["type"] = "custom" if part.get("custom") or part.get("type") == "custom" else self.call["type"]
        if isinstance(name, str) and name != self.name:  # a fragment; a server that repeats the name sends it unchanged
            self.name += name
        if isinstance(piece, str) and isinstance(self.given, str | None):
            self.given = (self.given or "") + piece
        elif piece is not None:
            self.given = piece if self.given is None else [self.given, piece]  # several values cannot run

    def build_call(self) -> dict[str, Any]:
        kind = self.call["type"]
        given = "" if self.given is None else self.given
        return {**self.call, kind: {"name": self.name, "input" if kind == "custom" else "arguments": given}}


class ResponsesStream:
    """Events of an OpenAI response, as the Responses API streams them."""

    def __init__(self) -> None:
        """Start empty."""
        self._items: dict[_Place, dict[str, Any]] = {}
        self._parts: dict[_Place, dict[int, dict[str, Any]]] = {}
        self._places = _PlaceIndex()
        self._end: dict[str, Any] | None = None

    def add_event(self, event: Any) -> str:
        """Add an event; return its text for the user, "" if it has none."""
        one = to_dict(event)
        kind, index = str(one.get("type")).removeprefix("response."), one.get("output_index")
        if kind in ("completed", "incomplete", "failed"):
            self._end = to_dict(one.get("response") or {})
            return ""
        ident = to_dict(one.get("item") or {}).get("id") or one.get("item_id")
        if not isinstance(index, int) and isinstance(ident, str):
            index = self._places.index_of(ident, 0)
        if isinstance(index, int):
            return self._apply_event(self._places.place_of(index, ident, begins=kind == "output_item.added"), kind, one)
        return ""

    def _apply_event(self, place: _Place, kind: str, event: dict[str, Any]) -> str:
        if kind in ("output_item.added", "output_item.done"):
            self._items[place] = to_dict(event.get("item") or {})
            if kind == "output_item.done":
                self._parts.pop(place, None)
            return ""
        what, _, step = kind.rpartition(".")
        piece = event.get("delta")
        if what in _INPUT_EVENTS:
            name, held = _INPUT_EVENTS[what]
            item = self._items.setdefault(place, {"type": name})
            if step == "done":
                item[held] = event.get(held, item.get(held))
            elif isinstance(piece, str):
                item[held] = (item.get(held) or "") + piece
        elif what in _PART_EVENTS and step == "delta" and isinstance(piece, str):
            name, held = _PART_EVENTS[what]
            parts = self._parts.setdefault(place, {})
            number = event.get("content_index")
            part = parts.setdefault(number if isinstance(number, int) else 0, {"type": name, held: ""})
            part[held] = (part.get(held) or "") + piece
            return piece if what == "output_text" else ""
        return ""

    def build_reply(self) -> dict[str, Any]:
        """Return the response so far; while it has not ended, its `status` is `incomplete`."""
        if self._end is not None and self._end.get("output"):
            return self._end
        end = self._end or {"status": "incomplete", "incomplete_details": {"reason": CUT_STOP_REASON}}
        found = dict(self._items)
        for place, parts in self._parts.items():
            begun = found.get(place) or {"type": "message", "role": "assistant"}
            found[place] = {**begun, "content": [parts[number] for number in sorted(parts)]}
        return {**end, "output": [found[place] for place in sorted(found)]}


_INPUT_EVENTS: Final = {
    "function_call_arguments": ("function_call", "arguments"),
    "custom_tool_call_input": ("custom_tool_call", "input"),
}
_PART_EVENTS: Final = {"output_text": ("output_text", "text"), "refusal": ("refusal", "refusal")}


class AnthropicStream:
    """Events of an Anthropic message; the SDK's own helper completes cut arguments, so use this one."""

    def __init__(self) -> None:
        """Start empty."""
        self._message: dict[str, Any] = {}
        self._blocks: dict[_Place, dict[str, Any]] = {}
        self._inputs: dict[_Place, list[str]] = {}
        self._places = _PlaceIndex()
        self._stop: Any = None
        self._usage: dict[str, Any] = {}

    def add_event(self, event: Any) -> str:
        """Add an event; return its text for the user, "" if it has none."""
        one = to_dict(event)
        kind, index = one.get("type"), one.get("index")
        if not isinstance(index, int):
            index = 0  # a server that does not number its blocks: each continues until the next one starts
        if kind == "message_start":
            self._message = to_dict(one.get("message") or {})
            self._add_usage(self._message.get("usage"))
        elif kind == "message_delta":
            self._stop = _stronger_stop_reason(self._stop, to_dict(one.get("delta") or {}).get("stop_reason"))
            self._add_usage(one.get("usage"))
        elif kind == "content_block_start":
            block = to_dict(one.get("content_block") or {})
            self._blocks[self._places.place_of(index, block.get("id"), begins=True)] = block
            return _piece_text(block.get("text"))
        elif kind == "content_block_delta" and (delta := to_dict(one.get("delta") or {})):
            return self._apply_delta(self._places.place_of(index, None, begins=False), delta)
        return ""

    def _add_usage(self, usage: Any) -> None:
        """Merge a count: the later one wins, fields it leaves out stay."""
        self._usage |= {name: value for name, value in to_dict(usage or {}).items() if value is not None}

    def _apply_delta(self, place: _Place, delta: dict[str, Any]) -> str:
        if isinstance(piece := delta.get("partial_json"), str):
            self._blocks.setdefault(place, {"type": "tool_use"})
            self._inputs.setdefault(place, []).append(piece)
        block = self._blocks.setdefault(place, {"type": "text"})
        for name in ("text", "thinking", "signature"):
            if isinstance(piece := delta.get(name), str):
                block[name] = (block.get(name) or "") + piece
        text = delta.get("text")
        return text if isinstance(text, str) else ""

    def build_reply(self) -> dict[str, Any]:
        """Return the message so far; without a stop reason its `stop_reason` is `incomplete`.

        The input of a call is the received text, or the object of its first event.
        """
        content: list[dict[str, Any]] = []
        for place in sorted(self._blocks):
            block = dict(self._blocks[place])
            text = "".join(self._inputs.get(place, ()))
            if text:
                block["input"] = text
            content.append(block)
        return {
            **self._message,
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": self._stop or CUT_STOP_REASON,
            "usage": self._usage,
        }
