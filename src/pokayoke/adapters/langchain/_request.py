"""One loop of a model in LangGraph, from the guard's side: what goes into a request, and what a reply becomes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool

from pokayoke.adapters._host.calls import ReplyCall, effective_call, encode_unreadable_call
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.visibility import allowed_tool_choice
from pokayoke.adapters.langchain._langchain_model import observed_model
from pokayoke.adapters.langchain._model import CALL_BLOCKS, CapturedReply, call_cache, finish_reason, reply_calls
from pokayoke.core.call import Finding, ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.values import read_field
from pokayoke.core.messages.tool_definitions import build_definitions
from pokayoke.errors import UsageError
from pokayoke.runtime.run.compaction import RunHistory
from pokayoke.runtime.tools.selection import offered_tools as offered_by

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

__all__ = ["ModelLoop", "as_messages", "known_ids", "with_changes"]

_MESSAGE_CLASSES = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
_CUT = "The message was cut before its end, so nothing of it was used. Send it again, shorter."


class _OfferedTools(NamedTuple):
    """The tools of a request as they came, for which run under which contracts, and as the model gets them."""

    given: list[Any]
    run: Run
    snapshot: Snapshot
    tools: list[Any]


class ModelLoop:
    """What is remembered between the requests of one loop.

    Args:
        hosted: the run.
        window: size of the model's window in tokens; None never shortens a request.

    Attributes:
        hosted: the run, as it acts for the caller of the latest request.
    """

    def __init__(self, hosted: AdapterRun, window: int | None) -> None:
        """Begin before the first request."""
        self.hosted = hosted
        self._ids: set[str] | None = None
        self._offered: _OfferedTools | None = None
        self._fitting = _WindowFitter(hosted, window) if window is not None else None

    def begin_turn(self, request: Any, known: str | None) -> str | None:
        """Begin a turn if the history ends with something new of the user's.

        What stands in the graph's state counts, where there is one: other middleware adds to each request what nobody
        has said. So does a graph of one's own behind the answers of tools, and such a message has no id.

        Args:
            request: the request.
            known: id of the latest message of the user's that the run has been told of.

        Returns:
            the id of the latest one now.
        """
        said, answers = list[Any](), False
        for one in reversed(as_messages(read_field(request.state, "messages") or ()) or request.messages):
            kind = one.type
            if kind == "ai" or (one.id is not None and one.id == known):
                break
            if kind == "human":
                said.append(one)
            answers = answers or kind == "tool"
        if answers:
            said = [one for one in said if one.id is not None]
        for one in reversed(said):
            self.hosted.run.user(str(one.text))
        return said[0].id if said else known

    # -- a request -----------------------------------------------------------------------------------

    def shape_request(self, request: Any) -> Any:
        """Return the request as it may go out; None if it does not fit the window, whatever is left out.

        Raises:
            UsageError: it offers a tool that the guard has no contract of.
        """
        hosted, messages = self.hosted, request.messages
        if self._ids is None:
            self._ids = {one.id for one in messages if one.id}
        if self._fitting is not None:
            fitted = self._fitting.fit_messages(messages, request.system_message)
            if fitted is None:
                hosted.run.tools_off("context_overflow")
                return None
            messages = fitted
        asked = hosted.begin_request()
        if asked.instruction is not None:
            # In the user's name and at the end: every provider takes it there, and the history never holds it.
            messages = [*messages, HumanMessage(asked.instruction)]
        changes = {"model": observed_model(request.model), "messages": messages}
        if asked.final:
            changes.update(tools=[], tool_choice=None)
        else:
            changes["tools"] = self._visible_tools(request.tools)
            if request.tool_choice is not None:
                changes["tool_choice"] = allowed_tool_choice(hosted.run, request.tool_choice)
        return with_changes(request, changes)

    def _visible_tools(self, tools: list[Any]) -> list[Any]:
        """The tools as the model gets them: without arguments that the guard fills, with a way to page."""
        run = self.hosted.run
        snapshot, known = run.snapshot, self._offered
        if known is None or known.given is not tools or known.run is not run or known.snapshot is not snapshot:
            known = self._offered = _OfferedTools(tools, run, snapshot, self._find_visible_tools(tools, snapshot))
        return known.tools

    def _find_visible_tools(self, tools: list[Any], snapshot: Snapshot) -> list[Any]:
        run = self.hosted.run
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

    def take_reply(self, response: Any, heard: CapturedReply) -> Any:
        """Return the response as it may go into the history; None if the model has to be asked again.

        Every call that is left in it has an id of its own and arguments that LangGraph can carry.
        """
        for place, message in enumerate(response.result):  # noqa: B007 - both are used below
            if isinstance(message, AIMessage):
                break
        else:
            return response
        if message.id in (known := self._ids or set()):
            message.id = None  # LangGraph would put it in the place of the other message of that id
        elif message.id:
            known.add(message.id)
        stop = heard.stop or finish_reason(message.response_metadata)
        self._count_usage(message)
        rest, asked = response.result[place + 1 :], reply_calls(message, heard)
        if answered := {(one.tool_call_id, one.name) for one in rest if one.type == "tool"}:
            changed = self._with_answered_calls(message, asked, answered, stop)
            return _replace_message(self._drop_cut_structure(response, stop), place, changed)
        calls = self.hosted.take_reply(asked, stop)
        if calls:
            changed = _with_calls(message, [self._framework_call(call) for call in calls])
        elif response.structured_response is not None:
            return response
        else:
            changed = self._with_final_text(message, asked, heard)
            if changed is None:
                return None
        return response if changed is message else _replace_message(response, place, changed)

    def _with_answered_calls(
        self, message: Any, every: list[ReplyCall], answered: set[tuple[str, str | None]], stop: str | None
    ) -> Any:
        """The message where LangChain has answered some of its calls: those that give a structured response.

        They keep their places and their ids, so that no other call may have one of these.
        """
        self.hosted.reserve_ids(ident for ident, _ in answered)
        calls = self.hosted.take_reply([one for one in every if not _is_among(one, answered)], stop)
        made = [self._framework_call(call) for call in calls]
        places = [at for at, one in enumerate(every) if _is_among(one, answered)]
        own = [call for call in message.tool_calls if _is_among(ReplyCall(call["id"], call["name"], ""), answered)]
        for at, shown in zip(places, own, strict=False):
            made.insert(at, shown)
        return _with_calls(message, made)

    def _framework_call(self, call: ToolCall) -> dict[str, Any]:
        """A call as LangGraph and the provider can carry it, and as it counts."""
        name = history_name(call.name)
        args = encode_unreadable_call(call, name=name != call.name)
        if (meant := effective_call(self.hosted.run, call, args)) is not None:
            name, args = meant
            # A copy, because others may change what they are shown, and then that counts.
            call_cache(self.hosted).put(call.id, (name, copy.deepcopy(args), call))
        return {"name": name, "args": args, "id": call.id, "type": "tool_call"}

    def _count_usage(self, message: Any) -> None:
        usage = message.usage_metadata
        if usage:
            self.hosted.run.usage(usage.get("total_tokens") or 0)
            if self._fitting is not None:
                self._fitting.report(usage.get("input_tokens") or 0)

    def _drop_cut_structure(self, response: Any, stop: str | None) -> Any:
        """A structured response out of a message that was cut is none."""
        if not is_cut(stop):
            return response
        result = [
            one.model_copy(update={"content": _CUT, "status": "error"}) if one.type == "tool" else one
            for one in response.result
        ]
        return ModelResponse(result=result, structured_response=None)

    def _with_final_text(self, message: Any, asked: list[ReplyCall], heard: CapturedReply) -> Any:
        """The last word: the model's own text, with a note or replaced; None if it said nothing and may try again."""
        hosted = self.hosted
        refusal = message.additional_kwargs.get("refusal") or ""
        text = str(message.text) or (refusal if isinstance(refusal, str) else "")
        if not text.strip() and not asked and not hosted.is_final:
            hosted.run.tools_off("loop_detected")  # the next request says so, and takes no calls
            return None
        word = hosted.final_text(None if asked else text)
        if word == str(message.text) and not asked and not message.invalid_tool_calls:
            return message
        content: Any = word
        if text and word.startswith(text) and isinstance(message.content, list):
            content = [*_without_calls(message.content), {"type": "text", "text": word[len(text) :]}]
        update = {"content": content, "tool_calls": [], "invalid_tool_calls": [], **_drop_legacy_calls(message)}
        # Who has read the stream has read other words: under an id of its own this message is shown as well.
        return message.model_copy(update={**update, "id": None} if heard.streamed else update)


def as_messages(given: Any) -> list[Any]:
    """The messages of a history; a list of LangChain's own is one already, and a quick look at the classes says so."""
    listed: list[Any] | None = given if type(given) is list else None
    return (
        listed if listed is not None and _MESSAGE_CLASSES.issuperset(map(type, listed)) else convert_to_messages(given)
    )


def with_changes(request: Any, changes: dict[str, Any]) -> Any:
    """Return the request with these changes, by the quickest way its class allows."""
    if type(request) is not ModelRequest:
        return request.override(**changes)
    # What `override` does for this class, without the process-wide warnings filter it sets meanwhile: that is not
    # safe among threads, and took longer than everything else here.
    made = object.__new__(ModelRequest)
    made.__dict__.update(request.__dict__, **changes)
    return made


def known_ids(state: Any) -> Iterator[str]:
    """The ids of all calls of a history, or of the state that holds it; nothing is looked at before they are."""
    messages = state if isinstance(state, list) else read_field(state, "messages")
    for one in messages if isinstance(messages, list) else ():
        for call in (*(read_field(one, "tool_calls") or ()), *(read_field(one, "invalid_tool_calls") or ())):
            if isinstance(ident := read_field(call, "id"), str):
                yield ident


def _is_among(one: ReplyCall, answered: set[tuple[str, str | None]]) -> bool:
    """Whether a call is answered already. A tool's call with the same id is another one."""
    return (one.id, one.name) in answered or (one.id, None) in answered


def _with_calls(message: Any, made: list[dict[str, Any]]) -> Any:
    """The message with these calls; itself if that changes nothing."""
    if made == message.tool_calls and not message.invalid_tool_calls:
        return message
    update: dict[str, Any] = {"tool_calls": made, "invalid_tool_calls": [], **_drop_legacy_calls(message)}
    if isinstance(message.content, list):
        update["content"] = _without_calls(message.content)
    return message.model_copy(update=update)


def _drop_legacy_calls(message: Any) -> dict[str, Any]:
    """Without the former place of calls: beside `tool_calls`, providers refuse it."""
    gone = ("tool_calls", "function_call")
    more = {name: value for name, value in message.additional_kwargs.items() if name not in gone}
    return {} if len(more) == len(message.additional_kwargs) else {"additional_kwargs": more}


def _without_calls(content: list[Any]) -> list[Any]:
    """The other blocks. The calls among them repeat `tool_calls`, from which LangChain makes them again."""
    return [block for block in content if read_field(block, "type") not in CALL_BLOCKS]


def _replace_message(response: Any, place: int, message: Any) -> Any:
    result = [*response.result[:place], message, *response.result[place + 1 :]]
    return ModelResponse(result=result, structured_response=response.structured_response)


class _WindowFitter:
    """Keeps requests below the window. The graph's own history is not touched."""

    def __init__(self, hosted: AdapterRun, window: int) -> None:
        self._hosted, self._window = hosted, window
        self._history: RunHistory | None = None
        self._system: Any = None
        self._count = 0
        self._last: Any = None

    def fit_messages(self, messages: list[Any], system: Any) -> list[Any] | None:
        """Return the messages as they fit; None if they cannot."""
        history = self._history
        if history is None or not self._is_continuation(messages, system):
            history = self._history = RunHistory(self._hosted.run, self._window, format="langchain")
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
        """Take over what the provider counted for the request."""
        if self._history is not None:
            self._history.report(used)

    def _is_continuation(self, messages: list[Any], system: Any) -> bool:
        """Whether the messages begin with those that were there before."""
        if len(messages) < self._count or system != self._system:
            return False
        if not self._count:
            return True
        known = messages[self._count - 1]
        return known is self._last or (known.id is not None and known.id == self._last.id)
