"""Performs the steps of a call. `runtime/driver/asynchronous.py` waits in an event loop instead of a thread.

In: the generator of a call, and the run it belongs to.
Out: what the generator returns. A step that fails is answered with a value: an unreachable store is a refused
call, a raising tool is a reaction.
Never: a swallowed `BaseException` that ends the host (Ctrl-C, cancellation). The claim is then in doubt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar, cast

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
    ListEffects,
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
from pokayoke.runtime.driver.path_arguments import confine_arguments
from pokayoke.runtime.driver.tool_call import build_tool_arguments, capture_result, close_coroutine, is_awaitable_result
from pokayoke.runtime.memory.run_memory import StateChange, exhaust_budget
from pokayoke.runtime.threads.clock import add_jitter
from pokayoke.runtime.threads.coroutines import run_in_thread
from pokayoke.runtime.threads.worker_pool import LateCallback, ignore_result
from pokayoke.stores.operations import read_record_operation

if TYPE_CHECKING:
    from pokayoke.runtime.ports import RunPort

T = TypeVar("T")
_CANCEL_GRACE = 0.5
_COROUTINE: type[Any] = CoroutineType  # of that name, a checker takes an answer for a coroutine of unknown things
SETTLE_PAUSES = (0.05, 0.2, 0.5, None)
"""Seconds between the attempts to report an effect that has happened; None after the last one."""
Continuation = Callable[[dict[str, Any]], Any]
Answer: TypeAlias = T | Coroutine[Any, Any, T]
"""What a step is answered with, or the wait for it."""


class CallerGoneError(Exception):
    """What becomes of a write whose caller was interrupted or cancelled while it ran: it is in doubt at once."""

    def __str__(self) -> str:
        """Return why nobody knows what became of it."""
        return "its caller was interrupted or cancelled while it ran"


_CALLER_GONE: Final[Reaction] = Raised(CallerGoneError())


class SyncDriver:
    """Performs the steps of one call for a synchronous caller.

    Args:
        run: the run the call belongs to.
        invoke: a framework's continuation that runs the tool; None calls the contract's handler.
    """

    __slots__ = ("_guard", "_invoke", "_run", "gone", "misuse")
    may_wait: ClassVar[bool] = False
    """Whether the caller has an event loop, in which a step waits."""

    def __init__(self, run: RunPort, invoke: Continuation | None) -> None:
        """Keep what the steps need. An `invoke` that is no function is refused before anything is claimed."""
        self._run, self._guard = run, run.guard
        self._invoke = None if invoke is None else as_function(invoke, "invoke")
        self.misuse: UsageError | None = None
        self.gone = _CALLER_GONE

    def end_without_caller(self, walk: Generator[Step, Any, Any]) -> Any:
        """End a write whose caller is gone: its claim is settled, its events are written."""
        return drive_steps(walk, SyncDriver(self._run, None), (self.gone, 0.0))

    # -- steps that never wait ---------------------------------------------------------------

    def resolve_paths(self, step: ResolvePaths) -> Any:
        """Resolve path arguments, and put URL arguments under their rules."""
        return confine_arguments(step.contract, step.arguments)

    def store_text(self, step: StoreText) -> str:
        """Store a large text for the paging tool."""
        return self._run.progress.texts.store_text(step.text)

    def emit_event(self, step: Emit) -> None:
        """Write a trace event."""
        self._run.trace.append(self._guard.trace.record(step.event))

    def check_owner(self, step: CheckOwner) -> float | None:
        """Return the second at which a process is proven dead, or None."""
        return self._guard.clock.monotonic() if is_dead(step.owner) else None

    # -- steps that may wait ---------------------------------------------------------------------

    async def change_state(self, step: ChangeState) -> Any:
        """Change the run's state."""
        review = with_current_time(self._run, step.review)
        changed = await self._run.progress.achange_state(step.change, review, may_wait=self.may_wait)
        if review is not None:
            self._guard.announce(review)
        return changed

    async def count_output(self, step: CountOutput) -> None:
        """Count an invalid output; an event loop does not wait for the disk."""
        board = self._guard.switchboard
        board.count_invalid(step.seen)
        reaction = None
        if self.may_wait and self._guard.store.durable:
            reaction = await self.run_in_worker(board.flush, self._guard.snapshot.policy.execution.timeout, None)
        if isinstance(reaction, Raised):
            raise reaction.error
        if reaction is None or isinstance(reaction, NotStarted):  # every thread hangs; better late than not at all
            board.flush()

    def run_user_code(self, step: RunUserCode) -> Answer[Reaction]:
        """Run a function that calls user code: in a worker if it has a deadline, else in this thread."""
        if step.timeout is None:
            return capture_result(step.function)
        return self.run_in_worker(step.function, step.timeout, None)

    def admit_request(self, step: Admit) -> Answer[Admission]:
        """Ask the run for admission, then the store.

        A store that does not know the run's latch must admit nothing, so an unsaved change is stored first.
        """
        request, force, progress = step.request, self._guard.snapshot, self._run.progress
        if force.budgeted and (spent := progress.find_spent_budget(force.policy.budgets, request.step)) is not None:
            return self._admit_after_change(request, exhaust_budget, spent)
        if not request.needs_shared_state:
            return progress.admit_locally(request)
        if progress.unsaved is not None:
            return self._admit_after_change(request, progress.with_totals, None)
        return self.admit_at_store(self._stamp_request(request))

    async def _admit_after_change(
        self, request: AdmissionRequest, change: StateChange, finding: Finding | None
    ) -> Admission:
        progress = self._run.progress
        await progress.achange_state(change, may_wait=self.may_wait)
        if finding is None and progress.unsaved is not None:
            finding = store_unavailable_finding(request.tool, progress.unsaved)
        if finding is not None:
            return Admission("refuse", finding)
        answer = self.admit_at_store(self._stamp_request(request))
        return answer if isinstance(answer, Admission) else await answer

    def admit_at_store(self, request: AdmissionRequest) -> Answer[Admission]:
        """Ask the store for admission."""
        try:
            return self._handle_admission(request, self._guard.store.admit(request))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the write is then refused
            return refuse_unreachable(request, error)

    async def read_record(self, step: ReadRecord) -> Record | Finding | None:
        """Read a record."""
        store, operation = self._guard.store, read_record_operation(step.key)
        try:
            record = await store.arun(operation) if self.may_wait else store.run(operation)
        except Exception as error:  # noqa: BLE001 - as in `admit_at_store`
            return store_unavailable_finding(step.tool, store_error_text(error))
        return record

    async def list_effects(self, step: ListEffects) -> tuple[str, ...]:
        """List what the run wrote after an effect; an event loop does not wait for the ledger."""
        matters = self._run.progress.matters
        if self.may_wait and self._guard.store.durable and not matters.has_read_ledger:
            await self.run_in_worker(matters.read_ledger, self._guard.snapshot.policy.execution.timeout, None)
        else:
            matters.read_ledger()
        return matters.effects_since(step.record)

    async def ask_person(self, step: AskPerson) -> bool | None:
        """Ask the host's callback; announce a question it leaves open."""
        said = await ask_person(self._run, step.approval, may_wait=self.may_wait)
        if said is None:
            self._guard.announce(step.approval)
        return said

    def look_up(self, step: LookUp) -> Coroutine[Any, Any, Reaction]:
        """Look an effect up at its target, with a deadline."""
        lookup = step.contract.lookup
        assert lookup is not None, "a contract with a lookup has one"
        function = partial(lookup, step.key, step.arguments)
        if is_async(lookup):
            return self.await_apart(function, step.timeout, ignore_result)
        return self.run_in_worker(function, step.timeout, None)

    def invoke_tool(self, step: Invoke) -> Answer[tuple[Reaction, float]]:
        """Run the tool in a worker if something cuts it, else in this thread; await an asynchronous one."""
        watched = self._guard.on_step is not None
        if watched:
            self._run.notice("before_invoke")
        begun = time.perf_counter()
        # A sync tool would block the event loop of an asynchronous caller, so it goes to a worker unless it must not.
        is_awaited = step.contract.is_async if self._invoke is None else self.may_wait and is_async(self._invoke)
        is_cut = is_awaited or (self.may_wait and step.contract.thread is None)
        limit = self._limit(step) if is_cut else step.timeout
        try:
            function = self._bind_tool(step, limit)
        except UsageError as error:
            return self._report_misuse(error)
        if is_awaited:
            return self._await_reaction(step, self.await_tool(function, step), begun)
        if limit is not None:
            waiting = self.run_in_worker(function, limit, self._late_callback(step))
            return self._await_reaction(step, waiting, begun)
        reaction = capture_result(function)
        if is_awaitable_result(reaction):
            return self._await_reaction(step, reaction, begun)
        # As `_await_reaction` ends; a function for both would be 0.3 % of a clean read.
        seconds = time.perf_counter() - begun
        if watched:
            self._run.notice("after_invoke")
        return reaction, seconds

    async def _await_reaction(self, step: Invoke, answer: Answer[Reaction], begun: float) -> tuple[Reaction, float]:
        reaction = await answer if isinstance(answer, Coroutine) else answer
        if is_awaitable_result(reaction):
            pending = reaction.value
            reaction = await self.await_apart(lambda: pending, self._limit(step), self._late_callback(step))
            if isinstance(reaction, NotStarted):  # the awaitable did not start; the function that returned it has run
                close_coroutine(pending)
                reaction = Raised(RuntimeError(reaction.reason))
        seconds = time.perf_counter() - begun
        self._run.notice("after_invoke")
        return reaction, seconds

    def pause_before_retry(self, step: Wait) -> Coroutine[Any, Any, None]:
        """Sleep before a retry."""
        return self.pause(add_jitter(step))

    def settle_claim(self, step: Settle) -> Answer[Finding | Record | None]:
        """Report to the ledger, and again if it cannot be reached. The ledger recognises a repeated report."""
        try:
            return self.settle_at_once(step)
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the effect stays in doubt
            return self.settle_with_pauses(step, error)

    def settle_at_once(self, step: Settle) -> Finding | Record | None:
        """Report to a ledger that is not awaited; it may raise anything."""
        return self._handle_settlement(step, self._guard.store.settle(self._build_report(step)))

    async def settle_with_pauses(self, step: Settle, error: Exception | None = None) -> Finding | Record | None:
        """Report to the ledger until it answers; `error` is what the first report raised, if there was one."""
        for pause in SETTLE_PAUSES:
            if error is None:
                try:
                    if not self.may_wait:
                        return self.settle_at_once(step)
                    return self._handle_settlement(step, await self._guard.store.asettle(self._build_report(step)))
                except Exception as failure:  # noqa: BLE001 - as in `settle_claim`
                    error = failure
            if pause is None:
                return self._report_unsettled(step, store_error_text(error))
            await self.pause(pause)
            error = None
        raise AssertionError("the last round returns")

    # -- how a synchronous caller waits ----------------------------------------------------------

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        self._guard.clock.sleep(seconds)

    async def run_in_worker(self, function: Callable[[], Any], limit: float, late: LateCallback | None) -> Reaction:
        """Run a function in a worker and wait at most `limit` seconds for it."""
        return self._guard.workers.run_with_deadline(function, limit, late)

    def await_tool(self, function: Callable[[], Any], step: Invoke) -> Coroutine[Any, Any, Reaction]:
        """Await what a tool returns, up to its deadline or that of the policy."""
        return self.await_apart(function, self._limit(step), self._late_callback(step))

    async def await_apart(self, function: Callable[[], Any], limit: float, late: LateCallback) -> Reaction:
        """Await what a function returns, in an event loop in a worker.

        The worker's own limit is a little longer; it matters only if the function ignores its cancellation.
        """
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

    # -- parts -----------------------------------------------------------------------------------

    def _bind_tool(self, step: Invoke, limit: float | None) -> Callable[[], Any]:
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
        effect = None if claim is None else self._build_effect(step, limit, claim, checks)
        return partial(call_with_effect, effect, function, checks)

    def _build_effect(self, step: Invoke, limit: float | None, claim: Claim, checks: Checks) -> Effect:
        deadline = None if limit is None else time.monotonic() + limit
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

    def _limit(self, step: Invoke) -> float:
        return step.timeout or self._guard.snapshot.policy.execution.timeout

    def _late_callback(self, step: Invoke) -> LateCallback:
        run, contract, claim = self._run, step.contract, step.claim
        return lambda reaction: record_late_result(run, contract, claim, reaction)

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


def refuse_unreachable(request: AdmissionRequest, error: Exception) -> Admission:
    """Return the refusal of a call whose store could not be reached."""
    return Admission("refuse", store_unavailable_finding(request.tool, store_error_text(error)))


def needs_person(answer: Admission) -> bool:
    """Return whether a question waits for a person because of this answer."""
    return answer.kind == "pending" or (answer.finding is not None and answer.finding.code == "approval_expired")


def is_running_write(step: Step) -> bool:
    """Return whether a step runs a tool whose effect somebody has to know of."""
    return isinstance(step, Invoke) and step.claim is not None


HANDLERS: dict[type, Callable[[SyncDriver, Any], Any]] = {
    ResolvePaths: SyncDriver.resolve_paths,
    ChangeState: SyncDriver.change_state,
    StoreText: SyncDriver.store_text,
    Emit: SyncDriver.emit_event,
    RunUserCode: SyncDriver.run_user_code,
    Admit: SyncDriver.admit_request,
    ReadRecord: SyncDriver.read_record,
    AskPerson: SyncDriver.ask_person,
    ListEffects: SyncDriver.list_effects,
    Invoke: SyncDriver.invoke_tool,
    Wait: SyncDriver.pause_before_retry,
    Settle: SyncDriver.settle_claim,
    LookUp: SyncDriver.look_up,
    CheckOwner: SyncDriver.check_owner,
    CountOutput: SyncDriver.count_output,
}


def drive_steps(walk: Generator[Step, Any, T], world: SyncDriver, first: Any = None) -> T:
    """Perform the steps of a call in order and return what its generator returns.

    Args:
        walk: the generator.
        world: performs the steps.
        first: the answer to the step that the generator waits for; None starts it.
    """
    try:
        step = walk.send(first)
        while True:
            try:
                answer: Any = HANDLERS[type(step)](world, step)
                if type(answer) is _COROUTINE:
                    answer = run_in_thread(answer)
            except KeyboardInterrupt:
                if is_running_write(step):
                    world.end_without_caller(walk)
                raise
            step = walk.send(answer)
    except StopIteration as end:
        if world.misuse is not None:
            raise world.misuse from None
        ended: T = end.value
        return ended
