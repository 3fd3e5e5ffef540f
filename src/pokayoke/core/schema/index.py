"""The places of subschemas in a schema, the results of its inspection, and the cache of its explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pokayoke.core.json.values import is_array, is_object

if TYPE_CHECKING:
    import jsonschema_rs

Draft = Literal["draft4", "draft6", "draft7", "2019-09", "2020-12"]

LEGACY: tuple[Draft, ...] = ("draft4", "draft6", "draft7")
"""Dialects in which `$ref` overrides the keywords next to it."""

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

_MAX_SELF_CONTAINED = 100
"""Most subschemas in one that is compiled apart from its document."""
_DOCUMENT_KEYWORDS = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "id", "$schema"})


class SchemaMap(msgspec.Struct, frozen=True, kw_only=True):
    """A copied schema with its references resolved.

    Attributes:
        root: the schema; it must not be changed.
        draft: the dialect it is read in.
        resources: the passed-in documents that a reference uses, by URI.
        targets: id of a schema object (it lives as long as this map) to the target of its `$ref`.
        overriding_refs: ids of schema objects whose `$ref` overrides the keywords next to it (draft 7 and older).
        nodes: the schema and all subschemas of the documents in use.
        unknown_formats: format names that are annotations only.
        patterns: its regular expressions.
        paths: the highest number of paths on which one place of a value is evaluated; comparisons with choices count.
        unique: True if the items of some list must all differ.
    """

    root: dict[str, Any] | bool
    draft: Draft
    resources: dict[str, Any]
    targets: dict[int, Any]
    overriding_refs: set[int]
    nodes: tuple[dict[str, Any], ...]
    unknown_formats: tuple[str, ...]
    patterns: tuple[str, ...]
    paths: int
    unique: bool


_VERSIONS: dict[Draft, int] = {"draft4": 4, "draft6": 6, "draft7": 7, "2019-09": 8, "2020-12": 9}

Predicate = Callable[[Any], bool]
Part = tuple[str, Any, Any, Any]
"""One keyword of a subschema: its name, its argument, the rule that explains it, and the test of a value.

A keyword about the value alone has no rule. Its argument is then the expectation in words and the data of its problem,
and its test tells whether a value fits.
"""


class Field(msgspec.Struct, gc=False):
    """A declared property: its name, its schema, its step in a pointer, and the test of its value."""

    name: str
    schema: Any
    step: str
    fits: Predicate | None = None


class ExplanationCache:
    """Cached parts and tests of one schema's subschemas; they depend on the schema alone.

    Attributes:
        version: the number of its dialect.
        parts: the parts of a subschema, by its id.
    """

    def __init__(self, draft: Draft, compiler: Callable[[Any], jsonschema_rs.Validator]) -> None:
        """Start empty. `compiler` compiles a schema in the dialect of the whole."""
        self.version = _VERSIONS[draft]
        self.parts: dict[int, list[Part]] = {}
        self._compiler = compiler
        self._questions: dict[tuple[int, str], Predicate] = {}

    def validator_for(self, schema: Any) -> Predicate:
        """Return the test whether the validator accepts a value for a whole subschema.

        One test settles valid parts, so the walk visits invalid ones only. The test is always False for a subschema
        that depends on its document, or that is true or false: then the walk decides.
        """
        if not is_object(schema):
            return _always_false
        key = (id(schema), "")
        fits = self._questions.get(key)
        if fits is None:
            fits = self._questions[key] = (
                self._compiler(schema).is_valid if is_self_contained(schema) else _always_false
            )
        return fits

    def is_refused(self, schema: Any, value: Any) -> bool:
        """Return whether the validator refuses a value, if the subschema can be compiled alone."""
        fits = self.validator_for(schema)
        return fits is not _always_false and not fits(value)

    def keyword_validator(self, node: dict[str, Any], keyword: str, argument: Any) -> Predicate:
        """Return the test whether a value fits one keyword of a subschema."""
        alone = {keyword: argument}
        if self.version == 4 and keyword in ("minimum", "maximum"):  # noqa: PLR2004 - draft 4
            flag = "exclusiveM" + keyword[1:]
            alone[flag] = node.get(flag, False)
        return self._compiler(alone).is_valid

    def is_pattern_match(self, node: dict[str, Any], pattern: str, name: str) -> bool:
        """Return whether a pattern of a subschema's `patternProperties` matches a name."""
        key = (id(node), f"pattern {pattern}")
        fits = self._questions.get(key)
        if fits is None:
            fits = self._questions[key] = self.keyword_validator(node, "pattern", pattern)
        return fits(name)


def _always_false(_value: Any) -> bool:
    return False


def iter_subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (keyword, subschema) for every direct subschema of a schema."""
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


def is_self_contained(node: dict[str, Any]) -> bool:
    """Return whether a subschema means the same outside its document and is small enough to compile."""
    stack = [node]
    seen = 0
    while stack:
        schema = stack.pop()
        seen += 1
        if seen > _MAX_SELF_CONTAINED or not _DOCUMENT_KEYWORDS.isdisjoint(schema):
            return False
        stack.extend(child for _, child in iter_subschemas(schema) if is_object(child))
    return True
