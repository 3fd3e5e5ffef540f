"""pokayoke as a user sets it up: default policy, trace to a file, a path field, the token counter on."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from typing import Any

import pokayoke
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import EXECUTE, Admission, Settlement, SettleResult
from pokayoke.stores.base import Store
from pokayoke.stores.memory import MemoryStore

Guarded = Callable[[str], pokayoke.Outcome]


class NoLedger(MemoryStore):
    """A store that admits every write and stores nothing: the cost of a call without a ledger."""

    def admit(self, request: AdmissionRequest) -> Admission:
        return EXECUTE

    def settle(self, settlement: Settlement) -> SettleResult:
        return SettleResult(accepted=True)


def build_guarded(spec: dict[str, Any]) -> Guarded | None:
    """Build a guarded tool and return the function that takes one call's argument text.

    Args:
        spec: name, tool(**arguments) -> str, input_schema, output_schema, path_fields, root, and
                ledger: None for a read (without a ledger), "memory" or a database file for a write, "none" for a
                write without a ledger; and clock, fields, config, attempts and first (each call is the first of a
                run) where a measurement needs its own.

    Returns:
        the function, or None if this version has no such ledger.
    """
    ledger = spec.get("ledger")
    contract = pokayoke.Contract.from_schema(
        spec["name"],
        spec["input_schema"],
        output_schema=spec["output_schema"],
        effect="write" if ledger else "read",
        handler=spec["tool"],
        paths=dict.fromkeys(spec["path_fields"], (spec["root"],)),
        **spec.get("fields", {}),
    )
    handle, trace = tempfile.mkstemp(suffix=".jsonl", dir=spec["root"])
    os.close(handle)
    config = {"trace": {"path": trace}, **spec.get("config", {})}
    store: Store | None = NoLedger() if ledger == "none" else None
    if ledger not in (None, "memory", "none"):
        try:
            store = pokayoke.open_store(f"sqlite:///{ledger}", create=True)
        except pokayoke.PokayokeError:  # this version has no such store: the row is omitted
            return None
    guard = pokayoke.Guard([contract], config=config, store=store, clock=spec.get("clock"))
    name, turns, call = spec["name"], itertools.count(), guard.run(run_id="bench").call
    if spec.get("first"):
        return lambda text: guard.run(run_id=f"bench-{next(turns)}").call(pokayoke.ToolCall("call_1", name, text))
    if spec.get("attempts"):  # calls that are meant to be refused: only the last outcome counts
        return lambda text: call(pokayoke.ToolCall("call_1", name, text))

    def guarded(text: str) -> pokayoke.Outcome:
        # A new occurrence each time, to measure claims and not replays.
        outcome = call(pokayoke.ToolCall("call_1", name, text, occurrence=next(turns)))
        assert outcome.status == "ok", outcome
        return outcome

    return guarded
