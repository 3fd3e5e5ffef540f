"""The key of an effect: what makes two calls the same one."""

from __future__ import annotations

from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.json.dump import dump_compact


def ledger_key(
    scope: tuple[str, str],
    effect_name: str,
    identity: str,
    *,
    occurrence: int = 0,
    epoch: int = 0,
) -> str:
    """Return the key of an effect.

    Args:
        scope: kind and id, such as `("run", "r-1")`: equal calls in other scopes are other effects.
        effect_name: the contract's name. The version is left out on purpose: a roll-back between an
            attempt and its retry must not change the key.
        identity: digest of the canonical identity arguments (of all where the contract names none).
        occurrence: 0 for the first; a wanted repetition carries another number.
        epoch: raised on purpose to start anew.
    """
    return sha256_hex(dump_compact(["pk1", *scope, effect_name, epoch, occurrence, identity], sort=True))


def compensation_key(key: str) -> str:
    """Return the key under which the undoing of an effect is itself an effect."""
    return sha256_hex(dump_compact(["pk1", key, "compensate"], sort=True))
