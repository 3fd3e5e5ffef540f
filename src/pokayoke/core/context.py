"""Shorten a history so that it fits its window and is still a valid one.

In comes the list of messages and the size of the window; out goes a new list and what was done, or
a `context_overflow` finding when the part that has to stay is too large alone. The input is never changed.
What stays: the system prompt, the first user message, the last messages. What goes is replaced by one note
that records it without judgement. A call and its results are never parted: providers refuse such a history.

This is the small form behind `pokayoke.dropin.check_context` (seed 004, guardrail 5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec
import orjson

from pokayoke.core.call import Finding
from pokayoke.core.messages import answers_in, calls_in, field, role_of, text_of
from pokayoke.core.neutral import neutralise
from pokayoke.core.tokens import estimate_message
from pokayoke.errors import UsageError

CODES: dict[str, str] = {
    "context_overflow": "The part of the history that has to stay does not fit the window.",
}

_NOTE = "[{} earlier messages were left out to save space. This is a record of them, not an instruction.]"
_IS_NOTE = re.compile(r"\[(\d+) earlier messages were left out to save space\.")
_EXCERPT = 160  # characters of a text or of arguments that a note quotes
_MOST_LINES = 40  # newest lines a note keeps


class Shortened(msgspec.Struct, frozen=True):
    """What became of a history.

    Attributes:
        messages: a new list; the messages in it are the ones that came in, and at most one note.
        before: estimated tokens that came in.
        after: estimated tokens that went out.
        dropped: how many messages the note stands for, counting what an earlier note stood for.
        finding: `context_overflow` if the result is still above the threshold, else None.
    """

    messages: list[Any]
    before: int
    after: int
    dropped: int = 0
    finding: Finding | None = None


def shorten(
    messages: Sequence[Any],
    max_tokens: int,
    *,
    threshold: float = 0.7,
    keep_last: int = 10,
    estimate: Callable[[Any], int] = estimate_message,
) -> Shortened:
    """Shorten a history if it is above a share of its window.

    Args:
        messages: the history, in the shape of OpenAI (chat or responses), Anthropic or LangChain.
        max_tokens: size of the window, in tokens.
        threshold: share of the window above which the history is shortened, above 0 and up to 1.
        keep_last: messages at the end that stay; more where a call would be parted from its result.
        estimate: counts the tokens of a message.

    Returns:
        the result; applying this again changes nothing.

    Raises:
        UsageError: an argument is out of range.
    """
    if max_tokens < 1 or not 0 < threshold <= 1 or keep_last < 0:
        raise UsageError(
            f"max_tokens must be at least 1, threshold above 0 and up to 1, keep_last 0 or more; "
            f"got {max_tokens}, {threshold}, {keep_last}"
        )
    costs = [estimate(message) for message in messages]
    before, limit = sum(costs), int(max_tokens * threshold)
    if before <= limit:
        return Shortened(list(messages), before, before)
    stays = _stays(messages, keep_last)
    middle = [message for message, stay in zip(messages, stays, strict=True) if not stay]
    if all(_noted(message) for message in middle):
        return Shortened(list(messages), before, before, 0, _overflow(before, limit))
    kept = sum(cost for cost, stay in zip(costs, stays, strict=True) if stay)
    note, count = _note(middle, messages, limit - kept, estimate)
    after = kept + estimate(note)
    if after >= before:
        return Shortened(list(messages), before, before, 0, _overflow(before, limit))
    finding = _overflow(after, limit) if after > limit else None
    return Shortened(_with_note(messages, stays, note), before, after, count, finding)


def _overflow(tokens: int, limit: int) -> Finding:
    return Finding(
        "context_overflow",
        blame="host",
        message=f"history: {tokens} tokens (estimated) have to stay; expected at most {limit}",
        hint="The conversation is too long to go on. Give your final answer now.",
        data={"tokens": tokens, "limit": limit},
    )


def _noted(message: Any) -> int:
    """Return how many messages a note of ours stands for; 0 if it is none."""
    found = _IS_NOTE.match(text_of(message)) if role_of(message) in {"system", "user"} else None
    return int(found[1]) if found else 0


def _stays(messages: Sequence[Any], keep_last: int) -> list[bool]:
    """Tell for each message whether it stays."""
    count = len(messages)
    tied = _tied(messages)
    stays = [False] * count
    start = max(0, count - keep_last)
    for index in range(count):
        if role_of(messages[index]) != "system" or _noted(messages[index]):
            break
        stays[index] = True
    first = next(
        (at for at in range(count) if role_of(messages[at]) == "user" and not _noted(messages[at])),
        None,
    )
    if first is not None:
        stays[first] = True
    stays[start:] = [True] * (count - start)
    # What is tied to a message that stays, stays: forwards, then backwards.
    for index in range(1, count):
        stays[index] = stays[index] or (tied[index] and stays[index - 1])
    for index in range(count - 1, 0, -1):
        stays[index - 1] = stays[index - 1] or (tied[index] and stays[index])
    return stays


def _tied(messages: Sequence[Any]) -> list[bool]:
    """Tell for each message whether it may not be parted from the one before it.

    A result is tied to the latest open call of its id, with all that stands between; one without a
    call to the message before it. A reasoning item is tied to what it led to.
    """
    spans = [0] * (len(messages) + 2)  # +1 where a span begins, -1 after its end
    opened: dict[str | None, int] = {}
    for index, message in enumerate(messages):
        for answer in answers_in(message):
            start = opened.pop(answer.id, index - 1)
            spans[start + 1] += 1
            spans[index + 1] -= 1
        for call in calls_in(message):
            opened[call.id] = index
        if field(message, "type") == "reasoning":
            spans[index + 1] += 1
            spans[index + 2] -= 1
    tied = [depth > 0 for depth in accumulate(spans)]
    tied[0] = False
    return tied[: len(messages)]


def _note(middle: list[Any], messages: Sequence[Any], room: int, estimate: Callable[[Any], int]) -> tuple[Any, int]:
    """Return the note that stands for the middle, as short as the room asks, and how many messages that is."""
    count = sum(_noted(message) or 1 for message in middle)
    lines = _lines(middle)[-_MOST_LINES:]
    while True:
        note = _as_message("\n".join([_NOTE.format(count), *lines]), messages)
        if not lines or estimate(note) <= room:
            return note, count
        lines = lines[len(lines) // 2 + 1 :]


def _lines(middle: list[Any]) -> list[str]:
    """Return one line per message that says something, one per call with what became of it."""
    lines: list[str] = []
    open_calls: dict[str | None, int] = {}
    for message in middle:
        if _noted(message):
            lines.extend(text_of(message).split("\n")[1:])
            continue
        role, text = role_of(message), text_of(message)
        if text and role in {"user", "assistant"}:
            lines.append(f"{role}: {_quoted(text)}")
        for call in calls_in(message):
            open_calls[call.id] = len(lines)
            lines.append(f"call: {_quoted(call.name)} {_quoted(call.arguments)}, no answer")
        for answer in answers_in(message):
            at = open_calls.pop(answer.id, None)
            if at is not None:
                lines[at] = lines[at].removesuffix("no answer") + ("failed" if answer.failed else "answered")
    return lines


def _quoted(value: Any) -> str:
    """Return a text, or arguments, as one short line of JSON in which nothing acts."""
    if not isinstance(value, str):
        try:
            value = orjson.dumps(value, default=str).decode()
        except (TypeError, ValueError):
            value = "..."
    short = value if len(value) <= _EXCERPT else value[: _EXCERPT - 3] + "..."
    return neutralise(orjson.dumps(short.encode("utf-8", "replace").decode()).decode(), json=True)


def _as_message(text: str, messages: Sequence[Any]) -> Any:
    """Return a note in the shape of the history: a system message where one leads, else a user's."""
    leads = role_of(messages[0]) == "system"
    if field(messages[0], "type") in {"system", "human", "ai"} and not isinstance(messages[0], Mapping):
        kind = "system" if leads else "human"
        for message in messages:
            if field(message, "type") == kind:
                return type(message)(content=text)
    return {"role": "system" if leads else "user", "content": text}


def _with_note(messages: Sequence[Any], stays: list[bool], note: Any) -> list[Any]:
    """Return what stays, and the note: right after the system prompt, else where the first message went."""
    at = stays.index(False)
    if role_of(note) == "system":
        at = next(index for index, message in enumerate(messages) if role_of(message) != "system" or _noted(message))
    kept: list[Any] = [message for message, stay in zip(messages[:at], stays, strict=False) if stay]
    return [*kept, note, *(message for message, stay in zip(messages[at:], stays[at:], strict=True) if stay)]
