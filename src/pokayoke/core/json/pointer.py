"""JSON pointers (RFC 6901), and copies of a value that are changed at one path.

A path is a tuple of steps: names of properties, and indexes of items as texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from pokayoke.core.json.values import is_array, is_object, kind_of
from pokayoke.core.text.clip import clip

Path = tuple[str, ...]
T = TypeVar("T")


def pointer_step(part: str | int) -> str:
    """Return one step of a JSON pointer, escaped and with its slash."""
    text = str(part)
    return f"/{text}" if text.isalnum() else "/" + text.replace("~", "~0").replace("/", "~1")


def parse_pointer(pointer: str) -> Path:
    """Return the path of a JSON pointer; "" is the whole value."""
    steps = pointer.split("/")[1:]
    if "~" not in pointer:
        return tuple(steps)
    return tuple([step.replace("~1", "/").replace("~0", "~") for step in steps])


def to_pointer(path: Iterable[str]) -> str:
    """Return the JSON pointer of a path."""
    return "".join(map(pointer_step, path))


def to_field_path(path: Sequence[str], root: str) -> str:
    """Return a path as people write it, such as `items[2].size`; `root` if it is empty."""
    if not path:
        return root
    text = ""
    for step in path:
        part = f"[{step}]" if step.isdecimal() and text else f".{step}"
        text += clip(part, 60)
    return text.removeprefix(".")


def walk_parts(value: Any, kind: type[T]) -> Iterator[tuple[Path, T]]:
    """Yield every part of a JSON value that is exactly of a type, with its path; an object's fields in their order."""
    stack: list[tuple[Path, Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if is_object(item):
            stack.extend([((*path, key), child) for key, child in reversed(item.items())])
        elif is_array(item):
            stack.extend([((*path, str(at)), item[at]) for at in range(len(item) - 1, -1, -1)])
        elif kind_of(item) is kind:
            yield path, item


def get_at(value: Any, path: Path) -> Any:
    """Return the value at a path.

    Raises:
        LookupError: there is none.
    """
    for step in path:
        kind = kind_of(value)
        if kind is dict:
            value = value[step]
        elif kind is list and step.isdecimal():
            value = value[int(step)]
        else:
            raise LookupError(step)
    return value


def with_value_at(value: Any, path: Path, new: Any) -> Any:
    """Return a copy with a new value at a path; all other parts are shared with the original.

    Raises:
        LookupError: there is no value at the path.
    """
    if not path:
        return new
    step, rest = path[0], path[1:]
    inner = with_value_at(get_at(value, (step,)), rest, new)
    if isinstance(value, list):
        items = cast(Sequence[Any], value)
        return [*items[: int(step)], inner, *items[int(step) + 1 :]]
    return {**value, step: inner}


def without_field(value: Any, path: Path) -> Any:
    """Return a copy without the property a path leads to."""
    parent = cast(dict[str, Any], get_at(value, path[:-1]))
    return with_value_at(value, path[:-1], {key: item for key, item in parent.items() if key != path[-1]})


def with_renamed_field(value: Any, path: Path, name: str) -> Any:
    """Return a copy in which the property a path leads to has another name, at the same position."""
    parent = cast(dict[str, Any], get_at(value, path[:-1]))
    return with_value_at(value, path[:-1], {name if key == path[-1] else key: item for key, item in parent.items()})
