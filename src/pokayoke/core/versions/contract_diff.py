"""Compares two versions of a contract, and says which side a change breaks.

In: two contracts.
Out: changes, each with the sides it breaks: the *model* (and other callers), the *readers* of the tool's output, the
*tool* (its outputs may be refused), and the *operators* (a protection is looser).
Never: call a change safe that cannot be compared; code (handlers, callable rules) is not compared at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.importers import to_mapping
from pokayoke.core.contract.url_rule import DEFAULT_PORTS, UrlRule
from pokayoke.core.json.canonical import canonical_bytes
from pokayoke.core.versions.schema_diff import schema_deltas
from pokayoke.core.versions.schema_keywords import Delta

Side = Literal["model", "readers", "tool", "operators"]
ChangeKind = Literal["breaking", "safe", "unknown"]

SIDE_MEANINGS: Final[dict[Side, str]] = {
    "model": "calls that were fine are refused, or have to wait",
    "readers": "answers may be other than they were",
    "tool": "answers that were fine are refused",
    "operators": "a protection is gone or weaker",
}
"""What each broken side means."""


class Change(msgspec.Struct, frozen=True):
    """One change.

    Args:
        at: place: `input /amount`, `output /items/*/id`, or the name of a field of the contract.
        what: the change, in a few words.
        kind: `breaking`, `safe`, or `unknown` where this cannot be decided.
        breaks: the sides that are, or may be, broken.
    """

    at: str
    what: str
    kind: ChangeKind
    breaks: tuple[Side, ...] = ()


def contract_changes(old: Contract, new: Contract) -> tuple[Change, ...]:
    """Return the changes: breaking ones first, then undecidable ones, then safe ones."""
    found = [*_compare_inputs(old, new), *_compare_outputs(old, new), *_compare_fields(old, new)]
    return tuple(sorted(found, key=lambda change: ("breaking", "unknown", "safe").index(change.kind)))


# -- schemas ---------------------------------------------------------------------------------------


def _compare_inputs(old: Contract, new: Contract) -> Iterator[Change]:
    for delta in schema_deltas(old.input, new.input):
        at = f"input {delta.at or '/'}"
        if delta.is_unknown:
            # A replaced field is not undecidable: a value sent under its name may be refused.
            known = delta.what.startswith("type: ") or bool(delta.field)
            yield Change(at, delta.what, "breaking" if known else "unknown", ("model",))
        elif delta.narrower:
            yield Change(at, delta.what, "breaking", ("model",))
        else:
            yield Change(at, delta.what, "safe")


def _compare_outputs(old: Contract, new: Contract) -> Iterator[Change]:
    before, after = old.output, new.output
    if before is None or after is None:
        yield from _compare_promises(old, new)
        return
    for delta in schema_deltas(before, after):
        yield _output_change(delta)


def _output_change(delta: Delta) -> Change:
    at = f"output {delta.at or '/'}"
    if delta.field == "removed":
        tool: tuple[Side, ...] = ("tool",) if delta.narrower else ()
        return Change(at, delta.what, "breaking", ("readers", *tool))
    if delta.field == "added" and not delta.narrower:
        return Change(at, delta.what, "safe")  # readers of known fields do not notice an additional one
    readers: tuple[Side, ...] = ("readers",) if delta.wider else ()
    sides: tuple[Side, ...] = (*readers, "tool") if delta.narrower else readers
    known = not delta.is_unknown or delta.what.startswith(("type: ", "values: ")) or bool(delta.field)
    return Change(at, delta.what, ("breaking" if known else "unknown") if sides else "safe", sides)


def _compare_promises(old: Contract, new: Contract) -> Iterator[Change]:
    one, other = _promise_kind(old), _promise_kind(new)
    if one == other:
        return
    sides: tuple[Side, ...] = ("readers", "tool")
    if one == "nothing":
        sides = ("tool",)
    elif other == "nothing":
        sides = ("readers", "operators")
    yield Change("output", f"{one} -> {other}", "breaking", sides)


def _promise_kind(contract: Contract) -> str:
    return "a schema" if contract.output is not None else "text" if contract.text_output else "nothing"


# -- everything else -------------------------------------------------------------------------------

_EFFECTS: Final = ("read", "write", "destructive")
_SCHEMA_FIELDS: Final = frozenset(("name", "version", "input_schema", "output_schema"))
# The parts of a write's identity. A retry under the other version must still find its own key.
_KEY_FIELDS: Final = frozenset(("identity", "scope", "volatile", "key_epoch"))


def _compare_fields(old: Contract, new: Contract) -> Iterator[Change]:
    before, after = to_mapping(old), to_mapping(new)
    for name in sorted((before.keys() | after.keys()) - _SCHEMA_FIELDS):
        if canonical_bytes(_to_builtins(before.get(name))) == canonical_bytes(_to_builtins(after.get(name))):
            continue
        one, other = getattr(old, name), getattr(new, name)
        what = f"{_clip_text(one)} -> {_clip_text(other)}"
        if name in _KEY_FIELDS:
            yield _key_change(name, what, reads=old.effect == new.effect == "read")
            continue
        rule = _RULES.get(name)
        sides = rule(one, other) if rule is not None else None
        if sides is None:
            yield Change(name, what, "unknown", ("operators",))
        else:
            yield Change(name, what, "breaking" if sides else "safe", sides)
    one, other = _key_defaults(old), _key_defaults(new)
    if canonical_bytes(one) != canonical_bytes(other):
        yield _key_change("defaults", f"{_clip_text(one)} -> {_clip_text(other)}", reads=False)


def _key_defaults(contract: Contract) -> dict[str, Any]:
    """Return the defaults in a ledger key where a call leaves the arguments out."""
    named = contract.defaults.keys() - contract.volatile if contract.identity is None else contract.identity
    return {name: default for name, default in contract.defaults.items() if name in named}


def _key_change(name: str, what: str, *, reads: bool) -> Change:
    if reads:
        return Change(name, what, "safe")
    return Change(name, f"{what}: equal calls get another ledger key", "breaking", ("operators",))


Sides = tuple[Side, ...] | None


def _effect_sides(one: str, other: str) -> Sides:
    return ("operators",) if _EFFECTS.index(other) < _EFFECTS.index(one) else ("model",)


def _approval_sides(one: bool, other: bool) -> Sides:
    return ("operators",) if one and not other else ("model",)


def _path_sides(one: dict[str, Any], other: dict[str, Any]) -> Sides:
    """Compare path roots: more places are looser; an argument without roots reaches everything."""
    sides: list[Side] = []
    for name in {**one, **other}:
        before, after = one.get(name), other.get(name)
        if before is not None and (after is None or set(after) - set(before)):
            sides.append("operators")
        if after is not None and (before is None or set(before) - set(after)):
            sides.append("model")
    return tuple(dict.fromkeys(sides))


def _url_sides(one: dict[str, UrlRule], other: dict[str, UrlRule]) -> Sides:
    """Compare where URLs may lead: more is looser; an argument without a rule reaches everything."""
    sides: list[Side] = []
    for name in {**one, **other}:
        before, after = one.get(name), other.get(name)
        if before is not None and (after is None or _reaches_more(before, after)):
            sides.append("operators")
        if after is not None and (before is None or _reaches_more(after, before)):
            sides.append("model")
    return tuple(dict.fromkeys(sides))


def _reaches_more(one: UrlRule, other: UrlRule) -> bool:
    """Return whether the other rule allows anything that this one does not."""
    hosts = bool(one.hosts) and (not other.hosts or not set(other.hosts) <= set(one.hosts))
    ports = (one.ports or other.ports) and not set(_ports_of(other)) <= set(_ports_of(one))
    return hosts or bool(ports) or bool({*other.schemes, *other.addresses} - {*one.schemes, *one.addresses})


def _ports_of(rule: UrlRule) -> tuple[int, ...]:
    return rule.ports or tuple(DEFAULT_PORTS[scheme] for scheme in rule.schemes)


def _role_sides(one: tuple[str, ...], other: tuple[str, ...]) -> Sides:
    """Compare roles: one of them is enough; without any, no role is required."""
    looser: tuple[Side, ...] = ("operators",) if one and (not other or set(other) - set(one)) else ()
    tighter: tuple[Side, ...] = ("model",) if other and (not one or set(one) - set(other)) else ()
    return (*looser, *tighter)


def _quota_sides(one: tuple[Any, ...], other: tuple[Any, ...]) -> Sides:
    gone, came = [x for x in one if x not in other], [x for x in other if x not in one]
    if gone and came:
        return None if len(gone) > 1 or len(came) > 1 else _limit_sides(gone[0], came[0])
    return (*(("operators",) if gone else ()), *(("model",) if came else ()))


def _limit_sides(one: Any, other: Any) -> Sides:
    """Compare two limits that count the same."""
    if (one.tool, one.per, one.field) != (other.tool, other.per, other.field):
        return None
    pairs = [(one.calls, other.calls), (one.amount, other.amount)]
    if any((a is None) != (b is None) for a, b in pairs):
        return None
    looser = any(b > a for a, b in pairs if a is not None)
    tighter = any(b < a for a, b in pairs if a is not None)
    return (*(("operators",) if looser else ()), *(("model",) if tighter else ()))


def _source_sides(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> Sides:
    """Compare sources: fewer of them are fewer reasons to hold back a write; None means all."""
    looser = other is not None and (one is None or set(one) - set(other))
    tighter = one is not None and (other is None or set(other) - set(one))
    return (*(("operators",) if looser else ()), *(("model",) if tighter else ()))


def _secret_sides(one: bool, other: bool) -> Sides:
    return ("operators",) if one and not other else ()


def _literal_sides(one: tuple[str, ...], other: tuple[str, ...]) -> Sides:
    """Compare arguments whose texts are not looked at: more of them are looser."""
    looser: tuple[Side, ...] = ("operators",) if set(other) - set(one) else ()
    return (*looser, *(("model",) if set(one) - set(other) else ()))


def _thread_sides(_: str | None, other: str | None) -> Sides:
    return ("operators",) if other else ()  # there nothing cuts it


def _redact_sides(one: tuple[str, ...], other: tuple[str, ...]) -> Sides:
    return ("operators",) if set(one) - set(other) else ()


def _cap_sides(one: float | None, other: float | None) -> Sides:
    """Compare limits of the output: a smaller one refuses outputs; None is the policy's, which may be anything."""
    if one is None or other is None:
        return None
    return ("tool",) if other < one else ()


def _output_check_sides(one: str, other: str) -> Sides:
    return ("readers", "operators") if (one, other) == ("full", "size_only") else ("tool",)


def _invariant_sides(one: tuple[Any, ...], other: tuple[Any, ...]) -> Sides:
    gone, came = [x for x in one if x not in other], [x for x in other if x not in one]
    return (*(("readers",) if gone else ()), *(("tool",) if came else ()))


def _no_sides(_: Any, __: Any) -> Sides:
    return ()


_RULES: Final[dict[str, Callable[[Any, Any], Sides]]] = {
    "effect": _effect_sides,
    "approval": _approval_sides,
    "paths": _path_sides,
    "urls": _url_sides,
    "roles": _role_sides,
    "quota": _quota_sides,
    "sources": _source_sides,
    "secret": _secret_sides,
    "literal": _literal_sides,
    "redact": _redact_sides,
    "timeout": _cap_sides,
    "thread": _thread_sides,
    "max_chars": _cap_sides,
    "output_checks": _output_check_sides,
    "invariants": _invariant_sides,
    "description": _no_sides,
}


def _to_builtins(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _clip_text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    else:
        try:
            text = msgspec.json.encode(value).decode()
        except TypeError:  # code has no content to show
            text = "code"
    return text if len(text) <= 60 else f"{text[:60]}..."  # noqa: PLR2004 - one line on a terminal
