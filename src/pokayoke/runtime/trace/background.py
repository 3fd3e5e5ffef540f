"""Observes finished calls in the background: shadow comparisons and the replay sample.

In: finished calls, with what their tools returned.
Out: trace events, and lines of the sample.
Never: a call that is delayed, changed or failed by its observer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.shadow import shadow_event
from pokayoke.core.flow.steps import Invoke, Reaction, Returned, Step
from pokayoke.core.policy import Policy
from pokayoke.runtime.threads.background_queue import BackgroundQueue
from pokayoke.runtime.trace.completed_call import CompletedCall, freeze_reaction

if TYPE_CHECKING:
    from pokayoke.runtime.ports import GuardPort
    from pokayoke.runtime.trace.sample import Sampler

T = TypeVar("T")
_MOST_WAITING: Final = 1_000


class BackgroundObserver:
    """Observes the calls of one guard, in a thread of its own.

    Args:
        guard: the guard, whose trace takes the events.
    """

    def __init__(self, guard: GuardPort) -> None:
        """Prepare, and start no thread yet."""
        self._guard = guard
        self._policy: Policy | None = None
        self._sampler: Sampler | None = None
        self._waiting: BackgroundQueue[CompletedCall] = BackgroundQueue(
            self._process_call, _MOST_WAITING, "pokayoke-background"
        )

    @property
    def dropped_count(self) -> int:
        """Calls that were not observed: too many waited, or observing failed."""
        return self._waiting.dropped_count

    def prepare_swap(self, policy: Policy) -> Callable[[], None]:
        """Open the sample a policy names. The returned function puts it in force, for the tools in force then.

        Raises:
            ConfigurationError: the sample or its key cannot be used.
        """
        old, before = self._sampler, self._policy
        sampler = old
        if before is None or before.trace != policy.trace:
            sampler = None
            if policy.trace.sample_path is not None:
                from pokayoke.runtime.trace.sample import Sampler  # noqa: PLC0415 - loaded where a sample is written

                sampler = Sampler(policy.trace)

        def put_in_force() -> None:
            if old is not None and old is not sampler:
                self.flush()
                old.close()
            self._sampler, self._policy = sampler, policy
            if sampler is not None:
                sampler.use_contracts(self._guard.tools, policy)

        return put_in_force

    def observe_steps(
        self, steps: Generator[Step, Any, T], call: ToolCall, env: CallEnvironment, reaction: Reaction | None
    ) -> Generator[Step, Any, T]:
        """Return the steps of a call, wrapped by the background observer if the call is compared or sampled.

        Args:
            steps: of the call.
            call: the call.
            env: its environment.
            reaction: of the tool, if a framework has run it already.
        """
        if env.snapshot.shadows or (self._sampler is not None and self._sampler.is_sampled(env.run_id)):
            return self._watch_steps(steps, call, env, reaction)
        return steps

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until every call so far is processed; False if `timeout` (seconds) was too short."""
        return self._waiting.flush(timeout)

    def close(self) -> None:
        """Process waiting calls, and end the thread."""
        self._waiting.close()
        if self._sampler is not None:
            self._sampler.close()

    def _watch_steps(
        self, steps: Generator[Step, Any, T], call: ToolCall, env: CallEnvironment, reaction: Reaction | None
    ) -> Generator[Step, Any, T]:
        """Pass every step through, and copy the tool's reaction before its value can be changed."""
        limit = 4 * env.snapshot.policy.validation.tool_output.max_chars
        raw = UNSET if reaction is None else freeze_reaction(reaction, limit)
        call = _freeze_call(call, limit)
        try:
            step = next(steps)
            while True:
                answer = yield step
                if type(step) is Invoke:
                    reaction = answer[0]
                    raw = freeze_reaction(answer[0], limit)
                step = steps.send(answer)
        except StopIteration as end:
            outcome: T = end.value
        if isinstance(outcome, Outcome):
            raised = reaction is not None and not isinstance(reaction, Returned)
            self._waiting.offer(CompletedCall(call, env, outcome.tool, raw, raised, reaction is None))
        return outcome

    def _process_call(self, seen: CompletedCall) -> None:
        """Process one call, in the thread."""
        try:
            self._compare_shadow(seen)
        finally:
            sampler = self._sampler
            if sampler is not None and sampler.is_sampled(seen.env.run_id):
                self._sample_call(sampler, seen)

    def _sample_call(self, sampler: Sampler, seen: CompletedCall) -> None:
        """Write one call. If that fails, record an event: the sample must not look complete."""
        if not sampler.write_call(seen):
            self._guard.trace.record({
                "ts": seen.env.now, "run_id": seen.env.run_id, "step": seen.env.step, "event": "sample",
                "tool": seen.tool, "ok": False, "call_id": seen.call.id,
                "reason": "withheld from the sample: with pseudonyms it would be judged otherwise",
            })  # fmt: skip

    def _compare_shadow(self, seen: CompletedCall) -> None:
        env = seen.env
        shadows_of_tool = env.snapshot.shadows.get(seen.tool)
        stable = env.snapshot.find_plan(seen.tool)
        if shadows_of_tool is None or isinstance(stable, Finding):
            return
        call = msgspec.structs.replace(seen.call, name=seen.tool)
        try:
            event = shadow_event(call, env, stable, shadows_of_tool, seen.raw)
        except BaseException as error:  # noqa: BLE001 - the candidate's own code must not end the call or the thread
            event = {
                "ts": env.now, "run_id": env.run_id, "step": env.step, "event": "shadow", "tool": seen.tool,
                "ok": False, "call_id": call.id, "contract": stable.contract.id,
                "candidate": next(iter(shadows_of_tool.plans)), "differs": ("broken",),
                "reason": f"the shadow raised {type(error).__name__}",
            }  # fmt: skip
        self._guard.trace.record(event)


def _freeze_call(call: ToolCall, limit: int) -> ToolCall:
    if not isinstance(call.arguments, dict):
        return call
    kept = freeze_reaction(Returned(call.arguments), limit)
    return msgspec.structs.replace(call, arguments={} if kept is UNSET else kept)
