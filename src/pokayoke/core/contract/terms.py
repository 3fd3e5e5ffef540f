"""Small values a contract is made of: choices, envelopes and declarative invariants.

They say what holds; the rooms that read them (`core/output/validate.py` for all of these) say what follows.
All pointers are JSON pointers (RFC 6901).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from pokayoke.core.call import Effect

Scope = Literal["run", "session", "tenant", "global"]
OnAmbiguous = Literal["human", "lookup", "downstream_key", "rerun_safe"]
OnDuplicate = Literal["replay", "refuse", "ask"]
LookupSafe = Literal["downstream_key", "executor_dead", "settled"]
OutputChecks = Literal["full", "size_only"]
CHOICES: dict[str, tuple[str, ...]] = {
    "effect": get_args(Effect),
    "scope": get_args(Scope),
    "on_ambiguous": get_args(OnAmbiguous),
    "on_duplicate": get_args(OnDuplicate),
    "output_checks": get_args(OutputChecks),
}
"""What some fields of a contract may say, by their names."""

Comparison = Literal["<", "<=", "==", "!=", ">=", ">"]


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool wraps what it answers, such as `{"ok": true, "data": {...}}`.

    The answer is a declared failure if the value at `ok` is not one of `ok_values` (an absent one
    counts as a failure), or if the value at `error` is there and is not null, false or empty.

    Args:
        ok: pointer to the success flag; None if there is none.
        ok_values: the values of that flag that mean success.
        error: pointer to the error; None if there is none.
        data: pointer to the value that the output schema describes; None is the whole answer.
    """

    ok: str | None = None
    ok_values: tuple[Any, ...] = (True,)
    error: str | None = None
    data: str | None = None


class Range(msgspec.Struct, frozen=True, tag="range"):
    """The number at `at` in the output lies between `min` and `max`, both included.

    An absent value passes (the schema says what is required); a value that is no number does not.
    """

    at: str
    min: float | None = None
    max: float | None = None


class Format(msgspec.Struct, frozen=True, tag="format"):
    """The string at `at` in the output has a JSON Schema format, such as `date-time` or `email`."""

    at: str
    name: str


class Equal(msgspec.Struct, frozen=True, tag="equal"):
    """The value at `output` in the output equals the value at `argument` in the arguments.

    The classic one: the profile that came back is the profile that was asked for.
    """

    output: str
    argument: str


class Compare(msgspec.Struct, frozen=True, tag="compare"):
    """Two values of the output stand in an order, such as `/start <= /end`.

    Args:
        a: pointer to the left value.
        op: one of < <= == != >= >.
        b: pointer to the right value.
    """

    a: str
    op: Comparison
    b: str


DeclaredInvariant = Range | Format | Equal | Compare
