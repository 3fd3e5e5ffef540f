"""The operations of every store: what each one reads, decides and writes.

An operation is a value. A store reads the rows it needs, lets the core decide, and writes the changes,
in one transaction. An operation may run again after a lost connection: it then recognises its own work.

In: requests, settlements, answers and commands.
Out: operations for `Store.run`.
Never: I/O, or a rule that belongs to the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from pokayoke.core.ledger import admission
from pokayoke.core.ledger.admission import AdmissionRequest, Approval, Endorsement, LimitUsage, StoredState
from pokayoke.core.ledger.approval_answer import apply_answer
from pokayoke.core.ledger.records import Admission, Record, Resolution, Settlement, SettleResult
from pokayoke.core.ledger.transitions import resolve_by_person, settle
from pokayoke.core.state.kill_switch import OutputObservation, Switch, SwitchState, count_outputs, flip_switch
from pokayoke.core.state.run_state import RunState
from pokayoke.errors import StoreError
from pokayoke.stores.values import AuditEntry, RunChange, SwitchCommand

T = TypeVar("T")


class ReadSet(msgspec.Struct, frozen=True, gc=False):
    """The rows an operation reads. It may also change them.

    Args:
        record: a ledger key.
        run: a run's id.
        keeps_run: True if the operation only reads the run.
        counters: names of limits.
        fingerprint: a question's fingerprint.
        approval: a question's id, where its fingerprint is not known.
        board: none of the switches, the switches to read them, or everything to change it.
    """

    record: str | None = None
    run: str | None = None
    keeps_run: bool = True
    counters: tuple[str, ...] = ()
    fingerprint: str | None = None
    approval: str | None = None
    board: Literal["none", "switches", "all"] = "none"


class ReadRows(msgspec.Struct, frozen=True, gc=False):
    """The rows a store found, named as in `ReadSet`."""

    record: Record | None = None
    run: RunState | None = None
    used: Mapping[str, LimitUsage] = {}
    approval: Approval | None = None
    board: SwitchState = SwitchState()


class WriteSet(msgspec.Struct, frozen=True, gc=False):
    """The rows a store has to write; empty fields write nothing."""

    record: Record | None = None
    run: RunState | None = None
    used: Mapping[str, LimitUsage] = {}
    approval: Approval | None = None
    board: SwitchState | None = None
    entries: tuple[AuditEntry, ...] = ()


class Operation(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One transaction as a value: read `need`, call `decide`, write its changes, return its result.

    Args:
        name: the method of `Store` that it serves.
        need: the rows it reads.
        decide: a pure function; if it raises `StoreError`, nothing is written.
    """

    name: str
    need: ReadSet
    decide: Callable[[ReadRows], tuple[WriteSet, T]]


NO_WRITES = WriteSet()


def find_unique(found: Sequence[T], approval_id: str) -> T | None:
    """Return the one question with an id, or None.

    Raises:
        StoreError: several questions have it, so it is ambiguous.
    """
    if len(found) > 1:
        raise StoreError(f"approval {approval_id!r} names {len(found)} questions: none of them can be meant by it")
    return found[0] if found else None


def admit_operation(request: AdmissionRequest) -> Operation[Admission]:
    """Decide a request and store the consequences."""

    def decide_writes(books: ReadRows) -> tuple[WriteSet, Admission]:
        board = books.board
        run = books.run or RunState(request.run_id)
        switches = tuple(board.switches.values())
        held = StoredState(run, books.record, books.used, books.approval, switches, board.epoch)
        kept = admission.admit(request, held)
        return WriteSet(record=kept.record, used=kept.used, approval=kept.approval), kept.answer

    need = ReadSet(
        record=request.claim.key if request.claim else None,
        run=request.run_id,
        counters=tuple(sorted({charge.counter for charge in request.charges})),
        fingerprint=request.approval.fingerprint if request.approval else None,
        board="none" if request.effect == "read" else "switches",
    )
    return Operation("admit", need, decide_writes)


def settle_operation(settlement: Settlement) -> Operation[SettleResult]:
    """Record how a claim ended; store a completion that came too late as a late effect."""

    def decide_writes(books: ReadRows) -> tuple[WriteSet, SettleResult]:
        record, accepted = settle(books.record, settlement)
        stands = record or books.record
        late: tuple[AuditEntry, ...] = ()
        if not accepted and settlement.state == "completed" and not settlement.found:
            state = stands.state if stands else "unknown"
            data = {"claim_id": settlement.claim_id, "state": state, "reference": settlement.reference}
            late = (AuditEntry(settlement.now, "late_effect", settlement.key, reason=f"found {state}", data=data),)
        return WriteSet(record=record, entries=late), SettleResult(accepted, stands)

    return Operation("settle", ReadSet(record=settlement.key), decide_writes)


def read_record_operation(key: str) -> Operation[Record | None]:
    """Read a record, as an operation that can be awaited."""
    return Operation("record", ReadSet(record=key), lambda books: (NO_WRITES, books.record))


def change_run_operation(run_id: str, change: RunChange) -> Operation[tuple[RunState, RunState]]:
    """Change a run's state by a pure function."""

    def decide_writes(books: ReadRows) -> tuple[WriteSet, tuple[RunState, RunState]]:
        before = books.run or RunState(run_id)
        after = change(before)
        if after is before:
            return NO_WRITES, (before, after)
        # If the store has forgotten the run, the run's own copy is the later one.
        after = msgspec.structs.replace(after, version=max(before.version, after.version) + 1)
        return WriteSet(run=after), (before, after)

    return Operation("change_run", ReadSet(run=run_id, keeps_run=False), decide_writes)


def propose_operation(approval: Approval) -> Operation[None]:
    """Store a question, unless it is stored already."""

    def decide_writes(books: ReadRows) -> tuple[WriteSet, None]:
        return (NO_WRITES if books.approval else WriteSet(approval=approval)), None

    return Operation("propose", ReadSet(fingerprint=approval.fingerprint), decide_writes)


def answer_operation(approval_id: str, *, approved: bool, by: str, reason: str, now: float) -> Operation[Approval]:
    """Answer a waiting question."""
    status: Literal["approved", "denied"] = "approved" if approved else "denied"
    ours = Endorsement(by, reason, now)

    def decide_writes(books: ReadRows) -> tuple[WriteSet, Approval]:
        known = books.approval
        if known is None:
            raise StoreError(f"there is no approval {approval_id!r}; `pokayoke approvals list` shows those that wait")
        is_ours = (known.status, known.by, known.decided_at) == (status, by, now) or (approved and known.first == ours)
        if is_ours:
            return NO_WRITES, known  # our own answer, whose receipt was lost
        after = apply_answer(known, approved=approved, by=by, reason=reason, now=now)
        if isinstance(after, str):
            raise StoreError(after)
        kind = "endorsed" if after.status == "waiting" else status
        entry = AuditEntry(now, kind, approval_id, by, reason, {"tool": known.tool, "run_id": known.run_id})
        return WriteSet(approval=after, entries=(entry,)), after

    return Operation("answer", ReadSet(approval=approval_id), decide_writes)


def decide_operation(decision: Resolution) -> Operation[Record]:
    """Resolve a doubt by a person's decision."""

    def decide_writes(books: ReadRows) -> tuple[WriteSet, Record]:
        known = books.record
        if known is None:
            raise StoreError(f"there is no record {decision.key!r}; `pokayoke ledger list` shows them")
        if known.decided_by == decision.by and known.settled_at == decision.now:
            return NO_WRITES, known  # our own decision, whose receipt was lost
        after = resolve_by_person(known, decision)
        if after is None:
            raise StoreError(
                f"{known.tool} {decision.key[:12]} is {known.state}, not in doubt: there is nothing to decide"
            )
        data = {"happened": decision.happened, "reference": decision.reference, "was": known.state}
        entry = AuditEntry(decision.now, "decided", decision.key, decision.by, decision.reason, data)
        return WriteSet(record=after, entries=(entry,)), after

    return Operation("decide", ReadSet(record=decision.key), decide_writes)


def observe_operation(seen: Iterable[OutputObservation], now: float) -> Operation[tuple[Switch, ...]]:
    """Count outputs, which may flip switches."""
    outputs = tuple(seen)

    def decide_writes(books: ReadRows) -> tuple[WriteSet, tuple[Switch, ...]]:
        after = count_outputs(books.board, outputs, now)
        known = books.board.switches
        turned = tuple(
            s for s in after.switches.values() if s.epoch != (known[s.scope].epoch if s.scope in known else 0)
        )
        return WriteSet(board=after, entries=tuple(map(_switch_entry, turned))), turned

    return Operation("observe", ReadSet(board="all"), decide_writes)


def flip_operation(flip: SwitchCommand) -> Operation[Switch]:
    """Open or close a switch by hand."""

    def decide_writes(books: ReadRows) -> tuple[WriteSet, Switch]:
        known = books.board.switches.get(flip.scope)
        if known is not None and (known.by, known.since, known.mode) == (flip.by, flip.now, flip.mode):
            return NO_WRITES, known  # our own flip, whose receipt was lost
        board = flip_switch(books.board, flip.scope, flip.mode, by=flip.by, reason=flip.reason, now=flip.now)
        after = board.switches[flip.scope]
        return WriteSet(board=board, entries=(_switch_entry(after),)), after

    return Operation("flip", ReadSet(board="all"), decide_writes)


def note_operation(entry: AuditEntry) -> Operation[None]:
    """Add a line to the audit."""
    return Operation("note", ReadSet(), lambda _: (WriteSet(entries=(entry,)), None))


def _switch_entry(switch: Switch) -> AuditEntry:
    data = {"mode": switch.mode, "epoch": switch.epoch, "manual": switch.manual}
    return AuditEntry(switch.since, "switch", switch.scope, switch.by, switch.reason, data)
