"""What one opening of a run remembers of its callers: the history they have seen, and the answers handed out.

In: histories from the host, and outcomes.
Out: a `CallerView` for each call, as of the moment at which it is sent.
Never: an answer that counts as seen by a call of the same message, or by one that was sent before it was handed out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from pokayoke.core.call import Outcome
from pokayoke.core.flow.repetition import CallerView, HandedAnswer
from pokayoke.core.flow.seen_history import AnsweredCall, SeenHistory, read_seen_history
from pokayoke.core.host_input import as_history
from pokayoke.runtime.threads.forks import on_fork

_MOST_EFFECTS: Final = 10_000
_MOST_ANSWERS: Final = 20  # of one effect
_MOST_CHAINS: Final = 1_000


class SeenAnswers:
    """The memory of one opening of a run; thread-safe.

    Attributes:
        knows_turns: False if nobody can tell when a user speaks, as behind a protocol without turns.
    """

    def __init__(self) -> None:
        """Begin without a history."""
        self.knows_turns = True
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[HandedAnswer, ...]] = {}
        self._count = 0
        self._chains: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._places: tuple[int, defaultdict[str, list[str]]] = (0, defaultdict(list))
        self._history: Callable[[], SeenHistory] | None = None
        self._history_turn = 0
        self._messages, self._is_exact = 0, False
        on_fork(self, SeenAnswers.reset_after_fork)

    def reset_after_fork(self) -> None:
        """Begin anew in a child process, whose parent may have held the lock."""
        self._lock = threading.Lock()

    def set_history(self, messages: Iterable[Any], turn: int, *, is_exact: bool) -> None:
        """Take the messages that a caller has seen; they are read when they are needed.

        Args:
            messages: the history, in any provider's shape.
            turn: the run's turn.
            is_exact: True if the calls to come are of one request that carried exactly this history.
        """
        kept = tuple(as_history(messages))
        self._history, self._history_turn, self._is_exact = cache(lambda: read_seen_history(kept)), turn, is_exact
        if is_exact:
            self.begin_message()

    @property
    def answered_calls(self) -> Sequence[AnsweredCall]:
        """The answered calls of the history that a caller has seen; none if no history is known."""
        return () if self._history is None else self._history().calls

    def begin_message(self) -> None:
        """Count the calls to come, until the next time, as those of one message of the model."""
        self._messages -= 1

    def view_caller(self, turn: int, rounds: int, *, may_ask: bool) -> CallerView:
        """Return what the caller of a call has seen by now. `rounds` numbers messages that nobody has begun."""
        message = self._messages or rounds
        return CallerView(
            self,
            turn,
            message,
            self._count,
            self._history,
            self._history_turn,
            self._is_exact,
            self.knows_turns,
            may_ask,
        )

    def hand_out(self, outcome: Outcome, caller: CallerView) -> None:
        """Remember an answer that goes to a caller, if it says how an effect ended."""
        if outcome.key is None or outcome.status not in ("ok", "replayed", "invalid_output", "failed"):
            return
        with self._lock:
            answer = HandedAnswer(self._count, outcome.call_id, caller.turn, caller.message, hash(outcome.text))
            self._count += 1
            before = self._answers.pop(outcome.key, ())
            if len(before) == _MOST_ANSWERS:
                before = (before[0], *before[2:])  # the first one is of the earliest turn
            self._answers[outcome.key] = (*before, answer)
            if len(self._answers) > _MOST_EFFECTS:
                del self._answers[next(iter(self._answers))]

    def handed_answers(self, key: str) -> Sequence[HandedAnswer]:
        """Return the answers of an effect that were handed out, oldest first."""
        return self._answers.get(key, ())

    def known_chain(self, base: str) -> tuple[str, ...]:
        """Return the marks of the equal effects that a new call went on from, by the key of the first one."""
        return self._chains.get(base, ())

    def keep_chain(self, base: str, marks: tuple[str, ...]) -> None:
        """Remember those marks."""
        with self._lock:
            self._chains[base] = marks
            self._chains.move_to_end(base)
            if len(self._chains) > _MOST_CHAINS:
                self._chains.popitem(last=False)

    def find_place(self, base: str, call_id: str, message: int) -> int:
        """Return how many equal calls of its message come before a call.

        A message that was begun may deliver a call twice, which then keeps its place; in a round, each comes once.
        """
        with self._lock:
            if self._places[0] != message:
                self._places = (message, defaultdict(list))
            ids = self._places[1][base]
            if message > 0 or call_id not in ids:
                ids.append(call_id)
                return len(ids) - 1
            return ids.index(call_id)
