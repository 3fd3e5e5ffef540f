"""Replies that are captured as they come over the wire."""

import contextlib

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI
from langchain_script import GO, Script, agent_of, answers
from model_server import ModelServer, Turn


class Pieces(Script):
    """The same, streamed: a turn is a list of chunks."""

    def _stream(self, messages, stop=None, run_manager=None, **options):
        turn = self.turns[min(len(self.asked), len(self.turns) - 1)]
        self.asked.append(list(messages))
        for piece in turn:
            yield ChatGenerationChunk(message=piece)


def served(turn, wire):
    """A server with one reply and an end, and the model at it."""
    server = ModelServer([turn, Turn("Done.")])

    def model():
        if wire == "anthropic":
            return ChatAnthropic(model="m", base_url=server.url, api_key="k", max_retries=0)
        responses = wire == "responses"
        return ChatOpenAI(
            model="m", base_url=f"{server.url}/v1", api_key="k", max_retries=0, use_responses_api=responses
        )

    return server, model


async def astreamed(agent, mode):
    """The last state of a streamed run."""
    last = None
    async for kind, part in agent.astream(GO, stream_mode=[mode, "values"]):
        last = part if kind == "values" else last
    return last


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("left", [1, 2])
async def test_a_stream_that_breaks_off_runs_nothing(shop, wire, left):
    """A stream without a finish reason runs no call, even if LangChain completes its text to one that parses."""
    calls_ = (("a", "refund", '{"order": "A1", "amount": 5}'), ("b", "refund", '{"order": "B2", "amount": 77}'))
    whole = {"chat": 24, "responses": 26, "anthropic": 29}[wire]
    server, model = served(Turn(calls=calls_, breaks=whole - left * 4), wire)
    with server:
        agent, _ = agent_of(model(), shop.tools)
        with contextlib.suppress(Exception):  # a client that notices by itself
            await astreamed(agent, "messages")
    assert not shop.done


async def test_a_cut_that_a_stream_has_told_is_not_taken_back(shop):
    """A later chunk with another reason to stop changes nothing about the first."""
    turn = Turn(calls=(("a", "refund", '{"order": "A1", "amount": 5}'),), stop="length", then="tool_calls")
    server, model = served(turn, "chat")
    with server:
        agent, _ = agent_of(model(), shop.tools)
        await astreamed(agent, "messages")
    assert not shop.done


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("mode", ["messages", "updates", "custom", "debug"])
async def test_no_stream_mode_runs_a_cut_message(shop, wire, mode):
    """A message that ended for its length runs nothing in any stream mode, though its arguments parse."""
    server, model = served(Turn(calls=(("a", "refund", '{"order": "A1", "amount": 5}'),), stop="length"), wire)
    with server:
        agent, _ = agent_of(model(), shop.tools)
        ended = await astreamed(agent, mode)
        assert not server.refused
    assert not shop.done
    assert "cut" in answers(ended)[0]


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")  # experimental, as LangChain says itself
@pytest.mark.parametrize("stop", ["length", None])
def test_the_event_stream_runs_only_what_is_whole(shop, stop):
    """A cut message runs nothing in LangChain's newer event stream either."""
    server, model = served(Turn(calls=(("a", "refund", '{"order": "A1", "amount": 5}'),), stop=stop), "chat")
    with server:
        agent, _ = agent_of(model(), shop.tools)
        stream = agent.stream_events(GO, version="v3")
        ended = stream.output
        assert not server.refused
    assert shop.done == ([] if stop else [("refund", "A1", 5)])
    assert ("cut" if stop else "refunded") in answers(ended)[0]


def test_a_text_that_was_only_completed_is_read_as_it_came(shop):
    """Of a stream whose arguments end in the middle, the model reads that they ended; nothing is guessed."""
    part = {"name": "refund", "args": '{"order": "A1", "amount": 12', "id": "a", "index": 0}
    turns = [[AIMessageChunk("", tool_call_chunks=[part])], [AIMessageChunk("Done.")]]
    agent, _ = agent_of(Pieces(turns=turns), shop.tools)
    ended = None
    for kind, state in agent.stream(GO, stream_mode=["messages", "values"]):
        ended = state if kind == "values" else ended
    assert not shop.done
    assert "ends" in answers(ended)[0]


def test_who_read_the_stream_gets_the_correction_too(shop):
    """A replaced final text is a message of its own, so a reader of the stream sees it as well."""
    turns = [
        [AIMessageChunk("", tool_call_chunks=[{"name": "fetch", "args": "{}", "id": f"c{n}", "index": 0}])]
        for n in range(3)
    ]
    agent, _ = agent_of(Pieces(turns=turns), shop.tools)
    seen = [str(one.text) for one, _ in agent.stream(GO, stream_mode="messages")]
    assert any("could not finish" in one for one in seen)
