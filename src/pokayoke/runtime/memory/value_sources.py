"""Where the values of a run come from: the user's words, what tools returned, and what a history holds of both.

In: texts of the user, outputs, and the histories of callers.
Out: a judgement for each call that asks.
Never: an output of a history that counts twice, or words of anybody but the user.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.plan import CallPlan, Snapshot
from pokayoke.core.flow.seen_history import AnsweredCall, SeenHistory
from pokayoke.core.hash_set import HashSet
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.output.model_text import unframe_text
from pokayoke.core.provenance.labels import ToolLabels, derive_labels
from pokayoke.core.provenance.provenance import Judgement, Provenance

_MOST_WORDS: Final = 20_000  # characters of the user's texts; of more, the oldest are forgotten, which asks more
_MOST_KNOWN: Final = 20_000
_INLINE: Final = 16_384  # characters: what a caller reads in its own thread; more would hold up an event loop


class _Returned(NamedTuple):
    """What a tool returned, as it was taken in; see `Provenance.add_call`."""

    labels: ToolLabels
    arguments: bytes
    output: bytes | str
    step: int
    call_id: str
    is_approved: bool


class ValueSources:
    """The memory of one run; thread-safe.

    A judgement may read for seconds, in a worker. Nothing else waits for it: outputs come in through an inbox.

    Args:
        is_tainted: True if the run has read untrusted content before this process opened it.
    """

    def __init__(self, *, is_tainted: bool = False) -> None:
        """Begin with nothing said and nothing read."""
        self._provenance = Provenance(is_tainted=is_tainted)
        self._words: dict[str, None] = {}
        self._words_size = 0
        self._known = HashSet()  # the calls whose outputs were taken in
        self._history: SeenHistory | None = None
        self._earlier = 0
        self._inbox = deque[_Returned]()
        self._lock, self._words_lock = threading.Lock(), threading.Lock()

    def reset_after_fork(self) -> None:
        """Begin anew in a child process, whose parent may have held the locks."""
        self._lock, self._words_lock = threading.Lock(), threading.Lock()

    def is_behind(self, plan: CallPlan) -> bool:
        """Return whether the judgement of a call takes so long that an event loop must not wait for it."""
        return self._lock.locked() or self._provenance.waiting_size(plan.labels) > _INLINE

    def is_tainted_by(self, env: CallEnvironment) -> bool:
        """Return whether the run has read untrusted content, also before this process opened it."""
        if self._inbox or self._provenance.is_tainted or env.view.state.has_read:
            return True
        return env.caller.history is not None and bool(env.caller.history().calls)

    def add_words(self, text: str) -> None:
        """Take in a text of the user."""
        if not text.strip():
            return
        with self._words_lock:
            if text not in self._words:
                self._words[text] = None
                self._words_size += len(text)
            while self._words_size > _MOST_WORDS and len(self._words) > 1:
                self._words_size -= len(first := next(iter(self._words)))
                del self._words[first]

    def add_output(
        self,
        plan: CallPlan,
        arguments: bytes,
        output: bytes | str,
        step: int,
        call_id: str,
        *,
        is_approved: bool,
    ) -> None:
        """Take in what a tool returned to the model; see `Provenance.add_call`."""
        self._inbox.append(_Returned(plan.labels, arguments, output, step, call_id, is_approved))
        if self._lock.acquire(blocking=False):
            try:
                self._take_in()
            finally:
                self._lock.release()

    def _take_in(self) -> None:
        """Empty the inbox. Only who holds the lock does."""
        while self._inbox:
            labels, arguments, output, step, call_id, is_approved = self._inbox.popleft()
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()  # an output of a history may then count twice, which changes no judgement
            if call_id:
                self._known.add(call_id)
            self._provenance.add_call(labels, arguments, output, step=step, is_approved=is_approved)

    def judge(self, plan: CallPlan, arguments: Mapping[str, Any], env: CallEnvironment) -> Judgement:
        """Return where the values of a call come from."""
        history = None if env.caller.history is None else env.caller.history()
        with self._words_lock:
            words = tuple(self._words)
        with self._lock:
            self._take_in()
            provenance = self._provenance
            provenance.is_tainted = True
            provenance.level = env.snapshot.policy.untrusted.level
            if history is not None and history is not self._history:
                self._history = history
                for one in history.calls:
                    self._add_answer(one, env.snapshot)
            said = words or dict.fromkeys(() if history is None else history.said)
            provenance.set_words("\n\n".join(said))
            return provenance.judge(plan.labels, arguments)

    def _add_answer(self, one: AnsweredCall, snapshot: Snapshot) -> None:
        mark = one.id or (one.name, one.text)
        if mark in self._known:
            return
        self._known.add(mark)
        self._earlier -= 1
        self._provenance.add_call(
            _labels_of(one.name, snapshot), _arguments_of(one), unframe_text(one.text), step=self._earlier
        )


def _labels_of(name: str, snapshot: Snapshot) -> ToolLabels:
    plan = snapshot.find_plan(name)
    return derive_labels(name, "", {}) if isinstance(plan, Finding) else plan.labels


def _arguments_of(one: AnsweredCall) -> bytes:
    given: Any = one.arguments
    try:
        read: Any = msgspec.json.decode(given or "{}") if isinstance(given, (str, bytes)) else given
        return dump_compact(read, sort=True) if isinstance(read, dict) else b"{}"
    except (TypeError, ValueError, RecursionError):  # nobody's arguments: it was corrected, or refused
        return b"{}"
