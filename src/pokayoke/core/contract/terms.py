"""Small values of a contract: choices, envelopes and declarative invariants, and the rules they must keep.

In: such a value and the output schema.
Out: what is wrong with the value, and what to change.
Never: a rule for a place that the output cannot have. It would hold for every output.

`core/output/validate.py` applies these values to outputs. All pointers are JSON pointers (RFC 6901).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, cast, get_args

import msgspec

from pokayoke.core.call import Effect
from pokayoke.core.json.pointer import parse_pointer
from pokayoke.core.schema.facts import declared_facts
from pokayoke.core.schema.formats import format_check
from pokayoke.core.schema.schema import Schema

Scope = Literal["run", "session", "tenant", "global"]
OnAmbiguous = Literal["human", "lookup", "downstream_key", "rerun_safe"]
Repeats = Literal["once", "turn", "each"]
LookupSafe = Literal["downstream_key", "executor_dead", "settled"]
OutputChecks = Literal["full", "size_only"]
OnInvalidOutput = Literal["skip_writes", "fail_closed", "human_review"]
Thread = Literal["caller"]
CHOICES: dict[str, tuple[str, ...]] = {
    "effect": get_args(Effect),
    "scope": get_args(Scope),
    "on_ambiguous": get_args(OnAmbiguous),
    "output_checks": get_args(OutputChecks),
    "on_invalid_output": get_args(OnInvalidOutput),
}
"""The values that a field of a contract may have, by its name."""

Comparison = Literal["<", "<=", "==", "!=", ">=", ">"]

_POINTERS = ("at", "output", "argument", "a", "b")
_MAX_NAMES = 20
_ARRAY_ONLY = frozenset(("array",))


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool wraps its answer, such as `{"ok": true, "data": {...}}`.

    The answer is a declared failure if the value at `ok` is not one of `ok_values` (an absent one
    counts as a failure), or if the value at `error` is present and is not null, false or empty.

    Args:
        ok: pointer to the success flag; None if there is none.
        ok_values: the values of that flag that mean success.
        error: pointer to the error; None if there is none.
        data: pointer to the value that the output schema describes; None is the whole answer.
        no_effect: True if a declared failure proves that nothing happened, so that the call may be tried again.
    """

    ok: str | None = None
    ok_values: tuple[Any, ...] = (True,)
    error: str | None = None
    data: str | None = None
    no_effect: bool = False


class Polls(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool is polled: only a call sooner than `min_interval` seconds after the last equal one is a repetition."""

    min_interval: float = 1.0


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

    Example: the profile that was returned is the profile that was requested.
    """

    output: str
    argument: str


class Compare(msgspec.Struct, frozen=True, tag="compare"):
    """Two values of the output have an order, such as `/start <= /end`.

    Args:
        a: pointer to the left value.
        op: one of < <= == != >= >.
        b: pointer to the right value.
    """

    a: str
    op: Comparison
    b: str


DeclaredInvariant = Range | Format | Equal | Compare
INVARIANT_TYPES = (Range, Format, Equal, Compare)


def envelope_problems(envelope: Envelope) -> Iterator[str]:
    """Yield the problems of an envelope."""
    if envelope.ok is None and envelope.error is None and envelope.data is None:
        yield "the envelope says nothing: give ok, error or data"
    for pointer in (envelope.ok, envelope.error, envelope.data):
        if pointer is not None and not _is_pointer(pointer):
            yield f"envelope: {_not_pointer_text(pointer)}"


def term_problems(rule: DeclaredInvariant, output: Schema | None) -> Iterator[str]:
    """Yield the problems of a declared invariant on outputs of a schema."""
    if output is None:
        yield f"{rule!r} looks into the output, which has no schema: give one"
    pointers: dict[str, object] = {name: getattr(rule, name) for name in _POINTERS if hasattr(rule, name)}
    yield from (f"{rule!r}: {_not_pointer_text(one)}" for one in pointers.values() if not _is_pointer(one))
    if isinstance(rule, Range):
        yield from (f"{rule!r}: {why}" for why in _bound_problems(rule))
    if isinstance(rule, Format) and (not isinstance(cast(object, rule.name), str) or format_check(rule.name) is None):
        yield f"{rule!r}: {rule.name!r} is no format of JSON Schema such as date-time, email or uuid"
    if isinstance(rule, Compare) and rule.op not in get_args(Comparison):
        yield f"{rule!r}: op is one of {', '.join(get_args(Comparison))}"
    for name, pointer in pointers.items():
        if output is not None and name != "argument" and _is_pointer(pointer):
            why = _unreachable_reason(cast(str, pointer), output)
            if why:
                yield f"{rule!r}: {why}"


def _bound_problems(rule: Range) -> Iterator[str]:
    given = [bound for bound in (rule.min, rule.max) if bound is not None]
    if not given:
        yield "give min, max or both"
    elif not all(map(_is_finite, given)):
        yield "min and max are numbers"
    elif given[0] > given[-1]:
        yield "min is above max"


def _is_finite(bound: Any) -> bool:
    # A whole number may be too long for a float, which is all that `isfinite` takes.
    return type(bound) is int or (isinstance(bound, float) and math.isfinite(bound))


def _unreachable_reason(pointer: str, output: Schema) -> str:
    """Return the step at which a pointer leaves the schema, as a sentence; "" if it does not.

    Where the schema describes nothing, any value is possible.
    """
    path = parse_pointer(pointer)
    facts = declared_facts(output, ())
    for length, step in enumerate(path, 1):
        if facts is None:
            break
        if facts.types == _ARRAY_ONLY and step != "*" and not step.isdecimal():
            return f"there is a list before {step!r}: write * for each of its items"
        below = declared_facts(output, path[:length])
        if below is None and (facts.properties or (facts.types and facts.types.isdisjoint(("object", "array")))):
            names = ", ".join(facts.properties[:_MAX_NAMES]) or "none"
            return f"the output schema knows no {step!r} there, so it would never be checked. Fields: {names}"
        facts = below
    return ""


def _is_pointer(pointer: object) -> bool:
    return isinstance(pointer, str) and (pointer == "" or pointer.startswith("/"))


def _not_pointer_text(pointer: object) -> str:
    return f"{pointer!r} is no JSON pointer such as /data/total"
