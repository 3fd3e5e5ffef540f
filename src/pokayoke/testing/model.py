"""A model that plays a script, in the formats of the providers.

A guarded agent can be tested without a model: only the calls the model *asks for* matter, and those can be written
down. A turn is a text, one or several tool calls, a whole `Reply`, or a function of the history that returns one of
these (for a model that reacts to what it reads).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from pokayoke.core.call import ToolCall

Message = Mapping[str, Any]

# Each provider's word for the same end of a message.
_ANTHROPIC_STOPS = {"tool_calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}


class ScriptExhausted(AssertionError):  # noqa: N818 - the name says what happened
    """The agent asked for one turn more than the script has."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the model.

    Args:
        text: what it says.
        calls: the tool calls it asks for, in order.
        stop_reason: why the message ended, in OpenAI's words (`stop`, `tool_calls`, `length`). None derives it
            from the calls.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop_reason: str | None = None

    @property
    def finish(self) -> str:
        """The stop reason as OpenAI would report it."""
        return self.stop_reason or ("tool_calls" if self.calls else "stop")

    def openai(self) -> dict[str, Any]:
        """Return the reply as a chat completion; arguments stay as written."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": arguments_text(call)},
                }
                for call in self.calls
            ]
        return {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
            "usage": self._estimate_usage("prompt_tokens", "completion_tokens"),
        }

    def anthropic(self) -> dict[str, Any]:
        """Return the reply as an Anthropic message.

        That API sends `input` as an object. Arguments that are not the text of an object are passed as the text itself,
        which is what an accumulator of `partial_json` holds then.
        """
        content: list[dict[str, Any]] = [{"type": "text", "text": self.text}] if self.text else []
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments_object(call)}
            for call in self.calls
        ]
        return {
            "id": "msg_scripted",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content,
            "stop_reason": _ANTHROPIC_STOPS.get(self.finish, self.finish),
            "stop_sequence": None,
            "usage": self._estimate_usage("input_tokens", "output_tokens"),
        }

    def _estimate_usage(self, into: str, out: str) -> dict[str, int]:
        # Four characters per token is the usual rule of thumb; no test may depend on it.
        written = len(self.text) + sum(len(arguments_text(call)) + len(call.name) for call in self.calls)
        return {into: 0, out: -(-written // 4)}


class ScriptedModel:
    """A model that plays a script, one turn per request.

    Args:
        turns: its answers, in order. See the module for the kinds of turns.
        then: the text of every answer after the last turn. None (the default) raises `ScriptExhausted` for one turn
            too many, so that a test notices an agent that does not stop.

    Attributes:
        seen: the history at each request, copied.
        offered: the tools offered at each request.

    Calls without an id are numbered `call_1`, `call_2`, ... over the whole script.

    Raises:
        TypeError: the script is one text, whose letters would be the turns.
    """

    def __init__(self, turns: Iterable[Any], *, then: str | None = None) -> None:
        if isinstance(turns, str):
            raise TypeError(f"a script is a list of turns, such as [{turns!r}], not a text")
        self.seen: list[list[Message]] = []
        self.offered: list[list[Any]] = []
        self._turns = list(turns)
        self._then = then
        self._numbered = 0

    @property
    def requests(self) -> int:
        """How often the model was asked."""
        return len(self.seen)

    @property
    def remaining(self) -> int:
        """How many turns of the script are left."""
        return max(0, len(self._turns) - self.requests)

    def __call__(self, messages: Sequence[Message] = (), tools: Iterable[Any] | None = None) -> Reply:
        """Answer a request.

        Args:
            messages: the history, in any format; only functions in the script look at it.
            tools: the definitions offered, kept in `offered`.

        Raises:
            ScriptExhausted: the script is over and `then` was not given.
        """
        self.seen.append(list(messages))
        self.offered.append(list(tools or ()))
        if self.requests <= len(self._turns):
            turn = self._turns[self.requests - 1]
        elif self._then is not None:
            turn = self._then
        else:
            raise ScriptExhausted(
                f"the script has {len(self._turns)} turns and the agent asked for turn {self.requests}; "
                "add a turn, or pass then= a text to answer with from here on"
            )
        while callable(turn):
            turn = turn(messages)
        return self._to_reply(turn)

    async def acall(self, messages: Sequence[Message] = (), tools: Iterable[Any] | None = None) -> Reply:
        """Answer a request from async code. See `__call__`."""
        return self(messages, tools)

    def _to_reply(self, turn: Any) -> Reply:
        match turn:
            case Reply():
                reply = turn
            case str():
                reply = Reply(text=turn)
            case ToolCall():
                reply = Reply(calls=(turn,))
            case list() | tuple():
                reply = Reply(calls=tuple(cast("Sequence[ToolCall]", turn)))
            case _:
                raise TypeError(
                    f"a turn of a script is a text, a ToolCall, a list of them, a Reply or a function, not {turn!r}"
                )
        return msgspec.structs.replace(reply, calls=tuple(map(self._with_id, reply.calls)))

    def _with_id(self, call: ToolCall) -> ToolCall:
        if call.id:
            return call
        self._numbered += 1
        return msgspec.structs.replace(call, id=f"call_{self._numbered}")


def ask(
    name: str,
    arguments: str | dict[str, Any] | None = None,
    /,
    *,
    id: str = "",  # noqa: A002 - the word every provider uses
    confidence: float | None = None,
    occurrence: int = 0,
    **fields: Any,
) -> ToolCall:
    """Return a tool call as a model sends it: its arguments are text.

    Args:
        name: the tool, spelt as the model spells it.
        arguments: the argument text, kept unchanged (damage it as you like), or a dict.
        id: the call id; without one the scripted model numbers it.
        confidence: the host's confidence in this call, 0 to 1.
        occurrence: number of an intended repetition.
        fields: the arguments as keywords; one called `id`, `confidence` or `occurrence` needs the dict.

    Raises:
        TypeError: fields next to an argument text.
    """
    if fields and isinstance(arguments, str):
        raise TypeError(f"ask({name!r}) has an argument text: write {', '.join(fields)} into it, or give a dict")
    text = arguments if isinstance(arguments, str) else json.dumps({**(arguments or {}), **fields}, ensure_ascii=False)
    return ToolCall(id=id, name=name, arguments=text, confidence=confidence, occurrence=occurrence)


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as text."""
    if isinstance(call.arguments, dict):
        return json.dumps(call.arguments, ensure_ascii=False)
    return call.arguments if isinstance(call.arguments, str) else call.arguments.decode("utf-8", "replace")


def _arguments_object(call: ToolCall) -> Any:
    text = arguments_text(call)
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else text
