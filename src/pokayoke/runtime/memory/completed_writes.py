"""The completed writes of a run, with what the model sent and read: the ledger keeps neither.

In: outcomes; what the ledger knows of the run.
Out: the latest completed writes, for the note of a shortened history.
Never: a write that was undone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.ledger.compensation import compensation_finding
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import Record
from pokayoke.stores.base import Store
from pokayoke.stores.values import RecordQuery

_KEPT: Final = 200
_MOST: Final = 40  # that a note tells of
_ALL: Final = 2**31 - 1
_MOST_TEXT: Final = 1_000  # characters of an answer in which its ids are looked for


class DoneCall(NamedTuple):
    """A completed write.

    Args:
        tool: its tool.
        arguments: as the model sent them; None if nobody knows any more.
        text: the beginning of what the model read.
        reference: the target's own name of the effect, or "".
    """

    tool: str
    arguments: Any = None
    text: str = ""
    reference: str = ""


class CompletedWrites:
    """What one run has written.

    Args:
        store: where the run's writes are recorded.
        run_id: the run.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id
        self._here: OrderedDict[str, DoneCall] = OrderedDict()
        self._lock = threading.Lock()

    def reset_after_fork(self) -> None:
        """Begin anew in a child process, whose parent may have held the lock."""
        self._lock = threading.Lock()

    def record_outcome(self, outcome: Outcome, call: ToolCall) -> None:
        """Remember a call that took effect."""
        if outcome.effect != "done" or outcome.key is None:
            return
        with self._lock:
            self._here.setdefault(outcome.key, DoneCall(outcome.tool, call.arguments, outcome.text[:_MOST_TEXT]))
            if len(self._here) > _KEPT:
                self._here.popitem(last=False)

    def read_latest(self) -> list[DoneCall]:
        """Return the latest completed writes, oldest first; only those of this process if the ledger cannot be read."""
        with self._lock:
            here = dict(self._here)
        try:
            found = self._store.records(RecordQuery(states=("completed",), run_id=self._run_id, limit=_ALL))
            latest = sorted(found, key=lambda record: record.claimed_at)[-_MOST:]
            return [
                (here.get(record.key) or self._recall_write(record))._replace(reference=record.reference)
                for record in latest
                if (undoing := self._store.record(compensation_key(record.key))) is None
                or compensation_finding(record, undoing) is None
            ]
        except Exception:  # noqa: BLE001 - a store may raise anything; a note then says what is known here
            return list(here.values())[-_MOST:]

    def _recall_write(self, record: Record) -> DoneCall:
        """Return a write of another process; lists come without its output."""
        whole = self._store.record(record.key)
        output = b"" if whole is None else whole.output or b""
        return DoneCall(record.tool, text=output.decode("utf-8", "replace")[:_MOST_TEXT])
