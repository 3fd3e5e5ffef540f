"""One step from a Python object to something plainer, type by type; nothing that has no JSON form passes.

Each rule keeps the meaning and never calls `str()` on something it does not know. numpy, pandas,
pydantic and attrs are recognised by what they are called and offer, so none of them is imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec
import orjson


class Unwritable(Exception):  # noqa: N818 - says what the value is; caught by the walk
    """The value has no JSON form.

    Args:
        message: what it is.
        code: the finding it becomes.
    """

    def __init__(self, message: str, code: str = "not_serialisable") -> None:
        """Keep the code beside the message."""
        super().__init__(message)
        self.code = code


class Text(str):
    """Text a rule wrote itself: taken as it is, not looked at again."""

    __slots__ = ()


def plain(obj: Any, *, room: int) -> Any:
    """Return something plainer with the same meaning: a `Text`, a scalar, a dict, a list or tuple.

    What is inside is converted by the caller, in turn.

    Args:
        obj: a value that is no plain JSON value.
        room: most items worth building; a larger container is refused before it is copied.

    Raises:
        Unwritable: there is no faithful JSON form.
    """
    if isinstance(obj, type):
        raise Unwritable(f"the class {obj.__name__} is not a value")
    for kinds, rule in _RULES:
        if isinstance(obj, kinds):
            return rule(obj, room)
    found = _by_shape(obj, room)
    if found is not _NOTHING:
        return found
    raise Unwritable(f"an object of type {type(obj).__qualname__} has no JSON form")


def key_text(key: Any) -> str | None:
    """Return the JSON spelling of a key, or None if a key of that type has none.

    Integers, booleans and null are spelt as in JSON; UUIDs, dates, paths and enum members as their text.
    """
    if isinstance(key, Enum):
        return key_text(key.value)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, (datetime, date, time)):
        return key.isoformat()
    if isinstance(key, (UUID, PurePath)):
        return str(key)
    if _module(key) == "numpy" and hasattr(key, "item"):
        item = key.item()
        return None if type(item) is type(key) else key_text(item)
    return None


_NOTHING: Any = object()


def _enum(obj: Enum, _room: int) -> Any:
    return obj.value


def _moment(obj: datetime | date | time, _room: int) -> Text:
    if obj != obj:  # noqa: PLR0124 - only pandas' "not a time" differs from itself
        return _missing()
    return Text(obj.isoformat())


def _missing() -> Any:
    return None


def _duration(obj: timedelta, _room: int) -> Any:
    if obj != obj:  # noqa: PLR0124 - "not a time" again
        return None
    # ISO 8601, as JSON Schema's format "duration" and pydantic spell it.
    return Text(msgspec.to_builtins(timedelta(obj.days, obj.seconds, obj.microseconds)))


def _bytes(obj: Any, _room: int) -> Any:
    raise Unwritable(f"{type(obj).__name__} has no JSON form: decode it, or return it as an image or binary block")


def _mapping(obj: Mapping[Any, Any], room: int) -> dict[Any, Any]:
    _fits(len(obj), room)
    done: dict[Any, Any] = {}
    for key in obj:
        done[key] = obj[key]
    return done


def _sequence(obj: Sequence[Any], room: int) -> list[Any]:
    _fits(len(obj), room)
    return list(islice(obj, room + 1))


def _set(obj: Set[Any], room: int) -> list[Any]:
    """A set has no order, so its JSON form gets one: equal sets have equal bytes."""
    _fits(len(obj), room)
    return sorted(obj, key=_rank)


def _rank(item: Any) -> tuple[str, str]:
    if isinstance(item, (int, float)):
        return ("", f"{item:+030.6f}")
    return (type(item).__name__, repr(item))


def _dataclass(obj: Any) -> dict[str, Any]:
    return {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}


def _struct(obj: msgspec.Struct, _room: int) -> Any:
    names = zip(obj.__struct_encode_fields__, obj.__struct_fields__, strict=True)
    values = {name: getattr(obj, field) for name, field in names}
    config = obj.__struct_config__
    if config.tag_field is not None and not config.array_like:
        values = {config.tag_field: config.tag, **values}
    if config.array_like:
        return [*(() if config.tag is None else (config.tag,)), *values.values()]
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def _fits(count: int, room: int) -> None:
    if count > room:
        raise Unwritable(f"{count} items are more than there is room for", "output_too_large")


_RULES: tuple[tuple[Any, Callable[[Any, int], Any]], ...] = (
    (Enum, _enum),
    (bool, lambda obj, _room: bool(obj)),
    (str, lambda obj, _room: Text(str.__str__(obj))),
    (int, lambda obj, _room: int.__int__(obj)),
    (float, lambda obj, _room: float.__float__(obj)),
    ((datetime, date, time), _moment),
    (timedelta, _duration),
    ((UUID, PurePath), lambda obj, _room: Text(str(obj))),
    (msgspec.Struct, _struct),
    ((bytes, bytearray, memoryview), _bytes),
    (Mapping, _mapping),
    (Set, _set),
    (Sequence, _sequence),
)


def _by_shape(obj: Any, room: int) -> Any:
    """The rules for what is known by its shape only: models, dataclasses, attrs, numpy and pandas."""
    kind = type(obj)
    if hasattr(kind, "model_dump"):
        return _model(obj)
    if dataclasses.is_dataclass(kind):
        return _dataclass(obj)
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(obj, field.name) for field in kind.__attrs_attrs__}
    module = _module(obj)
    if module == "numpy":
        return _numpy(obj, room)
    if module == "pandas":
        return _pandas(obj, room)
    return _NOTHING


def _module(obj: Any) -> str:
    return str(type(obj).__module__).split(".", maxsplit=1)[0]


def _model(obj: Any) -> Any:
    """A pydantic model by its own rules, under its aliases (its output schema speaks of those).

    A model that no longer fits its own types fails here instead of warning.
    """
    try:
        return obj.model_dump(mode="json", by_alias=True, warnings="error")
    except TypeError:  # not pydantic, or an override with fewer options
        return obj.model_dump(mode="json")


def _numpy(obj: Any, room: int) -> Any:
    kind = type(obj).__name__
    if kind in ("datetime64", "timedelta64"):
        # item() of a nanosecond time is a bare integer; the ISO text keeps every digit.
        text = str(obj)
        return None if text == "NaT" else Text(text)
    if hasattr(obj, "tolist") and hasattr(obj, "size"):
        _fits(int(obj.size), room)
        if getattr(getattr(obj, "dtype", None), "kind", "") in "mM":
            return [*obj] if getattr(obj, "ndim", 0) else _NOTHING
        item = obj.tolist()
        if type(item) is not kind and type(item) is not type(obj):
            return item
    return _NOTHING


def _pandas(obj: Any, room: int) -> Any:
    kind = type(obj).__name__
    if kind in ("NAType", "NaTType"):
        return None
    if kind == "DataFrame":
        _fits(int(obj.size), room)
        _unique(obj.columns, "column labels")
        columns = [obj[name].tolist() for name in obj.columns]
        names = [*obj.columns]
        if _is_counted(obj.index):
            return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return {"index": obj.index.tolist(), "columns": names, "data": [[*row] for row in zip(*columns, strict=True)]}
    if kind == "Series":
        _fits(int(obj.size), room)
        if _is_counted(obj.index):
            return obj.tolist()
        _unique(obj.index, "index labels")
        return dict(zip(obj.index.tolist(), obj.tolist(), strict=True))
    if kind.endswith(("Index", "Array", "Categorical")) and hasattr(obj, "tolist"):
        _fits(len(obj), room)
        return obj.tolist()
    return _NOTHING


def _is_counted(index: Any) -> bool:
    """True for the index a frame has when nobody gave it one: 0, 1, 2, ..."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _unique(labels: Any, what: str) -> None:
    if not labels.is_unique:
        raise Unwritable(f"{what} are not unique, so columns or rows would be lost", "key_collision")
