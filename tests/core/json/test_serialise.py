"""Python objects become JSON faithfully, or a finding names what cannot and where."""

import collections
import dataclasses
import enum
import ipaddress
import itertools
import math
import threading
import time
import types
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from unittest.mock import Mock

import attrs
import msgspec
import orjson
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import Finding
from pokayoke.core.json.python_objects import json_key
from pokayoke.core.json.serialise import MAX_DEPTH, SerialisedValue, serialise


def to_json_value(value, **options):
    """The JSON value, or the finding that says why there is none."""
    done = serialise(value, **options)
    return done if isinstance(done, Finding) else done.value


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, "two")


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    _private: str = "kept"
    when: date = date(2026, 1, 2)


@attrs.define
class Box:
    side: int
    inner: Any = None


class Tagged(msgspec.Struct, tag="cat", rename={"name": "theName"}):
    name: str
    extra: Any = msgspec.UNSET


class Plain(msgspec.Struct):
    name: str


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


class TaggedRow(msgspec.Struct, array_like=True, tag="row"):
    a: int


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    user_id: str = pydantic.Field(alias="userId")
    price: Decimal = Decimal("1.10")
    at: datetime | None = None
    ratio: float = 0.5


class Simple:
    """Dumps itself, but knows no options."""

    def model_dump(self, mode):
        return {"mode": mode}


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Fraction64(float):
    pass


class Money(Decimal):
    pass


class NamedPair(NamedTuple):
    a: int
    b: int


FAITHFUL = [
    (None, None),
    (True, True),
    ("é\x00\u2028", "é\x00\u2028"),
    (2**70, 2**70),
    (-(2**63), -(2**63)),
    ([10**308 - 1], [10**308 - 1]),
    (0.1, 0.1),
    ((1, (2,)), [1, [2]]),
    ({"a": (1,)}, {"a": [1]}),
    ([], []),
    ({}, {}),
    (Text("t"), "t"),
    (Whole(7), 7),
    (Fraction64(0.5), 0.5),
    ([Whole(7), Text("t")], [7, "t"]),
    (Colour.RED, "red"),
    (Colour.PAIR, [1, "two"]),
    (Level.HIGH, 3),
    ([Colour.RED, uuid.UUID(int=1)], ["red", "00000000-0000-0000-0000-000000000001"]),
    (pydantic.HttpUrl("https://x.y/z?a=1"), "https://x.y/z?a=1"),
    (ipaddress.ip_address("2001:db8::1"), "2001:db8::1"),
    (ipaddress.ip_network("10.0.0.0/8"), "10.0.0.0/8"),
    (date(2026, 1, 2), "2026-01-02"),
    (clock(1, 2, 3), "01:02:03"),
    (datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02T03:04:05.000006"),
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    (datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3))), "2026-01-02T00:00:00-03:00"),
    (timedelta(days=1, seconds=2), "P1DT2S"),
    (Decimal("1.10"), "1.10"),
    (Money("2.50"), "2.50"),
    (Decimal("1E+30"), "1E+30"),
    (PurePosixPath("a/b"), "a/b"),
    (Path("c"), "c"),
    (Point(1), {"x": 1, "_private": "kept", "when": "2026-01-02"}),
    ([Point(1)], [{"x": 1, "_private": "kept", "when": "2026-01-02"}]),
    (Box(2, Box(3)), {"side": 2, "inner": {"side": 3, "inner": None}}),
    (Tagged("Tom"), {"type": "cat", "theName": "Tom"}),
    (Plain("Tom"), {"name": "Tom"}),
    (Row(1, "b"), [1, "b"]),
    (TaggedRow(1), ["row", 1]),
    (Model(userId="u"), {"userId": "u", "price": "1.10", "at": None, "ratio": 0.5}),
    ({"rows": [Model(userId="u", at=datetime(2026, 1, 1))]}, None),
    (Simple(), {"mode": "json"}),
    (NamedPair(1, 2), [1, 2]),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset(("b", "a")), ["a", "b"]),
    ({frozenset((1, 2)), "a"}, ["a", [1, 2]]),
    ({"k": 1}.keys(), ["k"]),
    (collections.deque([1, 2]), [1, 2]),
    (range(3), [0, 1, 2]),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (collections.ChainMap({"a": 1}, {"b": 2}), {"b": 2, "a": 1}),
    ({1: "a", None: "b", False: "c"}, {"1": "a", "null": "b", "false": "c"}),
    ({1.5: "x"}, {"1.5": "x"}),
    ({date(2026, 1, 2): 1, uuid.UUID(int=1): 2, Colour.RED: 3, PurePosixPath("p"): 4, Text("t"): 5}, None),
    ([1, None, {"a": None}], [1, None, {"a": None}]),
]


@pytest.mark.parametrize(("value", "expected"), FAITHFUL, ids=lambda value: type(value).__name__)
def test_a_value_keeps_its_meaning(value, expected):
    """Each supported type has exactly this JSON form, and the bytes say the same as the value."""
    result = serialise(value)
    assert isinstance(result, SerialisedValue)
    if expected is not None or value is None:
        assert result.value == expected
        assert type(result.value) is type(expected)
    assert msgspec.json.decode(result.data) == result.value
    assert b": " not in result.data


def loop() -> list:
    ring: list = []
    ring.append({"again": ring})
    return ring


def deep(levels: int) -> Any:
    value: Any = Path("x")
    for _ in range(levels):
        value = [value]
    return value


async def _coroutine():
    return 1


class Broken(pydantic.BaseModel):
    n: int


class Angry:
    @property
    def model_dump(self):
        raise RuntimeError("no")


class Obliging:
    """Has every attribute, as a proxy or a mock has."""

    def __getattr__(self, name):
        return self

    def __call__(self, *_, **__):
        return self


UNFAITHFUL = [
    (lambda: 1, "not_serialisable", ""),
    ({"a": [print]}, "not_serialisable", "/a/0"),
    (Colour, "not_serialisable", ""),
    ((one for one in ()), "not_serialisable", ""),
    (iter([1]), "not_serialisable", ""),
    ({"a": 1}.values(), "not_serialisable", ""),
    (threading.Lock(), "not_serialisable", ""),
    (object(), "not_serialisable", ""),
    (ValueError("x"), "not_serialisable", ""),
    (b"raw", "not_serialisable", ""),
    ([bytearray(b"raw")], "not_serialisable", "/0"),
    (memoryview(b"x"), "not_serialisable", ""),
    (1j, "not_serialisable", ""),
    (Fraction(1, 3), "not_serialisable", ""),
    (types, "not_serialisable", ""),
    (Broken.model_construct(n="text"), "not_serialisable", ""),
    (Angry(), "not_serialisable", ""),
    ({"a": Mock(spec=dict)}, "not_serialisable", "/a"),
    (Mock(), "not_serialisable", ""),
    ({"a": Obliging()}, "not_serialisable", "/a"),
    (math.nan, "not_finite", ""),
    ([1, None, math.inf], "not_finite", "/2"),
    ({"a": {"b": (-math.inf,)}}, "not_finite", "/a/b/0"),
    (Model(userId="u", ratio=math.nan), "not_finite", "/ratio"),
    (Decimal("NaN"), "not_finite", ""),
    ([Decimal("Infinity")], "not_finite", "/0"),
    ("\ud800", "lone_surrogate", ""),
    ({"a": ["x\udfff"]}, "lone_surrogate", "/a/0"),
    ({"\ud800": 1}, "lone_surrogate", ""),
    (PurePosixPath("a\udc80"), "lone_surrogate", ""),
    ({1: "a", "1": "b"}, "key_collision", ""),
    ({"x": {None: 1, "null": 2}}, "key_collision", "/x"),
    ({(1, 2): 3}, "not_serialisable", ""),
    ({math.nan: 3}, "not_serialisable", ""),
    (loop(), "cyclic", "/0/again"),
    (deep(MAX_DEPTH + 1), "too_deep", None),
    (deep(100_000), "too_deep", None),
    (10**308, "number_too_long", ""),
    ([-(10**5_000)], "number_too_long", "/0"),
    ({"a/b~c": print}, "not_serialisable", "/a~1b~0c"),
]


@pytest.mark.parametrize(("value", "code", "at"), UNFAITHFUL, ids=lambda value: type(value).__name__)
def test_what_has_no_json_form_is_a_finding(value, code, at):
    """Nothing without a JSON form is written as text; the finding names the kind and the place."""
    result = serialise(value)
    assert isinstance(result, Finding)
    assert (result.code, result.blame) == (code, "tool")
    assert at is None or result.at == at
    assert result.data["reason"].startswith(code)


def test_a_coroutine_is_a_finding():
    """A coroutine that was not awaited is not a result."""
    waiting = _coroutine()
    assert to_json_value([waiting]).code == "not_serialisable"
    waiting.close()


def shared(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value, value]
    return value


LONG = "x" * 1_000_000


class Endless(dict):
    """A mapping that says it has one key, and never comes to an end of them."""

    def __len__(self):
        return 1

    def __iter__(self):
        return map(str, itertools.count())

    def __getitem__(self, key):
        return None


@pytest.mark.parametrize(
    "value",
    [
        [LONG] * 10_000,
        [{LONG: 1}] * 10_000,
        {str(number): LONG for number in range(10_000)},
        shared(60),
        tuple(shared(60)),
        [Path("p"), shared(60)],
        [Path("p"), *[LONG] * 10_000],
        range(10**15),
        {"a": range(10**15), "b": Path("p")},
        "x" * 800_001,
        ["\x00" * 200_000],
        2 ** (8 * 10**6),
        collections.UserList([1]) * 900_000,
        Endless(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_cap_holds_while_serialising(value):
    """A structure without end is refused at the limit, quickly, whatever it is made of."""
    began = time.monotonic()
    result = to_json_value(value, max_bytes=800_000)
    assert isinstance(result, Finding)
    assert result.code == "output_too_large"
    assert time.monotonic() - began < 30


def test_the_cap_counts_bytes():
    """A value at the cap passes, one byte more does not."""
    assert to_json_value("x" * 98, max_bytes=100) == "x" * 98
    assert to_json_value("x" * 99, max_bytes=100).code == "output_too_large"
    assert to_json_value([Path("x" * 99)], max_bytes=100).code == "output_too_large"


def test_a_plain_value_is_copied():
    """Changes that the tool makes after returning do not change the checked value."""
    mine = {"a": [1]}
    result = serialise(mine)
    mine["a"].append(2)
    assert result.value == {"a": [1]}


@pytest.mark.parametrize("around", [lambda x: [x], lambda x: (x,), lambda x: {"a": x}, lambda x: ([x, 1],)])
@pytest.mark.parametrize("levels", [MAX_DEPTH, 254, 10_000, 1_000_000])
def test_a_plain_value_at_great_depth_is_refused_without_a_crash(around, levels):
    """A million nested lists, tuples or dicts are a finding, and so is one level too many."""
    value: Any = []
    for _ in range(levels):
        value = around(value)
    assert to_json_value(value).code == "too_deep"


def test_a_stack_that_is_nearly_used_up_is_a_finding():
    """A host deep in recursion gets a finding instead of a RecursionError."""

    def sink(levels: int) -> Any:
        try:
            return sink(levels + 1)
        except RecursionError:
            return to_json_value(deep(50))

    assert isinstance(sink(0), Finding)


@pytest.mark.parametrize(
    ("number", "expected"),
    [("19.99", 19.99), ("100", 100.0), ("0.1234567890123456789", "0.1234567890123456789"), ("1E+999", "1E+999")],
)
def test_a_decimal_is_a_number_only_where_no_digit_is_lost(number, expected):
    """With decimals as numbers, a Decimal that a double cannot hold stays text."""
    result = serialise([Decimal(number)], decimals="number")
    assert result.value == [expected]
    assert type(result.value[0]) is type(expected)
    assert result.decimals


@pytest.mark.parametrize(
    ("key", "text"),
    [(False, "false"), (10**30, str(10**30)), (Level.HIGH, "3"), (clock(1), "01:00:00"), (object(), None), (b"", None)],
)
def test_a_key_has_its_json_spelling_or_none(key, text):
    """A key is spelt as JSON spells the value; a value without such a spelling is no key."""
    assert json_key(key) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_a_json_value_comes_back_unchanged(value):
    """Serialising a JSON value changes nothing, and its bytes read back as the value."""
    result = serialise(value)
    assert result.value == value
    assert msgspec.json.decode(result.data) == value


@given(JSON, st.sampled_from([math.nan, math.inf, print, "\ud800"]), st.data())
def test_one_bad_leaf_anywhere_is_found(value, bad, data):
    """However deep it hides, a leaf without a JSON form makes the whole a finding."""
    where = data.draw(st.integers(0, 3))
    for level in range(where):
        value = {"k": [value, None]} if level % 2 else [None, value]
    holder = [value, {"x": [bad]}]
    assert isinstance(to_json_value(holder), Finding)


# numpy and pandas are not installed with the library; these stand-ins have their names and shapes.


def fake(module: str, name: str, **members: Any) -> Any:
    """An object whose class claims to come from a module."""
    return type(name, (), {"__module__": module, **members})()


def array(items: Any, kind: str = "i", size: int | None = None, ndim: int = 1, **members: Any) -> Any:
    count = size if size is not None else len(items)
    return fake(
        "numpy",
        "ndarray",
        dtype=types.SimpleNamespace(kind=kind),
        size=count,
        ndim=ndim,
        tolist=lambda self: items,
        **members,
    )


def index(labels: list, *, counted: bool = False, unique: bool = True) -> Any:
    members: dict[str, Any] = {"is_unique": unique, "size": len(labels), "tolist": lambda self: labels}
    if counted:
        members |= {"start": 0, "step": 1}
    return fake("pandas.core.indexes", "RangeIndex" if counted else "Index", **members)


def frame(columns: dict[str, list], labels: Any, *, unique: bool = True) -> Any:
    series = {name: fake("pandas", "Series", tolist=lambda self, items=items: items) for name, items in columns.items()}
    return fake(
        "pandas.core.frame",
        "DataFrame",
        size=sum(map(len, columns.values())),
        columns=index(list(columns), unique=unique),
        index=labels,
        __getitem__=lambda self, name: series[name],
    )


def series(items: list, labels: Any, kind: str = "i") -> Any:
    return fake(
        "pandas.core.series",
        "Series",
        size=len(items),
        index=labels,
        dtype=types.SimpleNamespace(kind=kind),
        tolist=lambda self: items,
    )


class NaTType(datetime):
    """Like pandas' "not a time": a datetime that differs from itself."""

    __hash__ = None

    def __ne__(self, other):
        return True


class NaTDelta(timedelta):
    __hash__ = None

    def __ne__(self, other):
        return True


class Precise(timedelta):
    def isoformat(self):
        return "P0DT0H0M0.000000001S"


STAND_INS = [
    (array([1, 2]), [1, 2]),
    (array([[1.5], [2.5]]), [[1.5], [2.5]]),
    (array(3, size=1, ndim=0), 3),
    (
        array(12345, "M", size=1, ndim=0, __str__=lambda self: "2026-01-01T00:00:00.000000001"),
        "2026-01-01T00:00:00.000000001",
    ),
    (array(datetime(2026, 1, 1), "M", size=1, ndim=0), "2026-01-01T00:00:00"),
    (array([date(2026, 1, 1)], "M", __iter__=lambda self: iter([date(2026, 1, 1)])), ["2026-01-01"]),
    (frame({"a": [1, 2], "b": ["x", None]}, index([0, 1], counted=True)), [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    (frame({"a": [1, 2]}, index(["p", "q"])), {"index": ["p", "q"], "columns": ["a"], "data": [[1], [2]]}),
    (series([1, 2], index([0, 1], counted=True)), [1, 2]),
    (series([1, 2], index(["p", "q"])), {"p": 1, "q": 2}),
    (series(["x", math.nan], index([0, 1], counted=True), "O"), ["x", None]),
    (index(["p"]), ["p"]),
    ([fake("pandas._libs.missing", "NAType")], [None]),
    (NaTType(2026, 1, 1), None),
    (NaTDelta(1), None),
    (Precise(0), "P0DT0H0M0.000000001S"),
    ({array(7, size=1, ndim=0, item=lambda self: 7): "x"}, {"7": "x"}),
]


@pytest.mark.parametrize(("value", "expected"), STAND_INS)
def test_arrays_and_frames_are_recognised_by_their_shape(value, expected):
    """Arrays, frames and series become lists and objects without being imported."""
    assert to_json_value(value) == expected


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (array([1.5, math.nan]), "not_finite"),
        (array([1], size=10**9), "output_too_large"),
        (array(5, "m", size=1, ndim=0), "not_serialisable"),
        (fake("numpy", "ufunc"), "not_serialisable"),
        (fake("pandas", "Grouper"), "not_serialisable"),
        (frame({"a": [1]}, index([0], counted=True), unique=False), "key_collision"),
        (series([1, 2], index(["p", "p"], unique=False)), "key_collision"),
        (frame({"a": [math.nan]}, index([0], counted=True)), "not_finite"),
    ],
)
def test_arrays_and_frames_that_would_lose_something_are_findings(value, code):
    """NaN, repeated labels and sizes beyond the cap are findings."""
    assert to_json_value(value).code == code


def test_an_array_of_one_that_returns_itself_is_refused():
    """A scalar of a precision that Python does not have is refused: item() returns its own type."""
    odd = array(None, size=1, ndim=0)
    type(odd).tolist = lambda self: self
    type(odd).item = lambda self: self
    assert to_json_value(odd).code == "not_serialisable"
    assert to_json_value({odd: 1}).code == "not_serialisable"


def test_orjson_still_needs_the_guards():
    """The fast path relies on this: null for NaN, an error for objects that are not plain and for big integers."""
    assert orjson.dumps(math.nan) == b"null"
    with pytest.raises(TypeError):
        orjson.dumps(2**64)
    with pytest.raises(TypeError):
        orjson.dumps({1: 2})
