"""LangChain and LangGraph.

guard = pokayoke.Guard(contracts(tools, reads=["find_order"]), store="sqlite:///ledger.db")
agent = create_agent(model, tools, middleware=[GuardMiddleware(guard)])

In a graph of your own the same object guards both nodes:

guarded = GuardMiddleware(guard)
chat, tool_node = guarded.bind(model, tools), guarded.tool_node(tools)
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.messages.replies import CallIds
from pokayoke.errors import MissingExtraError, UsageError

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import BaseTool
    from langchain_core.tools import tool as as_tool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config
    from langgraph.prebuilt import ToolNode
except ImportError as error:
    raise MissingExtraError("langchain", "langchain") from error

from pokayoke.adapters._host.ordering import is_inside_call
from pokayoke.adapters.langchain._model import CapturedReply, finish_reason, reply_calls
from pokayoke.adapters.langchain._request import ModelLoop, as_messages, known_ids, with_changes
from pokayoke.adapters.langchain._tool_node import ToolNodeCall
from pokayoke.adapters.langchain._tools import CONTROL_EXCEPTIONS, ArgumentsRejected, result_message

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.memory.run_memory import RunMemory
    from pokayoke.runtime.run.run import Run

__all__ = ["GuardMiddleware", "calls", "contracts", "message"]

Who = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class GuardMiddleware(AgentMiddleware):
    """Guards an agent of LangChain, or both nodes of a graph of your own.

    Put it last in `middleware=[...]`. The last one is the innermost: it hears what the model wrote before anybody
    has changed it, and checks what the tool receives after everybody has.

    The run's id is the graph's `thread_id`. Without one the run is the invocation, with all agents inside it, and a
    restart cannot know it again. One object serves any number of threads, agents and sub-agents at once.

    Args:
        guard: the guard, with the contracts of all tools of the agent.
        window: size of the model's window in tokens: requests are kept below it, and the graph's history stays as
            it is. None never shortens a request.
        who: called with the graph's config, for each request and each call; returns `session`, `tenant` and
            `principal`. A thread belongs to one tenant.
    """

    def __init__(self, guard: Guard, *, window: int | None = None, who: Who | None = None) -> None:
        """Begin with no run."""
        super().__init__()
        self.guard, self.window = guard, window
        self._who = who
        self._runs = AdapterRuns(guard, through=CONTROL_EXCEPTIONS)
        self._said: weakref.WeakKeyDictionary[RunMemory, str | None] = weakref.WeakKeyDictionary()

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Ask the model; its reply comes back as it may go into the history.

        Raises:
            UsageError: a tool of the request has no contract, or the run has no id.
        """
        request = _convert_messages(request)
        loop = self._loop_for_request(request)
        while (out := loop.shape_request(request)) is not None:
            with CapturedReply() as heard:
                response = handler(out)
            if (taken := loop.take_reply(response, heard)) is not None:
                return taken
        return _overflow_response(loop)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_model_call` for asynchronous code."""
        request = _convert_messages(request)
        loop = self._loop_for_request(request)
        while (out := loop.shape_request(request)) is not None:
            with CapturedReply() as heard:
                response = await handler(out)
            if (taken := loop.take_reply(response, heard)) is not None:
                return taken
        return _overflow_response(loop)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Take one call from what the model wrote to the message that answers it, or the command its tool returned.

        Where a person has to approve it, the graph is interrupted; without a checkpointer the model is told to wait.
        """
        return ToolNodeCall(self._run_of(request.state), request, handler).run()

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_tool_call` for asynchronous code."""
        return await ToolNodeCall(self._run_of(request.state), request, handler).arun()

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
        made = [tool if isinstance(tool, (BaseTool, dict)) else as_tool(tool) for tool in tools]

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

    # -- parts -----------------------------------------------------------------------------------------

    def _loop_for_request(self, request: Any) -> ModelLoop:
        """The loop that a request belongs to, told of what the user says in it."""
        hosted = self._run_of(request.messages)
        loop = cast(
            "ModelLoop", hosted.notes.get("loop") or hosted.notes.setdefault("loop", ModelLoop(hosted, self.window))
        )
        loop.hosted = hosted
        if not is_inside_call():  # there, what an agent is told comes from another model and begins no turn
            progress = hosted.run.progress
            known = self._said.get(progress)
            if (said := loop.begin_turn(request, known)) != known:
                self._said[progress] = said
        return loop

    def _run_of(self, state: Any) -> AdapterRun:
        """The running loop, acting for its caller of now."""
        config = get_config()
        conf = config["configurable"]
        # In a graph inside a graph, what stands before the last bar is the node it runs in.
        part = str(conf.get("checkpoint_ns", "")).rpartition("|")[0]
        who = self._who(config) if self._who is not None else {}
        if (thread := conf.get("thread_id")) is not None:
            return self._runs.run_for(str(thread), part=part, taken=known_ids(state), **who)
        return self._run_of_invocation(conf, part, state, who)

    def _run_of_invocation(self, conf: Mapping[str, Any], part: str, state: Any, who: Mapping[str, Any]) -> AdapterRun:
        """The run of an invocation without a thread: its nodes share one control, and so do graphs inside them."""
        control = getattr(conf.get("__pregel_runtime"), "control", None)
        if control is None:
            raise UsageError(
                "outside of a graph a run needs an id: pass config={'configurable': {'thread_id': ...}} to invoke()"
            )
        ident = f"invocation {id(control)}"
        hosted = self._runs.run_for(ident, durable=False, taken=known_ids(state), life=control, **who)
        if not part:
            return hosted
        named = not self.guard.store.durable  # a durable store must not take this id for one that a restart knows
        return self._runs.run_for(hosted.run.id, durable=named, part=part, taken=known_ids(state), **who)


def _convert_messages(request: Any) -> Any:
    """The request with messages alone: other middleware may have written some as pairs or dicts."""
    messages = as_messages(request.messages)
    return request if messages is request.messages else with_changes(request, {"messages": messages})


def _overflow_response(loop: ModelLoop) -> Any:
    """The answer where no request fits the window."""
    return ModelResponse(result=[AIMessage(loop.hosted.final_text(None))])


def contracts(
    tools: Iterable[Any],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Contract]:
    """Build the contracts of LangChain's tools. What is not declared is a write, and its output is unchecked.

    Args:
        tools: as `create_agent` takes them; tools that the provider runs itself (dicts) need no contract.
        reads: names of those that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name, such as `{"refund": {"identity": ("order",)}}`.

    Raises:
        UsageError: a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    described = [_describe_tool(tool) for tool in tools if not isinstance(tool, dict)]
    steering = (*CONTROL_EXCEPTIONS, ArgumentsRejected)
    return build_contracts(described, reads=reads, destructive=destructive, fields=fields, no_effect_errors=steering)


def _describe_tool(tool: Any) -> ToolDescription:
    made: Any = tool if isinstance(tool, BaseTool) else as_tool(tool)
    # What the model is shown: without the arguments that LangGraph injects.
    shown = convert_to_openai_tool(made).get("function", {})
    return ToolDescription(made.name, made.description, shown.get("parameters", {"type": "object"}))


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
