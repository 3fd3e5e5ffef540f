"""Proofs from the schema that an outer bracket was only a slip."""

from __future__ import annotations

from typing import Any, cast

from pokayoke.core.schema import Schema

_OPEN_KEYWORDS = frozenset(
    """
    $ref $dynamicRef $recursiveRef allOf anyOf oneOf not if then else patternProperties dependentSchemas
    dependencies unevaluatedProperties propertyNames
    """.split()
)


def no_object_lost(schema: Schema, value: dict[str, Any]) -> bool:
    """Return whether a closing brace after this value can only be surplus.

    If it were not, an opening brace would have been lost before it: the schema would have to allow an
    object at a place along the last path where the value has none. What is not understood here
    makes it False.
    """
    return schema.is_valid(value) and _only_here(schema.raw, value)


def _only_here(node: Any, value: dict[str, Any]) -> bool:
    """Return whether an object can stand nowhere but where the value has one."""
    if not isinstance(node, dict) or node.get("additionalProperties") is not False or _OPEN_KEYWORDS & node.keys():
        return False
    properties = cast(dict[str, Any], node.get("properties", {}))
    for name, child in properties.items():
        if not isinstance(value.get(name), dict) and _admits_object(child):
            return False
    last = next(reversed(value), None)
    return last is None or not isinstance(value[last], dict) or _only_here(properties.get(last), value[last])


def _admits_object(node: Any) -> bool:
    """Return whether a schema may accept an object, going by its type alone."""
    types = node.get("type") if isinstance(node, dict) else None
    return not types or "object" in ([types] if isinstance(types, str) else types)
