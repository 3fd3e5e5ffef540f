"""Judges one recorded call by a set of contracts: refused, corrected or run; its answer valid or not.

The rooms are the guard's own, in its order: catalogue, intake, check and correct, the rules that depend on the call
alone (confidence, paths), output. Roles, quotas, approvals and the ledger depend on the caller and the time, which
a recording does not hold, so they are left out.

In: contracts, a policy and recorded calls.
Out: verdicts.
Never: a tool that runs, or a verdict that depends on another call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from pokayoke.core.call import Correction, Finding
from pokayoke.core.catalogue.catalogue import Catalogue
from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.gate.confidence import call_confidence
from pokayoke.core.gate.rules import Rule, RuleInput, first_finding, rules_for
from pokayoke.core.intake import Reading, read_arguments, reading_finding
from pokayoke.core.json.pointer import get_at, parse_pointer
from pokayoke.core.output.validate import OutputResult, check_output
from pokayoke.core.policy import Policy
from pokayoke.core.redaction.known_secrets import holds_hidden
from pokayoke.replay.learn.stated_failures import has_error_word, leading_error_text, stated_failure
from pokayoke.replay.recording import Recording

OutputVerdict = Literal["valid", "invalid", "failed", "unchecked", "absent"]


class CallVerdict(msgspec.Struct, frozen=True, gc=False):
    """The contracts' verdict on one call.

    Attributes:
        tool: the resolved name, or the one the model wrote.
        contract: `name@version`; None if no contract has the name.
        reading: the reading of the arguments.
        readable: True if they were read, and may run in this reading.
        arguments: what the tool would have received; None if the call was refused.
        refusal: why it would not have run, or None.
        also: further findings next to the refusal.
        corrections: the changes that would have been made.
        masked: True if the refusal is about a value that the recording hides.
        output: the verdict on the recorded answer.
        fault: the problem of an invalid one.
        failure: the tool's words if it reported a failure.
        unseen: True if that failure would have passed as data.
        mentions: True if a good answer mentions errors somewhere, for a person to check.
    """

    tool: str
    contract: str | None
    reading: Reading
    readable: bool = True
    arguments: dict[str, Any] | None = None
    refusal: Finding | None = None
    also: tuple[Finding, ...] = ()
    corrections: tuple[Correction, ...] = ()
    masked: bool = False
    output: OutputVerdict = "absent"
    fault: Finding | None = None
    failure: str | None = None
    unseen: bool = False
    mentions: bool = False


class _PreparedContract(msgspec.Struct, frozen=True):
    """A contract under the policy, prepared once."""

    contract: Contract
    inner: Contract
    rules: tuple[Rule, ...]


class Judge:
    """One set of contracts under one policy.

    Args:
        contracts: one version per tool.
        policy: corrections, caps and thresholds; access is ignored, because a recording does not name the caller.

    Raises:
        ContractError: two contracts claim one name.
    """

    def __init__(self, contracts: Iterable[Contract], policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.contracts = tuple(contracts)
        self._catalogue = Catalogue(self.contracts, prefixes=self.policy.validation.intake.prefixes)
        self._held = {
            one.id: _PreparedContract(one, _without_envelope(one), rules_for(one, self.policy))
            for one in self.contracts
        }

    def judge_call(self, call: Recording) -> CallVerdict:
        """Return the verdict on one call, judged by itself; nothing is run."""
        found = self._catalogue.resolve_name(call.tool)
        if isinstance(found, Finding):
            reading = self._read_arguments(call, None)
            judged = CallVerdict(call.tool, None, reading, _may_run(reading, reads=False), refusal=found)
            return self._judge_output(judged, call, None)
        held = self._held[found.id]
        return self._judge_output(self._judge_arguments(call, held), call, held)

    def _read_arguments(self, call: Recording, contract: Contract | None) -> Reading:
        limits = self.policy.validation.intake
        return read_arguments(
            call.arguments,
            schema=None if contract is None else contract.input,
            stop_reason=call.stop_reason,
            max_chars=limits.max_chars,
            max_depth=limits.max_depth,
        )

    def _judge_arguments(self, call: Recording, held: _PreparedContract) -> CallVerdict:
        contract = held.contract
        reading = self._read_arguments(call, contract)
        reads = contract.effect == "read"
        if reading.value is None or not _may_run(reading, reads=reads):
            refusal = reading_finding(reading, effect=contract.effect, tool=contract.name)
            return CallVerdict(
                contract.name, contract.id, reading, readable=False, refusal=refusal, masked=_has_hidden_values(call)
            )
        kinds = self.policy.corrections.read if reads else self.policy.corrections.write
        prepared = correct_arguments(reading.value, contract, kinds=kinds, canonical=reading.canonical)
        if prepared.findings:
            first, *also = prepared.findings
            masked = _has_hidden_values(call) and all(
                holds_hidden(str(_value_at(reading.value, one.at))) for one in prepared.findings
            )
            return CallVerdict(contract.name, contract.id, reading, refusal=first, also=tuple(also), masked=masked)
        certain = (
            call_confidence(reading.repairs, prepared.corrections) if reading.repairs or prepared.corrections else 1.0
        )
        objection = first_finding(held.rules, RuleInput(contract, prepared.value, certain, None))
        return CallVerdict(
            contract.name,
            contract.id,
            reading,
            arguments=None if objection else prepared.value,
            refusal=objection,
            corrections=prepared.corrections,
        )

    def _judge_output(self, judged: CallVerdict, call: Recording, held: _PreparedContract | None) -> CallVerdict:
        if call.fault is not None and held is not None and call.contract in (None, held.contract.id):
            # The answer itself was not recorded: the verdict of another version on it is unknown.
            return msgspec.structs.replace(judged, output="invalid", fault=call.fault)
        if call.output is UNSET and not call.is_error:
            return judged
        if call.is_error:
            said = stated_failure("" if call.output is UNSET else call.output, is_error=True)
            return msgspec.structs.replace(judged, output="failed", failure=said)
        if held is None:
            said = stated_failure(call.output, call.is_error)
            mentions = said is None and has_error_word(call.output)
            verdict: OutputVerdict = "unchecked" if said is None else "failed"
            return msgspec.structs.replace(judged, output=verdict, failure=said, mentions=mentions)
        contract = held.contract if call.contract is None else held.inner
        arguments = judged.arguments or judged.reading.value or {}
        checked = check_output(call.output, contract, arguments=arguments, policy=self.policy.validation.tool_output)
        said = _failure_text(call, checked, contract)
        if said is not None:
            return msgspec.structs.replace(judged, output="failed", failure=said, unseen=checked.ok)
        if checked.findings:
            return msgspec.structs.replace(judged, output="invalid", fault=checked.findings[0])
        verdict = "unchecked" if checked.unchecked else "valid"
        return msgspec.structs.replace(judged, output=verdict, mentions=has_error_word(call.output))


def _may_run(reading: Reading, *, reads: bool) -> bool:
    return reading.value is not None and (reads or reading.grade != "edited")


def _without_envelope(contract: Contract) -> Contract:
    """Return the contract for answers that a guard has already taken out of their envelope (our own trace)."""
    return contract if contract.envelope is None else dataclasses.replace(contract, envelope=None)


def _failure_text(call: Recording, checked: OutputResult, contract: Contract) -> str | None:
    """Return the tool's own words if it reported a failure. Data that was parsed and fits is not searched again."""
    if call.is_error is False:
        return None
    if checked.failure is not None:
        return checked.failure
    if checked.ok and contract.output is not None and not contract.takes_text:
        return None
    if isinstance(call.output, str) and not call.output.lstrip().startswith("{"):
        return leading_error_text(call.output)
    return stated_failure(call.output)


def _has_hidden_values(call: Recording) -> bool:
    """True if the recording holds values that were redacted before it was written."""
    given = call.arguments
    return holds_hidden(given if isinstance(given, str) else str(given))


def _value_at(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer; None if there is none."""
    try:
        return get_at(value, parse_pointer(pointer))
    except LookupError:
        return None
