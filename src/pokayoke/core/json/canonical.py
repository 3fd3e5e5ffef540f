"""Canonical bytes of a JSON value: RFC 8785, with integers beyond 2^53 in full decimal digits.

In: a JSON value that has been proven plain and finite.
Out: bytes that are equal exactly when two values mean the same (1 and 1.0 are one value, key order does not count).
Never: two order numbers that become one key. RFC 8785 rounds integers that a double cannot hold; here their digits
stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, cast

import orjson
import rfc8785

from pokayoke.core.json.dump import dump_compact
from pokayoke.core.text.regex import linear_search

# Between these bounds the shortest digits of a fractional double are written alike by orjson and by
# ECMAScript (RFC 8785, section 3.2.2.3); outside, the exponent is spelt differently.
_SMALLEST_PLAIN, _LARGEST_PLAIN = 1e-3, 1e15
_NEVER_RESPELT = frozenset((str, int, bool, type(None)))


_RESPELT_NUMBER: Final = r"[0-9]e[-+]?[0-9]+(?:[,\]}]|$)|[0-9]\.0(?:[,\]}]|$)|0\.000"
"""A number that RFC 8785 may spell otherwise: with an exponent, whole, or tiny.

A text can look like one; then the value itself is looked at. Each branch begins with few literals, which the
engine finds ten times as fast as a number from its first digit on.
"""
# The text for that search, which runs faster on ASCII. A zero, which no dump holds, stands where a character
# beyond the basic plane begins: only with those do UTF-8 and UTF-16 sort keys differently.
_ASTRAL_MARK: Final = 0
_ASCII_ONLY: Final = bytes(range(0x80)) + b"\x7f" * (0xF0 - 0x80) + bytes([_ASTRAL_MARK]) * 0x10


@cache
def _respelt_search() -> Callable[[str], bool]:
    return linear_search(_RESPELT_NUMBER)


def _may_be_respelt(dumped: bytes) -> bool:
    if not dumped.isascii():
        dumped = dumped.translate(_ASCII_ONLY)
        if _ASTRAL_MARK in dumped:
            return True
    return _respelt_search()(str(dumped, "ascii"))


def canonical_bytes(value: Any, dumped: bytes | None = None) -> bytes:
    """Return the canonical bytes of `value`.

    Args:
        value: a plain JSON value (dict, list, str, int, float, bool, None).
        dumped: `dump_compact(value, sort=True)` if the caller has it already. It is returned itself if it is
            canonical, which is nearly always.
    """
    if dumped is None:
        dumped = dump_compact(value, sort=True)
    if not _may_be_respelt(dumped):
        return dumped
    return dumped if _is_canonical_dump(value) else _encode_canonical(value)


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _is_canonical_dump(value: Any) -> bool:
    """Return whether the sorted dump of `value` is canonical already. Leaves are checked without a call each."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if not all(map(str.isascii, members)):
            return False
        items: Iterable[Any] = members.values()
    else:
        items = cast("list[Any]", value) if isinstance(value, (list, tuple)) else (value,)
    for item in items:
        kind: Any = item.__class__
        if kind in _NEVER_RESPELT:
            continue
        if kind is float:
            if not _SMALLEST_PLAIN < abs(item) < _LARGEST_PLAIN or item.is_integer():
                return False
        elif not _is_canonical_dump(item):
            return False
    return True


def _encode_canonical(value: Any) -> bytes:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        ordered = sorted(members, key=lambda key: key.encode("utf-16-be"))
        return b"{%s}" % b",".join(orjson.dumps(key) + b":" + _encode_canonical(members[key]) for key in ordered)
    if isinstance(value, (list, tuple)):
        return b"[%s]" % b",".join(_encode_canonical(item) for item in cast("list[Any]", value))
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    if isinstance(value, float) and value.is_integer():
        # 1e20 and 10**20 are one value, and the digits of a whole double are exact.
        return b"%d" % int(value)
    return rfc8785.dumps(value)
