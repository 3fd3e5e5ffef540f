"""Compares two JSON Schemas: each difference, and its effect on the accepted values.

In: two compiled schemas.
Out: deltas.
Never: call two schemas equal if one accepts a value that the other refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

import msgspec

from pokayoke.core.json.pointer import pointer_step
from pokayoke.core.json.values import is_array, is_object, properties_of
from pokayoke.core.schema.index import Draft
from pokayoke.core.schema.safety import declared_draft
from pokayoke.core.schema.schema import Schema
from pokayoke.core.versions.schema_keywords import (
    ANNOTATIONS,
    KEYWORDS,
    Delta,
    allowed_types,
    annotation_deltas,
    is_same_json,
    keyword_deltas,
    listed_values,
    unsure_delta,
)

_MAX_DEPTH: Final = 64
_MAX_COMPARISONS: Final = 5_000
_ANY_SCHEMA: Final[dict[str, Any]] = {}
_UNIONS: Final = ("anyOf", "oneOf")
# Keywords that alone say nothing about a value.
_NEUTRAL_KEYWORDS: Final = ANNOTATIONS | {"$defs", "definitions"}
# Compared keywords; a difference in any other one may mean anything.
_KNOWN_KEYWORDS: Final = (
    KEYWORDS
    | _NEUTRAL_KEYWORDS
    | {"required", "properties", "additionalProperties", "items", *_UNIONS, "allOf", "$ref"}
)
# Their target depends on the path to them.
_DYNAMIC_REFERENCES: Final = ("$dynamicRef", "$recursiveRef")
# They judge what their neighbours leave over, and these neighbours may leave over something else.
_UNEVALUATED_KEYWORDS: Final = ("unevaluatedProperties", "unevaluatedItems")
_EVALUATING_KEYWORDS: Final = ("additionalProperties", "items", *_UNIONS, "allOf")


class _SchemaPlace(msgspec.Struct, frozen=True):
    """The place of a comparison: in the values, and on the path through references."""

    at: str = ""
    depth: int = 0
    followed: tuple[tuple[int, int], ...] = ()

    def step_below(self, step: str = "") -> _SchemaPlace:
        return _SchemaPlace(self.at + step, self.depth + 1, self.followed)

    def follow_reference(self, pair: tuple[int, int]) -> _SchemaPlace:
        return _SchemaPlace(self.at, self.depth + 1, (*self.followed, pair))


def schema_deltas(old: Schema, new: Schema) -> tuple[Delta, ...]:
    """Return how a new schema differs from an old one, in the order of the old one's fields."""
    return tuple(dict.fromkeys(_SchemaComparison(old, new).compare_nodes(old.raw, new.raw, _SchemaPlace())))


class _SchemaComparison:
    """Two whole schemas, for references inside them. Objects are identified by `id`, as in their maps."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._alike = is_same_json(old.raw, new.raw)
        self._dialects = frozenset[Draft]() if self._alike else _dialects_of(old) | _dialects_of(new)
        self._meanings: dict[tuple[int, int], bool] = {}
        self._compared_so_far = 0

    def compare_nodes(self, old: Any, new: Any, place: _SchemaPlace) -> Iterator[Delta]:
        if old is new or self._is_equivalent(old, new):  # `true` and `false` mean the same in any dialect
            return
        old, new = _as_object(old), _as_object(new)
        if old is None or new is None:
            what = "nothing is allowed here now" if new is None else "was not allowed"
            yield Delta(place.at, what, narrower=new is None, wider=old is None)
        elif "$ref" in old or "$ref" in new:
            yield from self._compare_references(old, new, place)
        elif place.depth > _MAX_DEPTH or self._compared_so_far > _MAX_COMPARISONS:
            yield unsure_delta(place.at, "nested too deeply, or too large, to be compared")
        else:
            self._compared_so_far += 1
            told = self._compare_union(old, new, place)
            yield from self._compare_objects(old, new, place) if told is None else told

    def _is_equivalent(self, old: Any, new: Any) -> bool:
        if not (is_object(old) and is_object(new)):  # another value may be freed before its id is reused
            return self._is_equal_text(old, new)
        pair = (id(old), id(new))
        if pair not in self._meanings:
            self._meanings[pair] = self._is_equal_text(old, new)
        return self._meanings[pair]

    def _is_equal_text(self, old: Any, new: Any) -> bool:
        """Return whether two texts are equal, and every reference in them leads to equal texts."""
        waiting, seen = [(old, new)], set[tuple[int, int]]()
        while waiting:
            one, other = waiting.pop()
            if (id(one), id(other)) in seen:
                continue
            seen.add((id(one), id(other)))
            if len(self._dialects) > 1 or not is_same_json(one, other):
                return False
            for a, b in _paired_objects(one, other):
                if any(word in a for word in _DYNAMIC_REFERENCES) and not self._alike:
                    return False
                targets = self._old.resolve_ref(a), self._new.resolve_ref(b)
                if targets != (None, None):
                    waiting.append(targets)
        return True

    def _compare_references(self, old: dict[str, Any], new: dict[str, Any], place: _SchemaPlace) -> Iterator[Delta]:
        one, other = _resolve_reference(old, self._old), _resolve_reference(new, self._new)
        if one is None or other is None:
            yield unsure_delta(place.at, "a reference that cannot be followed here")
            return
        pair = (id(one), id(other))
        if pair not in place.followed:  # else a recursion: its target is already being compared
            yield from self.compare_nodes(one, other, place.follow_reference(pair))

    def _compare_objects(self, old: dict[str, Any], new: dict[str, Any], place: _SchemaPlace) -> Iterator[Delta]:
        yield from keyword_deltas(old, new, place.at)
        yield from self._compare_fields(old, new, place)
        yield from self._compare_branches(old, new, place)
        items = old.get("items", True), new.get("items", True)
        if not any(map(is_array, items)):
            yield from self.compare_nodes(*items, place.step_below("/*"))
        elif not self._is_equivalent(*items):  # one schema per place, up to draft 2019-09
            yield unsure_delta(place.at, "`items` changed")
        for name in sorted((old.keys() | new.keys()) - _KNOWN_KEYWORDS):
            if name in _DYNAMIC_REFERENCES or not self._is_equivalent(old.get(name), new.get(name)):
                yield unsure_delta(place.at, f"`{name}` changed")
            elif name in _UNEVALUATED_KEYWORDS and not all(
                self._is_equivalent(old.get(w), new.get(w)) for w in _EVALUATING_KEYWORDS
            ):
                yield unsure_delta(place.at, f"`{name}` may be about something else")
        if len(self._dialects) > 1 and ("format" in old or "format" in new or "draft4" in self._dialects):
            yield unsure_delta(place.at, "read in another dialect")

    def _compare_fields(self, old: dict[str, Any], new: dict[str, Any], place: _SchemaPlace) -> Iterator[Delta]:
        for name in sorted(_names_in(old, "required") - _names_in(new, "required")):
            yield Delta(place.at + pointer_step(name), "is not required any more", wider=True)
        for name in sorted(_names_in(new, "required") - _names_in(old, "required")):
            yield Delta(place.at + pointer_step(name), "is required now", narrower=True)
        before, after = properties_of(old), properties_of(new)
        rest = old.get("additionalProperties", True), new.get("additionalProperties", True)
        elsewhere = any(word in side for word in ("patternProperties", "unevaluatedProperties") for side in (old, new))
        for name in dict.fromkeys((*before, *after)):
            inner = place.step_below(pointer_step(name))
            found = list(self.compare_nodes(before.get(name, rest[0]), after.get(name, rest[1]), inner))
            # Every field of a map is already known: its readers see another value, not an additional field.
            if (name in before) == (name in after) or (name in after and _is_map(rest[0]) and not elsewhere):
                yield from found
                continue
            field = "added" if name in after else "removed"
            narrower = elsewhere or any(one.narrower for one in found)
            yield Delta(inner.at, f"field {field}", narrower, elsewhere or any(one.wider for one in found), field)
        inner = place.step_below("/*")
        field = "added" if rest[0] is False else ""
        for one in self.compare_nodes(*rest, inner):
            what = f"other fields: {one.what}"
            yield msgspec.structs.replace(one, what=what, field=field) if one.at == inner.at else one

    # -- unions --

    def _compare_union(self, old: dict[str, Any], new: dict[str, Any], place: _SchemaPlace) -> list[Delta] | None:
        """Return what a union gained or lost; None if neither schema is one, or it cannot be decided."""
        words = _union_of(old, self._old), _union_of(new, self._new)
        if words[0] == words[1]:
            return None
        one, other = (node[word] if word else [node] for node, word in zip((old, new), words, strict=True))
        lost, won = self._unmatched_branches(one, other, place, choice=True)
        if lost and won:
            return None
        came, went = f"`{words[1]}` came" * bool(words[1]), f"`{words[0]}` went" * bool(words[0])
        told = Delta(place.at, ", ".join(filter(None, (came, went))), bool(lost), bool(won))
        return [*annotation_deltas(old, new, place.at), *[told] * bool(lost or won)]

    def _compare_branches(self, old: dict[str, Any], new: dict[str, Any], place: _SchemaPlace) -> Iterator[Delta]:
        for word in (*_UNIONS, "allOf"):
            before, after = old.get(word), new.get(word)
            if (before is None and after is None) or self._is_equivalent(before, after):
                continue
            if word in _UNIONS and (before is None or after is None):  # without a union there is no choice
                yield Delta(place.at, f"`{word}` {'came' if before is None else 'went'}",
                            narrower=before is None, wider=after is None)  # fmt: skip
                continue
            one, other = _as_list(before), _as_list(after)  # without `allOf` there is no further condition
            if word == "oneOf" and not (_are_exclusive(one, self._old) and _are_exclusive(other, self._new)):
                yield unsure_delta(place.at, f"`{word}` changed")
                continue
            pairs = list(zip(one, other, strict=False))
            if len(one) == len(other) and sum(not is_same_json(a, b) for a, b in pairs) <= 1:
                for pair in pairs:
                    yield from self.compare_nodes(*pair, place.step_below())
                continue
            gone, came = self._unmatched_branches(one, other, place, choice=word != "allOf")
            if gone or came:
                lost, won = (came, gone) if word == "allOf" else (gone, came)
                yield Delta(place.at, f"`{word}`: {len(came)} added, {len(gone)} removed", bool(lost), bool(won))

    def _unmatched_branches(
        self, one: list[Any], other: list[Any], place: _SchemaPlace, *, choice: bool
    ) -> tuple[list[Any], list[Any]]:
        """Return the removed and the added branches, except those that another branch covers."""

        def is_covered(a: Any, b: Any, *, all_of_old: bool) -> bool:
            one, other = _as_object(_follow_references(a, self._old)), _as_object(_follow_references(b, self._new))
            if one and other and _are_disjoint(one, other):  # fast also with many branches
                return False
            deltas = self.compare_nodes(a, b, place.step_below())
            return not any(delta.narrower if all_of_old else delta.wider for delta in deltas)

        gone = [a for a in one if not any(is_covered(a, b, all_of_old=choice) for b in other)]
        came = [b for b in other if not any(is_covered(a, b, all_of_old=not choice) for a in one)]
        return gone, came


# -- helpers ---------------------------------------------------------------------------------------


def _as_object(node: Any) -> dict[str, Any] | None:
    """Return a schema as an object; None for `false`."""
    if node is False:
        return None
    return node if is_object(node) else _ANY_SCHEMA


def _is_map(rest: Any) -> bool:
    """Return whether other fields are allowed and described."""
    return is_object(rest) and bool(rest.keys() - _NEUTRAL_KEYWORDS)


def _paired_objects(one: Any, other: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the objects inside two values of equal text, in pairs."""
    waiting = [(one, other)]
    while waiting:
        a, b = waiting.pop()
        if is_object(a):
            yield a, b
            waiting += [(a[name], b[name]) for name in a]
        elif is_array(a):
            waiting += zip(a, b, strict=True)


def _resolve_reference(node: dict[str, Any], schema: Schema) -> Any:
    """Return a reference's target; None if other keywords stand next to it, or it leads to a dialect's own schema."""
    ref = node.get("$ref")
    if ref is None:
        return node
    target = None if node.keys() - _NEUTRAL_KEYWORDS - {"$ref"} else schema.resolve_ref(node)
    return None if target is True and not ref.startswith("#") else target


def _union_of(node: dict[str, Any], schema: Schema) -> str | None:
    """Return the keyword of a union that is the whole schema and accepts whatever one branch accepts."""
    said = node.keys() - _NEUTRAL_KEYWORDS
    if said == {"anyOf"}:
        return "anyOf"
    return "oneOf" if said == {"oneOf"} and _are_exclusive(node["oneOf"], schema) else None


def _are_exclusive(branches: list[Any], schema: Schema) -> bool:
    """Return whether no value is valid in two branches: they differ in type, values, or the values of a field."""
    nodes = [node for one in branches if (node := _as_object(_follow_references(one, schema))) is not None]
    return schema.draft != "draft4" and all(_are_disjoint(a, b) for a, b in combinations(nodes, 2))


def _are_disjoint(a: dict[str, Any], b: dict[str, Any]) -> bool:
    both = allowed_types(a) & allowed_types(b)
    if not both or _has_disjoint_values(a, b):
        return True
    fields = properties_of(a), properties_of(b)
    needed = _names_in(a, "required") & _names_in(b, "required") & fields[0].keys() & fields[1].keys()
    return both <= {"object"} and any(_has_disjoint_values(fields[0][name], fields[1][name]) for name in needed)


def _has_disjoint_values(a: Any, b: Any) -> bool:
    one, other = (listed_values(node) if is_object(node) else None for node in (a, b))
    return one is not None and other is not None and not one.keys() & other.keys()


def _follow_references(node: Any, schema: Schema) -> Any:
    while is_object(node) and "$ref" in node:
        node = schema.resolve_ref(node)
    return node


def _dialects_of(schema: Schema) -> frozenset[Draft]:
    """Return the dialects of a schema; a subschema may name its own."""
    found: set[Draft | None] = {
        schema.draft,
        *(declared_draft(node) for node, _ in _paired_objects(schema.raw, schema.raw)),
    }
    return frozenset(draft for draft in found if draft is not None)


def _names_in(node: dict[str, Any], word: str) -> set[str]:
    given = node.get(word)
    return {str(name) for name in given} if is_array(given) else set()


def _as_list(given: Any) -> list[Any]:
    return given if is_array(given) else []
