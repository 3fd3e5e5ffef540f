"""Reads arguments that were given one by one in tags, and those whose texts stand between tokens.

In: the text after a call's name, and the schema.
Out: a reading. A tag does not say whether `5` is a number or a text; a `string` attribute or the declared types decide.
Never: choose between two possible types or ends of a value: the refusal names the argument and the sign.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, cast

from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.framings import SPACE
from pokayoke.core.intake.reading import Reading, SchemaLike, refused_reading
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.schema.facts import facts_at
from pokayoke.core.schema.schema import compile_schema

_KEY = r"[\w.$-]{1,100}"
_OPENER = re.compile(
    rf"\s*+(?:<(?P<glm>(?:longcat_)?)arg_key>(?P<key1>{_KEY})</(?P=glm)arg_key>\s*+<(?P=glm)arg_value>"
    rf"|<parameter=[\"']?(?P<key2>{_KEY})[\"']?>"
    rf"|<(?P<space>{SPACE})(?P<tag>param(?:eter)?) name=[\"'](?P<key3>{_KEY})[\"']"
    r"(?:\s+string=[\"'](?P<string>true|false)[\"'])?\s*>"
    rf"|\]<\]minimax\[>\[<(?!/)(?P<key4>{_KEY})>)"
).match
_OWN_TAG = re.compile(
    rf"\]<\]minimax\[>\[|</?{SPACE}(?:longcat_)?"
    r"(?:param(?:eter)?|function|invoke|tool_calls?|function_calls?|arg_key|arg_value)\b[^<>\n]{0,200}>?"
).search
"""A tag that belongs to a call, so that a value which holds one has no certain end."""
_CDATA = re.compile(r"<!\[CDATA\[(.*)\]\]>", re.DOTALL).fullmatch
_HTML_ESCAPE = re.compile(r"&(?:\w{2,8}|#\w{1,8});").search
_NULLS = frozenset({"", "null", "none", "nil", "undefined"})
"""Spellings of null, or of an absent value."""
_PYTHON_WORDS: dict[str, bool | None] = {"True": True, "False": False, "None": None}
_MAX_SIGN = 40
_TYPING = frozenset({"$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type"})
_ATTRIBUTE_KINDS = {"true": frozenset({"string"}), "false": frozenset({"object"})}
"""What DeepSeek's `string` attribute says of a value."""
_KEYS = ("key1", "key2", "key3", "key4")
_SPACES = re.compile(r"\s*+").match


def read_tagged_arguments(
    text: str, position: int, schema: SchemaLike | None, *, max_depth: int
) -> tuple[Reading, int] | None:
    """Read arguments that are in one tag each.

    Args:
        text: the text of the message.
        position: offset of the first possible tag.
        schema: the input schema of the tool.
        max_depth: maximum nesting of a value.

    Returns:
        The reading and the end of the last tag that was read; or None without such tags. After a value without a
        certain end, the end of the text.
    """
    value: dict[str, Any] = {}
    doubt: Reading | None = None
    begin = position
    while found := _OPENER(text, position):
        key = next(found[name] for name in _KEYS if found[name])
        closer, end = _closing_tag(found, key), _OWN_TAG(text, found.end())
        after = len(text) if end is None else end.start()
        if not text.startswith(closer, after):
            return _doubt_value(key, end[0] if end else f"the missing {closer}", position), len(text)
        position = after + len(closer)
        kinds = _ATTRIBUTE_KINDS.get(found["string"]) or _declared_types(schema, key)
        try:
            read = _parse_by_type(text[found.end() : after], kinds, max_depth, found)
        except StrictError:
            doubt = doubt or _doubt_value(key, "it is not JSON", found.start())
        except ValueError as error:
            doubt = doubt or _doubt_value(key, str(error), found.start())
        else:
            doubt = doubt or (_doubt_value(key, "it is given twice", found.start()) if key in value else None)
            value[key] = read
    if position == begin:
        return None
    return doubt or _tagged_reading(value), cast("re.Match[str]", _SPACES(text, position)).end()


def read_wrapped_arguments(text: str, mark: str, schema: SchemaLike | None, *, max_depth: int) -> Reading:
    """Read an object whose texts stand between two equal tokens instead of quotation marks.

    Args:
        text: the object, such as `{city:<|"|>Paris<|"|>,days:3}`.
        mark: the token.
        schema: the input schema of the tool.
        max_depth: maximum nesting of a value.
    """
    pieces = text.split(mark)
    if len(pieces) % 2 == 0 or any('"' in piece for piece in pieces[::2]):
        return refused_reading("lost_quote", len(text) - len(pieces[-1]))
    plain = "".join(piece if not number % 2 else dump_compact(piece).decode() for number, piece in enumerate(pieces))
    reading = read_arguments(plain, schema=schema, max_depth=max_depth)
    return _tagged_reading(reading.value) if reading.grade in ("exact", "lossless") and reading.value else reading


def _doubt_value(key: str, sign: str, position: int) -> Reading:
    """Refuse a value, and name the argument and the sign that leaves more than one reading."""
    return refused_reading("tagged_value", position, about=f"{key}: {sign[:_MAX_SIGN]}")


def _tagged_reading(value: dict[str, Any]) -> Reading:
    return Reading(
        grade="lossless", value=value, repairs=("tagged_arguments",), canonical=dump_compact(value, sort=True)
    )


def _closing_tag(found: re.Match[str], key: str) -> str:
    if found["key1"]:
        return f"</{found['glm']}arg_value>"
    if found["key3"]:
        return f"</{found['space']}{found['tag']}>"
    return "</parameter>" if found["key2"] else f"]<]minimax[>[</{key}>"


def _declared_types(schema: SchemaLike | None, key: str) -> frozenset[str]:
    """Return the types that the schema declares for an argument, in all branches; empty if one declares none."""
    if schema is None:
        return frozenset()
    nodes = facts_at(compile_schema(schema) if isinstance(schema, (dict, bool)) else schema, (key,))
    if any(not _TYPING & node.keys() for node in nodes.nodes):
        return frozenset()
    return nodes.types


def _parse_by_type(written: str, kinds: frozenset[str], max_depth: int, opener: re.Match[str]) -> Any:
    """Return the value of a text, by its declared types.

    Raises:
        StrictError: the text is not JSON, although its type requires it.
        ValueError: a sign, or the types, leave more than one value.
    """
    if not kinds:
        raise ValueError("its type is not declared")
    plain = written.strip()
    is_null = plain.lower() in _NULLS
    if "string" not in kinds:
        if plain in _PYTHON_WORDS:
            return _PYTHON_WORDS[plain]
        return parse(plain, max_depth=max_depth, sort=True, equal_duplicates=False)[0]
    if is_null and "null" in kinds:
        raise ValueError("it may be null")
    if kinds - {"string", "null"}:
        with suppress(StrictError):
            parse(plain, max_depth=max_depth, sort=True, equal_duplicates=False)
            raise ValueError("it may be text")
    if cdata := _CDATA(plain):
        return cdata[1]
    if opener["key2"] and len(written) > 1 and written[0] == written[-1] == "\n":
        return _without_escape(written[1:-1])  # this form puts each value on lines of its own
    if opener["string"]:
        return written
    if "\n" in (written[:1], written[-1:]):
        raise ValueError("there is a line break at an end")
    return _without_escape(written)


def _without_escape(written: str) -> str:
    """Return a text.

    Raises:
        ValueError: it holds an escape that may belong to the tags.
    """
    if escape := _HTML_ESCAPE(written):
        raise ValueError(escape[0])
    return written
