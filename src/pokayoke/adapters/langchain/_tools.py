"""A tool of LangChain on its way through a guarded call, and the message it ends as.

LangChain makes text of what a tool returns, and messages of what it raises, before a hook sees either. So the tool is
run through a view of itself that keeps both as they were, and says whether the tool began at all.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, ToolException
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolInvocationError
from langgraph.types import Command

from pokayoke.adapters._host.run import value_as_text
from pokayoke.adapters.langchain._views import wrap_object
from pokayoke.core.call import Outcome
from pokayoke.core.contract.contract import Contract
from pokayoke.core.messages.media import media_block_for
from pokayoke.errors import ToolError

try:
    from langgraph.errors import is_invalid_resume
except ImportError:  # before LangGraph 1.2 an answer is never checked against a schema

    def is_invalid_resume(error: BaseException) -> bool:  # noqa: ARG001 - the signature of what is missing
        return False


__all__ = [
    "CONTROL_EXCEPTIONS",
    "AmbiguousResume",
    "ArgumentsRejected",
    "HostException",
    "ToolInvocation",
    "redirects_graph",
    "result_message",
]


class ArgumentsRejected(ToolError):  # noqa: N818 - no error: an answer to the model
    """The tool's own validators refused the arguments: it never began. The text is for the model."""


class StartUnknown(Exception):  # noqa: N818 - a middleware's word, not an error of ours
    """Somebody between guard and tool says that it failed, and not whether it began."""


class HostException(Exception):  # noqa: N818 - no error of ours: it carries the host's own
    """Carries an exception that is the host's, not the tool's, past the guard; its cause is that exception."""


class AmbiguousResume(HostException):
    """The tool asks a person something, and the answer could be another call's."""


_SCRATCHPAD = "__pregel_scratchpad"
"""Where LangGraph keeps, in the configuration of a task, what its interrupts have been answered."""
CONTROL_EXCEPTIONS: tuple[type[Exception], ...] = (GraphBubbleUp, HostException)
"""What LangGraph steers itself by. A tool that raises one has done nothing yet: it will be run again."""


class ToolInvocation:
    """The continuation of one call: runs the tool with the effective arguments.

    Args:
        request: the request of the tool node.
        handler: its way on, which may be another middleware's.
        tool: the tool; None if it is not the node's to run.
        contract: its contract, or None.

    Attributes:
        made: what the node made of the tool's result; None if the tool was not run.
        may_ask: False if the answer to the tool's own question could be another's.
    """

    __slots__ = (
        "_began",
        "_contract",
        "_direct",
        "_error",
        "_handler",
        "_request",
        "_tool",
        "_value",
        "made",
        "may_ask",
    )

    def __init__(
        self, request: Any, handler: Callable[[Any], Any], tool: BaseTool | None, contract: Contract | None
    ) -> None:
        """Begin with nothing run."""
        self._request, self._handler, self._tool, self._contract = request, handler, tool, contract
        # Another middleware may run another tool, which no view looks at; then nothing is proven.
        self._direct = getattr(handler, "__qualname__", "").startswith("ToolNode.")
        self._began = False
        self._value: Any = None
        self._error: Exception | None = None
        self.made: Any = None
        self.may_ask = True

    def run(self, arguments: dict[str, Any]) -> Any:
        """Run the tool and return its value, as it was before LangChain made text of it."""
        self._reset_result()
        token = _invocation_var.set(self)
        try:
            made = self._handler(self._build_request(arguments))
        except Exception as error:
            self._translate_error(error)
            raise
        finally:
            _invocation_var.reset(token)
        return self._take_result(made)

    async def arun(self, arguments: dict[str, Any]) -> Any:
        """`run_tool` for asynchronous code."""
        self._reset_result()
        token = _invocation_var.set(self)
        try:
            made = await cast("Awaitable[Any]", self._handler(self._build_request(arguments)))
        except Exception as error:
            self._translate_error(error)
            raise
        finally:
            _invocation_var.reset(token)
        return self._take_result(made)

    @property
    def is_direct(self) -> bool:
        """True if the tool returns what the user reads, not the model."""
        return self._tool is not None and self._tool.return_direct

    # -- what the tool's view tells ------------------------------------------------------------------

    def mark_started(self) -> None:
        """The tool's own code is about to run, in a context of its own."""
        self._began = True
        if not self.may_ask:
            _forbid_questions()

    def mark_returned(self, value: Any) -> None:
        """It has returned."""
        self._value, self._error = value, None

    def mark_raised(self, error: Exception) -> None:
        """It has raised."""
        self._error = error

    # -- parts ---------------------------------------------------------------------------------------

    def _reset_result(self) -> None:
        self._began, self._value, self._error, self.made = False, None, None, None

    def _build_request(self, arguments: dict[str, Any]) -> Any:
        call = {**self._request.tool_call, "args": arguments}
        tool = self._tool
        if tool is not None:
            call["name"] = tool.name
            tool = wrap_object(tool, _wrapper_methods)
        if type(self._request) is not ToolCallRequest:
            return self._request.override(tool_call=call, tool=tool)
        # What `override` does, in a tenth of the time: every attribute it sets is looked up twice before.
        handed = object.__new__(ToolCallRequest)
        handed.__dict__.update(self._request.__dict__, tool_call=call, tool=tool)
        return handed

    def _translate_error(self, error: Exception) -> None:
        """Raise what the guard is told instead. What came before the tool began is no failure of the tool."""
        if isinstance(error, CONTROL_EXCEPTIONS):
            return
        if is_invalid_resume(error):
            raise HostException from error
        if self._began or not self._direct:
            return
        if isinstance(error, ToolInvocationError):
            raise ArgumentsRejected(str(error)) from error
        raise HostException from error

    def _take_result(self, made: Any) -> Any:
        self.made = made
        answer = _answering_message(made, self._request.tool_call["id"])
        if self._error is not None:
            self._raise_author_text(self._error, answer)
            raise self._error
        if not self._began and answer is not None and answer.status == "error":
            if not self._direct:
                raise StartUnknown
            raise ArgumentsRejected(answer.text)  # by the tool's own validators
        if not self._began:
            return None if answer is None else answer.content
        value = self._value
        if self._tool is not None and self._tool.response_format == "content_and_artifact":
            value = value[0]
        return value if not _is_message(value) else None if answer is None else answer.content

    def _raise_author_text(self, error: Exception, answer: Any) -> None:
        """Raise the words by which a tool's author handles its own exception: they are meant for the model."""
        if not isinstance(error, ToolException) or self._tool is None or not self._tool.handle_tool_error:
            return
        text = "" if answer is None else answer.text
        harmless = self._contract is not None and isinstance(error, self._contract.no_effect_errors)
        raise (ArgumentsRejected if harmless else ToolError)(text) from error


def _forbid_questions() -> None:
    """Let the tool ask nobody, from here on and in this context."""
    config = get_config()
    conf = config["configurable"]
    if (scratchpad := conf.get(_SCRATCHPAD)) is not None:
        silent = dataclasses.replace(scratchpad, interrupt_counter=_refuse_question)
        ours: Any = {**config, "configurable": {**conf, _SCRATCHPAD: silent}}
        var_child_runnable_config.set(ours)


def _refuse_question() -> int:
    """What LangGraph's `interrupt` asks for the number of a question."""
    raise AmbiguousResume


_invocation_var: ContextVar[ToolInvocation | None] = ContextVar("pokayoke_langchain_passing", default=None)


def _wrapper_methods(kind: type) -> dict[str, Any]:
    """What a view of a tool does otherwise. LangChain reads the signatures, so they stay."""
    base = cast("Any", kind)
    plain, awaited = base._run, base._arun  # noqa: SLF001 - the class is extended

    def run_tool(self: Any, *args: Any, **kwargs: Any) -> Any:
        passing = _invocation_var.get()
        if passing is None or getattr(self, "func", self) is None:  # a tool without a synchronous side only says so
            return plain(self, *args, **kwargs)
        passing.mark_started()
        try:
            value = plain(self, *args, **kwargs)
        except Exception as error:
            passing.mark_raised(error)
            raise
        passing.mark_returned(value)
        return value

    async def run_tool_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        passing = _invocation_var.get()
        if passing is None:
            return await awaited(self, *args, **kwargs)
        passing.mark_started()
        try:
            value = await awaited(self, *args, **kwargs)
        except Exception as error:
            passing.mark_raised(error)
            raise
        passing.mark_returned(value)
        return value

    # LangChain compares `_arun` with its own to see whether a class has one.
    own = cast("Any", BaseTool)._arun  # noqa: SLF001 - as above
    methods = {"_run": _copy_signature(run_tool, plain)}
    return methods if awaited is own else {**methods, "_arun": _copy_signature(run_tool_async, awaited)}


def _copy_signature(does: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the signature of another one, worked out: LangChain reads it and the types before each call."""
    functools.update_wrapper(does, plain)
    try:
        hints, signature = get_type_hints(plain, include_extras=True), inspect.signature(plain)
    except Exception:  # noqa: BLE001 - names that only a type checker knows: then LangChain finds what it always found
        return does
    known = [one.replace(annotation=hints.get(name, one.annotation)) for name, one in signature.parameters.items()]
    returned = hints.get("return", signature.return_annotation)
    does.__annotations__ = hints
    cast("Any", does).__signature__ = signature.replace(parameters=known, return_annotation=returned)
    return does


def _is_message(value: Any) -> bool:
    """Whether a tool returned what LangGraph takes as it is: messages or commands."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, (ToolOutputMixin, Command)) for one in value)
    return isinstance(value, (ToolOutputMixin, Command))


def _answering_message(made: Any, ident: str | None) -> Any:
    """The message that answers the call, wherever the tool has put it; None if there is none."""
    if isinstance(made, ToolMessage):
        return made
    parts = made if isinstance(made, list) else _command_messages(made)
    for one in parts:
        if isinstance(one, ToolMessage) and one.tool_call_id == ident:
            return one
        if isinstance(one, Command) and (found := _answering_message(one, ident)) is not None:
            return found
    return None


def _command_messages(command: Any) -> list[Any]:
    """The messages a command adds. A command may update any channel; messages are looked for in all of them."""
    update = command.update if isinstance(command, Command) else None
    channels = update.values() if isinstance(update, dict) else [update]
    return [one for channel in channels if isinstance(channel, list) for one in channel]


def redirects_graph(made: Any) -> bool:
    """Whether what the node made of a result sends the graph elsewhere, and does not only change its state."""
    if isinstance(made, list):
        return any(map(redirects_graph, made))
    return isinstance(made, Command) and bool(made.goto or made.graph)


def result_message(outcome: Outcome, call: Any, made: Any = None, *, direct: bool = False) -> Any:
    """Return what answers a call: a `ToolMessage`, or the tool's own command with that message in it.

    Args:
        outcome: what became of the call.
        call: the call as it stands in the history: `id` and `name`.
        made: what the tool node made of the tool's result. Its artifact and its commands stay, if the outcome is ok.
        direct: True if the user reads the answer, not the model: then the value stands there as LangChain writes it.
    """
    content: Any = outcome.text
    if outcome.content:
        # Of what is no dict, LangChain would make text.
        shown = (one if isinstance(one, dict) else media_block_for(one, "langchain") for one in outcome.content)
        content = [{"type": "text", "text": outcome.text}, *filter(None, shown)]
    status = "success" if outcome.ok else "error"
    if made is None or not outcome.ok:
        if direct and outcome.ok:
            content = value_as_text(outcome)
        return ToolMessage(content, name=call["name"], tool_call_id=call["id"], status=status)
    known = _answering_message(made, call["id"])
    if known is None:
        return made  # it leads to another graph, and nothing in this one waits for an answer
    content = known.content if direct else content
    answer = _copy_message(known, {"content": content, "name": call["name"], "status": status})
    return _replace_answer(made, known, answer)


def _copy_message(message: ToolMessage, update: dict[str, Any]) -> ToolMessage:
    """A copy of a message with some fields changed: what `model_copy` makes, in less than half the time."""
    if type(message) is not ToolMessage or message.__pydantic_extra__ or message.__pydantic_private__:
        return message.model_copy(update=update)
    made = object.__new__(ToolMessage)
    object.__setattr__(made, "__dict__", {**message.__dict__, **update})
    object.__setattr__(made, "__pydantic_fields_set__", {*message.__pydantic_fields_set__, *update})
    object.__setattr__(made, "__pydantic_extra__", {})
    object.__setattr__(made, "__pydantic_private__", None)
    return made


def _replace_answer(made: Any, known: Any, answer: Any) -> Any:
    if made is known:
        return answer
    if isinstance(made, list):
        return [_replace_answer(one, known, answer) for one in made]
    if not isinstance(made, Command):
        return made
    update: Any = made.update
    if isinstance(update, dict):
        update = {name: _replace_in_channel(channel, known, answer) for name, channel in update.items()}
    else:
        update = _replace_in_channel(update, known, answer)
    return Command(graph=made.graph, update=update, resume=made.resume, goto=made.goto)


def _replace_in_channel(channel: Any, known: Any, answer: Any) -> Any:
    return [answer if one is known else one for one in channel] if isinstance(channel, list) else channel
