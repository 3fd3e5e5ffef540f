"""Builds the lines of a note: quotes of the user and the model, each call and its result.

In: groups that are left out.
Out: lines. A long text is quoted in whole sentences, first those with an id or a number; ids and numbers are
copied unchanged. The result is deterministic.
Never: rephrase.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from pokayoke.core.context.groups import GroupResult, MessageGroup, answer_text
from pokayoke.core.context.note import is_note, quote_json, unique_texts
from pokayoke.core.json.dump import dump_foreign
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import MessageCall, calls_in, role_of, text_of
from pokayoke.core.text.regex import compile_pattern

_MOST_SAID = {"user": 400, "system": 400, "assistant": 200}  # quoted characters of a text
_MOST_ARGUMENTS = 200
_MOST_ANSWERED = 200
_MOST_SHOWN = 8  # ids and numbers copied from one result
_MOST_FROM_TEXT = 24
_MOST_SEARCHED = 8_000  # characters of a text that are searched for ids
UNREADABLE = "(arguments that are no JSON)"
"""Replaces arguments that are a framework's own objects."""
PRIORITY_PREFIXES = ("user: ", "system: ")
"""Prefixes of the lines that are kept longest."""
SUPERSEDED = "[Superseded: the same call has a later result further down."
"""Beginning of a result that was reduced to its ids."""

_LABEL = r"(?:^|\n)(<tool_output [^\n]*>)\n"
_FRAMES = r"(?m)^<tool_output [^\n]*>$|^</tool_output>$"
_TOOL = r'<tool_output tool="([^"]+)"'
_NEXT_OUTPUT = r"\n(?=<tool_output )"
_TRUSTS = r' trust="(\w+)"'
_BEFORE_LABEL = 1_000  # characters; our own sentences are shorter
_BAD_TRUST = frozenset({"error", "degraded"})

# A word with a digit: numbers, dates, order numbers, versions, UUIDs; and e-mail addresses. The look-arounds at the
# front are fast: no word begins after a letter, and a word without a digit or @ is skipped at once.
_ID = (
    r"(?<![^\W_])(?=[\w.:/@#+-]{0,79}?(?:\d|@[^\W_]))"
    r"(?:\d{1,3}(?:[.,]\d{3})*,\d+(?![^\W_])|[^\W_][\w.:/@#+-]{0,78}[^\W_]|\d)"
)
_SENTENCE = r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+"


class NoteLine(msgspec.Struct, frozen=True, gc=False):
    """One line of a note.

    Attributes:
        text: the line.
        ids: ids and numbers of the quoted messages.
        first: True for lines that are kept longest: words of the user and the host.
    """

    text: str
    ids: tuple[str, ...]
    first: bool = False


def find_ids(text: str, most: int = _MOST_FROM_TEXT) -> tuple[str, ...]:
    """Return the ids and numbers of a text, each once, in order.

    Args:
        text: any text; only the beginning of a very long one is searched.
        most: maximum number.
    """
    found: dict[str, None] = {}
    for hit in compile_pattern(_ID).finditer(text[:_MOST_SEARCHED]):
        found[hit[0]] = None
        if len(found) == most:
            break
    return tuple(found)


def extract_sentences(text: str, room: int) -> str:
    """Return the sentences of a text that fit a budget, in order.

    The first one and those with an id or a number have precedence.

    Args:
        text: any text.
        room: maximum number of characters.
    """
    text = text.strip()
    if len(text) <= room:
        return text
    sentences = [part.strip() for part in compile_pattern(_SENTENCE).split(text[:_MOST_SEARCHED]) if part.strip()]
    order = sorted(range(len(sentences)), key=lambda at: (at > 0 and not find_ids(sentences[at], 1), at))
    kept: set[int] = set()
    left = room
    for at in order:
        if len(sentences[at]) + 3 <= left:
            kept.add(at)
            left -= len(sentences[at]) + 3
    if not kept:
        return text[: room - 1] + "…"
    parts: list[str] = []
    for at in range(len(sentences)):
        if at in kept:
            parts.append(sentences[at])
        elif not parts or parts[-1] != "…":
            parts.append("…")
    return " ".join(parts)


def note_lines(group: MessageGroup, *, labelled: bool = False) -> list[NoteLine]:
    """Return the lines of a note for a group.

    Args:
        group: the group.
        labelled: as for `is_tool_answer`.
    """
    lines: list[NoteLine] = []
    answers = {result.call.id: result for result in group.results}
    carriers = {result.message for result in group.results if result.block is not None}
    for place, message in enumerate(group.messages):
        role, text = role_of(message), _text_without_notes(message)
        if place in carriers:
            role = "user"  # Anthropic: the user's words follow the results
        if role == "user" and output_tool(text):
            lines.extend(_output_line(part, labelled=labelled) for part in compile_pattern(_NEXT_OUTPUT).split(text))
        elif text and role in _MOST_SAID:
            lines.append(_text_line(role, text))
        lines.extend(_call_line(call, answers.get(call.id), labelled=labelled) for call in calls_in(message))
    return lines


def _text_without_notes(message: Any) -> str:
    """Return the text of a message, without notes."""
    content = read_field(message, "content")
    if isinstance(message, str) or isinstance(content, str):
        text = text_of(message)
        return "" if is_note(text) else text
    return text_of({"content": [block for block in as_sequence(content) if not is_note(block)]}).strip()


def _text_line(role: str, text: str) -> NoteLine:
    said = extract_sentences(text, _MOST_SAID[role])
    return NoteLine(f"{role}: {quote_json(said)}", find_ids(text), first=role in {"user", "system"})


def _call_line(call: MessageCall, result: GroupResult | None, *, labelled: bool) -> NoteLine:
    """Return the line of a call: its name, arguments, result, and the ids in its output."""
    arguments, text = parse_arguments(call.arguments)
    said = quote_json(arguments) if len(text) <= _MOST_ARGUMENTS else quote_json(text[: _MOST_ARGUMENTS - 1] + "…")
    line = f"call: {quote_json(call.name)} {said}"
    if result is None or not result.known:
        return NoteLine(f"{line}, no answer", find_ids(text))
    answer = answer_text(result.content) or ""
    became = _describe_result(answer, failed=result.failed, labelled=labelled)
    return NoteLine(line + became, unique_texts((*find_ids(text), *output_ids(answer, _MOST_SHOWN))))


def _output_line(output: str, *, labelled: bool) -> NoteLine:
    """Return the line of an output in a chat without tool calls; only its label names the tool."""
    became = _describe_result(output, failed=False, labelled=labelled)
    return NoteLine(f"call: {quote_json(output_tool(output))}{became}", output_ids(output, _MOST_SHOWN))


def _describe_result(answer: str, *, failed: bool, labelled: bool) -> str:
    """Return the result of a call; a refusal or failure in its own words."""
    if answer.startswith(SUPERSEDED) or is_tool_answer(answer, failed=failed, labelled=labelled):
        shown = output_ids(answer, _MOST_SHOWN)
        return ", answered" + (f", shows {quote_json(shown)}" if shown else "")
    # Only these words say whether it failed, waits or is in doubt.
    words = extract_sentences(compile_pattern(_FRAMES).sub("", answer), _MOST_ANSWERED)
    return (", said" if labelled else ", failed") + (f": {quote_json(words)}" if words else "")


def output_tool(text: str) -> str:
    """Return the tool of a text that begins as an output, else ""."""
    found = compile_pattern(_TOOL).match(output_label(text)) if text.startswith("<tool_output ") else None
    return found[1] if found else ""


def output_label(text: str) -> str:
    """Return the label of an output, also after a sentence about it; "" if there is none."""
    found = compile_pattern(_LABEL).search(text[:_BEFORE_LABEL])
    return found[1] if found else ""


def output_trust(text: str) -> str:
    """Return the trust in the label of an output: `checked`, `error`, ...; "" without one."""
    found = compile_pattern(_TRUSTS).search(output_label(text))
    return found[1] if found else ""


def output_ids(answer: str, most: int = _MOST_FROM_TEXT) -> tuple[str, ...]:
    """Return the ids and numbers of an output, without those of its label and of the hint how to read on."""
    if found := compile_pattern(_LABEL).search(answer[:_BEFORE_LABEL]):
        answer = answer[found.end() :].partition("\n</tool_output>")[0]
    return find_ids(answer, most)


def parse_arguments(arguments: Any) -> tuple[Any, str]:
    """Return arguments as a value and as compact JSON; a text that is not JSON is its own value."""
    if isinstance(arguments, (str, bytes)):
        try:
            value, dumped = parse(arguments)
        except StrictError:
            text = arguments if isinstance(arguments, str) else arguments.decode("utf-8", "replace")
            return text, text
        return value, dumped.decode()
    try:
        return arguments, dump_foreign(arguments).decode()
    except (TypeError, ValueError, RecursionError):  # a framework's own objects
        return UNREADABLE, UNREADABLE


def has_output_label(text: str) -> bool:
    """Return whether a result has the label of every guarded output."""
    return bool(output_trust(text)) and output_trust(text) != "error"


def is_tool_answer(text: str, *, failed: bool, labelled: bool) -> bool:
    """Return whether a text is a tool's output, and not a refusal, a failure or a doubt.

    Args:
        text: the result.
        failed: True if the message marks it as failed.
        labelled: True if outputs of this history have labels: then a text without one is a guard's own sentence.
            Without labels only the beginning of the text decides.
    """
    if failed:
        return False
    if output_label(text):
        return output_trust(text) not in _BAD_TRUST
    begins = text[:200].lstrip().lower()
    return not labelled and not begins.startswith(("error", '{"error"', '{"ok":false', '{"ok": false'))


def select_lines(lines: list[NoteLine], most: int) -> list[NoteLine]:
    """Return a number of lines in order: half of them for the user and the host, then the newest of the rest.

    Args:
        lines: all lines.
        most: maximum number.
    """
    if len(lines) <= most:
        return lines
    places = range(len(lines) - 1, -1, -1)
    kept = set([at for at in places if lines[at].first][: most // 2])
    kept.update([at for at in places if at not in kept][: most - len(kept)])
    return [line for at, line in enumerate(lines) if at in kept]


def ids_not_shown(ids: Sequence[str], shown: str, most: int) -> tuple[str, ...]:
    """Return the newest ids and numbers that a text does not show, oldest first.

    Args:
        ids: all of them, each once, oldest first.
        shown: the shown text.
        most: maximum number.
    """
    newest = tuple(islice((one for one in reversed(ids) if one not in shown), most))
    return newest[::-1]
