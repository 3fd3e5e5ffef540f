"""How two JSON Schemas differ, and what each difference does to the values they accept.

What enters are two schemas; what leaves are deltas. Each says whether values were lost (`narrower`) or
won (`wider`). Where that cannot be told, it says both. What must never happen here: schemas called
equal of which one accepts what the other refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pokayoke.core.canonical import canonical
from pokayoke.core.shapes import is_array, is_object


class Delta(msgspec.Struct, frozen=True):
    """One difference.

    Args:
        at: JSON pointer into the values: `/items/*/size`.
        what: what changed, in a few words.
        narrower: some values that were accepted may be refused now.
        wider: some values that were refused may be accepted now.
        field: `added` or `removed` if it is about a whole field; "" otherwise.
    """

    at: str
    what: str
    narrower: bool = False
    wider: bool = False
    field: str = ""

    @property
    def unknown(self) -> bool:
        """True if nobody can say in which direction it goes, or it goes in both."""
        return self.narrower and self.wider


ALL_TYPES: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_NOTES: Final = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema")
)
_LEAST: Final = {"minLength": "characters", "minItems": "items", "minProperties": "fields"}
_MOST: Final = {"maxLength": "characters", "maxItems": "items", "maxProperties": "fields"}
_DEEPEST: Final = 64
_SHOWN: Final = 60
# Keywords that are looked at; a difference in any other one may mean anything.
_KNOWN: Final = frozenset(
    (
        *("type", "enum", "const", "required", "properties", "additionalProperties", "items", "pattern", "format"),
        *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "uniqueItems", "anyOf", "allOf"),
        *(*_LEAST, *_MOST, "$ref", "$defs", "definitions"),
    )
)
_MOST_COMPARED: Final = 5_000


def schema_deltas(old: Any, new: Any) -> tuple[Delta, ...]:
    """Return how a new schema differs from an old one, in the order of the old one's fields."""
    found = _Pair(old, new).deltas(old, new, "", 0)
    return tuple(dict.fromkeys(found))


class _Pair:
    """Two whole documents, for references inside them."""

    def __init__(self, old: Any, new: Any) -> None:
        self._old, self._new, self._alike = old, new, _same(old, new)
        self._followed: list[tuple[Any, Any]] = []
        self._compared_so_far = 0

    def deltas(self, old: Any, new: Any, at: str, depth: int) -> Iterator[Delta]:
        if _same(old, new) and (self._alike or b'"$' not in canonical(old)):
            return
        old, new = _as_object(old), _as_object(new)
        if old is None or new is None:
            what = "nothing is allowed here now" if new is None else "was not allowed"
            yield Delta(at, what, narrower=new is None, wider=old is None)
            return
        if "$ref" in old or "$ref" in new:
            yield from self._referred(old, new, at, depth)
        elif depth > _DEEPEST or self._compared_so_far > _MOST_COMPARED:
            yield _unsure(at, "nested too deeply, or too large, to be compared")
        else:
            yield from self._compared(old, new, at, depth)

    def _compared(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Delta]:
        self._compared_so_far += 1
        yield from _notes(old, new, at)
        yield from _types(old, new, at)
        yield from _values(old, new, at)
        yield from _bounds(old, new, at)
        yield from _texts(old, new, at)
        yield from self._fields(old, new, at, depth)
        yield from self._branches(old, new, at, depth)
        items = old.get("items", True), new.get("items", True)
        if any(map(is_array, items)):  # one schema per place, up to draft 2019-09
            if not _same(*items):
                yield _unsure(at, "`items` changed")
        else:
            yield from self.deltas(*items, f"{at}/*", depth + 1)
        for name in sorted((old.keys() | new.keys()) - _KNOWN - _NOTES):
            if not _same(old.get(name), new.get(name)):
                yield _unsure(at, f"`{name}` changed")

    def _fields(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Delta]:
        for name in sorted(_named(old, "required") - _named(new, "required")):
            yield Delta(f"{at}/{_step(name)}", "is not required any more", wider=True)
        for name in sorted(_named(new, "required") - _named(old, "required")):
            yield Delta(f"{at}/{_step(name)}", "is required now", narrower=True)
        before, after = _members(old), _members(new)
        rest = old.get("additionalProperties", True), new.get("additionalProperties", True)
        patterns = "patternProperties" in old or "patternProperties" in new
        for name in dict.fromkeys((*before, *after)):
            place = f"{at}/{_step(name)}"
            inner = list(self.deltas(before.get(name, rest[0]), after.get(name, rest[1]), place, depth + 1))
            if (name in before) == (name in after):
                yield from inner
                continue
            field = "added" if name in after else "removed"
            narrower = patterns or any(one.narrower for one in inner)
            yield Delta(place, f"field {field}", narrower, patterns or any(one.wider for one in inner), field)
        for one in self.deltas(*rest, f"{at}/*", depth + 1):
            yield msgspec.structs.replace(one, what=f"other fields: {one.what}") if one.at == f"{at}/*" else one

    def _branches(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Delta]:
        for word in ("anyOf", "allOf"):
            before, after = old.get(word), new.get(word)
            if before is None and after is None:
                continue
            # Without a branch there is nothing to choose, and nothing more to fulfil.
            one, other = _listed(before), _listed(after)
            pairs = [(a, b) for a, b in zip(one, other, strict=False) if not _same(a, b)]
            if (len(one) == len(other) and len(pairs) <= 1) or _same(one, other):
                for pair in zip(one, other, strict=True):
                    yield from self.deltas(*pair, at, depth + 1)
                continue
            gone = [branch for branch in one if not any(_same(branch, kept) for kept in other)]
            came = [branch for branch in other if not any(_same(branch, kept) for kept in one)]
            wholly = before is None or after is None or self._refers(old) or self._refers(new)
            choice = word == "anyOf"
            if wholly and choice:
                yield Delta(at, f"`{word}` {'came' if before is None else 'went' if after is None else 'changed'}",
                            narrower=after is not None, wider=before is not None)  # fmt: skip
            elif wholly and self._refers({"": [one, other]}):
                yield _unsure(at, f"`{word}` changed")
            elif gone or came:
                lost, won = (gone, came) if choice else (came, gone)
                yield Delta(at, f"`{word}`: {len(came)} added, {len(gone)} removed", bool(lost), bool(won))

    def _refers(self, node: Any) -> bool:
        return not self._alike and b'"$' in canonical(node)

    def _referred(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Delta]:
        pair = (old.get("$ref") or canonical(old), new.get("$ref") or canonical(new))
        if pair in self._followed:
            return  # a recursion: what it leads to is being compared already
        one, other = _resolved(old, self._old), _resolved(new, self._new)
        if one is None or other is None:
            yield _unsure(at, "a reference that cannot be followed here")
            return
        self._followed.append(pair)
        yield from self.deltas(one, other, at, depth + 1)
        self._followed.pop()


# -- keywords --------------------------------------------------------------------------------------


def _notes(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    changed = [name for name in sorted(_NOTES) if not _same(old.get(name), new.get(name))]
    if changed:
        yield Delta(at, f"`{'`, `'.join(changed)}` reads differently")


def _types(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    one, other = _kinds(old), _kinds(new)
    if one != other:
        told = f"{_kinds_text(old)} -> {_kinds_text(new)}"
        yield Delta(at, f"type: {told}", narrower=bool(one - other), wider=bool(other - one))


def _kinds(node: dict[str, Any]) -> frozenset[str]:
    given = node.get("type")
    found = ALL_TYPES if given is None else frozenset([given] if isinstance(given, str) else given)
    return found | {"integer"} if "number" in found else found


def _kinds_text(node: dict[str, Any]) -> str:
    given = node.get("type", "anything")
    return given if isinstance(given, str) else " or ".join(sorted(map(str, given)))


def _values(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    one, other = _listed_values(old), _listed_values(new)
    if one is None and other is None:
        return
    if one is None or other is None:
        what = "any value" if other is None else f"only {_shown(other.values())}"
        yield Delta(at, f"values: {what} now", narrower=one is None, wider=other is None)
        return
    gone, came = [one[k] for k in one if k not in other], [other[k] for k in other if k not in one]
    parts = [f"{_shown(came)} added"] * bool(came) + [f"{_shown(gone)} removed"] * bool(gone)
    if parts:
        yield Delta(at, f"values: {', '.join(parts)}", narrower=bool(gone), wider=bool(came))


def _listed_values(node: dict[str, Any]) -> dict[bytes, Any] | None:
    """The values a schema lists, by their canonical form; None if it lists none."""
    lists = [node["enum"]] if is_array(node.get("enum")) else []
    lists += [[node["const"]]] if "const" in node else []
    if not lists:
        return None
    found = {canonical(value): value for value in lists[0]}
    return {key: value for key, value in found.items() if all(key in map(canonical, more) for more in lists[1:])}


def _bounds(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    for name, unit in {**_LEAST, **_MOST}.items():
        default: float = 0 if name in _LEAST else float("inf")
        one, other = old.get(name, default), new.get(name, default)
        if one != other:
            less = other < one
            yield Delta(
                at,
                f"{name}: {_limit(one)} -> {_limit(other)} {unit}",
                less == (name in _MOST),
                less == (name in _LEAST),
            )
    for low, words in ((True, ("minimum", "exclusiveMinimum")), (False, ("maximum", "exclusiveMaximum"))):
        one, other = _edge(old, words, low=low), _edge(new, words, low=low)
        if one is None or other is None:
            if any(not _same(old.get(word), new.get(word)) for word in words):
                yield _unsure(at, f"`{words[1]}` of an old draft changed")
        elif one != other:
            more = other > one
            yield Delta(at, f"{words[0]}: {_limit(one[0])} -> {_limit(other[0])}", more == low, more != low)
    one, other = old.get("multipleOf"), new.get("multipleOf")
    if not _same(one, other):
        yield Delta(at, f"multipleOf: {one or 'any'} -> {other or 'any'}", other is not None, one is not None)


def _edge(node: dict[str, Any], words: tuple[str, str], *, low: bool) -> tuple[float, int] | None:
    """The bound a value must keep, and a rank for whether it may lie on it; None for the booleans of draft 4."""
    sign = 1 if low else -1
    found: tuple[float, int] = (-sign * float("inf"), 0)
    for word, exclusive in zip(words, (0, sign), strict=True):
        value = node.get(word)
        if isinstance(value, bool):
            return None
        if isinstance(value, (int, float)):
            found = max(found, (value, exclusive)) if low else min(found, (value, exclusive))
    return found


def _texts(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    for word in ("pattern", "format"):
        one, other = old.get(word), new.get(word)
        if one != other:
            told = f"{word}: {_clip(one)} -> {_clip(other)}"
            yield Delta(at, told, narrower=other is not None, wider=one is not None)
    one, other = bool(old.get("uniqueItems")), bool(new.get("uniqueItems"))
    if one != other:
        yield Delta(at, f"items {'must' if other else 'need not'} differ now", narrower=other, wider=one)


# -- small things ----------------------------------------------------------------------------------


def _same(one: Any, other: Any) -> bool:
    return one is other or canonical(one) == canonical(other)


def _as_object(node: Any) -> dict[str, Any] | None:
    """A schema as an object; None for the one that allows nothing."""
    if node is False:
        return None
    return node if is_object(node) else {}


def _unsure(at: str, what: str) -> Delta:
    return Delta(at, what, narrower=True, wider=True)


def _named(node: dict[str, Any], word: str) -> set[str]:
    given = node.get(word)
    return {str(name) for name in given} if is_array(given) else set()


def _members(node: dict[str, Any]) -> dict[str, Any]:
    given = node.get("properties")
    return given if is_object(given) else {}


def _listed(given: Any) -> list[Any]:
    return given if is_array(given) else []


def _resolved(node: dict[str, Any], root: Any) -> Any:
    """What a reference inside its own document leads to; None if it leads elsewhere or says more beside it."""
    ref = node.get("$ref")
    if ref is None:
        return node
    if not isinstance(ref, str) or not ref.startswith("#") or node.keys() - _NOTES - {"$ref", "$defs", "definitions"}:
        return None
    found: Any = root
    for step in ref[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not is_object(found) or name not in found:
            return None
        found = found[name]
    return found


def _step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _limit(value: float) -> str:
    return "none" if value in (float("inf"), -float("inf")) else f"{value:g}"


def _clip(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _shown(values: Any) -> str:
    return _clip(", ".join(canonical(value).decode() for value in values))
