"""A scripted model and guarded agents for the tests of Agent Framework."""

from pathlib import Path

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

import pokayoke
from pokayoke.adapters.agent_framework import contracts, middleware

HERE = Path(__file__).resolve().parent


REFUND = '{"order_id": "A1", "amount": 5}'


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A model in this process. A turn is a text, or a list of (id, name, arguments)."""

    def __init__(self, *turns, tokens=None, **kwargs):
        super().__init__(**kwargs)
        self.turns, self.tokens = list(turns), tokens
        self.asked: list[dict] = []

    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        names = [one.name for one in options.get("tools") or ()]
        self.asked.append(
            {
                "messages": list(messages),
                "tools": names,
                "instructions": options.get("instructions"),
                "options": dict(options),
            }
        )
        turn = self.turns[min(len(self.asked), len(self.turns)) - 1]
        contents = (
            [Content.from_text(turn)]
            if isinstance(turn, str)
            else [Content.from_function_call(ident, name, arguments=text) for ident, name, text in turn]
        )
        usage = {"total_token_count": self.tokens} if self.tokens else None
        whole = ChatResponse(messages=[Message("assistant", contents)], finish_reason="stop", usage_details=usage)
        if not stream:
            return self._soon(whole)

        async def updates():
            for content in contents:
                pieces = content.text.split(" ") if content.type == "text" else [content]
                for number, piece in enumerate(pieces):
                    part = piece if content.type != "text" else Content.from_text(f"{' ' * bool(number)}{piece}")
                    yield ChatResponseUpdate(contents=[part], role="assistant", message_id="m")

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

    async def _soon(self, whole):
        return whole

    def read(self):
        """The results that the latest request held."""
        return [
            one.result for said in self.asked[-1]["messages"] for one in said.contents if one.type == "function_result"
        ]


def guarded(tools, client, *, more=(), **options):
    """An agent with a guard, and the guard."""
    fields = options.pop("fields", None)
    guard = pokayoke.Guard(contracts(tools, reads=["get_order"], fields=fields), **options)
    return Agent(client, tools=tools, middleware=[*middleware(guard), *more]), guard


def guarded_write(tools, client, *, more=(), **options):
    """As `guarded`, with writes only."""
    fields = options.pop("fields", None)
    guard = pokayoke.Guard(contracts(tools, fields=fields), **options)
    return Agent(client, tools=tools, middleware=[*middleware(guard), *more]), guard
