"""Reads a model's reply in each provider's shape, and the unanswered calls at the end of a history.

In: a reply of OpenAI (chat completions or responses) or Anthropic, as a dict or an SDK object; or a history.
Out: text, tool calls, stop reason, token counts, and the messages to append to the history. Values that a provider
would refuse in a history (missing or repeated ids, empty names and blocks) are replaced there.
Never: change the text of an argument.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from pokayoke.core.call import ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake import CallForm, Calls, is_cut, read_arguments, read_calls
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import calls_in, results_in, role_of, text_of
from pokayoke.errors import UsageError

ReplyShape = Literal["openai", "responses", "anthropic", "text"]
"""Format of the messages: OpenAI's chat completions or responses, Anthropic, or text without tool calls."""

_TEXT_TYPES = frozenset({"text", "output_text", "refusal"})
_NOT_ID_CHARS = re.compile(r"[^A-Za-z0-9_-]")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of a model.

    Attributes:
        shape: format of the messages.
        messages: messages to append to the history, in that shape.
        text: text for the user; "" if there is none.
        calls: tool calls in order, each with the reply's stop reason.
        custom: ids of the calls whose input is free text, where the provider expects another kind of answer.
        faithful: False if `messages` cannot carry the arguments of every call as they came.
        stop_reason: the provider's stop reason, or None.
        tokens: the provider's token count of the whole conversation including this reply, or None.
        input_tokens: the provider's token count of the request alone, or None.
        refused: True if the model refused to answer.
        written: the text as the model wrote it, with the calls in it.
        in_text: ids of the calls that are in the text.
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
    written: str = ""
    in_text: frozenset[str] = frozenset()


def read_reply(
    reply: Any,
    *,
    tools: Mapping[str, Any] | None = None,
    taken: Container[str] = (),
    form: CallForm | None = None,
    has_native_calls: bool = False,
    read_texts: Iterable[str] = (),
) -> Reply:
    """Read a reply: its native calls and, if the tools are known, the calls in its text.

    Args:
        reply: a chat completion, a response, an Anthropic message, or an assistant message of a chat.
        tools: names and schemas of the offered tools; None leaves the text unread.
        taken: call ids in the history; a call that repeats one of them gets a new id.
        form: as in `read_calls`.
        has_native_calls: True if the model has made a native call before this reply.
        read_texts: what the model has read; see `texts_read`.

    Raises:
        UsageError: the reply has another shape.
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
    said = msgspec.structs.replace(said, written=said.text)
    if tools is None:
        return said
    has_native_calls = has_native_calls or bool(said.calls)
    found = read_calls(
        said.text,
        tools=tools,
        stop_reason=said.stop_reason,
        form=form,
        has_native_calls=has_native_calls,
        read_texts=read_texts,
    )
    return _with_text_calls(said, found, ids) if found.calls else said


def _with_text_calls(said: Reply, found: Calls, ids: CallIds) -> Reply:
    """Return a reply with the calls in its text; some servers send there what they send as a native call, too."""
    native = {(call.name, read_arguments(call.arguments).canonical) for call in said.calls}
    calls = [
        call.to_tool_call(ids.unique_id(None, "text"), stop_reason=said.stop_reason)
        for call in found
        if call.reading.canonical is None or (call.name, call.reading.canonical) not in native
    ]
    if not calls:
        return said
    return msgspec.structs.replace(
        said,
        calls=(*said.calls, *calls),
        text=found.rest,
        shape=said.shape if said.calls else "text",
        in_text=frozenset([call.id for call in calls]),
    )


def texts_read(messages: Iterable[Any]) -> Iterator[str]:
    """Yield what a model has read in a history: the texts of its users and tools."""
    for message in messages:
        if role_of(message) in ("user", "tool", ""):
            yield text_of(message)
            yield from (
                one.content if isinstance(one.content, str) else text_of({"content": one.content})
                for one in results_in(message)
            )


def to_dict(thing: Any) -> dict[str, Any]:
    """Return a reply as a dict; SDK objects are dumped without unset fields."""
    if isinstance(thing, Mapping):
        return dict(cast("Mapping[str, Any]", thing))
    dump = getattr(thing, "model_dump", None)
    if callable(dump):
        # Servers send values that the SDK's types do not list. The reader judges them, so the SDK need not warn.
        return cast("dict[str, Any]", dump(exclude_unset=True, warnings=False))
    for name in ("openai", "anthropic"):
        made = getattr(thing, name, None)
        if callable(made):  # a scripted reply
            return cast("dict[str, Any]", made())
    return {}


class CallIds:
    """Gives every call an id that is unique in the conversation.

    Args:
        taken: ids in use.
    """

    def __init__(self, taken: Container[str] = ()) -> None:
        """Start with the ids in use."""
        self._taken, self._given = taken, set[str]()

    def unique_id(self, wanted: Any, base: str = "call") -> str:
        """Return the wanted id if it is a free text, else a new one made from it (or from `base`)."""
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
        # The deprecated form of a single call. Its answer needs an id, so the message gets the current form.
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
    """Return the stop reason: `completed`, a reason that proves a cut, or else `incomplete`."""
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
            # The API accepts only objects. The answer to an unreadable text refers to the call by its id.
            sent = _as_object(block["input"])
            faithful = faithful and sent is not None
            block["input"] = sent or {}
        if block.get("type") == "text":
            texts.append(_content_text([block]))
            if not texts[-1].strip():
                continue  # the API refuses an empty block
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
    """Return the call as it came. Arguments of an undocumented type become their JSON text."""
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
    """Return arguments as an object, or None. Accepts only a text whose reading may run."""
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
    """Return the provider's token count, cached parts included.

    A count without input tokens is ignored: no request is empty, and it would make a long conversation look short.
    """
    counts = to_dict(usage or {})
    parts = (into, "cache_creation_input_tokens", "cache_read_input_tokens")
    sent = sum(value for name in parts if isinstance(value := counts.get(name), int))
    if not sent or out is None:
        return sent or None
    total, written = counts.get("total_tokens"), counts.get(out)
    return total if isinstance(total, int) else sent + (written if isinstance(written, int) else 0)


def open_turn_start(messages: Sequence[Any]) -> int:
    """Return the position behind the last message that is neither the model's nor a result."""
    end = len(messages)
    while end and role_of(messages[end - 1]) in ("assistant", "tool"):
        end -= 1
    return end


def pending_calls(
    messages: Sequence[Any], *, tools: Mapping[str, Any] | None = None, form: CallForm | None = None
) -> Reply | None:
    """Return the unanswered calls at the end of a history, as a reply without messages.

    The reply's stop reason is no longer known. A text whose calls are all refused was an answer.

    Args:
        messages: the history.
        tools: as in `read_reply`.
        form: as in `read_reply`.

    Returns:
        the calls in order; None if every call is answered or a user message follows them.
    """
    end = open_turn_start(messages)
    tail = messages[end:]
    found: Reply | None = None
    waiting: list[ToolCall] = []
    for message in tail:
        for one in results_in(message):  # a result without an id answers the only call of the deprecated form
            waiting = [call for call in waiting if call.id != one.id] if one.id else waiting[1:]
        if calls_in(message):
            found = read_reply(
                {"output": [message]} if role_of(message) and not read_field(message, "role") else message
            )
            waiting += found.calls
    if found is None and tools is not None and tail:
        has_native_calls = any(calls_in(message) for message in messages)
        found = read_reply(
            tail[-1], tools=tools, form=form, has_native_calls=has_native_calls, read_texts=texts_read(messages[:end])
        )
        waiting += found.calls if any(isinstance(call.arguments, dict) for call in found.calls) else ()
    if found is None or not waiting:
        return None
    return msgspec.structs.replace(found, messages=(), calls=tuple(waiting))
