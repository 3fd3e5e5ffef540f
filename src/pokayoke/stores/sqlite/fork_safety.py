"""A fork must not carry an open file or a held lock over: both are let go of before it, and begun anew in the child."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod

from pokayoke.stores.sqlite.connection import SqliteConnection


class ForkSafe(ABC):
    """What uses a file under a lock, and stands still while its process is forked.

    Args:
        connection: to the file; used under the lock only.
    """

    _gate: threading.Lock | threading.RLock

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._closed = False
        self.reset_in_child()
        fork_safe_objects.add(self)

    def close_for_fork(self) -> None:
        """Wait for what runs, let go of the file, and begin nothing until `resume_in_parent`."""
        self._gate.acquire()
        self._connection.close()

    def resume_in_parent(self) -> None:
        """End a pause, in the parent."""
        self._gate.release()

    @abstractmethod
    def reset_in_child(self) -> None:
        """Begin anew, in the child: the threads, and what they wait for, are the parent's."""


fork_safe_objects: weakref.WeakSet[ForkSafe] = weakref.WeakSet()
"""Whatever of this process stands still."""
_paused_objects: list[ForkSafe] = []
_fork_lock = threading.Lock()


def _close_before_fork() -> None:
    # One fork at a time: two that each pause half of all would wait for each other.
    _fork_lock.acquire()
    for one in tuple(fork_safe_objects):
        one.close_for_fork()
        _paused_objects.append(one)


def _resume_in_parent() -> None:
    while _paused_objects:
        _paused_objects.pop().resume_in_parent()
    _fork_lock.release()


def _reset_in_child() -> None:
    global _fork_lock  # noqa: PLW0603 - that of the parent may be waited for by threads that are not there any more
    _fork_lock = threading.Lock()
    while _paused_objects:
        _paused_objects.pop().reset_in_child()


os.register_at_fork(before=_close_before_fork, after_in_parent=_resume_in_parent, after_in_child=_reset_in_child)
