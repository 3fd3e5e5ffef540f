"""Handoffs of the OpenAI Agents SDK: their arguments are read like those of a write.

In: the arguments that the model wrote for a handoff. Out: arguments that the SDK can take, or findings for the model.
Never: a handoff that starts with arguments the model did not mean.
"""

from __future__ import annotations

import json
from typing import Any

from pokayoke.adapters.openai_agents._contracts import without_strict_mode
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.intake import read_arguments, reading_finding
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.output.model_text import refusal_text
from pokayoke.errors import ContractError
from pokayoke.runtime.run.run import Run


class GuardedHandoff:
    """A handoff whose arguments are read like those of a write, because it may start anything.

    Args:
        handoff: the handoff.
    """

    def __init__(self, handoff: Any) -> None:
        """Compile nothing yet; most replies hand nobody over."""
        self._handoff = handoff

    def check_arguments(self, text: Any, snapshot: Snapshot) -> tuple[Any, tuple[Finding, ...]]:
        """Return the arguments as the SDK can take them, and what is wrong with them if it cannot.

        Args:
            text: the arguments as the model wrote them.
            snapshot: the policy in force.
        """
        schema = self._handoff.input_json_schema
        if not schema.get("properties"):
            return text, ()  # the SDK ignores them
        schema = {**without_strict_mode(schema), "additionalProperties": True}  # the SDK ignores unknown keys
        try:
            contract = Contract.from_schema(self._handoff.tool_name, schema)
        except ContractError:
            return text, ()
        reading = read_arguments(text, schema=contract.input)
        if reading.value is None or reading.grade == "edited":
            return text, (reading_finding(reading, effect="write", tool=contract.name),)
        prepared = correct_arguments(reading.value, contract, kinds=snapshot.policy.corrections.write)
        if prepared.findings or (reading.grade == "exact" and not prepared.changed):
            return text, prepared.findings
        return json.dumps(prepared.value, ensure_ascii=False), ()


def refuse_handoff(run: Run, call: ToolCall, wrong: tuple[Finding, ...]) -> Outcome:
    """Refuse a handoff, which has no contract, so that it counts like any refused call."""
    outcome = Outcome(
        status="refused",
        call_id=call.id,
        tool=call.name,
        text=refusal_text(wrong, tool=call.name),
        findings=wrong,
        stop_reason="invalid_arguments",
        message=wrong[0].message,
    )
    written = sha256_hex(str(call.arguments).encode("utf-8", "surrogatepass"))
    run.rounds.count_outcome(outcome, written, None, run.snapshot.kinds, run.snapshot.policy.loop)
    run.note("handoff", ok=False, tool=call.name, error=wrong[0].code, reason=outcome.message)
    run.progress.tokens.note(outcome.text)
    run.progress.matters.record_outcome(outcome, call)
    return outcome
