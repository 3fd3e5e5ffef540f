"""The guard: contracts, policy, store and trace, built once for any number of runs and threads.

In: tools, a policy and a store.
Out: runs.
Never: a policy or a lock that is taken over in part.
"""

from __future__ import annotations

import os
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pokayoke.core.contract.contract import Contract, require_output_contract
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.flow.questions import apply_approved_review
from pokayoke.core.gate.rules import Principal, as_principal
from pokayoke.core.host_input import as_history, as_text_id, check_hooks
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.findings import no_scope_finding
from pokayoke.core.output.last_known_good import LastKnownGood
from pokayoke.core.policy import Policy
from pokayoke.core.state.invalid_output_spike import Alert
from pokayoke.core.state.kill_switch import Switch
from pokayoke.core.state.loop_guard import Kind
from pokayoke.core.state.run_state import RunState
from pokayoke.core.text.clip import clip
from pokayoke.errors import ConfigurationError, UsageError
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.config.config import PolicyFile, load_policy
from pokayoke.runtime.guard.alerts import Alerts
from pokayoke.runtime.guard.options import as_clock, as_failure_kinds, as_store, as_tools, share_store
from pokayoke.runtime.guard.output_counter import OutputMonitor
from pokayoke.runtime.memory.run_memory import RunMemory
from pokayoke.runtime.ports import AskCallback, ConfidenceFunction, Ranking
from pokayoke.runtime.run.run import Run, guard_closed_error
from pokayoke.runtime.threads.clock import Clock
from pokayoke.runtime.threads.forks import on_fork
from pokayoke.runtime.threads.worker_pool import WorkerPool
from pokayoke.runtime.tools.own_tools import paging_tool
from pokayoke.runtime.tools.view import ToolView, hidden_validators_report, resolve_roots, unknown_names_report
from pokayoke.stores.base import Store

if TYPE_CHECKING:
    from pokayoke.runtime.approvals.webhook import ConfiguredWebhook
    from pokayoke.runtime.run.agent_loop import AsyncModel, EventCallback, LoopFormat, LoopResult, Model
    from pokayoke.runtime.trace.background import BackgroundObserver
    from pokayoke.runtime.versions.rollout import Rollout


class Guard:
    """Stands between a model and its tools.

    Args:
        tools: contracts, or functions wrapped with `pokayoke.tool`; with `contracts`, also plain functions.
        contracts: path of a `contracts.lock`, which says what version of each tool a run uses. It is followed
            while the program runs. None: the tools are what they say of themselves.
        config: None for the safe default, a path to a YAML file, a mapping, or a `Policy`.
        store: None for memory, a URL for `open_store`, or a store, which is closed with the last guard that uses it.
        on_ask: asked at once when a call needs approval; returns True, False, or None for "later".
        on_step: told how far a call has come (`after_claim`, `before_invoke`, `after_invoke`,
            `after_settle`); for tests that stop a process between two steps.
        on_alert: told of a spike of invalid outputs, with an `Alert`; a plain function that only hands over.
        confidence: how sure the host is of a call, 0 to 1, or None for "cannot say"; asked for every call that does not
            say so itself, such as those of a loop or an adapter. If it raises, the call counts as 0.
        redactor: takes arguments or a result as JSON values; returns what may be written of them. See the trace.
        ranking: called with a text and the contracts a run may use; returns the names of those that fit, best
            first. It takes the place of the comparison of words where tools are selected (`run.select`).
        loop_kinds: kinds of failure the loop guard counts beside its own.
        clock: where the time comes from.

    Attributes:
        trace: where events are written.
        approvals: the questions to people, and their answers.

    Raises:
        ContractError: two tools cannot be told apart, one lacks what strict mode demands, or one is not what is
            locked under its version.
        ConfigurationError: the policy or a contract names a tool or an argument that there is not: a misspelt
            protection would protect nothing.
        PolicyError: the configuration is wrong.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        tools: Iterable[Contract | Callable[..., Any]],
        *,
        contracts: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | Mapping[str, Any] | Policy | None = None,
        store: str | Store | None = None,
        on_ask: AskCallback | None = None,
        on_step: Callable[[str], None] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
        confidence: ConfidenceFunction | None = None,
        redactor: Callable[[Any], Any] | None = None,
        ranking: Ranking | None = None,
        loop_kinds: Iterable[Kind] = (),
        clock: Clock | None = None,
    ) -> None:
        """Build everything, so that nothing can be wrong later."""
        check_hooks(2, ranking=ranking)
        check_hooks(on_ask=on_ask, on_step=on_step, on_alert=on_alert, confidence=confidence, redactor=redactor)
        self.clock = as_clock(clock)
        self.on_ask, self.on_step, self.ranking, self.confidence = on_ask, on_step, ranking, confidence
        self._file = PolicyFile(config) if isinstance(config, (str, os.PathLike)) else None
        policy = self._file.current_policy() if self._file else load_policy(config)
        self.store, self.closed, self._told = as_store(store), False, ""
        self.approvals = Approvals(self.store, self.clock, self._apply_review)
        self.workers = WorkerPool(policy.execution.max_lost_workers)
        self.alerts = Alerts(lambda event: self.trace.record(event), policy.alerts, on_alert)  # noqa: PLW0108 - made below
        uncounted = partial(self._record_change, "store", ok=False)
        self.switchboard = OutputMonitor(
            self.store, self.clock, self.workers, self.alerts, told=self._record_flip, problem=uncounted
        )
        self._opened: weakref.WeakValueDictionary[str, RunMemory] = weakref.WeakValueDictionary()
        self._reset_locks()
        on_fork(self, Guard._reset_locks)
        self.pager, kinds = paging_tool(), as_failure_kinds(loop_kinds)
        self.view = ToolView(self.pager, kinds)
        self.rollout: Rollout | None = None
        self.beside: BackgroundObserver | None = None
        self._refused: Policy | None = None
        if contracts is not None:
            from pokayoke.runtime.versions.rollout import Rollout  # noqa: PLC0415 - for guards with a lock

            self.rollout = Rollout(contracts, self.pager, kinds)
        self._install_tools(tools, policy)
        from pokayoke.runtime.trace.trace import Trace  # noqa: PLC0415 - with its patterns, 8 ms of import

        self.trace = Trace(policy.trace, redactor=redactor, clock=self.clock.now)
        self.announcer: ConfiguredWebhook | None = None
        self._prepare_webhook(policy)()
        self._prepare_background(policy)()
        self._let_go = share_store(self.store, self)  # last: a guard that could not be built keeps no store open

    def __repr__(self) -> str:
        """Return one line: its tools, its store, its mode."""
        names = [plan.contract.id for plan in self.snapshot.plans.values()]
        state = "closed" if self.closed else self.snapshot.policy.mode
        return f"<Guard {state}: {clip(', '.join(names), 80)}; {type(self.store).__name__}>"

    def run(
        self,
        run_id: str | None = None,
        *,
        session: str | None = None,
        tenant: str | None = None,
        principal: str | dict[str, Any] | Principal | None = None,
        prompt: str | None = None,
        history: Iterable[Any] | None = None,
    ) -> Run:
        """Open a run, or reopen one by its id: mode, latch and totals are as it left them.

        Args:
            run_id: the host's id. Without one, a restart cannot know the run again.
            session: id of the session that holds several runs.
            tenant: whose data it is.
            principal: on whose behalf: an id, `{"id": ..., "roles": [...]}`, or a `Principal`.
            prompt: the user's first text; the same as `run.user(prompt)`.
            history: the messages that the model has seen so far, in the shape of OpenAI, Anthropic or LangChain.
                After a restart they tell a new wish from a call that comes once more.

        Raises:
            UsageError: the run is another tenant's, the guard was closed, or an id is empty, no text, longer than
                500 characters, or holds what no database keeps.
            StoreError: a run of that id cannot be looked up, because the store cannot be reached.
        """
        self.refresh()
        for what, given in (("run_id", run_id), ("session", session), ("tenant", tenant)):
            if given is not None:
                as_text_id(given, what, empty=what == "run_id")  # an empty one names no run
        who = as_principal(principal)
        ident = run_id or f"run_{uuid.uuid4().hex[:12]}"
        progress = self._open_run_memory(ident, tenant, known=bool(run_id))
        view = self.view if self.rollout is None else self.rollout.view_for(progress, named=bool(run_id))
        opened = Run(
            self, ident, view=view, named=bool(run_id), session=session, tenant=tenant, principal=who, progress=progress
        )
        if history is not None:
            opened.seen.set_history(history, opened.state.turn, is_exact=False)
        if self.store.durable and not (run_id or session or tenant):
            writes = [one.name for one in self.tools if one.effect != "read" and opened.scope(one) is None]
            if writes:
                warnings.warn(no_scope_finding(clip(", ".join(writes), 80)).message, stacklevel=2)
        if prompt is not None:
            opened.user(prompt)
        return opened

    def loop(
        self,
        model: Model,
        prompt: str | None = None,
        *,
        messages: Iterable[Any] = (),
        run_id: str | None = None,
        format: LoopFormat | None = None,  # noqa: A002 - the name the other entry points use
        window: int | None = None,
        rounds: int = 50,
        select: int | None = None,
        on_event: EventCallback | None = None,
        **who: Any,
    ) -> LoopResult:
        """Let a model and the tools work until there is a last word.

        Args:
            model: called with the messages and the tool definitions; returns a reply in its provider's
                shape. See `pokayoke.adapters.openai.ChatModel` and `...anthropic.MessagesModel`.
            prompt: the user's text; begins a turn.
            messages: the history so far, in the model's format.
            run_id: the host's id of the run. Without one, a restart cannot go on.
            format: `openai`, `anthropic`, or `json` and `jsonl` for a model without tool calls of its own;
                None takes what the model says of itself, else `openai`.
            window: size of the model's window in tokens; the history is kept below it. None never shortens it.
            rounds: requests after which the tools are taken away.
            select: of a large catalogue, how many candidates to offer, beside a tool that finds others;
                None offers every tool.
            on_event: called with `message`, `outcome` or `instruction`, and the thing itself.
            who: session, tenant and principal, as for `run`.

        Raises:
            UsageError: the format is unknown, a number is negative, or the model returned what is no reply.
                What the model raises goes through; nothing of the reply it was working on has run.
        """
        messages = as_history(messages)
        run = self.run(run_id, prompt=prompt, history=messages, **who)
        from pokayoke.runtime.run.agent_loop import begin_history, run_loop  # noqa: PLC0415 - for hosts without a loop of their own

        history = begin_history(run, model, messages, prompt, format, window, on_event, select)
        with run:
            return run_loop(run, model, history, rounds)

    async def aloop(
        self,
        model: Model | AsyncModel,
        prompt: str | None = None,
        *,
        messages: Iterable[Any] = (),
        run_id: str | None = None,
        format: LoopFormat | None = None,  # noqa: A002 - as above
        window: int | None = None,
        rounds: int = 50,
        select: int | None = None,
        on_event: EventCallback | None = None,
        **who: Any,
    ) -> LoopResult:
        """`loop` for asynchronous code; the model may be awaited."""
        messages = as_history(messages)
        run = self.run(run_id, prompt=prompt, history=messages, **who)
        from pokayoke.runtime.run.agent_loop import arun_loop, begin_history  # noqa: PLC0415 - as above

        history = begin_history(run, model, messages, prompt, format, window, on_event, select)
        async with run:
            return await arun_loop(run, model, history, rounds)

    def replace(self, tools: Iterable[Contract | Callable[..., Any]]) -> None:
        """Exchange all tools at once; calls that have begun end with the old ones.

        Raises:
            ConfigurationError: as in `Guard`; then nothing has changed.
        """
        given = as_tools(tools)
        with self._renewing:
            self._install_tools(given, self.snapshot.policy)
            self._prepare_background(self.snapshot.policy)()

    def _reset_locks(self) -> None:
        """Begin, or begin anew in a child process, whose parent may have held any lock."""
        self._opening, self._renewing = threading.Lock(), threading.Lock()
        self.last_good = LastKnownGood(lock=threading.Lock())
        for progress in self._opened.values():
            progress.reset_after_fork()

    @property
    def tools(self) -> tuple[Contract, ...]:
        """The contracts in force; of several versions of a tool, the stable one."""
        return self.view.tools

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.snapshot.policy

    def refresh(self) -> None:
        """Take over a changed configuration file or lock of contracts, each as a whole or not at all.

        Raises:
            UsageError: the guard was closed.
        """
        if self.closed:
            raise guard_closed_error()
        if self._file is not None:
            news = self._is_new_policy(self._file.current_policy())
            if problem := self._file.take_problem():
                self._record_change("config", problem, ok=False)
            if news:
                self._follow_file("config", partial(self._follow_policy, self._file))
        if self.rollout is not None and self.rollout.has_changed():
            self._follow_file("contracts", partial(self._follow_lock, self.rollout))
        told, self._told = self._told, self._strange
        if self._strange not in ("", told):
            self._record_change("config", self._strange, ok=False)

    def _follow_file(self, what: str, follow: Callable[[], str]) -> None:
        """Follow a file, one thread at a time: whoever comes meanwhile goes on with what is in force."""
        if self._renewing.acquire(blocking=False):
            try:
                reason, ok = follow(), True
            except ConfigurationError as error:
                reason, ok = str(error), False
            finally:
                self._renewing.release()
            if reason:
                self._record_change(what, reason, ok=ok)

    def _is_new_policy(self, policy: Policy) -> bool:
        return policy is not self.snapshot.policy and policy is not self._refused

    def _follow_policy(self, file: PolicyFile) -> str:
        policy = file.current_policy()
        if not self._is_new_policy(policy):
            return ""  # another thread has just been here
        self._refused = policy  # until it is in force
        swaps = (self.trace.prepare_swap(policy.trace), self._prepare_webhook(policy), self._prepare_background(policy))
        self._install_tools(self._given, policy)
        for swap in swaps:
            swap()
        self.alerts.apply_policy(policy.alerts)
        return "reloaded"

    def _follow_lock(self, rollout: Rollout) -> str:
        if not rollout.has_changed():
            return ""  # as above
        self._install_tools(self._given, self.snapshot.policy)
        self._prepare_background(self.snapshot.policy)()
        return f"revision {rollout.edition.lock.revision}"

    def _record_change(self, what: str, reason: str, *, ok: bool) -> None:
        self.trace.record({"ts": self.clock.now(), "event": what, "ok": ok, "reason": reason})

    def announce(self, approval: Approval) -> None:
        """Tell the webhook of a question that waits; what it was told before is no news."""
        if self.announcer is not None:
            self.announcer.enqueue_approval(approval)

    def __enter__(self) -> Self:
        """Use the guard in a with block."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the guard."""
        self.close()

    def close(self) -> None:
        """Write everything out, end idle worker threads, and let go of the store, which its last guard closes.

        A closed guard takes no call more: `run`, and every call of its runs, raises `UsageError`.
        """
        if self.closed:
            return
        self.closed = True
        with ExitStack() as ending:  # from the last to the first, whatever one of them raises
            ending.callback(self._let_go)
            for part in (self.trace, self.announcer, self.workers, self.beside):
                if part is not None:
                    ending.callback(part.close)
            ending.callback(self.switchboard.flush)

    def _prepare_webhook(self, policy: Policy) -> Callable[[], None]:
        """Build the webhook of a policy, or prepare the present one for it. The returned swap cannot fail.

        Raises:
            ConfigurationError: it cannot be used.
        """
        if self.announcer is not None:
            return self.announcer.prepare_swap(policy.approvals.webhook)
        if policy.approvals.webhook.url is None:
            return lambda: None
        from pokayoke.runtime.approvals.webhook import ConfiguredWebhook  # noqa: PLC0415 - for guards with a webhook

        return partial(setattr, self, "announcer", ConfiguredWebhook(policy.approvals.webhook, self.trace, self.clock))

    def _prepare_background(self, policy: Policy) -> Callable[[], None]:
        """Build the background observer if a policy or a rollout needs it. The returned swap cannot fail.

        Raises:
            ConfigurationError: the sample cannot be written.
        """
        if self.beside is None and self.rollout is None and policy.trace.sample_path is None:
            return lambda: None
        from pokayoke.runtime.trace.background import BackgroundObserver  # noqa: PLC0415 - for a sample or a rollout

        observer = self.beside or BackgroundObserver(self)
        swap = observer.prepare_swap(policy)

        def put_in_force() -> None:
            swap()
            self.beside = observer

        return put_in_force

    def _install_tools(self, given: Iterable[Contract | Callable[..., Any]], policy: Policy) -> None:
        # Roots are resolved once: under the next policy, one must not be what lies at its path by then.
        tools: tuple[Contract | Callable[..., Any], ...]
        if (rollout := self.rollout) is None:
            tools = contracts = tuple(map(resolve_roots, as_tools(given)))
            use = self.view.prepare_swap(contracts, policy)
        else:
            tools = tuple(resolve_roots(one) if isinstance(one, Contract) else one for one in as_tools(given))
            contracts, use = rollout.prepare_swap(tools, policy, self.view)
        require_output_contract(contracts, policy.validation.tool_output)
        if misspelt := unknown_names_report(contracts, policy):
            raise ConfigurationError(misspelt)
        use()
        self._strange = hidden_validators_report(contracts)
        self.switchboard.enabled = policy.safe_mode.kill_switch and policy.mode == "enforce"
        self.snapshot: Snapshot = self.view.snapshot
        self._given, self._refused = tools, None

    def _open_run_memory(self, ident: str, tenant: str | None, *, known: bool) -> RunMemory:
        """What a run remembers: shared by all who have it open, so that none overwrites what another found out."""
        with self._opening:
            found = self._opened.get(ident)
            if found is None:
                state = self.store.load_run(ident) if known else None
                state = state or RunState(ident, started=self.clock.now(), tenant=tenant)
                whose = tenant if state.tenant is None else state.tenant
                found = RunMemory(state, self.store, self.clock, whose, named=known)
                self._opened[ident] = found
            else:
                found.matters.recheck_doubts()
        if found.tenant != tenant:
            raise UsageError(f"run {ident!r} is one of tenant {found.tenant!r}; give the run of {tenant!r} its own id")
        return found

    def _apply_review(self, approval: Approval) -> None:
        """A person lets writes go on after an invalid output."""
        progress = self._opened.get(approval.run_id)
        change = partial(self.store.change_run, approval.run_id) if progress is None else progress.change_state
        change(lambda state: apply_approved_review(state, approval))

    def _record_flip(self, switch: Switch) -> None:
        """A kill switch has tripped, or probes have closed it."""
        self.trace.record({
            "ts": self.clock.now(), "event": "switch", "tool": switch.scope, "ok": switch.mode == "closed",
            "reason": switch.reason, "mode": switch.mode, "epoch": switch.epoch,
        })  # fmt: skip
