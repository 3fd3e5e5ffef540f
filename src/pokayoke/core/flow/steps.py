"""The few steps that need the world. The hallway yields them; a driver performs and answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pokayoke.core.call import Blame
from pokayoke.core.contract.contract import Contract
from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.transitions import Claim, Settlement
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import RunState


class RunUserCode(msgspec.Struct, frozen=True):
    """Run a pure function that calls users' code. It is cut at the contract's deadline; without one, it may hang.

    Answered with a `Reaction`; without a `timeout` in seconds, that is `Returned` or `Raised`.
    """

    function: Callable[[], Any]
    timeout: float | None


class ResolvePaths(msgspec.Struct, frozen=True, gc=False):
    """Resolve path arguments inside their roots, without a race.

    Answered with a mapping of argument name to confined path(s), or a Finding.
    """

    contract: Contract
    arguments: dict[str, Any]


class Admit(msgspec.Struct, frozen=True, gc=False):
    """Ask for admission; `core/ledger/admission.py` decides inside the store. Answered with an `Admission`."""

    request: AdmissionRequest


class ReadRecord(msgspec.Struct, frozen=True, gc=False):
    """Read a record of the ledger for a call of `tool`. Answered with a `Record`, None, or a Finding (not read)."""

    key: str
    tool: str


class AskPerson(msgspec.Struct, frozen=True, gc=False):
    """Put a question to the person behind the callback. Answered with True, False or None (later)."""

    approval: Approval


class Invoke(msgspec.Struct, frozen=True):
    """Run the tool once. Answered with a pair: a `Reaction`, and the seconds it took.

    `attempt` is the ledger's number of this execution, the fencing token; 1 for a read. `own` says that the
    tool may have the arguments without a copy.
    """

    contract: Contract
    arguments: dict[str, Any]
    located: Mapping[str, Any] | None
    timeout: float | None
    claim: Claim | None
    attempt: int
    own: bool = False


class LookUp(msgspec.Struct, frozen=True, gc=False):
    """Ask the target whether an effect happened. Answered with `Returned`, `Raised` or `TimedOut`."""

    contract: Contract
    key: str
    arguments: dict[str, Any]
    timeout: float


class CheckOwner(msgspec.Struct, frozen=True, gc=False):
    """Ask whether the process that owns a claim is dead.

    Answered with the second at which it was seen to be, or None if that is not proven. It is a second of
    this machine's monotonic clock, which all its processes share and nobody sets.
    """

    owner: str


class CountOutput(msgspec.Struct, frozen=True, gc=False):
    """Count an output for the kill switch. Nothing is answered."""

    seen: OutputObservation


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Wait before a retry: `seconds`, spread by `jitter` (a share) to both sides."""

    seconds: float
    jitter: float


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Report what became of a claimed write.

    `marks` are the field names that the contract marks as secret, `arguments` what was sent, as JSON.
    Answered with None, with a `Record` (this is what holds: the claim was lost, or what is reported as
    failed had been completed before), or a Finding (not recorded).
    """

    settlement: Settlement
    tool: str
    marks: tuple[str, ...] = ()
    arguments: bytes = b"{}"


class ChangeState(msgspec.Struct, frozen=True, gc=False):
    """Change the run's state, and keep it where a restart finds it.

    `review` is a question to a person that goes with the change, or None. Answered with the states
    before and after.
    """

    change: Callable[[RunState], RunState]
    review: Approval | None = None


class StoreText(msgspec.Struct, frozen=True, gc=False):
    """Keep a large text aside. Answered with the handle by which the model can page through it."""

    text: str


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Write a trace event. Nothing is answered."""

    event: dict[str, Any]


Step = (
    RunUserCode
    | ResolvePaths
    | Admit
    | ReadRecord
    | AskPerson
    | LookUp
    | CheckOwner
    | Invoke
    | Wait
    | Settle
    | ChangeState
    | CountOutput
    | StoreText
    | Emit
)


class Returned(msgspec.Struct, frozen=True):
    """The function came back with a value."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """The function raised. `error` is the exception itself; its text never reaches the model unseen."""

    error: BaseException


class TimedOut(msgspec.Struct, frozen=True, gc=False):
    """The deadline passed first. Whatever still runs is not listened to for this call."""

    seconds: float


class NotStarted(msgspec.Struct, frozen=True, gc=False):
    """The function was never started, so nothing can have happened."""

    reason: str
    blame: Blame = "host"


class ToolNotStarted(Exception):  # noqa: N818 - no error: the framework goes another way
    """Raised by a framework's continuation instead of running the tool: by the framework's rules nothing happened.

    Args:
        reason: why, in a few words.
        blame: who has to change something. What is the host's doing never counts as a bad round.
    """

    def __init__(self, reason: str, *, blame: Blame = "host") -> None:
        """Keep both."""
        super().__init__(reason)
        self.reason = reason
        self.blame: Blame = blame


Reaction = Returned | Raised | TimedOut | NotStarted
