"""What begins anew in a forked child: it has one thread, and any lock of its parent's may be held for ever."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_fork_hooks: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def on_fork(living: T, forked: Callable[[T], None]) -> None:
    """Have `forked(living)` called in a child process, as long as the object lives."""
    _fork_hooks[living] = forked


@functools.cache
def process_token() -> str:
    """A word of this process alone: neither its parent nor a brother has it, and no later process of its pid."""
    return uuid.uuid4().hex


def _after_fork() -> None:
    process_token.cache_clear()
    for living, forked in list(_fork_hooks.items()):
        forked(living)


os.register_at_fork(after_in_child=_after_fork)
