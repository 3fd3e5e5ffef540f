"""Judges the text around an object: fences, tags, sentences, or parts of the object itself.

In: the text before and after an object, and the declared arguments.
Out: the object's offset and the repairs, or a refusal.
Never: take a text with a structural sign for prose: the rest of a cut longer value looks like prose around a shorter
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from pokayoke.core.intake.reader import LenientReader
from pokayoke.core.intake.tokens import OMISSION, TextRefused

_TAG = re.compile(
    r"</?[A-Za-z_][\w:.-]{0,60}(?:[ =][\w:.\"'=/ -]{0,80})?>|<[|｜][\w▁:. /-]{1,60}[|｜]>|\[/?[A-Z][A-Z_]{2,30}\]"
    r"|◁/?think▷"
)
PARAMETER = re.compile(
    r"<(?:[\w.｜-]{1,40}[:｜])?(?:param|parameter|argument)(?:\s*=|\s+name\b)|<arg_(?:key|value)\b", re.IGNORECASE
).search
"""A tag around one argument: its content is not the whole object."""
_NAME = re.compile(r"[A-Za-z_$][\w.$-]*+")
_FENCE = re.compile(r"`{3,}[A-Za-z0-9_+-]{0,20}|\A`(?!`)|(?<!`)`\Z")
_SIGNS = re.compile(r"[{}\[\]]")
KEY_START = re.compile(r"""\s*+(?:"[^"\\\x00-\x1f]*+"|'[^'\\\x00-\x1f]*+')\s*+:""").match
_LABEL = re.compile(r"(?:\A|\n)[ \t]*([\"']?)([\w.$-]+)\1[ \t]*[:=][ \t]*\Z").search
_NEUTRAL_LABELS = frozenset({"args", "arguments", "here", "json"})
_PROVEN_LABELS = _NEUTRAL_LABELS | {"data", "input", "parameters", "params"}
"""With labels that may also be names of arguments, where these are unknown; `data:` is also the prefix of server-sent
events."""
_MEMBER = re.compile(
    r"^[ \t]*([\"']?)[\w.$-]+\1[ \t]*[:=][ \t]*(?:[\"'\d-]|true\b|false\b|null\b)", re.MULTILINE
).search
"""A line in the form of a member: a name, a sign, a value."""
_KEY_END = re.compile(r"\"[ \t]*+:").search
"""The end of a key, at any beginning."""
_LABEL_LINES = re.compile(r"^[ \t]*(?:[-*][ \t]+)?([\"'`]?)([\w.$-]+)\1[ \t]*[:=]", re.MULTILINE).finditer
"""Lines that begin with a name and a sign, whatever follows."""
_GIVEN_WORDS = re.compile(
    r"(?<![\w$-])([A-Za-z_$][\w$-]*+)(?=[^\w\n]{0,8}[|>=:][^\w\n]{0,8}[\w\"']"
    r"|\W{1,8}(?:[A-Za-z]{1,12}\W{1,3}){0,2}(?:\d|[\"'“‘`]\w|(?:true|false|null|none)\b))"
).findall
"""Words with a statement about them: a sign and a word follow, or a number or a quotation within two words."""
_SETTING = re.compile(
    r"\b(?:set|setting|with|use|using|change|make|replace|edit)\s++(?:the\s++)?([a-z_$][\w$-]*+)"
    r"\s++(?:to|as|of|be|with|by|should be|must be)\s++\w|(?<![\w$-])([a-z_$][\w$-]*+)(?:\s++(?:should"
    r"|must) be\s++\w|\s*+[→⇒])",
).findall
"""Words that are set to something, even a bare word."""
_OPTION = re.compile(
    r"(?<![\w$-])--([a-z_$][\w$-]*+)[ =]\S|^[^\w\n]{0,8}([a-z_$][\w$-]*+)[^\w\n]{0,8}\n\W{0,8}\w"
    r"|^[^\w\n]{0,8}(?:\d{1,3}\W )?(?:(?:the|and) )?([a-z_$][\w$-]*+) (?:is|are|[-–—])"
    r" (?!(?:optional|required|mandatory|missing|(?:un)?known|not|now|already|given|set|(?:in)?valid|needed"
    r"|empty)\b)\w"
    r"|^[^\w\n]{0,8}(?:with|plus|and) ([a-z_$][\w$-]*+) [\w(]",
    re.MULTILINE,
).findall
"""Words written as options, alone on a line with a text below, or first in a line that describes them."""
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
DENIED = r"(?:do not|don['’]t|will not|won['’]t|must not|mustn['’]t|should not|shouldn['’]t|never)"
_OF_OTHERS = r"(?:worry|hesitate|know(?! (?:if|whether))|have(?! to)|(?:want to )?(?:guess|assume))\b"
"""Verbs that never refer to an object next to them: `don't worry`."""
_DENIAL = re.compile(
    rf"\b(?:{DENIED}(?!\s+{_OF_OTHERS})|(?:instead of|rather than)(?!\s+(?:guess|assum)))\b", re.IGNORECASE
).search
"""Words before an object which say that it is not to be sent."""
IS_WRONG = r"(?: (?:is|was)|['’]s) (?:wrong|incorrect|not (?:right|correct)|a mistake)"
_RETRACTION = re.compile(
    rf"\b(?:{DENIED}(?!\s+{_OF_OTHERS})|(?<!the )wait(?! (?:while|for (?:the|its|an?)(?: tool['’]s)? (?:result"
    rf"|answer|response|output))\b)"
    r"|oops|correction|scratch that|never ?mind"
    r"|i meant?|actually|instead|on second thoughts?|no(?=[,!])|sorry(?! for the (?:wait|delay)(?:[.!]|\Z))"
    r"|(?:should|must|ha[sd] to|needs? to) (?:be|have|say|read)|disregard|ignore (?:that|this|the)"
    rf"|(?:that|this|it|above|value){IS_WRONG}|made a mistake|let me (?:redo|fix|correct|change))\b",
    re.IGNORECASE,
).search
"""Words after an object that change it or take it back."""
_NEAR, _HEADING = 200, 2
_OPEN_ENDS = tuple(",([{\"'=\\")


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


def is_argument_label(before: str, names: frozenset[str]) -> bool:
    """Return whether the line before an object is a heading or a tag with the name of one argument.

    Args:
        before: the text before the object, comments included.
        names: the declared arguments.
    """
    words = _NAME.findall(before[-_NEAR:].rstrip().rpartition("\n")[2])
    return 0 < len(words) <= _HEADING and not names.isdisjoint(words)


def gives_missing_argument(around: str, names: frozenset[str], present: Iterable[str]) -> bool:
    """Return whether the text on one side of an object gives an argument that the object lacks.

    Args:
        around: the text before or after the object.
        names: the declared arguments; a tag with such a name means that they were given one by one.
        present: the arguments in the object.
    """
    if "<" in around and not names.isdisjoint(_TAG_NAMES(around)):
        return True
    absent = {name.lower() for name in names.difference(present)}
    plain = strip_markup(around)[0].lower() if absent else ""
    if not plain:
        return False
    for name in absent:
        if "_" in name:  # a sentence has spaces there
            plain = plain.replace(name.replace("_", " "), name)
    if not any(name in plain for name in absent):
        return False
    return not absent.isdisjoint((*_GIVEN_WORDS(plain), *chain(*_SETTING(plain), *_OPTION(plain))))


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
    if _SIGNS.search(stripped) or stripped.endswith(_OPEN_ENDS) or last.isalnum() or stripped.count('"') % 2:
        raise TextRefused("trailing_text", brace)
    label = _LABEL(stripped)
    neutral = _PROVEN_LABELS if names else _NEUTRAL_LABELS
    if label and (label[1] or label[2].lower() not in neutral.difference(map(str.lower, names))):
        raise TextRefused("trailing_text", brace)
    if stripped.endswith(('":', "':")) or _has_member_line(stripped, names) or _DENIAL(stripped):
        raise TextRefused("trailing_text", brace)
    reader.record_repair("prose")


def _has_member_line(around: str, names: frozenset[str]) -> bool:
    """Return whether a line is a member of the object: by its form, or by a declared name."""
    return bool(_MEMBER(around) or _KEY_END(around)) or any(found[2] in names for found in _LABEL_LINES(around))


def check_after(reader: LenientReader, end: int, names: frozenset[str]) -> int | None:
    """Check the text after the object; return the offset of a single surplus brace, if there is one.

    Raises:
        TextRefused: the text may belong to the object, or is another one.
    """
    text = reader.text
    if reader.unclosed or end == len(text):
        return None
    after, end = end, reader.skip_space(end)
    stripped = _strip_and_record(reader, text[end:])
    if not stripped or stripped == ";":
        return None
    if stripped == "}":
        return text.index("}", end)
    if _SIGNS.search(stripped) is None and text[end] not in ",:\"'“‘":
        if stripped[0] in ".…" and OMISSION(stripped[:200]):
            raise TextRefused("ellipsis", end)
        if _has_member_line(stripped, names) or _RETRACTION(stripped):
            raise TextRefused("trailing_text", end)
        goes_on = text[end] not in ".;!<`" or _GLUED_WORD(text, end)
        if goes_on and "\n" not in text[after:end]:  # on the same line
            raise TextRefused("trailing_text", end)
        reader.record_repair("prose")
        return None
    other = text.find("{", end)
    raise TextRefused("several_values" if other >= 0 else "trailing_text", other if other >= 0 else end)
