"""What is said of a call that nobody answered: its caller was cut off, cancelled or killed before the result came.

In: a call of a history, and what the ledger holds of its effect.
Out: the text in the place of its result.
Never: a call that runs, a claim, a question or a trace event; or a text that says "not done" where nobody knows.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pokayoke.core.call import ToolCall
from pokayoke.core.context.groups import UNANSWERED
from pokayoke.core.context.open_calls import CallAnswer
from pokayoke.core.flow.effect_chain import effect_key
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.outcomes import NOT_RUN, ending_from_record
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.prepare import prepare_call
from pokayoke.core.flow.repetition import Repetition
from pokayoke.core.flow.resolve import undone_finding
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.flow.steps import ReadRecord, Step
from pokayoke.core.ledger.findings import failed_before_finding, in_doubt_finding, mark_in_doubt
from pokayoke.core.ledger.records import Record, call_mark
from pokayoke.core.output.model_text import refusal_text

_UNANSWERED_READ = "No result of this call is known. It changed nothing by itself: call it again if you still need it."
_UNKNOWN = CallAnswer(UNANSWERED)


def describe_open_call(call: ToolCall, env: CallEnvironment, earlier: int) -> Generator[Step, Any, CallAnswer]:
    """Return what stands in the place of a call's missing result.

    Args:
        call: the call as the history holds it.
        env: the environment of its run.
        earlier: answered equal calls of the same id before it.
    """
    prepared = yield from prepare_call(call, env)
    plan = prepared.plan
    if plan is None or prepared.arguments is None:
        return _UNKNOWN
    if plan.contract.effect == "read":
        return CallAnswer(_UNANSWERED_READ)
    scope = env.claimant.scope(plan.contract)
    found = None if scope is None else (yield from _find_record(prepared, plan, scope, earlier))
    if found is None:
        return _UNKNOWN
    record, number = found
    if record.state == "failed_retriable":
        return CallAnswer(f"{record.tool} failed and took no effect. Call it again if that is still wanted.")
    if record.state == "failed_final":
        finding = failed_before_finding(record.tool, record.failure)
    elif record.state != "completed":
        finding = in_doubt_finding(mark_in_doubt(record))
    elif (gone := (yield from undone_finding(record))) is not None:
        finding = gone
    else:
        ending = ending_from_record(prepared, record, plan, NOT_RUN, Repetition(earlier=record, number=number))
        return CallAnswer(ending.outcome.text, failed=not ending.outcome.ok)
    return CallAnswer(refusal_text((finding,), tool=prepared.tool))


def _find_record(
    prepared: PreparedCall, plan: CallPlan, scope: tuple[str, str], earlier: int
) -> Generator[Step, Any, tuple[Record, int] | None]:
    """Return the effect of a call among its equal ones, and its number; of one that has none, the latest effect."""
    mark, own, latest = call_mark(prepared.call.id), list[tuple[Record, int]](), None
    number, tool = 0, plan.contract.name
    while isinstance(record := (yield ReadRecord(effect_key(prepared, plan, scope, number), tool)), Record):
        latest = (record, number)
        if record.mark == mark:
            own.append(latest)
        number += 1
    if own:
        return own[earlier] if earlier < len(own) else None
    return latest
