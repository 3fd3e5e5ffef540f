"""Agents of Pydantic AI over scripted models, and the tools they get."""

import json

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel

import pokayoke
from pokayoke.adapters.pydantic_ai import Guarded, contracts

OBJECT = {"type": "object"}


ASKS = {"approvals": {"tools": ["refund"]}}


class Shop:
    """Tools that count what they do."""

    def __init__(self):
        self.done = []

    def find(self, order: str) -> dict:
        """Find an order."""
        self.done.append(("find", order))
        return {"order": order}

    async def refund(self, order: str, amount: int) -> dict:
        """Refund an order."""
        self.done.append(("refund", order, amount))
        return {"refunded": order}


def call(name, ident="c1", **arguments):
    """One call, as text."""
    return ToolCallPart(name, json.dumps(arguments), ident)


REFUND = call("refund", order="A1", amount=5)


class Script:
    """A model that says one thing after the other, and remembers what it was asked.

    Args:
        turns: text, calls, or a whole response; the last one is repeated.
    """

    def __init__(self, *turns):
        self.turns, self.asked, self.offered = turns, [], []

    def __call__(self, messages, info):
        self.asked.append(list(messages))
        self.offered.append([tool.name for tool in info.function_tools])
        turn = self.turns[min(len(self.asked), len(self.turns)) - 1]
        if isinstance(turn, ModelResponse):
            return turn
        return ModelResponse([TextPart(turn)] if isinstance(turn, str) else list(turn))

    @property
    def model(self):
        """For an agent."""
        return FunctionModel(self)

    @property
    def answers(self):
        """Texts of the results in the last request."""
        parts = [part for one in self.asked[-1] for part in one.parts]
        return [part.content for part in parts if isinstance(part, ToolReturnPart)]


def guarded(tools, script, *, config=None, store=None, reads=("find",), fields=None, loop=None, **options):
    """An agent over a script, and its guard."""
    guard = pokayoke.Guard(contracts(tools, reads=reads, fields=fields), config=config, store=store)
    return Agent(script.model, tools=tools, capabilities=[Guarded(guard)], **options), guard


class FunctionScript:
    """A model made of a function."""

    def __init__(self, function):
        self.model = FunctionModel(function)


MISWRITTEN = ["{'order': 'A1', 'amount': 5,}", '{"order": "A1", "amount": "5"}']
