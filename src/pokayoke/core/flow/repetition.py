"""What a repetition is: has the caller seen the answer of the latest equal effect, and what follows from that?

In: the record of an equal effect, and what the caller of a call has seen.
Out: whether the call is new, and whether a new one runs, is asked of a person, or is answered from the ledger.
Never: a second effect because of the order of writes alone. Who has not seen the answer sends the same call again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from pokayoke.core.contract.terms import Repeats
from pokayoke.core.flow.seen_history import AnsweredCall, SeenHistory
from pokayoke.core.ledger.records import Record, call_mark

REPLAY_WORDS: Final = "Not run again"
"""How every text begins that answers a write from the ledger."""

Sighting = Literal["unseen", "unknown", "this_turn", "earlier_turn"]
"""Where the caller has seen the answer of an effect; `unknown` if nobody can say what it has seen."""


class HandedAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer that this opening of the run has handed out.

    Attributes:
        number: how many came before it.
        call_id: the call that got it.
        turn: the run's turn.
        message: the message of that call.
        text_hash: `hash` of its text, by which the text is known again in this process.
    """

    number: int
    call_id: str
    turn: int
    message: int
    text_hash: int


class CallerMemory(Protocol):
    """What one opening of a run remembers of its callers."""

    def handed_answers(self, key: str, /) -> Sequence[HandedAnswer]:
        """Return the answers of an effect that were handed out, oldest first."""
        ...

    def known_chain(self, base: str, /) -> tuple[str, ...]:
        """Return the marks of the equal effects that a new call went on from, by the key of the first one."""
        ...

    def keep_chain(self, base: str, marks: tuple[str, ...], /) -> None:
        """Remember those marks."""
        ...

    def find_place(self, base: str, call_id: str, message: int, /) -> int:
        """Return how many equal calls of its message come before a call."""
        ...


class CallerView(msgspec.Struct, frozen=True, gc=False):
    """What the caller of one call has seen when it sends the call.

    Attributes:
        memory: what its opening of the run remembers.
        turn: the run's turn.
        message: the message that holds the call, by a number.
        count: how many answers had been handed out.
        history: returns what stands in the caller's history; None if no history is known.
        history_turn: the run's turn at which that history was known.
        is_exact: True if the caller has seen nothing but that history.
        knows_turns: False if nobody can tell when a user speaks.
        may_ask: True if a person can be asked.
    """

    memory: CallerMemory
    turn: int = 0
    message: int = 0
    count: int = 0
    history: Callable[[], SeenHistory] | None = None
    history_turn: int = 0
    is_exact: bool = False
    knows_turns: bool = True
    may_ask: bool = False


class Repetition(NamedTuple):
    """How a call stands to the equal effects before it.

    Attributes:
        is_new: True if its caller has seen the answer of the latest one.
        earlier: the effect that it would repeat, or None.
        since: tools whose effects came after that one, in order.
        number: how many equal effects came before that one.
    """

    is_new: bool = False
    earlier: Record | None = None
    since: tuple[str, ...] = ()
    number: int = 0


FIRST: Final = Repetition()
"""A call that means no second effect."""


def sight_answer(
    record: Record,
    marks: Sequence[str],
    caller: CallerView,
    call_id: str,
    is_equal: Callable[[AnsweredCall], bool],
) -> Sighting:
    """Say where a caller has seen the answer of an effect.

    Args:
        record: the effect.
        marks: the marks of the equal effects up to this one. Ids repeat, so each needs an answer of its own.
        caller: what the caller has seen.
        call_id: the id of its call.
        is_equal: says whether a call of a history means the same effect.
    """
    handed = [one for one in caller.memory.handed_answers(record.key) if one.number < caller.count]
    if caller.history is not None:
        history = caller.history()
        turns = _answer_turns(record, marks, history, handed, is_equal)
        if turns:
            passed = min(turns) < history.turn or caller.history_turn < caller.turn
            return "earlier_turn" if passed else "this_turn"
        if caller.is_exact:
            return "unseen"
    seen = [
        one for one in handed if one.message != caller.message and (one.turn < caller.turn or one.call_id != call_id)
    ]
    if seen:
        return "earlier_turn" if any(one.turn < caller.turn for one in seen) else "this_turn"
    return "unseen" if handed or caller.history is not None else "unknown"


def _answer_turns(
    record: Record,
    marks: Sequence[str],
    history: SeenHistory,
    handed: Sequence[HandedAnswer],
    is_equal: Callable[[AnsweredCall], bool],
) -> list[int]:
    """Return the turns of a history in which an answer of an effect stands."""
    hashes = {(call_mark(one.call_id), one.text_hash) for one in handed}
    words = replay_words(record, len(marks) - 1)
    own: list[int] = []
    others: list[int] = []
    for one in history.calls:
        mark, text = call_mark(one.id), one.text.lstrip()
        is_handed = (mark, hash(one.text)) in hashes
        if text.startswith(REPLAY_WORDS) or mark != record.mark:
            if (is_handed or words in text.partition("\n")[0]) and is_equal(one):
                others.append(one.turn)
        elif (is_handed or _holds_answer(text, record)) and is_equal(one):
            own.append(one.turn)
    return [*others, *own[marks.count(record.mark) - 1 :]]


def _holds_answer(text: str, record: Record) -> bool:
    """Return whether a text says how an effect ended. A doubt, or a text made up for a lost answer, does not."""
    if record.state != "completed":
        return 'trust="error">' in text
    if not record.output_ok:
        return False
    head = text.partition("\n")[0]
    if head.startswith("<tool_output "):
        return 'trust="error">' not in head
    if record.output is None:
        return False
    value = msgspec.json.decode(record.output)
    if isinstance(value, str):
        return text.rstrip() == value.strip()
    try:
        return bool(msgspec.json.decode(text) == value)
    except msgspec.DecodeError:
        return False


def replay_words(record: Record, number: int) -> str:
    """Return what a replay says of an effect: that it ran, when, and which of the equal ones it is."""
    which = f" (number {number + 1})" if number else ""
    return f"already ran{which} at {settled_time(record)}"


def settled_time(record: Record) -> str:
    """Return when an effect ended, in words; of one that a person settled, when it began: it ended before that."""
    ended = None if record.decided_by else record.settled_at
    return f"{datetime.fromtimestamp(ended or record.claimed_at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def decide_repetition(
    rule: Repeats, sighting: Sighting, caller: CallerView, record: Record, *, has_later_effect: bool
) -> Literal["run", "ask", "replay"]:
    """Decide what becomes of a call that is equal to an effect.

    Args:
        rule: what the contract says of repetitions.
        sighting: where the caller has seen the answer of that effect.
        caller: what it has seen, and whether a person can be asked.
        record: the effect: completed, or failed.
        has_later_effect: True if the run had another effect after it.
    """
    if sighting in ("unseen", "unknown"):
        return "replay"
    ask: Literal["ask", "replay"] = "ask" if caller.may_ask else "replay"
    is_later = sighting == "earlier_turn"
    if record.state == "failed_final" and not record.output_ok and rule != "once":
        return ask  # nobody said no
    if rule == "each":
        return "run"
    if not caller.knows_turns:
        return ask
    if record.state == "failed_retriable":  # its attempts are used up, and none had an effect
        return "run" if is_later else "replay"
    if rule == "turn":
        return "run" if is_later or has_later_effect else "replay"
    return ask if is_later else "replay"
