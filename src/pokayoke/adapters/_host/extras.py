"""What a framework or an SDK that is missing, too old or cannot be imported is reported as.

In: imports, in a with block. Out: the same. Never: an import error that does not say which extra to install.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from pokayoke.errors import MissingExtraError

_BOUND = re.compile(r"([\w.-]+)(?:\[[^]]*])?[^;]*>=\s*(\d[\w.]*)[^;]*;.*\bextra\s*==\s*['\"]([\w-]+)['\"]")
"""A requirement of an extra, in the form of the metadata: its distribution, its lower bound, the extra."""
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


@contextmanager
def require_extra(package: str, extra: str = "", *, bounded: bool = True) -> Generator[None]:
    """Turn an import error in the with block into one that says what to install.

    Args:
        package: the distribution that is imported.
        extra: the extra of pokayoke that installs it; "" if it is called like the distribution.
        bounded: whether the installed versions must reach the lower bounds of the extra; one above them is never
            refused.

    Raises:
        MissingExtraError: an import in the block has failed, or a distribution is too old (on entering).
    """
    if bounded:
        for name, needed in lower_bounds(extra or package):
            if _is_older(name, needed):
                raise MissingExtraError(name, extra or package, needed=needed)
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package, extra or package) from error


def lower_bounds(extra: str) -> Iterator[tuple[str, str]]:
    """Yield the distributions of an extra and the lowest version of each, as the metadata of pokayoke has them.

    Args:
        extra: one of the extras of pokayoke. Without metadata, as in a copied folder, it has no bounds.
    """
    from importlib import metadata  # noqa: PLC0415 - slow to import; each framework loads it anyway

    try:
        requirements = metadata.requires("pokayoke") or []
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        if (bound := _BOUND.match(requirement)) and bound[3] == extra:
            yield bound[1], bound[2]


def _is_older(name: str, needed: str) -> bool:
    """Whether a distribution is installed in a version below the needed one; pre-releases count as their release."""
    from importlib import metadata  # noqa: PLC0415 - as above

    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return _release(installed) < _release(needed)


def _release(version: str) -> list[int]:
    found = _RELEASE.match(version)
    numbers = [int(part) for part in found[0].split(".")] if found else [sys.maxsize]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
