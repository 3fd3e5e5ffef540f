"""The problem of an invalid value: its place, what was expected, what was sent; and values that are no JSON.

`core/schema/explain.py` finds the problems.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec

from pokayoke.core.call import NO_DATA
from pokayoke.core.json.pointer import pointer_step
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.text.clip import clip

MAX_DEPTH = 250
"""Deepest value that is validated; a deeper one may overrun the C stack of a small thread."""
MAX_PROBLEMS = 64
"""Most problems reported for one value."""


class SchemaProblem(msgspec.Struct, frozen=True):
    """One way in which a value breaks its schema.

    Args:
        at: JSON pointer into the value.
        keyword: the JSON Schema keyword that failed; `json` if the value is no JSON value.
        expected: the expectation of the schema in words, shortened.
        got: the value as short JSON text.
        message: one sentence with all of these.
        data: JSON values for later rooms. `missing`: the name of an absent required property, and `sent`: the names
            of the present ones. `unexpected`: names
            that are not allowed. `allowed`: the names (required, unexpected) or values (enum, const) that are.
            `types`: the expected types. `limit`: the bound that was missed. `pattern`, `format`: the form of the
            text. Inside a union also `variant` (index of the explained branch), `variants` (their number) and `tied`
            (True if another branch fits equally well, so this one proves nothing).
        schema: the subschema that was broken, as registered; it must not be changed.
    """

    at: str
    keyword: str
    expected: str
    got: str
    message: str
    data: Mapping[str, Any] = NO_DATA
    schema: dict[str, Any] | bool = True


def short_json(value: Any, limit: int = 60) -> str:
    """Return a value as JSON text of at most `limit` characters, without writing all of a long one."""
    try:
        text = _truncated_json(value, limit)
        text.encode()
    except (ValueError, RecursionError):  # an integer of thousands of digits, a surrogate, a full stack
        text = _type_name(value)
    return clip(text, limit)


def _truncated_json(value: Any, budget: int) -> str:
    """Return a value as compact JSON, or more than `budget` characters of its beginning."""
    if isinstance(value, str):
        return _quote(value[: budget + 1])
    if type(value) is int:
        return str(value)
    if is_object(value):
        text = "{"
        for key, item in value.items():
            if len(text) > budget:
                return text
            name = key if type(key) is str else _type_name(key)
            text += f"{',' if len(text) > 1 else ''}{_quote(name[: budget + 1])}:"
            text += _truncated_json(item, budget - len(text))
        return text + "}"
    if is_array(value):
        text = "["
        for item in value:
            if len(text) > budget:
                return text
            text += "," if len(text) > 1 else ""
            text += _truncated_json(item, budget - len(text))
        return text + "]"
    return _encode(value)


def unusable_problem(value: Any) -> SchemaProblem | None:
    """Return the problem of a value that must not reach a validator, or None.

    Numbers that are not finite have no JSON type, so bounds would accept them; nesting beyond `MAX_DEPTH` can end the
    process.
    """
    stack: list[tuple[Any, str, int]] = [(value, "", 0)]
    while stack:
        item, at, depth = stack.pop()
        wrong, entries = _inspect_item(item, depth)
        if wrong:
            return build_problem(at, "json", wrong, item, {}, True)
        for key, child in entries:
            if isinstance(child, dict | list) or _expected_scalar(child):
                stack.append((cast(object, child), at + pointer_step(key), depth + 1))
    return None


def _inspect_item(item: Any, depth: int) -> tuple[str, Iterable[tuple[str | int, Any]]]:
    """Return what was expected instead of an item ("" if it is fine), and its entries."""
    if depth >= MAX_DEPTH and isinstance(item, dict | list):
        return f"at most {MAX_DEPTH} levels of nesting", ()
    if is_object(item):
        return "" if all(map(_is_encodable_text, item)) else "an object with text as keys", item.items()
    if is_array(item):
        return "", enumerate(item)
    return _expected_scalar(item), ()


def _expected_scalar(item: Any) -> str:
    """Return what was expected instead of a scalar that is no JSON value, or ""."""
    if isinstance(item, float):
        return "" if math.isfinite(item) else "a finite number"
    if isinstance(item, str):
        return "" if _is_encodable_text(item) else "text without lone surrogates"
    return "" if item is None or isinstance(item, int) else "a JSON value"


def _type_name(value: object) -> str:
    return f"<{type(value).__name__}>"


_quote = json.encoder.encode_basestring
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_type_name).encode


def _is_encodable_text(key: object) -> bool:
    if not isinstance(key, str):
        return False
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def build_problem(  # noqa: PLR0917 - the fields of a problem, in their order
    at: str, keyword: str, expected: str, value: Any, data: Mapping[str, Any], schema: dict[str, Any] | bool
) -> SchemaProblem:
    """Return a problem with its sentence."""
    got = short_json(value)
    return SchemaProblem(
        at, keyword, expected, got, f"{at or 'the value'}: expected {expected}, got {got}", data, schema
    )


def describe_assertion(keyword: str, argument: Any, node: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the expectation of an assertion in words, and its data."""
    if keyword == "type":
        types: list[str] = [argument] if isinstance(argument, str) else argument
        return " or ".join(types), {"types": types}
    if keyword in ("enum", "const"):
        allowed: list[Any] = argument if keyword == "enum" else [argument]
        return _describe_choices(allowed), {"allowed": allowed}
    if keyword == "pattern":
        return f"text matching the pattern {short_json(argument, 80)}", {keyword: argument}
    if keyword == "format":
        return f"the format {short_json(argument, 80)}{SPELLING.get(argument, '')}", {keyword: argument}
    if keyword == "uniqueItems":
        return "items that all differ", {}
    words = BOUNDS[keyword]
    if keyword in ("minimum", "maximum") and node.get("exclusiveM" + keyword[1:]) is True:
        words = BOUNDS["exclusiveM" + keyword[1:]]
    return words.format(short_json(argument)), {"limit": argument}


SPELLING = {
    "date": ", such as 2026-11-21",
    "date-time": " with a time zone, such as 2026-11-21T09:30:00+01:00",
    "time": ", such as 09:30:00",
    "duration": ", such as P1DT2H30M",
    "email": " (one plain address), such as mia@shop.example",
    "hostname": ", such as www.shop.example",
    "ipv4": ", such as 192.0.2.7",
    "ipv6": ", such as 2001:db8::7",
    "uri": " with its scheme, such as https://shop.example/orders",
    "uuid": ", such as 0b6c3a52-7d1e-4f0a-9c58-1e2d3f4a5b6c",
}
"""What a writer of a format has to know: an example, and the parts that most programs leave out."""
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
}


def _describe_choices(values: list[Any]) -> str:
    """Name the allowed values, as many as stay readable."""
    shown = [short_json(value, 40) for value in values[:12]]
    more = f" (and {len(values) - 12} more)" if len(values) > 12 else ""  # noqa: PLR2004 - as above
    return (f"one of {', '.join(shown)}" if len(values) != 1 else shown[0]) + more


@lru_cache(maxsize=256)
def describe_allowed_properties(allowed: tuple[str, ...]) -> str:
    """Name the properties of a closed object, as many as stay readable."""
    more = f" (and {len(allowed) - 12} more)" if len(allowed) > 12 else ""  # noqa: PLR2004 - as above
    return (f"no property other than {', '.join(map(short_json, allowed[:12]))}" if allowed else "no property") + more
