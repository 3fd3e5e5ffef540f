"""The contract's own input model (pydantic validators), applied after the schema.

Every change it makes is a declared correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from pokayoke.core.call import Correction, CorrectionKind, Finding
from pokayoke.core.check.findings import find_issues
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.correctors import is_exact_json, user_code_finding
from pokayoke.core.correct.result import CorrectionResult
from pokayoke.core.json.pointer import to_pointer
from pokayoke.core.json.values import copy_json, equal_json


def apply_input_model(
    original: dict[str, Any], prepared: CorrectionResult, contract: Contract, kinds: Sequence[CorrectionKind]
) -> CorrectionResult:
    """Apply the contract's input model to arguments that fit the schema.

    Args:
        original: the arguments before corrections.
        prepared: their result so far, without findings.
        contract: the contract with the model.
        kinds: the classes of correction that may be used.
    """
    value, corrections = prepared.value, prepared.corrections
    after, findings = _call_model(value, contract)
    if not findings and not equal_json(after, value):
        findings = _unusable_findings(after, contract)
        changes = _list_changes(value, after)
        if not findings and "declared" not in kinds:
            findings = tuple(_not_allowed_finding(change) for change in changes)
        corrections, value = (*corrections, *changes), after
    if findings:
        return CorrectionResult(original, findings=findings)
    return CorrectionResult(value, corrections, changed=bool(corrections))


def _call_model(value: dict[str, Any], contract: Contract) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Call the input model on a copy. Any exception becomes a finding, except a KeyboardInterrupt."""
    assert contract.validate_input is not None
    try:
        after, said = contract.validate_input(copy_json(value))
        findings = tuple(said)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001 - even SystemExit of a user's validator must not end the agent
        return value, (user_code_finding("input_model", (), type(exc).__name__),)
    if not all(isinstance(cast(object, one), Finding) for one in findings):
        return value, (
            user_code_finding("input_model", (), "it returned something else than findings beside the value"),
        )
    if not findings and not (is_exact_json(after) and isinstance(cast(object, after), dict)):
        return value, (user_code_finding("input_model", (), "it returned something that is no plain JSON object"),)
    return after, findings


def _unusable_findings(after: dict[str, Any], contract: Contract) -> tuple[Finding, ...]:
    """Return why a value from the input model cannot be used: it breaks the schema, or changes again."""
    issues = find_issues(after, contract.input)
    if issues:
        return (user_code_finding("input_model", issues[0].path, f"its result breaks the schema ({issues[0].code})"),)
    again, findings = _call_model(after, contract)
    if findings or not equal_json(again, after):
        return (user_code_finding("input_model", (), "it changes or refuses its own result"),)
    return ()


def _list_changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[Correction, ...]:
    names = dict.fromkeys([*before, *after])
    return tuple(
        Correction(to_pointer((name,)), "input_model", before.get(name), after.get(name), "declared")
        for name in names
        if name not in before or name not in after or not equal_json(before[name], after[name])
    )


def _not_allowed_finding(change: Correction) -> Finding:
    shown = msgspec.json.encode(change.after).decode()[:200]
    return Finding(
        code="correction_not_allowed",
        at=change.at,
        message=f"{change.at}: the input model would make it {shown}",
        hint=f"Send `{change.at[1:]}` as {shown} if that is what you mean.",
        data={"suggestion": change.after, "rule": change.rule, "class": change.kind},
    )
