"""One step from a Python object towards JSON, type by type.

In: an object that is no plain JSON value.
Out: a plainer value with the same meaning, or `UnwritableValue`.
Never: `str()` of an unknown object.

numpy, pandas, pydantic and attrs are recognised by their names and attributes, so none of them is imported.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from pokayoke.core.json.values import kind_of


class UnwritableValue(Exception):  # noqa: N818 - says what the value is; caught by the walk
    """The value has no JSON form.

    Args:
        message: what it is.
        code: the finding it becomes.
    """

    def __init__(self, message: str, code: str = "not_serialisable") -> None:
        super().__init__(message)
        self.code = code


def to_plain(obj: Any, *, budget: int) -> Any:
    """Return a plainer value with the same meaning: a scalar, a dict, a list or a tuple.

    Its items are not converted; the caller does that in turn.

    Args:
        obj: a value that is no plain JSON value.
        budget: the highest number of items; a larger container is refused before it is copied.

    Raises:
        Unwritable: there is no faithful JSON form.
    """
    if isinstance(obj, type):
        raise UnwritableValue(f"the class {obj.__name__} is not a value")
    for kinds, rule in _RULES:
        if isinstance(obj, kinds):
            return rule(obj, budget)
    for rule in _SHAPES:
        found = rule(obj, budget)
        if found is not _UNKNOWN:
            return found
    raise UnwritableValue(f"an object of type {type(obj).__qualname__} has no JSON form")


def json_key(key: Any) -> str | None:
    """Return the JSON spelling of a key, or None if a key of that type has none.

    Numbers, booleans and null are written as in JSON; UUIDs, dates, paths and enum members as their text.
    """
    if isinstance(key, Enum):
        return json_key(key.value)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return float.__repr__(key) if math.isfinite(key) else None
    if isinstance(key, (datetime, date, time)):
        return key.isoformat()
    if isinstance(key, (UUID, PurePath)):
        return str(key)
    if _library_name(key) == "numpy" and hasattr(key, "item"):
        return json_key(key.item()) if type(key.item()) is not type(key) else None
    return None


_UNKNOWN: Any = object()

# --- by type ------------------------------------------------------------------------------------


def _convert_datetime(obj: datetime | date | time, _budget: int) -> str | None:
    if obj != obj:  # noqa: PLR0124 - pandas' "not a time", the only one that differs from itself
        return None
    return obj.isoformat()


def _convert_duration(obj: timedelta, _budget: int) -> Any:
    if obj != obj:  # noqa: PLR0124 - as above
        return None
    own: Callable[[], str] | None = getattr(obj, "isoformat", None)  # pandas keeps nanoseconds
    # ISO 8601, as JSON Schema's format "duration" and pydantic spell it.
    return msgspec.to_builtins(obj) if own is None else own()


def _refuse_bytes(obj: Any, _budget: int) -> Any:
    raise UnwritableValue(f"{type(obj).__name__} has no JSON form: decode it, or return it as an image or binary block")


def _convert_mapping(obj: Mapping[Any, Any], budget: int) -> dict[Any, Any]:
    _require_budget(len(obj), budget)
    return {key: obj[key] for key in islice(obj, budget + 1)}


def _convert_sequence(obj: Sequence[Any], budget: int) -> list[Any]:
    _require_budget(len(obj), budget)
    return list(islice(obj, budget + 1))


def _convert_struct(obj: msgspec.Struct, _budget: int) -> Any:
    """Return a Struct as msgspec encodes it: renamed, tagged, without unset fields."""
    names = zip(obj.__struct_encode_fields__, obj.__struct_fields__, strict=True)
    values = {name: getattr(obj, field) for name, field in names}
    config = obj.__struct_config__
    if config.array_like:
        return [*(() if config.tag is None else (config.tag,)), *values.values()]
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    return {**tag, **{name: value for name, value in values.items() if value is not msgspec.UNSET}}


def _convert_enum(obj: Enum, _budget: int) -> Any:
    return obj.value


def _convert_decimal(obj: Decimal, _budget: int) -> Decimal:
    return Decimal(obj)  # a subclass; the walk writes the plain one


def _convert_text(obj: Any, _budget: int) -> str:
    return str(obj) if not isinstance(obj, str) else str.__str__(obj)


def _convert_int(obj: int, _budget: int) -> int:
    return int.__int__(obj)


def _convert_float(obj: float, _budget: int) -> float:
    return float.__float__(obj)


_RULES: tuple[tuple[Any, Callable[[Any, int], Any]], ...] = (
    (Enum, _convert_enum),
    ((str, UUID, PurePath), _convert_text),
    (int, _convert_int),
    (float, _convert_float),
    (Decimal, _convert_decimal),
    ((datetime, date, time), _convert_datetime),
    (timedelta, _convert_duration),
    (msgspec.Struct, _convert_struct),
    ((bytes, bytearray, memoryview), _refuse_bytes),
    (Mapping, _convert_mapping),
    (Sequence, _convert_sequence),
)

# --- by shape: types recognised without an import ------------------------------------------------


def _convert_model(obj: Any, _budget: int) -> Any:
    """Return a pydantic model by its own rules, under its aliases, which its output schema uses.

    A model that no longer fits its own types fails here instead of warning.
    """
    if not hasattr(kind_of(obj), "model_dump"):
        return _UNKNOWN
    try:
        return obj.model_dump(mode="json", by_alias=True, warnings="error")
    except TypeError:  # not pydantic, or an override with fewer options
        return obj.model_dump(mode="json")


def _convert_record(obj: Any, _budget: int) -> Any:
    """Return the declared fields of a dataclass or attrs object, private ones too."""
    kind: Any = kind_of(obj)
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(obj, field.name) for field in dataclasses.fields(kind)}
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(obj, field.name) for field in kind.__attrs_attrs__}
    return _UNKNOWN


def _convert_address(obj: Any, _budget: int) -> Any:
    """Return a URL of pydantic or an IP address as the text that its output schema describes."""
    named = {"pydantic": "unicode_string", "pydantic_core": "unicode_string", "ipaddress": "exploded"}
    telling = named.get(_library_name(obj))
    return _UNKNOWN if telling is None or not hasattr(obj, telling) else str(obj)


def _convert_numpy(obj: Any, budget: int) -> Any:
    """Return a numpy array as a list, a scalar as a number; a time that Python cannot hold as its ISO text."""
    if _library_name(obj) != "numpy" or not hasattr(obj, "dtype") or not hasattr(obj, "tolist"):
        return _UNKNOWN
    _require_budget(int(obj.size), budget)
    if obj.dtype.kind in "mM" and obj.ndim:
        return [*obj]
    item: Any = obj.tolist()
    if obj.dtype.kind == "M" and isinstance(item, int):
        return str(obj)  # finer than a microsecond
    return _UNKNOWN if type(item) is type(obj) or (obj.dtype.kind == "m" and isinstance(item, int)) else item


def _convert_pandas(obj: Any, budget: int) -> Any:
    """Return a frame as rows (with its index, unless it is the default one), a series as a list or an object.

    NA and NaT mean "missing" and become null, and so does NaN among texts and objects. In a column
    of numbers NaN may also be a number gone wrong: a finding.
    """
    if _library_name(obj) != "pandas":
        return _UNKNOWN
    kind = type(obj).__name__
    if kind == "NAType":
        return None
    if not hasattr(obj, "tolist") and kind != "DataFrame":
        return _UNKNOWN
    _require_budget(int(obj.size), budget)
    if kind == "DataFrame":
        return _convert_frame(obj)
    if kind != "Series" or _is_default_index(obj.index):
        return _column_values(obj)
    _require_unique(obj.index, "index labels")
    return dict(zip(obj.index.tolist(), _column_values(obj), strict=True))


def _column_values(column: Any) -> list[Any]:
    cells: list[Any] = column.tolist()
    if getattr(getattr(column, "dtype", None), "kind", "") != "O":
        return cells
    return [None if type(cell) is float and math.isnan(cell) else cell for cell in cells]


def _convert_frame(obj: Any) -> Any:
    _require_unique(obj.columns, "column labels")
    names: list[Any] = obj.columns.tolist()
    rows = zip(*(_column_values(obj[name]) for name in names), strict=True)
    if _is_default_index(obj.index):
        return [dict(zip(names, row, strict=True)) for row in rows]
    return {"index": obj.index.tolist(), "columns": names, "data": [[*row] for row in rows]}


def _is_default_index(index: Any) -> bool:
    """Return whether an index is the default one of a frame: 0, 1, 2, ..."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _require_unique(labels: Any, what: str) -> None:
    if not labels.is_unique:
        raise UnwritableValue(f"{what} are not unique, so columns or rows would be lost", "key_collision")


def _require_budget(count: int, budget: int) -> None:
    if count > budget:
        raise UnwritableValue(f"{count} items are more than there is budget for", "output_too_large")


def _library_name(obj: Any) -> str:
    return str(type(obj).__module__).partition(".")[0]


_SHAPES: tuple[Callable[[Any, int], Any], ...] = (
    _convert_model,
    _convert_record,
    _convert_address,
    _convert_numpy,
    _convert_pandas,
)
