"""Whether a schema leaves room for a text: then a tool's text is the value, otherwise it is JSON."""

from __future__ import annotations

from typing import Any

from pokayoke.core.shapes import is_object

_DEEPEST = 16


def admits_text(schema: dict[str, Any] | bool) -> bool:
    """Return whether a schema accepts at least some string.

    What cannot be decided here (a reference out of the document, `not`, deep nesting) counts as
    yes: then a text is held to the schema as it is, which is the stricter reading.
    """
    return _admits(schema, schema, _DEEPEST)


def _admits(schema: Any, root: Any, depth: int) -> bool:
    if not is_object(schema) or depth == 0:
        return schema is not False
    kinds = schema.get("type")
    if kinds is not None:
        return "string" in ([kinds] if isinstance(kinds, str) else kinds)
    if "const" in schema:
        return isinstance(schema["const"], str)
    if "enum" in schema:
        return any(isinstance(one, str) for one in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema and not any(_admits(one, root, depth - 1) for one in schema[word]):
            return False
    if not all(_admits(one, root, depth - 1) for one in schema.get("allOf", ())):
        return False
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        return _admits(target(reference, root), root, depth - 1)
    return True


def target(reference: str, root: Any) -> Any:
    """Return what a local reference (`#/$defs/item`) points at; True if that cannot be followed."""
    node = root
    for part in reference[1:].split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if is_object(node) else None
    return True if node is None else node
