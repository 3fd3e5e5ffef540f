"""Streams: text at once, calls when the reply is whole."""

from agent_framework_support import REFUND, Scripted, guarded


async def test_a_stream_says_its_text_in_pieces_and_the_addition_at_the_end(tools, done):
    """Text comes as it is written; the note about what was not done follows it; the response holds both."""
    client = Scripted([("call_1", "refund", '{"order_id": "A1", "amount": "a lot"}')], "All is well.")
    agent, _ = guarded(tools, client)
    stream = agent.run("Refund A1.", stream=True)
    pieces = [update.text async for update in stream if update.text]
    response = await stream.get_final_response()
    assert pieces[:3] == ["All", " is", " well."]
    assert pieces[3].strip().startswith("[Not done: refund")
    assert response.text.startswith("All is well.")
    assert "[Not done: refund" in response.text
    assert done == []


async def test_a_stream_holds_each_call_once_and_as_it_counts(tools, done):
    """Calls reach the listener when the reply is whole: with ids of their own, and not at all once the tools went."""
    calls = [("one", "refund", REFUND), ("two", "refund", '{"order_id": "B2", "amount": 1,}')]
    stuck = [("s", "fetch", "{}")]
    client = Scripted(calls, stuck, stuck, stuck)
    agent, _ = guarded(tools, client)
    stream = agent.run("Refund A1.", stream=True)
    seen = [one async for update in stream for one in update.contents if one.type == "function_call"]
    assert [(one.name, one.call_id) for one in seen[:2]] == [("refund", "one"), ("refund", "two")]
    assert len(seen) == 4
    response = await stream.get_final_response()
    kept = [one for m in response.messages for one in m.contents if one.type == "function_call"]
    assert [one.call_id for one in kept] == [one.call_id for one in seen]
    assert kept[1].parse_arguments() == {"order_id": "B2", "amount": 1}
    assert "could not finish" in response.text
    assert len(done) == 2


async def test_what_a_stream_gets_at_its_end_belongs_to_its_message(tools):
    """Calls, and what is said beside the last word, come under the message id that the model's own pieces have."""
    agent, _ = guarded(tools, Scripted([("call_1", "refund", '{"order_id": "A1"}')], "Refunded."))
    ids = {update.message_id async for update in agent.run("Refund A1.", stream=True) if update.role == "assistant"}
    assert ids == {"m"}


async def test_an_abandoned_stream_runs_nothing(tools, done):
    """Who stops listening before the reply is whole gets none of its calls run."""
    client = Scripted([("call_1", "refund", REFUND)], "Done.")
    agent, _ = guarded(tools, client)
    stream = agent.run("Refund A1.", stream=True)
    async with stream:
        async for _ in stream:
            break
    assert done == []
