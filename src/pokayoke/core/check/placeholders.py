r"""Texts that stand for no value: `<user_id>`, `TODO`, markup of a call, a lost backslash, nothing visible.

In: a text, or the dump of a value.
Out: whether it is one of these; for a dump, whether it may hold one.
Never: a decision about a place. `core/check/argument_checks.py` knows where which of them count.

Only a string that consists of a placeholder is one. A text that contains one is content: a letter with `{{name}}` in
it, a file with `# TODO`, HTML. These are values, because people and benchmarks use them: `N/A`, `none`, `unknown`,
`placeholder`, `YOUR_API_KEY` without `_HERE`, `$HOME`, `$AAPL`, HTML tags.

JSON parsers read `"\bword\b"`, `"\frac"` and `"\rho"` as control characters: the backslash should have been written
twice. A backspace always counts, because it is never sent on purpose; a form feed, a carriage return and a tab count
only before the rest of a name, or after a drive letter.
"""

from __future__ import annotations

import re

from pokayoke.core.text.neutralise import INVISIBLE_RUN
from pokayoke.core.text.regex import compile_pattern

_LONGEST = 80

_PREFILTER = re.compile(
    rb'"(?=[<{\[$.TFXxIiYyEeRrCcPpAa\xe2])'
    rb"(?:[<{\[$]|\.\.\.|\xe2\x80\xa6|T(?:ODO|BD)\"|FIXME\"|[Xx]{4}|I(?:NSERT|nsert)|insert[ _-]"
    rb"|Y(?:OUR|our)[_-]|your[_-]"
    rb"|E(?:NTER|nter)[ _-]|enter[ _-]|R(?:EPLACE|eplace)|replace[_-]?(?:me|with)|C(?:HANGE|hange)[_-]?|change[_-]?me"
    rb"|P(?:UT|ut)[ _-]|put[ _-]|A(?:DD|dd)[_-]|add[_-])"
)
"""Finds every JSON text that may hold a placeholder, and few others: one pass, about 1 µs per KB."""

_LOST_BACKSLASH = "\b|\f(?=[a-z])|(?<![\\w.,;!?)])\r(?=[a-z])|\t(?=heta|imes|ext\\{)|\\A[C-Ec-e]:[\t\n]\\w[^ ]*\\Z"
_LOST_BACKSLASH_JSON = rb'\\(?:b|[fr][a-z]|t(?:heta|imes|ext\{)|(?<="[C-Ec-e]:\\)[nt]\w)'

# Used only after a hit of the prefilter.
_WORDS = (
    r"(?:TODO|TBD|FIXME)"
    r"|[.…]{3,}|…+"
    r"|[Xx]{4,}(?:[- ][Xx]{3,})*"
    r"|(?:INSERT|ENTER|PUT|ADD|YOUR|Insert|Enter|Put|Add|Your|insert|enter|put|add|your)"
    r"(?:[_-][A-Za-z0-9]+){0,8}[_-](?:HERE|Here|here)"
    r"|(?:INSERT|ENTER|PUT|Insert|Enter|Put|insert|enter|put)(?: [A-Za-z0-9]+){1,4} (?:HERE|Here|here)"
    r"|(?:REPLACE|CHANGE|Replace|Change|replace|change)[_-]?(?:ME|Me|me)"
    r"|(?:REPLACE|Replace|replace)[_-](?:WITH|With|with)(?:[_-][A-Za-z0-9]+){1,6}"
)
_DOUBLE_BRACE = r"\{\{\s*[A-Za-z_][\w .\-]{0,50}\s*\}\}"
_VARIABLE = r"\$[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
_SLOT = r"(?P<open><|\$?\{|\[)(?P<name>[A-Za-z][A-Za-z0-9_ .\-]{0,58})(?P<close>[>}\]])"
_CLOSERS = {"<": ">", "{": "}", "${": "}", "[": "]"}
_SPACERS = r"[ _.\-]+|(?<=[a-z0-9])(?=[A-Z])"
_REQUESTS = frozenset(["your", "insert", "enter", "the", "some", "actual", "add", "replace", "put", "specify", "fill"])
_NOUNS = frozenset(
    (
        *("id", "ids", "name", "email", "token", "date", "number", "value", "string", "uuid", "url", "path", "key"),
        *("amount", "password", "placeholder", "here", "username", "phone", "user", "customer", "order", "account"),
        *("currency", "city", "country"),
    )
)
_MARKUP = r"<(?:\||｜|[A-Za-z_]{1,40}\|>|/?(?:tool_call|function_call|arg_key|arg_value|parameter|function|invoke)\b)"
# The beginnings of invisible characters and of white space, and escapes of controls. Wider than needed: the text
# itself is looked at afterwards.
_UNSEEN_JSON = (
    rb'"(?:[ \x7f]|\\[bfnrt]|\\u....|[\xc2\xcd\xd8].|\xe1[\x85\x9a\x9e\xa0].|\xe2[\x80\x81\xa0].|\xe3[\x80\x85].'
    rb'|\xef[\xb8\xbb\xbe\xbf].|\xf0[\x9b\x9d]..|\xf3\xa0..)+"'
)
_BRAILLE_BLANK = "\u2800"


search_placeholder = _PREFILTER.search
"""Finds what may be a placeholder in a compact dump; None if there certainly is none."""


def may_hold_markup(dumped: bytes) -> bool:
    """Return False if a compact dump certainly has no markup of a call."""
    return compile_pattern(_MARKUP.encode()).search(dumped) is not None


def may_hold_lost_backslash(dumped: bytes) -> bool:
    """Return False if a compact dump certainly has no text that lost a backslash."""
    return compile_pattern(_LOST_BACKSLASH_JSON).search(dumped) is not None


def may_hold_unseen(dumped: bytes) -> bool:
    """Return False if a compact dump certainly has no text of which nothing is visible."""
    return compile_pattern(_UNSEEN_JSON).search(dumped) is not None


def has_call_markup(text: str) -> bool:
    """Return whether a text holds a sign of the markup in which models write calls."""
    return compile_pattern(_MARKUP).search(text) is not None


def is_unseen(text: str) -> bool:
    """Return whether a text looks empty and holds more than white space."""
    seen = compile_pattern(INVISIBLE_RUN).sub("", text).replace(_BRAILLE_BLANK, "")
    return bool(text) and not text.isspace() and not seen.strip()


def has_lost_backslash(text: str) -> bool:
    """Return whether a text has a control character in the place of a backslash and a letter."""
    return compile_pattern(_LOST_BACKSLASH).search(text) is not None


def is_placeholder(text: str, field: str = "") -> bool:
    """Return whether a text consists of a placeholder.

    Args:
        text: the whole string value.
        field: the name of its property, or of the array that contains it.
    """
    if not text or len(text) > _LONGEST:
        return False
    if (
        compile_pattern(_WORDS).fullmatch(text)
        or compile_pattern(_DOUBLE_BRACE).fullmatch(text)
        or compile_pattern(_VARIABLE).fullmatch(text)
    ):
        return True
    slot = compile_pattern(_SLOT).fullmatch(text)
    return slot is not None and _CLOSERS[slot["open"]] == slot["close"] and _is_request(slot, field)


def _is_request(slot: re.Match[str], field: str) -> bool:
    """Return whether a bracketed name asks for a value: by its words, or because it names its own field."""
    name = slot["name"]
    words, named = split_words(name), set(split_words(field))
    own = not named.isdisjoint(words) and len(words) <= len(named) + 1
    asks = len(words) > 1 and words[0] in _REQUESTS
    return own or asks or (slot["open"] != "[" and ("_" in name or words[-1] in _NOUNS))


def split_words(name: str) -> list[str]:
    """Return the words of a name in small letters."""
    return [part.lower() for part in compile_pattern(_SPACERS).split(name) if part]
