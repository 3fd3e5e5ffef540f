"""Regular expressions that are rarely asked: compiled when first used, so that they cost no import time.

`re` keeps compiled patterns too, but shares its places with the whole process and may forget one.
"""

from __future__ import annotations

import re
from functools import cache
from typing import AnyStr, cast

_compiled = cache(re.compile)


def compile_pattern(pattern: AnyStr) -> re.Pattern[AnyStr]:
    """Return the compiled form of a pattern of this package; flags stand inside it, such as `(?i)`."""
    return cast("re.Pattern[AnyStr]", _compiled(pattern))
