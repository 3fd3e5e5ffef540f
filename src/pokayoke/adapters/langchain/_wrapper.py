"""Wrappers: objects that share the whole state of a pydantic object and replace a few of its methods.

In: a model or a tool of the user's. Out: an instance of a subclass over the very same attributes, in a microsecond.
Never: a change of the object itself.

A copy would not share later changes (counters, caches), and methods that were set on the object would be copied along
with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")
Methods = Callable[[type], dict[str, Any]]

_new, _put = object.__new__, object.__setattr__  # looked up once: each request and each call makes a wrapper
_wrapper_by_class: dict[tuple[type, Methods], type] = {}
_wrapper_classes: set[type] = set()
_lock = threading.Lock()


def wrap_object(thing: T, methods: Methods) -> T:
    """Return a wrapper of a pydantic object; a wrapper, or an object without methods to replace, comes back unchanged.

    Args:
        thing: the object.
        methods: returns the methods to replace for a class; called once per class.
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
    """Return the class of wrappers, or the class itself if nothing is replaced.

    It has the name of the class: names of classes are part of traces and of cache keys.
    """
    with _lock:
        if (made := _wrapper_by_class.get((kind, methods))) is None:
            if not (replaced := methods(kind)):
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
            for name, method in replaced.items():
                setattr(made, name, method)
            _wrapper_classes.add(made)
            _wrapper_by_class[kind, methods] = made
        return made
