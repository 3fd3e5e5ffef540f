"""Runs work that is written once, as a coroutine, for callers without an event loop too.

In: a coroutine whose caller has told it not to wait in an event loop.
Out: what it returns or raises.
Never: an event loop, or its import.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that only ever blocks its thread, and so ends in one go."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it blocks the thread instead of waiting in a loop")
