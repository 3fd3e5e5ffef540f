"""A call between its two halves: admitted, with the tool in a framework's hands."""

from __future__ import annotations

from typing import Any, cast

from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.flow.finish import AdmittedCall
from pokayoke.core.flow.prepare import CallEnvironment
from pokayoke.core.flow.steps import Raised, Reaction, Returned
from pokayoke.errors import ToolError, UsageError
from pokayoke.runtime.driver.tool_arguments import build_tool_arguments


class Ticket:
    """Made by `Run.begin`, handed in once to `Run.finish`.

    Attributes:
        outcome: what the model gets if the tool must not run; None if it may.
        arguments: what the tool has to receive; None if it must not run.
    """

    def __init__(
        self, scene: CallEnvironment, entered: AdmittedCall | None, outcome: Outcome | None, begun: float
    ) -> None:
        """Hold an admitted call, or the outcome of one that was not."""
        self.scene, self.begun = scene, begun
        self.outcome = outcome
        self.arguments = None
        if entered is not None:
            key = entered.claim.key if entered.claim else None
            own = entered.judged.own
            self.arguments = build_tool_arguments(
                entered.plan.contract, entered.arguments, entered.located, key, own=own
            )
        self._entered = entered
        self._open = True

    @property
    def ok(self) -> bool:
        """True if the tool may run now."""
        return self.outcome is None

    @property
    def entered(self) -> AdmittedCall:
        """The admitted call."""
        assert self._entered is not None, "only an admitted call is concluded"
        return self._entered

    @property
    def call(self) -> ToolCall:
        """What the model asked for."""
        return self.entered.judged.call

    def close(self, run_id: str) -> Outcome | None:
        """Hand the ticket in; see `close_ticket`."""
        if self.scene.run_id != run_id:
            raise UsageError(f"this ticket is of run {self.scene.run_id!a}: finish() it there")
        if not self._open:
            raise UsageError("this ticket was finished before; begin() the call again")
        self._open = False
        return self.outcome


def close_ticket(ticket: Ticket, run_id: str) -> Outcome | None:
    """Hand a ticket in. Returns the outcome if the call ended before the tool.

    Raises:
        UsageError: it is none, was handed in before, or to another run than the one it is of.
    """
    if not isinstance(cast("object", ticket), Ticket):
        raise UsageError(f"finish() takes the ticket that begin(call) returned, got {type(ticket).__name__}")
    return ticket.close(run_id)


def build_reaction(result: Any, error: BaseException | str | None) -> Reaction:
    """Return what a framework says of its tool, as the hallway reads it. With an error, the result is not looked at."""
    if error is None:
        return Returned(result)
    return Raised(ToolError(error) if isinstance(error, str) else error)
