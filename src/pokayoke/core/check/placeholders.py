r"""Placeholders in the place of values: `<user_id>`, `{{name}}`, `...`, `TODO`, and texts that lost a backslash.

Only a string that consists of the placeholder counts. A text that contains one is content: a letter with `{{name}}` in
it, a file with `# TODO`, HTML. These are values, because people and benchmarks use them: `N/A`, `none`, `unknown`,
`placeholder`, `YOUR_API_KEY` without `_HERE`, `$HOME`, `$AAPL`, HTML tags, and all texts that the schema itself names
(enum, const, default, examples). Fields whose name means a pattern or a template may hold these texts too.

JSON parsers read `"\bword\b"`, `"\frac"` and `"\rho"` as control characters: the backslash should have been written
twice. A backspace always counts, because it is never sent on purpose; a form feed, a carriage return and a tab count
only before the rest of a name, or after a drive letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from pokayoke.core.json.pointer import Path
from pokayoke.core.json.values import equal_json
from pokayoke.core.schema.facts import facts_at
from pokayoke.core.schema.schema import Schema
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
_BACKSLASH = 92

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
_PATTERN_FIELDS = frozenset(
    (
        *("pattern", "patterns", "regex", "regexp", "glob", "selector", "template", "format", "needle", "markup"),
        *("placeholder", "old", "new"),
    )
)


def may_hold_placeholder(canonical: bytes) -> bool:
    """Return False if a compact JSON text certainly has no placeholder and no lost backslash."""
    return _PREFILTER.search(canonical) is not None or (
        _BACKSLASH in canonical and compile_pattern(_LOST_BACKSLASH_JSON).search(canonical) is not None
    )


def has_lost_backslash(text: str) -> bool:
    """Return whether a text has a control character in the place of a backslash and a letter."""
    return compile_pattern(_LOST_BACKSLASH).search(text) is not None


def find_placeholders(value: Any, schema: Schema | None = None) -> list[tuple[Path, str]]:
    """Return the path and text of every placeholder and every text that lost a backslash, in order.

    Args:
        value: a JSON value.
        schema: texts that the schema itself names at a place are no placeholders there.
    """
    found: list[tuple[Path, str]] = []
    stack: list[tuple[Path, str, Any]] = [((), "", value)]
    while stack:
        path, field, item = stack.pop()
        if isinstance(item, str):
            if (is_placeholder(item, field) or has_lost_backslash(item)) and not (
                schema and _is_named_in_schema(schema, path, item)
            ):
                found.append((path, item))
        elif isinstance(item, dict):
            stack.extend(((*path, key), key, child) for key, child in reversed(cast(dict[str, Any], item).items()))
        elif isinstance(item, list):
            rows = list(enumerate(cast(Sequence[Any], item)))
            stack.extend(((*path, str(index)), field, child) for index, child in reversed(rows))
    return found


def is_placeholder(text: str, field: str = "") -> bool:
    """Return whether a text consists of a placeholder.

    Args:
        text: the whole string value.
        field: the name of its property, or of the array that contains it.
    """
    if not text or len(text) > _LONGEST or _split_words(field) & _PATTERN_FIELDS:
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
    words = [part.lower() for part in compile_pattern(_SPACERS).split(name) if part]
    own = bool(set(words) & _split_words(field)) and len(words) <= len(_split_words(field)) + 1
    asks = len(words) > 1 and words[0] in _REQUESTS
    return own or asks or (slot["open"] != "[" and ("_" in name or words[-1] in _NOUNS))


def _split_words(field: str) -> set[str]:
    return {part.lower() for part in compile_pattern(_SPACERS).split(field) if part}


def _is_named_in_schema(schema: Schema, path: Path, text: str) -> bool:
    """Return whether the schema itself names a text at this place."""
    facts = facts_at(schema, path)
    listed = [*facts.choices, *(node.get("default") for node in facts.nodes)]
    for node in facts.nodes:
        examples = node.get("examples")
        listed.extend(cast(Sequence[Any], examples) if isinstance(examples, list) else ())
    return "regex" in facts.formats or any(equal_json(text, item) for item in listed)
