"""What the keywords of one schema object say apart from each other: the differences that need no look further down.

What enters are two schema objects; what leaves are deltas. Each says whether values were lost (`narrower`)
or won (`wider`); where that cannot be told, it says both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pokayoke.core.json.canonical import canonical
from pokayoke.core.json.values import is_array


class Delta(msgspec.Struct, frozen=True):
    """One difference.

    Args:
        at: JSON pointer into the values: `/items/*/size`.
        what: what changed, in a few words.
        narrower: some values that were accepted may be refused now.
        wider: some values that were refused may be accepted now.
        field: `added` if it is about fields that were not allowed or of which nothing was said, `removed` if it is
            about one that is not described any more; "" otherwise.
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
NOTES: Final = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"),
        "discriminator",  # of OpenAPI; pydantic writes it beside `oneOf`
    )
)
"""Keywords that change no verdict by themselves."""
_LEAST: Final = {"minLength": "characters", "minItems": "items", "minProperties": "fields"}
_MOST: Final = {"maxLength": "characters", "maxItems": "items", "maxProperties": "fields"}
_SHOWN: Final = 60
KEYWORDS: Final = frozenset(
    (
        *("type", "enum", "const", "pattern", "format", "uniqueItems", "multipleOf"),
        *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", *_LEAST, *_MOST),
    )
)
"""Keywords that are compared here."""


def keyword_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    """Yield what notes and keywords without subschemas say differently."""
    yield from note_deltas(old, new, at)
    yield from _types(old, new, at)
    yield from _values(old, new, at)
    yield from _bounds(old, new, at)
    yield from _texts(old, new, at)


def note_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    """Yield what reads differently and means the same."""
    changed = [name for name in sorted(NOTES) if not same(old.get(name), new.get(name))]
    if changed:
        yield Delta(at, f"`{'`, `'.join(changed)}` reads differently")


def _types(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    one, other = kinds(old), kinds(new)
    if one != other:
        told = f"{_kinds_text(old)} -> {_kinds_text(new)}"
        yield Delta(at, f"type: {told}", narrower=bool(one - other), wider=bool(other - one))


def kinds(node: dict[str, Any]) -> frozenset[str]:
    """Return the types a schema allows."""
    given = node.get("type")
    found = ALL_TYPES if given is None else frozenset([given] if isinstance(given, str) else given)
    return found | {"integer"} if "number" in found else found


def _kinds_text(node: dict[str, Any]) -> str:
    given = node.get("type", "anything")
    return given if isinstance(given, str) else " or ".join(sorted(map(str, given)))


def _values(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    one, other = listed_values(old), listed_values(new)
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


def listed_values(node: dict[str, Any]) -> dict[bytes, Any] | None:
    """Return the values a schema lists, by their canonical form; None if it lists none."""
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
            if any(not same(old.get(word), new.get(word)) for word in words):
                yield unsure(at, f"`{words[1]}` of an old draft changed")
        elif one != other:
            more = other > one
            yield Delta(at, f"{words[0]}: {_limit(one[0])} -> {_limit(other[0])}", more == low, more != low)
    one, other = old.get("multipleOf"), new.get("multipleOf")
    if not same(one, other):
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


def same(one: Any, other: Any) -> bool:
    """Return whether two values have one text."""
    return one is other or canonical(one) == canonical(other)


def unsure(at: str, what: str) -> Delta:
    """Return a difference of which nobody can say in which direction it goes."""
    return Delta(at, what, narrower=True, wider=True)


def _limit(value: float) -> str:
    return "none" if value in (float("inf"), -float("inf")) else f"{value:g}"


def _clip(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _shown(values: Any) -> str:
    return _clip(", ".join(canonical(value).decode() for value in values))
