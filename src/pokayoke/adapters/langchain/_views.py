"""Views: objects that share the whole state of another one and do a few things otherwise.

A copy would part ways with the user's object (counters, caches), and methods hung onto that object would follow it
into its copies. A view is an instance of a subclass over the very same attributes: it costs a microsecond, and the
object itself is never touched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["wrap_object"]

T = TypeVar("T")
Methods = Callable[[type], dict[str, Any]]

_new, _put = object.__new__, object.__setattr__  # looked up once: there is a view for each request and each call
_wrapper_by_class: dict[tuple[type, Methods], type] = {}
_wrapper_classes: set[type] = set()
_lock = threading.Lock()


def wrap_object(thing: T, methods: Methods) -> T:
    """Return a view of a pydantic object; a view, or what a view would do as it does, comes back as it is.

    Args:
        thing: the object.
        methods: says for a class what its views do otherwise; asked once for each class.
    """
    state: Any = thing
    kind = type(thing)
    made = _wrapper_by_class.get((kind, methods))
    if made is None:
        if kind in _wrapper_classes:
            return thing
        made = _wrapper_class(kind, methods)
    if made is kind:
        return thing
    seen: Any = _new(made)
    _put(seen, "__dict__", state.__dict__)
    _put(seen, "__pydantic_fields_set__", state.__pydantic_fields_set__)
    _put(seen, "__pydantic_extra__", state.__pydantic_extra__)
    _put(seen, "__pydantic_private__", state.__pydantic_private__)
    return cast("T", seen)


def _wrapper_class(kind: type, methods: Methods) -> type:
    """Named like the class itself: names of classes are part of traces and of cache keys. Itself if it stays as is."""
    with _lock:
        if (made := _wrapper_by_class.get((kind, methods))) is None:
            if not (does := methods(kind)):
                _wrapper_by_class[kind, methods] = kind
                return kind
            namespace = {
                "__module__": kind.__module__,
                "__qualname__": kind.__qualname__,
                "__doc__": kind.__doc__,
                "model_config": {"defer_build": True},  # never validated, so its schema is never needed
            }
            made = type(kind)(kind.__name__, (kind,), namespace)
            # Afterwards: pydantic would take a property with the name of a field for the field's default.
            for name, method in does.items():
                setattr(made, name, method)
            _wrapper_classes.add(made)
            _wrapper_by_class[kind, methods] = made
        return made
