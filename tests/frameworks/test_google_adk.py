"""Google ADK beyond the common scenarios: confirmations, several agents, media, restarts, and what it refuses."""

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network for prices otherwise
pytest.importorskip("google.adk", reason="run by make frameworks")

from framework_shop import Shop
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App, ResumabilityConfig
from google.adk.models import FallbackModel
from google.adk.models.base_llm import BaseLlm
from google.adk.models.google_llm import Gemini
from google.adk.models.lite_llm import LiteLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import Workflow
from google.adk.workflow._errors import NodeInterruptedError
from google.genai import types
from model_server import STREAMS, ModelServer, Turn
from pydantic import Field

import pokayoke
from pokayoke.adapters import google_adk as adapter
from pokayoke.adapters.google_adk import GuardClient, GuardPlugin, calls, contracts, message
from pokayoke.errors import UsageError

pytestmark = pytest.mark.filterwarnings(
    # ADK and its libraries warn of their own experimental features and of each other.
    "ignore::UserWarning",
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


class Script(BaseLlm):
    """Says its turns one after the other: a text, or calls as (name, arguments). Keeps what it was asked."""

    model: str = "script"
    turns: list
    asked: list = Field(default_factory=list)
    stop: types.FinishReason = types.FinishReason.STOP

    async def generate_content_async(self, llm_request, stream=False):
        turn = self.turns[min(len(self.asked), len(self.turns) - 1)]
        self.asked.append(llm_request)
        if isinstance(turn, str):
            parts = [types.Part(text=turn)]
        else:
            parts = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in turn]
        yield LlmResponse(content=types.Content(role="model", parts=parts), finish_reason=self.stop)

    @property
    def told(self):
        """Every answer of a tool in the latest request."""
        parts = [part for content in self.asked[-1].contents for part in content.parts]
        return [part.function_response.response for part in parts if part.function_response]


def runner(agent, guard, *, sessions=None, plugin=None, **app):
    """A runner over one guarded app."""
    made = App(name="shop", root_agent=agent, plugins=[plugin or GuardPlugin(guard)], **app)
    return Runner(app=made, session_service=sessions or InMemorySessionService())


async def say(run, message="go", *, session="s", user="ada", **more):
    """Send a message and return the events."""
    if await run.session_service.get_session(app_name="shop", user_id=user, session_id=session) is None:
        await run.session_service.create_session(app_name="shop", user_id=user, session_id=session)
    content = types.UserContent(message) if isinstance(message, str) else message
    return [event async for event in run.run_async(user_id=user, session_id=session, new_message=content, **more)]


def text(events):
    """What the last event with content says."""
    said = [event for event in events if event.content]
    return "".join(part.text or "" for part in said[-1].content.parts)


def questions(events):
    """The confirmations that events ask for."""
    found = [call for event in events for call in event.get_function_calls()]
    return [call for call in found if call.name == "adk_request_confirmation"]


def answer(question, confirmed):
    """What an application sends back."""
    response = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": confirmed})
    return types.Content(role="user", parts=[types.Part(function_response=response)])


@pytest.fixture
def shop(tmp_path):
    """The tools and their log."""
    return Shop(tmp_path / "log")


def picked(shop, *names, fields=None, **guard):
    """Tools, and a guard of them."""
    tools = shop.functions(names)
    reads = [name for name in names if name not in ("refund", "ship")]
    return tools, pokayoke.Guard(contracts(tools, reads=reads, fields=fields), **guard)


# -- adopting it -------------------------------------------------------------------------------------


async def test_five_lines_guard_an_app(shop):
    """The lines of the guide are enough for a second equal write to be answered from the first."""
    tools = shop.functions(["refund"])
    refund = [("refund", {"order_id": "A1", "amount": 5})]
    agent = LlmAgent(name="clerk", model=Script(turns=[refund, refund, "Done."]), tools=tools)
    guard = pokayoke.Guard(contracts(agent.tools))
    app = App(name="shop", root_agent=agent, plugins=[GuardPlugin(guard)])
    events = await say(Runner(app=app, session_service=InMemorySessionService()))
    assert text(events) == "Done."
    assert len(shop.happened()) == 1


def test_without_the_framework_the_extra_is_named():
    """Whoever imports the adapter without ADK reads which extra to install."""
    code = "import sys; sys.modules['google.adk'] = None; import pokayoke.adapters.google_adk"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'pokayoke[google-adk]'" in done.stderr


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


# -- contracts ---------------------------------------------------------------------------------------


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


def test_calls_and_message_speak_adk(shop):
    """A reply gives its calls with its finish reason; an outcome becomes the part that answers its call."""
    part = types.Part(function_call=types.FunctionCall(id="c", name="ping", args={}))
    content = types.Content(role="model", parts=[part])
    (call,) = calls(LlmResponse(content=content, finish_reason=types.FinishReason.MAX_TOKENS))
    assert (call.id, call.name, call.arguments, call.stop_reason) == ("c", "ping", {}, "MAX_TOKENS")
    _, guard = picked(shop, "ping")
    told = message(guard.run().call(call)).function_response
    assert (told.id, told.name) == ("c", "ping")
    assert "cut" in told.response["error"]


# -- people ------------------------------------------------------------------------------------------

ASKS = {"refund": {"approval": True}}


@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("confirmed", [True, False])
async def test_an_approval_is_a_confirmation_of_adk(shop, confirmed, resumable):
    """The run pauses with ADK's question. A yes runs the write once, a no never, and both end the run in order."""
    tools, guard = picked(shop, "refund", fields=ASKS)
    model = Script(turns=[[("refund", {"order_id": "A1", "amount": "5"})], "Done."])
    agent = LlmAgent(name="clerk", model=model, tools=tools)
    more = {"resumability_config": ResumabilityConfig(is_resumable=True)} if resumable else {}
    run = runner(agent, guard, **more)
    events = await say(run)
    (question,) = questions(events)
    assert shop.happened() == []
    assert len(model.asked) == 1
    (waiting,) = guard.approvals.list()
    assert question.args["toolConfirmation"]["payload"] == {"approval": waiting.id}
    again = {"invocation_id": events[0].invocation_id} if resumable else {}
    events = await say(run, answer(question, confirmed), **again)
    assert len(shop.happened()) == int(confirmed)
    assert ("result" in model.told[-1]) is confirmed
    assert text(events).startswith("Done.")
    assert ("Not done: refund" in text(events)) is not confirmed
    decided = guard.approvals.get(waiting.id)
    assert (decided.status, decided.by) == ("approved" if confirmed else "denied", "ada")


async def test_an_approval_may_also_come_from_outside(shop):
    """Who answers with the command line needs no confirmation: the same call, asked for again, runs."""
    tools, guard = picked(shop, "refund", fields=ASKS)
    refund = [("refund", {"order_id": "A1", "amount": 5})]
    agent = LlmAgent(name="clerk", model=Script(turns=[refund, refund, "Done."]), tools=tools)
    run = runner(agent, guard)
    await say(run)
    guard.approvals.approve(guard.approvals.list()[0].id, by="boss")
    events = await say(run, "It is approved, try again.")
    assert text(events) == "Done."
    assert len(shop.happened()) == 1


async def test_adks_own_gate_stays_and_asks_about_what_will_run(shop):
    """`require_confirmation` asks before the guard claims anything, and its question shows corrected arguments."""
    tools, guard = picked(shop, "refund")
    seen = []
    gated = FunctionTool(tools[0], require_confirmation=lambda **given: seen.append(given) or True)
    model = Script(turns=[[("refund", {"order_id": "A1", "amount": "5"})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[gated]), guard)
    (question,) = questions(await say(run))
    assert seen[0] == {"order_id": "A1", "amount": 5}
    assert shop.happened() == []
    events = await say(run, answer(question, True))
    assert text(events) == "Done."
    assert [one["amount"] for one in shop.happened()] == [5]


async def test_a_tool_that_asks_by_itself_is_called_again():
    """What it returned while it waited is no result: with the answer it runs, instead of being replayed."""
    ran = []

    def transfer(amount: int, tool_context: ToolContext) -> dict:
        """Transfer money."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
            return {"status": "waits"}
        ran.append(amount)
        return {"status": "sent"}

    guard = pokayoke.Guard(contracts([transfer]))
    model = Script(turns=[[("transfer", {"amount": 5})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[transfer]), guard)
    events = await say(run)
    (question,) = questions(events)
    assert ran == []
    assert {"status": "waits"} in [one.response for event in events for one in event.get_function_responses()]
    events = await say(run, answer(question, True))
    assert ran == [5]
    assert "sent" in model.told[-1]["result"]
    assert text(events) == "Done."


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_the_answer_to_the_guard_is_none_to_the_tools_own_question(elsewhere):
    """However the guard's question was settled, the tool hears only what it has asked itself."""
    heard = []

    def time_off(days: int, tool_context: ToolContext) -> dict:
        """Ask for days off."""
        said = tool_context.tool_confirmation
        if said is None:
            tool_context.request_confirmation(hint="how many days?", payload={"days": 0})
            return {"status": "waits"}
        heard.append(said.payload)
        return {"status": "sent"}

    guard = pokayoke.Guard(contracts([time_off], fields={"time_off": {"approval": True}}))
    calls_ = [("time_off", {"days": 5})]
    model = Script(turns=[calls_, calls_, "Done."])
    run = runner(LlmAgent(name="a", model=model, tools=[time_off]), guard)
    (question,) = questions(await say(run))
    (waiting,) = guard.approvals.list()
    if elsewhere:
        guard.approvals.approve(waiting.id, by="boss")
    (question,) = questions(await say(run, answer(question, True)))
    assert question.args["toolConfirmation"]["hint"] == "how many days?"
    assert guard.approvals.get(waiting.id).status == "approved"
    assert heard == []
    said = answer(question, True)
    said.parts[0].function_response.response["payload"] = {"days": 3}
    assert text(await say(run, said)) == "Done."
    assert heard == [{"days": 3}]


async def test_a_tool_that_adk_interrupts_has_done_nothing_yet():
    """What interrupts it goes on to ADK, and the claim of the write is given back: asked for again, it runs."""
    ran = []

    async def transfer(amount: int) -> dict:
        """Transfer money."""
        ran.append(amount)
        if len(ran) == 1:
            raise NodeInterruptedError
        return {"status": "sent"}

    guard = pokayoke.Guard(contracts([transfer]))
    model = Script(turns=[[("transfer", {"amount": 5})], [("transfer", {"amount": 5})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[transfer]), guard)
    events = await say(run)
    assert ran == [5]
    assert not any(event.get_function_responses() for event in events)
    events = await say(run, "again")
    assert ran == [5, 5]
    assert "sent" in model.told[-1]["result"]
    assert text(events) == "Done."


# -- callbacks, threads, media -----------------------------------------------------------------------


async def test_callbacks_of_the_agent_see_and_change_what_runs(shop):
    """They get corrected arguments; what they make of them is checked again; what they answer themselves counts."""
    tools, guard = picked(shop, "get_order", "ping")
    seen = []

    def before(tool, args, tool_context):
        seen.append((tool.name, dict(args)))
        if tool.name == "ping":
            return {"mine": True}
        args["qty"] = 7 if args["qty"] == 2 else "many"
        return None

    turns = [
        [("get_order", {"order_id": "A1", "qty": "2"}), ("ping", {})],
        [("get_order", {"order_id": "B2", "qty": 3})],
        "Done.",
    ]
    model = Script(turns=turns)
    agent = LlmAgent(name="clerk", model=model, tools=tools, before_tool_callback=before)
    await say(runner(agent, guard))
    assert seen[:2] == [("get_order", {"order_id": "A1", "qty": 2}), ("ping", {})]
    assert [(one["order_id"], one["qty"]) for one in shop.happened()] == [("A1", 7)]
    assert model.told[1] == {"mine": True}
    assert "qty" in model.told[2]["error"]


@pytest.mark.parametrize("amount", [50, "50"])
async def test_what_a_plugin_before_the_guard_makes_of_arguments_counts(shop, amount):
    """The tool gets what it changed, checked like anything else; of a call that cannot be read there is nothing."""
    tools, guard = picked(shop, "refund")

    class Capped(BasePlugin):
        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            tool_args["amount"] = "7" if tool_args.get("order_id") == "A1" else "much"

    first = [("refund", {"order_id": "A1", "amount": amount}), ("refund", {"order_id": "B2", "amount": amount})]
    model = Script(turns=[first, "Done."])
    app = App(
        name="shop",
        root_agent=LlmAgent(name="clerk", model=model, tools=tools),
        plugins=[Capped(name="capped"), GuardPlugin(guard)],
    )
    await say(Runner(app=app, session_service=InMemorySessionService()))
    assert [(one["order_id"], one["amount"]) for one in shop.happened()] == [("A1", 7)]
    assert "amount" in model.told[1]["error"]


SPELT = [{"order_id": "A1", "amount": "500"}, {"arguments": {"order_id": "A1", "amount": 500}}]


@pytest.mark.parametrize("args", SPELT)
@pytest.mark.parametrize("name", ["refund", "Refund"])
async def test_a_plugin_before_the_guard_judges_what_would_run(shop, name, args):
    """A plugin that refuses large amounts refuses one that the guard would have put right behind it."""
    tools, guard = picked(shop, "refund")

    class Strict(BasePlugin):
        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            amount = tool_args.get("amount")
            return {"error": "too much"} if isinstance(amount, int) and amount > 100 else None

    model = Script(turns=[[(name, args)], "Done."])
    app = App(
        name="shop",
        root_agent=LlmAgent(name="clerk", model=model, tools=tools),
        plugins=[Strict(name="strict"), GuardPlugin(guard)],
    )
    await say(Runner(app=app, session_service=InMemorySessionService()))
    assert shop.happened() == []
    assert model.told == [{"error": "too much"}]


@pytest.mark.parametrize("args", SPELT)
async def test_a_rule_of_adks_own_gate_and_the_person_see_what_will_run(shop, args):
    """The rule judges the same arguments when the yes comes, and the question shows them to whoever says it."""
    tools, guard = picked(shop, "refund")
    gated = FunctionTool(tools[0], require_confirmation=lambda order_id, amount: amount == 500)
    model = Script(turns=[[("refund", args)], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[gated]), guard)
    (question,) = questions(await say(run))
    assert question.args["originalFunctionCall"]["args"] == {"order_id": "A1", "amount": 500}
    assert text(await say(run, answer(question, True))) == "Done."
    assert [one["amount"] for one in shop.happened()] == [500]


async def test_a_synchronous_tool_leaves_the_loop_free():
    """It runs in a thread, so that it can be given up; with threads=0 it stays where ADK runs it."""
    where = []

    def look() -> str:
        """Look."""
        where.append(threading.current_thread() is threading.main_thread())
        return "seen"

    for threads in (16, 0):
        guard = pokayoke.Guard(contracts([look], reads=["look"]))
        agent = LlmAgent(name="clerk", model=Script(turns=[[("look", {})], "Done."]), tools=[look])
        await say(runner(agent, guard, plugin=GuardPlugin(guard, threads=threads)))
    assert where == [False, True]


async def test_media_of_a_tool_reaches_the_model_beside_the_text():
    """A picture is not data to be checked; ADK finds it where it looks for it."""

    def draw() -> dict:
        """Draw a map."""
        return {"name": "map", "image": types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")}

    guard = pokayoke.Guard(contracts([draw], reads=["draw"]))
    model = Script(turns=[[("draw", {})], "Done."])
    await say(runner(LlmAgent(name="clerk", model=model, tools=[draw]), guard))
    parts = [part.function_response for one in model.asked[-1].contents for part in one.parts if part.function_response]
    assert parts[0].parts[0].inline_data.data == b"\x89PNG"
    assert '"map"' in parts[0].response["result"]


async def test_a_long_running_tool_is_started_once_and_may_answer_later():
    """Nothing yet is no result; asked for again, the write is not started again."""
    started = []

    def order(item: str) -> None:
        """Order something; the answer takes days."""
        started.append(item)

    guard = pokayoke.Guard(contracts([order]))
    tool = LongRunningFunctionTool(order)
    model = Script(turns=[[("order", {"item": "a"})], [("order", {"item": "a"})], "Done."])
    run = runner(LlmAgent(name="clerk", model=model, tools=[tool]), guard)
    events = await say(run)
    assert not any(event.get_function_responses() for event in events)
    await say(run, "Well?")
    assert started == ["a"]


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
@pytest.mark.parametrize("names", [["ping", "refund"], ["refund"]])
async def test_a_tool_that_is_denied_is_not_shown(shop, mode, names):
    """It is not offered, and a call of it does not run; monitor mode offers and runs what it would deny."""
    tools, guard = picked(shop, *names, config={"mode": mode, "access": {"deny": ["refund"]}})
    model = Script(turns=[[("refund", {"order_id": "A1", "amount": 5})], "Done."])
    await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard))
    shown = mode == "monitor"
    declared = [one.name for tool in model.asked[0].config.tools for one in tool.function_declarations]
    assert declared == [name for name in names if shown or name != "refund"]
    assert len(shop.happened()) == shown


@pytest.mark.parametrize(
    ("allowed", "left"),
    [(["ping", "refund"], (["ping"], "ANY")), (["refund"], (None, "NONE")), (["ping"], (["ping"], "ANY"))],
)
async def test_a_demand_for_a_tool_that_is_denied_is_dropped(shop, allowed, left):
    """Providers refuse a request that allows a tool it does not offer; with none left, none may be called."""
    tools, guard = picked(shop, "ping", "refund", config={"access": {"deny": ["refund"]}})
    model = Script(turns=["Done."])
    calling = types.FunctionCallingConfig(mode="ANY", allowed_function_names=allowed)
    config = types.GenerateContentConfig(tool_config=types.ToolConfig(function_calling_config=calling))
    await say(runner(LlmAgent(name="clerk", model=model, tools=tools, generate_content_config=config), guard))
    asked = model.asked[0].config.tool_config.function_calling_config
    assert (asked.allowed_function_names, asked.mode) == left
    assert calling.allowed_function_names == allowed


async def test_a_large_output_can_be_paged_through(shop):
    """After the preview the model is offered the guard's own tool, and it answers."""
    tools, guard = picked(shop, "huge", fields={"huge": {"output_schema": "text", "max_chars": 2_000_000}})
    model = Script(turns=[[("huge", {"order_id": "A1"})], [("read_more", {"handle": "out-1", "offset": 5})], "Done."])
    await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard))
    assert "read_more" not in model.asked[0].tools_dict
    assert "read_more" in model.asked[1].tools_dict
    assert "xxxx" in model.told[1]["result"]


# -- several agents ----------------------------------------------------------------------------------


async def test_agents_hand_over_and_each_has_its_own_tools(shop):
    """ADK's own tools pass; a tool of another agent is no tool of this one, and does not run."""
    tools, guard = picked(shop, "get_order", "refund")
    cashier = LlmAgent(
        name="cashier",
        model=Script(
            turns=[[("get_order", {"order_id": "A1"})], [("refund", {"order_id": "A1", "amount": 5})], "Paid."]
        ),
        description="Pays.",
        tools=tools[1:],
    )
    greeter = Script(turns=[[("transfer_to_agent", {"agent_name": "cashier"})], "?"])
    root = LlmAgent(name="greeter", model=greeter, tools=tools[:1], sub_agents=[cashier])
    events = await say(runner(root, guard))
    assert events[-1].author == "cashier"
    assert [one["tool"] for one in shop.happened()] == ["refund"]
    assert "get_order" in cashier.model.told[0]["error"]


@pytest.mark.parametrize("arguments", [{"agent_name": "nobody"}, {}])
async def test_a_handover_to_nobody_is_answered(shop, arguments):
    """An agent that was made up, or none at all, would end the run; the model is told instead."""
    _, guard = picked(shop, "ping")
    other = LlmAgent(name="cashier", model=Script(turns=["?"]), description="Pays.")
    model = Script(turns=[[("transfer_to_agent", arguments)], "Sorry."])
    events = await say(runner(LlmAgent(name="greeter", model=model, sub_agents=[other]), guard))
    assert text(events) == "Sorry."
    assert "transfer_to_agent" in model.told[0]["error"]


async def test_a_replayed_call_ends_a_loop_as_it_did_before():
    """A tool of your own may leave a `LoopAgent`; in the next turn its call is replayed, and leaves it again."""
    left = []

    def leave(tool_context: ToolContext) -> dict:
        """Leave the loop."""
        left.append(1)
        tool_context.actions.escalate = True
        tool_context.actions.skip_summarization = True
        return {}

    critic = LlmAgent(name="critic", model=Script(turns=[[("leave", {})]] * 2 + ["On."]), tools=[leave])
    run = runner(LoopAgent(name="loop", sub_agents=[critic], max_iterations=3), pokayoke.Guard(contracts([leave])))
    for turn in (1, 2):
        await say(run)
        assert len(critic.model.asked) == turn
    assert left == [1]


async def test_an_agent_as_a_tool_is_guarded_within_its_callers_run(shop):
    """It runs each time it is called; its equal writes are one effect, although ADK gives it a new session each time."""
    tools, guard = picked(shop, "refund")
    turns = [[("refund", {"order_id": "A1", "amount": 5})], "Paid."]
    cashier = LlmAgent(name="cashier", model=Script(turns=turns * 2), description="Pays.", tools=tools)
    ask = [("cashier", {"request": "Refund A1."})]
    model = Script(turns=[ask, ask, "Done."])
    root = LlmAgent(name="greeter", model=model, tools=[AgentTool(cashier)])
    events = await say(runner(root, guard))
    assert text(events) == "Done."
    assert len(cashier.model.asked) == 4
    assert len(shop.happened()) == 1


async def test_an_agent_that_a_tool_asks_does_not_doubt_that_tool(shop):
    """It answers while the tool still runs, in the same run: its words reach the tool as it said them."""
    inner = shop.functions(["refund"])
    turns = [[("refund", {"order_id": "A1", "amount": "5"})], "Paid."]
    cashier = LlmAgent(name="cashier", model=Script(turns=turns), tools=inner)

    async def pay(order: str, tool_context: ToolContext) -> str:
        """Pay an order."""
        return str(await tool_context.run_node(cashier, node_input=order))

    guard = pokayoke.Guard(contracts([*inner, pay]))
    model = Script(turns=[[("pay", {"order": "A1"})], "Done."])
    await say(runner(LlmAgent(name="clerk", model=model, tools=[pay]), guard))
    assert "\nPaid.\n" in model.told[0]["result"]
    assert "Not done" not in model.told[0]["result"]
    assert len(shop.happened()) == 1


async def test_agents_side_by_side_do_not_mix(shop):
    """They share a turn, so it is over for both when one gets nowhere; both end with a text, no call shares an id."""
    tools, guard = picked(shop, "get_order")
    lost = LlmAgent(name="lost", model=Script(turns=[[("nothing", {})]]), tools=tools)
    order = [[("get_order", {"order_id": f"A{n}"})] for n in range(1, 4)]
    good = LlmAgent(name="good", model=Script(turns=[*order, "Found."]), tools=tools)
    events = await say(runner(ParallelAgent(name="both", sub_agents=[lost, good]), guard))
    said = {event.author: text([event]) for event in events if event.content and event.is_final_response()}
    assert "could not finish" in said["lost"]
    assert set(said) == {"lost", "good"}
    ids = [call.id for event in events for call in event.get_function_calls()]
    assert len(ids) == len(set(ids))


async def test_sessions_at_once_do_not_mix(shop):
    """One plugin serves forty sessions at once; the same write happens once in each."""
    tools, guard = picked(shop, "refund")
    refund = [("refund", {"order_id": "A1", "amount": 5})]

    class Stateless(Script):
        async def generate_content_async(self, llm_request, stream=False):
            turn = refund if len(llm_request.contents) < 5 else "Done."
            parts = (
                [types.Part(text=turn)]
                if isinstance(turn, str)
                else [
                    types.Part(function_call=types.FunctionCall(id="call_1", name=name, args=args))
                    for name, args in turn
                ]
            )
            await asyncio.sleep(0)
            yield LlmResponse(content=types.Content(role="model", parts=parts))

    run = runner(LlmAgent(name="clerk", model=Stateless(turns=[]), tools=tools), guard)
    done = await asyncio.gather(*(say(run, session=f"s{n % 20}", user=f"u{n // 20}") for n in range(40)))
    assert {text(events) for events in done} == {"Done."}
    assert len(shop.happened()) == 40


def graph(tool, guard, *, then):
    """A runner over a workflow in which the program itself calls a tool with A1, and hands on what that brings."""

    def first(node_input):
        return {"order_id": "A1", "amount": 5}

    flow = Workflow(name="flow", edges=[("START", first, tool, then)])
    return runner(flow, guard)


async def test_a_tool_of_a_workflow_hands_its_value_on(shop):
    """No model reads what a node brings, so the next node gets the value itself, also where the call is replayed."""
    (refund,), guard = picked(shop, "refund")
    got = []

    def then(node_input):
        got.append(node_input)

    run = graph(FunctionTool(refund), guard, then=then)
    await say(run)
    await say(run, "again")
    assert got == [{"refunded": "A1", "amount": 5}] * 2
    assert len(shop.happened()) == 1


@pytest.mark.parametrize("fields", [{"approval": True}, {"roles": ("boss",)}], ids=["pending", "refused"])
async def test_a_workflow_does_not_go_on_without_the_value_of_a_tool(shop, fields):
    """A call that did not end ok fails its node with the reason; nothing else is handed on for its value."""
    (refund,), guard = picked(shop, "refund", fields={"refund": fields})
    got = []

    def then(node_input):
        got.append(node_input)

    with pytest.raises(Exception, match="refund"):
        await say(graph(FunctionTool(refund), guard, then=then))
    assert got == shop.happened() == []


@pytest.mark.parametrize(("user", "session"), [("ada", "x/s"), ("ada%2Fx", "s"), ("ada", "x%2Fs")])
async def test_no_name_reads_as_that_of_another_user(shop, user, session):
    """Whatever slashes stand in ids of users and sessions, no write of one is the answer to another."""
    tools, guard = picked(shop, "refund")
    for who, where in (("ada/x", "s"), (user, session)):
        model = Script(turns=[[("refund", {"order_id": "A1", "amount": 5})], "Done."])
        await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard), user=who, session=where)
    assert len(shop.happened()) == 2


# -- ends --------------------------------------------------------------------------------------------


async def test_a_new_turn_gives_the_tools_back(shop):
    """A turn that ended without tools says so; with the user's next text they are there again."""
    tools, guard = picked(shop, "ping")
    model = Script(turns=[[("nothing", {})], [("nothing", {})], "I am lost.", [("ping", {})], "Open."])
    run = runner(LlmAgent(name="clerk", model=model, tools=tools), guard)
    events = await say(run)
    assert text(events) == "I am lost."
    assert [len(one.tools_dict) for one in model.asked] == [1, 1, 0]
    assert "there are only 'ping'" in model.asked[2].config.system_instruction
    assert text(await say(run, "Try again.")) == "Open."
    assert "there are only" not in model.asked[3].config.system_instruction


async def test_a_stopped_run_asks_nobody(shop):
    """What was stopped ends with an honest text, and no model is paid for it."""
    tools, guard = picked(shop, "ping")
    model = Script(turns=["?"])
    run = runner(LlmAgent(name="clerk", model=model, tools=tools), guard)
    guard.run("shop/ada/s").stop()
    assert "could not finish" in text(await say(run))
    assert model.asked == []


def test_a_model_of_googles_own_needs_no_litellm():
    """ADK does not install it: without it the plugin guards, and only who asks for its client is told what is missing."""
    code = """
        import asyncio, sys
        sys.modules["litellm"] = None
        from google.adk.agents import LlmAgent
        from google.adk.models.base_llm import BaseLlm
        from google.adk.models.llm_response import LlmResponse
        from google.adk.runners import InMemoryRunner
        from google.genai import types
        import pokayoke
        from pokayoke.adapters.google_adk import GuardPlugin

        class Echo(BaseLlm):
            async def generate_content_async(self, llm_request, stream=False):
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="Done.")]))

        agent = LlmAgent(name="a", model=Echo(model="echo"))
        run = InMemoryRunner(agent=agent, plugins=[GuardPlugin(pokayoke.Guard([]))])
        events = asyncio.run(run.run_debug("go", quiet=True))
        print(events[-1].content.parts[0].text)
        import pokayoke.adapters.google_adk as adapter
        try:
            adapter.GuardClient
        except pokayoke.errors.MissingExtraError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("Done.\n")
    assert "pokayoke[litellm]" in told.stdout
    assert "pokayoke[google-adk]" not in told.stdout


class Chunks(Gemini):
    """Google's own class over a scripted client: each turn is the chunks of a stream, as (parts, finish reason)."""

    turns: list
    asked: list = Field(default_factory=list)

    @property
    def api_client(self):
        async def generate(**asked):
            self.asked.append(asked)
            return self._chunks(self.turns[len(self.asked) - 1])

        models = SimpleNamespace(generate_content_stream=generate)
        return SimpleNamespace(aio=SimpleNamespace(models=models), vertexai=False)

    @staticmethod
    async def _chunks(turn):
        for parts, finish in turn:
            content = types.Content(role="model", parts=parts)
            yield types.GenerateContentResponse(candidates=[types.Candidate(content=content, finish_reason=finish)])


def pieces():
    """A part of a call whose arguments have only begun to come."""
    begun = types.PartialArg(json_path="$.order_id", string_value="A1", will_continue=True)
    amount = types.PartialArg(json_path="$.amount", number_value=5)
    call = types.FunctionCall(name="refund", id="c1", partial_args=[amount, begun], will_continue=True)
    return types.Part(function_call=call)


def whole():
    """A part with a whole call."""
    return types.Part(function_call=types.FunctionCall(name="refund", args={"order_id": "A1", "amount": 5}))


SAID = [([types.Part(text="Pai")], None), ([types.Part(text="d.")], None), ([types.Part(text="")], "STOP")]


@pytest.mark.parametrize(
    ("turn", "runs"),
    [
        ([([whole()], "STOP")], 1),
        ([([whole()], None)], 0),
        ([([pieces()], None)], 0),
        ([([pieces()], "MAX_TOKENS")], 0),
    ],
    ids=["whole", "broke off after it", "broke off in it", "cut in it"],
)
async def test_a_stream_of_gemini_that_broke_off_runs_nothing(shop, turn, runs):
    """ADK makes a whole call of what had come by then; without a reason for the end nobody knows what was missing."""
    tools, guard = picked(shop, "refund")
    model = Chunks(model="gemini-m", turns=[turn, SAID])
    run = runner(LlmAgent(name="clerk", model=model, tools=tools), guard)
    events = await say(run, run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert len(shop.happened()) == runs
    assert text(events).startswith("Paid.")
    assert sum(len(event.get_function_responses()) for event in events) == 1


async def test_a_stream_that_ends_with_nothing_more_is_no_empty_answer(shop, monkeypatch):
    """As ADK streams without its progressive mode: it says what came, and then once more that it ended."""
    monkeypatch.setenv("ADK_DISABLE_PROGRESSIVE_SSE_STREAMING", "1")
    tools, guard = picked(shop, "refund")
    model = Chunks(model="gemini-m", turns=[[([types.Part(text="Let me")], None), ([whole()], "STOP")], SAID])
    run = runner(LlmAgent(name="clerk", model=model, tools=tools), guard)
    events = await say(run, run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    said = [text([event]) for event in events if event.content and not event.partial]
    assert [one for one in said if one] == ["Let me", "Paid."]
    assert len(shop.happened()) == 1


@pytest.mark.parametrize("by_client", [True, False])
async def test_a_call_cannot_pass_for_another_one(shop, by_client):
    """Arguments that look like what the adapter itself puts in their place are arguments like any other."""
    tools, guard = picked(shop, "ping", "refund")
    trick = {"unread_tool_call": {"name": "ping", "arguments": "{}", "stop_reason": None}}
    if by_client:
        with ModelServer([Turn(calls=(("c", "refund", json.dumps(trick)),)), Turn("Done.")]) as server:
            model = LiteLlm(model="openai/m", api_base=f"{server.url}/v1", api_key="k", llm_client=GuardClient())
            await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard))
            told = server.bodies[1]["messages"][-1]["content"]
    else:
        model = Script(turns=[[("refund", trick)], "Done."])
        await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard))
        told = model.told[0]["error"]
    assert shop.happened() == []
    assert "order_id" in told


async def test_a_handover_that_was_cut_or_cannot_be_read_does_not_happen(shop):
    """What holds for the guard's tools holds for ADK's own: the model is told, and the run goes on."""
    _, guard = picked(shop, "ping")
    other = LlmAgent(name="cashier", model=Script(turns=["?"]), description="Pays.")
    hand_over = '{"agent_name": "cashier"}'
    turns = [
        Turn(calls=(("c1", "transfer_to_agent", hand_over),), stop="length"),
        Turn(calls=(("c2", "transfer_to_agent", hand_over[:-3]),)),
        Turn("Sorry."),
    ]
    with ModelServer(turns) as server:
        model = LiteLlm(model="openai/m", api_base=f"{server.url}/v1", api_key="k", llm_client=GuardClient())
        events = await say(runner(LlmAgent(name="greeter", model=model, sub_agents=[other]), guard))
        told = [one["content"] for one in server.bodies[2]["messages"] if one["role"] == "tool"]
    assert text(events) == "Sorry."
    assert "cut" in told[0]
    assert "could not be read" in told[1]


async def test_a_gemini_message_that_was_cut_runs_nothing(shop):
    """The finish reason counts where ADK itself reports it: every call is answered, and the run goes on."""
    tools, guard = picked(shop, "refund")

    class Cut(Script):
        async def generate_content_async(self, llm_request, stream=False):
            self.stop = types.FinishReason.STOP if self.asked else types.FinishReason.MAX_TOKENS
            async for one in super().generate_content_async(llm_request, stream):
                yield one

    model = Cut(turns=[[("refund", {"order_id": "A1", "amount": 5})], "It was cut."])
    events = await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard))
    assert shop.happened() == []
    assert "cut" in model.told[0]["error"]
    assert text(events).startswith("It was cut.")


@pytest.mark.parametrize("left", [-3, -2])
async def test_text_of_a_stream_comes_at_once_and_calls_when_they_are_whole(shop, left):
    """Pieces of text arrive one by one; a stream that breaks off in a call, or right after it, runs nothing."""
    tools, guard = picked(shop, "refund")
    broken = Turn("Wait.", calls=(("call_1", "refund", '{"order_id": "A1", "amount": 5}'),))
    broken.breaks = len(list(STREAMS["chat"](broken))) + left
    with ModelServer([broken, Turn("It did not work.")]) as server:
        model = LiteLlm(model="openai/m", api_base=f"{server.url}/v1", api_key="k", llm_client=GuardClient())
        run = runner(LlmAgent(name="clerk", model=model, tools=tools), guard)
        events = await say(run, run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    pieces = [text([event]) for event in events if event.partial and event.content.parts[0].text]
    assert len(pieces) > 2
    assert shop.happened() == []
    assert text(events).startswith("It did not work.")


async def test_a_user_has_the_roles_the_application_says(shop):
    """The user's id becomes a principal; a tool that wants a role runs for those who have it."""
    tools, guard = picked(shop, "refund", fields={"refund": {"roles": ("cashier",)}})
    roles = {"ada": [], "bob": ["cashier"]}
    plugin = GuardPlugin(guard, principal=lambda user: {"id": user, "roles": roles[user]})
    for user in roles:
        model = Script(turns=[[("refund", {"order_id": "A1", "amount": 5})], "Done."])
        await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard, plugin=plugin), user=user)
        assert ("result" in model.told[0]) is (user == "bob")
    assert len(shop.happened()) == 1


async def test_what_the_provider_counted_is_reported(shop):
    """The run knows the tokens of the conversation."""
    tools, guard = picked(shop, "ping")
    with ModelServer([Turn("Hi.", tokens=(1_000, 234))]) as server:
        model = LiteLlm(model="openai/m", api_base=f"{server.url}/v1", api_key="k", llm_client=GuardClient())
        await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard))
    assert guard.run("shop/ada/s").tokens == 1_234


async def test_the_trace_keeps_what_the_model_wrote(shop, tmp_path):
    """A repair and a name that was spelt in another way are in the trace, though ADK's history holds neither."""
    trace = tmp_path / "trace.jsonl"
    tools, guard = picked(shop, "get_order", config={"trace": {"path": str(trace)}})
    with ModelServer([Turn(calls=(("c", "functions.get_order", "{'order_id': 'A1',}"),)), Turn("Done.")]) as server:
        model = LiteLlm(model="openai/m", api_base=f"{server.url}/v1", api_key="k", llm_client=GuardClient())
        await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard))
        asked = server.bodies[1]["messages"][-2]["tool_calls"][0]["function"]
    guard.close()
    assert asked["name"] == "get_order"
    assert json.loads(asked["arguments"]) == {"order_id": "A1"}
    assert "trailing_comma" in trace.read_text()


# -- restarts ----------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, sys
from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
import pokayoke
from pokayoke.adapters.google_adk import GuardPlugin, contracts

folder, kill = sys.argv[1], sys.argv[2]

def refund(order_id: str) -> dict:
    "Refund an order."
    with open(f"{folder}/effects", "a") as log:
        log.write(order_id + "\\n")
    if kill == "inside":
        os._exit(9)
    return {"refunded": order_id}

class Model(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        answered = [p.function_response for c in llm_request.contents for p in c.parts if p.function_response]
        part = types.Part(text=str(answered[-1].response)) if answered else types.Part(
            function_call=types.FunctionCall(id="call_1", name="refund", args={"order_id": "A1"}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))

def step(name):
    if name == kill:
        os._exit(9)

guard = pokayoke.Guard(contracts([refund]), store=f"sqlite:///{folder}/ledger.db", on_step=step)
agent = LlmAgent(name="clerk", model=Model(model="m"), tools=[refund])
app = App(name="shop", root_agent=agent, plugins=[GuardPlugin(guard)],
          resumability_config=ResumabilityConfig(is_resumable=True))
runner = Runner(app=app, session_service=SqliteSessionService(db_path=f"{folder}/sessions.db"))

async def main():
    found = await runner.session_service.get_session(app_name="shop", user_id="ada", session_id="s")
    if found is None:
        await runner.session_service.create_session(app_name="shop", user_id="ada", session_id="s")
        how = {"new_message": types.UserContent("Refund A1.")}
    else:
        how = {"invocation_id": found.events[-1].invocation_id}
    async for event in runner.run_async(user_id="ada", session_id="s", **how):
        if event.is_final_response() and event.content:
            print(event.content.parts[0].text)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kill", "told"), [("inside", "It is not known whether refund took effect"), ("after_settle", "already")]
)
def test_a_process_that_is_killed_in_a_write_resumes_without_a_second_one(tmp_path, kill, told):
    """ADK's own sessions and resumption call the tool again; the effect exists once, and the model knows."""
    pokayoke.open_store(f"sqlite:///{tmp_path}/ledger.db", create=True).close()
    script = tmp_path / "agent.py"
    script.write_text(textwrap.dedent(KILLED))
    first = _child(script, tmp_path, kill)
    assert first.returncode == 9, first.stderr
    second = _child(script, tmp_path, "never")
    assert second.returncode == 0, second.stderr
    assert Path(tmp_path / "effects").read_text().splitlines() == ["A1"]
    assert told in second.stdout


def _child(script, folder, kill):
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(script), str(folder), kill]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=50, check=False)


async def test_ids_stay_unique_after_a_restart(shop):
    """A provider that begins to count again gets its call answered under another id than the one in the session."""
    tools, guard = picked(shop, "get_order")
    sessions = InMemorySessionService()

    class Same(Script):
        async def generate_content_async(self, llm_request, stream=False):
            async for one in super().generate_content_async(llm_request, stream):
                for part in one.content.parts:
                    if part.function_call:
                        part.function_call.id = "call_1"
                yield one

    ids = []
    for order in ("A1", "B2"):
        model = Same(turns=[[("get_order", {"order_id": order})], "Done."], asked=[])
        run = runner(LlmAgent(name="clerk", model=model, tools=tools), guard, sessions=sessions)
        ids += [call.id for event in await say(run) for call in event.get_function_calls()]
    assert len(set(ids)) == 2


def test_the_adapter_names_what_it_exports():
    """Everything in `__all__` is there."""
    assert all(hasattr(adapter, name) for name in adapter.__all__)
