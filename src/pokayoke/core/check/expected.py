"""What a schema expects at a place, in words that a model can use: `an integer from 1 to 100`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pokayoke.core.json.pointer import Path
from pokayoke.core.json.values import is_array
from pokayoke.core.schema.facts import Node, SchemaFacts, cached_per_schema, facts_at, facts_of_child, item_facts
from pokayoke.core.schema.problems import SPELLING
from pokayoke.core.schema.schema import Schema
from pokayoke.core.text.clip import clip

_MAX_CHOICES = 12
_MAX_ROWS = 4
_ARTICLES = {
    "integer": "an integer",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def expected_at(schema: Schema, path: Path) -> str:
    """Return in words what the schema expects at a path."""
    return cached_per_schema(schema, ("expected", path), lambda: describe_expected(facts_at(schema, path), schema))


def describe_expected(facts: SchemaFacts, schema: Schema, *, depth: int = 0) -> str:
    """Return in words what the schema expects at a place, such as `an integer from 1 to 100`."""
    if facts.choices:
        # Without duplicates: several subschemas may have the same choice.
        choices = (
            [*{json_text(item): item for item in facts.choices}.values()] if len(facts.nodes) > 1 else facts.choices
        )
        shown = ", ".join(json_text(item) for item in choices[:_MAX_CHOICES])
        more = len(choices) - _MAX_CHOICES
        return f"one of {shown}" + (f" and {more} more" if more > 0 else "")
    words = [_describe_type(name, facts, schema, depth) for name in _ARTICLES if name in facts.types]
    if "number" in facts.types and "integer" in facts.types:
        words.remove(_describe_type("integer", facts, schema, depth))
    return " or ".join(words) or "a value"


def _describe_type(name: str, facts: SchemaFacts, schema: Schema, depth: int) -> str:
    if name in ("integer", "number"):
        return _ARTICLES[name] + _describe_range(facts.nodes)
    if name == "string":
        return _describe_text(facts)
    if name == "array" and depth == 0:
        rows = next((node["prefixItems"] for node in facts.nodes if node.get("prefixItems")), None)
        if rows is not None:
            each = [
                describe_expected(facts_of_child(schema, facts, str(at)), schema, depth=1)
                for at in range(len(rows[:_MAX_ROWS]))
            ]
            return f"a list of {', then '.join(each)}" + (", and more" if len(rows) > _MAX_ROWS else "")
        inner = describe_expected(item_facts(schema, facts), schema, depth=1)
        return f"a list{_describe_size(facts.nodes, 'minItems', 'maxItems', 'items')}, each {inner}"
    if name == "object" and facts.properties:
        names = [*(key for key in facts.properties if key in facts.required)] or list(facts.properties)
        return f"an object with {', '.join(names[:6])}"
    return _ARTICLES[name]


def _describe_text(facts: SchemaFacts) -> str:
    if facts.formats:
        return "a text in the format " + ", or ".join(f"{one}{SPELLING.get(one, '')}" for one in sorted(facts.formats))
    text = "a text" + _describe_size(facts.nodes, "minLength", "maxLength", "characters")
    shaped = next((node for node in facts.nodes if isinstance(node.get("pattern"), str)), None)
    if shaped is None:
        return text
    given = shaped.get("examples")
    example = next((one for one in given if isinstance(one, str)), None) if is_array(given) else None
    return f"{text} that fits {shaped['pattern'][:80]}" + ("" if example is None else f", such as {json_text(example)}")


def _single_bound(nodes: Iterable[Node], *keywords: str) -> tuple[str, Any] | None:
    """Return the one bound of a kind; None if there are several, because only one of them may apply."""
    found = {(word, node[word]) for node in nodes for word in keywords if isinstance(node.get(word), int | float)}
    return next(iter(found)) if len(found) == 1 else None


def _describe_range(nodes: Sequence[Node]) -> str:
    low = _single_bound(nodes, "minimum", "exclusiveMinimum")
    high = _single_bound(nodes, "maximum", "exclusiveMaximum")
    step = _single_bound(nodes, "multipleOf")
    text = f", a multiple of {step[1]}" if step else ""
    above = "above" if low and low[0] != "minimum" else "from"
    below = "below" if high and high[0] != "maximum" else "to"
    if low and high and low[1] > high[1]:  # of different branches
        return text
    if low and high:
        return f" {above} {low[1]} {below} {high[1]}{text}"
    if low:
        return f" {'above' if above == 'above' else 'of at least'} {low[1]}{text}"
    return f" {'below' if below == 'below' else 'of at most'} {high[1]}{text}" if high else text


def _describe_size(nodes: Sequence[Node], low_name: str, high_name: str, unit: str) -> str:
    low, high = _single_bound(nodes, low_name), _single_bound(nodes, high_name)
    if low and high:
        return f" of {low[1]} to {high[1]} {unit}"
    if low:
        return f" of at least {low[1]} {unit}"
    return f" of at most {high[1]} {unit}" if high else ""


def json_text(value: Any) -> str:
    """Return a value as JSON, shortened for a sentence."""
    return clip(msgspec.json.encode(value).decode(), 60)
