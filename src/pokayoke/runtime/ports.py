"""What the rest of the runtime may use of a guard and of a run.

In: nothing; these are protocols.
Out: `GuardPort` for whatever works for a guard, `RunPort` for drivers, batches, loops and selections.
Never: an import of `Guard` or `Run` anywhere but where they are built.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pokayoke.core.call import Mode, Outcome, StopReason, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.flow.steps import Reaction, Step
from pokayoke.core.gate.rules import Principal
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.output.last_known_good import LastKnownGood
from pokayoke.core.policy import Policy
from pokayoke.core.state.final_answer import Answer
from pokayoke.core.state.run_state import RunState
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.guard.output_counter import OutputMonitor
from pokayoke.runtime.memory.run_memory import RunMemory
from pokayoke.runtime.memory.seen_answers import SeenAnswers
from pokayoke.runtime.threads.clock import Clock
from pokayoke.runtime.threads.worker_pool import WorkerPool
from pokayoke.runtime.tools.view import ToolView
from pokayoke.runtime.trace.ring import EventRing
from pokayoke.stores.base import Store

if TYPE_CHECKING:
    from pokayoke.runtime.trace.trace import Trace
    from pokayoke.runtime.versions.rollout import Rollout

T = TypeVar("T")
AskCallback = Callable[[Approval], bool | Awaitable[bool | None] | None]
Ranking = Callable[[str, Sequence[Contract]], Iterable[str]]
ConfidenceFunction = Callable[[ToolCall], float | None]
BatchInvoke = Callable[[ToolCall, dict[str, Any]], Any]


class CallObserver(Protocol):
    """Observes the steps of calls without changing them."""

    def observe_steps(
        self, steps: Generator[Step, Any, T], call: ToolCall, env: CallEnvironment, reaction: Reaction | None
    ) -> Generator[Step, Any, T]:
        """Return the steps of a call, wrapped if it is observed."""
        ...


class ToolChoice(Protocol):
    """The tools on offer in a run that selects from a large catalogue."""

    def has_tool(self, name: str) -> bool:
        """Return whether a tool is on offer."""
        ...


class GuardPort(Protocol):
    """A guard, for its runs, drivers and observers. The attributes mean what they mean in `Guard`."""

    clock: Clock
    store: Store
    closed: bool
    approvals: Approvals
    workers: WorkerPool
    switchboard: OutputMonitor
    trace: Trace
    snapshot: Snapshot
    last_good: LastKnownGood
    pager: Contract
    rollout: Rollout | None
    on_ask: AskCallback | None
    confidence: ConfidenceFunction | None
    on_step: Callable[[str], None] | None
    ranking: Ranking | None

    @property
    def beside(self) -> CallObserver | None:
        """The background observer, if there is one."""
        ...

    @property
    def tools(self) -> tuple[Contract, ...]:
        """The contracts in force."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        ...

    def refresh(self) -> None:
        """Take over changed files."""
        ...

    def announce(self, approval: Approval) -> None:
        """Send a waiting question to the webhook, once."""
        ...


class RunPort(Protocol):
    """A run, for drivers, batches, loops and selections. The members mean what they mean in `Run`."""

    id: str
    view: ToolView
    principal: Principal | None
    trace: EventRing
    progress: RunMemory
    seen: SeenAnswers

    @property
    def guard(self) -> GuardPort:
        """The guard it belongs to."""
        ...

    @property
    def selection(self) -> ToolChoice | None:
        """The tools it offers, if it selects."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The contracts and the policy in force."""
        ...

    @property
    def state(self) -> RunState:
        """What a restart would find."""
        ...

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        ...

    @property
    def instruction(self) -> str | None:
        """What to tell the model while its tools are off."""
        ...

    def handler(self, contract: Contract) -> Callable[..., Any]:
        """Return the function that runs a contract's tool."""
        ...

    def notice(self, step: str) -> None:
        """Tell the host's hook how far a call has come."""
        ...

    def note(self, what: str, **fields: Any) -> None:
        """Write a trace event about the run."""
        ...

    def call(self, call: ToolCall, *, invoke: Callable[[dict[str, Any]], Any] | None = None) -> Outcome:
        """Take one tool call to its outcome."""
        ...

    async def acall(self, call: ToolCall, *, invoke: Callable[[dict[str, Any]], Any] | None = None) -> Outcome:
        """`call` for asynchronous code."""
        ...

    def call_batch(
        self, calls: Sequence[ToolCall], *, stop_reason: str | None = None, invoke: BatchInvoke | None = None
    ) -> list[Outcome]:
        """Take all calls of one message to their outcomes."""
        ...

    async def acall_batch(
        self, calls: Sequence[ToolCall], *, stop_reason: str | None = None, invoke: BatchInvoke | None = None
    ) -> list[Outcome]:
        """`call_batch` for asynchronous code."""
        ...

    def answer_open_calls(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return a history in which each call has a result."""
        ...

    async def aanswer_open_calls(self, messages: Sequence[Any]) -> Sequence[Any]:
        """`answer_open_calls` for asynchronous code."""
        ...

    def tools(
        self,
        format: Literal["openai", "anthropic", "mcp"] = "openai",  # noqa: A002 - the published name
        *,
        names: Collection[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the definitions to offer with the next request."""
        ...

    def instructions(self, format: Literal["json", "jsonl"] = "json") -> str:  # noqa: A002 - the published name
        """Return the tools as text, for a model without tool calls of its own."""
        ...

    def select(self, text: str, most: int = 30, *, used: Iterable[str] = ()) -> object:
        """Offer only the tools that a text is about."""
        ...

    def usage(self, tokens: int) -> None:
        """Report the tokens that the provider counted."""
        ...

    def tools_off(self, reason: StopReason = "budget_exhausted") -> None:
        """Take the tools away for the rest of the turn."""
        ...

    def answer(self, text: str | None) -> Answer:
        """Check the model's last answer."""
        ...
