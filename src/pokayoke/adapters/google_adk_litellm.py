"""What LiteLLM answers an ADK agent, kept whole until the guard has read it.

ADK parses argument texts by itself: it drops calls it cannot parse, and ends the run when a message was cut.
So each such text is wrapped before ADK sees it, as an object that its parser takes and the plugin unwraps.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

from pokayoke.adapters.hosted import stand_in
from pokayoke.core.call import ToolCall
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.reading import is_cut
from pokayoke.core.streams import CUT, ChatStream
from pokayoke.errors import MissingExtraError

try:
    from google.adk.models.lite_llm import LiteLLMClient
except ImportError as error:
    raise MissingExtraError("google-adk", "google-adk") from error

__all__ = ["GuardClient", "guarding"]

guarding: ContextVar[bool] = ContextVar("pokayoke_adk_guarding", default=False)
"""True where a plugin will unwrap what the client wraps. A wrapped text must not reach an unguarded tool."""


class GuardClient(LiteLLMClient):
    """For `LiteLlm(model=..., llm_client=GuardClient())`. It keeps no state: one serves any number of agents.

    Args:
        inner: the client to ask; None is ADK's own.
    """

    def __init__(self, inner: LiteLLMClient | None = None) -> None:
        """Keep whom to ask."""
        self._inner = inner or LiteLLMClient()

    async def acompletion(self, model: Any, messages: Any, tools: Any, **options: Any) -> Any:
        """Ask the model. What the client raises goes through."""
        answer = await self._inner.acompletion(model=model, messages=messages, tools=tools, **options)
        if not guarding.get():
            return answer
        if options.get("stream"):
            return _whole_calls(answer)
        for choice in answer.choices:
            asked = getattr(choice.message, "tool_calls", None)
            if not asked:
                continue
            for call in asked:
                _keep(call.function, choice.finish_reason)
            # The calls carry the proof of a cut now. ADK would end the run over it, and nobody would be answered.
            choice.finish_reason = "tool_calls"
        return answer

    def completion(self, model: Any, messages: Any, tools: Any, stream: bool = False, **options: Any) -> Any:
        """Ask the model without awaiting. ADK 2 never does."""
        return self._inner.completion(model=model, messages=messages, tools=tools, stream=stream, **options)


async def _whole_calls(stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Hand text on as it comes and calls once they are whole, with a stop reason that keeps the run going."""
    whole = ChatStream()
    last: Any = None
    async for chunk in stream:
        choice: Any = next((one for one in chunk.choices if not one.index), None)
        parts = choice.delta.tool_calls if choice is not None else None
        ends = choice is not None and choice.finish_reason is not None
        if choice is not None and (parts or ends):
            whole.add(chunk)
        if choice is not None and parts:
            last = chunk.model_copy(deep=True)
            choice.finish_reason = None
            _strip(parts)
        if choice is not None and ends and last is not None:
            if parts:  # the end came with a piece of a call
                yield chunk
            yield _calls_of(whole, last)
            last = None
            if parts:
                continue
            choice.finish_reason = "tool_calls"
        yield chunk
    if last is not None:  # the stream broke off: no stop reason ever came
        yield _calls_of(whole, last)


def _strip(parts: list[Any]) -> None:
    """Leave of the pieces of calls what nobody but the provider reads, such as the signature of a thought."""
    for part in parts:
        if part.function is not None:
            part.function.name, part.function.arguments = None, ""


def _calls_of(whole: ChatStream, chunk: Any) -> Any:
    """Make of a chunk the one that holds all calls, and ends the reply."""
    from litellm.types.utils import ChatCompletionDeltaToolCall, Function  # noqa: PLC0415 - heavy; here it is loaded

    choice = next(one for one in chunk.choices if not one.index)
    (said,) = whole.reply()["choices"]
    made: list[Any] = []
    for place, call in enumerate(said["message"]["tool_calls"]):
        function = Function(name=call["function"]["name"], arguments=call["function"]["arguments"])
        _keep(function, said["finish_reason"] or CUT)
        made.append(ChatCompletionDeltaToolCall(id=call["id"], type="function", index=place, function=function))
    choice.delta.content, choice.delta.tool_calls = None, made
    choice.finish_reason = "tool_calls"
    return chunk


def _keep(function: Any, stop_reason: Any) -> None:
    """Wrap the arguments of a call unless ADK's parser reads in them what the guard reads."""
    text = function.arguments if isinstance(function.arguments, str) else ""
    cut = is_cut(stop_reason)
    if not cut and read_arguments(text).grade == "exact":
        return
    call = ToolCall("", function.name or "", text, "length" if cut else None)
    function.arguments = json.dumps(stand_in(call, name=True))
