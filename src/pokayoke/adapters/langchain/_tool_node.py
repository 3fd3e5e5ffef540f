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

from pokayoke.adapters._host.run import Hosted, written
from pokayoke.adapters.langchain._approvals import places_of, question, take
from pokayoke.adapters.langchain._model import as_heard
from pokayoke.adapters.langchain._tools import Crowded, Passed, Passing, leads, message_of
from pokayoke.core.call import Finding, Outcome
from pokayoke.core.messages.messages import field, items

if TYPE_CHECKING:
    from pokayoke.runtime.memory.run_memory import Progress

__all__ = ["Arrival"]

_NOT_LED = "It handed over then, and was not repeated: nobody is handed over now."
_REPLIES = ("ai", "AIMessageChunk")
_MESSAGES = frozenset({*_REPLIES, "chat", "function", "human", "system", "tool"})
_CROWDED = (
    "{} was not run, because it asks a person something and other calls stand beside it. "
    "Send it again in a message of its own."
)
_leading: weakref.WeakKeyDictionary[Progress, set[str]] = weakref.WeakKeyDictionary()
"""Keys of the writes of a run whose commands led elsewhere."""


class Arrival:
    """One call at the tool node.

    Args:
        hosted: the run.
        request: the node's request.
        handler: its way on.
    """

    def __init__(self, hosted: Hosted, request: Any, handler: Callable[[Any], Any]) -> None:
        """Find out what was asked, and what there is to run."""
        self._hosted, self._request = hosted, request
        shown = request.tool_call
        name, args, call = as_heard(hosted).get(shown["id"] or "") or ("", None, None)
        same = call is not None and (name, args) == (shown["name"], shown["args"])
        self._call = call if call is not None and same else written(shown["id"], shown["name"], shown["args"])
        self._passing: Passing | None = None
        self._asks, self._asked = False, 0
        found = hosted.run.snapshot.find(self._call.name)
        if isinstance(found, Finding):
            return
        contract, tool = found.contract, request.tool
        self._asks = found.asks
        if tool is None or tool.name != contract.name:  # the model has spelt the name in its own way
            tool = next((one for one in request.runtime.tools if one.name == contract.name), None)
        if tool is not None or (contract.handler is None and contract is not hosted.run.guard.pager):
            self._passing = Passing(request, handler, tool, contract)

    def run(self) -> Any:
        """Take it to a `ToolMessage`, or the command the tool returned. Raises what LangGraph steers itself by."""
        if self._is_crowded():
            return self._alone_please()
        invoke = self._invoke if self._passing is not None else None
        try:
            outcome = self._hosted.call(self._call, invoke)
            problem = ""
            while self._can_ask(outcome):
                problem = self._take(outcome, self._ask(outcome, problem))
                outcome = self._hosted.call(self._call, invoke)
        except Crowded:
            self._hosted.notes.setdefault("crowded", set()).add((_task(), self._call.id))
            return self._alone_please()
        except Passed as carrier:
            raise _carried(carrier) from None
        return self._message(outcome)

    async def arun(self) -> Any:
        """`run` for asynchronous code."""
        if self._is_crowded():
            return self._alone_please()
        invoke = self._ainvoke if self._passing is not None else None
        try:
            outcome = await self._hosted.acall(self._call, invoke)
            problem = ""
            while self._can_ask(outcome):
                answer = self._ask(outcome, problem)
                problem = await asyncio.to_thread(self._take, outcome, answer)
                outcome = await self._hosted.acall(self._call, invoke)
        except Crowded:
            self._hosted.notes.setdefault("crowded", set()).add((_task(), self._call.id))
            return self._alone_please()
        except Passed as carrier:
            raise _carried(carrier) from None
        return self._message(outcome)

    # -- the tool ------------------------------------------------------------------------------------

    def _invoke(self, arguments: dict[str, Any]) -> Any:
        assert self._passing is not None, "there is something to run"
        self._keep_place()
        self._passing.may_ask = self._may_ask()
        return self._passing.run(arguments)

    async def _ainvoke(self, arguments: dict[str, Any]) -> Any:
        assert self._passing is not None, "there is something to run"
        if self._asks:
            await asyncio.to_thread(self._keep_place)
        self._passing.may_ask = self._may_ask()
        return await self._passing.arun(arguments)

    def _is_crowded(self) -> bool:
        """Whether it was turned away before in this task, which somebody else's question has made run again."""
        known: set[tuple[str, str]] | None = self._hosted.notes.get("crowded")
        return known is not None and (_task(), self._call.id) in known

    def _alone_please(self) -> Any:
        call = self._request.tool_call
        return ToolMessage(_CROWDED.format(call["name"]), name=call["name"], tool_call_id=call["id"], status="error")

    def _message(self, outcome: Outcome) -> Any:
        passing, key = self._passing, outcome.key
        made = passing.made if passing is not None else None
        if key is not None and outcome.ok:
            leading = _leading.setdefault(self._hosted.run.progress, set())
            if leads(made):
                leading.add(key)
            elif outcome.status == "replayed" and key in leading:
                outcome = msgspec.structs.replace(outcome, text=f"{outcome.text}\n{_NOT_LED}")
        direct = passing is not None and passing.direct and self._direct()
        return message_of(outcome, self._request.tool_call, made, direct=direct)

    # -- a person --------------------------------------------------------------------------------------

    def _can_ask(self, outcome: Outcome) -> bool:
        """Whether the graph can wait for a person; without a checkpointer it could never go on."""
        return (
            outcome.status == "pending"
            and outcome.approval is not None
            and get_config()["configurable"].get("__pregel_checkpointer") is not None
        )

    def _ask(self, outcome: Outcome, problem: str) -> Any:
        """Interrupt the graph. Run again, this returns what the graph was resumed with."""
        self._asked += 1
        return interrupt(question(self._hosted.run.guard, outcome, alone=self._alone(), problem=problem))

    def _take(self, outcome: Outcome, answer: Any) -> str:
        ident, place = outcome.approval or "", f"{_task()}/{self._asked}"
        return take(self._hosted.run.guard, ident, answer, alone=self._alone(), place=place)

    def _keep_place(self) -> None:
        """LangGraph counts interrupts: before the tool asks somebody itself, our own questions have to be counted.

        A task that was resumed had asked for the guard first, even if the question was answered elsewhere meanwhile.
        """
        if not self._asks or self._asked or not _resumed():
            return
        self._asked = max(1, places_of(self._hosted.run.guard, self._hosted.run.id, _task()))
        for _ in range(self._asked):
            interrupt({"question": "answered before"})

    def _may_ask(self) -> bool:
        """Whether what a person answers the tool is sure to come to it.

        LangGraph hands the answers of a task out in the order in which its calls ask. A write beside this one is not
        run again once it is done, and a question of the guard is not asked again: from then on the count is another.
        """
        if _pushed():
            return True
        beside = self._beside()
        others = [call for call in beside or () if field(call, "id") != self._request.tool_call["id"]]
        plans = (self._hosted.run.snapshot.find(field(call, "name") or "") for call in others)
        return beside is not None and not any(
            not isinstance(plan, Finding) and (plan.asks or plan.contract.effect != "read") for plan in plans
        )

    def _alone(self) -> bool:
        """Whether this is the only call of its task."""
        return _pushed() or len(self._beside() or ()) == 1

    def _direct(self) -> bool:
        """Whether `create_agent` ends here: the tools of all these calls return what the user reads."""
        beside = self._beside() if _pushed() else None
        if beside is None:
            return False
        direct = {one.name for one in self._request.runtime.tools if one.return_direct}
        return direct.issuperset(field(call, "name") for call in beside)

    def _beside(self) -> Sequence[Any] | None:
        """The calls that this one stands among, wherever the node was handed them; None if they are not found."""
        state, ident = self._request.state, self._request.tool_call["id"]
        if isinstance(state, list):
            channels: Iterable[Any] = [state]
        else:
            channels = (state if isinstance(state, Mapping) else getattr(state, "__dict__", {})).values()
        for channel in map(items, channels):
            if channel and field(channel[-1], "type") == "tool_call":
                calls: Sequence[Any] = channel
            else:
                # As the node itself looks for them. Another list of a state may be long, and ends this at once.
                messages = itertools.takewhile(lambda one: field(one, "type") in _MESSAGES, reversed(channel))
                said = next((one for one in messages if field(one, "type") in _REPLIES), None)
                calls = items(field(said, "tool_calls"))
            if any(field(call, "id") == ident for call in calls):
                return calls
        return None


def _pushed() -> bool:
    """Whether each call is a task of its own, as with `create_agent`."""
    path: Sequence[Any] = get_config().get("metadata", {}).get("langgraph_path") or ()
    return bool(path) and path[0] == "__pregel_push"


def _task() -> str:
    return str(get_config()["configurable"].get("__pregel_task_id", ""))


def _carried(carrier: Passed) -> BaseException:
    return carrier.__cause__ or carrier


def _resumed() -> bool:
    """Whether somebody has answered what a call of this task asked."""
    scratchpad = get_config()["configurable"].get("__pregel_scratchpad")
    return scratchpad is not None and (bool(scratchpad.resume) or scratchpad.get_null_resume() is not None)
