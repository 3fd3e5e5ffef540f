"""Arguments made to fit their contract, or the reasons why they do not. Nothing is invented.

A valid value is never touched. An invalid one is corrected in small recorded steps, each of a class:
*equivalent* (same value, other spelling), *declared* (a corrector the contract names), *likely* (a
guess). A step is taken only if the schema then accepts the place, nothing else got worse, and no
other proposal of its class does the same with another result. If anything is left in the end, the
value goes back as it came, with everything that is still wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from pokayoke.core.call import Correction, CorrectionKind, Finding
from pokayoke.core.check import clarification, issues_of, placeholders
from pokayoke.core.contract import Contract
from pokayoke.core.correct_steps import Work
from pokayoke.core.correctors import compile_correctors, failed, is_plain
from pokayoke.core.placeholders import find_placeholders, may_hold_placeholder
from pokayoke.core.places import join, same

__all__ = ["CODES", "Prepared", "clarification", "confidence", "prepare"]

CODES: dict[str, str] = {
    "corrector_failed": "a corrector or input model of the contract raised, or returned what cannot be used",
    "correction_not_allowed": "the input model would change the value, and policy does not allow that class",
}

_PER_REPAIR = 0.05
_PER_CORRECTION = 0.1
_PER_LIKELY = 0.3
_MOST_FROM_GIVEN = 0.15


class Prepared(msgspec.Struct, frozen=True):
    """What became of the arguments.

    Attributes:
        value: the arguments to use; the very object that came in if nothing was changed.
        corrections: every change, in the order it was made.
        findings: what is still wrong; with any, `value` is what came in and must not be used.
        changed: True if `value` is another value than came in.
    """

    value: dict[str, Any]
    corrections: tuple[Correction, ...] = ()
    findings: tuple[Finding, ...] = ()
    changed: bool = False


def prepare(
    value: dict[str, Any],
    contract: Contract,
    *,
    kinds: Sequence[CorrectionKind],
    canonical: bytes | None = None,
) -> Prepared:
    """Check arguments and correct what may be corrected.

    Args:
        value: the arguments as they were read; never changed in place.
        contract: what they have to fulfil.
        kinds: the classes of correction that may be used; others come back as hints.
        canonical: compact dump of `value` if the caller has one. It also says that the value came
            out of the strict parser, so the cheap checks suffice.
    """
    if _clean(value, contract, canonical):
        if contract.validate_input is None:
            return Prepared(value)
        return _modelled(value, value, contract, kinds, ())
    work = Work(
        value,
        contract.input,
        name=contract.name,
        kinds=tuple(kinds),
        correctors=compile_correctors(contract.correctors, contract.input.raw),
    )
    work.run()
    marks = placeholders(work.value, contract.input)
    places = {mark.at for mark in marks}
    findings = (*marks, *(finding for finding in work.findings() if finding.at not in places))
    if findings:
        return Prepared(value, findings=findings)
    corrections = tuple(work.corrections)
    if contract.validate_input is not None:
        return _modelled(value, work.value, contract, kinds, corrections)
    return Prepared(work.value, corrections, changed=bool(corrections))


def confidence(repairs: Sequence[str], corrections: Sequence[Correction], given: float | None = None) -> float:
    """Return how certain a call is, from 0 to 1 (DESIGN 2.5).

    1.0 less 0.05 per repair, 0.1 per correction and 0.3 more per likely one. The same correction of
    several items of one list counts once: it is one slip of the model. What the host gave is lowered
    by at most 0.15 in all.

    Args:
        repairs: names of the repairs that made the text parse.
        corrections: what was changed to make the value fit.
        given: the host's own confidence; what is no number from 0 to 1 is brought there, NaN to 0.
    """
    slips = {
        (tuple("*" if step.isdecimal() else step for step in item.at.split("/")), item.rule, item.kind)
        for item in corrections
    }
    likely = sum(kind == "likely" for _, _, kind in slips)
    less = _PER_REPAIR * len(repairs) + _PER_CORRECTION * len(slips) + _PER_LIKELY * likely
    start = 1.0
    if given is not None:
        start = 0.0 if math.isnan(given) else min(1.0, max(0.0, given))
        less = min(less, _MOST_FROM_GIVEN)
    return round(max(0.0, start - less), 6)


def _clean(value: dict[str, Any], contract: Contract, canonical: bytes | None) -> bool:
    """Return whether there is nothing to say about a value; the hot path of every call."""
    schema = contract.input
    if canonical is None:
        return schema.accepts(value) and not find_placeholders(value, schema)
    try:
        valid = schema.is_valid(value)
    except Exception:  # noqa: BLE001 - fail closed: the slow path names what cannot be validated
        return False
    return valid and not (may_hold_placeholder(canonical) and find_placeholders(value, schema))


def _modelled(
    original: dict[str, Any],
    value: dict[str, Any],
    contract: Contract,
    kinds: Sequence[CorrectionKind],
    corrections: tuple[Correction, ...],
) -> Prepared:
    """Let the contract's input model have its say about a value that fulfils the schema."""
    after, findings = _ask_model(value, contract)
    if not findings and not same(after, value):
        findings = _unusable(after, contract)
        changes = _changes(value, after)
        if not findings and "declared" not in kinds:
            findings = tuple(_not_allowed(change) for change in changes)
        corrections, value = (*corrections, *changes), after
    if findings:
        return Prepared(original, findings=findings)
    return Prepared(value, corrections, changed=bool(corrections))


def _ask_model(value: dict[str, Any], contract: Contract) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Call the input model on a copy. Whatever it raises is a finding; only an interrupt goes on."""
    assert contract.validate_input is not None
    try:
        after, findings = contract.validate_input(_copied(value))
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001 - even SystemExit of a user's validator must not end the agent
        return value, (failed("input_model", (), type(exc).__name__),)
    if not findings and not (is_plain(after) and isinstance(cast(object, after), dict)):
        return value, (failed("input_model", (), "it returned something that is no plain JSON object"),)
    return after, tuple(findings)


def _unusable(after: dict[str, Any], contract: Contract) -> tuple[Finding, ...]:
    """Return why a value changed by the input model cannot be used: the schema, or it never settles."""
    issues = issues_of(after, contract.input)
    if issues:
        return (failed("input_model", issues[0].path, f"its result breaks the schema ({issues[0].code})"),)
    again, findings = _ask_model(after, contract)
    if findings or not same(again, after):
        return (failed("input_model", (), "it changes or refuses its own result"),)
    return ()


def _changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[Correction, ...]:
    names = dict.fromkeys([*before, *after])
    return tuple(
        Correction(join((name,)), "input_model", before.get(name), after.get(name), "declared")
        for name in names
        if name not in before or name not in after or not same(before[name], after[name])
    )


def _not_allowed(change: Correction) -> Finding:
    shown = msgspec.json.encode(change.after).decode()[:200]
    return Finding(
        code="correction_not_allowed",
        at=change.at,
        message=f"{change.at}: the input model would make it {shown}",
        hint=f"Send `{change.at[1:]}` as {shown} if that is what you mean.",
        data={"suggestion": change.after, "rule": change.rule, "class": change.kind},
    )


def _copied(value: Any) -> Any:
    """Return a copy of a JSON value, so that user code cannot change the one that is used."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in cast(dict[str, Any], value).items()}
    if type(value) is list:
        return [_copied(item) for item in cast(Sequence[Any], value)]
    return value
