"""Evidence of the schema about a text: a bracket is surplus, or a member may be lost.

In: a schema and a value that was read.
Out: True or False.
Never: claim a proof for a keyword that this module does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, cast

from pokayoke.core.json.values import is_array
from pokayoke.core.schema.facts import SchemaFacts, cached_per_schema, facts_at
from pokayoke.core.schema.schema import Schema, compile_schema

_OPEN_KEYWORDS = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "$ref",
        "allOf",
        "anyOf",
        "dependencies",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "oneOf",
        "patternProperties",
        "then",
        "unevaluatedProperties",
    }
)

_BOUNDS = frozenset({"const", "enum", "format", "pattern"})
_BREAK = re.compile(r"[ \t]*\n[ \t]*|\t")

_COMBINING = _OPEN_KEYWORDS - {"not", "patternProperties", "unevaluatedProperties"}


def closer_is_surplus(schema: Schema, value: dict[str, Any]) -> bool:
    """Return whether a closing brace after this value can only be surplus.

    Otherwise an opening brace was lost before it, and the schema allows an object at a place of the last path
    where the value has none. Keywords that this module does not understand make it False.
    """
    return schema.is_valid(value) and _has_every_object(schema.raw, value)


def _has_every_object(schema: Any, value: dict[str, Any]) -> bool:
    """Return whether the schema allows objects only where the value has them."""
    node = _as_mapping(schema)
    if node.get("additionalProperties") is not False or _OPEN_KEYWORDS & node.keys():
        return False
    properties = _as_mapping(node.get("properties"))
    for name, child in properties.items():
        if not isinstance(value.get(name), dict) and _may_be_object(child):
            return False
    last = next(reversed(value), None)
    return last is None or not isinstance(value[last], dict) or _has_every_object(properties.get(last), value[last])


def _may_be_object(schema: Any) -> bool:
    """Return whether a schema may accept an object, judging by its type alone."""
    types: Any = _as_mapping(schema).get("type")
    return not types or "object" in ([types] if isinstance(types, str) else types)


def _as_mapping(schema: Any) -> dict[str, Any]:
    return cast(dict[str, Any], schema) if isinstance(schema, dict) else {}


def declared_properties(schema: Schema | dict[str, Any] | bool | None) -> dict[str, Any]:
    """Return `properties` and `required` of the object that a schema describes, at any level.

    Raises:
        ContractError: the schema is unusable.
    """
    if isinstance(schema, dict) and not _COMBINING & schema.keys():
        needed: Any = schema.get("required")
        required = frozenset([name for name in (needed if is_array(needed) else ()) if isinstance(name, str)])
        return {"properties": _as_mapping(schema.get("properties")), "required": required}
    if not isinstance(schema, (Schema, dict)):
        return {"properties": {}, "required": frozenset()}
    compiled = schema if isinstance(schema, Schema) else compile_schema(schema)
    return cached_per_schema(compiled, ("declared", ()), lambda: _collect_properties(facts_at(compiled, ())))


def _collect_properties(facts: SchemaFacts) -> dict[str, Any]:
    properties = {
        name: child for node in reversed(facts.nodes) for name, child in _as_mapping(node.get("properties")).items()
    }
    return {"properties": properties, "required": facts.required}


def may_lack_member(raw: Any, value: dict[str, Any], uneven: Container[int]) -> bool:
    """Return whether a member may be missing from one of some objects inside a value, by the schema.

    This holds if a declared property is absent, or if an inner object may hold any member. (A schema without
    declarations at the top is no evidence: then only the text counts.)

    Args:
        raw: the schema of `value`, as written.
        value: the value with the objects.
        uneven: ids of the objects.
    """
    properties = _as_mapping(_as_mapping(raw).get("properties"))
    if id(value) in uneven and not properties.keys() <= value.keys():
        return True
    return any(_may_lack_inside(properties.get(name), child, uneven) for name, child in value.items())


def _may_lack_inside(schema: Any, value: Any, uneven: Container[int]) -> bool:
    node = _as_mapping(schema)
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return (id(members) in uneven and not _as_mapping(node.get("properties"))) or may_lack_member(
            node, members, uneven
        )
    if isinstance(value, list):
        return any(_may_lack_inside(node.get("items"), child, uneven) for child in cast(list[object], value))
    return False


def find_doubtful_break(
    schema: Schema | None, value: Any, broken: Container[str], path: tuple[str, ...] = ()
) -> str | None:
    """Return a text whose raw line break may be a slip: it has no other white space, or the schema bounds it.

    Args:
        schema: the schema of the whole value, if known.
        value: the value at `path`.
        broken: the texts with a raw line break or tab.
        path: the steps to the value.
    """
    if isinstance(value, str):
        bounded = schema is not None and any(_BOUNDS & node.keys() for node in facts_at(schema, path).nodes)
        doubtful = value in broken and (bounded or not any(map(str.isspace, _BREAK.sub("", value))))
        return value if doubtful else None
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    steps = members.items() if members else enumerate(value if is_array(value) else ())
    found = (find_doubtful_break(schema, child, broken, (*path, str(step))) for step, child in steps)
    return next(filter(None, found), None)


def is_unquoted_text(schema: Schema, value: dict[str, Any]) -> bool:
    """Return whether a boolean is in the place of a string: a text without its quotes."""
    return any(
        problem.keyword == "type"
        and "string" in problem.data.get("types", ())
        and isinstance(_get_at(value, problem.at), bool)
        for problem in schema.find_problems(value)
    )


def _get_at(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer."""
    for part in pointer.split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        value = cast(Any, value[int(step)] if isinstance(value, list) else value[step])
    return value
