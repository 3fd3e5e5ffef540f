"""Google ADK's model side: requests, replies, and the calls that ADK could not parse.

In: requests and replies of ADK, and calls that `GuardClient` has put aside. Out: the same, with tools hidden, ids of
their own and arguments that ADK can hold. Never: a reply whose calls ADK acts on before the guard has read them. This
module does not import LiteLLM, which ADK does not install.
"""

from __future__ import annotations

import copy
import sys
import uuid
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

from google.adk.models.llm_response import LlmResponse
from google.adk.models.registry import LLMRegistry
from google.adk.tools.base_tool import BaseTool
from google.genai import types

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.calls import ReplyCall, decode_call, effective_call, encode_unreadable_call
from pokayoke.adapters._host.model import ModelSide, chat_messages
from pokayoke.adapters._host.run import AdapterRun, PendingCall, RequestShape
from pokayoke.adapters._host.visibility import is_hidden, paging_tool
from pokayoke.adapters.google_adk._tools import ON_WIRE, frame_response
from pokayoke.core.call import ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.streams import CUT_STOP_REASON
from pokayoke.errors import UsageError
from pokayoke.runtime.run.run import Run

_KEPT_CALLS = 100
# Models whose streams always say why they ended.
_STREAMS_WITH_REASON = frozenset({"google.adk.models.google_llm", "google.adk.models.anthropic_llm"})

OriginalCalls = dict[str, ToolCall]
original_calls_var: ContextVar[OriginalCalls | None] = ContextVar("pokayoke_adk_aside", default=None)
"""The calls that `GuardClient` puts aside during this request, by key; None if no plugin will read them."""
KEY = "put_aside"
"""The argument by which ADK carries such a key."""


class AgentModelSide(ModelSide):
    """The requests and replies of one agent's loop in a run.

    Args:
        adapter_run: the run.

    Attributes:
        written: the calls that wait for their tools, by id.
    """

    def __init__(self, adapter_run: AdapterRun) -> None:
        """Begin before the first request."""
        self.adapter_run, self.shape = adapter_run, RequestShape(None, final=False)
        self.written: BoundedCache[str, PendingCall] = BoundedCache(_KEPT_CALLS)
        self._said: str | None = None
        self._context: Any = None
        self._asked: list[Any] = []
        self._originals: list[ToolCall] = []

    # -- a request ----------------------------------------------------------------------------------

    def shape_request(self, adapter_run: AdapterRun, context: Any, request: Any) -> Any:
        """Begin a request: change it in place, or return the reply that stands for it because the run was stopped."""
        ids = _call_ids(request.contents, context.session.events)
        if adapter_run.notes.get(ON_WIRE):
            for part in (part for content in request.contents for part in content.parts or []):
                frame_response(adapter_run, part, ids.get(id(part), ""))
        shape = self.begin_request(adapter_run, history=_history_of(request.contents, ids))
        if shape.final and adapter_run.run.mode == "stopped":
            text = types.Part(text=adapter_run.final_text(None))
            return LlmResponse(content=types.Content(role="model", parts=[text]))
        if shape.instruction is not None:
            request.append_instructions([shape.instruction])
        if shape.final:
            request.config.tools, request.config.tool_config = [], None
            request.tools_dict.clear()
        else:
            _hide_tools(request.config, adapter_run.run)
            if (more := paging_tool(adapter_run.run)) is not None:
                request.append_tools([PagingTool(more)])
        original_calls_var.set({})
        self._said = None
        return None

    # -- a reply ------------------------------------------------------------------------------------

    def take_response(self, adapter_run: AdapterRun, context: Any, response: Any) -> Any:
        """Take a whole reply, see `take_reply`; changes it in place, or returns the reply that replaces it.

        Args:
            adapter_run: the run.
            context: ADK's callback context.
            response: the `LlmResponse`.
        """
        self.adapter_run, self._context = adapter_run, context
        self._asked = list(function_calls(response))
        if not self._asked and self._is_redundant(response):
            return None
        self._originals = [original_call(one) for one in self._asked]
        taken = self.take_reply(response, self._stop_reason(response))
        if self._asked and not self.is_final:
            self._said = "call"
        else:
            self._said = "text" if taken is not response or _has_content(response) else None
        return None if taken is response else taken

    def _is_redundant(self, response: Any) -> bool:
        """Return whether a reply without calls adds nothing to an earlier one: ADK may end a stream with such a one."""
        no_event = not (response.content and response.content.parts)  # an empty text would end ADK's loop
        return not _has_content(response) and (self._said == "text" or (self._said == "call" and no_event))

    def _stop_reason(self, response: Any) -> Any:
        if _has_broken_off(_agent(self._context), response):
            return CUT_STOP_REASON
        return next((one.stop_reason for one in self._originals if is_cut(one.stop_reason)), response.finish_reason)

    def total_tokens(self, reply: Any) -> int | None:
        usage = reply.usage_metadata
        return None if usage is None else cast("int | None", usage.total_token_count)

    def calls(self, reply: Any) -> list[ReplyCall]:  # noqa: ARG002 - they are read once, before the texts are forgotten
        """Return the calls as the model wrote them.

        ADK numbers calls without an id across all branches, and knows such ids by their prefix.
        """
        return [
            ReplyCall(one.id or f"adk-{uuid.uuid4()}", one.name, cast("Any", one.arguments)) for one in self._originals
        ]

    def with_calls(self, reply: Any, calls: list[ToolCall]) -> Any:
        """Write the calls into the reply as ADK may hold them."""
        run = self.adapter_run.run
        for one, call in zip(self._asked, calls, strict=True):
            contract = run.snapshot.find_contract(call.name)
            name = history_name(call.name) if contract is None else contract.name
            given = encode_unreadable_call(call)
            _rewrite_call(one, call.id, name, (effective_call(run, call, given) or (name, given))[1])
            self.written.put(call.id, PendingCall(self.adapter_run, call, copy.deepcopy(one.args)))
        if any(is_cut(call.stop_reason) for call in calls):  # every call is answered with it, and the run goes on
            reply.error_code = reply.error_message = None
        return reply

    def without_calls(self, reply: Any) -> Any:
        """Return the reply with its thoughts alone: a text beside calls was no answer."""
        return _with_parts(reply, []) if self._asked else reply

    def text(self, reply: Any) -> str | None:
        """Return the text of a reply without its thoughts, None if it is empty."""
        return "".join(part.text for part in _parts(reply) if part.text and not part.thought) or None

    def may_change_text(self, reply: Any, text: str | None) -> bool:
        """Return whether the reply ends the turn: one without text may hold a picture, or code that ADK will run."""
        if self.is_final or (text or "").strip():
            return True
        has_more = any(part.text is None for part in _parts(reply))
        return not has_more and (reply.finish_reason is not None or reply.error_code is not None)

    def with_text(self, reply: Any, text: str) -> Any:
        """Return the reply with its thoughts and this text; a structured answer stays: a note would break it."""
        if (self.text(reply) or "").strip() and getattr(_agent(self._context), "output_schema", None):
            return reply
        return _with_parts(reply, [types.Part(text=text)])


def model_side(adapter_run: AdapterRun) -> AgentModelSide:
    """Return the model side of an agent's loop."""
    side: AgentModelSide | None = adapter_run.notes.get("model")
    if side is None:
        side = adapter_run.notes["model"] = AgentModelSide(adapter_run)
    return side


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order.

    Args:
        reply: an `LlmResponse`, or an event.
        run: the run they are for.
    """
    stop = reply.finish_reason
    reason = None if stop is None else str(getattr(stop, "value", stop))
    said = [decode_call(one.id, one.name or "", one.args) for one in function_calls(reply)]
    return [ToolCall(one.id, one.name, one.arguments, one.stop_reason or reason) for one in said]


def function_calls(reply: Any) -> Iterator[Any]:
    """Yield the calls of a reply as ADK holds them."""
    for part in _parts(reply):
        if part.function_call is not None:
            yield part.function_call


def _parts(reply: Any) -> list[Any]:
    return (reply.content and reply.content.parts) or []


def _with_parts(reply: Any, parts: list[Any]) -> Any:
    """Return a reply with its thoughts and other parts."""
    thoughts = [part for part in _parts(reply) if part.thought]
    return reply.model_copy(update={"content": types.Content(role="model", parts=[*thoughts, *parts])})


def _has_content(reply: Any) -> bool:
    return any(part.text is None or part.text.strip() for part in _parts(reply))


def _agent(context: Any) -> Any:
    return context._invocation_context.agent  # noqa: SLF001 - the public way to it copies the whole context


def _rewrite_call(one: Any, ident: str, name: str, arguments: dict[str, Any]) -> None:
    """Write a call as ADK may hold it. An equal value stays: pydantic validates again what is set."""
    if one.id != ident:
        one.id = ident
    if one.name != name:
        one.name = name
    if one.args is not arguments:
        one.args = arguments


# -- the tools of a request ---------------------------------------------------------------------------


class PagingTool(BaseTool):
    """The guard's own tool, by which a model pages through a large output. The plugin answers it; ADK never runs it.

    Args:
        contract: the contract of that tool.
    """

    def __init__(self, contract: Contract) -> None:
        """Take over its name."""
        super().__init__(name=contract.name, description=contract.description)
        self._schema = contract.model_schema

    def _get_declaration(self) -> Any:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )


def _hide_tools(config: Any, run: Run) -> None:
    """Remove from a request the declarations of tools that its user may not use."""
    shown: list[Any] = []
    for tool in config.tools or ():
        declared = getattr(tool, "function_declarations", None)
        kept = [one for one in declared or () if not is_hidden(run, one.name or "")]
        if not declared or len(kept) == len(declared):
            shown.append(tool)
        elif kept:
            shown.append(tool.model_copy(update={"function_declarations": kept}))
    if shown != config.tools and (shown or config.tools):
        config.tools, config.tool_config = shown, config.tool_config if shown else None
    wish: Any = config.tool_config
    demand = getattr(wish, "function_calling_config", None)
    named: list[str] = getattr(demand, "allowed_function_names", None) or []
    allowed = [name for name in named if not is_hidden(run, name)]
    if demand is not None and len(allowed) < len(named):  # an empty list would allow all of them
        less = {"allowed_function_names": allowed} if allowed else {"allowed_function_names": None, "mode": "NONE"}
        config.tool_config = wish.model_copy(update={"function_calling_config": demand.model_copy(update=less)})


# -- models through LiteLLM, and streams --------------------------------------------------------------


def original_call(asked: Any) -> ToolCall:
    """Return a call as the model wrote it, from ADK's call."""
    calls, given = original_calls_var.get() or {}, asked.args or {}
    found = calls.pop(key, None) if isinstance(key := given.get(KEY), str) else None
    if found is None:
        return ToolCall(asked.id or "", asked.name or "", given)
    return ToolCall(asked.id or "", found.name, found.arguments, found.stop_reason)


def require_client(context: Any) -> None:
    """Refuse a LiteLLM model without a `GuardClient`, also one given by its name: ADK would lose argument texts.

    Raises:
        UsageError: the agent of `context` has such a model.
    """
    agent = _agent(context)
    for model, made_of in _answering_models(getattr(agent, "canonical_model", None)):
        kind: Any = getattr(sys.modules.get("google.adk.models.lite_llm"), "LiteLlm", None)
        if kind is None or not issubclass(made_of, kind):
            continue
        # There is no such client where its module was never imported.
        client: Any = getattr(sys.modules.get(f"{__package__}._litellm"), "GuardClient", ())
        if not isinstance(getattr(model, "llm_client", None), client):
            named = getattr(model, "model", model)
            raise UsageError(
                f"ADK would drop calls of the agent {agent.name!r} before the guard sees them: "
                f"use LiteLlm(model={named!r}, llm_client=GuardClient())"
            )


def _has_broken_off(agent: Any, response: Any) -> bool:
    """Return whether a stream ended before its provider said why: ADK makes a whole reply of such a stream."""
    if response.partial is not False or response.finish_reason is not None:
        return False
    kinds = [kind for _, kind in _answering_models(getattr(agent, "canonical_model", None))]
    return all(any(one.__module__ in _STREAMS_WITH_REASON for one in kind.__mro__) for kind in kinds)


def _answering_models(model: Any) -> Iterator[tuple[Any, type]]:
    """Yield the models that may answer, each with its class; ADK may fall back from one to the next."""
    several: Any = getattr(sys.modules.get("google.adk.models._fallback_model"), "FallbackModel", None)
    if several is not None and isinstance(model, several):
        for one in model.models:
            yield from _answering_models(one)
    else:
        yield model, LLMRegistry.resolve(model) if isinstance(model, str) else type(model)


def _call_ids(contents: Iterable[Any], events: Iterable[Any]) -> dict[int, str]:
    """Return the call id of each call and each answer of a request, by `id()` of its part: ADK leaves some out."""
    ids: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
    for event in events:
        for call in event.get_function_calls():
            ids[call.name, repr(call.args)].append(call.id)
    open_calls: defaultdict[str, deque[str]] = defaultdict(deque)
    found: dict[int, str] = {}
    for part in (part for content in contents for part in content.parts or []):
        if (call := part.function_call) is not None:
            known = ids[call.name, repr(call.args)]
            found[id(part)] = ident = known.popleft() if known else call.id or ""
            open_calls[call.name].append(ident)
        elif (answer := part.function_response) is not None:
            waiting = open_calls[answer.name]
            found[id(part)] = waiting.popleft() if waiting else answer.id or ""
    return found


def _history_of(contents: Iterable[Any], ids: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """Yield the contents of a request in the shape of a chat; `ids` are from `_call_ids`."""
    for content in contents:
        calls: list[tuple[Any, str, Any]] = []
        results: list[tuple[Any, Any]] = []
        for part in content.parts or []:
            if (call := part.function_call) is not None:
                calls.append((ids[id(part)], call.name, call.args))
            elif (answer := part.function_response) is not None:
                results.append((ids[id(part)], next(iter((answer.response or {}).values()), "")))
        text = "\n".join(part.text for part in content.parts or [] if part.text and not part.thought)
        yield from chat_messages("user" if content.role == "user" else "assistant", text, calls, results)
