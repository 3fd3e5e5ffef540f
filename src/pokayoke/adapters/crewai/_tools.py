"""A CrewAI tool whose calls go through the guard.

In: the arguments that CrewAI runs a tool with. Out: the text for the agent, or CrewAI's failure with that text. Never:
a tool that runs with arguments that the guard and the user's hooks have not judged.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from traceback import walk_tb
from typing import Any

from crewai.hooks.tool_hooks import ToolCallHookContext, run_before_tool_call_hooks
from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
from msgspec import structs
from pydantic import BaseModel, PrivateAttr, ValidationError

from pokayoke.adapters._host.calls import effective_call, encode_unreadable_call, find_tool_name
from pokayoke.adapters._host.control_flow import Invoke
from pokayoke.adapters._host.run import AdapterRun, text_for_user
from pokayoke.adapters.crewai._contracts import ToolNotStartedError, crewai_name
from pokayoke.adapters.crewai._run import TOKEN, UNKNOWN_TOOL_NAME, AgentRuns
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.errors import ToolError, UsageError

_VALIDATION_CODE = getattr(BaseTool._validate_kwargs, "__code__", None)  # noqa: SLF001 - it has no public name


class _Token(BaseModel):
    """The arguments of the tool for unknown calls."""

    pokayoke_call: str = ""


class GuardedTool(BaseTool):
    """Wraps a tool of the user's."""

    _inner: Any = PrivateAttr(default=None)
    _runs: Any = PrivateAttr(default=None)

    @classmethod
    def wrap_tool(cls, tool: Any, runs: AgentRuns) -> GuardedTool:
        """Return the guarded tool.

        Args:
            tool: a tool, or None for the tool that answers any call: of a tool that does not exist, or in a text.
            runs: the runs of the model that calls it.
        """
        if tool is None:
            made = cls(name=UNKNOWN_TOOL_NAME, description="Do not use this.", args_schema=_Token)
        else:
            # The tool itself counts how often it may run, and the ledger holds what it answered before.
            made = cls(
                name=tool.name,
                description=tool.description,
                args_schema=tool.args_schema,
                result_as_answer=tool.result_as_answer,
                tool_failure_policy=tool.tool_failure_policy,
                cache_function=_never_cache,
            )
        made._inner, made._runs = tool, runs
        return made

    def run(self, *args: Any, **given: Any) -> Any:
        """Take a call to its outcome; returns the text for the agent, as a failure if there is no result.

        A result that is the answer is returned as its plain value.
        """
        del args
        # Pydantic looks everywhere else before it finds a private attribute.
        own = self.__pydantic_private__ or {}
        runs: AgentRuns = own["_runs"]
        adapter_run, call, needs_hooks = runs.take_call(given.pop(TOKEN, None), self.name, given)
        judged = self._apply_hooks(adapter_run, call) if needs_hooks else call
        if judged is None:
            return f"Tool execution blocked by hook. Tool: {crewai_name(call.name)}"  # in CrewAI's own words
        invoke = self._run_inner_tool if own["_inner"] is not None else self._choose_invoke(adapter_run, judged)
        outcome = adapter_run.call(judged, invoke)
        if outcome.ok and self.result_as_answer:  # no model reads it
            return text_for_user(adapter_run.run.snapshot, outcome)
        if outcome.ok or outcome.status == "degraded":
            return outcome.text
        return ToolFailure(message=outcome.text, reason=_failure_reason(outcome))

    def _run(self, *args: Any, **given: Any) -> Any:
        """`run` where CrewAI has parsed the call out of a text."""
        answer = self.run(*args, **given)
        return answer.message if isinstance(answer, ToolFailure) else answer

    def format_output_for_agent(self, raw_result: Any) -> str:
        """Return the guard's text, which the agent reads."""
        return raw_result.message if isinstance(raw_result, ToolFailure) else str(raw_result)

    def _find_tool(self, adapter_run: AdapterRun, name: str) -> GuardedTool | None:
        """Return the guarded tool that a name means."""
        found: GuardedTool | None = self._runs.tools.get(find_tool_name(adapter_run.run, name, self._runs.tools))
        return found

    def _choose_invoke(self, adapter_run: AdapterRun, call: ToolCall) -> Invoke | None:
        """Return how the tool for unknown calls runs a call: by the tool that it means, or by the guard's handler."""
        if (tool := self._find_tool(adapter_run, call.name)) is not None:
            return tool._run_inner_tool  # noqa: SLF001 - its own class
        contract = adapter_run.run.snapshot.find_contract(call.name)
        has_answer = contract is None or contract is adapter_run.run.guard.pager or contract.handler is not None
        return None if has_answer else _raise_missing

    def _apply_hooks(self, adapter_run: AdapterRun, call: ToolCall) -> ToolCall | None:
        """Return a call as the user's hooks leave it, or None if one stops it: CrewAI has shown them another tool."""
        tool = self._find_tool(adapter_run, call.name)
        if tool is None:
            return call
        name, shown = crewai_name(tool.name), encode_unreadable_call(call)
        name, shown = effective_call(adapter_run.run, call, shown) or (name, shown)
        task, agent = adapter_run.notes.get("asks", (None, None))
        given = copy.deepcopy(shown)
        who: tuple[Any, Any, Any] = (agent, task, getattr(agent, "crew", None))
        context = ToolCallHookContext(name, given, tool.to_structured_tool(), *who)
        if run_before_tool_call_hooks(context):
            return None
        return call if given == shown else structs.replace(call, arguments=given)

    def _run_inner_tool(self, arguments: dict[str, Any]) -> Any:
        tool = (self.__pydantic_private__ or {})["_inner"]
        try:
            result = tool.run(**arguments)
        except ValueError as error:
            if isinstance(error.__cause__, ValidationError) and _is_rejection(error):
                raise ToolNotStartedError(f"{tool.name} does not take these arguments") from error
            raise
        if isinstance(result, ToolFailure):
            if result.reason is ToolFailureReason.USAGE_LIMIT:
                raise ToolNotStartedError(result.message)
            raise ToolError(result.as_agent_message(), effect="unknown")  # the framework says so, not the tool
        if type(tool).format_output_for_agent is not BaseTool.format_output_for_agent:
            # The author's own text for the agent is the result.
            return tool.format_output_for_agent(result)
        return result


def require_guarded(tools: Iterable[Any], unguarded: Collection[str]) -> None:
    """Check that each tool is guarded, named in `unguarded`, or one of CrewAI's own, such as those for delegation.

    Raises:
        UsageError: one is not.
    """
    for tool in tools:
        if isinstance(tool, GuardedTool) or crewai_name(tool.name) in unguarded:
            continue
        made = getattr(tool, "func", None) or type(tool)
        if str(made.__module__).partition(".")[0] != "crewai":
            raise UsageError(
                f"the tool {tool.name!r} would run unguarded: hand it to guarded(...) and use what that returns, "
                f"or name it in guarded(unguarded=...)"
            )


def _is_rejection(error: Exception) -> bool:
    """Return whether CrewAI's own check of the arguments raised an exception: its traceback proves it."""
    frames = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1:] == [_VALIDATION_CODE]


def _raise_missing(_: dict[str, Any]) -> Any:
    raise ToolNotStartedError("the agent does not have this tool")


def _never_cache(_arguments: Any = None, _result: Any = None) -> bool:
    """Keep nothing in CrewAI's own cache of results."""
    return False


def _failure_reason(outcome: Outcome) -> ToolFailureReason:
    if any(one.code == "unknown_tool" for one in outcome.findings):
        return ToolFailureReason.UNKNOWN_TOOL
    if outcome.stop_reason == "invalid_arguments":
        return ToolFailureReason.INVALID_INPUT
    return ToolFailureReason.TOOL_REPORTED
