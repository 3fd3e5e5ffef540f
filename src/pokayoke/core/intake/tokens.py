"""Patterns of the reader's tokens.

In: a text.
Out: matches.
Never: take more than linear time; repetitions are possessive.
"""

from __future__ import annotations

import re

from pokayoke.core.intake.reading import REFUSALS

_ODD_SPACES = (
    "\x0b\x0c\x85\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u2066-\u2069\u3000\ufeff"
)
"""Spaces that JSON does not know, and invisible signs, such as those for the direction of writing."""
NAME = r"[A-Za-z_][\w.-]{0,127}"
"""A tool's name in a call."""
_PLAIN = r'[^"\\\x00-\x1f]*+'
_PLAIN_SINGLE = r"[^'\\\x00-\x1f]*+"
_SCALAR = (
    rf"(?:\"({_PLAIN})\"|'({_PLAIN_SINGLE})'"
    r"|(-?(?:0|[1-9][0-9]{0,17}+)(?![0-9.eE]))"
    r"|(-?(?:0|[1-9][0-9]{0,300}+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)"
    r"|(true|false|null|True|False|None))"
)

PAIR = re.compile(
    rf"[ \t\n\r]*+(?:\"({_PLAIN})\"|'({_PLAIN_SINGLE})')[ \t\n\r]*+:[ \t\n\r]*+{_SCALAR}[ \t\n\r]*+([,}}])"
).match
"""A complete member with a scalar value, and the separator after it: strict JSON or Python syntax."""
ITEM = re.compile(rf"[ \t\n\r]*+{_SCALAR}[ \t\n\r]*+([,\]])").match
"""A complete scalar item, and the separator after it."""

SPACE = re.compile(r"[ \t\n\r]*+").match
ANY_SPACE = re.compile(rf"[ \t\n\r{_ODD_SPACES}]*+").match
ODD_SPACE = re.compile(rf"[{_ODD_SPACES}]").search
NUMBER_LIKE = re.compile(r"[+-]?\.?[0-9][0-9A-Za-z_.+-]*+").match
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?").fullmatch
WORD = re.compile(r"-?[^\W\d][\w$]*+").match
KEY_WORD = re.compile(r"[A-Za-z_$][\w$]*+").match

CHUNK = {
    '"': re.compile(_PLAIN).match,
    "'": re.compile(r"[^'\\\x00-\x1f]*+").match,
    "”": re.compile(r'[^”“"\\\x00-\x1f]*+').match,
    "’": re.compile(r"[^’‘'\\\x00-\x1f]*+").match,
}
"""Closing quote -> pattern of the plain characters before the next special one."""
CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’"}

NEXT_PAIR = re.compile(rf'[ \t\r]*+\n[ \t\n\r]*+"{_PLAIN}"[ \t\n\r]*+:').match
AFTER_VALUE = re.compile(rf"[ \t\n\r{_ODD_SPACES}]*+(?:[,}}\])#]|\Z|//|/\*)").match
FIRST_LINE = re.compile(r"[ \t\r]*+\n([ \t]*+)").match
QUOTE_AHEAD = re.compile(r'[^"{}\[\],:\n]*+"').match
"""The rest of a string that lost its opening quote."""
INNER_QUOTED = re.compile(rf'(?<=\w[ (])"(?=[^\s,:{{}}\[\]"])({_PLAIN})(?<=[^\s,:{{}}\[\]])"(?=[.!?;)]? \w)').match
"""A quoted phrase inside a string: words on both sides, no structural character next to a quote."""

ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
NEEDLESS_ESCAPES = frozenset("'_$")
PYTHON_KEEPS = frozenset("/_$")
"""Characters before which Python keeps a backslash."""
HEX4 = re.compile(r"[0-9A-Fa-f]{4}").match
CUT_HEX = re.compile(r"[0-9A-Fa-f]{0,3}\Z").match
CUT_LOW = re.compile(r"(?:\\(?:u[0-9A-Fa-f]{0,3})?)?\Z").match
PYTHON_ESCAPE = re.compile(r"x([0-9A-Fa-f]{2})|U00([0-9A-Fa-f]{6})").match

WORDS: dict[str, bool | None] = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
}
PYTHON_WORDS = frozenset({"True", "False", "None"})
NOT_FINITE = frozenset({"NaN", "nan", "Infinity", "inf", "Inf", "-Infinity", "-inf", "-NaN", "-nan"})

LEFT_OUT = ("..", "…")
"""Dots in the place of something that was left out."""
CONTINUED_VALUE = re.compile(r"\s*+(?:[+%]\s*+[\w\"']|[*x×]\s*+[0-9]|\.\w++\()").match
"""A comment that continues the value with an operation."""
LAST_SCALAR = re.compile(r"(?:\"[^\"]*+\"|[^\s\",:\[{]*+)(?=,?\Z)").search
"""The text directly before a comment, without the comma."""
COMMENT_LITERAL = re.compile(
    r"(?<![A-Za-z0-9_.(\[{#§*/×^-])(?<![*/×^+] )-?[0-9][0-9.]*+(?!\s*[*/×^+])"
    r"|\b(?:true|false|null|True|False|None)\b|[\"“][^\"“”]*+[\"”]|(?<!\w)'[^']*+'"
)
"""A value in a comment. A number after a bracket or a sign (`[1]`, `#2`) points to something, one beside an operator
explains."""
COMMENT_WORDS = re.compile(r"\w++").findall
BRACKETED = re.compile(r"\([^{}\[\]()\"',:]*+\)|\[[^{}\[\]()\"',:]*+\]|\{[^{}\[\]()\"',:]*+\}").sub
"""A note in brackets inside a comment: no member and no item has this form."""
OWN_LINE = re.compile(r"\n[ \t\r]*+[#/][^\n]*+\n").search
"""A line that begins with a comment, and nothing but that."""
SWALLOWED_MEMBER = re.compile(
    r"[{}\[\]]|[\"'`]\s*:|[,'”’]\s*\Z|\S[ \t]{2,}+\S|\A\s*(?:\"[^\"]*+\"|-?[0-9.]++|true|false|null)\s*\Z"
).search
"""A line comment that may hold a lost member: a bracket, a key, a last comma or quote, an indentation, a value
alone."""
RAW_CONTROL = re.compile(r"[\n\t]").search
SLIPPED_QUOTE = re.compile(r"\A[^\n]*\n[ \t]*\Z|[,:\[\]{}][ \t]*\n[ \t]+\Z").search
"""A string whose quote was before a line end, or before the character and the indentation around one."""
ELISION_LINE = re.compile(
    r"\n[ \t]*+(?:(?://|#|/\*)[ \t]*+)?"
    r"(?:\.{3}|…|[\[(<][^\n\])>]{0,40}(?:\.{3}|…)[^\n\])>]{0,40}[\])>])"
    r"[ \t]*+(?:\*/)?[ \t]*+\n"
).search
"""A line of a string that replaces other lines."""
RESUMED_FENCE = re.compile(r"\n```[ \t]*+\n\s*+```\w").search
"""A string in which a fence ends and the next one begins: the message was cut there and continued."""
NEEDLESS_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\['_$]").search
MEANT_ESCAPE = re.compile(r"\\\\|\\\$|[:/^|\[]\\_|'\\'|\\''").search
"""A string in which a needless backslash may be intended: next to a real one, before a dollar sign, in a path, next to
a quote without one (a shell's `'it'\\''s'`)."""
SWALLOWED_BLOCK = re.compile(r"[\"'`]\s*:|,\s*\Z").search
"""A comment between two members that may hold a lost one."""
LITERAL = re.compile(r"\s*+(?:\"[^\"]*+\"|'[^']*+'|-?[0-9.]++|true|false|null|[\[{].*[\]}])\s*+", re.DOTALL).fullmatch
STRAY_BREAK = re.compile(r"\n[,:;]|(?<![=\s])=\n").search
"""A line of a string that begins with an unusual character, or ends with the line-break mark of e-mail."""
TWO_KEYS = re.compile(r"[^:]*+:[^,]*+,").match
"""A key that lost the quotes around the value inside it."""


class TextRefused(Exception):  # noqa: N818 - the reader's only way out, never seen outside intake
    """Raised where a text cannot be read further; the reason is a name in `REFUSALS`."""

    def __init__(self, reason: str, position: int) -> None:
        """Keep the reason and the offset."""
        super().__init__(REFUSALS[reason][1])
        self.reason = reason
        self.position = position
