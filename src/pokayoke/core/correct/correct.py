"""Arguments made to fit their contract, or the reasons why they do not. Nothing is invented.

A valid value is never touched. An invalid one is corrected in small recorded steps, each of a class:
*equivalent* (same value, other spelling), *declared* (a corrector the contract names), *likely* (a
guess). A step is taken only if the schema then accepts the place, nothing else got worse, and no
other proposal of its class does the same with another result. If anything is left in the end, the
value goes back as it came, with everything that is still wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pokayoke.core.call import CorrectionKind, Finding
from pokayoke.core.check.findings import placeholder_findings
from pokayoke.core.check.placeholders import find_placeholders, may_hold_placeholder
from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.result import CorrectionResult

if TYPE_CHECKING:
    from pokayoke.core.correct.engine import CorrectionRun


CODES: dict[str, str] = {
    "corrector_failed": "a corrector or input model of the contract raised, or returned what cannot be used",
    "correction_not_allowed": "the input model would change the value, and policy does not allow that class",
}


def correct_arguments(
    value: dict[str, Any],
    contract: Contract,
    *,
    kinds: Sequence[CorrectionKind],
    canonical: bytes | None = None,
) -> CorrectionResult:
    """Check arguments and correct what may be corrected.

    Args:
        value: the arguments as they were read; never changed in place.
        contract: what they have to fulfil.
        kinds: the classes of correction that may be used; others come back as hints.
        canonical: compact dump of `value` if the caller has one. It also says that the value came
            out of the strict parser, so the cheap checks suffice.
    """
    prepared = (
        CorrectionResult(value)
        if _is_clean(value, contract, canonical)
        else _run_corrections(value, contract, kinds, canonical)
    )
    if contract.validate_input is None or prepared.findings:
        return prepared
    from pokayoke.core.correct.input_model import apply_input_model  # noqa: PLC0415 - loaded for contracts that have a model

    return apply_input_model(value, prepared, contract, kinds)


def _is_clean(value: dict[str, Any], contract: Contract, canonical: bytes | None) -> bool:
    """Return whether there is nothing to say about a value; the hot path of every call."""
    schema = contract.input
    if canonical is None:
        return schema.accepts(value) and not find_placeholders(value, schema)
    try:
        valid = schema.is_valid(value)
    except Exception:  # noqa: BLE001 - fail closed: the slow path names what cannot be validated
        return False
    return valid and not (may_hold_placeholder(canonical) and find_placeholders(value, schema))


@cache
def _load_correction_run() -> type[CorrectionRun]:
    """Load the rules of corrections and their tables when they are needed first; to import is to look up much."""
    from pokayoke.core.correct.engine import CorrectionRun  # noqa: PLC0415 - as above

    return CorrectionRun


def _run_corrections(
    value: dict[str, Any], contract: Contract, kinds: Sequence[CorrectionKind], canonical: bytes | None
) -> CorrectionResult:
    """Correct what may be corrected; the way of every value that is not clean."""
    work = _load_correction_run()(
        value,
        contract.input,
        name=contract.name,
        kinds=tuple(kinds),
        correctors=contract.ready_correctors,
        canonical=canonical,
    )
    work.run()
    marks: tuple[Finding, ...] = ()
    if canonical is None or work.corrections or may_hold_placeholder(canonical):
        marks = placeholder_findings(work.value, contract.input)
    findings = work.remaining_findings()
    if marks:
        places = {mark.at for mark in marks}
        findings = [*marks, *[finding for finding in findings if finding.at not in places]]
    if findings:
        return CorrectionResult(value, findings=tuple(findings))
    return CorrectionResult(work.value, tuple(work.corrections), changed=bool(work.corrections))
