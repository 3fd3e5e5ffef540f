"""Performs the steps of a call; `runtime/driver/asynchronous.py` adds those that are awaited.

In: the generator of a call, and the run it belongs to.
Out: what the generator returns. A step that fails is answered with a value: an unreachable store is a refused
call, a raising tool is a reaction.
Never: a swallowed `BaseException` that ends the host (Ctrl-C, cancellation). The claim is then in doubt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.arguments import is_async
from pokayoke.core.flow.failures import not_recorded_finding, store_error_text
from pokayoke.core.flow.steps import (
    Admit,
    AskPerson,
    ChangeState,
    CheckOwner,
    CountOutput,
    Emit,
    Invoke,
    LookUp,
    NotStarted,
    Raised,
    Reaction,
    ReadRecord,
    ResolvePaths,
    Returned,
    RunUserCode,
    Settle,
    Step,
    StoreText,
    TimedOut,
    Wait,
)
from pokayoke.core.host_input import as_function
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.findings import store_unavailable_finding
from pokayoke.core.ledger.records import Admission, Claim, Record, Settlement, SettleResult
from pokayoke.core.redaction.known_secrets import KnownSecrets
from pokayoke.errors import UsageError
from pokayoke.runtime.driver.ask import ask_person, with_current_time
from pokayoke.runtime.driver.claim_owner import current_owner, is_dead
from pokayoke.runtime.driver.effect import Checks, Effect, call_with_effect, current_effect
from pokayoke.runtime.driver.late_result import record_late_result
from pokayoke.runtime.driver.path_arguments import resolve_path_arguments
from pokayoke.runtime.driver.tool_call import build_tool_arguments, capture_result, close_coroutine, is_awaitable_result
from pokayoke.runtime.memory.run_memory import StateChange, exhaust_budget
from pokayoke.runtime.threads.clock import add_jitter
from pokayoke.runtime.threads.worker_pool import LateCallback, ignore_result
from pokayoke.stores.operations import read_record_operation

if TYPE_CHECKING:
    from pokayoke.runtime.ports import RunPort

T = TypeVar("T")
_CANCEL_GRACE = 0.5
SETTLE_PAUSES = (0.05, 0.2, 0.5, None)
"""Seconds between the attempts to report an effect that has happened; None after the last one."""
Continuation = Callable[[dict[str, Any]], Any]


class SyncDriver:
    """Performs the steps of one call for a synchronous caller.

    Args:
        run: the run the call belongs to.
        invoke: a framework's continuation that runs the tool; None calls the contract's handler.
    """

    __slots__ = ("_guard", "_invoke", "_run", "misuse")

    def __init__(self, run: RunPort, invoke: Continuation | None) -> None:
        """Keep what the steps need. An `invoke` that is no function is refused before anything is claimed."""
        self._run, self._guard = run, run.guard
        self._invoke = None if invoke is None else as_function(invoke, "invoke")
        self.misuse: UsageError | None = None

    # -- steps that never wait ---------------------------------------------------------------

    def resolve_paths(self, step: ResolvePaths) -> Any:
        """Resolve path arguments."""
        return resolve_path_arguments(step.contract, step.arguments)

    def store_text(self, step: StoreText) -> str:
        """Store a large text for the paging tool."""
        return self._run.progress.texts.store_text(step.text)

    def emit_event(self, step: Emit) -> None:
        """Write a trace event."""
        self._run.trace.append(self._guard.trace.record(step.event))

    def check_owner(self, step: CheckOwner) -> float | None:
        """Return the second at which a process is proven dead, or None."""
        return self._guard.clock.monotonic() if is_dead(step.owner) else None

    # -- steps that may wait: synchronous ------------------------------------------------------

    def change_state(self, step: ChangeState) -> Any:
        """Change the run's state."""
        review = with_current_time(self._run, step.review)
        changed = self._run.progress.change_state(step.change, review)
        if review is not None:
            self._guard.announce(review)
        return changed

    def count_output(self, step: CountOutput) -> None:
        """Count an invalid output."""
        self._guard.switchboard.count_invalid(step.seen)
        self._guard.switchboard.flush()

    def run_user_code(self, step: RunUserCode) -> Reaction:
        """Run a function that calls user code: in a worker if it has a deadline, else in this thread."""
        if step.timeout is None:
            return capture_result(step.function)
        return self._guard.workers.run_with_deadline(step.function, step.timeout)

    def admit_request(self, step: Admit) -> Admission:
        """Ask the run for admission, then the store."""
        request = step.request
        is_shared = request.needs_shared_state
        change, spent = self._find_due_change(request, is_shared=is_shared)
        if change is not None:
            self._run.progress.change_state(change)
        if (answer := self._admit_without_store(request, spent, is_shared=is_shared)) is not None:
            return answer
        request = self._stamp_request(request)
        try:
            return self._handle_admission(request, self._guard.store.admit(request))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the write is then refused
            return Admission("refuse", store_unavailable_finding(request.tool, store_error_text(error)))

    def read_record(self, step: ReadRecord) -> Record | Finding | None:
        """Read a record."""
        try:
            return self._guard.store.run(read_record_operation(step.key))
        except Exception as error:  # noqa: BLE001 - as in `admit`
            return store_unavailable_finding(step.tool, store_error_text(error))

    def ask_person(self, step: AskPerson) -> bool | None:
        """Ask the host's callback; announce a question it leaves open."""
        said = ask_person(self._run, step.approval)
        if said is None:
            self._guard.announce(step.approval)
        return said

    def look_up(self, step: LookUp) -> Reaction:
        """Look an effect up at its target, in a worker with a deadline."""
        lookup = step.contract.lookup
        assert lookup is not None, "a contract with a lookup has one"
        if is_async(lookup):
            return self._await_in_worker(lambda: lookup(step.key, step.arguments), step.timeout, ignore_result)
        return self._guard.workers.run_with_deadline(lambda: lookup(step.key, step.arguments), step.timeout)

    def invoke_tool(self, step: Invoke) -> tuple[Reaction, float]:
        """Run the tool in this thread, or in a worker if it declares a deadline."""
        watched = self._guard.on_step is not None
        if watched:
            self._run.notice("before_invoke")
        begun = time.perf_counter()
        try:
            function = self._bind_tool(step)
        except UsageError as error:
            return self._report_misuse(error)
        if step.contract.is_async and self._invoke is None:
            reaction = self._run_in_own_loop(function, step)
        elif step.timeout is None:
            reaction = capture_result(function)
        else:
            reaction = self._guard.workers.run_with_deadline(function, step.timeout, self._late_callback(step))
        if is_awaitable_result(reaction):
            pending = reaction.value
            reaction = self._run_in_own_loop(lambda: pending, step)
            if isinstance(reaction, NotStarted):  # the awaitable did not start; the function that returned it has run
                close_coroutine(pending)
                reaction = Raised(RuntimeError(reaction.reason))
        seconds = time.perf_counter() - begun
        if watched:
            self._run.notice("after_invoke")
        return reaction, seconds

    def pause_before_retry(self, step: Wait) -> None:
        """Sleep before a retry."""
        self._guard.clock.sleep(add_jitter(step))

    def settle_claim(self, step: Settle) -> Finding | Record | None:
        """Report to the ledger, and again if it cannot be reached. The ledger recognises a repeated report."""
        for pause in SETTLE_PAUSES:
            try:
                return self._handle_settlement(step, self._guard.store.settle(self._build_report(step)))
            except Exception as error:  # noqa: BLE001 - a store may raise anything; the effect stays in doubt
                if pause is None:
                    return self._report_unsettled(step, store_error_text(error))
            self._guard.clock.sleep(pause)
        raise AssertionError("the last round returns")

    # -- parts -----------------------------------------------------------------------------------

    def _bind_tool(self, step: Invoke) -> Callable[[], Any]:
        contract, claim = step.contract, step.claim
        key = None if claim is None else claim.key
        arguments = build_tool_arguments(contract, step.arguments, step.located, key, is_sole_owner=step.is_sole_owner)
        function: Callable[[], Any]
        if self._invoke is not None:
            function = partial(self._invoke, arguments)
        else:
            function = partial(contract.handler or self._run.handler(contract), **arguments)
        if claim is None and current_effect() is None:
            return function
        checks: Checks = []
        effect = None if claim is None else self._build_effect(step, claim, checks)
        return partial(call_with_effect, effect, function, checks)

    def _build_effect(self, step: Invoke, claim: Claim, checks: Checks) -> Effect:
        deadline = None if step.timeout is None else time.monotonic() + step.timeout
        guard = self._guard
        now = guard.clock.now
        return Effect(claim.key, step.attempt, deadline, claim.claim_id, guard.store, now, checks, current_effect())

    def _stamp_request(self, request: AdmissionRequest) -> AdmissionRequest:
        """Return the request with the present time, which may be long after the call began, and its owner."""
        now = self._guard.clock.now()
        claim, approval = request.claim, request.approval
        if claim is not None:
            claim = msgspec.structs.replace(claim, now=now, owner=current_owner())
        if approval is not None:
            approval = approval.asked(now)
            approval = approval if self._guard.store.sealed else self._redact_question(approval)
        return msgspec.structs.replace(request, now=now, claim=claim, approval=approval)

    def _redact_question(self, approval: Approval) -> Approval:
        """Return the question without secrets, for a store that does not encrypt."""
        shown = self._guard.trace.redactor.redact_payload(
            dump_compact(approval.arguments, sort=True), marks=approval.marks
        )
        return msgspec.structs.replace(approval, arguments=msgspec.json.decode(shown), marks=())

    def _build_report(self, step: Settle) -> Settlement:
        """Return the report as of now, without an output whose secrets the store would not encrypt."""
        settlement = step.settlement
        output = settlement.output
        if output is not None and not self._guard.store.sealed:
            redactor, seen = self._guard.trace.redactor, KnownSecrets()
            redactor.redact_payload(step.arguments, marks=step.secret_fields, seen=seen)
            clean = redactor.redact_payload(output, marks=step.secret_fields, seen=seen)
            output = output if clean == output else None
        return msgspec.structs.replace(settlement, now=self._guard.clock.now(), output=output)

    def _report_misuse(self, error: UsageError) -> tuple[Reaction, float]:
        """Let the claim be settled as not started first; the caller's mistake is raised after that."""
        self.misuse = error
        return NotStarted(str(error)), 0.0

    def _run_in_own_loop(self, function: Callable[[], Any], step: Invoke) -> Reaction:
        """Run an asynchronous tool for a synchronous caller, in an event loop in a worker.

        The worker's own limit is a little longer; it matters only if the tool ignores its cancellation.
        """
        limit = step.timeout or self._guard.snapshot.policy.execution.timeout
        return self._await_in_worker(function, limit, self._late_callback(step))

    def _await_in_worker(self, function: Callable[[], Any], limit: float, late: LateCallback) -> Reaction:
        import asyncio  # noqa: PLC0415 - 20 ms of import, for those whose tools are asynchronous

        from pokayoke.runtime.driver.awaiting import await_in_own_task  # noqa: PLC0415 - as above

        def forward_late_result(outer: Reaction) -> None:
            reaction = cast("Reaction", outer.value) if isinstance(outer, Returned) else outer
            if not isinstance(reaction, TimedOut):  # by then it is cancelled or reported
                late(reaction)

        outer = self._guard.workers.run_with_deadline(
            lambda: asyncio.run(await_in_own_task(function, limit, late)), limit + _CANCEL_GRACE, forward_late_result
        )
        if isinstance(outer, TimedOut):
            return TimedOut(limit)
        return cast("Reaction", outer.value) if isinstance(outer, Returned) else outer

    def _late_callback(self, step: Invoke) -> LateCallback:
        run, contract, claim = self._run, step.contract, step.claim
        return lambda reaction: record_late_result(run, contract, claim, reaction)

    def _find_due_change(
        self, request: AdmissionRequest, *, is_shared: bool
    ) -> tuple[StateChange | None, Finding | None]:
        """Return the state change to store before the admission, and the finding of a spent budget, if any.

        A store that does not know the run's latch must admit nothing, so an unsaved change is tried again.
        """
        force, progress = self._guard.snapshot, self._run.progress
        if force.budgeted and (spent := progress.find_spent_budget(force.policy.budgets, request.step)) is not None:
            return exhaust_budget, spent
        return progress.with_totals if is_shared and progress.unsaved is not None else None, None

    def _admit_without_store(
        self, request: AdmissionRequest, spent: Finding | None, *, is_shared: bool
    ) -> Admission | None:
        """Admit or refuse a call that needs no store; None if the store decides."""
        progress = self._run.progress
        if spent is not None:
            return Admission("refuse", spent)
        if not is_shared:
            return progress.admit_locally(request)
        problem = progress.unsaved
        return None if problem is None else Admission("refuse", store_unavailable_finding(request.tool, problem))

    def _handle_admission(self, request: AdmissionRequest, answer: Admission) -> Admission:
        if answer.finding and answer.finding.code == "kill_switch" and self._guard.switchboard.catch_up():
            answer = self._guard.store.admit(request)
        if answer.kind == "execute" and request.claim is not None:
            self._run.progress.matters.begin_claim(request.claim)
            if self._guard.on_step is not None:
                self._run.notice("after_claim")
        question = request.approval
        if question is not None and self._guard.on_ask is None and needs_person(answer):
            self._guard.announce(msgspec.structs.replace(question, id=answer.approval or question.id))
        return answer

    def _handle_settlement(self, step: Settle, settled: SettleResult) -> Finding | Record | None:
        if self._guard.on_step is not None:
            self._run.notice("after_settle")
        record = settled.record
        if step.settlement.state.startswith("failed") and record is not None and not record.state.startswith("failed"):
            return record  # another execution may have done what this one has not
        if settled.accepted:
            if record is not None:
                self._run.progress.matters.apply_settlement(record)
            return None
        if step.settlement.state != "completed":
            # An effect the ledger knows has happened, whatever failed afterwards; any other doubt stays.
            return record if record is not None and record.is_final else None
        return record or not_recorded_finding(step.tool, "the ledger does not know the claim")

    def _report_unsettled(self, step: Settle, problem: str) -> Finding | None:
        self._run.notice("after_settle")
        return None if step.settlement.state == "in_doubt" else not_recorded_finding(step.tool, problem)


def needs_person(answer: Admission) -> bool:
    """Return whether a question waits for a person because of this answer."""
    return answer.kind == "pending" or (answer.finding is not None and answer.finding.code == "approval_expired")


HANDLERS: dict[type, Callable[[SyncDriver, Any], Any]] = {
    ResolvePaths: SyncDriver.resolve_paths,
    ChangeState: SyncDriver.change_state,
    StoreText: SyncDriver.store_text,
    Emit: SyncDriver.emit_event,
    RunUserCode: SyncDriver.run_user_code,
    Admit: SyncDriver.admit_request,
    ReadRecord: SyncDriver.read_record,
    AskPerson: SyncDriver.ask_person,
    Invoke: SyncDriver.invoke_tool,
    Wait: SyncDriver.pause_before_retry,
    Settle: SyncDriver.settle_claim,
    LookUp: SyncDriver.look_up,
    CheckOwner: SyncDriver.check_owner,
    CountOutput: SyncDriver.count_output,
}


def drive_steps(walk: Generator[Step, Any, T], world: SyncDriver) -> T:
    """Perform the steps of a call in order and return what its generator returns."""
    try:
        step = next(walk)
        while True:
            step = walk.send(HANDLERS[type(step)](world, step))
    except StopIteration as end:
        if world.misuse is not None:
            raise world.misuse from None
        ended: T = end.value
        return ended
