"""Requests, replies and streams: hidden tools, cut messages, calls that ADK cannot parse."""

import json
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.google_llm import Gemini
from google.adk.models.lite_llm import LiteLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from google_adk_agents import Script, picked, runner, say, text
from model_server import STREAMS, ModelServer, Turn
from pydantic import Field

from pokayoke.adapters.google_adk import GuardClient, calls, message


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
