"""Which run a call belongs to: several agents, sessions, users, turns and restarts."""

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from google_adk_agents import Script, picked, runner, say, text

import pokayoke
from pokayoke.adapters.google_adk import GuardPlugin, contracts


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


async def test_a_wish_after_its_answer_is_a_new_one(shop):
    """ADK leaves the ids of calls out of a request; what was answered there counts as seen all the same."""
    tools, guard = picked(shop, "refund")
    turns = [[("refund", {"order_id": "A1", "amount": 5})], "Paid."]
    run = runner(LlmAgent(name="cashier", model=Script(turns=turns * 2), tools=tools), guard)
    assert [text(await say(run, said)) for said in ("Refund A1.", "Another one, please.")] == ["Paid."] * 2
    assert len(shop.happened()) == 2


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
    assert {text(events) for events in done} == {"Done.\n\n[Not run a second time: refund.]"}
    assert len(shop.happened()) == 40


@pytest.mark.parametrize(("user", "session"), [("ada", "x/s"), ("ada%2Fx", "s"), ("ada", "x%2Fs")])
async def test_no_name_reads_as_that_of_another_user(shop, user, session):
    """Whatever slashes stand in ids of users and sessions, no write of one is the answer to another."""
    tools, guard = picked(shop, "refund")
    for who, where in (("ada/x", "s"), (user, session)):
        model = Script(turns=[[("refund", {"order_id": "A1", "amount": 5})], "Done."])
        await say(runner(LlmAgent(name="clerk", model=model, tools=tools), guard), user=who, session=where)
    assert len(shop.happened()) == 2


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
