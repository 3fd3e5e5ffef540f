"""JSON values as compact JSON bytes.

orjson returns the buffer it wrote into: 4 KB for `{}`, up to twice the length of a longer text. What is kept of
a call (its arguments, its output, a thousand trace lines) would cost several times its length, so every dump here
is copied into memory of its own size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import orjson

_ONE_MORE = orjson.OPT_APPEND_NEWLINE
_SORTED = orjson.OPT_SORT_KEYS


def dump_exact_size(value: Any, option: int = 0, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return what orjson writes, in memory of its own size.

    Args:
        value: any value that orjson takes.
        option: orjson's options.
        default: converts what orjson does not know into what it does.

    Raises:
        TypeError: orjson cannot write it.
    """
    # A slice is a copy, and copying takes less time than touching memory for the first time.
    return orjson.dumps(value, default, option | _ONE_MORE)[:-1]


def dump_compact(value: Any, *, sort: bool = False) -> bytes:
    """Return the compact dump of a JSON value, integers of any size included.

    Args:
        value: a JSON value without deep tuples; see `dump_foreign`.
        sort: True sorts the keys of every object.
    """
    try:
        return dump_exact_size(value, _SORTED if sort else 0)
    except TypeError:  # integers beyond 64 bits
        return msgspec.json.encode(value, order="sorted" if sort else None)


def dump_foreign(value: Any, *, sort: bool = False) -> bytes:
    """Return the compact dump of a value that was not read from JSON.

    It may hold tuples. orjson does not count how deep those nest and would overrun the stack; msgspec does.

    Raises:
        TypeError: a part of it has no JSON form.
        ValueError: a text in it has no encoding.
        RecursionError: it nests too deep for the host.
    """
    return msgspec.json.encode(value, order="sorted" if sort else None)
