"""Forks: every open file and held lock is released before a fork and made anew in the child.

In: objects that use a file under a lock.
Out: the same objects, usable in parent and child.
Never: an open file or a held lock that a child inherits.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod

from pokayoke.stores.sqlite.connection import SqliteConnection
from pokayoke.system import register_fork_hooks


class ForkSafe(ABC):
    """A user of a file under a lock, which pauses while its process forks.

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
        """Wait for running work, close the file, and start nothing until `resume_in_parent`."""
        self._gate.acquire()
        self._connection.close()

    def resume_in_parent(self) -> None:
        """End the pause, in the parent."""
        self._gate.release()

    @abstractmethod
    def reset_in_child(self) -> None:
        """Start anew, in the child: the threads, and what they wait for, belong to the parent."""


fork_safe_objects: weakref.WeakSet[ForkSafe] = weakref.WeakSet()
"""All such objects of this process."""
_paused_objects: list[ForkSafe] = []
_fork_lock = threading.Lock()


def _close_before_fork() -> None:
    # One fork at a time: two forks that each pause half of the objects would deadlock.
    _fork_lock.acquire()
    for one in tuple(fork_safe_objects):
        one.close_for_fork()
        _paused_objects.append(one)


def _resume_in_parent() -> None:
    while _paused_objects:
        _paused_objects.pop().resume_in_parent()
    _fork_lock.release()


def _reset_in_child() -> None:
    global _fork_lock  # noqa: PLW0603 - the parent's may be held by threads that do not exist here
    _fork_lock = threading.Lock()
    while _paused_objects:
        _paused_objects.pop().reset_in_child()


register_fork_hooks(before=_close_before_fork, after_in_parent=_resume_in_parent, after_in_child=_reset_in_child)
