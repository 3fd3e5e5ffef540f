"""A call that has come to LangGraph's tool node, taken to the message that answers it."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.types import interrupt

from pokayoke.adapters._host.calls import decode_call
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters.langchain._approvals import build_question, count_answers, take_answer
from pokayoke.adapters.langchain._model import call_cache
from pokayoke.adapters.langchain._tools import (
    AmbiguousResume,
    HostException,
    ToolInvocation,
    redirects_graph,
    result_message,
)
from pokayoke.core.call import Finding, Outcome
from pokayoke.core.json.values import as_sequence, read_field

if TYPE_CHECKING:
    from pokayoke.runtime.memory.run_memory import RunMemory

__all__ = ["ToolNodeCall"]

_NOT_REDIRECTED = "It handed over then, and was not repeated: nobody is handed over now."
_REPLIES = ("ai", "AIMessageChunk")
_MESSAGES = frozenset({*_REPLIES, "chat", "function", "human", "system", "tool"})
_SEND_ALONE = (
    "{} was not run, because it asks a person something and other calls stand beside it. "
    "Send it again in a message of its own."
)
_redirecting_keys: weakref.WeakKeyDictionary[RunMemory, set[str]] = weakref.WeakKeyDictionary()
"""Keys of the writes of a run whose commands led elsewhere."""


class ToolNodeCall:
    """One call at the tool node.

    Args:
        hosted: the run.
        request: the node's request.
        handler: its way on.
    """

    def __init__(self, hosted: AdapterRun, request: Any, handler: Callable[[Any], Any]) -> None:
        """Find out what was asked, and what there is to run."""
        self._hosted, self._request = hosted, request
        shown = request.tool_call
        name, args, call = call_cache(hosted).get(shown["id"] or "") or ("", None, None)
        same = call is not None and (name, args) == (shown["name"], shown["args"])
        self._call = call if call is not None and same else decode_call(shown["id"], shown["name"], shown["args"])
        self._passing: ToolInvocation | None = None
        self._asks, self._asked = False, 0
        found = hosted.run.snapshot.find_plan(self._call.name)
        if isinstance(found, Finding):
            return
        contract, tool = found.contract, request.tool
        self._asks = found.asks
        if tool is None or tool.name != contract.name:  # the model has spelt the name in its own way
            tool = next((one for one in request.runtime.tools if one.name == contract.name), None)
        if tool is not None or (contract.handler is None and contract is not hosted.run.guard.pager):
            self._passing = ToolInvocation(request, handler, tool, contract)

    def run(self) -> Any:
        """Take it to a `ToolMessage`, or the command the tool returned. Raises what LangGraph steers itself by."""
        if self._has_been_refused():
            return self._send_alone_message()
        invoke = self._run_tool if self._passing is not None else None
        try:
            outcome = self._hosted.call(self._call, invoke)
            problem = ""
            while self._can_ask(outcome):
                problem = self._take_answer(outcome, self._ask_person(outcome, problem))
                outcome = self._hosted.call(self._call, invoke)
        except AmbiguousResume:
            self._hosted.notes.setdefault("crowded", set()).add((_task_id(), self._call.id))
            return self._send_alone_message()
        except HostException as carrier:
            raise _carried_exception(carrier) from None
        return self._result_message(outcome)

    async def arun(self) -> Any:
        """`run` for asynchronous code."""
        if self._has_been_refused():
            return self._send_alone_message()
        invoke = self._run_tool_async if self._passing is not None else None
        try:
            outcome = await self._hosted.acall(self._call, invoke)
            problem = ""
            while self._can_ask(outcome):
                answer = self._ask_person(outcome, problem)
                problem = await asyncio.to_thread(self._take_answer, outcome, answer)
                outcome = await self._hosted.acall(self._call, invoke)
        except AmbiguousResume:
            self._hosted.notes.setdefault("crowded", set()).add((_task_id(), self._call.id))
            return self._send_alone_message()
        except HostException as carrier:
            raise _carried_exception(carrier) from None
        return self._result_message(outcome)

    # -- the tool ------------------------------------------------------------------------------------

    def _run_tool(self, arguments: dict[str, Any]) -> Any:
        assert self._passing is not None, "there is something to run"
        self._count_own_questions()
        self._passing.may_ask = self._may_ask()
        return self._passing.run(arguments)

    async def _run_tool_async(self, arguments: dict[str, Any]) -> Any:
        assert self._passing is not None, "there is something to run"
        if self._asks:
            await asyncio.to_thread(self._count_own_questions)
        self._passing.may_ask = self._may_ask()
        return await self._passing.arun(arguments)

    def _has_been_refused(self) -> bool:
        """Whether it was turned away before in this task, which somebody else's question has made run again."""
        known: set[tuple[str, str]] | None = self._hosted.notes.get("crowded")
        return known is not None and (_task_id(), self._call.id) in known

    def _send_alone_message(self) -> Any:
        call = self._request.tool_call
        return ToolMessage(_SEND_ALONE.format(call["name"]), name=call["name"], tool_call_id=call["id"], status="error")

    def _result_message(self, outcome: Outcome) -> Any:
        passing, key = self._passing, outcome.key
        made = passing.made if passing is not None else None
        if key is not None and outcome.ok:
            leading = _redirecting_keys.setdefault(self._hosted.run.progress, set())
            if redirects_graph(made):
                leading.add(key)
            elif outcome.status == "replayed" and key in leading:
                outcome = msgspec.structs.replace(outcome, text=f"{outcome.text}\n{_NOT_REDIRECTED}")
        direct = passing is not None and passing.is_direct and self._is_last_step()
        return result_message(outcome, self._request.tool_call, made, direct=direct)

    # -- a person --------------------------------------------------------------------------------------

    def _can_ask(self, outcome: Outcome) -> bool:
        """Whether the graph can wait for a person; without a checkpointer it could never go on."""
        return (
            outcome.status == "pending"
            and outcome.approval is not None
            and get_config()["configurable"].get("__pregel_checkpointer") is not None
        )

    def _ask_person(self, outcome: Outcome, problem: str) -> Any:
        """Interrupt the graph. Run again, this returns what the graph was resumed with."""
        self._asked += 1
        return interrupt(build_question(self._hosted.run.guard, outcome, alone=self._is_alone(), problem=problem))

    def _take_answer(self, outcome: Outcome, answer: Any) -> str:
        ident, place = outcome.approval or "", f"{_task_id()}/{self._asked}"
        return take_answer(self._hosted.run.guard, ident, answer, alone=self._is_alone(), place=place)

    def _count_own_questions(self) -> None:
        """LangGraph counts interrupts: before the tool asks somebody itself, our own questions have to be counted.

        A task that was resumed had asked for the guard first, even if the question was answered elsewhere meanwhile.
        """
        if not self._asks or self._asked or not _is_resumed():
            return
        self._asked = max(1, count_answers(self._hosted.run.guard, self._hosted.run.id, _task_id()))
        for _ in range(self._asked):
            interrupt({"question": "answered before"})

    def _may_ask(self) -> bool:
        """Whether what a person answers the tool is sure to come to it.

        LangGraph hands the answers of a task out in the order in which its calls ask. A write beside this one is not
        run again once it is done, and a question of the guard is not asked again: from then on the count is another.
        """
        if _is_own_task():
            return True
        beside = self._sibling_calls()
        others = [call for call in beside or () if read_field(call, "id") != self._request.tool_call["id"]]
        plans = (self._hosted.run.snapshot.find_plan(read_field(call, "name") or "") for call in others)
        return beside is not None and not any(
            not isinstance(plan, Finding) and (plan.asks or plan.contract.effect != "read") for plan in plans
        )

    def _is_alone(self) -> bool:
        """Whether this is the only call of its task."""
        return _is_own_task() or len(self._sibling_calls() or ()) == 1

    def _is_last_step(self) -> bool:
        """Whether `create_agent` ends here: the tools of all these calls return what the user reads."""
        beside = self._sibling_calls() if _is_own_task() else None
        if beside is None:
            return False
        direct = {one.name for one in self._request.runtime.tools if one.return_direct}
        return direct.issuperset(read_field(call, "name") for call in beside)

    def _sibling_calls(self) -> Sequence[Any] | None:
        """The calls that this one stands among, wherever the node was handed them; None if they are not found."""
        state, ident = self._request.state, self._request.tool_call["id"]
        if isinstance(state, list):
            channels: Iterable[Any] = [state]
        else:
            channels = (state if isinstance(state, Mapping) else getattr(state, "__dict__", {})).values()
        for channel in map(as_sequence, channels):
            if channel and read_field(channel[-1], "type") == "tool_call":
                calls: Sequence[Any] = channel
            else:
                # As the node itself looks for them. Another list of a state may be long, and ends this at once.
                messages = itertools.takewhile(lambda one: read_field(one, "type") in _MESSAGES, reversed(channel))
                said = next((one for one in messages if read_field(one, "type") in _REPLIES), None)
                calls = as_sequence(read_field(said, "tool_calls"))
            if any(read_field(call, "id") == ident for call in calls):
                return calls
        return None


def _is_own_task() -> bool:
    """Whether each call is a task of its own, as with `create_agent`."""
    path: Sequence[Any] = get_config().get("metadata", {}).get("langgraph_path") or ()
    return bool(path) and path[0] == "__pregel_push"


def _task_id() -> str:
    return str(get_config()["configurable"].get("__pregel_task_id", ""))


def _carried_exception(carrier: HostException) -> BaseException:
    return carrier.__cause__ or carrier


def _is_resumed() -> bool:
    """Whether somebody has answered what a call of this task asked."""
    scratchpad = get_config()["configurable"].get("__pregel_scratchpad")
    return scratchpad is not None and (bool(scratchpad.resume) or scratchpad.get_null_resume() is not None)
