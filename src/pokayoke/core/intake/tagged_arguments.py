"""Reads arguments that were given one by one in tags.

In: the text after a call's name, and the schema.
Out: a reading. A tag does not say whether `5` is a number or a text; an
unambiguous declared type decides.
Never: choose between two possible types: then the call is refused.
"""

from __future__ import annotations

import re
from typing import Any, cast

from pokayoke.core.intake.reading import Reading, SchemaLike
from pokayoke.core.intake.schema_evidence import declared_properties
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse

# No value with a tag in it: the tag may be its end, or part of it.
_PAIR = re.compile(
    r"\s*+(?:<arg_key>([\w.$-]{1,100})</arg_key>\s*+<arg_value>([^<]*+)</arg_value>"
    r"|<parameter=([\w.$-]{1,100})>([^<]*+)</parameter>"
    r"|<((?:[\w.-]{1,40}:)?)parameter name=\"([\w.$-]{1,100})\">([^<]*+)</\5parameter>)"
).match
_REST = re.compile(r"\s*+").match
_HTML_ESCAPE = re.compile(r"&(?:\w{2,8}|#\w{1,8});").search
_NULLS = frozenset({"", "null", "none", "nil", "undefined"})
"""Spellings of null, or of an absent value."""
_PLAIN_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object"})


def read_tagged_arguments(
    text: str, position: int, schema: SchemaLike | None, *, max_depth: int
) -> tuple[Reading | None, int] | None:
    """Read arguments that are in one tag each.

    Args:
        text: the text of the message.
        position: offset of the first possible tag.
        schema: the input schema of the tool.
        max_depth: maximum nesting of a value.

    Returns:
        The reading, None if a value is doubtful, and the end of the last tag whose value holds no other tag; or None
        without such tags.
    """
    value: dict[str, Any] = {}
    begin, sure = position, True
    declared: dict[str, Any] = (
        declared_properties(schema)["properties"] if text.find("<", position, position + 200) >= 0 else {}
    )
    while found := _PAIR(text, position):
        key, written = cast("tuple[str, str]", tuple(group for group in found.groups() if group is not None)[-2:])
        node: Any = declared.get(key)
        position = found.end()
        try:
            sure = sure and key not in value and isinstance(node, dict)
            kinds = _declared_types(node) if sure else frozenset[str]()
            value[key] = _parse_by_type(written, kinds, max_depth, framed=found[3] is not None)
        except (StrictError, ValueError):
            sure = False
    if position == begin:
        return None
    reading = Reading(
        grade="lossless", value=value, repairs=("tagged_arguments",), canonical=dump_compact(value, sort=True)
    )
    return reading if sure else None, cast("re.Match[str]", _REST(text, position)).end()


def _declared_types(schema: Any) -> frozenset[str]:
    """Return the types a subschema declares (all branches of a union); empty if it declares none."""
    node = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    named: Any = node.get("type")
    if named is not None:
        return frozenset(cast("list[str]", named) if isinstance(named, list) else [named])
    branches = [_declared_types(branch) for branch in node.get("anyOf", node.get("oneOf", ()))]
    return frozenset[str]().union(*branches) if all(branches) else frozenset[str]()


def _parse_by_type(written: str, kinds: frozenset[str], max_depth: int, *, framed: bool) -> Any:
    """Return the value of a text, by its declared types.

    Raises:
        StrictError: the text is not JSON, although its type requires it.
        ValueError: the types, an escape, or a line break at an end are ambiguous.
    """
    if "string" not in kinds:
        if not kinds or not kinds <= _PLAIN_TYPES:
            raise ValueError("it may be text")
        return parse(written, max_depth=max_depth, sort=True, equal_duplicates=False)[0]
    if (
        framed and len(written) > 1 and written[0] == written[-1] == "\n"
    ):  # this format writes every value on separate lines
        written = written[1:-1]
    others = kinds - {"string"}
    if others and (others != frozenset({"null"}) or written.strip().lower() in _NULLS):
        raise ValueError("it may be no text")
    if written != written.strip() or _HTML_ESCAPE(written):
        raise ValueError("it may be escaped, or laid out")
    return written
