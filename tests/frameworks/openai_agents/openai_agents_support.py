"""Agents, tools and guards for the tests of the OpenAI Agents SDK."""

from agents import (
    Agent,
    RunConfig,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call

import pokayoke
from pokayoke.adapters.openai_agents import contracts

QUIET = RunConfig(tracing_disabled=True)


REFUND = ("refund", '{"order": "A1"}')


def ask(name, arguments="{}", call_id="call_1"):
    """A reply that calls a tool."""
    return function_call(name, arguments, call_id=call_id)


def made(log, **options):
    """Two tools over a log: a write and a read."""

    @function_tool(**options)
    async def refund(order: str) -> str:
        """Refund an order."""
        log.append(order)
        return f"refunded {order}"

    @function_tool
    async def find(order: str) -> str:
        """Find an order."""
        return f"{order} is open"

    return [refund, find]


def agent_of(model, tools, **options):
    """An agent with a scripted model; replies are lists of items."""
    model = ScriptedModel(model) if isinstance(model, list) else model
    return Agent(name=options.pop("name", "shop"), model=model, tools=tools, **options)


def guard_of(tools, config=None, store=None, **options):
    """A guard over the tools of an agent."""
    fields = {tool.name: {"output_schema": "text"} for tool in tools}
    return pokayoke.Guard(
        contracts(tools, reads={"find"} & {*fields}, fields=fields), config=config, store=store, **options
    )


ASKING = {"approvals": {"tools": ["refund"]}}


SCRIPT = [[ask(*REFUND)], [assistant_message("Done.")]]
