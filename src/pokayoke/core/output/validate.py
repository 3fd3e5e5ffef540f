"""Validates a tool's output.

In: anything a tool returns.
Out: `OutputResult`: a validated value, the tool's own failure, or findings.
Never: repair an output; guess its meaning; replace it by its `str()`.

The steps in order: byte and character cap, status, content type, strict parse (all in `core/output/receive.py`),
envelope, HTML in place of data, schema, invariants. A Python value is serialised instead of the transport checks.

Checks by kind of contract:

- a schema: all;
- `"text"`: a string within the cap, no page and no bare report of a failure;
- none (`unchecked`): the cap, serialisation, a declared envelope, no page and no bare report of a failure;
- both: a page passes where `content_type` allows HTML; of a tool that takes a URL it passes as unchecked text;
- `output_checks="size_only"`: the cap, strict parse, serialisation.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pokayoke.core.call import EffectStatus, Finding
from pokayoke.core.check.findings import check_value
from pokayoke.core.contract.contract import Contract
from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.serialise import SerialisedValue, dump_plain, serialise
from pokayoke.core.json.strict import parse
from pokayoke.core.output.envelope import (
    envelope_fields,
    is_only_page,
    is_report,
    open_envelope,
    reported_failure,
    undeclared_error,
)
from pokayoke.core.output.html_pages import find_page, may_hold_page
from pokayoke.core.output.invariants import check_invariants
from pokayoke.core.output.receive import MAX_DEPTH, ReceivedOutput, output_finding, receive_output
from pokayoke.core.output.transport import NO_EFFECT_STATUS
from pokayoke.core.policy import ToolOutputPolicy
from pokayoke.core.schema.facts import facts_at
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
        notes: remarks that do not stop the output; such a one is no evidence that the tool is well again.
        wire: True if the output passed the transport checks.
        words: texts beside the value that nothing has checked.
        no_effect: True if the reported failure proves that nothing happened.
        refused: True if the tool itself said no, so that it is over: no lost connection, no server that broke down.
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
    words: str = ""
    no_effect: bool = False
    refused: bool = False

    @property
    def effect(self) -> EffectStatus:
        """What this answer of a write says of its effect: a page, or nothing where data belongs, says nothing."""
        if self.failure is not None:
            return "none" if self.no_effect else "unknown"
        if not self.findings:
            return "done"
        is_nothing = self.canonical == b"null" and not self.content
        is_open = any((row := FINDING_CODES.get(one.code)) and row.leaves_effect_open for one in self.findings)
        return "unknown" if is_nothing or is_open else "done"

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
    failed = _find_failure(got, contract)
    return None if failed is None else failed.failure


def _find_failure(got: ReceivedOutput, contract: Contract) -> OutputResult | None:
    """Return the judgement on an output by which the tool reports a failure, or None."""
    result = OutputResult(content=got.content, unchecked=contract.unchecked, wire=got.wire, refused=True)
    if got.failure is not None:
        if got.finding is None:
            return msgspec.structs.replace(result, failure=got.failure)
        status = got.finding.data["status"]
        return msgspec.structs.replace(
            result,
            failure=got.failure,
            findings=(got.finding,),
            no_effect=status in NO_EFFECT_STATUS,
            refused=isinstance(status, int) and 400 <= status < 500 and status != 408,  # noqa: PLR2004 - RFC 9110
        )
    if got.finding is not None or contract.output_checks == "size_only":
        return None
    value, envelope = got.value, contract.envelope
    if envelope is not None and type(value) is not str:
        opened = open_envelope(value, envelope)
        if opened.failure is not None:
            return msgspec.structs.replace(result, failure=opened.failure, no_effect=envelope.no_effect)
        if opened.finding is None and opened.value is not value:
            said = reported_failure(opened.value, _data_fields(opened.value, contract))
            return None if said is None else msgspec.structs.replace(result, failure=said)
    said = reported_failure(value, (*envelope_fields(envelope), *_data_fields(value, contract)))
    return None if said is None else msgspec.structs.replace(result, failure=said)


def _data_fields(value: Any, contract: Contract) -> tuple[str, ...]:
    """Return the fields of a report that a read declares, and so returns as data."""
    if contract.effect != "read" or contract.output is None or not is_report(value):
        return ()
    return facts_at(contract.output, ()).properties


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
        if not schema.is_valid(value) or may_hold_page(data) or is_report(value):
            return None
        if undeclared_error(value, schema.raw) is not None:
            return None
    except Exception:  # noqa: BLE001 - whatever it is, the rooms have a name for it
        return None
    return OutputResult(value, canonical=data, chars=chars)


def _check_output_fully(
    raw: Any, contract: Contract, arguments: dict[str, Any], policy: ToolOutputPolicy
) -> OutputResult:
    """Run all steps on an output."""
    got = receive_output(raw, contract, policy=policy)
    failed = _find_failure(got, contract)
    if failed is not None:
        return failed
    if got.finding is not None:
        return OutputResult(None, (got.finding,), got.content, unchecked=contract.unchecked, wire=got.wire)
    value, data = got.value, got.data
    if contract.envelope is not None and type(value) is not str:
        opened = open_envelope(value, contract.envelope)
        if opened.finding is not None:
            return OutputResult(findings=(opened.finding,), unchecked=contract.unchecked, wire=got.wire)
        if opened.value is not value:
            value, data = opened.value, dump_compact(opened.value)
    unchecked = contract.unchecked
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    if contract.output is None:
        findings, notes = _check_only_page(value, data, contract)
        unchecked = unchecked or bool(notes)
        findings = findings or _invariant_findings(contract, value, data, arguments)
    elif contract.output_checks == "full":
        findings, value, data = _check_data(got, value, data, contract, contract.output)
        findings = findings or _invariant_findings(contract, value, data, arguments)
    return OutputResult(
        value, findings, got.content, data, unchecked, got.chars, notes=notes, wire=got.wire, words=got.words
    )


def _check_data(
    got: ReceivedOutput, value: Any, data: bytes, contract: Contract, output: Schema
) -> tuple[tuple[Finding, ...], Any, bytes]:
    """Check data against its contract: undeclared failures, pages, schema."""
    found = undeclared_error(got.value, output.raw, contract.envelope, _data_fields(got.value, contract))
    if found is None and value is not got.value:
        found = undeclared_error(value, output.raw, data=_data_fields(value, contract))
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


def _check_only_page(value: Any, data: bytes, contract: Contract) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Check a page without data: a maintenance page with status 200 is no answer, the page that was asked for is one.

    Returns:
        The findings and the notes. A tool that takes a URL gets a note, so that the page counts as unchecked text.
    """
    # Some writers of JSON escape each "<", so a JSON text may hold a page without one.
    if not (may_hold_page(data) or b"u003" in data) or not is_only_page(value):
        return (), ()
    declared = (contract.content_type or "").lower()
    if "html" in declared or "*" in declared:
        return (), ()
    found = output_finding("html_instead_of_data", "nothing but a whole HTML page")
    is_fetched = contract.content_type is None and contract.takes_url
    return ((), (found,)) if is_fetched else ((found,), ())
