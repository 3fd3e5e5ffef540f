"""A fork must not carry an open file or a held lock over: both are let go of before it, and begun anew in the child."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod

from pokayoke.stores.sqlite.connection import Connection


class Pausing(ABC):
    """What uses a file under a lock, and stands still while its process is forked.

    Args:
        connection: to the file; used under the lock only.
    """

    _gate: threading.Lock | threading.RLock

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed = False
        self.begin_in_child()
        shared.add(self)

    def pause(self) -> None:
        """Wait for what runs, let go of the file, and begin nothing until `go_on`."""
        self._gate.acquire()
        self._connection.close()

    def go_on(self) -> None:
        """End a pause, in the parent."""
        self._gate.release()

    @abstractmethod
    def begin_in_child(self) -> None:
        """Begin anew, in the child: the threads, and what they wait for, are the parent's."""


shared: weakref.WeakSet[Pausing] = weakref.WeakSet()
"""Whatever of this process stands still."""
_paused: list[Pausing] = []
_forking = threading.Lock()


def _before() -> None:
    # One fork at a time: two that each pause half of all would wait for each other.
    _forking.acquire()
    for one in tuple(shared):
        one.pause()
        _paused.append(one)


def _after_in_parent() -> None:
    while _paused:
        _paused.pop().go_on()
    _forking.release()


def _after_in_child() -> None:
    global _forking  # noqa: PLW0603 - that of the parent may be waited for by threads that are not there any more
    _forking = threading.Lock()
    while _paused:
        _paused.pop().begin_in_child()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
