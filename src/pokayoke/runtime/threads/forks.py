"""Callbacks in a forked child: it has one thread, and its parent may have held any lock.

In: objects with locks or threads.
Out: a call per object in the child.
Never: an object kept alive by its registration.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pokayoke.system import register_fork_hooks

T = TypeVar("T")

_fork_hooks: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def on_fork(living: T, forked: Callable[[T], None]) -> None:
    """Call `forked(living)` in every child process, as long as the object lives."""
    _fork_hooks[living] = forked


@functools.cache
def process_token() -> str:
    """Return a token of this process: its parent, its siblings and later processes with its pid have others."""
    return uuid.uuid4().hex


def _after_fork() -> None:
    process_token.cache_clear()
    for living, forked in list(_fork_hooks.items()):
        forked(living)


register_fork_hooks(after_in_child=_after_fork)
