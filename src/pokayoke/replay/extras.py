"""Optional packages, imported where they are used.

In: names of modules. Out: the modules. Never: an import error that does not say which extra to install.
"""

from __future__ import annotations

import importlib
from typing import Any

from pokayoke.errors import MissingExtraError


def import_extra(module: str, extra: str, package: str = "") -> Any:
    """Return a module of an optional package.

    Args:
        module: to import.
        extra: the extra of pokayoke that installs it.
        package: the distribution; "" if it is called like the extra.

    Raises:
        MissingExtraError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(package or extra, extra) from error
