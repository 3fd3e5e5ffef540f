"""The tool that answers what no tool of an agent can take, and the handoffs whose arguments it has to answer for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pokayoke.adapters.openai_agents._run import ENCODED_PREFIX, UNKNOWN_TOOL_NAME, current_agent_run, original_call
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import history_name
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.intake import read_arguments, reading_finding
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.output.model_text import refusal_text
from pokayoke.errors import ContractError, MissingExtraError

try:
    from agents import FunctionTool
except ImportError as error:
    raise MissingExtraError("openai-agents", "openai-agents") from error

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

__all__ = [
    "GuardedHandoff",
    "is_object",
    "tool_definition",
    "unknown_tool",
    "with_original_names",
    "without_strict_mode",
]


class GuardedHandoff:
    """A handoff, whose arguments are read as those of a write: what it starts may change things.

    Args:
        handoff: the handoff.
    """

    def __init__(self, handoff: Any) -> None:
        """Look at nothing yet; most replies hand nobody over."""
        self._handoff = handoff

    def check_arguments(self, text: Any, snapshot: Snapshot) -> tuple[Any, tuple[Finding, ...]]:
        """Return the arguments as the SDK can take them, and what is wrong with them if it cannot.

        Args:
            text: the arguments as the model wrote them.
            snapshot: what is in force.
        """
        schema = self._handoff.input_json_schema
        if not schema.get("properties"):
            return text, ()  # the SDK does not look at them
        # Of keys that it does not know, the SDK makes nothing.
        schema = {**without_strict_mode(schema), "additionalProperties": True}
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


def without_strict_mode(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without what strict mode adds for the provider: a field with a default is none too many."""
    loose = dict(schema)
    shown = loose.get("properties", {})
    if "required" in loose:
        loose["required"] = [name for name in loose["required"] if "default" not in shown.get(name, {})]
    return loose


def tool_definition(contract: Any) -> Any:
    """Return the definition of a tool that the guard itself answers."""
    schema = dict(contract.input_schema)
    return FunctionTool(contract.name, contract.description, schema, _answer_unknown_call, strict_json_schema=False)


async def _answer_unknown_call(context: Any, text: str) -> str:
    """Answer a call that no tool of the agent can take. The guard's own tools are known to it alone."""
    slot = current_agent_run()
    hosted, call = slot.adapter_run, original_call(context.tool_call_id, UNKNOWN_TOOL_NAME, text)
    plan = hosted.run.snapshot.find_plan(call.name)
    handed = slot.handoffs.get(call.name)
    wrong = (
        handed.check_arguments(call.arguments, hosted.run.snapshot)[1] if handed and call.stop_reason is None else ()
    )
    if wrong:
        return _refuse_handoff(hosted.run, call, wrong).text
    if isinstance(plan, Finding) or plan.contract is hosted.run.guard.pager:
        return (await hosted.acall(call)).text

    def tool_missing(_arguments: dict[str, Any]) -> Any:
        raise ToolNotStarted("it is not among the tools of the agent now", blame="model")

    told, known = (await hosted.acall(call, tool_missing)).text, slot.listed.names if slot.listed is not None else ()
    return f"{plan.contract.name} is not among your tools now. There are: {', '.join(known) or 'none'}.\n{told}"


def _refuse_handoff(run: Run, call: ToolCall, wrong: tuple[Finding, ...]) -> Outcome:
    """Refuse a handoff, which has no contract, so that it counts like any call that is refused."""
    outcome = Outcome(
        status="refused",
        call_id=call.id,
        tool=call.name,
        text=refusal_text(wrong, tool=call.name),
        findings=wrong,
        stop_reason="invalid_arguments",
        message=wrong[0].message,
    )
    said = sha256_hex(str(call.arguments).encode("utf-8", "surrogatepass"))
    run.rounds.count_outcome(outcome, said, None, run.snapshot.kinds, run.snapshot.policy.loop)
    run.note("handoff", ok=False, tool=call.name, error=wrong[0].code, reason=outcome.message)
    run.progress.tokens.note(outcome.text)
    run.progress.matters.record_outcome(outcome, call)
    return outcome


unknown_tool = FunctionTool(
    UNKNOWN_TOOL_NAME, "", {"type": "object", "properties": {}}, _answer_unknown_call, strict_json_schema=False
)


def with_original_names(items: list[Any]) -> list[Any]:
    """Return the history with the names that the model wrote, of calls that were led to the tool that answers them."""
    if not any(item.get("name") == UNKNOWN_TOOL_NAME for item in items):
        return items
    return [
        _restore_call(item) if item.get("name") == UNKNOWN_TOOL_NAME and "arguments" in item else item for item in items
    ]


def _restore_call(item: Any) -> Any:
    try:
        kept = json.loads(item["arguments"])[UNKNOWN_TOOL_NAME]
    except (ValueError, KeyError, TypeError):
        return item
    text = kept.get("arguments")
    text = json.dumps(text) if isinstance(text, dict) else text
    name = history_name(kept.get("name") or "")
    return {**item, "name": name, "arguments": text if is_object(text) else item["arguments"]}


def is_object(text: Any) -> bool:
    """Return whether the SDK can read these arguments as they are."""
    try:
        return isinstance(text, str) and not text.startswith(ENCODED_PREFIX) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
