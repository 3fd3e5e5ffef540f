"""Checks arguments against their contract and corrects what may be corrected.

In: parsed arguments, their contract, and the allowed classes of correction.
Out: the arguments to use with every change, or the original arguments with all findings that are left.
Never: an invented value, or a change of a valid one.

An invalid value is corrected in small recorded steps, each of a class: *equivalent* (same value, other spelling),
*declared* (a corrector that the contract names), *likely* (a guess). A step is taken only if the schema then accepts
the place, no other place got worse, and no other proposal of its class does the same with another result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pokayoke.core.call import CorrectionKind
from pokayoke.core.check.findings import stand_in_findings
from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.result import CorrectionResult
from pokayoke.core.correct.whole_numbers import restore_integers
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.pointer import parse_pointer

if TYPE_CHECKING:
    from pokayoke.core.correct.engine import CorrectionRun


def correct_arguments(
    value: dict[str, Any],
    contract: Contract,
    *,
    kinds: Sequence[CorrectionKind],
    canonical: bytes | None = None,
) -> CorrectionResult:
    """Check arguments and correct what may be corrected.

    Args:
        value: the parsed arguments; never changed in place.
        contract: the contract they must fit.
        kinds: the classes of correction that may be used; others become hints.
        canonical: the compact dump of `value` if the caller has one. It also means that the strict parser made the
            value, so the cheap checks suffice.
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
    """Return whether a value has no findings; the hot path of every call."""
    schema = contract.input
    if canonical is None:
        return schema.accepts(value) and not contract.checks.may_need_change(value, dump_compact(value))
    try:
        return schema.is_valid(value) and not contract.checks.may_need_change(value, canonical)
    except Exception:  # noqa: BLE001 - fail closed: the slow path names the problem
        return False


@cache
def _load_correction_run() -> type[CorrectionRun]:
    """Import the correction rules on first use; their tables make the import slow."""
    from pokayoke.core.correct.engine import CorrectionRun  # noqa: PLC0415 - as above

    return CorrectionRun


def _run_corrections(
    value: dict[str, Any], contract: Contract, kinds: Sequence[CorrectionKind], canonical: bytes | None
) -> CorrectionResult:
    """Return the result for a value that is not clean."""
    work = _load_correction_run()(
        value,
        contract.input,
        name=contract.name,
        is_open=contract.checks.is_open,
        kinds=tuple(kinds),
        correctors=contract.ready_correctors,
        canonical=canonical,
    )
    work.run()
    findings = work.remaining_findings()
    marks = stand_in_findings(work.value, contract.checks, {parse_pointer(finding.at) for finding in findings})
    if marks:
        places = {mark.at for mark in marks}
        findings = [*marks, *[finding for finding in findings if finding.at not in places]]
    if findings:
        return CorrectionResult(value, findings=tuple(findings))
    whole, restored = restore_integers(work.value, contract.input)
    corrections = (*work.corrections, *restored)
    return CorrectionResult(whole, corrections, changed=bool(corrections))
