"""The proof that nothing can have been lost after a value."""

from __future__ import annotations

from typing import Any

from pokayoke.core.schema_safety import SchemaMap


def is_sealed(value: Any, schema_map: SchemaMap) -> bool:
    """Return whether no longer value could be valid."""
    return _sealed(schema_map.root, value)


def _sealed(schema: Any, value: Any) -> bool:
    if not isinstance(value, dict | list):
        return True
    if not isinstance(schema, dict) or isinstance(value, list):
        return False
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return False
    if not all(name in value for name in properties):
        return False
    if not value:
        return True
    last = next(reversed(value))
    return _sealed(properties.get(last, True), value[last])
