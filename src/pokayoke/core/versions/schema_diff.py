"""How two JSON Schemas differ, and what each difference does to the values they accept.

What enters are two compiled schemas; what leaves are deltas. What must never happen here: schemas called
equal of which one accepts what the other refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

import msgspec

from pokayoke.core.json.values import is_array, is_object, properties_of
from pokayoke.core.schema.index import Draft
from pokayoke.core.schema.problems import escape
from pokayoke.core.schema.safety import draft_of
from pokayoke.core.schema.schema import Schema
from pokayoke.core.versions.schema_keywords import (
    KEYWORDS,
    NOTES,
    Delta,
    keyword_deltas,
    kinds,
    listed_values,
    note_deltas,
    same,
    unsure,
)

_DEEPEST: Final = 64
_MOST_COMPARED: Final = 5_000
_ANYTHING: Final[dict[str, Any]] = {}
_UNIONS: Final = ("anyOf", "oneOf")
# What says nothing about a value by itself.
_APART: Final = NOTES | {"$defs", "definitions"}
# Keywords that are looked at; a difference in any other one may mean anything.
_KNOWN: Final = (
    KEYWORDS | _APART | {"required", "properties", "additionalProperties", "items", *_UNIONS, "allOf", "$ref"}
)
# What they refer to depends on the way that led to them.
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
# They judge what their neighbours have left over, and these are neighbours that may leave something else.
_LEFT_OVER: Final = ("unevaluatedProperties", "unevaluatedItems")
_NEIGHBOURS: Final = ("additionalProperties", "items", *_UNIONS, "allOf")


class _Place(msgspec.Struct, frozen=True):
    """Where two subschemas are compared: in the values, and on which way through references."""

    at: str = ""
    depth: int = 0
    followed: tuple[tuple[int, int], ...] = ()

    def below(self, step: str = "") -> _Place:
        return _Place(self.at + step, self.depth + 1, self.followed)

    def behind(self, pair: tuple[int, int]) -> _Place:
        return _Place(self.at, self.depth + 1, (*self.followed, pair))


def schema_deltas(old: Schema, new: Schema) -> tuple[Delta, ...]:
    """Return how a new schema differs from an old one, in the order of the old one's fields."""
    return tuple(dict.fromkeys(_Pair(old, new).deltas(old.raw, new.raw, _Place())))


class _Pair:
    """Two whole schemas, for references inside them. Objects are known by their identity, as in their maps."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._alike = same(old.raw, new.raw)
        self._dialects = frozenset[Draft]() if self._alike else _dialects_of(old) | _dialects_of(new)
        self._meanings: dict[tuple[int, int], bool] = {}
        self._compared_so_far = 0

    def deltas(self, old: Any, new: Any, place: _Place) -> Iterator[Delta]:
        if old is new or self._means_same(old, new):  # `true` and `false` mean the same in any dialect
            return
        old, new = _as_object(old), _as_object(new)
        if old is None or new is None:
            what = "nothing is allowed here now" if new is None else "was not allowed"
            yield Delta(place.at, what, narrower=new is None, wider=old is None)
        elif "$ref" in old or "$ref" in new:
            yield from self._referred(old, new, place)
        elif place.depth > _DEEPEST or self._compared_so_far > _MOST_COMPARED:
            yield unsure(place.at, "nested too deeply, or too large, to be compared")
        else:
            self._compared_so_far += 1
            told = self._union(old, new, place)
            yield from self._compared(old, new, place) if told is None else told

    def _means_same(self, old: Any, new: Any) -> bool:
        if not (is_object(old) and is_object(new)):  # what is no object may be gone before its name is taken again
            return self._reads_same(old, new)
        pair = (id(old), id(new))
        if pair not in self._meanings:
            self._meanings[pair] = self._reads_same(old, new)
        return self._meanings[pair]

    def _reads_same(self, old: Any, new: Any) -> bool:
        """True for equal texts of which every reference leads to equal texts again."""
        waiting, seen = [(old, new)], set[tuple[int, int]]()
        while waiting:
            one, other = waiting.pop()
            if (id(one), id(other)) in seen:
                continue
            seen.add((id(one), id(other)))
            if len(self._dialects) > 1 or not same(one, other):
                return False
            for a, b in _alongside(one, other):
                if any(word in a for word in _DYNAMIC) and not self._alike:
                    return False
                targets = self._old.target(a), self._new.target(b)
                if targets != (None, None):
                    waiting.append(targets)
        return True

    def _referred(self, old: dict[str, Any], new: dict[str, Any], place: _Place) -> Iterator[Delta]:
        one, other = _resolved(old, self._old), _resolved(new, self._new)
        if one is None or other is None:
            yield unsure(place.at, "a reference that cannot be followed here")
            return
        pair = (id(one), id(other))
        if pair not in place.followed:  # else a recursion: what it leads to is being compared already
            yield from self.deltas(one, other, place.behind(pair))

    def _compared(self, old: dict[str, Any], new: dict[str, Any], place: _Place) -> Iterator[Delta]:
        yield from keyword_deltas(old, new, place.at)
        yield from self._fields(old, new, place)
        yield from self._branches(old, new, place)
        items = old.get("items", True), new.get("items", True)
        if not any(map(is_array, items)):
            yield from self.deltas(*items, place.below("/*"))
        elif not self._means_same(*items):  # one schema per place, up to draft 2019-09
            yield unsure(place.at, "`items` changed")
        for name in sorted((old.keys() | new.keys()) - _KNOWN):
            if name in _DYNAMIC or not self._means_same(old.get(name), new.get(name)):
                yield unsure(place.at, f"`{name}` changed")
            elif name in _LEFT_OVER and not all(self._means_same(old.get(w), new.get(w)) for w in _NEIGHBOURS):
                yield unsure(place.at, f"`{name}` may be about something else")
        if len(self._dialects) > 1 and ("format" in old or "format" in new or "draft4" in self._dialects):
            yield unsure(place.at, "read in another dialect")

    def _fields(self, old: dict[str, Any], new: dict[str, Any], place: _Place) -> Iterator[Delta]:
        for name in sorted(_named(old, "required") - _named(new, "required")):
            yield Delta(place.at + escape(name), "is not required any more", wider=True)
        for name in sorted(_named(new, "required") - _named(old, "required")):
            yield Delta(place.at + escape(name), "is required now", narrower=True)
        before, after = properties_of(old), properties_of(new)
        rest = old.get("additionalProperties", True), new.get("additionalProperties", True)
        elsewhere = any(word in side for word in ("patternProperties", "unevaluatedProperties") for side in (old, new))
        for name in dict.fromkeys((*before, *after)):
            inner = place.below(escape(name))
            found = list(self.deltas(before.get(name, rest[0]), after.get(name, rest[1]), inner))
            # Of a map every field is known already: its readers see another value, not one more field.
            if (name in before) == (name in after) or (name in after and _is_map(rest[0]) and not elsewhere):
                yield from found
                continue
            field = "added" if name in after else "removed"
            narrower = elsewhere or any(one.narrower for one in found)
            yield Delta(inner.at, f"field {field}", narrower, elsewhere or any(one.wider for one in found), field)
        inner = place.below("/*")
        field = "added" if rest[0] is False else ""
        for one in self.deltas(*rest, inner):
            what = f"other fields: {one.what}"
            yield msgspec.structs.replace(one, what=what, field=field) if one.at == inner.at else one

    # -- unions --

    def _union(self, old: dict[str, Any], new: dict[str, Any], place: _Place) -> list[Delta] | None:
        """What a union won or lost against what stands in its stead; None if neither is one, or nobody can tell."""
        words = _union_of(old, self._old), _union_of(new, self._new)
        if words[0] == words[1]:
            return None
        one, other = (node[word] if word else [node] for node, word in zip((old, new), words, strict=True))
        lost, won = self._moved(one, other, place, choice=True)
        if lost and won:
            return None
        came, went = f"`{words[1]}` came" * bool(words[1]), f"`{words[0]}` went" * bool(words[0])
        told = Delta(place.at, ", ".join(filter(None, (came, went))), bool(lost), bool(won))
        return [*note_deltas(old, new, place.at), *[told] * bool(lost or won)]

    def _branches(self, old: dict[str, Any], new: dict[str, Any], place: _Place) -> Iterator[Delta]:
        for word in (*_UNIONS, "allOf"):
            before, after = old.get(word), new.get(word)
            if (before is None and after is None) or self._means_same(before, after):
                continue
            if word in _UNIONS and (before is None or after is None):  # without one there is nothing to choose
                yield Delta(place.at, f"`{word}` {'came' if before is None else 'went'}",
                            narrower=before is None, wider=after is None)  # fmt: skip
                continue
            one, other = _listed(before), _listed(after)  # without `allOf` there is nothing more to fulfil
            if word == "oneOf" and not (_exclusive(one, self._old) and _exclusive(other, self._new)):
                yield unsure(place.at, f"`{word}` changed")
                continue
            pairs = list(zip(one, other, strict=False))
            if len(one) == len(other) and sum(not same(a, b) for a, b in pairs) <= 1:
                for pair in pairs:
                    yield from self.deltas(*pair, place.below())
                continue
            gone, came = self._moved(one, other, place, choice=word != "allOf")
            if gone or came:
                lost, won = (came, gone) if word == "allOf" else (gone, came)
                yield Delta(place.at, f"`{word}`: {len(came)} added, {len(gone)} removed", bool(lost), bool(won))

    def _moved(self, one: list[Any], other: list[Any], place: _Place, *, choice: bool) -> tuple[list[Any], list[Any]]:
        """The branches that are gone and those that came, without those that another branch makes up for."""

        def keeps(a: Any, b: Any, *, all_of_old: bool) -> bool:
            one, other = _as_object(_target(a, self._old)), _as_object(_target(b, self._new))
            if one and other and _disjoint(one, other):  # found at once, also where there are many branches
                return False
            deltas = self.deltas(a, b, place.below())
            return not any(delta.narrower if all_of_old else delta.wider for delta in deltas)

        gone = [a for a in one if not any(keeps(a, b, all_of_old=choice) for b in other)]
        came = [b for b in other if not any(keeps(a, b, all_of_old=not choice) for a in one)]
        return gone, came


# -- small things ----------------------------------------------------------------------------------


def _as_object(node: Any) -> dict[str, Any] | None:
    """A schema as an object; None for the one that allows nothing."""
    if node is False:
        return None
    return node if is_object(node) else _ANYTHING


def _is_map(rest: Any) -> bool:
    """True if other fields are allowed, and something is said of them."""
    return is_object(rest) and bool(rest.keys() - _APART)


def _alongside(one: Any, other: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the objects inside two values of one text, each with its counterpart."""
    waiting = [(one, other)]
    while waiting:
        a, b = waiting.pop()
        if is_object(a):
            yield a, b
            waiting += [(a[name], b[name]) for name in a]
        elif is_array(a):
            waiting += zip(a, b, strict=True)


def _resolved(node: dict[str, Any], schema: Schema) -> Any:
    """What a reference leads to; None if it says more beside it, or leads to a dialect's own schema."""
    ref = node.get("$ref")
    if ref is None:
        return node
    target = None if node.keys() - _APART - {"$ref"} else schema.target(node)
    return None if target is True and not ref.startswith("#") else target


def _union_of(node: dict[str, Any], schema: Schema) -> str | None:
    """The keyword of a union that is all a schema says, if it accepts what one of its branches does."""
    said = node.keys() - _APART
    if said == {"anyOf"}:
        return "anyOf"
    return "oneOf" if said == {"oneOf"} and _exclusive(node["oneOf"], schema) else None


def _exclusive(branches: list[Any], schema: Schema) -> bool:
    """True if no value can be valid in two branches: they differ in type, in their values, or in those of a field."""
    nodes = [node for one in branches if (node := _as_object(_target(one, schema))) is not None]
    return schema.draft != "draft4" and all(_disjoint(a, b) for a, b in combinations(nodes, 2))


def _disjoint(a: dict[str, Any], b: dict[str, Any]) -> bool:
    both = kinds(a) & kinds(b)
    if not both or _no_value_in_common(a, b):
        return True
    fields = properties_of(a), properties_of(b)
    needed = _named(a, "required") & _named(b, "required") & fields[0].keys() & fields[1].keys()
    return both <= {"object"} and any(_no_value_in_common(fields[0][name], fields[1][name]) for name in needed)


def _no_value_in_common(a: Any, b: Any) -> bool:
    one, other = (listed_values(node) if is_object(node) else None for node in (a, b))
    return one is not None and other is not None and not one.keys() & other.keys()


def _target(node: Any, schema: Schema) -> Any:
    while is_object(node) and "$ref" in node:
        node = schema.target(node)
    return node


def _dialects_of(schema: Schema) -> frozenset[Draft]:
    """The dialects a schema is read in; a subschema may name one of its own."""
    found: set[Draft | None] = {schema.draft, *(draft_of(node) for node, _ in _alongside(schema.raw, schema.raw))}
    return frozenset(draft for draft in found if draft is not None)


def _named(node: dict[str, Any], word: str) -> set[str]:
    given = node.get(word)
    return {str(name) for name in given} if is_array(given) else set()


def _listed(given: Any) -> list[Any]:
    return given if is_array(given) else []
