"""Validates a tool's output.

In: anything a tool returns.
Out: `OutputResult`: a validated value, the tool's own failure, or findings.
Never: repair an output; guess its meaning; replace it by its `str()`.

The steps in order: byte and character cap, status, content type, strict parse (all in `core/output/receive.py`),
envelope, HTML in place of data, schema, invariants. A Python value is serialised instead of the transport checks.

Checks by kind of contract:

- a schema: all;
- `"text"`: a string within the cap; a page passes unless `content_type` names another type;
- none (`unchecked`): the cap, serialisation and a declared envelope; a page is a note, not a
  finding, unless a response declares it as HTML;
- `output_checks="size_only"`: the cap, strict parse, serialisation.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.check.findings import check_value
from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.serialise import SerialisedValue, dump_plain, serialise
from pokayoke.core.json.strict import parse
from pokayoke.core.output.envelope import open_envelope, undeclared_error
from pokayoke.core.output.html_pages import find_page, is_page, may_hold_page
from pokayoke.core.output.invariants import check_invariants
from pokayoke.core.output.receive import MAX_DEPTH, ReceivedOutput, output_finding, receive_output
from pokayoke.core.policy import ToolOutputPolicy
from pokayoke.core.schema.schema import Schema

# A response or a block result has one of these fields.
_RESPONSE_FIELDS = frozenset(("body", "content"))


class OutputResult(msgspec.Struct, frozen=True, gc=False):
    """The judgement on a tool's output.

    Attributes:
        value: a JSON value, or text. A readable value is also set next to findings, for monitoring; only `ok`
            means that it may be used.
        findings: the problems; empty if the output may be used.
        content: image, audio and other blocks, unread.
        canonical: compact JSON of the value, or None if there is no value.
        unchecked: True if the contract says nothing about the output.
        chars: length of the value as the tool sent it, in characters.
        failure: the tool's own words if it reports a failure; then nothing else was checked.
        notes: remarks that do not stop the output.
        wire: True if the output passed the transport checks.
    """

    value: Any = None
    findings: tuple[Finding, ...] = ()
    content: tuple[Any, ...] = ()
    canonical: bytes | None = None
    unchecked: bool = False
    chars: int = 0
    failure: str | None = None
    notes: tuple[Finding, ...] = ()
    wire: bool = False

    @property
    def ok(self) -> bool:
        """True if the value may be used."""
        return self.failure is None and not self.findings


def check_output(raw: Any, contract: Contract, *, arguments: dict[str, Any], policy: ToolOutputPolicy) -> OutputResult:
    """Validate a tool's output.

    Args:
        raw: the tool's result.
        contract: the tool's contract.
        arguments: the arguments of the call, for invariants.
        policy: caps and content type where the contract sets none.
    """
    return _check_output_fast(raw, contract, policy) or _check_output_fully(raw, contract, arguments, policy)


def declared_failure(raw: Any, contract: Contract, *, policy: ToolOutputPolicy) -> str | None:
    """Return the tool's own words if it reports a failure; nothing else is checked."""
    got = receive_output(raw, contract, policy=policy)
    if got.finding is None and contract.envelope is not None and type(got.value) is not str:
        return got.failure or open_envelope(got.value, contract.envelope).failure
    return got.failure


def _check_output_fast(raw: Any, contract: Contract, policy: ToolOutputPolicy) -> OutputResult | None:
    """Validate the usual output at once: strict JSON text, or an object, that fits its schema.

    Returns the result of `_check_output_fully`, or None if the slow path must decide.
    """
    schema = contract.output
    if schema is None or not contract.schema_only:
        return None
    limit = contract.max_chars or policy.max_chars
    try:
        if type(raw) is str and len(raw) <= limit:
            value, data = parse(raw, max_depth=MAX_DEPTH, equal_duplicates=False, exact=False)
            chars = len(raw)
        elif type(raw) is dict and raw.keys().isdisjoint(_RESPONSE_FIELDS):
            value, data = dump_plain(raw, limit)
            chars = len(data)
        else:
            return None
        if not schema.is_valid(value) or may_hold_page(data) or undeclared_error(value, schema.raw) is not None:
            return None
    except Exception:  # noqa: BLE001 - whatever it is, the rooms have a name for it
        return None
    return OutputResult(value, canonical=data, chars=chars)


def _check_output_fully(
    raw: Any, contract: Contract, arguments: dict[str, Any], policy: ToolOutputPolicy
) -> OutputResult:
    """Run all steps on an output."""
    got = receive_output(raw, contract, policy=policy)
    if got.failure is not None or got.finding is not None:
        broken = () if got.finding is None else (got.finding,)
        return OutputResult(None, broken, got.content, failure=got.failure, unchecked=contract.unchecked, wire=got.wire)
    value, data = got.value, got.data
    if contract.envelope is not None and type(value) is not str:
        opened = open_envelope(value, contract.envelope)
        if opened.failure is not None:
            return OutputResult(
                content=got.content, failure=opened.failure, unchecked=contract.unchecked, wire=got.wire
            )
        if opened.finding is not None:
            return OutputResult(findings=(opened.finding,), unchecked=contract.unchecked, wire=got.wire)
        if opened.value is not value:
            value, data = opened.value, dump_compact(opened.value)
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    if contract.output is None:
        findings, notes = _check_text_page(value, contract)
        findings = findings or _invariant_findings(contract, value, data, arguments)
    elif contract.output_checks == "full":
        findings, value, data = _check_data(got, value, data, contract, contract.output)
        findings = findings or _invariant_findings(contract, value, data, arguments)
    return OutputResult(value, findings, got.content, data, contract.unchecked, got.chars, notes=notes, wire=got.wire)


def _check_data(
    got: ReceivedOutput, value: Any, data: bytes, contract: Contract, output: Schema
) -> tuple[tuple[Finding, ...], Any, bytes]:
    """Check data against its contract: undeclared failures, pages, schema."""
    found = undeclared_error(got.value, output.raw, contract.envelope)
    if found is None and value is not got.value:
        found = undeclared_error(value, output.raw)
    if found is not None:
        return (found,), value, data
    if may_hold_page(data):
        at = find_page(value, output)
        if at is not None:
            return (output_finding("html_instead_of_data", "a whole HTML page as a value", at=at),), value, data
    if not _is_valid(value, output):
        again = _with_numbers(got, contract, output)
        if again is None:
            return _schema_findings(value, output), value, data
        value, data = again.value, again.data
    return (), value, data


def _is_valid(value: Any, output: Schema) -> bool:
    try:
        return output.is_valid(value)
    except Exception:  # noqa: BLE001 - fail closed: what cannot be validated is not valid
        return False


def _with_numbers(got: ReceivedOutput, contract: Contract, output: Schema) -> SerialisedValue | None:
    """Return the object with its Decimals as numbers, if that loses no digit and fits the schema.

    A Decimal has two exact JSON forms; the schema decides between them.
    """
    if got.origin is None or contract.envelope is not None:
        return None
    done = serialise(got.origin, max_bytes=4 * len(got.data), decimals="number")
    return done if isinstance(done, SerialisedValue) and _is_valid(done.value, output) else None


def _schema_findings(value: Any, output: Schema) -> tuple[Finding, ...]:
    """Return the schema's findings with blame on the tool; without hints, which are for arguments."""
    found = tuple(
        msgspec.structs.replace(one, blame="tool", hint="", data={**one.data, "reason": _finding_reason(one)})
        for one in check_value(value, output, root="output")
    )
    # The validator's refusal holds even if no explanation is found.
    return found or (output_finding("schema_mismatch", "the value does not fit the schema"),)


def _finding_reason(found: Finding) -> str:
    return f"{found.code}:{found.at}" if found.at else found.code


def _invariant_findings(contract: Contract, value: Any, data: bytes, arguments: dict[str, Any]) -> tuple[Finding, ...]:
    if not contract.invariants:
        return ()
    findings = check_invariants(contract.invariants, value, arguments)
    if contract.output_hooks and not findings and dump_compact(value) != data:
        return (output_finding("output_changed", "an invariant changed the output while checking it"),)
    return findings


def _check_text_page(value: Any, contract: Contract) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Check a page as text: a fetch tool returns pages, unless the contract names another media type.

    Returns:
        The findings and the notes. A tool without an output contract gets a note: the page is visible, but no
        contract is broken.
    """
    if type(value) is not str or not is_page(value):
        return (), ()
    found = output_finding("html_instead_of_data", "the text is a whole HTML page")
    declared = (contract.content_type or "*/*").lower()
    if "html" not in declared and "*" not in declared:
        return (found,), ()
    return (), ((found,) if contract.unchecked else ())
