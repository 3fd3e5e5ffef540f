"""What a note quotes: the words of the user, what the model said, each call and what became of it.

Nothing is rephrased. A long text is quoted in whole sentences, first those that decide something or name
a number; ids and numbers are taken over as they stand. The same text always gives the same quotation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pokayoke.core.context.groups import Group, Result, answer_text
from pokayoke.core.context.note import is_note, quoted, unique
from pokayoke.core.json.strict import StrictError, dump_foreign, parse
from pokayoke.core.messages.messages import Asked, calls_in, field, items, role_of, text_of
from pokayoke.core.text.rare import rare

_MOST_SAID = {"user": 400, "system": 400, "assistant": 200}  # characters quoted of a text
_MOST_ARGUMENTS = 200
_MOST_ANSWERED = 200
_MOST_SHOWN = 8  # ids and numbers taken over from one result
_MOST_FROM_TEXT = 24
_LOOKED_AT = 8_000  # characters of a text in which ids are looked for
UNREADABLE = "(arguments that are no JSON)"
"""What stands for arguments of a framework's own kind."""
FIRST = ("user: ", "system: ")
"""How the lines begin that are kept longest."""
SUPERSEDED = "[Superseded: the same call has a later result further down."
"""How a result begins of which only the ids were kept."""

_LABEL = r"(?:^|\n)(<tool_output [^\n]*>)\n"
_FRAMES = r"(?m)^<tool_output [^\n]*>$|^</tool_output>$"
_TOOL = r'<tool_output tool="([^"]+)"'
_NEXT_OUTPUT = r"\n(?=<tool_output )"
_TRUSTS = r' trust="(\w+)"'
_BEFORE_LABEL = 1_000  # characters: our own sentences are shorter
_BAD = frozenset({"error", "degraded"})

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
        first: True for lines that are kept longest: what the user and the host said.
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


def lines_of(group: Group, *, labelled: bool = False) -> list[Line]:
    """Return what a note says about a group.

    Args:
        group: the group.
        labelled: as for `is_good`.
    """
    lines: list[Line] = []
    answers = {result.call.id: result for result in group.results}
    carriers = {result.message for result in group.results if result.block is not None}
    for place, message in enumerate(group.messages):
        role, text = role_of(message), _said(message)
        if place in carriers:
            role = "user"  # Anthropic: what the user said stands behind the results
        if role == "user" and tool_in(text):
            lines.extend(_output_line(part, labelled=labelled) for part in rare(_NEXT_OUTPUT).split(text))
        elif text and role in _MOST_SAID:
            lines.append(_line(role, text))
        lines.extend(_call_line(call, answers.get(call.id), labelled=labelled) for call in calls_in(message))
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
    return Line(f"{role}: {quoted(said)}", ids_in(text), first=role in {"user", "system"})


def _call_line(call: Asked, result: Result | None, *, labelled: bool) -> Line:
    """Return the line of a call: its name, its arguments, what became of it, and the ids that it showed."""
    arguments, text = plain(call.arguments)
    said = quoted(arguments) if len(text) <= _MOST_ARGUMENTS else quoted(text[: _MOST_ARGUMENTS - 1] + "…")
    line = f"call: {quoted(call.name)} {said}"
    if result is None or not result.known:
        return Line(f"{line}, no answer", ids_in(text))
    answer = answer_text(result.content) or ""
    became = _became(answer, failed=result.failed, labelled=labelled)
    return Line(line + became, unique((*ids_in(text), *shown_in(answer, _MOST_SHOWN))))


def _output_line(output: str, *, labelled: bool) -> Line:
    """Return the line of an output in a chat without tool calls: nobody but its label says whose it is."""
    became = _became(output, failed=False, labelled=labelled)
    return Line(f"call: {quoted(tool_in(output))}{became}", shown_in(output, _MOST_SHOWN))


def _became(answer: str, *, failed: bool, labelled: bool) -> str:
    """Say what became of a call; of what is no result in its own words."""
    if answer.startswith(SUPERSEDED) or is_good(answer, failed=failed, labelled=labelled):
        shown = shown_in(answer, _MOST_SHOWN)
        return ", answered" + (f", shows {quoted(shown)}" if shown else "")
    # They say whether it failed, waits or is in doubt, which can be told from nothing else.
    words = gist(rare(_FRAMES).sub("", answer), _MOST_ANSWERED)
    return (", said" if labelled else ", failed") + (f": {quoted(words)}" if words else "")


def tool_in(text: str) -> str:
    """Return whose output a text is, if it begins as one; "" if not."""
    found = rare(_TOOL).match(label_in(text)) if text.startswith("<tool_output ") else None
    return found[1] if found else ""


def label_in(text: str) -> str:
    """Return the label of an output, also behind what was said about it; "" if there is none."""
    found = rare(_LABEL).search(text[:_BEFORE_LABEL])
    return found[1] if found else ""


def trust_in(text: str) -> str:
    """Return what the label of an output says of it: `checked`, `error`, ...; "" if nothing does."""
    found = rare(_TRUSTS).search(label_in(text))
    return found[1] if found else ""


def shown_in(answer: str, most: int = _MOST_FROM_TEXT) -> tuple[str, ...]:
    """Return the ids and numbers that an output shows, not those of its label or of how to read on."""
    if found := rare(_LABEL).search(answer[:_BEFORE_LABEL]):
        answer = answer[found.end() :].partition("\n</tool_output>")[0]
    return ids_in(answer, most)


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


def is_labelled(text: str) -> bool:
    """Tell whether a result carries the label that every output of a guarded tool has."""
    return bool(trust_in(text)) and trust_in(text) != "error"


def is_good(text: str, *, failed: bool, labelled: bool) -> bool:
    """Tell whether a text is a tool's answer, and not a refusal, a failure or a doubt.

    Args:
        text: the result.
        failed: True if the message itself says that it is none.
        labelled: True if outputs of this history carry labels: then what has none is a guard's own sentence.
            Without labels it can only be seen from how the text begins.
    """
    if failed:
        return False
    if label_in(text):
        return trust_in(text) not in _BAD
    begins = text[:200].lstrip().lower()
    return not labelled and not begins.startswith(("error", '{"error"', '{"ok":false', '{"ok": false'))


def chosen(lines: list[Line], most: int) -> list[Line]:
    """Return so many lines in their order: half of them for what user and host said, then the newest of the rest.

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
