"""Python object to JSON value: faithfully, or not at all.

In: any object that a tool returned.
Out: a new JSON value that shares nothing with it and its compact JSON bytes, or a finding that says what cannot be
written and where.
Never: `str()` or `repr()` of an unknown object (the model would read an invented fact), a changed value, or memory
spent on an endless structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, Literal, cast

import msgspec
import orjson

from pokayoke.core.call import Finding
from pokayoke.core.json.dump import dump_compact, dump_exact_size
from pokayoke.core.json.pointer import pointer_step
from pokayoke.core.json.python_objects import UnwritableValue, json_key, to_plain
from pokayoke.core.json.values import kind_of

MAX_DEPTH = 100
"""Deepest nesting of a Python object."""

Decimals = Literal["text", "number"]
_TOO_LONG = 10**308  # as in core/json/strict.py, which has to read what is written here
_SCALARS = frozenset((int, float, bool, type(None)))
_CONTAINERS = frozenset((dict, list, tuple))

# orjson passes on every type that it has rules of its own for (it drops the private fields of a dataclass, for one),
# so there is one rule per type, in core/json/python_objects.py.
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class SerialisedValue(msgspec.Struct, frozen=True):
    """A tool's value in JSON.

    Args:
        value: the JSON value, new at every level.
        data: its compact JSON text as UTF-8.
        decimals: True if a Decimal is in it, written as text (its exact digits).
    """

    value: Any
    data: bytes
    decimals: bool = False


def serialise(obj: Any, *, max_bytes: int = 800_000, decimals: Decimals = "text") -> SerialisedValue | Finding:
    """Return the JSON value of a Python object, or the finding that says why it has none.

    Plain values (dict, list, tuple, str, int, float, bool, None) go through C code: measured, dumped
    and read back. All others are walked.

    Args:
        obj: anything a tool may return.
        max_bytes: most bytes of JSON text.
        decimals: `text` writes a Decimal as a string of its digits; `number` writes those that a
            double holds exactly as numbers.
    """
    try:
        return SerialisedValue(*dump_plain(obj, max_bytes))
    except (TypeError, ValueError, RecursionError):
        pass  # not plain, too long, or wrong: the walk finds out which and where
    walk = _ObjectWalk(max_bytes, decimals)
    try:
        value = walk.convert_value(obj, "")
        return _check_size(SerialisedValue(value, dump_compact(value), walk.decimals), max_bytes)
    except _Stop as stop:
        return stop.finding
    except RecursionError:  # the host's own stack was nearly used up
        return _serialise_finding("too_deep", "", "the value is nested too deeply to be walked")


def dump_plain(obj: Any, max_bytes: int) -> tuple[Any, bytes]:
    """Dump and read back an object that is plain (dict, list, tuple, str, int, float, bool, None) at every level.

    Returns:
        The value and its compact dump.

    Raises:
        ValueError: it is not plain, holds a number that is not finite, or takes more than `max_bytes`.
        TypeError: as above.
        RecursionError: as above.
    """
    if not _is_small(obj, max_bytes):
        raise ValueError
    data = dump_exact_size(obj, _OPTIONS)
    value: Any = orjson.loads(data)
    # null is also what orjson writes for NaN; equality tells them apart at C speed.
    if len(data) > max_bytes or (b"null" in data and value != obj):
        raise ValueError
    return value, data


def undumpable_reason(obj: Any, max_bytes: int) -> Literal["too_long", "too_deep", "not_json"] | None:
    """Return why a value must not be dumped, without writing more than `max_bytes`; None if it may be.

    A part that is reached in many ways is written as often: a few shared lists can become a trillion items.
    """
    if _is_small(obj, max_bytes):
        return None
    done = serialise(obj, max_bytes=max_bytes)
    if not isinstance(done, Finding):
        return None
    if done.code == "output_too_large":
        return "too_long"
    return "too_deep" if done.code == "too_deep" else "not_json"


def _check_size(done: SerialisedValue, max_bytes: int) -> SerialisedValue | Finding:
    return done if len(done.data) <= max_bytes else too_large_finding(max_bytes)


def too_large_finding(limit: int, unit: str = "bytes") -> Finding:
    """Return the finding for an output over its cap."""
    return Finding(
        code="output_too_large",
        blame="tool",
        message=f"output: more than {limit} {unit}",
        hint="The answer is too large to be used. Ask for less: a filter, a page, a smaller range.",
        data={"reason": "tool_output_too_large", "limit": limit},
    )


def _is_small(obj: Any, budget: int) -> bool:  # noqa: C901 - one loop, unrolled because every call pays for it
    """Return whether dumping a plain value certainly stays within bounds, before anything is written.

    It visits every place that would be written, a shared part as often as it is reached: forty lists that each hold
    the next one twice are a trillion items. It stops when the budget or the depth is used up, so a cycle ends too, and
    at anything that is not plain. False sends the value to the walk.
    """
    if kind_of(obj) is str:
        return len(obj) <= budget
    if kind_of(obj) not in _CONTAINERS:
        return kind_of(obj) in _SCALARS
    level: list[Any] = [obj]
    for _ in range(MAX_DEPTH):  # the dump does not count tuples: deep ones would overrun the stack
        below: list[Any] = []
        for one in level:
            budget -= len(one) + 1
            items: Iterable[Any] = one
            if kind_of(one) is dict:
                try:
                    budget -= sum(map(len, one))
                except TypeError:  # a key that is no string
                    return False
                items = one.values()
            for item in items:
                kind = kind_of(item)
                if kind is str:
                    budget -= len(item)
                elif kind in _CONTAINERS:
                    below.append(item)
                elif kind not in _SCALARS:
                    return False
            if budget < 0:
                return False
        if not below:
            return True
        level = below
    return False


class _Stop(Exception):  # noqa: N818 - carries the finding out of the walk; never leaves this module
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.code)
        self.finding = finding


def _serialise_finding(code: str, at: str, message: str) -> Finding:
    return Finding(
        code=code,
        at=at,
        blame="tool",
        message=f"output at {at or '/'}: {message}",
        data={"reason": f"{code}:{at}" if at else code},
    )


class _ObjectWalk:
    """One conversion: it counts what it writes and tracks the containers it is inside of."""

    __slots__ = ("_budget", "_decimals", "_inside", "_limit", "decimals")

    def __init__(self, max_bytes: int, decimals: Decimals) -> None:
        self._limit = self._budget = max_bytes
        self._decimals = decimals
        self._inside: set[int] = set()
        self.decimals = False

    def convert_value(self, obj: Any, at: str) -> Any:
        """Return the JSON value of one object.

        Raises:
            _Stop: it has none, or the budget is used up.
        """
        kind = kind_of(obj)
        if kind is str:
            return self._convert_text(obj, at)
        if kind is int:
            self._spend_budget(1 + obj.bit_length() // 4)
            if abs(obj) >= _TOO_LONG:
                raise _Stop(
                    _serialise_finding("number_too_long", at, "the integer is longer than any JSON reader takes")
                )
            return obj
        if kind is float:
            self._spend_budget(3)
            if not math.isfinite(obj):
                raise _Stop(_serialise_finding("not_finite", at, f"{obj!r} is no JSON number"))
            return obj
        if kind is bool or obj is None:
            self._spend_budget(4)
            return obj
        if kind is Decimal:
            return self._convert_decimal(obj, at)
        return self._convert_nested(obj, at)

    def _spend_budget(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise _Stop(too_large_finding(self._limit))

    def _convert_text(self, text: str, at: str) -> str:
        self._spend_budget(len(text) + 2)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise _Stop(_serialise_finding("lone_surrogate", at, "the text holds a lone surrogate")) from None
        return text

    def _convert_nested(self, obj: Any, at: str) -> Any:
        mark = id(obj)
        if mark in self._inside:
            raise _Stop(_serialise_finding("cyclic", at, "the value contains itself"))
        if len(self._inside) >= MAX_DEPTH:
            raise _Stop(_serialise_finding("too_deep", at, f"nested more than {MAX_DEPTH} levels deep"))
        self._spend_budget(2)
        self._inside.add(mark)
        try:
            kind = kind_of(obj)
            if kind is dict:
                return self._convert_object(obj, at)
            if kind is list or kind is tuple:
                return self._convert_array(obj, at)
            if isinstance(obj, AbstractSet):
                # A set has no order, so its JSON form gets one: equal sets have equal bytes.
                return sorted(self._convert_array(cast(Any, obj), at), key=dump_compact)
            return self._convert_foreign(obj, at)
        finally:
            self._inside.discard(mark)

    def _convert_array(self, items: Iterable[Any], at: str) -> list[Any]:
        convert: Callable[[Any, str], Any] = self.convert_value
        return [convert(item, f"{at}/{index}") for index, item in enumerate(items)]

    def _convert_object(self, items: dict[Any, Any], at: str) -> dict[str, Any]:
        done: dict[str, Any] = {}
        for key, item in items.items():
            name = key if type(key) is str else json_key(key)
            if name is None:
                raise _Stop(
                    _serialise_finding("not_serialisable", at, f"a key of type {type(key).__name__} has no JSON form")
                )
            if name in done:
                raise _Stop(_serialise_finding("key_collision", at, f"two keys are written {name[:60]!r} in JSON"))
            done[self._convert_text(name, at)] = self.convert_value(item, at + pointer_step(name[:100]))
        return done

    def _convert_decimal(self, number: Decimal, at: str) -> Any:
        if not number.is_finite():
            raise _Stop(_serialise_finding("not_finite", at, f"{number} is no JSON number"))
        self.decimals = True
        if self._decimals == "number":
            as_float = float(number)
            if math.isfinite(as_float) and Decimal(repr(as_float)) == number:
                self._spend_budget(3)
                return as_float
        return self._convert_text(str(number), at)

    def _convert_foreign(self, obj: Any, at: str) -> Any:
        try:
            value = to_plain(obj, budget=self._budget)
        except UnwritableValue as exc:
            raise _Stop(_serialise_finding(exc.code, at, str(exc))) from None
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - a property or a dump method of the tool's own object
            what = f"{type(obj).__name__} failed to describe itself ({type(exc).__name__})"
            raise _Stop(_serialise_finding("not_serialisable", at, what)) from None
        return self.convert_value(value, at)
