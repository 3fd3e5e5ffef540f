"""What a schema says about one place of a value: types, choices, formats, properties.

In: a compiled schema and a path.
Out: facts, gathered from every branch that may apply.
Never: a decision. A value proposed from these facts is used only if the validator accepts it and no other proposal.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import msgspec

from pokayoke.core.json.pointer import Path
from pokayoke.core.schema.schema import Schema

T = TypeVar("T")
Node = dict[str, Any]

FOLDED_PREFIX = "\n"  # occurs in no text whose spaces are normalised
_MAX_NODES = 200
_MAX_PLACES = 500
_MAX_KEY = 200
_LISTS = ("allOf", "anyOf", "oneOf")
_ONE = ("then", "else")
_TYPE_NAMES: dict[type, str] = {str: "string", dict: "object", list: "array", float: "number", type(None): "null"}


class SchemaFacts(msgspec.Struct, frozen=True, dict=True):
    """What a schema says about one place.

    Attributes:
        nodes: the subschemas that may apply there, with references resolved.
        types: the JSON types that are allowed there; empty if the schema names none.
        choices: the values of `enum` and `const`.
        formats: the asserted or annotated `format` names.
        properties: names of the declared properties of an object there.
        required: names of properties that some subschema requires there.
        defaults: the declared defaults.
    """

    nodes: tuple[Node, ...]
    types: frozenset[str]
    choices: tuple[Any, ...]
    formats: frozenset[str]
    properties: tuple[str, ...]
    required: frozenset[str]
    defaults: tuple[Any, ...]

    @cached_property
    def choices_by_spelling(self) -> dict[str, list[str]]:
        """The choices that are texts, by their spellings.

        A key is the choice with normalised spaces, or `FOLDED_PREFIX` and that text without case or separators.
        Among choices such as `+1` or ` -1` a minus is no separator, and the case of a unit belongs to it (`1m`, `1M`;
        `mW`, `MW`).
        """
        found: dict[str, list[str]] = {}
        texts = [choice for choice in self.choices if isinstance(choice, str)]
        signed = any("+" in choice or " -" in choice for choice in texts)
        for choice in texts:
            spaced = " ".join(choice.split())
            spellings = [spaced]
            if not _UNIT.search(spaced):
                spellings += [FOLDED_PREFIX + spaced.casefold()]
                if not signed:
                    spellings += [FOLDED_PREFIX + fold_separators(spaced)]
            for spelling in dict.fromkeys(spellings):
                found.setdefault(spelling, []).append(choice)
        return found


# A number with one letter, or with bits or bytes; a unit after a prefix in small letters.
_UNIT = re.compile(r"[0-9] ?(?:[A-Za-z]|[KkMGT]i?[Bb])\Z|\A(?:[munpfcdk][A-Z][a-z]?|[KMGT]i?[Bb])\Z")


def fold_separators(text: str) -> str:
    """Return a text without case in which `_`, `-` and spaces between words are equal.

    At an end such a sign may be more than a separator (`-1`, `A-`): then only the case is folded.
    """
    folded = text.casefold()
    words = " ".join(folded.replace("_", " ").replace("-", " ").split())
    return words if folded[:1] == words[:1] and folded[-1:] == words[-1:] else folded


def cached_per_schema(schema: Schema, key: tuple[Hashable, Path], make: Callable[[], T], most: int = _MAX_PLACES) -> T:
    """Return what `make` computes about a place of a schema; the first results are cached with the schema.

    Args:
        schema: holds the cache. It is bounded, because paths come from values and may be many and long.
        key: the question with everything else that its answer depends on, and the path.
        make: computes the result.
        most: the number of cached results from which no more are added.
    """
    known: Any = schema.places.get(key)
    if known is None:
        known = make()
        if len(schema.places) < most and sum(map(len, key[1])) < _MAX_KEY:
            schema.places[key] = known
    found: T = known
    return found


def facts_at(schema: Schema, path: Path) -> SchemaFacts:
    """Return what a schema says about the place at a path."""
    return cached_per_schema(schema, ("facts", path), lambda: _compute_facts_at(schema, path))


def _compute_facts_at(schema: Schema, path: Path) -> SchemaFacts:
    nodes = _expand_schemas([schema.raw], schema)
    for step in path:
        nodes = _expand_schemas(_child_schemas(nodes, step), schema)
    return _merge_facts_cached(schema, nodes)


def facts_of_branch(schema: Schema, path: Path, node: Any) -> SchemaFacts:
    """Return what a schema says about a place in one chosen branch.

    Args:
        schema: the whole schema.
        path: the place.
        node: a subschema of that place, by identity. If it is not found there, all branches count.
    """
    merged = facts_at(schema, path)
    if path and len(merged.nodes) > 1:
        for start in _child_schemas(facts_at(schema, path[:-1]).nodes, path[-1]):
            nodes = _expand_schemas([start], schema)
            if any(one is node for one in nodes):
                return _merge_facts(nodes)
    return merged


def facts_of_child_in(schema: Schema, node: Any, step: str) -> SchemaFacts | None:
    """Return what one subschema says about a property or item of its place; None if nothing."""
    nodes = _expand_schemas(_child_schemas(_expand_schemas([node], schema), step), schema)
    return _merge_facts(nodes) if nodes else None


def may_exist(facts: SchemaFacts, name: str) -> bool:
    """Return whether a place may have a property, as far as its own subschemas say."""
    return any(child is not False for child in _child_schemas(facts.nodes, name))


def declared_facts(schema: Schema, path: Path) -> SchemaFacts | None:
    """Return what a schema says about a place, or None if it does not know the place.

    Args:
        schema: the schema.
        path: steps from the root; `*` stands for any item of a list.
    """
    nodes = _expand_schemas([schema.raw], schema)
    for step in path:
        children = _child_schemas(nodes, "0" if step == "*" else step)
        nodes = _expand_schemas(children, schema)
        if not any(child is not False for child in children):
            return None
    return _merge_facts(nodes)


def facts_of_child(schema: Schema, facts: SchemaFacts, step: str) -> SchemaFacts:
    """Return what a schema says about one property or item of a place."""
    return _merge_facts_cached(schema, _expand_schemas(_child_schemas(facts.nodes, step), schema))


def item_facts(schema: Schema, facts: SchemaFacts) -> SchemaFacts:
    """Return what a schema says about the items of an array at a place."""
    return facts_of_child(schema, facts, "0")


def walk_objects(value: Any, schema: Schema) -> Iterator[tuple[Path, SchemaFacts, dict[str, Any]]]:
    """Yield every object in a value, with its path and what the schema says about its place.

    An object comes before its fields, and all of them in their order.
    """
    stack: list[tuple[Path, SchemaFacts, Any]] = (
        [((), facts_at(schema, ()), value)] if isinstance(value, dict | list) else []
    )
    while stack:
        path, facts, item = stack.pop()
        is_list = isinstance(item, list)
        if not is_list:
            yield path, facts, item
        entries: Iterable[tuple[Any, Any]] = enumerate(cast(list[Any], item)) if is_list else item.items()
        alike = facts_of_child(schema, facts, "0") if is_list and not _has_rows(facts) else None
        inside = [(str(key), child) for key, child in entries if type(child) in (dict, list)]
        for step, child in reversed(inside):
            stack.append(((*path, step), alike or facts_of_child(schema, facts, step), child))


def _has_rows(facts: SchemaFacts) -> bool:
    """Return whether the items of a list may differ by their position."""
    return any("prefixItems" in node or isinstance(node.get("items"), list) for node in facts.nodes)


def json_types(value: Any) -> frozenset[str]:
    """Return the JSON Schema types a JSON value belongs to; a whole float is an integer too."""
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return frozenset({"integer", "number"})
    return frozenset({_TYPE_NAMES.get(cast(type, type(value)), "")})


def _merge_facts_cached(schema: Schema, nodes: Sequence[Node]) -> SchemaFacts:
    """Return what these subschemas say, cached: all items of a list share them, and may have very many choices."""
    key = ("nodes", tuple([f"{id(node):x}" for node in nodes]))
    return cached_per_schema(
        schema, key, lambda: _merge_facts(nodes), 2 * _MAX_PLACES
    )  # places that no path of a value takes


def _merge_facts(nodes: Sequence[Node]) -> SchemaFacts:
    types: set[str] = set()
    choices: list[Any] = []
    formats: set[str] = set()
    properties: dict[str, None] = {}
    required: set[str] = set()
    for node in nodes:
        named = node.get("type")
        types.update([named] if isinstance(named, str) else named or ())
        found = [*node.get("enum", ()), *([node["const"]] if "const" in node else ())]
        choices.extend(found)
        if named is None:
            types.update(*(json_types(item) for item in found))
        if isinstance(node.get("format"), str):
            formats.add(node["format"])
        properties.update(dict.fromkeys(cast(Mapping[str, Any], node.get("properties", {}))))
        if isinstance(node.get("required"), list):
            required.update(node["required"])
    return SchemaFacts(
        nodes=tuple(nodes),
        types=frozenset(types),
        choices=tuple(choices),
        formats=frozenset(formats),
        properties=tuple(properties),
        required=frozenset(required),
        defaults=tuple(node["default"] for node in nodes if "default" in node),
    )


def _expand_schemas(schemas: Iterable[Any], whole: Schema) -> list[Node]:
    """Return subschemas with what their references and in-place combinations add; each once, at most `_MAX_NODES`."""
    found: list[Node] = []
    seen: set[int] = set()
    queue = deque(schemas)
    while queue and len(found) < _MAX_NODES:
        node = queue.popleft()
        if not isinstance(node, dict) or id(cast(object, node)) in seen:
            continue
        schema = cast(Node, node)
        seen.add(id(schema))
        found.append(schema)
        queue.append(whole.resolve_ref(schema))
        for keyword in _LISTS:
            queue.extend(schema.get(keyword, ()))
        queue.extend(schema[keyword] for keyword in _ONE if keyword in schema)
        queue.extend(cast(dict[str, Any], schema.get("dependentSchemas", {})).values())
    return found


def _child_schemas(nodes: Iterable[Node], step: str) -> list[Any]:
    """Return the subschemas that may apply to one property or item."""
    found: list[Any] = []
    for node in nodes:
        named = cast(dict[str, Any], node.get("properties", {}))
        if step in named:
            found.append(named[step])
        else:
            found.extend(cast(dict[str, Any], node.get("patternProperties", {})).values())
            found.extend(node[key] for key in ("additionalProperties", "unevaluatedProperties") if key in node)
        if step.isdecimal():
            listed = node.get("prefixItems", node.get("items"))
            rows = cast(Sequence[Any], listed) if isinstance(listed, list) else ()
            if int(step) < len(rows):
                found.append(rows[int(step)])
            else:
                found.extend(node[key] for key in ("items", "additionalItems", "unevaluatedItems") if key in node)
    return found
