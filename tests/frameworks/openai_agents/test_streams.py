"""Streams of the SDK, and replies that were cut."""

import contextlib

import pytest
from agents import (
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    function_tool,
)
from agents.testing import assistant_message
from model_server import ModelServer, Turn
from openai import AsyncOpenAI
from openai_agents_support import QUIET, REFUND, agent_of, guard_of, made

from pokayoke.adapters.openai_agents import GuardedRunner


@contextlib.asynccontextmanager
async def served(turns, wire="chat"):
    """A scripted server, and the SDK's own model at it."""
    with ModelServer(turns) as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0, timeout=30) as client:
            yield server, {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[wire]("m", client)


async def listened(runner, agent):
    """The result of a streamed run, and the texts as they came."""
    result = runner.run_streamed(agent, "Refund A1.", run_config=QUIET)
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return result, pieces


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_text_streams_as_it_comes_and_a_note_comes_last(wire):
    """Pieces are passed on, and the note about a write that is not known to have happened is the last of them."""

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    turns = [Turn(calls=(("call_1", *REFUND),)), Turn("I refunded the order.")]
    async with served(turns, wire) as (_, model):
        result, pieces = await listened(GuardedRunner(guard_of([refund])), agent_of(model, [refund]))
    assert result.final_output == "".join(pieces)
    assert len(pieces) > 3
    assert pieces[-1] == "\n\n[It is not known whether refund took effect.]"


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_note_of_a_stream_belongs_to_the_message_it_is_said_in(wire):
    """All pieces of the last text have the id and the place of one item."""

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    turns = [Turn(calls=(("call_1", *REFUND),)), Turn("I refunded the order.")]
    async with served(turns, wire) as (_, model):
        result = GuardedRunner(guard_of([refund])).run_streamed(
            agent_of(model, [refund]), "Refund A1.", run_config=QUIET
        )
        raw = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
    pieces = [one for one in raw if one.type == "response.output_text.delta"]
    assert pieces[-1].delta == "\n\n[It is not known whether refund took effect.]"
    assert len({(one.item_id, one.output_index) for one in pieces}) == 1


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("mode", ["stream", "async"])
async def test_a_cut_text_without_a_word_is_answered_honestly(wire, mode):
    """An empty message that was cut does not crash the run."""
    tools = made([])
    async with served([Turn(stop="length")], wire) as (_, model):
        agent, runner = agent_of(model, tools), GuardedRunner(guard_of(tools))
        if mode == "stream":
            result, _ = await listened(runner, agent)
        else:
            result = await runner.run(agent, "Go.", run_config=QUIET)
    assert "could not finish" in result.final_output


@pytest.mark.parametrize("mode", ["stream", "async"])
async def test_a_cut_message_hands_nobody_over(mode):
    """A handoff of a message that was cut is refused like its other calls."""
    tools = made([])
    other = agent_of([[assistant_message("never")]], [], name="cashier")
    cut = Turn(calls=(("call_1", "transfer_to_cashier", "{}"),), stop="length")
    async with served([cut, Turn("Done.")]) as (server, model):
        agent, runner = agent_of(model, tools, handoffs=[other]), GuardedRunner(guard_of(tools))
        if mode == "stream":
            result, _ = await listened(runner, agent)
        else:
            result = await runner.run(agent, "Go.", run_config=QUIET)
        answers = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
        names = [
            call["function"]["name"] for one in server.bodies[-1]["messages"] for call in one.get("tool_calls", ())
        ]
    assert result.last_agent.name == "shop"
    assert "cut" in answers[0]
    assert names == ["transfer_to_cashier"]
