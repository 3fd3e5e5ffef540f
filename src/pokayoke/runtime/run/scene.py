"""Where and when a call of a run plays, and within what an equal write happens once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.prepare import CallEnvironment
from pokayoke.errors import UsageError

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run


def build_environment(run: Run, step: int) -> CallEnvironment:
    """Return the scene of the call of this number, as of now.

    Raises:
        UsageError: the guard was closed.
    """
    guard = run.guard
    if guard.closed:
        raise guard_closed_error()
    return CallEnvironment(
        snapshot=run.snapshot,
        view=run.progress,
        run_id=run.id,
        claimant=run,
        tenant=run.tenant,
        principal=run.principal,
        step=step,
        now=guard.clock.now(),
        last_good=guard.last_good,
        asks=guard.on_ask is not None,
        meter=guard.switchboard,
    )


def guard_closed_error() -> UsageError:
    """What whoever uses a closed guard is told: nothing would stand in the trace, and its store may be gone."""
    return UsageError("the guard was closed: close it after the last call, or build another one to go on")


def ledger_scope(run: Run, contract: Contract) -> tuple[str, str] | None:
    """Return kind and id of the scope of a write, or None if the host named nothing a restart would know.

    Args:
        run: the run.
        contract: of the tool.
    """
    if contract.scope == "global":
        return ("global", "")
    tenant = run.tenant
    for kind in _ORDER if contract.scope == "run" else (contract.scope,):
        ident = tenant
        if kind == "run":
            ident = run.id if run.named or not run.guard.store.durable else None
        elif kind == "session":
            ident = run.session
        if ident is not None:
            return (kind, ident if tenant is None else f"{tenant}\x1f{ident}")
    return None


_ORDER = ("run", "session", "tenant")
