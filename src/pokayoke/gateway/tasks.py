"""Calls that their server goes on with as tasks: their results come with other messages, and are judged there.

In: the calls, and states and results of tasks.
Out: states and results for the client.
Never: a result that nobody has checked, or a call that stays open when its task has ended.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final

from pokayoke.core.json.values import is_object
from pokayoke.gateway.interceptor import Interceptor, PendingCall, ServerGoneError
from pokayoke.gateway.messages.results import Era, error_result

_MOST: Final = 1_000
_ENDED_WITHOUT_RESULT: Final = frozenset(("failed", "cancelled"))
_UNKNOWN: Final = "The result of this task is withheld: its call is not known here, so nothing checks it."


class TaskResults:
    """The open tasks of one conversation, 1,000 at most; thread-safe.

    Args:
        interceptor: the guard.
    """

    def __init__(self, interceptor: Interceptor) -> None:
        self._guard = interceptor
        self._open: OrderedDict[str, PendingCall] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, task: str, pending: PendingCall) -> None:
        """Keep a call open until its task has ended."""
        with self._lock:
            self._open[task] = pending
            oldest = self._open.popitem(last=False)[1] if len(self._open) > _MOST else None
        if oldest is not None:
            self._guard.abandon(oldest, ServerGoneError("too many tasks are open"))

    def judge_result(self, task: str, result: dict[str, Any], era: Era) -> dict[str, Any]:
        """Return the result of a task for the client. One of a call that nobody knows cannot be checked."""
        pending = self._take(task)
        if pending is None:
            return result if self._guard.guard.policy.mode == "monitor" else error_result(_UNKNOWN, era=era)
        judged = self._guard.finish(pending, result)
        meta = result.get("_meta")  # names the task, also where the result is one of our own
        return {**judged, "_meta": {**meta, **judged.get("_meta", {})}} if is_object(meta) else judged

    def judge_state(self, task: str, state: dict[str, Any], era: Era) -> dict[str, Any]:
        """Return the state of a task with a judged result, if it brings one; settle the call of one that has failed."""
        if is_object(state.get("result")):
            return {**state, "result": self.judge_result(task, state["result"], era)}
        # In the legacy era a failed task may still have a result, for which the client asks next.
        if state.get("status") in _ENDED_WITHOUT_RESULT and (era == "modern" or state.get("status") == "cancelled"):
            pending = self._take(task)
            if pending is not None:
                self._guard.abandon(pending, ServerGoneError(f"its task is {state.get('status')}"))
        return state

    def abandon_all(self, error: Exception) -> None:
        """Settle every call: no result comes any more."""
        with self._lock:
            left = list(self._open.values())
            self._open.clear()
        for pending in left:
            self._guard.abandon(pending, error)

    def _take(self, task: str) -> PendingCall | None:
        with self._lock:
            return self._open.pop(task, None)


def task_id(result: Any) -> str | None:
    """Return the id of the task in an answer to a call, of either era; None if there is none."""
    if not is_object(result):
        return None
    task = result.get("task")
    ident = task.get("taskId") if is_object(task) else result.get("taskId")
    return ident if isinstance(ident, str) else None
