"""Builds the messages that answer a model's calls, in each provider's shape.

In: the outcomes of the calls of one reply, and the shape of the history.
Out: messages or items to append to the history, one answer per call.
Never: change an outcome's text; drop an answer, as providers refuse a history with an unanswered call.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Literal

from pokayoke.core.call import Outcome
from pokayoke.core.messages.replies import ReplyShape
from pokayoke.core.output.model_text import result_text

_LABEL = "<tool_output "


def result_message(outcome: Outcome, shape: ReplyShape = "openai", *, custom: bool = False) -> dict[str, Any]:
    """Return the message (or item) that answers a call with its outcome.

    For Anthropic this is a block: all blocks of one reply belong in one user message, see `result_messages`. Anthropic
    and the responses API also get images and PDFs; a tool message of chat completions holds only text.

    Args:
        outcome: the outcome of the call.
        shape: the shape of the history.
        custom: True if the call's input was free text; the responses API has another item for its answer.
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
    """Return the text with a label: in a user message nothing else separates it from the user's own words."""
    said, label, shown = outcome.text.partition(_LABEL)
    if not said:
        return outcome.text
    trust = "checked" if outcome.ok else "error"
    front = result_text(said.strip(), tool=outcome.tool, call_id=outcome.call_id, trust=trust)
    return f"{front}\n{label}{shown}" if label else front


def _with_media(outcome: Outcome, shape: Literal["responses", "anthropic"], kind: str) -> str | list[dict[str, Any]]:
    """Return the text, followed by the images and files that the provider accepts in a result."""
    from pokayoke.core.messages.media import media_block_for  # noqa: PLC0415 - only for results with media

    media = [block for one in outcome.content if (block := media_block_for(one, shape)) is not None]
    return [{"type": kind, "text": outcome.text}, *media] if media else outcome.text


def result_messages(
    outcomes: Iterable[Outcome],
    shape: ReplyShape = "openai",
    *,
    custom: Container[str] = (),
    in_text: Container[str] = (),
) -> list[dict[str, Any]]:
    """Return the messages that answer all calls of one reply.

    Args:
        outcomes: the outcomes of the calls, in order.
        shape: the shape of the history.
        custom: ids of the calls whose input was free text, as in `Reply.custom`.
        in_text: ids of the calls that were in the text, as in `Reply.in_text`: the answer to them is text, too.
    """
    made: list[dict[str, Any]] = []
    told: list[str] = []
    for outcome in outcomes:
        if shape == "text" or outcome.call_id in in_text:
            told.append(_label_text(outcome))
        else:
            made.append(result_message(outcome, shape, custom=outcome.call_id in custom))
    if shape == "anthropic":  # the roles alternate in this shape, so all answers are one message
        blocks = [*made, *({"type": "text", "text": text} for text in told)]
        return [{"role": "user", "content": blocks}] if blocks else []
    return [*made, *([{"role": "user", "content": "\n".join(told)}] if told else [])]
