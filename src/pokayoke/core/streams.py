"""A reply that comes in pieces, put together without guessing.

In come a provider's stream events, as dicts or SDK objects, in order; out comes the reply as it would have
come whole. Fragments of arguments are joined by their place in the message, never by id (ids come once), and
stay the text they are: SDK helpers complete cut text without a word. No call may start before the reply's
stop reason is known, so nothing is handed out earlier.
"""

from __future__ import annotations

from typing import Any, Protocol

from pokayoke.core.messages import items
from pokayoke.core.replies import plain


class Stream(Protocol):
    """Puts one reply together."""

    def add(self, event: Any) -> str:
        """Take the next event; return the text for the user that it brings."""
        ...

    def reply(self) -> dict[str, Any]:
        """Return what has come so far as a whole reply, readable by `spoken`."""
        ...


class ChatStream:
    """Chunks of an OpenAI chat completion."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: Any = None
        self._usage: Any = None

    def add(self, event: Any) -> str:
        """Take a chunk; return its text."""
        chunk = plain(event)
        self._usage = chunk.get("usage") or self._usage
        said: list[str] = []
        for one in items(chunk.get("choices")):
            choice = plain(one)
            if choice.get("index"):  # one answer is guarded, the first
                continue
            delta = plain(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish
            if isinstance(text := delta.get("content"), str):
                said.append(text)
            if isinstance(refusal := delta.get("refusal"), str):
                self._refusal.append(refusal)
            for place, part in enumerate(items(delta.get("tool_calls"))):
                self._piece(place, plain(part))
        self._text += said
        return "".join(said)

    def _piece(self, place: int, part: dict[str, Any]) -> None:
        index = part.get("index")
        call = self._calls.setdefault(
            index if isinstance(index, int) else place, {"id": None, "type": "function", "name": "", "text": []}
        )
        call["id"] = part.get("id") or call["id"]
        call["type"] = part.get("type") or call["type"]
        inner = plain(part.get("function") or part.get("custom") or {})
        call["name"] = inner.get("name") or call["name"]
        piece = inner.get("arguments", inner.get("input"))
        if isinstance(piece, str):
            call["text"].append(piece)

    def reply(self) -> dict[str, Any]:
        """Return the chat completion."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        calls = [self._whole(self._calls[index]) for index in sorted(self._calls)]
        if calls:
            message["tool_calls"] = calls
        return {"choices": [{"message": message, "finish_reason": self._finish or CUT}], "usage": self._usage}

    @staticmethod
    def _whole(call: dict[str, Any]) -> dict[str, Any]:
        text, kind = "".join(call["text"]), call["type"]
        inner = {"name": call["name"], "input" if kind == "custom" else "arguments": text}
        return {"id": call["id"], "type": kind, kind if kind == "custom" else "function": inner}


CUT = "incomplete"
"""The stop reason of a stream that ended without giving one: it broke off, so none of its calls may run."""


class ResponsesStream:
    """Events of an OpenAI response."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._items: dict[int, dict[str, Any]] = {}
        self._end: dict[str, Any] | None = None

    def add(self, event: Any) -> str:
        """Take an event; return its text."""
        one = plain(event)
        kind, place = one.get("type"), one.get("output_index")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._end = plain(one.get("response") or {})
        elif isinstance(place, int):
            return self._at(place, str(kind), one)
        return ""

    def _at(self, place: int, kind: str, event: dict[str, Any]) -> str:
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._items[place] = plain(event.get("item") or {})
            return ""
        item = self._items.setdefault(place, {"type": "function_call"})
        piece = event.get("delta")
        if kind == "response.function_call_arguments.delta" and isinstance(piece, str):
            item["arguments"] = (item.get("arguments") or "") + piece
        elif kind == "response.function_call_arguments.done":
            item["arguments"] = event.get("arguments", item.get("arguments"))
        elif kind == "response.output_text.delta" and isinstance(piece, str):
            return piece
        return ""

    def reply(self) -> dict[str, Any]:
        """Return the response."""
        if self._end is not None and self._end.get("output"):
            return self._end
        end = self._end or {"status": "incomplete", "incomplete_details": {"reason": CUT}}
        return {**end, "output": [self._items[place] for place in sorted(self._items)]}


class AnthropicStream:
    """Events of an Anthropic message."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._stop: Any = None
        self._usage: dict[str, Any] = {}

    def add(self, event: Any) -> str:
        """Take an event; return its text."""
        one = plain(event)
        kind, place = one.get("type"), one.get("index")
        if kind == "message_start":
            self._message = plain(one.get("message") or {})
            self._usage = plain(self._message.get("usage") or {})
        elif kind == "message_delta":
            self._stop = plain(one.get("delta") or {}).get("stop_reason") or self._stop
            self._usage = {**self._usage, **plain(one.get("usage") or {})}
        elif kind == "content_block_start" and isinstance(place, int):
            self._blocks[place] = plain(one.get("content_block") or {})
        elif kind == "content_block_delta" and isinstance(place, int):
            return self._delta(place, plain(one.get("delta") or {}))
        return ""

    def _delta(self, place: int, delta: dict[str, Any]) -> str:
        block = self._blocks.setdefault(place, {"type": "text", "text": ""})
        if isinstance(piece := delta.get("partial_json"), str):
            self._inputs.setdefault(place, []).append(piece)
        for name in ("text", "thinking", "signature"):
            if isinstance(piece := delta.get(name), str):
                block[name] = (block.get(name) or "") + piece
        text = delta.get("text")
        return text if isinstance(text, str) else ""

    def reply(self) -> dict[str, Any]:
        """Return the message. The input of a call is the text that came, or the object it was started with."""
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
            "stop_reason": self._stop or CUT,
            "usage": self._usage,
        }
