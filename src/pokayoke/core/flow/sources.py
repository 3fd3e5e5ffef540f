"""Where the values of a call come from, looked up on its way; and what its output tells later calls.

In: a call, and what its run remembers.
Out: a report on its sources; a run that knows one output more.
Never: a judgement that depends on what the model says.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

from pokayoke.core.flow.environment import CallEnvironment, SourceMemory
from pokayoke.core.flow.outcomes import Ending
from pokayoke.core.flow.plan import CallPlan
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.flow.steps import ChangeState, Reaction, Returned, RunUserCode, Step
from pokayoke.core.provenance.provenance import Judgement, Reason
from pokayoke.core.provenance.report import SourceReport, decide_on_sources
from pokayoke.core.state.run_state import note_reading

UNREAD: Final = Judgement((Reason("unread", "", ""),))
"""The judgement of a call for which the outputs of its run could not be read in time."""


def find_sources(
    plan: CallPlan, arguments: Mapping[str, Any], values: SourceMemory, env: CallEnvironment
) -> Generator[Step, Any, SourceReport]:
    """Return where the values of a call come from, and what follows from that.

    Args:
        plan: how calls of its contract are treated.
        arguments: its effective arguments.
        values: what the run knows of values.
        env: its environment.
    """
    if values.is_behind(plan):
        patience = plan.timeout or env.snapshot.policy.execution.timeout
        reaction: Reaction = yield RunUserCode(lambda: values.judge(plan, arguments, env), patience)
        judged = reaction.value if isinstance(reaction, Returned) else UNREAD
    else:
        judged = values.judge(plan, arguments, env)
    decision = decide_on_sources(
        judged,
        plan.untrusted,
        is_declared=plan.is_untrusted_declared,
        may_ask=env.caller.may_ask or env.asks,
        enforces=env.snapshot.policy.mode == "enforce",
    )
    return SourceReport(decision, plan.untrusted, judged)


def remember_output(
    prepared: PreparedCall, plan: CallPlan, env: CallEnvironment, ending: Ending, *, is_approved: bool = False
) -> ChangeState | None:
    """Take in what a tool returned to the model. Returns the step that tells a restart of the first such output.

    Args:
        prepared: the call.
        plan: how calls of its contract are treated.
        env: its environment.
        ending: how it ended.
        is_approved: True if a person said yes to the call.
    """
    if env.values is None:
        return None
    output = ending.outcome.text if ending.data is None or ending.outcome.content else ending.data
    env.values.add_output(plan, prepared.dumped or b"{}", output, env.step, prepared.call.id, is_approved=is_approved)
    is_new = env.snapshot.keeps_taint and not plan.labels.trusted and not env.view.state.has_read
    return ChangeState(note_reading) if is_new else None
