"""Two ways to compile a regular expression: on first use, and for a search in linear time.

In: a pattern of this package.
Out: Python's compiled pattern, or a search that no text can make hang.
Never: a compilation while importing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import AnyStr, cast

# `re` caches compiled patterns too, but shares its places with the whole process and may drop one.
_compiled = cache(re.compile)


def compile_pattern(pattern: AnyStr) -> re.Pattern[AnyStr]:
    """Return the compiled form of a pattern, compiled on first use.

    Args:
        pattern: a pattern of this package; flags stand inside it, such as `(?i)`.
    """
    return cast("re.Pattern[AnyStr]", _compiled(pattern))


def linear_search(source: str) -> Callable[[str], bool]:
    """Return a test whether a pattern occurs in a text, in linear time (the engine of jsonschema-rs).

    Raises:
        ValueError: the pattern does not compile, or needs look-around or back-references.
    """
    from jsonschema_rs import Draft202012Validator, RegexOptions  # noqa: PLC0415 - 10 ms of import, only for a search

    # The engine searches up to 64 literals at once with SIMD instructions (0.15 us per KB), if each has
    # at least four bytes and few occur; beyond that it looks at one byte at a time (1.7 us per KB).
    return Draft202012Validator({"pattern": source}, pattern_options=RegexOptions()).is_valid
