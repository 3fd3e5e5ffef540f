"""Kinds and fields of JSON values, in a form that type checkers follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, cast

kind_of: Callable[[Any], type[Any]] = type
"""Returns the exact type of a value, even if its `__class__` says another."""


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
    """Return the kind of a JSON value with its article, such as `a string`."""
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
    """Return whether a flag is `word` (`true` or `false`), as a boolean or as a text. A number is no flag."""
    if isinstance(flag, str):
        return flag.strip().lower() == word
    return flag is (word == "true")


def equal_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; 1 and 1.0 are, True and 1 are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast(dict[str, Any], one), cast(dict[str, Any], other)
        return left.keys() == right.keys() and all(equal_json(item, right[key]) for key, item in left.items())
    if isinstance(one, list) and isinstance(other, list):
        first, second = cast(Sequence[Any], one), cast(Sequence[Any], other)
        return len(first) == len(second) and all(map(equal_json, first, second))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def copy_json(value: Any) -> Any:
    """Return a copy of a JSON value whose objects and arrays are new."""
    if type(value) is dict:
        return {key: copy_json(item) for key, item in cast(dict[str, Any], value).items()}
    if type(value) is list:
        return [copy_json(item) for item in cast(Sequence[Any], value)]
    return value


def read_field(thing: Any, name: str) -> Any:
    """Return a field of a dict or an object; None if it has none.

    A message that LangChain dumped keeps its fields one level deeper, under `data`.
    """
    fields: Mapping[str, Any]
    if kind_of(thing) is dict:  # nearly always, and faster than the next test
        fields = thing
    elif isinstance(thing, Mapping):
        fields = cast("Mapping[str, Any]", thing)
    else:
        return getattr(thing, name, None)
    found = fields.get(name)
    if found is None and "data" in fields and isinstance(fields["data"], Mapping):
        return cast("Mapping[str, Any]", fields["data"]).get(name)
    return found


def as_sequence(value: Any) -> Sequence[Any]:
    """Return a list or tuple unchanged, and an empty one for anything else."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()
