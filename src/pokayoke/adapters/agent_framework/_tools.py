"""The tools' side of Microsoft Agent Framework: what really ran, and what it really returned.

In: one invocation of a tool, and the rest of the framework's middleware. Out: the tool's own return value for the
guard, and a function result for the model. Never: an answer of middleware taken for the result of a write.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from inspect import isawaitable
from traceback import walk_tb
from typing import Any

from agent_framework import (
    SKIP_PARSING,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    UserInputRequiredException,
)

from pokayoke.adapters._host.approvals import PersonAnswer
from pokayoke.adapters._host.control_flow import Invoke
from pokayoke.adapters._host.frames import frame_result, history_form, value_text
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.tools import ToolSide
from pokayoke.adapters.agent_framework._approvals import approved_by_person
from pokayoke.adapters.agent_framework._contracts import ToolNotStartedError
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.runtime.run.run import Run

_CONTROL_EXCEPTIONS = (UserInputRequiredException, MiddlewareTermination, MiddlewareFailure)
"""Exceptions by which the framework steers itself. A tool that waits for a person raises the first one, and is called
again."""
# The framework then asks again, with the arguments as they are now; it has no public name.
_CHANGED = "_FunctionArgumentsChangedAfterApproval"


def message(outcome: Outcome) -> Any:
    """Return the message that answers a call."""
    answer = Content.from_function_result(outcome.call_id, result=framework_result(outcome))
    return Message("tool", [answer])


class Placeholder(FunctionTool):
    """Stands for a tool that the agent does not have, so that the framework takes its calls to the middleware."""

    def __init__(self, name: str, *, description: str = "", input_model: dict[str, Any] | None = None) -> None:
        """Take the name, and the description and schema for the model."""
        schema = input_model or {"type": "object", "properties": {}}
        super().__init__(name=name, description=description, func=_run_nothing, input_model=schema)


def _run_nothing(**_: Any) -> None:
    """Do nothing; the guard answers the calls."""


class ToolInvocation(ToolSide):
    """One invocation of a tool.

    Args:
        context: the framework's, of this call.
        call_next: the rest of the framework's middleware, and the tool.
        adapter_run: the run it belongs to.
        call: the call.
        approver: the name under which a person's approval counts.

    Attributes:
        media: what the tool returned beside text and data, for the model unchanged.
        instead: what the framework gets in place of a result, unchanged: the answer of middleware behind the guard
            to a call that would have changed something, or its question to the framework's user.
        raised: the exception by which the framework steers itself, to be raised once the call is settled.
        own: the text that the framework alone would have made of the result.
    """

    def __init__(
        self,
        context: FunctionInvocationContext,
        call_next: Callable[[], Awaitable[None]],
        adapter_run: AdapterRun,
        call: ToolCall,
        approver: str,
    ) -> None:
        """Take one call."""
        self._function: Any = context.function
        self.media: list[Any] = []
        self.instead: Any = None
        self.raised: Exception | None = None
        self.own = ""
        self._context, self._call_next, self._approver = context, call_next, approver
        self._adapter_run, self._call = adapter_run, call
        self._returned: Any = None
        self._parsed: Any = None
        self._ended = False

    async def run_tool(self, arguments: dict[str, Any]) -> Any:
        """Run the rest of the framework's middleware and the tool; returns what the tool returned."""
        _CapturingParser.install_on(self._function)
        if not self._is_approved(arguments):
            self._context.arguments = arguments
        self._ended, self.raised = False, None
        token = _invocation_var.set(self)
        try:
            await self._call_next()
        except _CONTROL_EXCEPTIONS as steering:
            self.raised = steering
            if not self._ended:
                return self._judge_exception(steering)
            # What the tool did is done, although middleware ends the loop after it.
        except Exception as error:
            if _has_started(error):
                raise
            if type(error).__name__ == _CHANGED:
                self.raised = error
            raise self._not_started_error(type(error).__name__) from error
        finally:
            _invocation_var.reset(token)
        # A tool whose results are not parsed at all cannot be told from one that never ran.
        ran = self._ended or self._function.result_parser is SKIP_PARSING
        return self._split_result() if ran else self._take_middleware_answer(self._context.result)

    def missing_tool(self, run: Run, name: str) -> Invoke | None:
        """Return how a call without a tool runs; here also by the contract's own handler."""
        contract = run.snapshot.find_contract(name)
        return None if contract is not None and contract.handler is not None else super().missing_tool(run, name)

    def person_answer(self, approval: str) -> PersonAnswer | None:
        return approved_by_person(self._context, approval, self._approver)

    def _is_approved(self, arguments: dict[str, Any]) -> bool:
        """True if a person approved these arguments: then the framework has them already, in the tool's own types."""
        response = self._context.metadata.get("approval_response")
        return response is not None and response.function_call.parse_arguments() == arguments

    def record_result(self, returned: Any, parsed: Any) -> None:
        """Take what the tool returned and what the framework made of it."""
        self._returned, self._parsed, self._ended = returned, parsed, True

    def _judge_exception(self, steering: Exception) -> Any:
        """Judge an exception of the framework that came instead of a result."""
        if _has_started(steering):
            raise steering
        given = self._context.result
        if given is None or isawaitable(given):
            given = getattr(steering, "result", None)
        if given is None:
            raise self._not_started_error(type(steering).__name__) from steering
        return self._take_middleware_answer(given)

    def _take_middleware_answer(self, given: Any) -> Any:
        """Take what middleware says in place of the tool: a cache may stand for a read, and nothing for a write."""
        asks = isinstance(given, Content) and given.type == "function_approval_request"
        if asks or not self._adapter_run.is_read(self._call):
            self.instead = given
            raise self._not_started_error("middleware answers in its place")
        self._context.result = given
        return self._split_result()

    def _not_started_error(self, why: str) -> ToolNotStartedError:
        return ToolNotStartedError(f"{self._function.name} was not started: {why}")

    def _split_result(self) -> Any:
        result = self._context.result
        self.own = _text_of(result)
        if self._ended and result is self._parsed:
            result = self._returned
        if isinstance(result, Content):
            result = [result]
        if not isinstance(result, list) or not any(isinstance(one, Content) for one in result):
            return result
        self.media = [one for one in result if isinstance(one, Content) and one.type != "text"]
        texts = [
            one.text or "" if isinstance(one, Content) else one
            for one in result
            if not isinstance(one, Content) or one.type == "text"
        ]
        if self.media:
            return [*({"type": "text", "text": str(text)} for text in texts), *map(_to_block, self.media)]
        return texts[0] if len(texts) == 1 else "\n".join(map(str, texts))


def _has_started(error: Exception) -> bool:
    """True if an exception came through the tool's own code: its traceback proves it."""
    return any(frame.f_code is _TOOL_CODE for frame, _ in walk_tb(error.__traceback__))


_invocation_var: ContextVar[ToolInvocation | None] = ContextVar("pokayoke_agent_framework_tool", default=None)
_TOOL_CODE = getattr(FunctionTool, "_invoke_function", FunctionTool.invoke).__code__


class _CapturingParser:
    """A result parser that also keeps what the tool returned: the framework makes a text of everything.

    Args:
        parser: the tool's own parser, or None for the framework's.
    """

    def __init__(self, parser: Callable[[Any], Any] | None) -> None:
        self.parser = parser

    @classmethod
    def install_on(cls, tool: FunctionTool) -> None:
        """See to it that a tool has one."""
        parser = tool.result_parser
        if parser is not SKIP_PARSING and not isinstance(parser, cls):
            tool.result_parser = cls(parser)

    def __call__(self, returned: Any) -> Any:
        parsed = _parse_result(returned) if self.parser is None else self.parser(returned)
        if (invocation := _invocation_var.get()) is not None:
            # A parser that the tool's author wrote says what its result is.
            invocation.record_result(returned if self.parser is None else parsed, parsed)
        return parsed


def _parse_result(returned: Any) -> Any:
    try:
        return FunctionTool.parse_result(returned)
    except Exception:  # noqa: BLE001 - as the framework does where a tool has no parser
        return [Content.from_text(str(returned))]


def _to_block(content: Any) -> dict[str, Any]:
    return {"type": "file", "data": content.to_dict()}


def framework_result(outcome: Outcome, media: Iterable[Any] = ()) -> str | list[Any]:
    """Return what a function result holds: the text, and images and files if the call ended ok.

    Args:
        outcome: what became of the call.
        media: what the tool returned just now; of a replayed call it comes out of the outcome.
    """
    if not outcome.ok or not outcome.content:
        return outcome.text
    shown = list(media) or [Content.from_dict(block["data"]) for block in outcome.content if "data" in block]
    return [Content.from_text(outcome.text), *shown]


# -- results that the requests frame ---------------------------------------------------------------------

_GUARD_TEXT = "pokayoke_text"
"""The property of a text that the guard wrote: the result around it has no other place to say so."""


def own_result(adapter_run: AdapterRun, outcome: Outcome, name: str, invocation: ToolInvocation) -> Any:
    """Return what a function result holds if requests frame it: the tool's own text, or a marked one of the guard.

    Args:
        adapter_run: the run.
        outcome: what became of the call.
        name: the tool's name in the messages.
        invocation: the invocation of the tool.
    """
    if outcome.content:
        return framework_result(outcome, invocation.media)
    forms = (invocation.own, value_text(outcome.value))
    text = history_form(adapter_run, outcome, name, forms, str)
    return [Content.from_text(text, additional_properties={_GUARD_TEXT: True})] if text is outcome.text else text


def frame_content(adapter_run: AdapterRun, name: str, content: Any) -> Any:
    """Return a content of a request; a result of text is as the model reads it."""
    items = content.items if content.type == "function_result" and content.exception is None else None
    if not items or len(items) != 1 or items[0].type != "text":
        return content
    if _GUARD_TEXT in items[0].additional_properties:
        text: str | None = items[0].text
    else:
        text = frame_result(adapter_run, name, content.call_id, content.result)
    if text is None:
        return content
    framed = copy.copy(content)
    framed.result, framed.items = text, [Content.from_text(text)]
    return framed


def _text_of(result: Any) -> str:
    """Return the text that the framework keeps of a result without pictures and files."""
    items = result if isinstance(result, list) else [result]
    return "\n".join(one.text or "" if isinstance(one, Content) else str(one) for one in items)
