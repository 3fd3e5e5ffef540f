"""Whether a schema may accept a text: then a tool's text is the value, otherwise it is parsed as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pokayoke.core.json.values import is_object

if TYPE_CHECKING:
    from pokayoke.core.schema.schema import Schema

_DEEPEST = 64


def may_accept_text(schema: Schema) -> bool:
    """Return whether a schema accepts at least one string.

    Undecided cases (`not`, a dynamic reference, deep nesting) count as True: then the text itself is validated, which
    is the stricter way.
    """
    return _may_be_text(schema.raw, schema, {}, _DEEPEST)


def _may_be_text(node: Any, schema: Schema, known: dict[int, bool], depth: int) -> bool:
    """Answer for one subschema; `known` caches the answers, because many references may share a target."""
    if not is_object(node) or depth == 0:
        return node is not False
    answer = known.get(id(node))
    if answer is None:
        answer = known[id(node)] = _can_hold_text(node, schema, known, depth - 1)
    return answer


def _can_hold_text(node: dict[str, Any], schema: Schema, known: dict[int, bool], depth: int) -> bool:
    kinds = node.get("type")
    if kinds is not None:
        return "string" in ([kinds] if isinstance(kinds, str) else kinds)
    if "const" in node:
        return isinstance(node["const"], str)
    if "enum" in node:
        return any(isinstance(one, str) for one in node["enum"])
    for word in ("anyOf", "oneOf"):
        if word in node and not any(_may_be_text(one, schema, known, depth) for one in node[word]):
            return False
    if not all(_may_be_text(one, schema, known, depth) for one in node.get("allOf", ())):
        return False
    return "$ref" not in node or _may_be_text(schema.resolve_ref(node), schema, known, depth)
