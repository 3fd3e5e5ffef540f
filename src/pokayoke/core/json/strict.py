"""Strict JSON: RFC 8259, with every open case decided.

In: a text or bytes.
Out: the one value they mean and its compact dump, or a `StrictError` that names the problem and its position.
Never: a repair.

No single parser is strict enough (measured): orjson reads integers beyond 64 bits as floats, jiter reads 1e999 as
infinity, and in all of them the last of two equal keys wins. So three parsers share the work, each for the cases
that it decides correctly.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any, cast

import jiter
import msgspec
import orjson

from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.json.dump import dump_compact, dump_exact_size
from pokayoke.core.text.regex import linear_search

# All bytes except the signs of structure, as a table of what to delete.
_NO_SIGNS = bytes(byte for byte in range(256) if chr(byte) not in "[]{}:")
# Searched as a number: for `bytes in bytes` CPython raises and drops an exception before it searches.
_ESCAPE = ord("\\")
_COLON = ord(":")
_POINT = ord(".")
# How this version of orjson writes a large double: 1e+300 or 1e300.
_LARGE = ord("+" if b"+" in orjson.dumps(1e300) else "e")
# Runs of 19 digits may exceed a signed 64-bit integer: orjson would read them as floats.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_RUN = b"0" * 19
# From 16 digits on, a double may be another integer than the text says.
_DOUBTFUL_RUN = b"0" * 16
_INFINITE = frozenset({float("inf"), float("-inf")})
# A whole double in a dump, unless it is so large that it has an exponent. No number stands before a quotation mark.
_WHOLE = re.compile(rb'\.0(?![0-9"])').search
_DEEPEST = 200  # orjson ends at 254, and a few levels are kept in reserve
# Bytes per allowed level from which the dump itself proves the depth: a longer text probably has too many signs of
# structure to prove it by their number, and in a shorter one counting them is faster.
_LONG = 64
_SORTED = orjson.OPT_SORT_KEYS
_NOT_FINITE = re.compile(r"NaN|Infinity|-?[0-9.]++[eE]\+?[0-9]{3}")
_LINE_COLUMN = re.compile(r"at line ([0-9]+) column ([0-9]+)")

# Words in orjson's messages, in the order they are tried. If orjson rewords one, only the precise code is lost.
_MESSAGES = (
    ("depth", "too_deep"),
    ("surrogate", "lone_surrogate"),
    ("control character", "control_character"),
    ("infinity", "number_too_long"),
)


class StrictError(ValueError):
    """A text is not strict JSON.

    Attributes:
        code: a code of the room `json` or a reason of a reading, see `core/finding_codes.py`.
        position: byte offset of the place in the UTF-8 text, or None where no single place is wrong.
    """

    def __init__(self, code: str, position: int | None = None) -> None:
        """Build the message from the code and the position."""
        super().__init__(FINDING_CODES[code].meaning + ("" if position is None else f" (byte {position})"))
        self.code = code
        self.position = position


def parse(
    data: bytes | str,
    *,
    max_depth: int = 64,
    sort: bool = False,
    max_bytes: int | None = None,
    equal_duplicates: bool = True,
    exact: bool = True,
) -> tuple[Any, bytes]:
    """Read one strict JSON text.

    Args:
        data: the text; bytes must be UTF-8 without a byte order mark.
        max_depth: deepest nesting of arrays and objects, 200 if it is more; a flat object has depth 1.
        sort: True sorts the keys of the returned dump.
        max_bytes: longest text in bytes; None sets no limit.
        equal_duplicates: True accepts a key that repeats with an equal value (nothing is lost);
            False refuses it too.
        exact: True reads an integer with a point or a power that no double holds (`9007199254740993.0`)
            as that integer; False as the nearest double, as other readers do, which is faster.

    Returns:
        The value and its compact dump in UTF-8.

    Raises:
        StrictError: the text is no strict JSON, or beyond a limit.
    """
    try:
        source = data.encode() if isinstance(data, str) else data
    except UnicodeEncodeError as exc:
        raise StrictError("lone_surrogate", len(exc.object[: exc.start].encode())) from None
    if max_bytes is not None and len(source) > max_bytes:
        raise StrictError("too_long", max_bytes)
    try:
        value = orjson.loads(source)
    except orjson.JSONDecodeError as exc:
        raise _diagnose_error(source, exc) from None
    dump, colons = _dump_within(value, max_depth, _SORTED if sort else 0, long=len(source) > _LONG * max_depth)
    # An integer that orjson took for a double is beyond 1e18, so its dump has an exponent.
    large = _LARGE in dump
    if large and _LONG_RUN in source.translate(_DIGITS):
        value, dump = _reparse_exact(source, sort=sort)
    # A text equal to its dump has lost nothing. Otherwise a dropped duplicate key dropped its colon too, and only a
    # colon that was written as an escape could hide that.
    if source == dump:
        return value, dump
    if exact and (large or _POINT in dump) and _may_be_rounded(source, dump, large=large):
        value = json.loads(source, parse_float=read_double)
        dump = dump_compact(value, sort=sort)
    if (
        # More colons than in the dump: replacing as many leaves one, in half the time of counting.
        _COLON in source.replace(b":", b";", colons)
        or (_ESCAPE in source and (_escaped_colon_search()(data) if type(data) is str else b"\\u003" in source))
    ):
        _refuse_duplicates(source, equal_duplicates=equal_duplicates)
    return value, dump


def may_hold_whole_double(dump: bytes) -> bool:
    """Return False if a compact dump certainly holds no double without a fraction, such as 2.0."""
    return (_POINT in dump and _WHOLE(dump) is not None) or _LARGE in dump


def nesting_depth(value: Any) -> int:
    """Return how deep arrays and objects nest: 0 for a scalar, 1 for a flat list."""
    depth = 0
    level: list[Any] = [value]
    while True:
        containers = cast(list[dict[str, Any] | list[Any]], [item for item in level if isinstance(item, dict | list)])
        if not containers:
            return depth
        depth += 1
        level = []
        for item in containers:
            level.extend(item.values() if isinstance(item, dict) else item)


def _may_be_rounded(source: bytes, dump: bytes, *, large: bool) -> bool:
    """Return whether a text may hold an integer with a point or a power and more digits than a double."""
    return (large or _WHOLE(dump) is not None) and source.translate(_DIGITS, b".").find(_DOUBTFUL_RUN) >= 0


def read_double(token: str) -> int | float:
    """Return the value of a JSON number with a fraction or a power; an integer such as `9007199254740993.0` exactly."""
    number = float(token)
    if number in _INFINITE:
        return number
    if "e" in token or "E" in token:
        return _read_power(token, number)
    whole, _, fraction = token.partition(".")
    if fraction.strip("0") or int(whole) == number:
        return number
    return int(whole)


def _read_power(token: str, number: float) -> int | float:
    """Return the exact integer of a number with a power if its double would print as another one; else the double."""
    if not number:  # it may be too small for other types too
        return number
    from decimal import Decimal  # noqa: PLC0415 - rarely needed

    exact = Decimal(token)
    # A double prints as the shortest number that reads back as it: 1e23 stays a double, although not exact.
    whole = exact == exact.to_integral_value() and exact != Decimal(repr(number))
    return int(exact) if whole else number


@functools.cache
def _escaped_colon_search() -> Callable[[str], bool]:
    r"""Return the search for a colon that is written as `\u003a`, compiled on first use."""
    return linear_search(r"\\u003[aA]")


def _dump_within(value: Any, max_depth: int, option: int, *, long: bool) -> tuple[bytes, int]:
    """Return the compact dump of a value that nests no deeper than allowed, and the number of its colons.

    orjson refuses to write beyond a depth of its own. A value inside so many lists that only the allowed depth is
    left is therefore checked while it is written. One level is kept in reserve, because orjson does not enter an
    empty list or object; a value that ends on that level is walked.

    Raises:
        StrictError: the value nests deeper.
    """
    max_depth = min(max_depth, _DEEPEST)
    try:
        if not long:
            dump = dump_exact_size(value, option)
            signs = dump.translate(None, _NO_SIGNS)
            colons = signs.count(b":")
            # Every level opens and closes, so it takes two signs.
            if len(signs) - colons <= 2 * max_depth:
                return dump, colons
        dump = _dump_inside(value, _max_dump_depth() - max_depth + 1, option)
        return dump, dump.count(b":")
    except TypeError:
        pass
    if nesting_depth(value) > max_depth:
        raise StrictError("too_deep")
    dump = dump_exact_size(value, option)
    return dump, dump.count(b":")


def _dump_inside(value: Any, levels: int, option: int) -> bytes:
    """Return the dump of a value, written inside `levels` lists whose brackets are removed.

    Raises:
        TypeError: the value is too deep for orjson.
    """
    spare = _spare_nests(levels)
    try:
        nest, core = spare.pop()
    except IndexError:  # the first one, or other threads use the rest
        nest, core = _build_nest(levels)
    core[0] = value
    try:
        return orjson.dumps(nest, option=option)[levels:-levels]
    finally:
        core[0] = None
        spare.append((nest, core))


@functools.cache
def _spare_nests(levels: int) -> list[tuple[list[Any], list[Any]]]:  # noqa: ARG001 - one list for each number
    """Return the unused nests: building one takes longer than writing a value inside it."""
    return []


def _build_nest(levels: int) -> tuple[list[Any], list[Any]]:
    """Return nested lists: the outermost, and the innermost, which has one place."""
    core: list[Any] = [None]
    nest = core
    for _ in range(levels - 1):
        nest = [nest]
    return nest, core


@functools.cache
def _max_dump_depth() -> int:
    """Return how many nested lists orjson writes: 254, by its documentation."""
    levels = 1
    while True:
        try:
            orjson.dumps(_build_nest(levels + 1)[0])
        except TypeError:
            return levels
        levels += 1


def _reparse_exact(source: bytes, *, sort: bool) -> tuple[Any, bytes]:
    """Parse again with the parser that keeps integers beyond 64 bits.

    Called only after the depth is proven: on a small stack this parser does not survive deep texts.
    """
    try:
        value = msgspec.json.decode(source)
    except msgspec.DecodeError:  # the text is JSON, so only the long number can be at fault
        raise StrictError("number_too_long") from None
    return value, dump_compact(value, sort=sort)


def _refuse_duplicates(source: bytes, *, equal_duplicates: bool) -> None:
    """Raise if a key repeats with another value, or, if those are refused too, with an equal one."""
    try:
        jiter.from_json(source, catch_duplicate_keys=True)
    except ValueError as exc:
        position = _error_offset(source, str(exc))
        if not _are_duplicates_equal(source):
            raise StrictError("duplicate_key", position) from None
        if not equal_duplicates:
            raise StrictError("equal_duplicate", position) from None


def _are_duplicates_equal(source: bytes) -> bool:
    """Return whether every repeated key of a text repeats an equal value (1 and 1.0 are not equal)."""
    unequal: list[str] = []

    def collect_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in pairs:
            if key in found and dump_compact(found[key], sort=True) != dump_compact(item, sort=True):
                unequal.append(key)
            found[key] = item
        return found

    json.loads(source, object_pairs_hook=collect_members)
    return not unequal


def _error_offset(source: bytes, message: str) -> int | None:
    """Return the byte offset of the line and column in a message of jiter."""
    found = _LINE_COLUMN.search(message)
    if found is None:
        return None
    line, column = int(found[1]), int(found[2])
    start = 0
    for _ in range(line - 1):
        start = source.find(b"\n", start) + 1
    return start + column - 1


def _diagnose_error(source: bytes, error: orjson.JSONDecodeError) -> StrictError:
    """Return the error for a text that does not parse, with its code and position."""
    try:
        text = source.decode()
    except UnicodeDecodeError as exc:
        return StrictError("invalid_utf8", exc.start)
    if text.startswith("\ufeff"):
        return StrictError("byte_order_mark", 0)
    position = len(text[: error.pos].encode())
    if _NOT_FINITE.match(text, error.pos):
        return StrictError("not_finite", position)
    message = error.msg.lower()
    for word, code in _MESSAGES:
        if word in message:
            return StrictError(code, position)
    return StrictError("invalid_json", position)
