"""Builds a preview of a large value: its shape with lengths and first items, and how to read the rest.

In: a valid value that is too long for a conversation.
Out: a short text that names as many fields as fit, and pages of the whole.
Never: cut inside a JSON value without a mark: the model must not take a part for the whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.values import is_array, is_object, kind_with_article
from pokayoke.core.output.model_text import PREVIEW_WORDS
from pokayoke.core.text.neutralise import neutralise

_SAMPLE_CHARS = 60  # maximum characters of a string
_MAX_DEPTH = 6


class Page(msgspec.Struct, frozen=True):
    """A part of a long text.

    Args:
        text: the part.
        offset: its first character.
        next_offset: first character of the next part; None if this is the last.
        total: length of the whole text in characters.
    """

    text: str
    offset: int
    next_offset: int | None
    total: int


def take_page(canonical_text: str | bytes, offset: int, limit: int) -> Page:
    """Return `limit` characters of a text from `offset` on.

    An offset outside the text gives an empty last page; never raises, as a model chooses the offset.

    Args:
        canonical_text: the whole text, as text or UTF-8.
        offset: first character, from 0.
        limit: maximum number of characters, at least 1.
    """
    text = canonical_text if isinstance(canonical_text, str) else canonical_text.decode()
    start = min(max(offset, 0), len(text))
    end = min(start + max(limit, 1), len(text))
    return Page(text[start:end], start, end if end < len(text) else None, len(text))


def build_preview(
    value: Any,
    canonical: bytes | None = None,
    *,
    handle: str | None,
    max_chars: int = 1_500,
    tool: str = "",
    trust: str = "",
) -> str:
    """Return the shape of an offloaded value, and how to read the rest.

    Args:
        value: a JSON value or text.
        canonical: its compact JSON, if the caller has it.
        handle: the name under which the whole is kept; None if it is not kept.
        max_chars: maximum length in characters; the few lines about the rest always fit.
        tool: the tool's name, for the label.
        trust: the label's trust, if any; as in `result_text`.
    """
    size = len(value) if isinstance(value, str) else len(dump_compact(value) if canonical is None else canonical)
    label = f' tool="{neutralise(tool)[:64]}"' if tool and '"' not in tool else ""
    name = "" if handle is None else f' handle="{handle}"'
    said = f' trust="{trust}"' if trust else ""
    head = f'<tool_output{label}{name}{said} preview="true" chars="{size}">\n'
    rest = (
        f"is kept as {handle}. Read it in pages with this handle and an offset"
        if handle is not None
        else "was left out to save space"
    )
    tail = (
        f"\n</tool_output>{PREVIEW_WORDS}the whole answer ({size} characters) {rest}; do not guess what is not shown."
    )
    room = max(max_chars - len(head) - len(tail), 0)
    if isinstance(value, str):
        body = f"text, {size} characters, begins: {neutralise(value[:room])}"
    else:
        body = "\n".join(_outline_value(value, room))
    return head + _clip_at_line(body, room) + tail


def _clip_at_line(text: str, room: int) -> str:
    """Shorten a preview at a line end, visibly."""
    if len(text) <= room:
        return text
    kept = text[: max(room - 2, 0)]
    return (kept.rpartition("\n")[0] or kept) + "\n…"


def _outline_value(value: Any, room: int) -> list[str]:
    """Return lines that describe a value from the top down, breadth first, within the budget."""
    for depth in range(_MAX_DEPTH, 0, -1):
        lines = _describe_value(value, "", depth, room)
        if sum(map(len, lines)) + len(lines) <= room:
            return lines
    return _describe_value(value, "", 1, room)


def _describe_value(value: Any, indent: str, depth: int, room: int) -> list[str]:
    if is_object(value):
        lines = [f"object, {len(value)} keys"]
        for key, child in value.items():
            # In quotes, so that no key ends its line or precedes a colon like a role.
            name = neutralise(dump_compact(key[:_SAMPLE_CHARS]).decode(), json=True)
            first, *rest = (
                _describe_value(child, indent + "  ", depth - 1, room) if depth > 1 else [_summarise_value(child)]
            )
            lines += [f"{indent}  {name}: {first}", *rest]
            room -= len(lines[-1])
            if room < 0:
                break
        return lines
    if is_array(value):
        lines = [_summarise_value(value)]
        if value and depth > 1:
            first, *rest = _describe_value(value[0], indent + "  ", depth - 1, room)
            lines += [f"{indent}  [0]: {first}", *rest]
        return lines
    return [_summarise_value(value)]


def _summarise_value(value: Any) -> str:
    """Return a value in a few words: kind, length, and a short value itself."""
    if is_object(value):
        return f"object, {len(value)} keys"
    if is_array(value):
        kinds = sorted({_plural_kind(item) for item in value[:1_000]})
        return f"list, {len(value)} items{' of ' + ' or '.join(kinds) if kinds else ''}"
    if isinstance(value, str):
        text = neutralise(dump_compact(value[:_SAMPLE_CHARS]).decode(), json=True)
        return text if len(value) <= _SAMPLE_CHARS else f"{text}… ({len(value)} characters)"
    return dump_compact(value).decode()


def _plural_kind(value: Any) -> str:
    return "null" if value is None else kind_with_article(value).rpartition(" ")[2] + "s"
