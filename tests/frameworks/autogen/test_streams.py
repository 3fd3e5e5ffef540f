"""Streams, and typed streams."""

import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_support import INFO, REFUND, agent_of, guard_of, made
from model_server import ModelServer, Turn
from pydantic import BaseModel


async def streamed(turns, tools, **options):
    """The last word of a streamed run at AutoGen's own client, its pieces, and what the model was asked."""
    with ModelServer(turns) as server:
        client = OpenAIChatCompletionClient(model="m", base_url=f"{server.url}/v1", api_key="k", model_info=INFO)
        agent = agent_of(guard_of(tools), client, tools, model_client_stream=True, **options)
        items = [item async for item in agent.run_stream(task="Refund A1.")]
        await client.close()
        pieces = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
        return items[-1].messages[-1].content, pieces, server


async def test_text_streams_as_it_comes_and_a_note_comes_last():
    """Pieces are passed on, and the note about a write that is not known to have happened is the last of them."""

    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    text, pieces, _ = await streamed([Turn(calls=(("call_1", *REFUND),)), Turn("I refunded the order.")], [refund])
    assert text == "".join(pieces)
    assert len(pieces) > 3
    assert pieces[-1] == "\n\n[It is not known whether refund took effect.]"


class Closing(BaseModel):
    """A typed last word."""

    said: str


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (Turn(calls=(("call_1", *REFUND),), breaks=7), "cut"),
        (Turn(calls=(("call_1", *REFUND),), stop="length"), "cut"),
        (Turn(calls=(("call_1", "refund", '{"order": }'),)), "a value is missing"),
    ],
)
async def test_a_typed_stream_is_heard_too(turn, told):
    """Where the answer has a type, the SDK parses by itself and raises; the guard answers the calls instead."""
    log = []
    tools = [FunctionTool(tool, tool.__doc__, strict=True) for tool in made(log)]
    last, _, server = await streamed([turn, Turn('{"said": "Done."}')], tools, output_content_type=Closing)
    answers = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
    assert (last, log) == (Closing(said="Done."), [])
    assert told in answers[0]
