"""Contracts of functions, tools and toolsets, and the models and tools that are refused."""

import re

import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps import App
from google.adk.models import FallbackModel
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import Workflow
from google_adk_agents import Script, picked, runner, say
from model_server import ModelServer, Turn

import pokayoke
from pokayoke.adapters.google_adk import GuardClient, GuardPlugin, contracts
from pokayoke.errors import UsageError


async def test_a_tool_without_a_contract_is_the_programmers_mistake(shop):
    """It is neither refused to the model nor run unguarded: the run says what to do."""
    _, guard = picked(shop, "ping")
    agent = LlmAgent(name="clerk", model=Script(turns=["Hi."]), tools=shop.functions(["ping", "ship"]))
    with pytest.raises(Exception, match="'ship' has no contract") as caught:
        await say(runner(agent, guard))
    assert any(isinstance(one, UsageError) for one in _causes(caught.value))


async def test_a_tool_that_is_named_unguarded_runs_as_it_is(shop):
    """The guard has no word about it."""
    _, guard = picked(shop, "ping")
    model = Script(turns=[[("ship", {"order_id": "A1"})], "Done."])
    agent = LlmAgent(name="clerk", model=model, tools=shop.functions(["ping", "ship"]))
    await say(runner(agent, guard, plugin=GuardPlugin(guard, unguarded=["ship"])))
    assert model.told == [{"shipped": "A1"}]


REFUSED = {
    "named": lambda: "openai/m",
    "made": lambda: LiteLlm(model="openai/m"),
    "named to fall back on": lambda: FallbackModel(models=["gemini-2.5-flash", "openai/m"]),
    "made to fall back on": lambda: FallbackModel(models=[FallbackModel(models=[LiteLlm(model="openai/m")])]),
}


@pytest.mark.parametrize("model", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("inside", ["sequence", "workflow"])
async def test_a_model_whose_calls_would_be_dropped_is_refused(shop, model, inside):
    """LiteLlm without the guard's client loses calls, so it is never asked, whoever runs its agent."""
    tools, guard = picked(shop, "ping")
    agent = LlmAgent(name="clerk", model=model(), tools=tools)
    if inside == "sequence":
        root = SequentialAgent(name="all", sub_agents=[agent])
    else:
        root = Workflow(name="all", edges=[("START", agent)])
    with pytest.raises(Exception, match="llm_client=GuardClient"):
        await say(runner(root, guard))


async def test_the_client_alone_wraps_nothing(shop):
    """In an app without the plugin a malformed call is what ADK makes of it: wrapped it would reach the tool."""
    tools, _ = picked(shop, "ping")
    with ModelServer([Turn(calls=(("call_1", "ping", '{"a": }'),)), Turn("Done.")]) as server:
        model = LiteLlm(model="openai/m", api_base=f"{server.url}/v1", api_key="k", llm_client=GuardClient())
        agent = LlmAgent(name="clerk", model=model, tools=tools)
        run = Runner(app=App(name="shop", root_agent=agent), session_service=InMemorySessionService())
        events = await say(run)
    assert "MALFORMED" in str(events[-1].error_code)
    assert shop.happened() == []


def _causes(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_contracts_come_from_what_the_model_is_offered():
    """Functions and tools give their declared schema; a tool without arguments takes none; ADK's own get none."""

    def look(order: str, deep: bool = False) -> str:
        """Look up an order."""
        return order

    def ping() -> str:
        """Say hello."""
        return "hello"

    helper = AgentTool(LlmAgent(name="helper", model="m", description="Helps."))
    made = contracts([look, FunctionTool(ping), helper], reads=["look"])
    assert [(one.name, one.effect, one.description) for one in made] == [
        ("look", "read", "Look up an order."),
        ("ping", "write", "Say hello."),
    ]
    assert made[0].input_schema["required"] == ["order"]
    assert made[1].input_schema["additionalProperties"] is False
    assert contracts([helper], reads=["helper"])[0].name == "helper"


async def test_a_toolset_with_a_prefix_is_guarded_as_the_error_says(shop):
    """ADK puts the prefix before the names that the model sees, so contracts must have it, too."""

    class Toolset(BaseToolset):
        async def get_tools(self, readonly_context=None):
            return [FunctionTool(one) for one in shop.functions(["refund"])]

    toolset = Toolset(tool_name_prefix="shop")
    with pytest.raises(UsageError) as refused:
        contracts([toolset])
    (method,) = re.findall(r"await toolset\.(\w+)\(\)", str(refused.value))
    guard = pokayoke.Guard(contracts(await getattr(toolset, method)()))
    model = Script(turns=[[("shop_refund", {"order_id": "A1", "amount": 5})], "Done."])
    await say(runner(LlmAgent(name="clerk", model=model, tools=[toolset]), guard))
    assert len(shop.happened()) == 1


def test_what_is_no_tool_is_refused():
    """A toolset has to be opened first."""
    with pytest.raises(UsageError, match="get_tools"):
        contracts([object()])
