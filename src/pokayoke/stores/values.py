"""Value types of the stores: audit entries, queries for records, commands to a switch.

In: plain values.
Out: frozen structs.
Never: behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from pokayoke.core.ledger.records import RecordState
from pokayoke.core.state.run_state import RunState

RunChange = Callable[[RunState], RunState]
EntryKind = Literal[
    "late_effect",
    "decided",
    "approved",
    "endorsed",
    "denied",
    "switch",
    "compensated",
    "pruned",
    "reconciled",
    "compared",
]


class AuditEntry(msgspec.Struct, frozen=True, gc=False):
    """One line of the audit: a person's action, a flipped switch, a reconciliation, or a completion that came too late.

    Args:
        at: wall-clock second.
        kind: late_effect, decided, approved, endorsed (the first yes of two), denied, switch, compensated, pruned,
            reconciled or compared (one doubt, with what the business shows of it).
        subject: a ledger key, an approval's id, a switch's scope, or the tool whose effects were reconciled (`*`: all).
        by: the person; `pokayoke` for what happened automatically.
        reason: why.
        data: details, JSON values only.
        number: position in the audit, given by the store.
    """

    at: float
    kind: EntryKind
    subject: str
    by: str = "pokayoke"
    reason: str = ""
    data: dict[str, Any] = {}
    number: int = 0


class RecordQuery(msgspec.Struct, frozen=True, gc=False):
    """Which records to return. Empty fields do not restrict.

    Args:
        states: only these states.
        tool: only this tool.
        run_id: only this run.
        since: claimed at or after this wall-clock second.
        until: claimed before this wall-clock second.
        after: records after this key, in the order of keys; for the next page.
        limit: how many records at most.
    """

    states: tuple[RecordState, ...] = ()
    tool: str | None = None
    run_id: str | None = None
    since: float | None = None
    until: float | None = None
    after: str | None = None
    limit: int = 1_000


class SwitchCommand(msgspec.Struct, frozen=True, gc=False):
    """A person's command to a kill switch.

    Args:
        scope: a tool's name, or `*`.
        mode: open or closed.
        by: the person.
        reason: why.
        now: wall-clock second.
    """

    scope: str
    mode: Literal["open", "closed"]
    by: str
    reason: str
    now: float
