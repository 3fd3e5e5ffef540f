"""Proof that no part of a value was lost after its end.

In: a value and its schema.
Out: whether the schema rules out every continuation of the value. Such a value is called sealed.
Never: True without a proof.

A text that ends after a whole value, without its closing brackets, may have been longer: one more member of the last
object, or one more item, at any open level. Keywords of a schema only restrict, so one keyword that forbids every
continuation is proof enough, and keywords that are not understood here cannot weaken it.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.schema.index import LEGACY, SchemaMap

_MAX_STEPS = 2_000
_APPLICATORS = (
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "dependencies",
)


def is_sealed(value: Any, schema_map: SchemaMap) -> bool:
    """Return whether a schema provably allows no continuation of a value."""
    return _Prover(schema_map).has_no_continuation(schema_map.root, value)


class _Prover:
    """One proof. It counts its steps, so no schema can make it long."""

    def __init__(self, schema_map: SchemaMap) -> None:
        self.map = schema_map
        self.steps = _MAX_STEPS

    def has_no_continuation(self, schema: Any, value: Any) -> bool:
        """Return whether `schema` allows no longer value that begins with `value`."""
        if schema is False or not (is_object(value) or is_array(value)):
            return True
        self.steps -= 1
        if not is_object(schema) or self.steps < 0:
            return False
        node = schema
        if (
            id(node) in self.map.targets
            and "$ref" in node
            and self.has_no_continuation(self.map.targets[id(node)], value)
        ):
            return True
        if id(node) in self.map.overriding_refs:
            return False
        if any(self.has_no_continuation(branch, value) for branch in node.get("allOf", ())):
            return True
        for keyword in ("anyOf", "oneOf"):
            if keyword in node and all(
                self.is_ruled_out(branch, value) or self.has_no_continuation(branch, value) for branch in node[keyword]
            ):
                return True
        return self._is_sealed_array(node, value) if is_array(value) else self._is_sealed_object(node, value)

    def is_ruled_out(self, branch: Any, value: Any) -> bool:
        """Return whether a branch cannot apply; always False in draft 4, which has no `const`."""
        return self.map.draft != "draft4" and _is_ruled_out(branch, value)

    def _is_sealed_object(self, node: dict[str, Any], value: Any) -> bool:
        """Return whether an object is closed, has every declared property, and its last one is sealed too."""
        properties: dict[str, Any] = node.get("properties", {})
        closed = node.get("additionalProperties") is False or (
            node.get("unevaluatedProperties") is False
            and self.map.draft not in LEGACY
            and "additionalProperties" not in node
            and not any(keyword in node for keyword in _APPLICATORS)
        )
        full = closed and "patternProperties" not in node and all(name in value for name in properties)
        if not full and not _is_limit_reached(node.get("maxProperties"), len(value)):
            return False
        if not value:
            return True
        last = next(reversed(value))
        if last in properties:
            return self.has_no_continuation(properties[last], value[last])
        return not isinstance(value[last], dict | list)

    def _is_sealed_array(self, node: dict[str, Any], value: list[Any]) -> bool:
        """Return whether no further item is allowed, and the last one is sealed too."""
        items = node.get("items")
        prefix: list[Any] = node.get("prefixItems", []) if self.map.draft == "2020-12" else []
        rest: Any = items
        if is_array(items):  # up to 2019-09
            prefix, rest = items, node.get("additionalItems")
        if not _is_limit_reached(node.get("maxItems"), len(value)) and not (
            rest is False and len(value) >= len(prefix)
        ):
            return False
        if not value:
            return True
        last = len(value) - 1
        return self.has_no_continuation(prefix[last] if last < len(prefix) else rest, value[last])


def _is_limit_reached(limit: Any, count: int) -> bool:
    return isinstance(limit, int | float) and count >= limit


def _is_ruled_out(branch: Any, value: Any) -> bool:
    """Return whether a branch rules out the value and all its continuations: type, or a fixed member."""
    if not is_object(branch):
        return branch is False
    node = branch
    if "$ref" in node:
        return False
    types = node.get("type")
    if types is not None and ("object" if is_object(value) else "array") not in (
        [types] if isinstance(types, str) else types
    ):
        return True
    if not is_object(value):
        return False
    return any(
        isinstance(value.get(name), str) and _is_unlisted_text(member, value[name])
        for name, member in node.get("properties", {}).items()
    )


def _is_unlisted_text(schema: Any, text: str) -> bool:
    """Return whether a schema lists its values and this text is none of them."""
    if not is_object(schema) or "$ref" in schema:
        return False
    return text not in schema.get("enum", [text]) or schema.get("const", text) != text
