"""One call in Pydantic AI's own hands: validate, run, and what its exceptions mean for an effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pokayoke.adapters.pydantic_ai._messages import retry_error, split_result
from pokayoke.adapters.pydantic_ai._tools import is_from_server
from pokayoke.core.call import ToolCall
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.errors import MissingExtraError

try:
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
    from pydantic_ai.messages import ToolCallPart, ToolReturn
    from pydantic_ai.tools import RunContext
except ImportError as error:
    raise MissingExtraError("pydantic-ai-slim", "pydantic-ai") from error

CONTROL_EXCEPTIONS = (CallDeferred, ApprovalRequired)
"""By these a tool says that its call is answered elsewhere: it has done nothing."""

Handler = Callable[[Any], Awaitable[Any]]


class ToolInvocation:
    """What the guard calls to run a tool: the framework's own validation and execution, hooks of others included.

    Args:
        call: what the model wrote.
        part: the call in the framework's history.
        context: the tool's run context.
        validate: the framework's validation.

    Attributes:
        execute: the framework's execution.
        reads: True if the tool changes nothing.
        again: what to raise instead of an outcome: the model is asked for another try in the tool's own words.
        limit: what ends the framework's run once the call is recorded: there is no more to spend.
        described: True if a schema describes what the tool returns.
        more: what the tool had to say beside its value.
        words: what of that are words that are not part of the value.
    """

    __slots__ = (
        "_context", "_validate", "again", "call", "described", "execute", "limit", "more", "part", "reads", "words",
    )  # fmt: skip

    def __init__(self, call: ToolCall, part: ToolCallPart, context: RunContext[Any], validate: Handler | None) -> None:
        """Keep what validation was handed until there is an execution."""
        self.call, self.part = call, part
        self._context, self._validate = context, validate
        self.execute: Handler | None = None
        self.reads = self.described = False
        self.words = ""
        self.again: ToolRetryError | None = None
        self.limit: UsageLimitExceeded | None = None
        self.more: ToolReturn[Any] | None = None

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        """Run the tool with the effective arguments."""
        self.again, self.more, self.words = None, None, ""
        validated = await self._validate_arguments(arguments)
        assert self.execute is not None, "a tool is only run by the hook around its execution"
        try:
            result = await self.execute(validated)
        except SkipToolExecution as instead:
            result = instead.result
        except UsageLimitExceeded as limit:
            self.limit = limit
            raise
        except (ToolFailed, ToolFailedError) as failed:
            result = _failure_result(_failure_text(failed))
        except ModelRetry as asked:
            # Not the tool's: a hook around it, and nobody can tell whether before or after it ran.
            if not self.reads:
                raise
            raise self._request_retry(asked.message) from asked
        except (ToolRetryError, UnexpectedModelBehavior) as asked:
            result = self._judge_retry(asked)
        value, self.more, self.words = split_result(result, described=self.described)
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
        """Return the result that a request for another try stands for, or raise what it is.

        A tool that raises `ModelRetry` says that it may be called again, so it has done nothing. Two things look
        the same and are not: the framework's own deadline, and an MCP server that reports an error.
        """
        wish = asked.__cause__
        spent = f"Tool {self.part.tool_name!r} exceeded max retries"
        if isinstance(asked, UnexpectedModelBehavior) and not (
            isinstance(wish, ModelRetry) and asked.message.startswith(spent)
        ):
            raise asked
        if not isinstance(wish, ModelRetry) and not self.reads:
            raise asked
        told: Any = wish.message if isinstance(wish, ModelRetry) else asked.tool_retry.content
        if _is_timeout(asked):
            raise TimeoutError(told) from asked
        manager = self._context.tool_manager
        if manager is not None and is_from_server((manager.tools or {}).get(self.part.tool_name)):
            return _failure_result(str(told))
        # The budget of retries may be spent; whether the run goes on is the loop guard's to say.
        raise self._request_retry(told) from asked

    def _request_retry(self, told: Any) -> ToolNotStarted:
        self.again = retry_error(self.part, told)
        return ToolNotStarted("asked for another try", blame="tool")


def _failure_text(error: ToolFailed | ToolFailedError) -> str:
    said = error.message if isinstance(error, ToolFailed) else error.tool_failed.model_response_str(wrap_if_error=False)
    return str(said)


def _failure_result(text: str) -> dict[str, Any]:
    """The result of a tool that says itself that it failed."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _is_timeout(error: BaseException) -> bool:
    """True for a deadline, such as that of `Tool(timeout=...)`: the tool had begun, and nobody knows what it did."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, TimeoutError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


async def tool_missing(arguments: dict[str, Any]) -> Any:  # noqa: ARG001 - the signature of a continuation
    """Stand in for a tool that the agent does not have."""
    raise ToolNotStarted("the agent has no such tool now", blame="tool")


async def call_deferred(arguments: dict[str, Any]) -> Any:  # noqa: ARG001 - as above
    """Stand in for a tool that is run elsewhere."""
    raise CallDeferred
