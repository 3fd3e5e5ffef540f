"""Requests, replies and streams: names, hidden tools, cut messages, last texts."""

import asyncio

import httpx2
import pytest
from model_server import STREAMS, ModelServer, Turn
from pydantic import BaseModel
from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.settings import ToolOrOutput
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai_agents import REFUND, Script, Shop, call, guarded

import pokayoke
from pokayoke.adapters.pydantic_ai import Guarded, calls, contracts, message


async def test_a_name_that_can_only_mean_one_tool_is_that_tool():
    """The framework runs it, and the history calls it by its name."""
    shop = Shop()
    agent, _ = guarded([shop.find], Script([call("functions.Find", order="A1")], "Done."))
    result = await agent.run("go")
    assert shop.done == [("find", "A1")]
    assert result.all_messages()[1].tool_calls[0].tool_name == "find"


async def test_a_tool_that_the_agent_does_not_have_now_is_answered():
    """The guard knows it, the agent hides it: nothing runs, and the run goes on."""
    shop = Shop()
    hidden = Tool(shop.refund, prepare=lambda ctx, tool_def: None)
    script = Script([REFUND, call("find", "c2", order="A1")], "Done.")
    agent, _ = guarded([shop.find, hidden], script)
    assert (await agent.run("go")).output == "Done.\n\n[Not done: refund (the tool failed).]"
    assert shop.done == [("find", "A1")]
    assert len(script.answers) == 2


@pytest.mark.parametrize("tools", [[], [Tool(Shop().refund, prepare=lambda ctx, tool_def: None)]])
async def test_an_agent_that_has_no_tool_now_answers_calls_all_the_same(tools):
    """Calls of tools that are not there end no run and cost nothing of the budget of retries: the guard answers."""
    script = Script(
        [call("nothing", "c1")], [call("nothing", "c2"), call("refund", "c3", order="A1", amount=1)], "Done."
    )
    agent, _ = guarded(tools, script, reads=())
    assert (await agent.run("go")).output
    assert [text.partition("`")[0] for text in script.answers[:2]] == ["There is no tool "] * 2
    assert len(script.answers) == 3


class Choosing(AbstractCapability):
    """Demands tools in every request."""

    def __init__(self, choice):
        self.choice = choice

    def get_model_settings(self):
        return lambda ctx: {"tool_choice": self.choice}


@pytest.mark.parametrize(
    ("roles", "choice", "sent"),
    [
        (["clerk"], ToolOrOutput(function_tools=["refund"]), ToolOrOutput(function_tools=["refund"])),
        ([], ToolOrOutput(function_tools=["refund", "find"]), ToolOrOutput(function_tools=["find"])),
        ([], ToolOrOutput(function_tools=["refund"]), ToolOrOutput(function_tools=[])),
        ([], ["refund", "find"], ["find"]),
        ([], ["refund"], "none"),
        ([], "auto", "auto"),
    ],
)
async def test_a_request_demands_no_tool_that_is_hidden(roles, choice, sent):
    """The framework refuses a choice of tools that are not there, and who may not use one is not told of it."""
    shop, seen = Shop(), []

    def answer(messages, info):
        seen.append(info.model_settings["tool_choice"])
        return ModelResponse(parts=[TextPart("Done.")])

    made = contracts([shop.refund, shop.find], reads=["find"], fields={"refund": {"roles": ("clerk",)}})
    who = Guarded(pokayoke.Guard(made), who=lambda ctx: {"principal": {"id": "ada", "roles": roles}})
    agent = Agent(FunctionModel(answer), tools=[shop.refund, shop.find], capabilities=[who, Choosing(choice)])
    await agent.run("go")
    assert seen == [sent]


@pytest.mark.parametrize(("system", "sent"), [("openai", (False, None)), ("fallback:bedrock,openai", (True, "none"))])
async def test_the_last_request_forbids_calls_in_the_way_its_provider_takes(system, sent):
    """Bedrock refuses a history with calls without tools; it gets them and may call none, and what it calls is struck."""
    shop, seen = Shop(), []

    class Model(FunctionModel):
        @property
        def system(self):
            return system

    def said(messages, info):
        seen.append((bool(info.function_tools), (info.model_settings or {}).get("tool_choice")))
        return ModelResponse([call("nothing", f"c{len(messages)}")])

    guard = pokayoke.Guard(contracts([shop.refund]))
    agent = Agent(Model(said), tools=[shop.refund], capabilities=[Guarded(guard)])
    result = await agent.run("go")
    assert "could not finish" in result.output
    assert seen[-1] == sent
    assert all(one == (True, None) for one in seen[:-1])


class Report(BaseModel):
    """What was done."""

    text: str


async def test_a_structured_answer_is_no_tool_call():
    """Output tools are neither guarded nor in the way, and repeating a call beside one does not end the run."""
    shop = Shop()
    both = [REFUND, call("final_result", "c2", text="Refunded.")]
    script = Script([call("find", order="A1")], both)
    agent, _ = guarded([shop.find, shop.refund], script, output_type=Report)
    assert (await agent.run("go")).output == Report(text="Refunded.")
    assert shop.done == [("find", "A1"), ("refund", "A1", 5)]


async def test_an_answer_by_a_call_has_an_id_of_its_own():
    """An output tool that shares its id with a call leaves two calls and two results under two ids."""
    shop = Shop()
    agent, _ = guarded(
        [shop.refund], Script([REFUND, call("final_result", text="Done.")]), reads=(), output_type=Report
    )
    result = await agent.run("go")
    assert (result.output, shop.done) == (Report(text="Done."), [("refund", "A1", 5)])
    _, said, read = result.all_messages()
    assert [one.tool_call_id for one in said.tool_calls] == ["c1_2", "c1"]
    assert sorted(one.tool_call_id for one in read.parts) == ["c1", "c1_2"]


@pytest.mark.parametrize("function", [True, False])
async def test_an_answer_by_a_call_of_a_cut_message_is_none(function):
    """Arguments that parse may lack what was cut off: no output function runs with them, and the model is asked again."""
    paid = []

    class Answer(BaseModel):
        order: str
        cents: int = 0

    async def pay(order: str, cents: int = 0) -> Answer:
        paid.append((order, cents))
        return Answer(order=order, cents=cents)

    cut = ModelResponse([call("final_result", "c1", order="A1")], finish_reason="length")
    script = Script(cut, [call("final_result", "c2", order="A1", cents=5)])
    agent, _ = guarded([], script, reads=(), output_type=pay if function else Answer)
    assert (await agent.run("Refund A1.")).output == Answer(order="A1", cents=5)
    assert "cut off" in script.asked[1][-1].parts[0].content
    assert paid == ([("A1", 5)] if function else [])


async def test_an_answer_beside_a_refused_call_does_not_count():
    """It was written before the model knew, so the model is asked again."""
    shop = Shop()
    bad = [call("refund", order="A1"), call("final_result", "c2", text="Refunded.")]
    script = Script(bad, [call("final_result", "c3", text="Not refunded.")])
    agent, _ = guarded([shop.refund], script, reads=(), output_type=Report)
    assert (await agent.run("go")).output == Report(text="Not refunded.")


async def test_without_tools_a_structured_answer_is_still_possible():
    """A stuck model keeps its output tool, and what it calls beside it is struck."""
    shop = Shop()
    last = [REFUND, call("final_result", "c9", text="Nothing was done.")]
    script = Script([call("nothing", "c1")], [call("nothing", "c2")], last)
    forced = {"tool_choice": ToolOrOutput(["refund"])}
    agent, _ = guarded([shop.refund], script, reads=(), output_type=Report, model_settings=forced)
    result = await agent.run("go")
    assert result.output == Report(text="Nothing was done.")
    assert script.offered[-1] == []
    assert shop.done == []
    assert "Tools are off" in str(script.asked[-1])
    assert "Tools are off" not in str(result.all_messages())


@pytest.mark.parametrize("times", [1, 2])
async def test_what_was_not_done_is_said_beside_the_last_words(times):
    """A text that claims a refund that was refused, once or until the tools went: the user reads both."""
    shop = Shop()
    script = Script(*([call("refund", f"c{number}", order="A1")] for number in range(times)), "Refunded.")
    agent, _ = guarded([shop.refund], script, reads=())
    assert (await agent.run("go")).output == "Refunded.\n\n[Not done: refund (the details did not fit).]"


async def test_what_a_tool_elsewhere_has_put_right_is_not_said_to_be_undone():
    """Its first call was refused; the second ran where the guard does not see it, and its result says so."""
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    tool = ToolDefinition(name="ship", parameters_json_schema=schema)
    script = Script([call("ship")], [call("ship", "c2", order="A1")], "Shipped.")
    agent = Agent(
        script.model,
        toolsets=[ExternalToolset([tool])],
        capabilities=[Guarded(pokayoke.Guard(contracts([tool])))],
        output_type=[str, DeferredToolRequests],
    )
    waiting = await agent.run("go", conversation_id="a")
    answers = DeferredToolResults(calls={"c2": "shipped"})
    result = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert result.output == "Shipped."


async def test_a_repaired_call_stands_in_the_history_as_it_was_meant():
    """The model is not shown that its arguments were no JSON, and what it wrote of a refused call is kept."""
    shop = Shop()
    meant, broken = ToolCallPart("find", "{'order': 'A1'}", "c1"), ToolCallPart("refund", '{"order": }', "c2")
    agent, _ = guarded([shop.find, shop.refund], Script([meant, broken], "Done."))
    result = await agent.run("go")
    said = result.all_messages()[1].tool_calls
    assert [one.args for one in said] == [{"order": "A1"}, '{"order": }']


async def test_a_corrected_value_stands_in_the_history_as_it_ran():
    """A text for a number is the number there; of a call that was refused, the history keeps what the model wrote."""
    shop = Shop()
    right, wrong = '{"order": "A1", "amount": "5"}', '{"order": "B2", "amount": "2-3"}'
    script = Script([ToolCallPart("refund", right, "c1")], [ToolCallPart("refund", wrong, "c2")], "Done.")
    agent, _ = guarded([shop.refund], script, reads=())
    history = (await agent.run("go")).all_messages()
    said = [one.args for message in history if isinstance(message, ModelResponse) for one in message.tool_calls]
    assert said == [{"order": "A1", "amount": 5}, wrong]
    assert shop.done == [("refund", "A1", 5)]


def stream_of(*turns):
    """A model that streams: text, or calls as (name, arguments, id), and says nothing of how it ended."""
    turns = iter(turns)

    async def stream(messages, info):
        for piece in next(turns):
            if isinstance(piece, str):
                yield piece
            else:
                at, name, arguments, ident = piece
                yield {at: DeltaToolCall(name, arguments[:5], tool_call_id=ident)}
                yield {at: DeltaToolCall(json_args=arguments[5:])}

    return FunctionModel(stream_function=stream)


async def test_streams_are_guarded_however_they_are_read():
    """Events, the nodes of a run and a stream of text: the write happens once, and the text comes in pieces."""
    for way in ("events", "iter", "text"):
        shop = Shop()
        wish = '{"order": "A1", "amount": 5}'
        model = stream_of([(0, "refund", wish, "c1"), (1, "refund", wish, "c1")], ["Do", "ne."])
        guard = pokayoke.Guard(contracts([shop.refund]))
        agent = Agent(model, tools=[shop.refund], capabilities=[Guarded(guard)])
        said = []
        if way == "events":
            async with agent.run_stream_events("go") as events:
                said = [event.result.output async for event in events if isinstance(event, AgentRunResultEvent)]
        elif way == "iter":
            async with agent.iter("go") as run:
                async for node in run:
                    if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                        async with node.stream(run.ctx) as stream:
                            _ = [event async for event in stream]
                said = [run.result.output]
        else:
            async with agent.run_stream("go") as result:
                said = [text async for text in result.stream_text(debounce_by=None)][-1:]
        assert said == ["Done."], way
        assert shop.done == [("refund", "A1", 5)], way


def test_the_synchronous_ways_are_guarded():
    """`run_sync` and `run_stream_sync`, with synchronous tools."""
    shop = Shop()
    agent, _ = guarded([shop.find], Script([call("find", order="A1"), call("find", "c1", order="A2")], "Done."))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        assert agent.run_sync("go").output == "Done."
        assert sorted(shop.done) == [("find", "A1"), ("find", "A2")]
        model = stream_of([(0, "find", '{"order": "A3"}', "c1")], ["Done."])
        with agent.override(model=model):
            assert agent.run_stream_sync("go").get_output() == "Done."
        assert shop.done[-1] == ("find", "A3")
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def at(server, wire="chat"):
    """A model of Pydantic AI at a scripted server."""
    client = httpx2.AsyncClient(timeout=30)
    if wire == "anthropic":
        provider = AnthropicProvider(api_key="k", base_url=server.url, http_client=client)
        return AnthropicModel("claude-m", provider=provider), client
    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="k", http_client=client)
    return (OpenAIChatModel if wire == "chat" else OpenAIResponsesModel)("m", provider=provider), client


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
async def test_a_stream_of_text_that_is_cut_runs_none_of_the_calls_behind_its_text(wire):
    """`run_stream` takes the first text for the answer and runs the tools by itself, before any hook hears the end."""
    shop = Shop()
    whole = ("c1", "refund", '{"order": "A1", "amount": 5}')
    for stop, done in (("length", []), (None, [("refund", "A1", 5)])):
        shop.done.clear()
        with ModelServer([Turn("I refund it.", calls=(whole,), stop=stop)]) as server:
            model, client = at(server, wire)
            guard = pokayoke.Guard(contracts([shop.refund]))
            agent = Agent(model, tools=[shop.refund], capabilities=[Guarded(guard)])
            async with client, agent.run_stream("go") as result:
                assert await result.get_output() == "I refund it."
            assert not server.refused
        assert shop.done == done


@pytest.mark.parametrize(
    ("wire", "left"), [("chat", 2), ("chat", 5), ("responses", 1), ("responses", 3), ("anthropic", 2)]
)
async def test_a_stream_that_breaks_off_runs_nothing(wire, left):
    """A connection that ends in order, without a word on why, proves nothing: its calls are taken for cut."""
    shop = Shop()
    turn = Turn(calls=(("c1", "refund", '{"order": "A1", "amount": 5}'),))
    turn.breaks = len(list(STREAMS[wire](turn))) - left
    with ModelServer([turn, Turn("Not done.")]) as server:
        model, client = at(server, wire)
        guard = pokayoke.Guard(contracts([shop.refund]))
        agent = Agent(model, tools=[shop.refund], capabilities=[Guarded(guard)])
        async with client, agent.run_stream_events("go") as events:
            said = [event.result.output async for event in events if isinstance(event, AgentRunResultEvent)]
    assert shop.done == []
    assert said == ["Not done.\n\n[Not done: refund (the details did not fit).]"]


async def test_a_cut_that_a_stream_has_told_is_not_taken_back():
    """A later chunk with another reason to stop changes nothing about the first."""
    shop = Shop()
    turn = Turn(calls=(("c1", "refund", '{"order": "A1", "amount": 5}'),), stop="length", then="tool_calls")
    with ModelServer([turn, Turn("Not done.")]) as server:
        model, client = at(server)
        agent = Agent(model, tools=[shop.refund], capabilities=[Guarded(pokayoke.Guard(contracts([shop.refund])))])
        async with client, agent.run_stream_events("go") as events:
            _ = [event async for event in events]
    assert shop.done == []


async def test_a_loop_of_ones_own_has_calls_and_messages():
    """Without an agent, `calls` and `message` are all that is needed; a cut reply runs nothing."""
    shop = Shop()
    made = contracts([Tool(shop.find)], reads=["find"])
    with pokayoke.Guard(made).run() as run:
        whole = ModelResponse([call("find", "c1", order="A1"), call("find", "c1", order="A2")])
        batch = run.call_batch(calls(whole, run), invoke=lambda call, arguments: shop.find(**arguments))
        parts = [message(outcome) for outcome in batch]
        assert [part.outcome for part in parts] == ["success", "success"]
        assert len({part.tool_call_id for part in parts}) == 2
        cut = ModelResponse([call("find", "c2", order="A1")], finish_reason="length")
        (outcome,) = run.call_batch(calls(cut, run), invoke=lambda call, arguments: shop.find(**arguments))
        assert message(outcome).outcome == "retried"
    assert sorted(shop.done) == [("find", "A1"), ("find", "A2")]
