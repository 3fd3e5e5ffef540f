"""What a note quotes: the words of the user, what the model said, each call and what became of it.

Nothing is rephrased. A long text is quoted in whole sentences, first those that decide something or name
a number; ids and numbers are taken over as they stand. The same text always gives the same quotation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pokayoke.core.context.groups import Group, answer_text
from pokayoke.core.context.note import is_note, quoted, unique
from pokayoke.core.messages import Asked, calls_in, field, items, role_of, text_of
from pokayoke.core.rare import rare
from pokayoke.core.strict import StrictError, dump_foreign, parse

_MOST_SAID = {"user": 400, "system": 400, "assistant": 200}  # characters quoted of a text
_MOST_ARGUMENTS = 200
_MOST_SHOWN = 8  # ids and numbers taken over from one result
_MOST_FROM_TEXT = 24
_LOOKED_AT = 8_000  # characters of a text in which ids are looked for
UNREADABLE = "(arguments that are no JSON)"
"""What stands for arguments of a framework's own kind."""

# A word with a digit in it: numbers, dates, order numbers, versions, UUIDs; and addresses of mail. What stands in
# front decides fast: no word begins behind a letter, and one without a digit or @ is passed over at once.
_ID = (
    r"(?<![^\W_])(?=[\w.:/@#+-]{0,79}?(?:\d|@[^\W_]))"
    r"(?:\d{1,3}(?:[.,]\d{3})*,\d+(?![^\W_])|[^\W_][\w.:/@#+-]{0,78}[^\W_]|\d)"
)
_SENTENCE = r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+"
_DECIDES = (
    r"(?i)\b(?:not|never|no|must|only|always|don't|cannot|can't|won't|instead|cancel\w*|confirm\w*|approv\w*|decid\w*|"
    r"agreed?|refus\w*|allow\w*|forbid\w*|deadline|nicht|nie|kein\w*|nur|muss|immer|statt|storn\w*|bestätig\w*|genehmig\w*|"
    r"pas|jamais|seulement|toujours|annul\w*)\b|不|只|必须|取消|确认|同意|拒绝"
)


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line of a note.

    Attributes:
        text: the line.
        ids: ids and numbers of what it stands for.
        first: True for lines that are kept longest: what the user said.
    """

    text: str
    ids: tuple[str, ...]
    first: bool = False


def ids_in(text: str, most: int = _MOST_FROM_TEXT) -> tuple[str, ...]:
    """Return the ids and numbers of a text, once each, in order.

    Args:
        text: any text; only its beginning is looked at if it is very long.
        most: how many at most.
    """
    found: dict[str, None] = {}
    for hit in rare(_ID).finditer(text[:_LOOKED_AT]):
        found[hit[0]] = None
        if len(found) == most:
            break
    return tuple(found)


def gist(text: str, room: int) -> str:
    """Return a text in whole sentences that fit a room, in their order; what decides or names a number comes first.

    Args:
        text: any text.
        room: most characters.
    """
    text = text.strip()
    if len(text) <= room:
        return text
    sentences = [part.strip() for part in rare(_SENTENCE).split(text[:_LOOKED_AT]) if part.strip()]
    order = sorted(range(len(sentences)), key=lambda at: (-_weight(sentences[at], at), at))
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


def _weight(sentence: str, at: int) -> int:
    """Return how much a sentence is worth quoting."""
    return 2 * bool(rare(_DECIDES).search(sentence)) + bool(ids_in(sentence, 1)) + (at == 0)


def lines_of(group: Group) -> list[Line]:
    """Return what a note says about a group."""
    lines: list[Line] = []
    answers = {result.call.id: result for result in group.results}
    carriers = {result.message for result in group.results if result.block is not None}
    for place, message in enumerate(group.messages):
        role, text = role_of(message), _said(message)
        if place in carriers:
            role = "user"  # Anthropic: what the user said stands behind the results
        if text and role in _MOST_SAID:
            lines.append(_line(role, text))
        lines.extend(_call_line(call, answers.get(call.id)) for call in calls_in(message))
    return lines


def _said(message: Any) -> str:
    """Return the words of a message, without our own notes."""
    content = field(message, "content")
    if isinstance(message, str) or isinstance(content, str):
        text = text_of(message)
        return "" if is_note(text) else text
    return text_of({"content": [block for block in items(content) if not is_note(block)]}).strip()


def _line(role: str, text: str) -> Line:
    said = gist(text, _MOST_SAID[role])
    return Line(f"{role}: {quoted(said)}", ids_in(text), first=role == "user")


def _call_line(call: Asked, result: Any) -> Line:
    """Return the line of a call: its name, its arguments, what became of it, and the ids that it showed."""
    arguments, text = plain(call.arguments)
    said = quoted(arguments) if len(text) <= _MOST_ARGUMENTS else quoted(text[: _MOST_ARGUMENTS - 1] + "…")
    line = f"call: {quoted(call.name)} {said}"
    shown: tuple[str, ...] = ()
    if result is None or not result.known:
        line += ", no answer"
    else:
        answer = answer_text(result.content) or ""
        shown = ids_in(_unlabelled(answer), _MOST_SHOWN)
        line += ", failed" if seems_failed(result.failed, answer) else ", answered"
        line += f", shows {quoted(shown)}" if shown else ""
    return Line(line, unique((*ids_in(text), *shown)))


def _unlabelled(answer: str) -> str:
    """Return an output without what was written around it: its label, and how to read on."""
    if not answer.startswith("<tool_output "):
        return answer
    return answer.partition("\n")[2].rpartition("\n</tool_output>")[0]


def plain(arguments: Any) -> tuple[Any, str]:
    """Return arguments as a value and as compact JSON; text that is no JSON is its own value."""
    if isinstance(arguments, (str, bytes)):
        try:
            value, dumped = parse(arguments)
        except StrictError:
            text = arguments if isinstance(arguments, str) else arguments.decode("utf-8", "replace")
            return text, text
        return value, dumped.decode()
    try:
        return arguments, dump_foreign(arguments).decode()
    except (TypeError, ValueError, RecursionError):  # not JSON: a framework's own objects
        return UNREADABLE, UNREADABLE


def seems_failed(declared: bool, text: str) -> bool:
    """Tell whether a result is a failure: the message says so, or its text begins like one."""
    head = text[:200].lstrip().lower()
    return declared or head.startswith(("error", '{"error"', '{"ok":false', '{"ok": false')) or 'trust="error"' in head


def chosen(lines: list[Line], most: int) -> list[Line]:
    """Return so many lines in their order: half of them for what the user said, then the newest of the rest.

    Args:
        lines: all lines.
        most: how many at most.
    """
    if len(lines) <= most:
        return lines
    places = range(len(lines) - 1, -1, -1)
    kept = set([at for at in places if lines[at].first][: most // 2])
    kept.update([at for at in places if at not in kept][: most - len(kept)])
    return [line for at, line in enumerate(lines) if at in kept]


def unseen(lines: Iterable[Line], shown: str, before: Iterable[str]) -> tuple[str, ...]:
    """Return the ids and numbers that stand in no shown line, oldest first.

    Args:
        lines: all lines.
        shown: the text that is shown.
        before: ids of an earlier note.
    """
    return tuple(one for one in unique((*before, *(one for line in lines for one in line.ids))) if one not in shown)
