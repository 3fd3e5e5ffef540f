"""What a model said, read from each provider's reply without a word being changed.

In comes a reply of OpenAI (chat completions or responses) or Anthropic, as a dict or as the SDK's object;
out go its text, its tool calls, why it ended and what it cost, and the messages that belong into the history.
Argument texts stay the texts they are. What a provider would refuse to see again (ids that are missing or
equal, names and blocks without a letter) is replaced in the history, so that each call can be answered once.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake import is_cut, read_arguments
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.output.model_text import result_text
from pokayoke.errors import UsageError

ReplyShape = Literal["openai", "responses", "anthropic", "text"]
"""How messages are written: for OpenAI's chat completions or responses, for Anthropic, or without tool calls."""

_TEXT_TYPES = frozenset({"text", "output_text", "refusal"})
_LABEL = "<tool_output "
_NOT_ID_CHARS = re.compile(r"[^A-Za-z0-9_-]")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of a model.

    Attributes:
        shape: how it is written.
        messages: what to append to the history, in that shape.
        text: what it says to the user; "" if nothing.
        calls: the tool calls it asks for, in order, each with the reply's stop reason.
        custom: ids of those calls whose input is free text, where they are answered in a shape of their own.
        faithful: False if `messages` cannot carry the arguments of every call as they came.
        stop_reason: why the provider says it ended; None if it did not say.
        tokens: what the provider counted for the whole conversation, this reply included, or None.
        input_tokens: what it counted for the request alone, or None.
        refused: True if the model refused to answer.
    """

    shape: ReplyShape
    messages: tuple[dict[str, Any], ...] = ()
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    custom: frozenset[str] = frozenset()
    faithful: bool = True
    stop_reason: str | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    refused: bool = False


def read_reply(reply: Any, *, tools: Mapping[str, Any] | None = None, taken: Container[str] = ()) -> Reply:
    """Read a reply.

    Args:
        reply: a chat completion, a response, an Anthropic message, or an assistant message of a chat.
        tools: names of the tools on offer, with their schemas, if calls that stand in the text count
            too: for models that have no tool calls of their own.
        taken: ids that the history holds already; a call that comes with one of them gets another.

    Raises:
        UsageError: it is none of these.
    """
    whole = to_dict(reply)
    ids = CallIds(taken)
    if "choices" in whole:
        said = _read_chat(whole, ids)
    elif isinstance(whole.get("output"), list):
        said = _read_response(whole, ids)
    elif whole.get("type") == "message" or ("stop_reason" in whole and isinstance(whole.get("content"), list)):
        said = _read_anthropic(whole, ids)
    elif whole.get("role") == "assistant":
        blocks = any(read_field(block, "type") == "tool_use" for block in as_sequence(whole.get("content")))
        said = _read_anthropic(whole, ids) if blocks else _read_chat({"choices": [{"message": whole}]}, ids)
    else:
        raise UsageError(
            f"{type(reply).__name__} is no reply of a model: hand over a chat completion, a response, "
            "an Anthropic message or an assistant message"
        )
    if said.calls or tools is None:
        return said
    from pokayoke.core.messages.spelled import with_text_calls  # noqa: PLC0415 - for models without tool calls

    return with_text_calls(said, tools, ids)


def to_dict(thing: Any) -> dict[str, Any]:
    """Return a reply as a dict; SDK objects are dumped, without what is not set."""
    if isinstance(thing, Mapping):
        return dict(cast("Mapping[str, Any]", thing))
    dump = getattr(thing, "model_dump", None)
    if callable(dump):
        # Servers send words that the SDK's types do not know; that is for us to judge, and nobody is warned.
        return cast("dict[str, Any]", dump(exclude_unset=True, warnings=False))
    for name in ("openai", "anthropic"):
        made = getattr(thing, name, None)
        if callable(made):  # a scripted reply
            return cast("dict[str, Any]", made())
    return {}


def result_message(outcome: Outcome, shape: ReplyShape = "openai", *, custom: bool = False) -> dict[str, Any]:
    """Return the message (or item) that answers a call with its outcome.

    For Anthropic that is a block: all blocks of one reply belong into one user message, see `result_messages`. Pictures
    and PDFs go along to Anthropic and the responses API; a tool message of the chat completions holds text alone.

    Args:
        outcome: what became of the call.
        shape: which one is wanted.
        custom: True if the call's input was free text; the responses API answers that with an item of its own.
    """
    if shape == "openai":
        return {"role": "tool", "tool_call_id": outcome.call_id, "content": outcome.text}
    if shape == "text":
        return {"role": "user", "content": _label_text(outcome)}
    if shape == "responses":
        kind = "custom_tool_call_output" if custom else "function_call_output"
        output = _with_media(outcome, shape, "input_text") if outcome.content else outcome.text
        return {"type": kind, "call_id": outcome.call_id, "output": output}
    content = _with_media(outcome, shape, "text") if outcome.content else outcome.text
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": outcome.call_id, "content": content}
    return block if outcome.ok else {**block, "is_error": True}


def _label_text(outcome: Outcome) -> str:
    """The text behind a label: where the user's side answers calls, nothing else tells it from what they say."""
    said, label, shown = outcome.text.partition(_LABEL)
    if not said:
        return outcome.text
    trust = "checked" if outcome.ok else "error"
    front = result_text(said.strip(), tool=outcome.tool, call_id=outcome.call_id, trust=trust)
    return f"{front}\n{label}{shown}" if label else front


def _with_media(outcome: Outcome, shape: Literal["responses", "anthropic"], kind: str) -> str | list[dict[str, Any]]:
    """The text, and behind it the pictures and files that the provider takes there."""
    from pokayoke.core.messages.media import media_block_for  # noqa: PLC0415 - for tools that return such a thing

    media = [block for one in outcome.content if (block := media_block_for(one, shape)) is not None]
    return [{"type": kind, "text": outcome.text}, *media] if media else outcome.text


def result_messages(
    outcomes: Iterable[Outcome], shape: ReplyShape = "openai", *, custom: Container[str] = ()
) -> list[dict[str, Any]]:
    """Return what to append to the history after all calls of one reply were taken.

    Args:
        outcomes: what became of the calls, in order.
        shape: which one is wanted.
        custom: ids of the calls whose input was free text, as in `Reply.custom`.
    """
    made = [result_message(outcome, shape, custom=outcome.call_id in custom) for outcome in outcomes]
    if not made or shape in ("openai", "responses"):
        return made
    # The sides of such a chat take turns, so all answers are one message.
    content = made if shape == "anthropic" else "\n".join(one["content"] for one in made)
    return [{"role": "user", "content": content}]


class CallIds:
    """Gives every call an id that no other call of the conversation has.

    Args:
        taken: ids that are used already.
    """

    def __init__(self, taken: Container[str] = ()) -> None:
        """Begin with those that are taken."""
        self._taken, self._given = taken, set[str]()

    def unique_id(self, wanted: Any, base: str = "call") -> str:
        """Return the wanted id if it is one and free, else a fresh one made of it (or of `base`)."""
        ident = wanted if isinstance(wanted, str) else ""
        fresh, number = ident, 1
        while not fresh or fresh in self._given or fresh in self._taken:
            fresh = f"{ident or base}_{number if not ident else number + 1}"
            number += 1
        self._given.add(fresh)
        return fresh


def _read_chat(whole: dict[str, Any], ids: CallIds) -> Reply:
    choices = as_sequence(whole["choices"])
    choice = to_dict(choices[0]) if choices else {}
    message = to_dict(choice.get("message") or {})
    stop = choice.get("finish_reason")
    asked = [to_dict(one) for one in as_sequence(message.get("tool_calls"))]
    if not asked and (old := message.get("function_call")):
        # The former spelling of one call; its answer needs an id, so the message gets the present one.
        asked = [{"type": "function", "function": old}]
    calls: list[ToolCall] = []
    written: list[dict[str, Any]] = []
    for one in asked:
        place = "custom" if one.get("custom") else "function"
        inner = to_dict(one.get(place) or {})
        call = _build_call(ids.unique_id(one.get("id")), inner, stop)
        held = "input" if place == "custom" else "arguments"
        shown = {**inner, "name": history_name(call.name), held: _as_text(call.arguments)}
        written.append({**one, "id": call.id, "type": one.get("type") or place, place: shown})
        calls.append(call)
    kept = {key: value for key, value in message.items() if value is not None}
    for gone in ("tool_calls", "function_call"):
        kept.pop(gone, None)
    kept.setdefault("role", "assistant")
    kept.setdefault("content", None if written else "")
    if written:
        kept["tool_calls"] = written
    refusal = _content_text(message.get("refusal"))
    return Reply(
        shape="openai",
        messages=(kept,),
        text=_content_text(message.get("content")) or refusal,
        calls=tuple(calls),
        stop_reason=stop,
        tokens=_count_tokens(whole.get("usage"), "prompt_tokens", "completion_tokens"),
        input_tokens=_count_tokens(whole.get("usage"), "prompt_tokens"),
        refused=bool(refusal) or stop == "content_filter",
    )


def _read_response(whole: dict[str, Any], ids: CallIds) -> Reply:
    stop = _response_stop(whole)
    calls: list[ToolCall] = []
    kept: list[dict[str, Any]] = []
    texts: list[str] = []
    custom: set[str] = set()
    refused = stop == "content_filter"
    for one in as_sequence(whole["output"]):
        item = to_dict(one)
        if item.get("type") in ("function_call", "custom_tool_call"):
            cut = "incomplete" if item.get("status") == "incomplete" else stop
            call = _build_call(ids.unique_id(item.get("call_id") or item.get("id")), item, cut)
            held = "arguments" if item["type"] == "function_call" else "input"
            item = {**item, "call_id": call.id, "name": history_name(call.name), held: _as_text(call.arguments)}
            calls.append(call)
            if held == "input":
                custom.add(call.id)
        elif item.get("type") == "message":
            texts.append(_content_text(item.get("content")))
            refused = refused or any(read_field(part, "type") == "refusal" for part in as_sequence(item.get("content")))
        kept.append(item)
    return Reply(
        shape="responses",
        messages=tuple(kept),
        text="\n".join(text for text in texts if text),
        calls=tuple(calls),
        custom=frozenset(custom),
        stop_reason=stop,
        tokens=_count_tokens(whole.get("usage"), "input_tokens", "output_tokens"),
        input_tokens=_count_tokens(whole.get("usage"), "input_tokens"),
        refused=refused,
    )


def _response_stop(whole: dict[str, Any]) -> str | None:
    """Only a completed response is known to be whole; of the others the reason is kept where it says so."""
    status = whole.get("status")
    if status is None or status == "completed":
        return cast("str | None", status)
    reason = to_dict(whole.get("incomplete_details") or {}).get("reason")
    return reason if is_cut(reason) else "incomplete"


def _read_anthropic(whole: dict[str, Any], ids: CallIds) -> Reply:
    stop = whole.get("stop_reason")
    calls: list[ToolCall] = []
    kept: list[dict[str, Any]] = []
    texts: list[str] = []
    faithful = True
    for one in as_sequence(whole.get("content")):
        block = to_dict(one)
        if block.get("type") == "tool_use":
            given = block.get("id")
            call = _build_call(
                ids.unique_id(_NOT_ID_CHARS.sub("_", given) if isinstance(given, str) else None, "toolu"), block, stop
            )
            block = {**block, "id": call.id, "name": history_name(call.name)}
            calls.append(call)
        if "input" in block:
            # The API takes objects only. A text that cannot be read as one is answered by its id.
            sent = _as_object(block["input"])
            faithful = faithful and sent is not None
            block["input"] = sent or {}
        if block.get("type") == "text":
            texts.append(_content_text([block]))
            if not texts[-1].strip():
                continue  # the API refuses to see it again
        kept.append(block)
    return Reply(
        shape="anthropic",
        messages=({"role": "assistant", "content": kept},),
        text="\n".join(text for text in texts if text),
        calls=tuple(calls),
        faithful=faithful,
        stop_reason=stop,
        tokens=_count_tokens(whole.get("usage"), "input_tokens", "output_tokens"),
        input_tokens=_count_tokens(whole.get("usage"), "input_tokens"),
        refused=stop == "refusal",
    )


def _build_call(ident: str, inner: dict[str, Any], stop: str | None) -> ToolCall:
    """The call as it came. Arguments of a shape that no provider documents become the text that shows them."""
    name, given = inner.get("name"), inner.get("arguments", inner.get("input"))
    if given is None:
        given = ""
    elif not isinstance(given, (str, dict)):
        given = dump_compact(given).decode()
    arguments = cast("str | dict[str, Any]", given)
    return ToolCall(ident, name if isinstance(name, str) else "", arguments, stop_reason=stop)


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else dump_compact(arguments).decode()


def _as_object(given: Any) -> dict[str, Any] | None:
    """The object a text stands for, or None. Only what may run counts as read."""
    if isinstance(given, dict):
        return cast("dict[str, Any]", given)
    reading = read_arguments(given) if isinstance(given, str) else None
    return reading.value if reading is not None and reading.grade in ("exact", "lossless") else None


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = (
        read_field(part, "text") or read_field(part, "refusal")
        for part in as_sequence(content)
        if read_field(part, "type") in _TEXT_TYPES
    )
    return "\n".join(text for text in texts if isinstance(text, str))


def _count_tokens(usage: Any, into: str, out: str | None = None) -> int | None:
    """What the provider counted; parts that were read from a cache are part of the conversation, too.

    A count without input is none: no request is empty, and it would make a long conversation look short.
    """
    counts = to_dict(usage or {})
    parts = (into, "cache_creation_input_tokens", "cache_read_input_tokens")
    sent = sum(value for name in parts if isinstance(value := counts.get(name), int))
    if not sent or out is None:
        return sent or None
    total, written = counts.get("total_tokens"), counts.get(out)
    return total if isinstance(total, int) else sent + (written if isinstance(written, int) else 0)
