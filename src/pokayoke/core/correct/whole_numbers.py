"""Numbers without a fraction where an integer is wanted: 2.0 reaches the tool as 2.

JSON Schema says that both are the same integer, and some providers write every integer as 2.0. A tool that counts
with it, or puts it into a text, does not take them for the same.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.call import Correction
from pokayoke.core.json.pointer import Path, get_at, to_pointer, walk_parts
from pokayoke.core.json.values import copy_json, is_object
from pokayoke.core.schema.facts import SchemaFacts, facts_at
from pokayoke.core.schema.schema import Schema

WHOLE_RULE = "integer_from_number"
MAX_RECORDED = 256
"""Most numbers that are recorded one by one; more are recorded as one change of the whole value."""


def restore_integers(value: dict[str, Any], schema: Schema) -> tuple[dict[str, Any], tuple[Correction, ...]]:
    """Return arguments whose whole doubles are integers where the schema wants integers, and the changes.

    Args:
        value: arguments that fit the schema; they are not changed.
        schema: the schema.
    """
    found = [
        (path, item)
        for path, item in walk_parts(value, float)
        if item.is_integer() and _wants_integer(facts_at(schema, path), item)
    ]
    if not found:
        return value, ()
    whole = _with_integers(value, found)
    if len(found) > MAX_RECORDED:
        return whole, (Correction("", WHOLE_RULE, value, whole),)
    return whole, tuple([Correction(to_pointer(path), WHOLE_RULE, item, int(item)) for path, item in found])


def is_whole_for(value: Any, facts: SchemaFacts) -> bool:
    """Return whether a value is a double without a fraction at a place that takes integers and no other numbers."""
    return type(value) is float and _wants_integer(facts, value)


def _wants_integer(facts: SchemaFacts, number: float) -> bool:
    if not number.is_integer():
        return False
    if any(type(choice) is int and choice == number for choice in facts.choices):
        return True
    return "integer" in facts.types and "number" not in facts.types


def _with_integers(value: dict[str, Any], found: list[tuple[Path, float]]) -> dict[str, Any]:
    whole: dict[str, Any] = copy_json(value)
    for path, item in found:
        holder: Any = get_at(whole, path[:-1])
        holder[path[-1] if is_object(holder) else int(path[-1])] = int(item)
    return whole
