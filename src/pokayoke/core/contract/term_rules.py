"""Which envelopes and declared invariants could never say what they are meant to. Every rule says what to change.

What enters are the small values of a contract and its output schema; what leaves is what is wrong with them. A rule
that looks where nothing can stand would hold for every output, so it is refused before anybody relies on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast, get_args

from pokayoke.core.contract.terms import Compare, Comparison, DeclaredInvariant, Envelope, Equal, Format, Range
from pokayoke.core.json.pointer import parse_pointer
from pokayoke.core.schema.facts import declared_facts
from pokayoke.core.schema.formats import format_check
from pokayoke.core.schema.schema import Schema

INVARIANT_TYPES = (Range, Format, Equal, Compare)
_POINTERS = ("at", "output", "argument", "a", "b")


def envelope_problems(envelope: Envelope) -> Iterator[str]:
    """Yield what is wrong with an envelope."""
    if envelope.ok is None and envelope.error is None and envelope.data is None:
        yield "the envelope says nothing: give ok, error or data"
    for pointer in (envelope.ok, envelope.error, envelope.data):
        if pointer is not None and not _is_pointer(pointer):
            yield f"envelope: {_not_pointer_text(pointer)}"


def term_problems(rule: DeclaredInvariant, output: Schema | None) -> Iterator[str]:
    """Yield what is wrong with a declared invariant of an output that has this schema."""
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
    """Say at which step a pointer leaves what the schema describes; where it describes nothing, anything may stand."""
    path = parse_pointer(pointer)
    facts = declared_facts(output, ())
    for length, step in enumerate(path, 1):
        if facts is None:
            break
        if facts.types == _LIST and step != "*" and not step.isdecimal():
            return f"there is a list before {step!r}: write * for each of its items"
        below = declared_facts(output, path[:length])
        if below is None and (facts.properties or (facts.types and facts.types.isdisjoint(("object", "array")))):
            names = ", ".join(facts.properties[:_MOST_NAMES]) or "none"
            return f"the output schema knows no {step!r} there, so it would never be checked. Fields: {names}"
        facts = below
    return ""


_MOST_NAMES = 20
_LIST = frozenset(("array",))


def _is_pointer(pointer: object) -> bool:
    return isinstance(pointer, str) and (pointer == "" or pointer.startswith("/"))


def _not_pointer_text(pointer: object) -> str:
    return f"{pointer!r} is no JSON pointer such as /data/total"
