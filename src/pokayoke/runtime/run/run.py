"""One agent run: it takes tool calls, keeps its state, and says how it ended.

In: tool calls, the user's texts, and reports of the host.
Out: outcomes, tool definitions, and the checked final answer.
Never: a call without its outcome.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import msgspec

from pokayoke.core.call import SUCCESSFUL, Mode, Outcome, StopReason, ToolCall, Verdict
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.admit import admit_call, check_call
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.events import stop_event
from pokayoke.core.flow.finish import finish_call
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.flow.states import AdmittedCall, Attempts
from pokayoke.core.flow.steps import Reaction, Step
from pokayoke.core.flow.walk import run_call
from pokayoke.core.gate.rules import Principal
from pokayoke.core.host_input import as_prompt, as_stop_reason, as_text_id, as_token_count
from pokayoke.core.messages.messages import text_of
from pokayoke.core.messages.tool_definitions import build_definitions, build_instructions
from pokayoke.core.state.final_answer import Answer
from pokayoke.core.state.loop_guard import TurnHistory
from pokayoke.core.state.run_state import RunState, step_down_to, unlatch
from pokayoke.errors import UsageError
from pokayoke.runtime.driver.effect import effects_in_progress
from pokayoke.runtime.driver.sync import Continuation, SyncDriver, drive_steps
from pokayoke.runtime.memory.run_memory import RunMemory
from pokayoke.runtime.memory.seen_answers import SeenAnswers
from pokayoke.runtime.run.batch import arun_batch, run_batch
from pokayoke.runtime.run.compaction import answer_steps, describe_steps
from pokayoke.runtime.run.ticket import Ticket, build_reaction, close_ticket
from pokayoke.runtime.threads.forks import process_token
from pokayoke.runtime.trace.log import log_problem
from pokayoke.runtime.trace.ring import EventRing

if TYPE_CHECKING:
    from pokayoke.core.context.open_calls import CallAnswer, UnansweredCall
    from pokayoke.runtime.ports import BatchInvoke, GuardPort
    from pokayoke.runtime.tools.selection import Selection
    from pokayoke.runtime.tools.view import ToolView

T = TypeVar("T")
_SCOPE_ORDER = ("run", "session", "tenant")
_numbers = itertools.count()


def guard_closed_error() -> UsageError:
    """Return the error for the use of a closed guard: its trace takes no events and its store may be closed."""
    return UsageError("the guard was closed: close it after the last call, or build another one to go on")


@functools.cache
def _async_driver() -> ModuleType:
    """The asynchronous driver. asyncio is 20 ms of import, and looking for it anew would cost every call."""
    from pokayoke.runtime.driver import asynchronous as adriver  # noqa: PLC0415 - as above

    return adriver


class Run:
    """Made by `Guard.run`. A context manager, synchronous and asynchronous; thread-safe.

    Attributes:
        id: the run's id; `named` says whether the host chose it.
        guard: the guard it belongs to.
        view: the contracts it sees.
        session: id of the session, if any.
        tenant: whose data it is, if there are several.
        principal: on whose behalf it acts, if known.
        trace: the latest events, oldest first.
        progress: what it remembers while it is open.
        selection: the tools it offers, if it selects from a large catalogue.
        seen: what its callers have seen.
        can_ask: True if a person can be asked: by a callback, by the framework, or through a durable store.
    """

    def __init__(
        self,
        guard: GuardPort,
        run_id: str,
        *,
        named: bool,
        session: str | None,
        tenant: str | None,
        principal: Principal | None,
        progress: RunMemory,
        view: ToolView,
    ) -> None:
        """Open or reopen a run. `named` tells whether the host chose the id; `progress` may be shared."""
        self.id, self.guard, self.view = run_id, guard, view
        self.session, self.tenant, self.principal = session, tenant, principal
        self.trace = EventRing(guard.snapshot.policy.trace.ring)
        self.progress, self.named = progress, named
        self.selection: Selection | None = None
        self.seen, self.can_ask = SeenAnswers(), guard.on_ask is not None or guard.store.durable
        self._number, self._closed, self._well = next(_numbers), False, True

    def __repr__(self) -> str:
        """Return one line: its id, its mode, and why it stopped."""
        reason = f", {self.stop_reason}" if self.stop_reason else ""
        return f"<Run {self.id!r}: {self.mode}{reason}>"

    @property
    def mode(self) -> Mode:
        """normal, safe_mode (reads only), final_answer (no tools) or stopped."""
        return self.state.effective_mode

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it stopped. Closed without a stop: what is open, else `success`; None after an exception, or unknown."""
        if self.state.stop_reason is not None:
            return self.state.stop_reason
        if self.state.taints:
            return "invalid_tool_output"
        return self.progress.matters.ending_reason(well=self._well) if self._closed else None

    @property
    def state(self) -> RunState:
        """What a restart would find."""
        return self.progress.state

    @property
    def rounds(self) -> TurnHistory:
        """What this turn has seen."""
        return self.progress.rounds

    @property
    def instruction(self) -> str | None:
        """What to tell the model with the next request, now that its tools are off; None while they are on.

        Add it to that request only, not to the history: in the next turn it is no longer true.
        """
        self._end_round()
        if self.mode != "final_answer":
            return None
        return self.state.loop.why or "Tools are off for this turn. Answer the user directly and say what was not done."

    @property
    def tokens(self) -> int:
        """Tokens so far: reported ones, and estimates since the last report."""
        return self.progress.tokens.total

    @property
    def snapshot(self) -> Snapshot:
        """The contracts and the policy in force."""
        if self.selection is not None:
            return self.selection.snapshot
        return self.view.paged if self.progress.texts.any else self.view.snapshot

    # -- what the host says ------------------------------------------------------------------------

    def user(self, text: str, *, id: str | None = None) -> None:  # noqa: A002 - the published name
        """Begin a turn with the user's text: streaks and `final_answer` end, totals and the latch stay.

        A text that the run knows begins none: one with an `id` of before, or, without ids, the text of the present
        turn as long as that has no answer (`answer`).

        Args:
            text: what the user said.
            id: the host's own id of the message, if it has one.
        """
        self.guard.refresh()
        self.progress.tokens.add(as_prompt(text))
        self.progress.begin_turn(text_of({"content": text}), None if id is None else as_text_id(id, "id"))

    def set_history(self, messages: Iterable[Any]) -> None:
        """Say what the request carried whose calls come next: what stands there is what their caller has seen.

        An equal write is a new wish only if the answer of the one before stands there. For adapters and loops that
        know each request; see also `history` of `Guard.run`.

        Args:
            messages: the messages, in the shape of OpenAI, Anthropic or LangChain.
        """
        self.seen.set_history(messages, self.state.turn, is_exact=True)

    def answer_open_calls(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return a history in which each call has a result, as providers require it.

        A call that nobody answered gets what the ledger knows of it: the result of a write that is done, or that
        nobody knows. Nothing runs. Hosts with a loop of their own call it before a request.

        Args:
            messages: the history, in the shape of OpenAI, Anthropic or LangChain. It is not changed, and comes back
                itself if every call has a result.
        """
        return drive_steps(answer_steps(self._build_environment(0), messages), SyncDriver(self, None))

    async def aanswer_open_calls(self, messages: Sequence[Any]) -> Sequence[Any]:
        """`answer_open_calls` for asynchronous code."""
        return await self._adrive_steps(answer_steps(self._build_environment(0), messages))

    async def adescribe_open_calls(self, messages: Sequence[Any]) -> list[tuple[UnansweredCall, CallAnswer]]:
        """Return the calls of a history that nobody answered, each with what `answer_open_calls` puts in its place.

        For hosts whose messages have a shape of their own: they put the results into it themselves.

        Args:
            messages: the history, in a shape that `answer_open_calls` takes.
        """
        return await self._adrive_steps(describe_steps(self._build_environment(0), messages))

    def usage(self, tokens: int) -> None:
        """Report the tokens the provider counted for the conversation so far; estimates start from there."""
        self.progress.tokens.report(as_token_count(tokens))

    def stop(self, reason: StopReason = "kill_switch") -> None:
        """Stop the run: no tool runs any more."""
        self._step_down("stopped", as_stop_reason(reason))

    def clear_latch(self, tool: str, *, by: str, reason: str) -> None:
        """Let writes go on although a tool's last output was invalid: a person takes responsibility."""
        self.progress.change_state(lambda state: unlatch(state, tool))
        self.note("latch", tool=tool, ok=True, by=by, reason=reason)

    # -- tool calls --------------------------------------------------------------------------------

    def check(self, call: ToolCall) -> Verdict:
        """Say what would be decided, but for the store's part (limits, switches, equal writes). Nothing is recorded."""
        env = self._build_environment(self.progress.step + 1)
        return drive_steps(check_call(self._rate_call(call), env), SyncDriver(self, None))

    def call(self, call: ToolCall, *, invoke: Continuation | None = None) -> Outcome:
        """Take one tool call from the model's text to an outcome.

        Args:
            call: what the model asks for.
            invoke: runs the tool instead of the contract's handler; called with the effective arguments.

        Raises:
            UsageError: there is nothing that runs the tool, or the guard was closed.
        """
        call, env = self._rate_call(call), self._next_environment()
        steps = run_call(call, env)
        if self.guard.beside is not None:
            steps = self._observe_steps(steps, call, env)
        return self._record_outcome(drive_steps(steps, SyncDriver(self, invoke)), env, call)

    async def acall(self, call: ToolCall, *, invoke: Continuation | None = None) -> Outcome:
        """`call` for asynchronous code; `invoke` may return an awaitable."""
        await _async_driver().wait_for_turn()
        call, env = self._rate_call(call), self._next_environment()
        steps = run_call(call, env)
        if self.guard.beside is not None:
            steps = self._observe_steps(steps, call, env)
        return self._record_outcome(await self._adrive_steps(steps, invoke), env, call)

    def call_batch(
        self, calls: Sequence[ToolCall], *, stop_reason: str | None = None, invoke: BatchInvoke | None = None
    ) -> list[Outcome]:
        """Take all calls of one message: reads side by side, writes in order, one outcome for each.

        Args:
            calls: the calls in the order of the message.
            stop_reason: why the provider says the message ended; a cut message stops every call.
            invoke: runs a tool instead of its handler; called with the call and the effective arguments.
        """
        with self.round():
            return run_batch(self, calls, stop_reason, invoke)

    async def acall_batch(
        self, calls: Sequence[ToolCall], *, stop_reason: str | None = None, invoke: BatchInvoke | None = None
    ) -> list[Outcome]:
        """`call_batch` for asynchronous code."""
        with self.progress.count_one_round():
            outcomes = await arun_batch(self, calls, stop_reason, invoke)
        await self._aend_round()
        return outcomes

    @contextmanager
    def round(self) -> Generator[None]:
        """Count all calls inside as one round, for hosts that take the calls of one message one by one."""
        with self.progress.count_one_round():
            yield
        self._end_round()

    def begin(self, call: ToolCall) -> Ticket:
        """Walk a call up to the tool's door, for frameworks with a hook before and a hook after a tool.

        A ticket that is never finished leaves its claim open: the write becomes in doubt.
        """
        call, env = self._rate_call(call), self._next_environment()
        return self._build_ticket(
            env, call, drive_steps(self._observe_steps(admit_call(call, env), call, env), SyncDriver(self, None))
        )

    async def abegin(self, call: ToolCall) -> Ticket:
        """`begin` for asynchronous code."""
        await _async_driver().wait_for_turn()
        call, env = self._rate_call(call), self._next_environment()
        return self._build_ticket(
            env, call, await self._adrive_steps(self._observe_steps(admit_call(call, env), call, env))
        )

    def finish(self, ticket: Ticket, *, result: Any = None, error: BaseException | str | None = None) -> Outcome:
        """Judge what the framework's tool answered and settle the claim.

        Args:
            ticket: from `begin`.
            result: what the tool returned.
            error: what it raised, or its error text; then `result` is not looked at.

        Raises:
            UsageError: the ticket was finished before, or is of another run.
        """
        if (ended := close_ticket(ticket, self.id)) is not None:
            return ended
        return self._record_outcome(
            drive_steps(self._finish_steps(ticket, result, error), SyncDriver(self, None)), ticket.env, ticket.call
        )

    async def afinish(self, ticket: Ticket, *, result: Any = None, error: BaseException | str | None = None) -> Outcome:
        """`finish` for asynchronous code."""
        if (ended := close_ticket(ticket, self.id)) is not None:
            return ended
        return self._record_outcome(
            await self._adrive_steps(self._finish_steps(ticket, result, error)), ticket.env, ticket.call
        )

    # -- what the model gets -----------------------------------------------------------------------

    def tools(
        self,
        format: Literal["openai", "anthropic", "mcp"] = "openai",  # noqa: A002 - the published name
        *,
        names: Collection[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the definitions to offer with the next request; none once only an answer is allowed.

        Asking for them ends a round: the calls since the last time were those of one message.
        With `names` (one of no tool is a UsageError) only these are offered; else those `select` chose, or all.
        """
        self._end_round()
        if self.mode in ("final_answer", "stopped"):
            return []
        from pokayoke.runtime.tools.selection import offered_tools  # noqa: PLC0415 - with its words, for who has many tools

        return build_definitions(offered_tools(self, names), format=format)

    def select(self, text: str, most: int = 30, *, used: Iterable[str] = ()) -> Selection:
        """Offer only the tools a text is about, and one by which the model finds others. See `Selection`."""
        from pokayoke.runtime.tools.selection import Selection  # noqa: PLC0415 - as above

        self.selection = Selection(self, text, most, used)
        return self.selection

    def tools_off(self, reason: StopReason = "budget_exhausted") -> None:
        """Take the tools away for the rest of the turn: only an answer is left."""
        self._step_down("final_answer", as_stop_reason(reason))

    def instructions(self, format: Literal["json", "jsonl"] = "json") -> str:  # noqa: A002 - the published name
        """Return what to tell a model that has no tool calls of its own: the tools, and how to write a call down.

        Read its replies with `pokayoke.replies.read_reply(reply, tools=..., form=format)`, or let `guard.loop` do so.
        """
        return build_instructions(self.tools("mcp"), format)

    def answer(self, text: str | None) -> Answer:
        """Check the model's last answer: its own text if it says something, else an honest fallback."""
        self._end_round()
        self.progress.end_turn()
        policy = self.snapshot.policy
        return self.progress.matters.check_answer(
            text, self.stop_reason, policy.loop.fallback, effects_in_progress(), policy.words
        )

    # -- opening and closing -----------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Use the run in a with block."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the run; one that is left by an exception is no success."""
        self._well = not any(exc)
        self.close()

    async def __aenter__(self) -> Self:
        """Use the run in an async with block."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the run, as above, without blocking the event loop for its store."""
        self._well, self._closed = not any(exc), True
        self._end_run(await _async_driver().save_run_totals(self))

    def close(self) -> None:
        """Say that the run is over: keep its totals, write the trace out. Its id, or a further call, reopens it."""
        self._closed = True
        self._end_run(self.progress.save_totals())

    # -- what the driver needs ---------------------------------------------------------------------

    def notice(self, step: str) -> None:
        """Tell the host's hook how far a call has come."""
        if self.guard.on_step is not None:
            self.guard.on_step(step)

    def emit(self, happened: dict[str, Any]) -> None:
        """Write a trace event."""
        self.trace.append(self.guard.trace.record(happened))

    def note(self, what: str, **fields: Any) -> None:
        """Write a trace event about the run itself."""
        now = self.guard.clock.now()
        self.emit({"ts": now, "run_id": self.id, "step": self.progress.step, "event": what, **fields})

    def redact_text(self, text: str, marks: tuple[str, ...], arguments: bytes) -> str:
        """Return a text of a call as the trace would write it; see `Trace.redact_text_of_call`."""
        return self.guard.trace.redact_text_of_call(self.id, text, marks, arguments)

    def scope(self, contract: Contract) -> tuple[str, str] | None:
        """Return kind and id of the scope in which an equal write happens once.

        None if the host named nothing that a restart would recognise.
        """
        if contract.scope == "global":
            return ("global", "")
        tenant = self.tenant
        for kind in _SCOPE_ORDER if contract.scope == "run" else (contract.scope,):
            ident = tenant
            if kind == "run":
                ident = self.id if self.named or not self.guard.store.durable else None
            elif kind == "session":
                ident = self.session
            if ident is not None:
                return (kind, ident if tenant is None else f"{tenant}\x1f{ident}")
        return None

    def claim_id(self, step: int) -> str:
        """Name a call's claim; a forked child names its own."""
        return f"{process_token()}-{self._number}-{step}"

    def handler(self, contract: Contract) -> Callable[..., Any]:
        """Return the function that runs a contract's tool.

        Raises:
            UsageError: there is none.
        """
        if contract.handler is not None:
            return contract.handler
        if contract is self.guard.pager:
            return partial(self.progress.texts.read_page, most=self.snapshot.policy.context.offload_chars)
        if self.selection is not None and contract is self.selection.finder:
            return self.selection.find_tools
        raise UsageError(f"{contract.name} has no handler: give the contract one, or pass invoke= to call()")

    # -- parts -------------------------------------------------------------------------------------

    def _adrive_steps(
        self, steps: Generator[Step, Any, T], invoke: Continuation | None = None
    ) -> Coroutine[Any, Any, T]:
        driver = _async_driver()
        driven: Coroutine[Any, Any, T] = driver.adrive_steps(steps, driver.AsyncDriver(self, invoke))
        return driven

    def _next_environment(self) -> CallEnvironment:
        if self.view.watched:
            self.guard.refresh()
        return self._build_environment(self.progress.next_step())

    def _rate_call(self, call: ToolCall) -> ToolCall:
        """Return a call with the confidence that the host's function has in it; 0 if the function fails."""
        rate = self.guard.confidence
        if rate is None or call.confidence is not None:
            return call
        try:
            return msgspec.structs.replace(call, confidence=rate(call))
        except Exception as error:  # noqa: BLE001 - the host's function may raise anything, and no call may fail by it
            log_problem("confidence", f"the function raised {type(error).__name__}, so the call is not trusted")
            return msgspec.structs.replace(call, confidence=0.0)

    def _build_environment(self, step: int) -> CallEnvironment:
        """Return the environment of the call of this number, as of now.

        Raises:
            UsageError: the guard was closed.
        """
        guard = self.guard
        if guard.closed:
            raise guard_closed_error()
        snapshot = self.snapshot
        return CallEnvironment(
            snapshot=snapshot,
            view=self.progress,
            run_id=self.id,
            claimant=self,
            tenant=self.tenant,
            principal=self.principal,
            step=step,
            now=guard.clock.now(),
            last_good=guard.last_good,
            asks=guard.on_ask is not None,
            caller=self.seen.view_caller(self.state.turn, self.progress.round_number, may_ask=self.can_ask),
            meter=guard.switchboard,
            redact=self.redact_text,
            effects=self.progress.matters.effects,
            values=self.progress.values if snapshot.follows_sources else None,
        )

    def _end_round(self) -> None:
        """Let the loop guard count a round; it may take the tools away."""
        change, reason = self.progress.end_round(self.snapshot)
        if change is not None:
            self._emit_stop(reason, *self.progress.change_state(change))

    async def _aend_round(self) -> None:
        """`_end_round` without blocking the event loop."""
        change, reason = self.progress.end_round(self.snapshot)
        if change is not None:
            self._emit_stop(reason, *await self.progress.achange_state(change))

    def _step_down(self, mode: Mode, reason: StopReason) -> None:
        self._emit_stop(reason, *self.progress.change_state(lambda state: step_down_to(state, mode, reason)))

    def _emit_stop(self, reason: StopReason | None, before: RunState, after: RunState) -> None:
        if reason is not None and before.mode != after.mode:
            self.emit(stop_event(after, self.guard.clock.now(), self.progress.step, reason, None))

    def _end_run(self, problem: str | None) -> None:
        """Write the trace out; `problem` is why the run's totals could not be stored, if they could not."""
        if problem is not None:
            self.note("store", ok=False, reason=problem)
        self.guard.trace.flush()

    def _record_outcome(self, outcome: Outcome, env: CallEnvironment, call: ToolCall) -> Outcome:
        writes = outcome.status not in SUCCESSFUL and env.snapshot.has_effect(outcome.contract)
        if self.selection is not None:
            self.selection.add_tool(outcome.tool)
        self.progress.tokens.note(outcome.text)
        self.progress.matters.record_outcome(outcome, call, writes=writes)
        self.progress.written.record_outcome(outcome, call)
        self.seen.hand_out(outcome, env.caller)
        if outcome.status == "refused" and outcome.findings and outcome.findings[0].blame == "host":
            trace, finding = self.guard.trace, outcome.findings[0]
            shown = trace.redactor.redact_text(finding.message, seen=trace.secrets_of_run(self.id))
            log_problem(finding.code, shown)
        return outcome

    def _build_ticket(self, env: CallEnvironment, call: ToolCall, admitted: AdmittedCall | Outcome) -> Ticket:
        if isinstance(admitted, Outcome):
            return Ticket(env, None, self._record_outcome(admitted, env, call), 0.0)
        return Ticket(env, admitted, None, self.guard.clock.monotonic())

    def _finish_steps(
        self, ticket: Ticket, result: Any, error: BaseException | str | None
    ) -> Generator[Step, Any, Outcome]:
        admitted, env, reacted = ticket.admitted, ticket.env, build_reaction(result, error)
        ran = Attempts(1, self.guard.clock.monotonic() - ticket.begun, exhausted=False)
        return self._observe_steps(finish_call(admitted, env, reacted, ran), admitted.prepared.call, env, reacted)

    def _observe_steps(
        self, steps: Generator[Step, Any, T], call: ToolCall, env: CallEnvironment, reacted: Reaction | None = None
    ) -> Generator[Step, Any, T]:
        """The steps as they are, with somebody beside them who looks on if there is."""
        return steps if self.guard.beside is None else self.guard.beside.observe_steps(steps, call, env, reacted)
