"""What every store does, said once: what an act has to read, what it decides, what it changes.

An act is a value. A store reads what it needs, lets the core decide, and writes what has changed, in
one transaction that nobody else can look into. So a store knows how to read and write, and no rule.
An act may be carried out again after a connection was lost: it then recognises its own work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from pokayoke.core.ledger import admission
from pokayoke.core.ledger.admission import Approval, Held, Request, Used
from pokayoke.core.ledger.transitions import Admission, Record, Resolution, Settled, Settlement, decide, settle
from pokayoke.core.state.kill_switch import Board, Seen, Switch, count, flipped
from pokayoke.core.state.run_state import RunState
from pokayoke.errors import StoreError
from pokayoke.stores.values import Entry, Flip, RunChange

T = TypeVar("T")


class Need(msgspec.Struct, frozen=True, gc=False):
    """What an act reads. What it names, it may also change.

    Args:
        record: a ledger key.
        run: a run's id.
        keeps_run: True if the act only looks at the run.
        counters: names of limits.
        fingerprint: of a question.
        approval: id of a question, where its fingerprint is not known.
        board: nothing of it, the switches to look at, or everything to change it.
    """

    record: str | None = None
    run: str | None = None
    keeps_run: bool = True
    counters: tuple[str, ...] = ()
    fingerprint: str | None = None
    approval: str | None = None
    board: Literal["none", "switches", "all"] = "none"


class Books(msgspec.Struct, frozen=True, gc=False):
    """What a store has found, named as in `Need`."""

    record: Record | None = None
    run: RunState | None = None
    used: Mapping[str, Used] = {}
    approval: Approval | None = None
    board: Board = Board()


class Changes(msgspec.Struct, frozen=True, gc=False):
    """What a store has to write; what is empty stays as it is."""

    record: Record | None = None
    run: RunState | None = None
    used: Mapping[str, Used] = {}
    approval: Approval | None = None
    board: Board | None = None
    entries: tuple[Entry, ...] = ()


class Act(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One act: read `need`, call `decide`, write what it says, return what it returns.

    Args:
        name: the method of `Store` that asked for it.
        need: what it reads.
        decide: pure; it may raise `StoreError`, then nothing is written.
    """

    name: str
    need: Need
    decide: Callable[[Books], tuple[Changes, T]]


NOTHING = Changes()


def only(found: Sequence[T], approval_id: str) -> T | None:
    """Return the one question that an id names, or None.

    Raises:
        StoreError: it names several, and which of them is meant nobody can say.
    """
    if len(found) > 1:
        raise StoreError(f"approval {approval_id!r} names {len(found)} questions: none of them can be meant by it")
    return found[0] if found else None


def admitting(request: Request) -> Act[Admission]:
    """Decide over a request and keep the consequences."""

    def decided(books: Books) -> tuple[Changes, Admission]:
        board = books.board
        run = books.run or RunState(request.run_id)
        switches = tuple(board.switches.values())
        held = Held(run, books.record, books.used, books.approval, switches, board.epoch)
        kept = admission.admit(request, held)
        return Changes(record=kept.record, used=kept.used, approval=kept.approval), kept.answer

    need = Need(
        record=request.claim.key if request.claim else None,
        run=request.run_id,
        counters=tuple(sorted({charge.counter for charge in request.charges})),
        fingerprint=request.approval.fingerprint if request.approval else None,
        board="none" if request.effect == "read" else "switches",
    )
    return Act("admit", need, decided)


def settling(settlement: Settlement) -> Act[Settled]:
    """Record what became of a claim; keep a completion that came too late as a late effect."""

    def decided(books: Books) -> tuple[Changes, Settled]:
        record, accepted = settle(books.record, settlement)
        stands = record or books.record
        late: tuple[Entry, ...] = ()
        if not accepted and settlement.state == "completed" and not settlement.found:
            state = stands.state if stands else "unknown"
            data = {"claim_id": settlement.claim_id, "state": state, "reference": settlement.reference}
            late = (Entry(settlement.now, "late_effect", settlement.key, reason=f"found {state}", data=data),)
        return Changes(record=record, entries=late), Settled(accepted, stands)

    return Act("settle", Need(record=settlement.key), decided)


def recalling(key: str) -> Act[Record | None]:
    """Read a record, as an act that may be awaited."""
    return Act("record", Need(record=key), lambda books: (NOTHING, books.record))


def changing(run_id: str, change: RunChange) -> Act[tuple[RunState, RunState]]:
    """Change a run's state by a pure function."""

    def decided(books: Books) -> tuple[Changes, tuple[RunState, RunState]]:
        before = books.run or RunState(run_id)
        after = change(before)
        if after is before:
            return NOTHING, (before, after)
        # The run's own copy is the later one where the store has forgotten what it held.
        after = msgspec.structs.replace(after, version=max(before.version, after.version) + 1)
        return Changes(run=after), (before, after)

    return Act("change_run", Need(run=run_id, keeps_run=False), decided)


def proposing(approval: Approval) -> Act[None]:
    """Keep a question, unless it is known."""

    def decided(books: Books) -> tuple[Changes, None]:
        return (NOTHING if books.approval else Changes(approval=approval)), None

    return Act("propose", Need(fingerprint=approval.fingerprint), decided)


def answering(approval_id: str, *, approved: bool, by: str, reason: str, now: float) -> Act[Approval]:
    """Answer a question that waits."""
    status: Literal["approved", "denied"] = "approved" if approved else "denied"

    def decided(books: Books) -> tuple[Changes, Approval]:
        known = books.approval
        if known is None:
            raise StoreError(f"there is no approval {approval_id!r}; `pokayoke approvals list` shows those that wait")
        if (known.status, known.by, known.decided_at) == (status, by, now):
            return NOTHING, known  # our own answer, whose receipt was lost
        known = known.at(now)
        if known.status != "waiting":
            raise StoreError(f"approval {approval_id!r} {_ended(known)}")
        after = msgspec.structs.replace(known, status=status, by=by, reason=reason, decided_at=now)
        entry = Entry(now, status, approval_id, by, reason, {"tool": known.tool, "run_id": known.run_id})
        return Changes(approval=after, entries=(entry,)), after

    return Act("answer", Need(approval=approval_id), decided)


def _ended(approval: Approval) -> str:
    """Why a question takes no answer any more, and what that means for its call."""
    if approval.status == "expired":
        return "is expired already; the call has to ask again"
    now = "the same call runs when it is sent again" if approval.status == "approved" else "the same call stays refused"
    if approval.status == "used":
        now = "the same call asks again"
    return f"is {approval.status} already, by {approval.by}; {now}"


def deciding(decision: Resolution) -> Act[Record]:
    """Settle a doubt by a person's word."""

    def decided(books: Books) -> tuple[Changes, Record]:
        known = books.record
        if known is None:
            raise StoreError(f"there is no record {decision.key!r}; `pokayoke ledger list` shows them")
        if known.decided_by == decision.by and known.settled_at == decision.now:
            return NOTHING, known  # our own decision, whose receipt was lost
        after = decide(known, decision)
        if after is None:
            raise StoreError(
                f"{known.tool} {decision.key[:12]} is {known.state}, not in doubt: there is nothing to decide"
            )
        data = {"happened": decision.happened, "reference": decision.reference, "was": known.state}
        entry = Entry(decision.now, "decided", decision.key, decision.by, decision.reason, data)
        return Changes(record=after, entries=(entry,)), after

    return Act("decide", Need(record=decision.key), decided)


def observing(seen: Iterable[Seen], now: float) -> Act[tuple[Switch, ...]]:
    """Count outputs; some may flip a switch."""
    outputs = tuple(seen)

    def decided(books: Books) -> tuple[Changes, tuple[Switch, ...]]:
        after = count(books.board, outputs, now)
        known = books.board.switches
        turned = tuple(
            s for s in after.switches.values() if s.epoch != (known[s.scope].epoch if s.scope in known else 0)
        )
        return Changes(board=after, entries=tuple(map(_told, turned))), turned

    return Act("observe", Need(board="all"), decided)


def flipping(flip: Flip) -> Act[Switch]:
    """Open or close a switch by hand."""

    def decided(books: Books) -> tuple[Changes, Switch]:
        known = books.board.switches.get(flip.scope)
        if known is not None and (known.by, known.since, known.mode) == (flip.by, flip.now, flip.mode):
            return NOTHING, known  # our own flip, whose receipt was lost
        board = flipped(books.board, flip.scope, flip.mode, by=flip.by, reason=flip.reason, now=flip.now)
        after = board.switches[flip.scope]
        return Changes(board=board, entries=(_told(after),)), after

    return Act("flip", Need(board="all"), decided)


def noting(entry: Entry) -> Act[None]:
    """Add a line to the audit."""
    return Act("note", Need(), lambda _: (Changes(entries=(entry,)), None))


def _told(switch: Switch) -> Entry:
    data = {"mode": switch.mode, "epoch": switch.epoch, "manual": switch.manual}
    return Entry(switch.since, "switch", switch.scope, switch.by, switch.reason, data)
