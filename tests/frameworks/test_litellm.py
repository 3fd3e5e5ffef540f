"""LiteLLM beyond the common scenarios: streams that break off, other providers' histories, and the callback."""

import asyncio
import json
import os

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network for prices otherwise
pytest.importorskip("litellm", reason="run by make frameworks")

import litellm
from model_server import STREAMS, ModelServer, Turn

import pokayoke
from pokayoke.adapters.litellm import (
    AsyncCompletionModel,
    CompletionModel,
    ReplyMender,
    calls,
    history,
    mended,
    message,
)

# LiteLLM and pydantic warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning")

REFUND = ("call_1", "refund", '{"order_id": "A1"}')
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "refund",
            "parameters": {
                "type": "object",
                "properties": {"order_id": {"type": "string"}},
                "required": ["order_id"],
                "additionalProperties": False,
            },
        },
    }
]


@pytest.fixture
def paid():
    """What was refunded."""
    return []


@pytest.fixture
def guard(paid):
    """A guard of one write."""

    @pokayoke.tool(effect="write", output="text")
    def refund(order_id: str) -> str:
        """Refund an order."""
        paid.append(order_id)
        return f"refunded {order_id}"

    return pokayoke.Guard([refund])


@pytest.fixture
def mender():
    """The callback, installed."""
    litellm.callbacks.append(one := ReplyMender())
    yield one
    litellm.callbacks.remove(one)


@pytest.fixture(scope="module", autouse=True)
def loop_of_litellm():
    """LiteLLM asks for the main thread's event loop where none runs; made here, it is closed as well."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def at(server, **more):
    """How to reach the scripted model."""
    return {"model": "openai/m", "api_base": f"{server.url}/v1", "api_key": "k", "num_retries": 0, **more}


def test_calls_history_and_message_serve_a_loop_of_ones_own(guard, paid):
    """A reply of `completion` gives its calls and its history; outcomes become messages the provider takes."""
    with ModelServer([Turn(calls=(REFUND, REFUND)), Turn("Done.")]) as server, guard.run() as run:
        messages = [{"role": "user", "content": "Refund A1."}]
        reply = litellm.completion(**at(server), messages=messages, tools=run.tools())
        messages += history(reply)
        messages += [message(outcome) for outcome in run.call_batch(calls(reply, run))]
        last = litellm.completion(**at(server), messages=messages, tools=run.tools())
    assert last.choices[0].message.content == "Done."
    assert server.refused == []
    assert paid == ["A1"]


@pytest.mark.parametrize("left", [2, 1, 0])
async def test_a_stream_that_breaks_off_runs_nothing(guard, paid, left):
    """LiteLLM says `stop` for it, even if its calls are whole; only with the provider's stop reason do they run."""
    broken = Turn(calls=(REFUND,))
    broken.breaks = len(list(STREAMS["chat"](broken))) - left
    for asynchronous in (False, True):
        paid.clear()
        with ModelServer([broken, Turn("Sorry.")]) as server:
            if asynchronous:
                ended = await guard.aloop(AsyncCompletionModel(**at(server), stream=True), "Refund A1.")
            else:
                ended = guard.loop(CompletionModel(**at(server), stream=True), "Refund A1.")
        assert ended.text.startswith("Sorry.")
        assert paid == ([] if left == 2 else ["A1"])


def test_text_of_a_stream_comes_in_pieces_and_tokens_are_counted(guard):
    """`on_text` hears each piece, and the run knows what the provider counted."""
    heard = []
    with ModelServer([Turn("A longer answer.", tokens=(100, 23))]) as server:
        model = CompletionModel(**at(server), stream=True, on_text=heard.append)
        ended = guard.loop(model, "Hi.", run_id="r")
    assert "".join(heard) == ended.text == "A longer answer."
    assert len(heard) > 1
    assert guard.run("r").tokens == 123


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_stream_nobody_goes_on_with_is_closed(asynchronous):
    """`on_text` raises in the middle of it: the provider's answer is not left open."""
    opened = []

    def kept(answer):
        opened.append(answer.completion_stream.response)
        return answer

    class Client:
        def completion(self, **request):
            return kept(litellm.completion(**request))

        async def acompletion(self, **request):
            return kept(await litellm.acompletion(**request))

    def deaf(text):
        raise KeyError(text)

    async def ask(**options):
        messages = [{"role": "user", "content": "Hi."}]
        if asynchronous:
            return await AsyncCompletionModel(**options)(messages, [])
        return CompletionModel(**options)(messages, [])

    with ModelServer([Turn("A longer answer.")]) as server:
        with pytest.raises(KeyError):
            await ask(**at(server), stream=True, on_text=deaf, client=Client())
        assert [response.is_closed for response in opened] == [True]


def test_a_refusal_is_one(guard):
    """LiteLLM keeps it beside the message; the answer is not verified."""
    with ModelServer([Turn(refusal="I must not.")]) as server:
        ended = guard.loop(CompletionModel(**at(server)), "Hi.")
    assert ended.refused
    assert not ended.verified


def test_a_history_of_broken_texts_can_be_sent_to_every_provider(guard):
    """Anthropic takes objects: what nobody could read goes out as one, and what was meant as it was meant."""
    lost, mild = ("call_1", "refund", '{"order_id": '), ("call_2", "refund", "{'order_id': 'A1'}")
    with ModelServer([Turn(calls=(lost, mild)), Turn("Done.")]) as server:
        first = CompletionModel(**at(server))
        ended = guard.loop(first, "Refund A1.")
        model = CompletionModel("anthropic/m", api_base=server.url, api_key="k")
        guard.loop(model, "And now?", messages=ended.messages)
        blocks = [one for one in server.bodies[-1]["messages"][1]["content"] if one["type"] == "tool_use"]
    assert blocks[0]["input"]["unread_tool_call"]["arguments"] == lost[2]
    assert blocks[1]["input"] == {"order_id": "A1"}
    assert ended.messages[1]["tool_calls"][0]["function"]["arguments"] == lost[2]


def test_without_tools_anthropic_is_told_that_none_may_be_called(guard):
    """LiteLLM makes up a tool for a history with calls; OpenAI's wire gets neither a tool nor a choice."""
    stuck = [Turn(calls=((f"call_{number}", "nothing", "{}"),)) for number in range(2)]
    with ModelServer([*stuck, Turn("Sorry.")]) as server:
        guard.loop(CompletionModel("anthropic/m", api_base=server.url, api_key="k"), "Hi.")
        last = server.bodies[-1]
    assert last["tool_choice"] == {"type": "none"}
    with ModelServer([*stuck, Turn("Sorry.")]) as server:
        guard.loop(CompletionModel(**at(server)), "Hi.")
        last = server.bodies[-1]
    assert "tools" not in last
    assert "tool_choice" not in last


async def test_a_router_is_a_client_like_litellm_itself(guard, paid):
    """Its groups are names of models."""
    with ModelServer([Turn(calls=(REFUND,)), Turn("Done.")] * 2) as server:
        router = litellm.Router(model_list=[{"model_name": "clerk", "litellm_params": at(server)}])
        assert guard.loop(CompletionModel("clerk", router), "Refund A1.").text == "Done."
        ended = await guard.aloop(AsyncCompletionModel("clerk", router, stream=True), "Refund A1.")
    assert ended.text == "Done."
    assert paid == ["A1", "A1"]


# -- the callback ------------------------------------------------------------------------------------


async def replied(server, **more):
    """One reply through `acompletion`."""
    messages = more.pop("messages", [{"role": "user", "content": "x"}])
    return await litellm.acompletion(**at(server), messages=messages, tools=TOOLS, **more)


async def test_the_callback_writes_what_has_one_reading_as_strict_json(mender):
    """Single quotes and a trailing comma are mended and noted; what has no one reading stays as it came."""
    lost = '{"order_id": "A1" "x": 1}'
    turn = Turn(calls=(("c1", "refund", "{'order_id': 'A1',}"), ("c2", "refund", lost), REFUND))
    with ModelServer([turn]) as server:
        reply = await replied(server)
    texts = [one.function.arguments for one in reply.choices[0].message.tool_calls]
    assert texts == ['{"order_id":"A1"}', lost, REFUND[2]]
    (done,) = mended(reply)
    assert (done["id"], done["tool"]) == ("c1", "refund")
    assert "trailing_comma" in done["repairs"]


async def test_the_callback_makes_cut_calls_unreadable(mender):
    """Whatever loop comes next cannot run one by mistake, not even the call that was whole."""
    turn = Turn(calls=(REFUND, ("c2", "refund", '{"order_id": "A')), stop="length")
    with ModelServer([turn]) as server:
        reply = await replied(server)
    for one in reply.choices[0].message.tool_calls:
        with pytest.raises(json.JSONDecodeError):
            json.loads(one.function.arguments)
        assert "cut off" in one.function.arguments
    assert [one["cut"] for one in mended(reply)] == [True, True]


async def test_the_callback_gives_every_call_its_own_id(mender):
    """No two of a reply, and none that the request's history holds, have the same."""
    earlier = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "no"},
    ]  # fmt: skip
    with ModelServer([Turn(calls=(REFUND, REFUND))]) as server:
        reply = await replied(server, messages=earlier)
    ids = [one.id for one in reply.choices[0].message.tool_calls]
    assert len({*ids, "call_1"}) == 3


async def test_the_callback_is_not_asked_for_streams_and_completion(mender):
    """What the guide says of its limits is true: those replies come as the provider sent them."""
    broken = "{'order_id': 'A1',}"
    with ModelServer([Turn(calls=(("c", "refund", broken),))]) as server:
        plain = litellm.completion(**at(server), messages=[{"role": "user", "content": "x"}], tools=TOOLS)
        pieces = [piece async for piece in await replied(server, stream=True)]
    assert plain.choices[0].message.tool_calls[0].function.arguments == broken
    parts = [call.function.arguments for piece in pieces for call in piece.choices[0].delta.tool_calls or ()]
    assert "".join(parts) == broken
