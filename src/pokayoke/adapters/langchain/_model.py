"""One loop of a model in LangGraph: its requests and its replies.

In: a request of LangChain's middleware, and the response to it. Out: the same, as the guard lets them stand. Never: a
request with a tool that the caller may not use, or a message with a call that no node can answer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import ReplyCall, effective_call, encode_unreadable_call, plain_object
from pokayoke.adapters._host.frames import frame_result
from pokayoke.adapters._host.model import ModelSide
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import allowed_tool_choice
from pokayoke.adapters.langchain._capture import CALL_BLOCKS, CapturedReply, finish_reason, observed_model, reply_calls
from pokayoke.adapters.langchain._results import copy_message
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.context.open_calls import has_open_calls
from pokayoke.core.contract.names import history_name
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.values import read_field
from pokayoke.core.messages.tool_definitions import build_definitions
from pokayoke.errors import UsageError
from pokayoke.runtime.run.compaction import RunHistory
from pokayoke.runtime.run.run import Run
from pokayoke.runtime.tools.selection import offered_tools as offered_by

_MESSAGE_CLASSES = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
_CUT = "The message was cut before its end, so nothing of it was used. Send it again, shorter."


class ModelLoop(ModelSide):
    """One loop of a model, from its first request to its last.

    Args:
        adapter_run: the run.
        window: size of the model's window in tokens; None never shortens a request.
        on_wire: True to frame the results of the history in each request.

    Attributes:
        adapter_run: the run, acting for the caller of the latest request.
        corrected: calls in the history that the guard has corrected, by id: name and arguments there, and the model's.
        cut: calls whose message was cut and whose arguments parse all the same, by id.
    """

    def __init__(self, adapter_run: AdapterRun, window: int | None, *, on_wire: bool = False) -> None:
        """Begin before the first request."""
        self.adapter_run, self._on_wire = adapter_run, on_wire
        self._ids: set[str] | None = None
        self._offered: tuple[list[Any], Run, Snapshot, list[Any]] | None = None
        self.corrected: BoundedCache[str, tuple[str, dict[str, Any], ToolCall]] = BoundedCache()
        self._answered: tuple[int, Any] = (0, None)
        self.cut: BoundedCache[str, ToolCall] = BoundedCache()
        self._fitting = _WindowFitter(adapter_run, window) if window is not None else None

    def begin_turn(self, request: Any, known: str | None) -> str | None:
        """Begin a turn if the history ends with new text of the user; returns the id of the user's latest message.

        The messages in the graph's state count, if there is one: other middleware adds messages to a request that no
        user has written. A graph of the user's own does so behind the results of tools; such messages have no id.

        Args:
            request: the request.
            known: id of the user's latest message that has begun a turn of the run.
        """
        said, has_results = list[Any](), False
        for one in reversed(as_messages(read_field(request.state, "messages") or ()) or request.messages):
            kind = one.type
            if kind == "ai" or (one.id is not None and one.id == known):
                break
            if kind == "human":
                said.append(one)
            has_results = has_results or kind == "tool"
        if has_results:
            said = [one for one in said if one.id is not None]
        for one in reversed(said):
            self.adapter_run.run.user(str(one.text))
        return said[0].id if said else known

    # -- a request -----------------------------------------------------------------------------------

    def fit_messages(self, request: Any) -> Sequence[Any] | None:
        """Return the messages of a request as they fit the window; None if no shorter ones do."""
        messages: list[Any] = request.messages
        if self._ids is None:
            self._ids = {one.id for one in messages if one.id}
        if self._on_wire:
            messages = self._frame_results(messages)
        if self._fitting is None:
            return messages
        fitted = self._fitting.fit_messages(messages, request.system_message)
        if fitted is None:
            self.adapter_run.run.tools_off("context_overflow")
        return fitted

    def has_open_calls(self, messages: Sequence[Any]) -> bool:
        """Return whether a history has calls that nobody answered; what the request before had is not read again."""
        count, last = self._answered
        known = count if 0 < count <= len(messages) and messages[count - 1] is last else 0
        found = has_open_calls(messages[known:])
        self._answered = (0, None) if found or not messages else (len(messages), messages[-1])
        return found

    def shape_request(self, request: Any, messages: Sequence[Any]) -> Any:
        """Return the request as it may go out, with these messages.

        Raises:
            UsageError: it offers a tool without a contract.
        """
        run = self.adapter_run.run
        shape = self.begin_request(self.adapter_run, history=messages)
        if shape.instruction is not None:
            # In the user's name and at the end: every provider takes it there, and the history never holds it.
            messages = [*messages, HumanMessage(shape.instruction)]
        changes = {"model": observed_model(request.model), "messages": messages}
        if shape.final:
            changes.update(tools=[], tool_choice=None)
        else:
            changes["tools"] = self._visible_tools(request.tools)
            if request.tool_choice is not None:
                changes["tool_choice"] = allowed_tool_choice(run, request.tool_choice)
        return with_changes(request, changes)

    def _frame_results(self, messages: list[Any]) -> list[Any]:
        """Return the messages with their results as the model reads them.

        A message may have lost its name on its way through another format, and then its call has it.
        """
        names = {call["id"]: call["name"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls}
        return [
            self._frame_message(one, one.name or names.get(one.tool_call_id, ""))
            if isinstance(one, ToolMessage) and one.status != "error"  # that is the guard's text, or LangChain's
            else one
            for one in messages
        ]

    def _frame_message(self, message: ToolMessage, name: str) -> ToolMessage:
        def frame_text(text: Any) -> Any:
            framed = frame_result(self.adapter_run, name, message.tool_call_id, text)
            return text if framed is None else framed

        def frame_block(block: Any) -> Any:
            if isinstance(block, str):
                return frame_text(block)
            return {**block, "text": frame_text(block["text"])} if block.get("type") == "text" else block

        content: Any = message.content
        framed = frame_text(content) if isinstance(content, str) else [*map(frame_block, content)]
        return message if framed == content else copy_message(message, {"content": framed})

    def _visible_tools(self, tools: list[Any]) -> list[Any]:
        """Return the tools as the model gets them: without arguments that the guard fills, with the paging tool."""
        run = self.adapter_run.run
        snapshot, known = run.snapshot, self._offered
        if known is None or known[0] is not tools or known[1] is not run or known[2] is not snapshot:
            known = self._offered = (tools, run, snapshot, self._find_visible_tools(tools, snapshot))
        return known[3]

    def _find_visible_tools(self, tools: list[Any], snapshot: Snapshot) -> list[Any]:
        run = self.adapter_run.run
        offered = {contract.name: contract for contract in offered_by(run, None)}
        shown: list[Any] = []
        strangers: list[str] = []
        for tool in tools:
            found = snapshot.find_plan(tool.name) if isinstance(tool, BaseTool) else None
            if found is None:
                shown.append(tool)  # the provider runs it
            elif isinstance(found, Finding):
                strangers += [tool.name] if found.code == "unknown_tool" else []
            elif (contract := offered.get(found.contract.name)) is not None:
                shown += [tool] if contract.key_argument is None else build_definitions([contract])
        if strangers:
            raise UsageError(
                f"the guard has no contract of {', '.join(sorted(strangers))}: give contracts() every tool of the "
                "agent, also those that a middleware brings along (its .tools)"
            )
        pager = run.guard.pager
        if offered.get(pager.name) is pager:
            shown += build_definitions([pager])
        return shown

    # -- a reply -------------------------------------------------------------------------------------

    def take_response(self, response: Any, captured: CapturedReply) -> Any:
        """Return the response as it may go into the history; None if the model has to be asked again.

        Every call that is left in it has an id of its own and arguments that LangGraph can carry.
        """
        place = next((at for at, one in enumerate(response.result) if isinstance(one, AIMessage)), None)
        if place is None:
            return response
        message = response.result[place]
        if message.id in (known := self._ids or set()):
            message.id = None  # LangGraph would put it in the place of the other message of that id
        elif message.id:
            known.add(message.id)
        stop = captured.stop or finish_reason(message.response_metadata)
        if is_cut(stop) and not is_cut(finish_reason(message.response_metadata)):
            message.response_metadata = {**message.response_metadata, "finish_reason": stop}  # for a restart
        every = reply_calls(message, captured)
        answered = {(one.tool_call_id, one.name) for one in response.result[place + 1 :] if one.type == "tool"}
        if answered:
            # No other call may have one of these ids.
            self.adapter_run.reserve_ids(ident for ident, _ in answered)
            response = _drop_cut_structure(response, stop)
        reply = _Reply(response, place, message, every, answered, is_streamed=captured.streamed)
        if not every and isinstance(refusal := message.additional_kwargs.get("refusal"), str) and not message.text:
            reply = self.with_text(reply, refusal)
        taken: _Reply = self.take_reply(reply, stop)
        if taken is reply and self._is_silent(reply):
            self.adapter_run.run.tools_off("loop_detected")  # the next request says so, and takes no calls
            return None
        return taken.response

    def total_tokens(self, reply: _Reply) -> int | None:
        """Return what the provider counted, and use it for the size of the next request."""
        usage = reply.message.usage_metadata or {}
        if usage and self._fitting is not None:
            self._fitting.report(usage.get("input_tokens") or 0)
        return usage.get("total_tokens")

    def calls(self, reply: _Reply) -> list[ReplyCall]:
        """Return its calls, without those that LangChain has answered: they give a structured response."""
        return [one for one in reply.calls if not reply.is_answered(one)] if reply.answered else reply.calls

    def with_calls(self, reply: _Reply, calls: list[ToolCall]) -> _Reply:
        """Return the reply with these calls; those that are answered keep their places and their ids."""
        made = [self._framework_call(call) for call in calls]
        if reply.answered:
            places = [at for at, one in enumerate(reply.calls) if reply.is_answered(one)]
            for at, own in zip(places, reply.answered_calls, strict=False):
                made.insert(at, own)
        return reply.with_message(_with_calls(reply.message, made))

    def without_calls(self, reply: _Reply) -> _Reply:
        """Return the reply without calls that are not answered; then its text leads up to calls, and is none."""
        if not self.calls(reply):
            return reply
        message = _with_calls(reply.message, reply.answered_calls)
        if not reply.answered:
            message = message.model_copy(update={"content": ""})
        return reply.with_message(message)._replace(calls=[])

    def may_change_text(self, reply: _Reply, text: str | None) -> bool:  # noqa: ARG002 - the base class passes it
        """Return whether the reply is an answer in words, and not an empty one that the model may try again."""
        return not reply.answered and reply.response.structured_response is None and not self._is_silent(reply)

    def text(self, reply: _Reply) -> str | None:
        return str(reply.message.text)

    def with_text(self, reply: _Reply, text: str) -> _Reply:
        """Return the reply with the model's text, with a note behind it, or with another text."""
        message, own = reply.message, str(reply.message.text)
        content: Any = text
        if own and text.startswith(own) and isinstance(message.content, list):
            content = [*_without_calls(message.content), {"type": "text", "text": text[len(own) :]}]
        update = {"content": content, "tool_calls": [], "invalid_tool_calls": [], **_drop_legacy_calls(message)}
        # A user who has read the stream has read other words: under an id of its own this message is shown as well.
        return reply.with_message(message.model_copy(update={**update, "id": None} if reply.is_streamed else update))

    def _is_silent(self, reply: _Reply) -> bool:
        """Return whether the reply holds neither calls nor text, and the model may be asked again."""
        return (
            not (reply.calls or reply.answered or self.is_final)
            and reply.response.structured_response is None
            and not str(reply.message.text).strip()
        )

    def _framework_call(self, call: ToolCall) -> dict[str, Any]:
        """Return a call as LangGraph and the provider can carry it, and as it will run."""
        name = history_name(call.name)
        if is_cut(call.stop_reason) and name == call.name and (whole := plain_object(call.arguments)) is not None:
            self.cut.put(call.id, call)
            return {"name": name, "args": whole, "id": call.id, "type": "tool_call"}
        args = encode_unreadable_call(call, name=name != call.name)
        if (effective := effective_call(self.adapter_run.run, call, args)) is not None:
            name, args = effective
            # A copy, because other code may change what it is shown, and then that counts.
            self.corrected.put(call.id, (name, copy.deepcopy(args), call))
        return {"name": name, "args": args, "id": call.id, "type": "tool_call"}


class _Reply(NamedTuple):
    """A response of LangChain, and the message in it that the model wrote."""

    response: Any
    place: int
    message: Any
    calls: list[ReplyCall]
    answered: set[tuple[str, str | None]]
    is_streamed: bool

    @property
    def answered_calls(self) -> list[Any]:
        """Those of its calls that LangChain has answered, as they stand in the message."""
        return [call for call in self.message.tool_calls if self.is_answered(ReplyCall(call["id"], call["name"], ""))]

    def is_answered(self, one: ReplyCall) -> bool:
        """Return whether a call is answered already. A tool's call with the same id is another one."""
        return (one.id, one.name) in self.answered or (one.id, None) in self.answered

    def with_message(self, message: Any) -> _Reply:
        """Return the reply with another message."""
        if message is self.message:
            return self
        result = [*self.response.result[: self.place], message, *self.response.result[self.place + 1 :]]
        response = ModelResponse(result=result, structured_response=self.response.structured_response)
        return self._replace(response=response, message=message)


def _drop_cut_structure(response: Any, stop: str | None) -> Any:
    """Return a response without the structured response of a message that was cut."""
    if not is_cut(stop):
        return response
    result = [
        one.model_copy(update={"content": _CUT, "status": "error"}) if one.type == "tool" else one
        for one in response.result
    ]
    return ModelResponse(result=result, structured_response=None)


def as_messages(given: Any) -> list[Any]:
    """Return the messages of a history; a list of LangChain's own messages comes back as it is."""
    if type(given) is list and _MESSAGE_CLASSES.issuperset(map(type, given)):
        return given
    converted: list[Any] = convert_to_messages(given)
    return converted


def with_changes(request: Any, changes: dict[str, Any]) -> Any:
    """Return the request with these changes."""
    if type(request) is not ModelRequest:
        return request.override(**changes)
    # `override` does the same for this class, and sets a process-wide warnings filter meanwhile: that is not safe
    # among threads, and took longer than everything else here.
    made = object.__new__(ModelRequest)
    made.__dict__.update(request.__dict__, **changes)
    return made


def _with_calls(message: Any, made: list[dict[str, Any]]) -> Any:
    """Return the message with these calls; itself if that changes nothing."""
    if made == message.tool_calls and not message.invalid_tool_calls:
        return message
    update: dict[str, Any] = {"tool_calls": made, "invalid_tool_calls": [], **_drop_legacy_calls(message)}
    if isinstance(message.content, list):
        update["content"] = _without_calls(message.content)
    return message.model_copy(update=update)


def _drop_legacy_calls(message: Any) -> dict[str, Any]:
    """Return the change that drops calls in their former place: together with `tool_calls`, providers reject it."""
    gone = ("tool_calls", "function_call")
    more = {name: value for name, value in message.additional_kwargs.items() if name not in gone}
    return {} if len(more) == len(message.additional_kwargs) else {"additional_kwargs": more}


def _without_calls(content: list[Any]) -> list[Any]:
    """Return the blocks that are no calls. Calls repeat `tool_calls`, from which LangChain makes the blocks again."""
    return [block for block in content if read_field(block, "type") not in CALL_BLOCKS]


class _WindowFitter:
    """Keeps requests below the window. The graph's own history is not touched."""

    def __init__(self, adapter_run: AdapterRun, window: int) -> None:
        self._adapter_run, self._window = adapter_run, window
        self._history: RunHistory | None = None
        self._system: Any = None
        self._count = 0
        self._last: Any = None

    def fit_messages(self, messages: list[Any], system: Any) -> list[Any] | None:
        """Return the messages as they fit; None if they cannot."""
        history = self._history
        if history is None or not self._is_continuation(messages, system):
            history = self._history = RunHistory(self._adapter_run.run, self._window, format="langchain")
            self._system, self._count = system, 0
            if system is not None:
                history.add(system)
        for one in messages[self._count :]:
            history.add(one)
        self._count, self._last = len(messages), messages[-1] if messages else None
        result = history.compacted()
        if result.finding is not None:
            return None
        shown = list(result.messages)
        return shown[1:] if system is not None else shown

    def report(self, used: int) -> None:
        """Take the tokens that the provider counted for the request."""
        if self._history is not None:
            self._history.report(used)

    def _is_continuation(self, messages: list[Any], system: Any) -> bool:
        """Return whether the messages begin with those of the request before."""
        if len(messages) < self._count or system != self._system:
            return False
        if not self._count:
            return True
        known = messages[self._count - 1]
        return known is self._last or (known.id is not None and known.id == self._last.id)
