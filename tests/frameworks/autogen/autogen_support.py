"""A scripted client, tools and guarded agents for the tests of AutoGen."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

import pokayoke
from pokayoke.adapters.autogen import contracts, guarded

INFO = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=True)


REFUND = ("refund", '{"order": "A1"}')


def asks(*wanted, tokens=0, thought=None):
    """A reply that calls tools: names and argument texts, with ids that begin anew in each reply."""
    content = [FunctionCall(f"call_{number}", text, name) for number, (name, text) in enumerate(wanted, 1)]
    usage = RequestUsage(prompt_tokens=tokens, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=content, usage=usage, cached=False, thought=thought)


class Client(ReplayChatCompletionClient):
    """AutoGen's own scripted client, which also keeps what it was asked."""

    def __init__(self, *replies):
        super().__init__(list(replies), model_info=INFO)
        self.seen = []

    async def create(self, messages, **more):
        self.seen.append((list(messages), list(more.get("tools", ()))))
        return await super().create(messages, **more)


def made(log):
    """Two tools over a log: a write and a read."""

    async def refund(order: str) -> str:
        """Refund an order."""
        log.append(order)
        return f"refunded {order}"

    async def find(order: str) -> str:
        """Find an order."""
        return f"{order} is open"

    return [refund, find]


def guard_of(tools, config=None, store=None):
    """A guard over tools."""
    given = contracts(tools)
    fields = {contract.name: {"output_schema": "text"} for contract in given}
    reads = {"find"} & {*fields}
    return pokayoke.Guard(contracts(tools, reads=reads, fields=fields), config=config, store=store)


def agent_of(guard, client, tools, run_id=None, name="shop", model_context=None, **options):
    """A guarded agent."""
    parts = guarded(guard, client, tools, run_id=run_id, model_context=model_context)
    return AssistantAgent(name, **{**parts, "max_tool_iterations": 10, **options})


async def said(agent, task="Refund A1."):
    """The last word."""
    return (await agent.run(task=task)).messages[-1].content
