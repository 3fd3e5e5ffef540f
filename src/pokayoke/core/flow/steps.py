"""The steps of a call that need I/O, a clock, a thread or a person.

In: what a step needs.
Out: a value that a driver performs and answers.
Never: I/O. `runtime/driver` performs every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pokayoke.core.call import Blame
from pokayoke.core.contract.contract import Contract
from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Claim, Record, Settlement
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import RunState


class RunUserCode(msgspec.Struct, frozen=True):
    """Run a pure function that calls user code, up to the contract's deadline. Without one, it may hang.

    Answered with a `Reaction`; without a `timeout` in seconds, that is `Returned` or `Raised`.
    """

    function: Callable[[], Any]
    timeout: float | None


class ResolvePaths(msgspec.Struct, frozen=True, gc=False):
    """Resolve path arguments inside their roots, without a race, and URL arguments under their rules.

    Answered with a mapping of argument name to confined path(s) or URL(s), or a Finding.
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


class ListEffects(msgspec.Struct, frozen=True, gc=False):
    """Ask what the run wrote after an effect. Answered with the tools' names, in order; as far as that can be read."""

    record: Record


class AskPerson(msgspec.Struct, frozen=True, gc=False):
    """Put a question to the person behind the callback. Answered with True, False or None (later)."""

    approval: Approval


class Invoke(msgspec.Struct, frozen=True):
    """Run the tool once. Answered with a pair: a `Reaction`, and the seconds it took.

    `attempt` is the ledger's number of this execution, the fencing token; 1 for a read. `is_sole_owner` is
    True if the tool may have the arguments without a copy.
    """

    contract: Contract
    arguments: dict[str, Any]
    located: Mapping[str, Any] | None
    timeout: float | None
    claim: Claim | None
    attempt: int
    is_sole_owner: bool = False


class LookUp(msgspec.Struct, frozen=True, gc=False):
    """Ask the target whether an effect happened. Answered with `Returned`, `Raised` or `TimedOut`."""

    contract: Contract
    key: str
    arguments: dict[str, Any]
    timeout: float


class CheckOwner(msgspec.Struct, frozen=True, gc=False):
    """Ask whether the process that owns a claim is dead.

    Answered with the second at which its death was seen, or None if it is not proven. The second is of this
    machine's monotonic clock, which all its processes share and which is never set.
    """

    owner: str


class CountOutput(msgspec.Struct, frozen=True, gc=False):
    """Count an output for the kill switch. Answered with None."""

    seen: OutputObservation


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Wait before a retry: `seconds`, spread by `jitter` (a share) to both sides."""

    seconds: float
    jitter: float


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Report what became of a claimed write.

    `secret_fields` are the field names that the contract marks as secret, `arguments` those of the call, as
    JSON. Answered with None, with the `Record` that holds (the claim was lost, or the execution reported as
    failed had completed before), or with a Finding (not recorded).
    """

    settlement: Settlement
    tool: str
    secret_fields: tuple[str, ...] = ()
    arguments: bytes = b"{}"


class ChangeState(msgspec.Struct, frozen=True, gc=False):
    """Change the run's state and store it for a restart.

    `review` is a question to a person about the change, or None. Answered with the states
    before and after.
    """

    change: Callable[[RunState], RunState]
    review: Approval | None = None


class StoreText(msgspec.Struct, frozen=True, gc=False):
    """Store a large text outside the history. Answered with the handle for the paging tool."""

    text: str


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Write a trace event. Answered with None."""

    event: dict[str, Any]


Step = (
    RunUserCode
    | ResolvePaths
    | Admit
    | ReadRecord
    | ListEffects
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
    """The function returned a value."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """The function raised. `error` is the exception; its text reaches the model only as quoted data.

    `is_text` tells that a framework gave only the text of the exception, so that its kind says nothing.
    """

    error: BaseException
    is_text: bool = False


class TimedOut(msgspec.Struct, frozen=True, gc=False):
    """The deadline passed first. What the function still does is ignored for this call."""

    seconds: float


class NotStarted(msgspec.Struct, frozen=True, gc=False):
    """The function was never started, so nothing can have happened."""

    reason: str
    blame: Blame = "host"


class ToolNotStarted(Exception):  # noqa: N818 - no error: the framework took another way
    """Raised by a framework's continuation when the framework did not start the tool.

    Args:
        reason: why, in a few words.
        blame: who has to change something. `host` never counts as a bad round.
    """

    def __init__(self, reason: str, *, blame: Blame = "host") -> None:
        """Keep reason and blame."""
        super().__init__(reason)
        self.reason = reason
        self.blame: Blame = blame


Reaction = Returned | Raised | TimedOut | NotStarted
