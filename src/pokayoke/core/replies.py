"""What a model said, read from each provider's reply without a word being changed.

In comes a reply of OpenAI (chat completions or responses) or Anthropic, as a dict or as the SDK's object;
out go its text, its tool calls, why it ended and what it cost, and the messages that belong into the history.
Argument texts stay the texts they are. Ids that are missing or equal are replaced, in the call and in the
message, so that each call can be answered exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.intake import read_calls
from pokayoke.core.messages import field, items
from pokayoke.errors import UsageError

Wire = Literal["openai", "responses", "anthropic", "text"]
"""Whose messages: OpenAI's chat completions or responses, Anthropic's, or a chat without tool calls."""

_TEXTS = frozenset({"text", "output_text", "refusal"})


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of a model.

    Attributes:
        wire: whose shape it has.
        messages: what to append to the history, in that shape.
        text: what it says to the user; "" if nothing.
        calls: the tool calls it asks for, in order, each with the reply's stop reason.
        stop_reason: why the provider says it ended; None if it did not say.
        tokens: what the provider counted for the whole conversation, or None.
        refused: True if the model refused to answer.
    """

    wire: Wire
    messages: tuple[dict[str, Any], ...] = ()
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop_reason: str | None = None
    tokens: int | None = None
    refused: bool = False


def spoken(reply: Any, *, tools: Mapping[str, Any] | None = None) -> Spoken:
    """Read a reply.

    Args:
        reply: a chat completion, a response, an Anthropic message, or an assistant message of a chat.
        tools: names of the tools on offer, with their schemas, if calls that stand in the text count
            too: for models that have no tool calls of their own.

    Raises:
        UsageError: it is none of these.
    """
    whole = plain(reply)
    if items(whole.get("choices")):
        said = _chat(whole)
    elif "output" in whole and isinstance(whole["output"], list):
        said = _response(whole)
    elif whole.get("type") == "message" or ("stop_reason" in whole and isinstance(whole.get("content"), list)):
        said = _anthropic(whole)
    elif whole.get("role") == "assistant":
        said = _chat({"choices": [{"message": whole}]})
    else:
        raise UsageError(
            f"{type(reply).__name__} is no reply of a model: hand over a chat completion, a response, "
            "an Anthropic message or an assistant message"
        )
    return said if said.calls or tools is None else _with_text_calls(said, tools)


def plain(thing: Any) -> dict[str, Any]:
    """Return a reply as a dict; SDK objects are dumped, without what is not set."""
    if isinstance(thing, Mapping):
        return dict(cast("Mapping[str, Any]", thing))
    dump = getattr(thing, "model_dump", None)
    if callable(dump):
        return cast("dict[str, Any]", dump(exclude_unset=True))
    for name in ("openai", "anthropic"):
        made = getattr(thing, name, None)
        if callable(made):  # a scripted reply
            return cast("dict[str, Any]", made())
    return {}


def answered(outcome: Outcome, wire: Wire = "openai") -> dict[str, Any]:
    """Return the message (or item) that answers a call with its outcome.

    For Anthropic that is a block: all blocks of one reply belong into one user message, see `answers`.
    """
    if wire == "openai":
        return {"role": "tool", "tool_call_id": outcome.call_id, "content": outcome.text}
    if wire == "text":
        return {"role": "user", "content": outcome.text}
    if wire == "responses":
        return {"type": "function_call_output", "call_id": outcome.call_id, "output": outcome.text}
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": outcome.call_id, "content": outcome.text}
    return block if outcome.ok else {**block, "is_error": True}


def answers(outcomes: Iterable[Outcome], wire: Wire = "openai") -> list[dict[str, Any]]:
    """Return what to append to the history after all calls of one reply were taken."""
    blocks = [answered(outcome, wire) for outcome in outcomes]
    if wire != "anthropic":
        return blocks
    return [{"role": "user", "content": blocks}] if blocks else []


class _Ids:
    """Gives every call an id of its own."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def of(self, given: Any) -> str:
        ident = given if isinstance(given, str) and given else "call"
        number = 1
        fresh = ident if ident != "call" else "call_1"
        while fresh in self._seen:
            number += 1
            fresh = f"{ident}_{number}"
        self._seen.add(fresh)
        return fresh


def _chat(whole: dict[str, Any]) -> Spoken:
    choice = plain(items(whole["choices"])[0])
    message = plain(choice.get("message") or {})
    stop = choice.get("finish_reason")
    ids = _Ids()
    calls: list[ToolCall] = []
    written: list[dict[str, Any]] = []
    for one in items(message.get("tool_calls")):
        call = plain(one)
        inner = plain(call.get("function") or call.get("custom") or {})
        ident = ids.of(call.get("id"))
        written.append({**call, "id": ident})
        calls.append(_call(ident, inner, stop))
    old = message.get("function_call")
    if old and not calls:
        # The former spelling of one call; its answer needs an id, so the message gets the present one.
        inner = plain(old)
        ident = ids.of(None)
        written.append({"id": ident, "type": "function", "function": inner})
        calls.append(_call(ident, inner, stop))
    kept = {
        name: value
        for name, value in message.items()
        if value is not None and name not in ("tool_calls", "function_call")
    }
    kept.setdefault("role", "assistant")
    kept.setdefault("content", None if written else "")
    if written:
        kept["tool_calls"] = written
    return Spoken(
        wire="openai",
        messages=(kept,),
        text=_text(message.get("content")) or _text(message.get("refusal")),
        calls=tuple(calls),
        stop_reason=stop,
        tokens=_tokens(whole.get("usage"), "prompt_tokens", "completion_tokens"),
        refused=bool(message.get("refusal")) or stop == "content_filter",
    )


def _response(whole: dict[str, Any]) -> Spoken:
    details = plain(whole.get("incomplete_details") or {})
    stop = (details.get("reason") or "incomplete") if whole.get("status") == "incomplete" else whole.get("status")
    ids = _Ids()
    calls: list[ToolCall] = []
    kept: list[dict[str, Any]] = []
    texts: list[str] = []
    refused = False
    for one in items(whole["output"]):
        item = plain(one)
        if item.get("type") in ("function_call", "custom_tool_call"):
            ident = ids.of(item.get("call_id") or item.get("id"))
            item = {**item, "call_id": ident}
            cut = "incomplete" if item.get("status") == "incomplete" else stop
            calls.append(_call(ident, item, cut))
        elif item.get("type") == "message":
            texts.append(_text(item.get("content")))
            refused = refused or any(field(part, "type") == "refusal" for part in items(item.get("content")))
        kept.append(item)
    return Spoken(
        wire="responses",
        messages=tuple(kept),
        text="\n".join(text for text in texts if text),
        calls=tuple(calls),
        stop_reason=stop,
        tokens=_tokens(whole.get("usage"), "input_tokens", "output_tokens"),
        refused=refused or stop == "content_filter",
    )


def _anthropic(whole: dict[str, Any]) -> Spoken:
    stop = whole.get("stop_reason")
    ids = _Ids()
    calls: list[ToolCall] = []
    kept: list[dict[str, Any]] = []
    for one in items(whole.get("content")):
        block = plain(one)
        if block.get("type") == "tool_use":
            ident = ids.of(block.get("id"))
            given: Any = block.get("input")
            arguments: Any = given if isinstance(given, (dict, str)) else {}
            calls.append(ToolCall(ident, _name(block), arguments, stop_reason=stop))
            # The API takes objects only; a text that was cut is answered by its id, and never sent again.
            sent: Any = {} if isinstance(given, str) else arguments
            block = {**block, "id": ident, "input": sent}
        kept.append(block)
    return Spoken(
        wire="anthropic",
        messages=({"role": "assistant", "content": kept},),
        text=_text(kept),
        calls=tuple(calls),
        stop_reason=stop,
        tokens=_tokens(whole.get("usage"), "input_tokens", "output_tokens"),
        refused=stop == "refusal",
    )


def _call(ident: str, inner: dict[str, Any], stop: Any) -> ToolCall:
    given: Any = inner.get("arguments", inner.get("input"))
    arguments: Any = given if isinstance(given, (str, dict)) else ""
    return ToolCall(ident, _name(inner), arguments, stop_reason=stop)


def _name(thing: dict[str, Any]) -> str:
    name = thing.get("name")
    return name if isinstance(name, str) else ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = (field(part, "text") or field(part, "refusal") for part in items(content) if field(part, "type") in _TEXTS)
    return "\n".join(text for text in texts if isinstance(text, str))


def _tokens(usage: Any, into: str, out: str) -> int | None:
    """What the provider counted; parts that were read from a cache are part of the conversation, too."""
    if usage is None:
        return None
    counts = plain(usage)
    if isinstance(total := counts.get("total_tokens"), int):
        return total
    parts = (into, out, "cache_creation_input_tokens", "cache_read_input_tokens")
    found = [value for name in parts if isinstance(value := counts.get(name), int)]
    return sum(found) if found else None


def _with_text_calls(said: Spoken, tools: Mapping[str, Any]) -> Spoken:
    """Take the calls that stand in the text, for a model that cannot say them otherwise."""
    found = read_calls(said.text, tools=tools, stop_reason=said.stop_reason)
    calls: list[ToolCall] = []
    for number, one in enumerate(found.calls, 1):
        start, end = one.span
        given: str | dict[str, Any] = said.text[start:end]
        if one.reading.grade in ("exact", "lossless") and one.reading.value is not None:
            given = one.reading.value
        calls.append(ToolCall(f"text_{number}", one.name, given, stop_reason=said.stop_reason))
    if not calls:
        return said
    return msgspec.structs.replace(said, calls=tuple(calls), text=found.rest, wire="text")
