"""The LiteLLM client of an ADK agent, which keeps argument texts until the guard has read them.

In: LiteLLM's answers. Out: the same, with each argument text that ADK would read otherwise replaced by a key that its
parser takes and no model can guess. Never: a call that ADK drops because it cannot parse it, or a run that ADK ends
because a message was cut.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

from google.adk.models.lite_llm import LiteLLMClient

from pokayoke.adapters._host.finish_reasons import has_broken_off
from pokayoke.adapters.google_adk._model import KEY, OriginalCalls, original_calls_var
from pokayoke.core.call import ToolCall
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.streams import CUT_STOP_REASON, ChatStream


class GuardClient(LiteLLMClient):
    """The client of `LiteLlm(model=..., llm_client=GuardClient())`. It keeps no state and serves any number of agents.

    Args:
        inner: the client that sends the requests; None is ADK's own.
    """

    def __init__(self, inner: LiteLLMClient | None = None) -> None:
        """Keep the inner client."""
        self._inner = inner or LiteLLMClient()

    async def acompletion(self, model: Any, messages: Any, tools: Any, **options: Any) -> Any:
        """Ask the model. Errors of the client pass through."""
        answer = await self._inner.acompletion(model=model, messages=messages, tools=tools, **options)
        calls = original_calls_var.get()
        if calls is None:
            return answer
        if options.get("stream"):
            return _whole_calls(answer, calls)
        for choice in answer.choices:
            asked = getattr(choice.message, "tool_calls", None)
            if not asked:
                continue
            for call in asked:
                _put_aside(call.function, choice.finish_reason, calls)
            # The calls that were put aside carry the proof of a cut. ADK would end the run for it, without answers.
            choice.finish_reason = "tool_calls"
        return answer

    def completion(self, model: Any, messages: Any, tools: Any, stream: bool = False, **options: Any) -> Any:
        """Ask the model synchronously; ADK 2 never does."""
        return self._inner.completion(model=model, messages=messages, tools=tools, stream=stream, **options)


async def _whole_calls(stream: AsyncIterator[Any], calls: OriginalCalls) -> AsyncIterator[Any]:
    """Pass text on as it comes and calls once they are whole, with a stop reason that keeps the run going."""
    whole = ChatStream()
    last: Any = None
    async for chunk in stream:
        choice: Any = next((one for one in chunk.choices if not one.index), None)
        parts = choice.delta.tool_calls if choice is not None else None
        ends = choice is not None and choice.finish_reason is not None
        if choice is not None and (parts or ends):
            whole.add_event(chunk)
        if choice is not None and parts:
            last = chunk.model_copy(deep=True)
            choice.finish_reason = None
            _strip_calls(parts)
        if choice is not None and ends and last is not None:
            if parts:  # the end came with a piece of a call
                yield chunk
            yield _calls_chunk(whole, last, calls, broke_off=has_broken_off(stream))
            last = None
            if parts:
                continue
            choice.finish_reason = "tool_calls"
        yield chunk
    if last is not None:  # the stream broke off: no stop reason ever came
        yield _calls_chunk(whole, last, calls, broke_off=True)


def _strip_calls(parts: list[Any]) -> None:
    """Remove names and arguments from pieces of calls; the rest is for the provider, such as a thought's signature."""
    for part in parts:
        if part.function is not None:
            part.function.name, part.function.arguments = None, ""


def _calls_chunk(whole: ChatStream, chunk: Any, calls: OriginalCalls, *, broke_off: bool) -> Any:
    """Turn a chunk into the one that holds all calls and ends the reply."""
    from litellm.types.utils import ChatCompletionDeltaToolCall, Function  # noqa: PLC0415 - heavy; here it is loaded

    choice = next(one for one in chunk.choices if not one.index)
    (said,) = whole.build_reply()["choices"]
    made: list[Any] = []
    for place, call in enumerate(said["message"]["tool_calls"]):
        function = Function(name=call["function"]["name"], arguments=call["function"]["arguments"])
        _put_aside(function, CUT_STOP_REASON if broke_off else said["finish_reason"], calls)
        made.append(ChatCompletionDeltaToolCall(id=call["id"], type="function", index=place, function=function))
    choice.delta.content, choice.delta.tool_calls = None, made
    choice.finish_reason = "tool_calls"
    return chunk


def _put_aside(function: Any, stop_reason: Any, calls: OriginalCalls) -> None:
    """Put the text of a call aside, unless ADK's parser reads the same in it as the guard."""
    text = function.arguments if isinstance(function.arguments, str) else ""
    cut = is_cut(stop_reason)
    if not cut and read_arguments(text).grade == "exact":
        return
    key = uuid.uuid4().hex
    calls[key] = ToolCall("", function.name or "", text, "length" if cut else None)
    function.arguments = f'{{"{KEY}": "{key}"}}'
