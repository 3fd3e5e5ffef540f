"""A CrewAI tool whose calls go through the guard."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from traceback import walk_tb
from typing import Any

from crewai.hooks.tool_hooks import ToolCallHookContext, run_before_tool_call_hooks
from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
from crewai.utilities.string_utils import sanitize_tool_name
from msgspec import structs
from pydantic import BaseModel, PrivateAttr, ValidationError

from pokayoke.adapters._host.calls import effective_call, encode_unreadable_call
from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRun, value_as_text
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ToolError

TOKEN = "pokayoke_call"  # noqa: S105 - a name of an argument, no secret
"""The argument that tells which call it is."""
UNKNOWN_TOOL_NAME = "pokayoke_no_such_tool"
"""Name of the tool that answers calls of tools that do not exist."""

TakeCall = Callable[[str | None, str, dict[str, Any]], tuple[AdapterRun, ToolCall, bool]]


_VALIDATION_CODE = getattr(BaseTool._validate_kwargs, "__code__", None)  # noqa: SLF001 - it has no public name


class ToolNotStartedError(Exception):
    """CrewAI turned a call away before its tool began."""


def contracts(
    tools: Iterable[Any],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Contract]:
    """Build the contracts of tools, under the names by which CrewAI offers them: `Find Order` is `find_order`.

    Args:
        tools: CrewAI's tools, such as functions decorated with `@tool`.
        reads: names of those that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name.

    Raises:
        UsageError: a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    found = [
        ToolDescription(crewai_name(one.name), one.description, one.args_schema.model_json_schema()) for one in tools
    ]
    return build_contracts(
        found, reads=reads, destructive=destructive, fields=fields, no_effect_errors=(ToolNotStartedError,)
    )


def crewai_name(name: str) -> str:
    """Return the name by which CrewAI knows a tool."""
    return str(sanitize_tool_name(name)) if name else ""


class _Token(BaseModel):
    """What the tool without a name is run with."""

    pokayoke_call: str = ""


class GuardedTool(BaseTool):
    """Stands before a tool of the user's."""

    _inner: Any = PrivateAttr(default=None)
    _taken: Any = PrivateAttr(default=None)
    _all: Any = PrivateAttr(default=None)

    @classmethod
    def wrap_tool(cls, tool: Any, taken: TakeCall, every: Mapping[str, GuardedTool]) -> GuardedTool:
        """Return the guarded tool.

        Args:
            tool: a tool, or None for the one that takes any call: that of a tool that does not exist, and one that
                stands in a text.
            taken: returns the call behind a token, or behind name and arguments, its run, and whether the user's
                hooks have seen another one.
            every: all guarded tools, by the names of their contracts.
        """
        if tool is None:
            made = cls(name=UNKNOWN_TOOL_NAME, description="Do not use this.", args_schema=_Token)
        else:
            # How often it may run, the tool itself counts; and what it answered before, the ledger knows.
            made = cls(
                name=tool.name,
                description=tool.description,
                args_schema=tool.args_schema,
                result_as_answer=tool.result_as_answer,
                tool_failure_policy=tool.tool_failure_policy,
                cache_function=_never_cache,
            )
        made._inner, made._taken, made._all = tool, taken, every
        return made

    def run(self, *args: Any, **given: Any) -> Any:
        """Take a call to its outcome; returns the text for the agent, as a failure if there is no result.

        A result that is the answer is returned as its plain value.
        """
        del args
        # Pydantic finds a private attribute only after it has looked everywhere else.
        own = self.__pydantic_private__ or {}
        hosted, call, unseen = own["_taken"](given.pop(TOKEN, None), self.name, given)
        judged = self._apply_hooks(hosted, call) if unseen else call
        if judged is None:
            return f"Tool execution blocked by hook. Tool: {crewai_name(call.name)}"  # in CrewAI's own words
        outcome = hosted.call(
            judged, self._run_inner_tool if own["_inner"] is not None else self._choose_invoke(hosted, judged)
        )
        if outcome.ok and self.result_as_answer:  # no model reads it
            return value_as_text(outcome)
        if outcome.ok or outcome.status == "degraded":
            return outcome.text
        return ToolFailure(message=outcome.text, reason=_failure_reason(outcome))

    def _run(self, *args: Any, **given: Any) -> Any:
        """Do the same where CrewAI has parsed the call out of a text."""
        answer = self.run(*args, **given)
        return answer.message if isinstance(answer, ToolFailure) else answer

    def format_output_for_agent(self, raw_result: Any) -> str:
        """Return what the agent reads: what the guard said."""
        return raw_result.message if isinstance(raw_result, ToolFailure) else str(raw_result)

    def _choose_invoke(self, hosted: AdapterRun, call: ToolCall) -> Any:
        """Return how a call runs that has no tool before it: by the one it means, or by the guard's own handler."""
        plan = hosted.run.snapshot.find_plan(call.name)
        if isinstance(plan, Finding):
            return _tool_missing
        if (meant := self._all.get(plan.contract.name)) is not None:
            return meant._run_inner_tool  # noqa: SLF001 - its own class
        own = plan.contract.handler is not None or plan.contract is hosted.run.guard.pager
        return None if own else _tool_missing

    def _apply_hooks(self, hosted: AdapterRun, call: ToolCall) -> ToolCall | None:
        """Return a call as the user's hooks leave it, or None if one stops it: CrewAI has shown them another tool."""
        plan = hosted.run.snapshot.find_plan(call.name)
        tool = None if isinstance(plan, Finding) else self._all.get(plan.contract.name)
        if tool is None:
            return call
        name, shown = crewai_name(tool.name), encode_unreadable_call(call)
        name, shown = effective_call(hosted.run, call, shown) or (name, shown)
        task, agent = hosted.notes.get("asks", (None, None))
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
            raise ToolError(result.as_agent_message())
        if type(tool).format_output_for_agent is not BaseTool.format_output_for_agent:
            # What its author shows the agent is its result.
            return tool.format_output_for_agent(result)
        return result


def is_unguarded(tool: Any) -> bool:
    """Return whether a tool is neither guarded nor one by which CrewAI itself works, such as those for delegation."""
    if isinstance(tool, GuardedTool):
        return False
    made = getattr(tool, "func", None) or type(tool)
    return str(made.__module__).partition(".")[0] != "crewai"


def _is_rejection(error: Exception) -> bool:
    """True if an exception came out of CrewAI's own look at the arguments: its traceback proves it."""
    frames = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1:] == [_VALIDATION_CODE]


def _tool_missing(_: dict[str, Any]) -> Any:
    raise ToolNotStartedError("the agent does not have this tool")


def _never_cache(_arguments: Any = None, _result: Any = None) -> bool:
    """Keep nothing in CrewAI's own cache of results."""
    return False


def _failure_reason(outcome: Outcome) -> ToolFailureReason:
    if any(one.code == "unknown_tool" for one in outcome.findings):
        return ToolFailureReason.UNKNOWN_TOOL
    return (
        ToolFailureReason.INVALID_INPUT
        if outcome.stop_reason == "invalid_arguments"
        else ToolFailureReason.TOOL_REPORTED
    )
