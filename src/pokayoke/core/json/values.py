"""What kind of JSON value something is, in a form the type checkers follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

kind_of: Callable[[Any], type[Any]] = type
"""The exact type of a value, whatever its class pretends to be."""


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def properties_of(schema: Any) -> dict[str, Any]:
    """Return the properties a schema declares at its top; empty for `true`, `false` and None."""
    if not is_object(schema):
        return {}
    declared = schema.get("properties")
    return declared if is_object(declared) else {}


def kind_with_article(value: Any) -> str:
    """Return the name of a JSON value's kind, with its article."""
    words: dict[type[Any], str] = {
        bool: "a boolean",
        str: "a string",
        int: "a number",
        float: "a number",
        list: "an array",
        dict: "an object",
    }
    return words.get(kind_of(value), "null")


def is_flag(flag: Any, word: str) -> bool:
    """Return whether a flag says `true` or `false`, as such or as a text; a number may be a count."""
    if isinstance(flag, str):
        return flag.strip().lower() == word
    return flag is (word == "true")
