"""A call at LangGraph's tool node, from the model's message to the message that answers it.

In: a request of the tool node, and its handler. Out: a `ToolMessage` or the tool's own command. Never: a tool that
runs before the guard lets it, or one that reads an answer which a person has given to another question.

LangChain turns what a tool returns into text, and what it raises into messages, before a hook sees either. So the tool
runs in a wrapper of itself that keeps both, and that knows whether the tool has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import itertools
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast, get_type_hints

import msgspec
from langchain_core.callbacks import AsyncCallbackManager, AsyncCallbackManagerForToolRun
from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, ToolException
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolInvocationError
from langgraph.types import interrupt

from pokayoke.adapters._host.approvals import find_question, waiting_questions
from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.frames import history_form, value_text
from pokayoke.adapters._host.run import AdapterRun, text_for_user
from pokayoke.adapters.langchain._approvals import build_question, count_answers, take_answer
from pokayoke.adapters.langchain._capture import finish_reason
from pokayoke.adapters.langchain._contracts import (
    CONTROL_EXCEPTIONS,
    AmbiguousResume,
    ArgumentsRejected,
    HostException,
    StartUnknown,
)
from pokayoke.adapters.langchain._model import ModelLoop, as_messages
from pokayoke.adapters.langchain._results import answering_message, is_message, redirects_graph, result_message
from pokayoke.adapters.langchain._run import can_interrupt
from pokayoke.adapters.langchain._wrapper import wrap_object
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.errors import ToolError
from pokayoke.runtime.memory.run_memory import RunMemory

try:
    from langgraph.errors import is_invalid_resume
except ImportError:  # before LangGraph 1.2 an answer is never checked against a schema

    def is_invalid_resume(error: BaseException) -> bool:  # noqa: ARG001 - the signature of what is missing
        return False


_NOT_REDIRECTED = "It handed over then. This repeat hands over to no one."
_REPLIES = ("ai", "AIMessageChunk")
_MESSAGES = frozenset({*_REPLIES, "chat", "function", "human", "system", "tool"})
_SEND_ALONE = (
    "{} was not run: it asks a person something, and its message holds other calls. "
    "Send it again in a message of its own."
)
_redirecting_keys: weakref.WeakKeyDictionary[RunMemory, set[str]] = weakref.WeakKeyDictionary()
"""Ledger keys of the writes of a run whose commands led to another node."""
_SCRATCHPAD = "__pregel_scratchpad"
"""Where LangGraph keeps the answers to interrupts, in the configuration of a task."""


class ToolNodeCall:
    """One call at the tool node.

    Args:
        adapter_run: the run.
        request: the node's request.
        handler: the rest of the node, or another middleware.
        on_wire: True if the history holds the tool's own result, which each request frames.
    """

    def __init__(
        self, adapter_run: AdapterRun, request: Any, handler: Callable[[Any], Any], *, on_wire: bool = False
    ) -> None:
        """Find the call as the model wrote it, and the tool that runs."""
        self._adapter_run, self._request, self._on_wire = adapter_run, request, on_wire
        shown = request.tool_call
        if not adapter_run.is_current(shown["id"] or ""):
            self._recall_reply()
        loop: ModelLoop | None = adapter_run.notes.get("loop")
        known = None if loop is None else loop.corrected.get(shown["id"] or "")
        if known is not None and known[:2] == (shown["name"], shown["args"]):
            self._call = known[2]
        else:
            self._call = self._decode_call(None if loop is None else loop.cut.get(shown["id"] or ""))
        self._invocation: ToolInvocation | None = None
        self._asks, self._asked, self._resumes = False, 0, False
        self._known: frozenset[str] = frozenset()
        self._is_newest = False
        found = adapter_run.run.snapshot.find_plan(self._call.name)
        if isinstance(found, Finding):
            return
        contract, tool = found.contract, request.tool
        self._asks = found.approval_rule.may_ask
        self._resumes = (self._asks or contract.effect != "read") and _is_resumed()
        if tool is None or tool.name != contract.name:  # the model has spelt the name differently
            tool = next((one for one in request.runtime.tools if one.name == contract.name), None)
        if tool is not None or (contract.handler is None and contract is not adapter_run.run.guard.pager):
            self._invocation = ToolInvocation(request, handler, tool, contract)

    def _decode_call(self, cut: ToolCall | None) -> ToolCall:
        """Return the call as the model wrote it; `cut` if its message was cut, as its message tells after a restart."""
        shown = self._request.tool_call
        call = decode_call(shown["id"], shown["name"], shown["args"])
        reply = None if cut is not None else self._find_reply()[1]
        if cut is not None or (
            reply is not None and is_cut(finish_reason(read_field(reply, "response_metadata") or {}))
        ):
            return msgspec.structs.replace(call, stop_reason="length")
        return call

    def _recall_reply(self) -> None:
        """Say what the request of this call carried, which the state of the graph knows."""
        state, ident = self._request.state, self._request.tool_call["id"]
        messages = as_messages(state if isinstance(state, list) else read_field(state, "messages") or ())
        for place in reversed(range(len(messages))):
            asked = [read_field(call, "id") for call in as_sequence(read_field(messages[place], "tool_calls"))]
            if ident in asked:
                self._adapter_run.recall_reply(asked, messages[:place])
                return

    def run(self) -> Any:
        """Return a `ToolMessage` or the tool's command; raises the exceptions by which LangGraph steers itself."""
        if self._was_refused():
            return self._send_alone_message()
        invoke = self._run_tool if self._invocation is not None else None
        if self._resumes:
            self._known = waiting_questions(self._adapter_run.run.guard)
        try:
            outcome = self._adapter_run.call(self._call, invoke)
            problem = ""
            while self._can_ask(outcome):
                problem = self._take_answer(outcome, self._ask_person(outcome, problem))
                outcome = self._adapter_run.call(self._call, invoke)
        except AmbiguousResume:
            return self._refuse_call()
        except HostException as carrier:
            raise (carrier.__cause__ or carrier) from None
        return self._result_message(outcome)

    async def arun(self) -> Any:
        """`run` for asynchronous code."""
        if self._was_refused():
            return self._send_alone_message()
        invoke = self._run_tool_async if self._invocation is not None else None
        if self._resumes:
            self._known = await asyncio.to_thread(waiting_questions, self._adapter_run.run.guard)
        try:
            outcome = await self._adapter_run.acall(self._call, invoke)
            problem = ""
            while self._can_ask(outcome):
                answer = self._ask_person(outcome, problem)
                problem = await asyncio.to_thread(self._take_answer, outcome, answer)
                outcome = await self._adapter_run.acall(self._call, invoke)
        except AmbiguousResume:
            return self._refuse_call()
        except HostException as carrier:
            raise (carrier.__cause__ or carrier) from None
        return self._result_message(outcome)

    # -- running it ----------------------------------------------------------------------------------

    def _run_tool(self, arguments: dict[str, Any]) -> Any:
        assert self._invocation is not None, "there is something to run"
        self._count_own_questions()
        self._invocation.may_ask = self._may_ask()
        return self._invocation.run(arguments)

    async def _run_tool_async(self, arguments: dict[str, Any]) -> Any:
        assert self._invocation is not None, "there is something to run"
        if self._resumes:
            await asyncio.to_thread(self._count_own_questions)
        self._invocation.may_ask = self._may_ask()
        return await self._invocation.arun(arguments)

    def _was_refused(self) -> bool:
        """Return whether this task has refused it before, and runs again because of another call's question."""
        known: set[tuple[str, str]] | None = self._adapter_run.notes.get("refused")
        return known is not None and (_task_id(), self._call.id) in known

    def _refuse_call(self) -> Any:
        self._adapter_run.notes.setdefault("refused", set()).add((_task_id(), self._call.id))
        return self._send_alone_message()

    def _send_alone_message(self) -> Any:
        call = self._request.tool_call
        return ToolMessage(_SEND_ALONE.format(call["name"]), name=call["name"], tool_call_id=call["id"], status="error")

    def _result_message(self, outcome: Outcome) -> Any:
        invocation, key = self._invocation, outcome.key
        made = invocation.made if invocation is not None else None
        if key is not None and outcome.ok:
            leading = _redirecting_keys.setdefault(self._adapter_run.run.progress, set())
            if redirects_graph(made):
                leading.add(key)
            elif outcome.status == "replayed" and key in leading:
                outcome = msgspec.structs.replace(outcome, text=f"{outcome.text}\n{_NOT_REDIRECTED}")
        is_direct = invocation is not None and invocation.is_direct and self._is_last_step()
        direct = text_for_user(self._adapter_run.run.snapshot, outcome) if is_direct else None
        text = self._own_result(outcome, made) if self._on_wire else outcome.text
        return result_message(outcome, self._request.tool_call, made, direct=direct, text=text)

    def _own_result(self, outcome: Outcome, made: Any) -> str:
        """Return what LangChain would have kept of a result, or its value; the model's text if neither can be."""
        call = self._request.tool_call
        known = answering_message(made, call["id"])
        written = [known.content] if known is not None and isinstance(known.content, str) else []
        forms = [*written, value_text(outcome.value)] if outcome.ok else ()
        return cast("str", history_form(self._adapter_run, outcome, call["name"], forms, str))

    # -- a person --------------------------------------------------------------------------------------

    def _can_ask(self, outcome: Outcome) -> bool:
        """Return whether the graph can wait for a person; without a checkpointer it could never go on."""
        return (
            outcome.status == "pending" and outcome.approval is not None and can_interrupt(get_config()["configurable"])
        )

    def _ask_person(self, outcome: Outcome, problem: str) -> Any:
        """Interrupt the graph; when the task runs again, return what the graph was resumed with."""
        self._asked += 1
        question = build_question(self._adapter_run.run.guard, outcome, alone=self._is_alone(), problem=problem)
        answer, self._is_newest = _interrupt(question)
        return answer

    def _take_answer(self, outcome: Outcome, answer: Any) -> str:
        ident, place = outcome.approval or "", f"{_task_id()}/{self._asked}"
        # Older answers of the task, and those to a call that has changed since, were meant for another question.
        is_meant = self._is_newest and ident in self._known
        guard = self._adapter_run.run.guard
        return take_answer(guard, ident, answer, alone=self._is_alone(), is_meant=is_meant, place=place)

    def _count_own_questions(self) -> None:
        """Count the guard's questions before the tool asks one: LangGraph numbers the interrupts of a task.

        A task that was resumed had asked for the guard first, even if the question was answered elsewhere meanwhile.
        """
        if self._asked or not self._resumes:
            return
        if self._asks or find_question(self._adapter_run, self._call) is not None:
            guard, run_id = self._adapter_run.run.guard, self._adapter_run.run.id
            self._asked = max(1, count_answers(guard, run_id, _task_id()))
        for _ in range(self._asked):
            interrupt({"question": "answered before"})

    def _may_ask(self) -> bool:
        """Return whether an answer to the tool's own question is sure to reach this tool.

        LangGraph gives the answers of a task out in the order in which its calls ask. A write of the same task does
        not run again once it is done, and a question of the guard is not asked again, so the order changes.
        """
        if _is_own_task():
            return True
        siblings = self._sibling_calls()
        others = [call for call in siblings or () if read_field(call, "id") != self._request.tool_call["id"]]
        plans = (self._adapter_run.run.snapshot.find_plan(read_field(call, "name") or "") for call in others)
        return siblings is not None and not any(
            not isinstance(plan, Finding) and (plan.approval_rule.may_ask or plan.contract.effect != "read")
            for plan in plans
        )

    def _is_alone(self) -> bool:
        """Return whether this is the only call of its task."""
        return _is_own_task() or len(self._sibling_calls() or ()) == 1

    def _is_last_step(self) -> bool:
        """Return whether `create_agent` ends here: the tools of all its calls return what the user reads."""
        siblings = self._sibling_calls() if _is_own_task() else None
        if siblings is None:
            return False
        direct = {one.name for one in self._request.runtime.tools if one.return_direct}
        return direct.issuperset(read_field(call, "name") for call in siblings)

    def _sibling_calls(self) -> Sequence[Any] | None:
        """Return the calls of the same message, this one included; None if they are not found."""
        return self._find_reply()[0]

    def _find_reply(self) -> tuple[Sequence[Any] | None, Any]:
        """Return the calls of the same message, and that message; None for what is not found."""
        state, ident = self._request.state, self._request.tool_call["id"]
        if isinstance(state, list):
            channels: Iterable[Any] = [state]
        else:
            channels = (state if isinstance(state, Mapping) else getattr(state, "__dict__", {})).values()
        for channel in map(as_sequence, channels):
            reply: Any = None
            if channel and read_field(channel[-1], "type") == "tool_call":
                calls: Sequence[Any] = channel
            else:
                # The node itself finds them so. Another list of a state may be long, and ends this at once.
                messages = itertools.takewhile(lambda one: read_field(one, "type") in _MESSAGES, reversed(channel))
                reply = next((one for one in messages if read_field(one, "type") in _REPLIES), None)
                calls = as_sequence(read_field(reply, "tool_calls"))
            if any(read_field(call, "id") == ident for call in calls):
                return calls, reply
        return None, None


def _is_own_task() -> bool:
    """Return whether each call is a task of its own, as with `create_agent`."""
    path: Sequence[Any] = get_config().get("metadata", {}).get("langgraph_path") or ()
    return bool(path) and path[0] == "__pregel_push"


def _interrupt(question: dict[str, Any]) -> tuple[Any, bool]:
    """Interrupt the graph; returns the answer once there is one, and whether it came with this very resume."""
    config = get_config()
    conf = config["configurable"]
    scratchpad = conf[_SCRATCHPAD]
    number, given = scratchpad.interrupt_counter(), len(scratchpad.resume)
    numbered = dataclasses.replace(scratchpad, interrupt_counter=lambda: number)
    ours: Any = {**config, "configurable": {**conf, _SCRATCHPAD: numbered}}
    token = var_child_runnable_config.set(ours)
    try:
        answer = interrupt(question)
    finally:
        var_child_runnable_config.reset(token)
    return answer, number == given or (number + 1 == given and scratchpad.get_null_resume() is None)


def _task_id() -> str:
    return str(get_config()["configurable"].get("__pregel_task_id", ""))


def _is_resumed() -> bool:
    """Return whether a question of this task has been answered."""
    scratchpad = get_config()["configurable"].get("__pregel_scratchpad")
    return scratchpad is not None and (bool(scratchpad.resume) or scratchpad.get_null_resume() is not None)


# -- the tool ------------------------------------------------------------------------------------------


class ToolInvocation:
    """Runs the tool of one call with the effective arguments.

    Args:
        request: the request of the tool node.
        handler: the rest of the node, or another middleware.
        tool: the tool; None if the node does not have it.
        contract: its contract, or None.

    Attributes:
        made: what the node made of the tool's result; None if the tool did not run.
        may_ask: False if the answer to the tool's own question could be meant for another call.
    """

    __slots__ = (
        "_began", "_contract", "_direct", "_error", "_handler", "_request", "_tool", "_value", "made", "may_ask",
    )  # fmt: skip

    def __init__(
        self, request: Any, handler: Callable[[Any], Any], tool: BaseTool | None, contract: Contract | None
    ) -> None:
        """Run nothing yet."""
        self._request, self._handler, self._tool, self._contract = request, handler, tool, contract
        # Another middleware may run another tool, which has no wrapper; then nothing is proven.
        self._direct = getattr(handler, "__qualname__", "").startswith("ToolNode.")
        self._began = False
        self._value: Any = None
        self._error: Exception | None = None
        self.made: Any = None
        self.may_ask = True

    def run(self, arguments: dict[str, Any]) -> Any:
        """Run the tool and return its value, as it was before LangChain made text of it."""
        with self._observe_attempt():
            made = self._handler(self._build_request(arguments))
        return self._take_result(made)

    async def arun(self, arguments: dict[str, Any]) -> Any:
        """`run` for asynchronous code."""
        with self._observe_attempt():
            made = await cast("Awaitable[Any]", self._handler(self._build_request(arguments)))
        return self._take_result(made)

    @contextlib.contextmanager
    def _observe_attempt(self) -> Generator[None]:
        """Let the tool's wrapper report to this call, and raise an exception as what the guard has to know of it."""
        self._began, self._value, self._error, self.made = False, None, None, None
        token = _invocation_var.set(self)
        try:
            yield
        except Exception as error:
            self._translate_error(error)
            raise
        finally:
            _invocation_var.reset(token)

    @property
    def is_direct(self) -> bool:
        """True if the tool returns what the user reads, not the model."""
        return self._tool is not None and self._tool.return_direct

    # -- reported by the tool's wrapper --------------------------------------------------------------

    def mark_started(self) -> None:
        """Take note that the tool's own code starts, in a context of its own."""
        self._began = True
        if not self.may_ask:
            _forbid_questions()

    def mark_returned(self, value: Any) -> None:
        """Keep what it has returned."""
        self._value, self._error = value, None

    def mark_raised(self, error: Exception) -> None:
        """Keep what it has raised."""
        self._error = error

    # -- parts ---------------------------------------------------------------------------------------

    def _build_request(self, arguments: dict[str, Any]) -> Any:
        call = {**self._request.tool_call, "args": arguments}
        tool = self._tool
        if tool is not None:
            call["name"] = tool.name
            tool = wrap_object(tool, _wrapper_methods)
        if type(self._request) is not ToolCallRequest:
            return self._request.override(tool_call=call, tool=tool)
        # `override` does the same in ten times the time: it looks each attribute up twice before it sets it.
        changed = object.__new__(ToolCallRequest)
        changed.__dict__.update(self._request.__dict__, tool_call=call, tool=tool)
        return changed

    def _translate_error(self, error: Exception) -> None:
        """Raise what the guard has to know. An exception from before the tool started is no failure of the tool."""
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
        answer = answering_message(made, self._request.tool_call["id"])
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
        return value if not is_message(value) else None if answer is None else answer.content

    def _raise_author_text(self, error: Exception, answer: Any) -> None:
        """Raise the text by which a tool's author handles its own exception: it is meant for the model."""
        if not isinstance(error, ToolException) or self._tool is None or not self._tool.handle_tool_error:
            return
        text = "" if answer is None else answer.text
        harmless = self._contract is not None and isinstance(error, self._contract.no_effect_errors)
        raise (ArgumentsRejected if harmless else ToolError)(text) from error


def _forbid_questions() -> None:
    """Let each later question of the tool raise `AmbiguousResume`, in this context."""
    config = get_config()
    conf = config["configurable"]
    if (scratchpad := conf.get(_SCRATCHPAD)) is not None:
        silent = dataclasses.replace(scratchpad, interrupt_counter=_refuse_question)
        ours: Any = {**config, "configurable": {**conf, _SCRATCHPAD: silent}}
        var_child_runnable_config.set(ours)


def _refuse_question() -> int:
    """Stand in for the counter by which LangGraph's `interrupt` numbers a question."""
    raise AmbiguousResume


_invocation_var: ContextVar[ToolInvocation | None] = ContextVar("pokayoke_langchain_passing", default=None)


def _wrapper_methods(kind: type) -> dict[str, Any]:
    """Return the methods of a tool's wrapper. LangChain reads the signatures, so they stay."""
    base = cast("Any", kind)
    plain, awaited = base._run, base._arun  # noqa: SLF001 - the class is extended

    def run_tool(self: Any, *args: Any, **kwargs: Any) -> Any:
        invocation = _invocation_var.get()
        if invocation is None or getattr(self, "func", self) is None:  # a tool without a synchronous side only says so
            return plain(self, *args, **kwargs)
        invocation.mark_started()
        try:
            value = plain(self, *args, **kwargs)
        except Exception as error:
            invocation.mark_raised(error)
            raise
        invocation.mark_returned(value)
        return value

    async def run_tool_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        invocation = _invocation_var.get()
        if invocation is None:
            return await awaited(self, *args, **kwargs)
        invocation.mark_started()
        try:
            value = await awaited(self, *args, **kwargs)
        except Exception as error:
            invocation.mark_raised(error)
            raise
        except asyncio.CancelledError as gone:
            await _report_abandoned_tool(gone)
            raise
        invocation.mark_returned(value)
        return value

    # LangChain compares `_arun` with its own to see whether a class has one.
    own = cast("Any", BaseTool)._arun  # noqa: SLF001 - as above
    methods = {"_run": _copy_signature(run_tool, plain)}
    return methods if awaited is own else {**methods, "_arun": _copy_signature(run_tool_async, awaited)}


async def _report_abandoned_tool(gone: asyncio.CancelledError) -> None:
    """Report the end of a tool that was given up to LangChain's callbacks, which hear of its start only."""
    inside = (var_child_runnable_config.get() or {}).get("callbacks")
    if isinstance(inside, AsyncCallbackManager) and inside.parent_run_id is not None:
        handlers, inherited = inside.handlers, inside.inheritable_handlers
        ending = AsyncCallbackManagerForToolRun(
            run_id=inside.parent_run_id, handlers=handlers, inheritable_handlers=inherited
        )
        await ending.on_tool_error(gone)


def _copy_signature(function: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the signature of another one, resolved: LangChain reads it and the types before each call."""
    functools.update_wrapper(function, plain)
    try:
        hints, signature = get_type_hints(plain, include_extras=True), inspect.signature(plain)
    except Exception:  # noqa: BLE001 - names that only a type checker knows: then LangChain finds what it always found
        return function
    known = [one.replace(annotation=hints.get(name, one.annotation)) for name, one in signature.parameters.items()]
    returned = hints.get("return", signature.return_annotation)
    function.__annotations__ = hints
    cast("Any", function).__signature__ = signature.replace(parameters=known, return_annotation=returned)
    return function
