"""The middleware that guards an agent of LangChain, or the two nodes of a graph.

In: the hooks of LangChain's middleware. Out: responses and messages that the graph may go on with. Never: a call of a
tool, or a reply of a model, that reaches the graph before the guard has taken it.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode

from pokayoke.adapters._host.frames import Frame, require_frame
from pokayoke.adapters._host.ordering import is_inside_call
from pokayoke.adapters.langchain._capture import CapturedReply, finish_reason, reply_calls
from pokayoke.adapters.langchain._contracts import as_langchain_tool
from pokayoke.adapters.langchain._model import ModelLoop, as_messages, with_changes
from pokayoke.adapters.langchain._results import result_message
from pokayoke.adapters.langchain._run import GraphRuns, Who
from pokayoke.adapters.langchain._tools import ToolNodeCall
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.messages.replies import CallIds
from pokayoke.runtime.guard.guard import Guard
from pokayoke.runtime.memory.run_memory import RunMemory
from pokayoke.runtime.run.run import Run


class GuardMiddleware(AgentMiddleware):
    """Guards an agent of LangChain, or both nodes of a graph of your own.

    Put it last in `middleware=[...]`. The last one is the innermost: it gets the model's reply before any other
    middleware has changed it, and checks the arguments of a tool after all others.

    The run's id is the graph's `thread_id`. Without one the run is the invocation, with all agents inside it, and a
    restart cannot know it again. One object serves any number of threads, agents and sub-agents at once.

    Args:
        guard: the guard, with the contracts of all tools of the agent.
        window: size of the model's window in tokens: requests are kept below it, and the graph's history stays as
            it is. None never shortens a request.
        who: called with the graph's config, for each request and each call; returns `session`, `tenant` and
            `principal`. A thread belongs to one tenant.
        frame: where `<tool_output …>` is around the results of calls that end ok: in the graph's history as well
            (`history`), or only in the requests (`wire`), so that the history holds what the tools returned.

    Raises:
        UsageError: `frame` is another word.
    """

    def __init__(
        self, guard: Guard, *, window: int | None = None, who: Who | None = None, frame: Frame = "history"
    ) -> None:
        """Begin with no run."""
        super().__init__()
        self.guard, self.window = guard, window
        self._on_wire = require_frame(frame)
        self._runs = GraphRuns(guard, who)
        self._user_ids: weakref.WeakKeyDictionary[RunMemory, str | None] = weakref.WeakKeyDictionary()

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Ask the model; its reply comes back as it may go into the history.

        Raises:
            UsageError: a tool of the request has no contract, or the run has no id.
        """
        request = _convert_messages(request)
        loop = self._loop_for_request(request)
        while (messages := loop.fit_messages(request)) is not None:
            if loop.has_open_calls(messages):
                messages = loop.adapter_run.run.answer_open_calls(messages)
            out = loop.shape_request(request, messages)
            with CapturedReply() as captured:
                response = handler(out)
            if (taken := loop.take_response(response, captured)) is not None:
                return taken
        return _overflow_response(loop)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_model_call` for asynchronous code."""
        request = _convert_messages(request)
        loop = self._loop_for_request(request)
        while (messages := loop.fit_messages(request)) is not None:
            if loop.has_open_calls(messages):
                messages = await loop.adapter_run.run.aanswer_open_calls(messages)
            out = loop.shape_request(request, messages)
            with CapturedReply() as captured:
                response = await handler(out)
            if (taken := loop.take_response(response, captured)) is not None:
                return taken
        return _overflow_response(loop)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Take one call to the message that answers it, or the command that its tool returned.

        If a person has to approve it, the graph is interrupted; without a checkpointer the model reads that it waits.
        """
        return self._node_call(request, handler).run()

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_tool_call` for asynchronous code."""
        return await self._node_call(request, handler).arun()

    def _node_call(self, request: Any, handler: Callable[[Any], Any]) -> ToolNodeCall:
        return ToolNodeCall(self._runs.current_run(request.state), request, handler, on_wire=self._on_wire)

    # -- a graph of your own ---------------------------------------------------------------------------

    def bind(self, model: Any, tools: Sequence[Any], **options: Any) -> Any:
        """Return what stands in for `model.bind_tools(tools)` in a node of your own.

        Args:
            model: a chat model.
            tools: as `bind_tools` takes them.
            options: further arguments of `bind_tools`, such as `parallel_tool_calls`.

        Returns:
            a runnable: messages in, an `AIMessage` out; synchronous and asynchronous.
        """
        made = [tool if isinstance(tool, (BaseTool, dict)) else as_langchain_tool(tool) for tool in tools]

        def build_request(messages: Any) -> Any:
            return ModelRequest(model=model, tools=made, messages=as_messages(messages))

        def bind_model(request: Any) -> Any:
            return request.model.bind_tools(request.tools, **options) if request.tools else request.model

        def call_model(request: Any) -> Any:
            return ModelResponse(result=[bind_model(request).invoke(request.messages)])

        async def call_model_async(request: Any) -> Any:
            return ModelResponse(result=[await bind_model(request).ainvoke(request.messages)])

        def ask_model(messages: Any) -> Any:
            return self.wrap_model_call(build_request(messages), call_model).result[0]

        async def ask_model_async(messages: Any) -> Any:
            return (await self.awrap_model_call(build_request(messages), call_model_async)).result[0]

        return RunnableLambda(ask_model, ask_model_async, name="guarded_model")

    def tool_node(self, tools: Sequence[Any], **options: Any) -> Any:
        """Return a `ToolNode` of these tools, guarded; `options` are the node's own."""
        return ToolNode(tools, wrap_tool_call=self.wrap_tool_call, awrap_tool_call=self.awrap_tool_call, **options)

    def _loop_for_request(self, request: Any) -> ModelLoop:
        """Return the loop that a request belongs to; what the user says in it has begun a turn."""
        adapter_run = self._runs.current_run(request.messages)
        notes = adapter_run.notes
        loop: ModelLoop = notes.get("loop") or notes.setdefault(
            "loop", ModelLoop(adapter_run, self.window, on_wire=self._on_wire)
        )
        loop.adapter_run = adapter_run
        if not is_inside_call():  # there, another model gives the agent its task, which begins no turn
            memory = adapter_run.run.progress
            known = self._user_ids.get(memory)
            if (latest := loop.begin_turn(request, known)) != known:
                self._user_ids[memory] = latest
        return loop


def _convert_messages(request: Any) -> Any:
    """Return the request with messages alone: other middleware may have written some as pairs or dicts."""
    messages = as_messages(request.messages)
    return request if messages is request.messages else with_changes(request, {"messages": messages})


def _overflow_response(loop: ModelLoop) -> Any:
    """Return the answer if no request fits the window."""
    return ModelResponse(result=[AIMessage(loop.adapter_run.final_text(None))])


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of an `AIMessage`, in order, for a loop of your own.

    LangChain has parsed the arguments by then, and may have lost something. Agents, and `guarded.bind(model, tools)`,
    take the texts as they come.
    """
    ids, stop = CallIds(), finish_reason(reply.response_metadata)
    return [ToolCall(ids.unique_id(one.id), one.name, one.arguments, stop) for one in reply_calls(reply)]


def message(outcome: Outcome) -> Any:
    """Return the `ToolMessage` that answers a call."""
    return result_message(outcome, {"id": outcome.call_id, "name": outcome.tool})
