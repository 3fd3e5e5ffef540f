"""Where subschemas stand in a schema, and the facts about one schema that later rooms need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from pokayoke.core.shapes import is_array, is_object

Draft = Literal["draft4", "draft6", "draft7", "2019-09", "2020-12"]

LEGACY: tuple[Draft, ...] = ("draft4", "draft6", "draft7")
"""Dialects in which `$ref` overrides everything beside it."""

IN_PLACE_ONE = frozenset({"not", "if", "then", "else"})
IN_PLACE_LISTS = frozenset({"allOf", "anyOf", "oneOf"})
IN_PLACE_MAPS = frozenset({"dependentSchemas", "dependencies"})
_ONE = IN_PLACE_ONE | {
    "additionalProperties",
    "additionalItems",
    "contains",
    "contentSchema",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
}
_LISTS = IN_PLACE_LISTS | {"prefixItems"}
_MAPS = IN_PLACE_MAPS | {"properties", "patternProperties", "$defs", "definitions"}

_MAX_LONE = 100
"""Most subschemas in one that is compiled apart from its document."""
_REACHING_OUT = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "id", "$schema"})


class SchemaMap(msgspec.Struct, frozen=True, kw_only=True):
    """A schema, copied and followed.

    Attributes:
        root: the schema; nobody changes it.
        draft: the dialect it is read in.
        resources: the documents handed in that something refers to, by URI.
        targets: id of a schema object (alive as long as this) to what its `$ref` points to.
        alone: ids of schema objects whose `$ref` overrides everything beside it (draft 7 and older).
        unknown_formats: format names that are annotations only.
        patterns: its regular expressions.
        paths: on how many paths one place of a value is evaluated at most; what it is compared with counts too.
        unique: the items of some list must all differ.
    """

    root: dict[str, Any] | bool
    draft: Draft
    resources: dict[str, Any]
    targets: dict[int, Any]
    alone: set[int]
    unknown_formats: tuple[str, ...]
    patterns: tuple[str, ...]
    paths: int
    unique: bool


Part = tuple[str, Any, Any, Any]
"""A keyword, its argument, the rule that explains it, and its validator if it looks at the value alone."""


class Known(msgspec.Struct):
    """What explanations of one schema have found out so far; all of it follows from the schema alone.

    Attributes:
        checks: subschemas, and patterns of names, compiled to be asked alone; by the subschema's id.
        words: what a keyword expects, in words, and its data.
        parts: the keywords of a subschema that are in force, with the rule of each, and the compiled
            form of those that look at the value alone.
    """

    checks: dict[tuple[int, str], Any] = {}
    words: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {}
    parts: dict[int, list[Part]] = {}


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (keyword, subschema) for everything in a schema that is itself a schema."""
    for keyword, value in schema.items():
        if keyword in _ONE:
            yield keyword, value
        elif keyword in _LISTS or (keyword == "items" and is_array(value)):
            if is_array(value):
                for child in value:
                    yield keyword, child
        elif keyword == "items":
            yield keyword, value
        elif keyword in _MAPS and is_object(value):
            for child in value.values():
                yield keyword, child


def stands_alone(node: dict[str, Any]) -> bool:
    """Return whether a subschema means the same outside of its document, and is small enough to be compiled."""
    stack = [node]
    seen = 0
    while stack:
        schema = stack.pop()
        seen += 1
        if seen > _MAX_LONE or not _REACHING_OUT.isdisjoint(schema):
            return False
        stack.extend(child for _, child in subschemas(schema) if is_object(child))
    return True
