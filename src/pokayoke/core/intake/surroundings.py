"""Judges the text around an object: fences, tags, sentences, or parts of the object itself.

In: the text before and after an object, and the declared arguments.
Out: the object's offset and the repairs, or a refusal.
Never: judge by the words of a language; take a text with a structural sign for prose: the rest of a cut longer value
looks like prose around a shorter one.
"""

from __future__ import annotations

import re

from pokayoke.core.intake.reader import LenientReader
from pokayoke.core.intake.tokens import LEFT_OUT, TextRefused

_TAG = re.compile(
    r"</?[A-Za-z_][\w:.-]{0,60}(?:[ =][\w:.\"'=/ -]{0,80})?>|<[|｜][\w▁:. /-]{1,60}[|｜]>|\[/?[A-Z][A-Z_]{2,30}\]"
    r"|◁/?think▷"
)
PARAMETER = re.compile(
    r"<(?:[\w.｜-]{1,40}[:｜])?(?:param|parameter|argument)(?:\s*=|\s+name\b)|<arg_(?:key|value)\b", re.IGNORECASE
).search
"""A tag around one argument: its content is not the whole object."""
_FENCE = re.compile(r"`{3,}[A-Za-z0-9_+-]{0,20}|\A`(?!`)|(?<!`)`\Z")
_SIGNS = re.compile(r"[{}\[\]]")
KEY_START = re.compile(r"""\s*+(?:"[^"\\\x00-\x1f]*+"|'[^'\\\x00-\x1f]*+')\s*+:""").match
_LABEL = re.compile(r"(?:\A|\n)[ \t]*([\"']?)([\w.$-]+)\1[ \t]*[:=][ \t]*\Z").search
_MEMBER = re.compile(
    r"^[ \t]*([\"']?)[\w.$-]+\1[ \t]*[:=][ \t]*(?:[\"'\d-]|true\b|false\b|null\b)", re.MULTILINE
).search
"""A line in the form of a member: a name, a sign, a value."""
_KEY_END = re.compile(r"\"[ \t]*+:").search
"""The end of a key, at any beginning."""
_LITERAL = re.compile(r"\d|[\"“”„«»「」『』`]|(?<!\w)['‘]\w|->|=>|[=→⇒]").search
"""What may be another value in a text behind the object: a digit, a quotation, an arrow."""
_WORDS = re.compile(r"[A-Z]*[a-z0-9]++|[A-Z0-9]++|[^\W_A-Za-z0-9]").findall
"""The words of a text or a name. A letter of another alphabet counts as one, as not all put spaces between words."""
_TAG_NAMES = re.compile(r"<([\w.$-]{1,60})>").findall
_GLUED_WORD = re.compile(r"\.\w").match
_ASIDE = (
    r"(?:[\w.-]{1,40}:)?(?i:think(?:ing)?|thoughts?|reasoning|reflection|scratch_?pad|inner_monologue"
    r"|(?:available_)?tools|examples?|drafts?|del|strike|blockquote"
    r"|tool_(?:response|results?|output)|function_(?:response|results?))"
)
_ASIDE_MARK = r"(?:TOOL_RESULTS|AVAILABLE_TOOLS|THINK)\]"
ASIDE_OPENS = rf"<{_ASIDE}(?:\s[^<>]{{0,200}})?>|\[{_ASIDE_MARK}|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>"
"""Signs of text without calls: thoughts, lists of tools, examples, quotations, struck-out text, tools' answers."""
ASIDE_CLOSES = rf"</{_ASIDE}\s{{0,9}}>|\[/{_ASIDE_MARK}|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>"
_ASIDES = re.compile(rf"{ASIDE_OPENS}|({ASIDE_CLOSES})").findall
"""Each of them; "" for one that opens."""
_OPEN_ENDS = tuple(",([{\"'=\\")
_GLUED_FENCE = "json"
"""What is left of a fence that lost its signs."""


def find_object(reader: LenientReader, names: frozenset[str]) -> tuple[int, bool]:
    """Return the offset of the object, and True if its opening brace is missing.

    The offset is that of the opening brace, of the first key if the brace is missing, or of
    a value that is not an object.

    Raises:
        TextRefused: there is no value, or the text before it may belong to it.
    """
    text = reader.text
    if text.startswith("\ufeff"):
        reader.record_repair("byte_order_mark")
    start = reader.skip_space(1 if text.startswith("\ufeff") else 0)
    sign = text[start : start + 1]
    if sign == "{":
        return start, False
    if KEY_START(text, start):
        return start, True
    brace = text.find("{", start)
    bracket = text.find("[", start)
    if sign and sign in "\"'“‘" and (brace == start + 1 or not _has_balanced_quotes(text, start, brace)):
        return start, False
    if brace < 0:
        if sign == "[":
            return start, False
        raise TextRefused("no_object", start)
    before = text[start:brace]
    stripped = _strip_and_record(reader, before)
    if 0 <= bracket < brace and _SIGNS.search(stripped):
        if sign == "[":
            return start, False
        raise TextRefused("trailing_text", bracket)
    if (signs := _ASIDES(before)) and not signs[-1]:
        raise TextRefused("quoted", brace)
    _check_before(reader, stripped, brace, names)
    return brace, False


def mentions_name(around: str, names: frozenset[str]) -> bool:
    """Return whether a text has one of some names in it, in any spelling and language, or a tag with such a name."""
    words = f" {' '.join(_WORDS(strip_markup(around)[0]))} ".casefold()
    return not names.isdisjoint(_TAG_NAMES(around)) or any(
        f" {' '.join(_WORDS(name))} ".casefold() in words for name in names
    )


def _has_balanced_quotes(text: str, start: int, brace: int) -> bool:
    """Return whether the text before the brace may be a sentence that begins with a quoted word."""
    return brace > 0 and text.count('"', start, brace) % 2 == 0 and "\\" not in text[start:brace]


def strip_markup(around: str) -> tuple[str, tuple[str, ...]]:
    """Remove tags and fences; return the remaining sentences and the names of the repairs."""
    repairs: tuple[str, ...] = ()
    plain = around.strip()
    if "<" in plain or "[" in plain:
        plain, tags = _TAG.subn("\n", plain)
        plain, repairs = plain.strip(), ("tags",) * (tags > 0)
    if "`" in plain:
        plain, fences = _FENCE.subn("\n", plain)
        plain, repairs = plain.strip(), (*repairs, *("code_fence",) * (fences > 0))
    return plain, repairs


def _strip_and_record(reader: LenientReader, around: str) -> str:
    """Remove tags and fences, and record the repairs.

    Raises:
        TextRefused: a tag shows that the object is one argument of several.
    """
    if found := PARAMETER(around):
        raise TextRefused("trailing_text", reader.text.index(found[0]))
    stripped, repairs = strip_markup(around)
    for name in repairs:
        reader.record_repair(name)
    return stripped


def _check_before(reader: LenientReader, stripped: str, brace: int, names: frozenset[str]) -> None:
    """Refuse a text before the object that may belong to it."""
    if not stripped:
        return
    last = reader.text[brace - 1]
    if stripped == _GLUED_FENCE and last.isalnum() and _GLUED_FENCE not in names:
        reader.record_repair("code_fence")
        return
    if _SIGNS.search(stripped) or stripped.endswith(_OPEN_ENDS) or last.isalnum() or stripped.count('"') % 2:
        raise TextRefused("trailing_text", brace)
    label = _LABEL(stripped)
    if label and (label[1] or not names or mentions_name(label[2], names)):  # without names it may be a member's
        raise TextRefused("trailing_text", brace)
    if stripped.endswith(('":', "':")) or _MEMBER(stripped) or _KEY_END(stripped):
        raise TextRefused("trailing_text", brace)
    reader.record_repair("prose")


def check_after(reader: LenientReader, end: int) -> int | None:
    """Check the text after the object; return the offset of a single surplus brace, if there is one.

    Raises:
        TextRefused: the text may belong to the object, or is another one.
    """
    text = reader.text
    if reader.unclosed or end == len(text):
        return None
    after, end = end, reader.skip_space(end)
    stripped = _strip_and_record(reader, text[end:])
    if stripped == "}":
        return text.index("}", end)
    if _SIGNS.search(stripped):
        other = text.find("{", end)
        raise TextRefused("several_values" if other >= 0 else "trailing_text", other if other >= 0 else end)
    if stripped.startswith(LEFT_OUT):
        raise TextRefused("ellipsis", end)
    if _LITERAL(strip_markup(text[after:])[0]):  # comments too
        raise TextRefused("trailing_text", end)
    if not stripped or stripped == ";":
        return None
    goes_on = text[end] not in ".;!<`" or _GLUED_WORD(text, end)
    if text[end] in ",:'‘" or (goes_on and "\n" not in text[after:end]):  # on the same line
        raise TextRefused("trailing_text", end)
    reader.record_repair("prose")
    return None
