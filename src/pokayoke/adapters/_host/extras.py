"""What a framework or an SDK that cannot be imported is reported as.

In: imports, in a with block. Out: the same. Never: an import error that does not say which extra to install.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pokayoke.errors import MissingExtraError


@contextmanager
def require_extra(package: str, extra: str = "") -> Generator[None]:
    """Turn an import error in the with block into one that says what to install.

    Args:
        package: the distribution that is imported.
        extra: the extra of pokayoke that installs it; "" if it is called like the distribution.

    Raises:
        MissingExtraError: an import in the block has failed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package, extra or package) from error
