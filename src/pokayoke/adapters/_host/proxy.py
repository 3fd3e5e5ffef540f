"""An object that stands before another one.

In: the other object. Out: everything that it has, but for what a subclass does itself. Never: a copy of its state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Proxy:
    """Stands before an object and passes on everything that a subclass does not do itself.

    Args:
        inner: the object.
    """

    def __init__(self, inner: Any) -> None:
        """Keep the object."""
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the object."""
        if name == "_inner":  # not set yet, as while it is copied
            raise AttributeError(name)
        return getattr(self._inner, name)


def wrap_part(name: str, wrapper: Callable[[Any], Any]) -> Any:
    """Return what gives out a part of the object behind a `Proxy` in a wrapper of its own."""
    return property(lambda proxy: wrapper(getattr(proxy._inner, name)))  # noqa: SLF001 - a part of Proxy


def forward(name: str) -> Any:
    """Return what passes an attribute on that an abstract class demands of a `Proxy`."""
    return property(lambda proxy: getattr(proxy._inner, name))  # noqa: SLF001 - a part of Proxy
