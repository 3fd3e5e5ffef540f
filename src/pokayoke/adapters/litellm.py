"""LiteLLM: a model for the guard's own loop, and a callback that repairs replies for other loops.

guard = pokayoke.Guard([get_order, refund])
ended = guard.loop(CompletionModel("anthropic/claude-sonnet-4-5"), "Refund order A1.")
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from pokayoke.adapters._host.calls import encode_unreadable_call
from pokayoke.adapters._host.extras import require_extra
from pokayoke.adapters._host.finish_reasons import has_broken_off
from pokayoke.adapters._host.model_client import OnText, emit_text, request_options
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.messages.answers import result_message
from pokayoke.core.messages.replies import CallIds, read_reply, to_dict
from pokayoke.core.messages.streams import CUT_STOP_REASON, ChatStream
from pokayoke.runtime.run.run import Run

with require_extra("litellm"):
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

__all__ = ["AsyncCompletionModel", "CompletionModel", "ReplyMender", "calls", "history", "mended", "message"]

_sdk: Any = litellm


def calls(reply: Any, run: Run | None = None) -> list[ToolCall]:  # noqa: ARG001 - every adapter takes the run
    """Return the tool calls of a reply, in order, argument texts as they came.

    Args:
        reply: the result of `litellm.completion`.
        run: the run they are for.

    Raises:
        UsageError: it is no reply of a model.
    """
    return list(read_reply(_reply_dict(reply)).calls)


def message(outcome: Outcome) -> dict[str, Any]:
    """Return the message that answers a call."""
    return result_message(outcome, "openai")


def history(reply: Any) -> list[dict[str, Any]]:
    """Return the message that a reply adds to the history, every call with an id of its own."""
    return list(read_reply(_reply_dict(reply)).messages)


class CompletionModel:
    """A model for `guard.loop`, at any provider that LiteLLM knows.

    Args:
        model: the model as LiteLLM calls it, such as `openai/gpt-5` or the name of a router's group.
        client: an object with `completion` and `acompletion`, such as a `litellm.Router`; None for LiteLLM itself.
        stream: True to stream; no tool starts before the reply is whole.
        on_text: called with each piece of text while it streams.
        options: further arguments of every request, such as `api_base` or `temperature`.
    """

    format = "openai"

    def __init__(
        self, model: str, client: Any = None, *, stream: bool = False, on_text: OnText | None = None, **options: Any
    ) -> None:
        """Keep the client and the options of every request."""
        self._client: Any = client if client is not None else _sdk
        self._stream, self._on_text = stream, on_text
        self._options = {"model": model, **options}

    def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Send one request. Errors of LiteLLM pass through."""
        answer = self._client.completion(**self._build_request(messages, tools))
        if not self._stream:
            return _reply_dict(answer)
        whole = ChatStream()
        with _close_stream(answer):
            for chunk in answer:
                emit_text(whole.add_event(chunk), self._on_text)
        return _streamed_reply(whole, answer)

    def _build_request(self, messages: list[Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
        streaming = {"stream": True, "stream_options": {"include_usage": True}} if self._stream else {}
        # An empty list of tools is an error at some providers.
        offered = {"tools": tools} if tools else self._forbid_tools(messages)
        return {
            **streaming,
            **request_options(self._options, tools),
            "messages": _sendable_history(messages),
            **offered,
        }

    def _forbid_tools(self, messages: list[Any]) -> dict[str, Any]:
        """Forbid calls where LiteLLM makes up a tool: for Anthropic, if the history holds calls."""
        if not any(isinstance(one, dict) and one.get("tool_calls") for one in messages):
            return {}
        with contextlib.suppress(Exception):  # a router's own name for a model is none that LiteLLM knows
            if _sdk.get_llm_provider(self._options["model"])[1] == "anthropic":
                return {"tool_choice": "none"}
        return {}


class AsyncCompletionModel(CompletionModel):
    """`CompletionModel` for `await guard.aloop`. Arguments as there."""

    async def __call__(self, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
        """Send one request. Errors of LiteLLM pass through."""
        answer = await self._client.acompletion(**self._build_request(messages, tools))
        if not self._stream:
            return _reply_dict(answer)
        whole = ChatStream()
        async with contextlib.aclosing(answer):
            async for chunk in answer:
                emit_text(whole.add_event(chunk), self._on_text)
        return _streamed_reply(whole, answer)


class ReplyMender(CustomLogger):
    """Repairs the replies of `acompletion` for a loop other than the guard's: `litellm.callbacks = [ReplyMender()]`.

    It sees replies and no tools: nothing is checked against a contract, and no effect is recorded. It

    - rewrites an argument text that has one reading as strict JSON, and leaves any other unchanged;
    - makes the calls of a message that was cut unreadable, so that no loop runs one;
    - gives each call an id that no other call of the request has.

    `mended(reply)` returns what it did. It sees neither streams nor `completion`: LiteLLM calls no callback there.
    """

    async def async_post_call_success_deployment_hook(
        self,
        request_data: dict[str, Any],
        response: Any,
        call_type: Any,  # noqa: ARG002 - LiteLLM hands it over
    ) -> Any:
        """Repair a reply in place; LiteLLM calls this method."""
        done: list[dict[str, Any]] = []
        ids = CallIds(frozenset(_known_ids(request_data.get("messages") or ())))
        schemas = _schemas_by_tool(request_data.get("tools") or ())
        for choice in getattr(response, "choices", None) or ():
            for call in getattr(getattr(choice, "message", None), "tool_calls", None) or ():
                if call.function is None:
                    continue  # free text is no JSON
                what = _mend_call(call.function, choice.finish_reason, schemas)
                call.id = ids.unique_id(call.id)
                done += [{"id": call.id, "tool": call.function.name, **what}] if what else []
        if done:
            response._hidden_params["pokayoke"] = done  # noqa: SLF001 - LiteLLM's place for what no provider sent
        return response


def mended(reply: Any) -> list[dict[str, Any]]:
    """Return what `ReplyMender` did to a reply: `id` and `tool` of each call, with its `repairs` or as `cut`."""
    found: list[dict[str, Any]] = (getattr(reply, "_hidden_params", None) or {}).get("pokayoke") or []
    return found


def _mend_call(function: Any, stop_reason: Any, schemas: Mapping[str, Any]) -> dict[str, Any]:
    text = function.arguments if isinstance(function.arguments, str) else ""
    if is_cut(stop_reason):
        function.arguments = f"{text} <- not to be used: this message was cut off by its length limit"
        return {"cut": True}
    reading = read_arguments(text, schema=schemas.get(function.name))
    if reading.grade != "lossless" or reading.value is None:
        return {}
    function.arguments = dump_compact(reading.value).decode()
    return {"repairs": list(reading.repairs)}


def _schemas_by_tool(tools: Any) -> dict[str, Any]:
    """Return the schemas of a request's tools: with a schema, a text that ends early may prove to be whole."""
    offered = [to_dict(to_dict(one).get("function") or {}) for one in tools]
    return {one["name"]: one.get("parameters") for one in offered if one.get("name")}


def _known_ids(messages: Any) -> Iterator[str]:
    for one in messages:
        for call in to_dict(one).get("tool_calls") or ():
            if isinstance(ident := to_dict(call).get("id"), str):
                yield ident


def _sendable_history(messages: list[Any]) -> list[Any]:
    """Return the history with argument texts that LiteLLM can turn into objects, which some providers demand."""
    return [_with_argument_objects(one) if isinstance(one, dict) and one.get("tool_calls") else one for one in messages]


def _with_argument_objects(message: dict[str, Any]) -> dict[str, Any]:
    shown: list[Any] = []
    for call in message["tool_calls"]:
        function = call.get("function")
        if function is None or read_arguments(text := function.get("arguments") or "").grade == "exact":
            shown.append(call)
            continue
        meant = encode_unreadable_call(ToolCall(call["id"], function.get("name") or "", text))
        shown.append({**call, "function": {**function, "arguments": dump_compact(meant).decode()}})
    return {**message, "tool_calls": shown}


def _reply_dict(answer: Any) -> dict[str, Any]:
    """Return a reply in its provider's shape: LiteLLM keeps a refusal outside of the message."""
    whole = to_dict(answer)
    for choice in whole.get("choices") or ():
        message = to_dict(choice).get("message")
        beside = to_dict(message or {}).get("provider_specific_fields") or {}
        if isinstance(message, dict) and isinstance(refusal := beside.get("refusal"), str):
            message.setdefault("refusal", refusal)
    return whole


def _streamed_reply(stream: ChatStream, answer: Any) -> dict[str, Any]:
    """Return the reply of a stream. LiteLLM reports `stop` for one that broke off; it becomes a cut."""
    reply = stream.build_reply()
    if has_broken_off(answer):
        reply["choices"][0]["finish_reason"] = CUT_STOP_REASON
    return reply


@contextlib.contextmanager
def _close_stream(answer: Any) -> Generator[None]:
    """Close a stream in any case. LiteLLM's own closes only asynchronously, so the stream that it reads is closed."""
    try:
        yield
    finally:
        close = getattr(getattr(answer, "completion_stream", answer), "close", None)
        with contextlib.suppress(Exception):  # as LiteLLM does: the reply is here, or another exception is
            if close is not None:
                close()
