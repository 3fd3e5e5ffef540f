"""Pydantic AI's messages in our terms, and back; for `pokayoke.adapters.pydantic_ai`."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pokayoke.adapters._host.calls import ReplyCall
from pokayoke.adapters._host.finish_reasons import cut_or_last
from pokayoke.core.call import Outcome, ToolCall, Verdict
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.replies import CallIds
from pokayoke.core.output.content_blocks import as_blocks
from pokayoke.core.output.model_text import result_text
from pokayoke.core.output.preview import build_preview
from pokayoke.errors import MissingExtraError

try:
    import pydantic_core
    from pydantic_ai.exceptions import ToolRetryError
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        RetryPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturn,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.messages import is_multi_modal_content as is_file
    from pydantic_ai.models import ModelRequestParameters
except ImportError as error:
    raise MissingExtraError("pydantic-ai-slim", "pydantic-ai") from error

_STREAMS_WITH_REASON = frozenset({
    "AnthropicStreamedResponse", "BedrockStreamedResponse", "GeminiStreamedResponse", "GroqStreamedResponse",
    "MistralStreamedResponse", "OpenAIResponsesStreamedResponse",
})  # fmt: skip
"""Classes of streams that always say why they ended."""

# -- replies ------------------------------------------------------------------------------------------


def finish_reason(response: ModelResponse) -> str | None:
    """Return why a message ended; a word that proves a cut, wherever the framework keeps it, comes first."""
    if response.state in ("incomplete", "interrupted"):
        return "incomplete"
    raw = (response.provider_details or {}).get("finish_reason")
    return raw if is_cut(raw) else response.finish_reason


def has_broken_off(stream: Any, response: ModelResponse) -> bool:
    """Return whether a stream ended without a word on why, where its provider always says so.

    Args:
        stream: the framework's; None if the reply came whole.
        response: what came of it.
    """
    if stream is None or (said := getattr(stream, "_has_finish_reason", None)):
        return False
    if said is False:  # at a chat completion the framework then says itself that it has ended well
        return True
    told = response.finish_reason or (response.provider_details or {}).get("finish_reason")
    return not told and any(kind.__name__ in _STREAMS_WITH_REASON for kind in type(stream).__mro__)


def keep_cut_reason(stream: Any) -> Any:
    """Have a stream of chat chunks keep a cut that it has told: the framework believes the last reason."""
    mapped = getattr(stream, "_map_finish_reason", None)
    if mapped is not None:
        told: list[Any] = []

        def map_reason(reason: Any) -> Any:
            told.append(reason)
            return mapped(cut_or_last(told))

        stream._map_finish_reason = map_reason  # noqa: SLF001 - its own place for that
    return stream


def reply_call(part: ToolCallPart) -> ReplyCall:
    """Return a call as it stands in a reply."""
    return ReplyCall(part.tool_call_id, part.tool_name, call_arguments(part))


def call_arguments(part: ToolCallPart) -> str | dict[str, Any]:
    """Return the arguments of a call as the model wrote them."""
    return "" if part.args is None else part.args


def call_in_message(part: ToolCallPart, reason: str | None) -> ToolCall:
    """Return the call that stands in a message, with that message's end."""
    return ToolCall(part.tool_call_id, part.tool_name, call_arguments(part), "length" if is_cut(reason) else None)


def calls(reply: ModelResponse, run: Any = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order, argument texts as they came.

    Args:
        reply: what `pydantic_ai.direct.model_request` or a model's `request` returned.
        run: the run they are for.
    """
    ids, reason = CallIds(), finish_reason(reply)
    return [
        ToolCall(ids.unique_id(part.tool_call_id), part.tool_name, call_arguments(part), reason)
        for part in reply.parts
        if isinstance(part, ToolCallPart)
    ]


def may_answer_text(parameters: ModelRequestParameters) -> bool:
    """True if the user may be answered with words of any kind, not with a structure."""
    return bool(parameters.allow_text_output) and parameters.output_mode in ("text", "tool", "tool_or_text")


def reply_text(response: ModelResponse) -> str:
    """Return the text of a reply."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def has_succeeded(messages: Sequence[ModelMessage], tool: str) -> bool:
    """Return whether the latest result of a tool in a history is one."""
    found = (part for one in reversed(messages) for part in reversed(one.parts))
    results = (part for part in found if isinstance(part, (ToolReturnPart, RetryPromptPart)) and part.tool_name == tool)
    return next((isinstance(one, ToolReturnPart) and one.outcome == "success" for one in results), False)


def prompt_text(prompt: Any) -> str:
    """Return the words of what a user sent."""
    parts = [prompt] if isinstance(prompt, str) else prompt
    words = (part if isinstance(part, str) else getattr(part, "content", None) for part in parts)
    return "\n".join(word for word in words if isinstance(word, str))


def prompt_at_end(messages: list[ModelMessage]) -> Any:
    """Return what a user says at the end of a history; None if somebody else has the last word.

    Beside the result of a tool, a user's part may be what the tool had to say.
    """
    parts = messages[-1].parts if messages and isinstance(messages[-1], ModelRequest) else ()
    if any(isinstance(part, (ToolReturnPart, RetryPromptPart)) for part in parts):
        return None
    said = [prompt_text(part.content) for part in parts if isinstance(part, UserPromptPart)]
    return said or None


def with_text(parts: Iterable[Any], text: str) -> list[Any]:
    """Return the parts of a reply with one text in place of its own."""
    return [*(part for part in parts if not isinstance(part, TextPart)), TextPart(text)]


# -- results ------------------------------------------------------------------------------------------

_MAX_CHARS = 50_000
"""Of words beside a value that has a schema, a model reads no more."""


def message(outcome: Outcome) -> ToolReturnPart:
    """Return the message part that answers a call."""
    return ToolReturnPart(
        tool_name=outcome.tool,
        content=outcome.text,
        tool_call_id=outcome.call_id,
        outcome="success" if outcome.ok else "retried",
    )


class SplitResult(NamedTuple):
    """What a tool returned, taken apart."""

    value: Any
    """For the guard."""
    more: ToolReturn[Any] | None
    """What the tool has to say beside its value."""
    words: str
    """Its words among that which a schema of the value does not describe."""


def split_result(result: Any, *, described: bool) -> SplitResult:
    """Take a tool's return value apart: files become blocks that nobody reads, all else is data.

    Args:
        result: what the tool returned.
        described: True if a schema describes the value; else its words beside it belong to it.
    """
    more = result if isinstance(result, ToolReturn) else None
    value = result if more is None else more.return_value
    words = prompt_text(more.content or ()) if more is not None else ""
    items = value if isinstance(value, (list, tuple)) else [value]
    joined = [words] if words and not described and as_blocks(value) is None else []
    if joined or any(map(is_file, items)):
        items = items if any(map(is_file, items)) else [] if value is None else [value]
        value = {"content": [_to_block(item) for item in (*items, *joined)]}
    return SplitResult(value, more, "" if joined else words)


def _to_block(item: Any) -> dict[str, Any]:
    if is_file(item):
        return {"type": "file", "file": item}
    return {"type": "text", "text": item if isinstance(item, str) else pydantic_core.to_json(item).decode()}


def join_result(outcome: Outcome, more: ToolReturn[Any] | None, words: str) -> Any:
    """Return what the framework puts into its history for a call that ended well.

    What a tool says is its result, however it says it: beside the result the framework would let the user say it.
    """
    text = outcome.text
    if words:
        kept = words if len(words) <= _MAX_CHARS else build_preview(words, handle=None, tool=outcome.tool)
        text += "\n" + result_text(kept, tool=outcome.tool, call_id=outcome.call_id, trust="unchecked")
    files = [block["file"] for block in outcome.content if isinstance(block, dict) and is_file(block.get("file"))]
    value = [text, *files] if files else text
    if more is None:
        return value
    beside = [] if isinstance(more.content, str) else [one for one in more.content or () if is_file(one)]
    return ToolReturn(return_value=value, content=beside or None, metadata=more.metadata, tools=more.tools)


def retry_error(part: ToolCallPart, text: Any) -> ToolRetryError:
    """Return what makes the framework answer a call with an error, without a charge to its budget of retries."""
    return ToolRetryError(
        ToolReturnPart(tool_name=part.tool_name, content=text, tool_call_id=part.tool_call_id, outcome="retried")
    )


# -- a history ----------------------------------------------------------------------------------------


def show_effective_call(part: ToolCallPart, verdict: Verdict) -> None:
    """Let whoever gets a call outside of the run read it as it counts: nobody judges it behind them."""
    if verdict.repairs or verdict.corrections:
        part.args, part.id = verdict.arguments, None


def known_ids(messages: list[ModelMessage]) -> frozenset[str]:
    """Return the ids that calls of a history have."""
    return frozenset(part.tool_call_id for one in messages for part in one.parts if isinstance(part, ToolCallPart))


def has_call(one: ModelMessage, part: ToolCallPart) -> bool:
    """True if a message is the reply in which a call stands."""
    return isinstance(one, ModelResponse) and any(
        isinstance(other, ToolCallPart) and other.tool_call_id == part.tool_call_id for other in one.parts
    )


def copy_reply(messages: list[ModelMessage], response: ModelResponse) -> ModelResponse:
    """Put a reply into a history that may be changed, and return it: the one that was handed in is its owner's."""
    own = replace(response, parts=[replace(one) if isinstance(one, ToolCallPart) else one for one in response.parts])
    messages[:] = [own if one is response else one for one in messages]
    return own


def is_silent(one: ModelMessage) -> bool:
    """True for a reply without a word and without a call."""
    return isinstance(one, ModelResponse) and all(
        isinstance(part, ThinkingPart) or (isinstance(part, TextPart) and not part.content.strip())
        for part in one.parts
    )


def fill_silent_reply(one: ModelMessage) -> ModelMessage:
    """The message, but for one without a word: where sides take turns, none may be left out of a request."""
    return replace(one, parts=[*one.parts, TextPart("(no answer)")]) if is_silent(one) else one


# -- ids ----------------------------------------------------------------------------------------------

_UUID_VERSION = 8
"""The version of an UUID that RFC 9562 leaves to whoever makes it."""


def fresh_id() -> str:
    """Return an id for a run or a conversation that was given none. Like the framework's own it sorts by time."""
    made = bytearray(int(time.time() * 1_000).to_bytes(6, "big") + os.urandom(10))
    made[6] = _UUID_VERSION << 4 | made[6] & 0x0F
    made[8] = 0x80 | made[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(made)))


def is_fresh(ident: str) -> bool:
    """True if an id came from here, so that no restart can know it unless it finds it in a history."""
    try:
        return uuid.UUID(ident).version == _UUID_VERSION
    except ValueError:
        return False


def conversation_id_of(run_id: str) -> str:
    """Return the id of the conversation of a run that was given a name: always the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, run_id))
