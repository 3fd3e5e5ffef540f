"""The tools' side of an adapter: one guarded call of a framework's tool.

In: a call, and how the framework runs its tool. Out: the call's outcome, for the framework to hand to its model.
Never: a tool's exception that the framework has turned into a text before the guard sees it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pokayoke.adapters._host.approvals import PersonAnswer, call_and_answer
from pokayoke.adapters._host.control_flow import Invoke, invoke_without_tool
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.runtime.run.run import Run


class ToolSide(ABC):
    """The guarded execution of one call of a framework's tool.

    A subclass says how its framework runs the tool. The guard calls `run_tool` once per attempt, or not at all.
    """

    @abstractmethod
    async def run_tool(self, arguments: dict[str, Any]) -> Any:
        """Run the framework's tool and return its value, with media as content blocks.

        What the tool raises goes through. A tool that did not start is raised as `ToolNotStarted`.

        Args:
            arguments: those that the guard lets through.
        """

    def person_answer(self, approval: str) -> PersonAnswer | None:  # noqa: ARG002 - for those that can ask a person
        """Return what a person has answered to this question in the framework; None if nothing."""
        return None

    def missing_tool(self, run: Run, name: str) -> Invoke | None:
        """Return how a call runs that the framework has no tool for; None if the guard answers it."""
        return invoke_without_tool(run, name)

    async def take_call(self, adapter_run: AdapterRun, call: ToolCall, *, has_tool: bool = True) -> Outcome:
        """Take a call to its outcome, with what a person has answered to the guard's question meanwhile.

        Args:
            adapter_run: the run it belongs to.
            call: as the model wrote it.
            has_tool: False if the framework has no tool for it, see `missing_tool`.
        """
        invoke = self.run_tool if has_tool else self.missing_tool(adapter_run.run, call.name)
        return await call_and_answer(adapter_run, call, invoke, self.person_answer)
