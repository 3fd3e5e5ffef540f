"""Sentences about an invalid value: where, what was expected, what came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec
import orjson

from pokayoke.core.schema_safety import SchemaMap

MAX_DEPTH = 250
"""Deepest value a validator is given; beyond it the C stack of a small thread may end."""
MAX_PROBLEMS = 64
"""Most problems reported for one value."""


class Problem(msgspec.Struct, frozen=True):
    """One way in which a value breaks its schema.

    Args:
        at: JSON pointer into the value.
        keyword: the JSON Schema keyword that failed; `json` if the value is no JSON value.
        expected: what the schema wants, in words, shortened.
        got: what came, as short JSON text.
        message: one sentence with all of it.
        data: details for later rooms, see `describe`.
    """

    at: str
    keyword: str
    expected: str
    got: str
    message: str
    data: Mapping[str, Any]


def pointer(parts: Iterable[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) for a path of keys and indexes."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def short(value: Any, limit: int = 60) -> str:
    """Return a value as JSON text of at most `limit` characters."""
    try:
        text = orjson.dumps(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def unusable(value: Any) -> Problem | None:
    """Return the problem of a value no validator may be given, or None."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > MAX_DEPTH:
            return Problem("", "json", f"at most {MAX_DEPTH} levels", "more", "the value is nested too deeply", {})
        if isinstance(item, float) and not math.isfinite(item):
            return Problem("", "json", "a finite number", repr(item), f"{item!r} is not a JSON number", {})
        if isinstance(item, dict):
            stack.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list):
            stack.extend((child, depth + 1) for child in item)
    return None


def describe(
    errors: Iterable[jsonschema_rs.ValidationError], value: Any, schema_map: SchemaMap
) -> tuple[Problem, ...]:
    """Turn the validator's errors into problems."""
    return tuple(_problem(error) for error in islice(errors, MAX_PROBLEMS))


def _problem(error: jsonschema_rs.ValidationError) -> Problem:
    at = pointer(error.instance_path)
    kind = error.kind
    got = short(error.instance)
    data: dict[str, Any] = {}
    for name, key in (("property", "missing"), ("unexpected", "unexpected"), ("options", "allowed"), ("types", "types"), ("limit", "limit")):
        if hasattr(kind, name):
            data[key] = getattr(kind, name)
    return Problem(at, kind.name, error.message, got, f"{at or 'value'}: {error.message}", data)
