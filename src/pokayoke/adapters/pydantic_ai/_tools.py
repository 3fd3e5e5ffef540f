"""Pydantic AI's tools: one guarded call, from the framework's validation to the result in its history.

In: a call as the model wrote it, and the framework's own validation and execution. Out: the tool's value for the
guard, and what the framework puts into its history. Never: an exception of the framework taken for proof that a write
did not happen when it is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pydantic_core
from pydantic import ValidationError
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    SkipToolValidation,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.messages import is_multi_modal_content as is_file
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool

from pokayoke.adapters._host.approvals import PersonAnswer
from pokayoke.adapters._host.frames import history_form
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.tools import ToolSide
from pokayoke.adapters.pydantic_ai._approvals import person_answer
from pokayoke.adapters.pydantic_ai._model import as_json, user_text
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.output.content_blocks import as_blocks
from pokayoke.core.output.model_text import result_text
from pokayoke.core.output.preview import build_preview
from pokayoke.runtime.run.run import Run

CONTROL_EXCEPTIONS = (CallDeferred, ApprovalRequired)
"""A tool that raises one of these has done nothing: its call is answered elsewhere."""

Handler = Callable[[Any], Awaitable[Any]]

_MCP = "pydantic_ai.mcp"
_MAX_CHARS = 50_000
"""The model reads at most so many characters of words beside a value that has a schema."""


# -- running it ------------------------------------------------------------------------------------


class ToolInvocation(ToolSide):
    """Runs a tool through the framework's own validation and execution, hooks of other capabilities included.

    Args:
        call: the call as the model wrote it.
        part: the call in the framework's history.
        validate: the framework's validation; None if the framework has validated the call already.

    Attributes:
        limit: the exception that ends the framework's run once the call is recorded: its usage limit is reached.
    """

    __slots__ = ("_again", "_context", "_execute", "_has_schema", "_more", "_own", "_reads", "_validate", "_words",
                 "call", "limit", "part")  # fmt: skip

    def __init__(self, call: ToolCall, part: ToolCallPart, validate: Handler | None) -> None:
        """Keep the validation until there is an execution."""
        self.call, self.part, self._validate = call, part, validate
        self._reads = self._has_schema = False
        self._again: ToolRetryError | None = None
        self.limit: UsageLimitExceeded | None = None
        self._more: ToolReturn[Any] | None = None
        self._words, self._own = "", None

    def bind_execution(self, run: Run, context: RunContext[Any], execute: Handler) -> None:
        """Take the framework's execution; `context` is that of the tool."""
        self._context, self._execute = context, execute
        if (contract := run.snapshot.find_contract(self.call.name)) is not None:
            self._reads, self._has_schema = contract.effect == "read", contract.output is not None

    def person_answer(self, approval: str) -> PersonAnswer | None:  # noqa: ARG002 - the framework knows one question
        """Return the yes with which the framework runs a call that waited for a person."""
        return person_answer(self._context.tool_call_metadata, True) if self._context.tool_call_approved else None

    async def run_tool(self, arguments: dict[str, Any]) -> Any:
        """Run the tool with the effective arguments."""
        self._again, self._more, self._words, self._own = None, None, "", None
        validated = await self._validate_arguments(arguments)
        try:
            result = await self._execute(validated)
        except SkipToolExecution as instead:
            result = instead.result
        except UsageLimitExceeded as limit:
            self.limit = limit
            raise
        except (ToolFailed, ToolFailedError) as failed:
            result = _failure_result(_failure_text(failed))
        except ModelRetry as asked:
            # A hook around the tool has raised it, perhaps after the tool ran: of a write that is no proof.
            if not self._reads:
                raise
            raise self._request_retry(asked.message) from asked
        except (ToolRetryError, UnexpectedModelBehavior) as asked:
            result = self._judge_retry(asked)
        value, self._more, self._words = _split_result(result, has_schema=self._has_schema)
        self._own = result if self._more is None else self._more.return_value
        return value

    async def _validate_arguments(self, arguments: dict[str, Any]) -> Any:
        if self._validate is None:
            return arguments
        try:
            return await self._validate(arguments)
        except SkipToolValidation as instead:
            return instead.validated_args
        except ValidationError as wrong:
            raise self._request_retry(wrong.errors(include_url=False, include_context=False)) from wrong
        except (ModelRetry, ToolFailed) as wrong:
            raise self._request_retry(wrong.message) from wrong
        except Exception as other:
            # The framework wraps a deferral by an argument validator into an exception of its own.
            deferral: Any = getattr(other, "deferral", None)
            if isinstance(deferral, CONTROL_EXCEPTIONS):
                raise deferral from other
            raise

    def _judge_retry(self, asked: ToolRetryError | UnexpectedModelBehavior) -> Any:
        """Return the result that a request for another try stands for, or raise the exception that it means.

        A tool that raises `ModelRetry` states that it may be called again, so it has done nothing. Two things look
        the same and prove nothing: the framework's own deadline, and an error that an MCP server reports.
        """
        wish = asked.__cause__
        spent = f"Tool {self.part.tool_name!r} exceeded max retries"
        if isinstance(asked, UnexpectedModelBehavior) and not (
            isinstance(wish, ModelRetry) and asked.message.startswith(spent)
        ):
            raise asked
        if not isinstance(wish, ModelRetry) and not self._reads:
            raise asked
        told: Any = wish.message if isinstance(wish, ModelRetry) else asked.tool_retry.content
        if _is_timeout(asked):
            raise TimeoutError(told) from asked
        manager = self._context.tool_manager
        if manager is not None and _is_from_server((manager.tools or {}).get(self.part.tool_name)):
            return _failure_result(str(told))
        # The framework's budget of retries may be spent; the loop guard decides whether the run goes on.
        raise self._request_retry(told) from asked

    def _request_retry(self, told: Any) -> ToolNotStarted:
        self._again = retry_error(self.part, told)
        return ToolNotStarted("asked for another try", blame="tool")

    def own_result(self, adapter_run: AdapterRun, outcome: Outcome) -> Any:
        """Return what the tool returned, or its JSON value; the model's text if neither can stand for it."""
        forms = () if self._words else (self._own, outcome.value)
        return history_form(adapter_run, outcome, self.part.tool_name, forms, as_json)

    def framework_result(self, outcome: Outcome, result: Any, *, is_known: bool) -> Any:
        """Return the result that the framework puts into its history, or raise the error that it puts there.

        Args:
            outcome: the call's outcome.
            result: what the history holds of a call that ended ok.
            is_known: False if the framework has no tool for the call.
        """
        if outcome.ok:
            return _join_result(outcome, result, self._more, self._words)
        if self._again is not None and outcome.status == "failed":
            raise self._again
        # As retried: an answer in the same message was written before the model knew of this, and does not count.
        raise retry_error(self.part, outcome.text) if is_known else ToolFailed(outcome.text)


def retry_error(part: ToolCallPart, text: Any) -> ToolRetryError:
    """Return the exception by which the framework answers a call with an error, without using up a retry."""
    return ToolRetryError(
        ToolReturnPart(tool_name=part.tool_name, content=text, tool_call_id=part.tool_call_id, outcome="retried")
    )


async def call_deferred(arguments: dict[str, Any]) -> Any:  # noqa: ARG001 - the signature of an invoke
    """Stand for a tool that runs elsewhere."""
    raise CallDeferred


def message(outcome: Outcome) -> ToolReturnPart:
    """Return the message part that answers a call."""
    return ToolReturnPart(
        tool_name=outcome.tool,
        content=outcome.text,
        tool_call_id=outcome.call_id,
        outcome="success" if outcome.ok else "retried",
    )


def _failure_text(error: ToolFailed | ToolFailedError) -> str:
    said = error.message if isinstance(error, ToolFailed) else error.tool_failed.model_response_str(wrap_if_error=False)
    return str(said)


def _failure_result(text: str) -> dict[str, Any]:
    """Return the result of a tool that reports itself that it failed."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _is_from_server(tool: ToolsetTool[Any] | None) -> bool:
    """Return whether a tool runs in an MCP server."""
    return tool is not None and any(kind.__module__ == _MCP for kind in type(tool.toolset).__mro__)


def _is_timeout(error: BaseException) -> bool:
    """Return whether this is a deadline, as that of `Tool(timeout=...)`: the tool had begun, its effect is unknown."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, TimeoutError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


# -- what it returned ------------------------------------------------------------------------------


class _SplitResult(NamedTuple):
    """A tool's return value: `value` is for the guard, `words` are texts that the value's schema does not describe."""

    value: Any
    more: ToolReturn[Any] | None
    words: str


def _split_result(result: Any, *, has_schema: bool) -> _SplitResult:
    """Split a tool's return value: files become blocks that are not checked, everything else is data.

    Args:
        result: the tool's return value.
        has_schema: True if a schema describes the value; else the words beside it belong to it.
    """
    more = result if isinstance(result, ToolReturn) else None
    value = result if more is None else more.return_value
    words = user_text(more.content or ()) if more is not None else ""
    items = value if isinstance(value, (list, tuple)) else [value]
    joined = [words] if words and not has_schema and as_blocks(value) is None else []
    if joined or any(map(is_file, items)):
        items = items if any(map(is_file, items)) else [] if value is None else [value]
        value = {"content": [_to_block(item) for item in (*items, *joined)]}
    return _SplitResult(value, more, "" if joined else words)


def _to_block(item: Any) -> dict[str, Any]:
    if is_file(item):
        return {"type": "file", "file": item}
    return {"type": "text", "text": item if isinstance(item, str) else pydantic_core.to_json(item).decode()}


def _join_result(outcome: Outcome, result: Any, more: ToolReturn[Any] | None, words: str) -> Any:
    """Return what the framework puts into its history for a call that ended well.

    All words of a tool go into its result. The framework would put those beside the result into a message of the user.
    """
    value = result
    if words:
        kept = words if len(words) <= _MAX_CHARS else build_preview(words, handle=None, tool=outcome.tool)
        value += "\n" + result_text(kept, tool=outcome.tool, call_id=outcome.call_id, trust="unchecked")
    files = [block["file"] for block in outcome.content if isinstance(block, dict) and is_file(block.get("file"))]
    value = [value, *files] if files else value
    if more is None:
        return value
    beside = [] if isinstance(more.content, str) else [one for one in more.content or () if is_file(one)]
    return ToolReturn(return_value=value, content=beside or None, metadata=more.metadata, tools=more.tools)
