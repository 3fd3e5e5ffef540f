"""What a person decides about a store: settle a doubt, turn writes off and on. Commands and pages call these.

In: a store, and a decision with who made it and why.
Out: what the store holds after it.
Never: a decision without a name and a reason.
"""

from __future__ import annotations

from typing import Literal

from pokayoke.core.ledger.records import Record, Resolution
from pokayoke.core.state.kill_switch import ALL_TOOLS, Switch
from pokayoke.errors import ConfigurationError
from pokayoke.stores.base import Store
from pokayoke.stores.lists import EffectFilter
from pokayoke.stores.values import SwitchCommand


def settle_doubt(store: Store, key: str, *, happened: bool, reference: str, by: str, reason: str, now: float) -> Record:
    """Settle a doubt, or correct a failure, by a person's decision.

    Args:
        store: holds the effect.
        key: the whole ledger key.
        happened: whether it took effect.
        reference: the target's own name of the effect; needed if it happened.
        by: the person.
        reason: how the person knows.
        now: wall-clock second.

    Raises:
        ConfigurationError: a name, a reason or a reference is missing.
        StoreError: there is no such effect, or it is not in doubt.
    """
    if happened and (not reference.strip() or reference.startswith("--")):
        raise ConfigurationError(
            "what happened needs the target's own name of the effect, such as an order number (--happened REF)"
        )
    _require_words(by, reason)
    return store.decide(Resolution(key, happened, by, reason, now, reference if happened else ""))


def turn_writes(
    store: Store, scope: str, mode: Literal["open", "closed"], *, by: str, reason: str, now: float
) -> Switch:
    """Refuse writes (`open`) that may build on a tool's outputs, or all writes; or allow them again (`closed`).

    A switch that is closed already stays as it is.

    Args:
        store: holds the switches.
        scope: a tool's name, or `*`.
        mode: of the switch.
        by: the person.
        reason: why.
        now: wall-clock second.

    Raises:
        ConfigurationError: a scope, a name or a reason is missing.
    """
    if not scope.strip():
        raise ConfigurationError("the scope is empty: name a tool, or '*' for all writes (--scope)")
    _require_words(by, reason)
    if mode == "closed":
        known = next((switch for switch in store.switches() if switch.scope == scope), Switch(scope))
        if known.mode == "closed":
            return known
    return store.flip(SwitchCommand(scope, mode, by, reason, now))


def is_known_tool(store: Store, tool: str) -> bool:
    """Return whether a store holds an output, a switch or an effect of a tool, or `tool` stands for all."""
    heard = {rate.tool for rate in store.rates()} | {switch.scope for switch in store.switches()}
    return tool in (*heard, ALL_TOOLS) or bool(store.effects(EffectFilter(tool=tool, limit=1)))


def _require_words(by: str, reason: str) -> None:
    if not by.strip() or not reason.strip():
        raise ConfigurationError("name and reason are kept in the audit: say who and why (--by, --reason)")
