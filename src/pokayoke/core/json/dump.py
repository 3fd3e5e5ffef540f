"""JSON texts that take no more memory than they have bytes.

orjson hands out the buffer that it wrote into: 4 KB for `{}`, up to twice the length of a longer text.
What is kept of a call (its arguments, its output, a thousand trace lines) would cost several times its length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

_ONE_MORE = orjson.OPT_APPEND_NEWLINE


def dump_exact_size(value: Any, option: int = 0, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return what orjson writes, in memory of its own size.

    Args:
        value: what orjson takes.
        option: orjson's options.
        default: turns what orjson does not know into what it does.

    Raises:
        TypeError: orjson cannot write it.
    """
    # A slice is a copy, and that takes less time than memory that is touched for the first time.
    return orjson.dumps(value, default, option | _ONE_MORE)[:-1]
