"""Compares the keywords of two schema objects that have no subschemas.

In: two schema objects.
Out: deltas. Each says whether values were lost (`narrower`) or gained (`wider`); where this is unknown, both.
Never: claim a direction that is not proven.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pokayoke.core.json.canonical import canonical_bytes
from pokayoke.core.json.values import is_array


class Delta(msgspec.Struct, frozen=True):
    """One difference.

    Args:
        at: JSON pointer into the values: `/items/*/size`.
        what: the change, in a few words.
        narrower: some values that were accepted may be refused now.
        wider: some values that were refused may be accepted now.
        field: `added` for fields that were forbidden or not described, `removed` for one that is no longer
            described; "" otherwise.
    """

    at: str
    what: str
    narrower: bool = False
    wider: bool = False
    field: str = ""

    @property
    def is_unknown(self) -> bool:
        """True if the direction is unknown, or both."""
        return self.narrower and self.wider


ALL_TYPES: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
ANNOTATIONS: Final = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"),
        "discriminator",  # from OpenAPI; pydantic writes it next to `oneOf`
    )
)
"""Keywords that alone change no verdict."""
_MIN_KEYWORDS: Final = {"minLength": "characters", "minItems": "items", "minProperties": "fields"}
_MAX_KEYWORDS: Final = {"maxLength": "characters", "maxItems": "items", "maxProperties": "fields"}
_MAX_SHOWN_CHARS: Final = 60
KEYWORDS: Final = frozenset(
    (
        *("type", "enum", "const", "pattern", "format", "uniqueItems", "multipleOf"),
        *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", *_MIN_KEYWORDS, *_MAX_KEYWORDS),
    )
)
"""Keywords that this module compares."""


def keyword_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    """Yield the differences in notes and keywords without subschemas."""
    yield from annotation_deltas(old, new, at)
    yield from _type_deltas(old, new, at)
    yield from _value_deltas(old, new, at)
    yield from _bound_deltas(old, new, at)
    yield from _text_deltas(old, new, at)


def annotation_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    """Yield differences in the text that mean the same."""
    changed = [name for name in sorted(ANNOTATIONS) if not is_same_json(old.get(name), new.get(name))]
    if changed:
        yield Delta(at, f"`{'`, `'.join(changed)}` reads differently")


def _type_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    one, other = allowed_types(old), allowed_types(new)
    if one != other:
        told = f"{_types_text(old)} -> {_types_text(new)}"
        yield Delta(at, f"type: {told}", narrower=bool(one - other), wider=bool(other - one))


def allowed_types(node: dict[str, Any]) -> frozenset[str]:
    """Return the types a schema allows."""
    given = node.get("type")
    found = ALL_TYPES if given is None else frozenset([given] if isinstance(given, str) else given)
    return found | {"integer"} if "number" in found else found


def _types_text(node: dict[str, Any]) -> str:
    given = node.get("type", "anything")
    return given if isinstance(given, str) else " or ".join(sorted(map(str, given)))


def _value_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    one, other = listed_values(old), listed_values(new)
    if one is None and other is None:
        return
    if one is None or other is None:
        what = "any value" if other is None else f"only {_format_values(other.values())}"
        yield Delta(at, f"values: {what} now", narrower=one is None, wider=other is None)
        return
    gone, came = [one[k] for k in one if k not in other], [other[k] for k in other if k not in one]
    parts = [f"{_format_values(came)} added"] * bool(came) + [f"{_format_values(gone)} removed"] * bool(gone)
    if parts:
        yield Delta(at, f"values: {', '.join(parts)}", narrower=bool(gone), wider=bool(came))


def listed_values(node: dict[str, Any]) -> dict[bytes, Any] | None:
    """Return the values a schema lists, by their canonical form; None if it lists none."""
    lists = [node["enum"]] if is_array(node.get("enum")) else []
    lists += [[node["const"]]] if "const" in node else []
    if not lists:
        return None
    found = {canonical_bytes(value): value for value in lists[0]}
    return {key: value for key, value in found.items() if all(key in map(canonical_bytes, more) for more in lists[1:])}


def _bound_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    for name, unit in {**_MIN_KEYWORDS, **_MAX_KEYWORDS}.items():
        default: float = 0 if name in _MIN_KEYWORDS else float("inf")
        one, other = old.get(name, default), new.get(name, default)
        if one != other:
            less = other < one
            yield Delta(
                at,
                f"{name}: {_format_limit(one)} -> {_format_limit(other)} {unit}",
                less == (name in _MAX_KEYWORDS),
                less == (name in _MIN_KEYWORDS),
            )
    for low, words in ((True, ("minimum", "exclusiveMinimum")), (False, ("maximum", "exclusiveMaximum"))):
        one, other = _read_bound(old, words, low=low), _read_bound(new, words, low=low)
        if one is None or other is None:
            if any(not is_same_json(old.get(word), new.get(word)) for word in words):
                yield unsure_delta(at, f"`{words[1]}` of an old draft changed")
        elif one != other:
            more = other > one
            yield Delta(
                at, f"{words[0]}: {_format_limit(one[0])} -> {_format_limit(other[0])}", more == low, more != low
            )
    one, other = old.get("multipleOf"), new.get("multipleOf")
    if not is_same_json(one, other):
        yield Delta(at, f"multipleOf: {one or 'any'} -> {other or 'any'}", other is not None, one is not None)


def _read_bound(node: dict[str, Any], words: tuple[str, str], *, low: bool) -> tuple[float, int] | None:
    """Return the bound of a value, and a rank for whether it is inclusive; None for the booleans of draft 4."""
    sign = 1 if low else -1
    found: tuple[float, int] = (-sign * float("inf"), 0)
    for word, exclusive in zip(words, (0, sign), strict=True):
        value = node.get(word)
        if isinstance(value, bool):
            return None
        if isinstance(value, (int, float)):
            found = max(found, (value, exclusive)) if low else min(found, (value, exclusive))
    return found


def _text_deltas(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Delta]:
    for word in ("pattern", "format"):
        one, other = old.get(word), new.get(word)
        if one != other:
            told = f"{word}: {_clip_text(one)} -> {_clip_text(other)}"
            yield Delta(at, told, narrower=other is not None, wider=one is not None)
    one, other = bool(old.get("uniqueItems")), bool(new.get("uniqueItems"))
    if one != other:
        yield Delta(at, f"items {'must' if other else 'need not'} differ now", narrower=other, wider=one)


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two values have equal text."""
    return one is other or canonical_bytes(one) == canonical_bytes(other)


def unsure_delta(at: str, what: str) -> Delta:
    """Return a difference of unknown direction."""
    return Delta(at, what, narrower=True, wider=True)


def _format_limit(value: float) -> str:
    return "none" if value in (float("inf"), -float("inf")) else f"{value:g}"


def _clip_text(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."


def _format_values(values: Any) -> str:
    return _clip_text(", ".join(canonical_bytes(value).decode() for value in values))
