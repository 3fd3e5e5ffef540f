"""The environment of a call: its run, its time, its policy and the services it may use.

In: values and ports that the run hands over with each call.
Out: one value, `CallEnvironment`, that every room of the path reads.
Never: a decision that two calls could race for; those are steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.plan import CallPlan, Snapshot
from pokayoke.core.flow.repetition import CallerView
from pokayoke.core.gate.rules import Principal
from pokayoke.core.output.last_known_good import LastKnownGood
from pokayoke.core.provenance.provenance import Judgement
from pokayoke.core.state.loop_guard import TurnHistory
from pokayoke.core.state.run_state import RunState


class RunView(Protocol):
    """What a call may read of its run."""

    @property
    def state(self) -> RunState:
        """The run's state at this moment."""
        ...

    @property
    def rounds(self) -> TurnHistory:
        """What the current turn has seen."""
        ...

    @property
    def user_text(self) -> str:
        """The user's own words in this turn, cut; "" if the host did not say them."""
        ...

    @property
    def effects(self) -> int:
        """A number that every write changes, in every opening of a run another one: see `CallLog.effects`."""
        ...


class SourceMemory(Protocol):
    """Where the values of a run come from: the user's words and the outputs of its tools."""

    def is_tainted_by(self, env: CallEnvironment, /) -> bool:
        """Return whether the run has read untrusted content, also before this process opened it."""
        ...

    def is_behind(self, plan: CallPlan, /) -> bool:
        """Return whether the judgement of a call takes so long that an event loop must not wait for it."""
        ...

    def judge(self, plan: CallPlan, arguments: Mapping[str, Any], env: CallEnvironment, /) -> Judgement:
        """Return where the values of a call come from."""
        ...

    def add_output(
        self,
        plan: CallPlan,
        arguments: bytes,
        output: bytes | str,
        step: int,
        call_id: str,
        /,
        *,
        is_approved: bool,
    ) -> None:
        """Take in what a tool returned to the model."""
        ...


class OutputMeter(Protocol):
    """Counts valid outputs. It only appends to a list; the counts are written elsewhere."""

    def count_valid(self, tool: str, at: float, read: bool, /) -> None:
        """Count an output that kept its contract: its tool, when its call began, whether the tool only reads."""
        ...


class ClaimIdentity(Protocol):
    """Identifies the claimant of a write. Reads never use it."""

    def scope(self, contract: Contract) -> tuple[str, str] | None:
        """Return kind and id of the ledger scope; None if the store needs one and the host gave none."""
        ...

    def claim_id(self, step: int) -> str:
        """Return an id that is unique to the call of this number across processes."""
        ...


class CallEnvironment(msgspec.Struct, frozen=True):
    """Where and when a call is decided.

    Attributes:
        snapshot: the contracts and the policy in force.
        view: the run.
        run_id: the run's id.
        claimant: identifies the claimant of a write.
        tenant: whose data it is, if there are several tenants.
        principal: on whose behalf the run acts.
        step: number of this call in its run.
        now: wall-clock second at which the call began.
        last_good: recent valid outputs of reads.
        asks: True if a callback can ask a person at once.
        caller: what the caller has seen.
        meter: counts outputs for the kill switch.
        redact: takes the secrets out of a text, given the names that the contract marks and the arguments as JSON.
        effects: `view.effects` when the call began.
        values: where the run's values come from; None if nothing asks.
    """

    snapshot: Snapshot
    view: RunView
    run_id: str
    claimant: ClaimIdentity
    tenant: str | None
    principal: Principal | None
    step: int
    now: float
    last_good: LastKnownGood
    asks: bool
    caller: CallerView
    meter: OutputMeter
    redact: Callable[[str, tuple[str, ...], bytes], str] = lambda text, _marks, _arguments: text
    effects: int = 0
    values: SourceMemory | None = None
