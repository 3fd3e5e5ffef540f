"""Views: objects that share the whole state of another one and do a few things otherwise.

A copy would part ways with the user's object (counters, caches), and methods hung onto that object would follow it
into its copies. A view is an instance of a subclass over the very same attributes: it costs a microsecond, and the
object itself is never touched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["view"]

T = TypeVar("T")
Methods = Callable[[type], dict[str, Any]]

_STATE = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
_made: dict[tuple[type, Methods], type] = {}
_views: set[type] = set()
_lock = threading.Lock()


def view(thing: T, methods: Methods) -> T:
    """Return a view of a pydantic object; one that is a view already comes back as it is.

    Args:
        thing: the object.
        methods: says for a class what its views do otherwise; asked once for each class.
    """
    kind = type(thing)
    made = _made.get((kind, methods))
    if made is None:
        if kind in _views:
            return thing
        made = _class_of_views(kind, methods)
    seen = cast("T", object.__new__(made))
    for name in _STATE:
        object.__setattr__(seen, name, object.__getattribute__(thing, name))
    return seen


def _class_of_views(kind: type, methods: Methods) -> type:
    """Named like the class itself: names of classes are part of traces and of cache keys."""
    with _lock:
        if (made := _made.get((kind, methods))) is None:
            namespace = {
                "__module__": kind.__module__,
                "__qualname__": kind.__qualname__,
                "__doc__": kind.__doc__,
                "model_config": {"defer_build": True},  # never validated, so its schema is never needed
            }
            made = type(kind)(kind.__name__, (kind,), namespace)
            # Afterwards: pydantic would take a property with the name of a field for the field's default.
            for name, does in methods(kind).items():
                setattr(made, name, does)
            _views.add(made)
            _made[kind, methods] = made
        return made
