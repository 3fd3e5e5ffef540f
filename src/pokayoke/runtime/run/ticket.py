"""A ticket: an admitted call whose tool a framework runs.

In: an admitted call, or the outcome of one that was not.
Out: the arguments for the tool.
Never: a ticket that is finished twice, or in another run.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.states import AdmittedCall
from pokayoke.core.flow.steps import Raised, Reaction, Returned
from pokayoke.core.host_input import expect
from pokayoke.errors import ToolError, UsageError
from pokayoke.runtime.driver.tool_call import build_tool_arguments


class Ticket:
    """Made by `Run.begin`, handed in once to `Run.finish`.

    Attributes:
        outcome: what the model gets if the tool must not run; None if it may.
        arguments: what the tool has to receive; None if it must not run.
    """

    def __init__(
        self, env: CallEnvironment, admitted: AdmittedCall | None, outcome: Outcome | None, begun: float
    ) -> None:
        """Hold an admitted call, or the outcome of one that was not."""
        self.env, self.begun = env, begun
        self.outcome = outcome
        self.arguments = None
        if admitted is not None:
            key = admitted.claim.key if admitted.claim else None
            is_sole_owner = admitted.prepared.is_sole_owner
            self.arguments = build_tool_arguments(
                admitted.plan.contract, admitted.arguments, admitted.located, key, is_sole_owner=is_sole_owner
            )
        self._admitted = admitted
        self._open = True

    @property
    def ok(self) -> bool:
        """True if the tool may run now."""
        return self.outcome is None

    @property
    def admitted(self) -> AdmittedCall:
        """The admitted call."""
        assert self._admitted is not None, "only an admitted call is concluded"
        return self._admitted

    @property
    def call(self) -> ToolCall:
        """What the model asked for."""
        return self.admitted.prepared.call

    def close(self, run_id: str) -> Outcome | None:
        """Hand the ticket in; see `close_ticket`."""
        if self.env.run_id != run_id:
            raise UsageError(f"this ticket is of run {self.env.run_id!a}: finish() it there")
        if not self._open:
            raise UsageError("this ticket was finished before; begin() the call again")
        self._open = False
        return self.outcome


def close_ticket(ticket: Ticket, run_id: str) -> Outcome | None:
    """Hand a ticket in. Returns the outcome if the call ended before the tool.

    Raises:
        UsageError: it is none, was handed in before, or to another run than the one it is of.
    """
    known: Ticket = expect(ticket, Ticket, "finish() takes the ticket that begin(call) returned")
    return known.close(run_id)


def build_reaction(result: Any, error: BaseException | str | None) -> Reaction:
    """Return what a framework says of its tool, as the hallway reads it. With an error, the result is not looked at."""
    if error is None:
        return Returned(result)
    return Raised(ToolError(error), is_text=True) if isinstance(error, str) else Raised(error)
