"""Sessions and runs."""

import asyncio
import json

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
    ResponseStream,
)
from agent_framework_support import REFUND, Scripted, guarded

import pokayoke
from pokayoke.adapters.agent_framework import contracts, middleware


async def test_a_session_is_one_run_and_each_text_a_turn(tools, done):
    """An equal write of the next turn is a new effect; a turn that lost its tools does not take them from the next."""
    stuck = [("c", "fetch", "{}")]
    client = Scripted([("call_1", "refund", REFUND)], stuck, stuck, "Lost.", [("call_9", "refund", REFUND)], "Done.")
    agent, _ = guarded(tools, client)
    session = agent.create_session()
    assert (await agent.run("Refund A1.", session=session)).text.startswith("Lost.")
    assert client.asked[3]["tools"] == []
    assert "fetch" in client.asked[3]["instructions"]
    assert (await agent.run("Again.", session=session)).text == "Done."
    assert client.asked[4]["tools"] == ["get_order", "refund"]
    assert client.asked[4]["instructions"] is None
    assert done == [("refund", "A1", 5)] * 2


async def test_however_many_calls_wait_each_belongs_to_its_run(tools, done):
    """Of two thousand calls of one message each equal pair is one effect, although all of them wait at once."""
    refunds = [(f"c{n}", "refund", f'{{"order_id": "A{n % 1000}", "amount": 5}}') for n in range(2000)]
    agent, _ = guarded(tools, Scripted(refunds, "Done."))
    assert (await agent.run("go")).text == "Done."
    assert len(done) == len(set(done)) == 1000


async def test_runs_beside_each_other_do_not_mix(done):
    """Twenty conversations over one agent: each is told its own results, and one that is stuck stops alone."""

    async def get_order(order_id: str) -> dict:
        """Look up an order."""
        await asyncio.sleep(0.01)
        return {"order_id": order_id}

    class Several(Scripted):
        """A model that reads from the prompt what to do."""

        def _inner_get_response(self, *, messages, stream, options, **kwargs):
            number = int(messages[0].text)
            results = [one for said in messages for one in said.contents if one.type == "function_result"]
            tools = options.get("tools")
            if not tools or (len(results) == 3 and number % 2):
                content = Content.from_text(" ".join(str(one.result) for one in results))
            else:
                name = "get_order" if number % 2 else "no_such_tool"
                text = json.dumps({"order_id": f"{number}-{len(results)}"})
                content = Content.from_function_call("call_1", name, arguments=text)
            return self._soon(ChatResponse(messages=[Message("assistant", [content])]))

    agent, _ = guarded([get_order], Several())
    texts = await asyncio.gather(*(agent.run(str(number)) for number in range(20)))
    for number, response in enumerate(texts):
        if number % 2:
            assert all(f'"{number}-{turn}"' in response.text.replace("a", "A") for turn in range(3)), response.text
        else:
            assert response.text.count("no_such_tool") >= 2
            assert "get_order" in response.text


@pytest.mark.parametrize(("shared", "times"), [(False, 2), (True, 1)])
async def test_an_agent_made_a_tool_shares_a_run_only_with_the_session(tools, done, shared, times):
    """The framework gives each of its calls a session of its own, unless the outer one is passed on."""
    client = Scripted(*[[("c1", "refund", REFUND)], "Done."] * 2)
    inner = Agent(client, tools=tools, name="cashier")
    tool = inner.as_tool(propagate_session=shared)
    once = {"refund": {"repeats": "once"}}
    guard = pokayoke.Guard(contracts([*tools, tool], reads=["get_order"], fields=once))
    inner.middleware = middleware(guard)
    tasks = [[(f"c{number}", "cashier", f'{{"task": "Refund, {number}."}}')] for number in (1, 2)]
    outer = Agent(Scripted(*tasks, "Done."), tools=[tool], middleware=middleware(guard))
    await outer.run("Refund A1.", session=AgentSession(session_id="s1"))
    assert done == [("refund", "A1", 5)] * times


@pytest.mark.parametrize("stream", [False, True])
async def test_ids_that_a_provider_repeats_mix_nothing(done, stream):
    """Items of one id, in one reply and in other sessions: each call runs once, and its session reads its result."""

    async def refund(order_id: str) -> dict:
        """Refund an order."""
        done.append(order_id)
        return {"refunded": order_id}

    class Numbering(Scripted):
        """A model whose items have the same id in each reply."""

        def _inner_get_response(self, *, messages, stream, options, **kwargs):
            results = [one.result for said in messages for one in said.contents if one.type == "function_result"]
            wanted = [f'{{"order_id": "{messages[0].text}{number}"}}' for number in (1, 2)]
            contents = [
                Content.from_function_call(f"call_{number}", "refund", arguments=text, id="fc_1")
                for number, text in enumerate(wanted)
            ]
            if results:
                contents = [Content.from_text(" ".join(results))]
            whole = ChatResponse(messages=[Message("assistant", contents)], finish_reason="stop")
            if not stream:
                return self._soon(whole)

            async def updates():
                for content in contents:
                    yield ChatResponseUpdate(contents=[content], role="assistant", message_id="m")

            return ResponseStream(updates(), finalizer=lambda _: whole)

    agent = Agent(Numbering(), tools=[refund], middleware=middleware(pokayoke.Guard(contracts([refund]))))

    async def one(name):
        answer = agent.run(name, session=AgentSession(session_id=name), stream=stream)
        return (await (answer.get_final_response() if stream else answer)).text

    texts = await asyncio.gather(*map(one, "ABCDEFGH"))
    assert sorted(done) == [name + number for name in "ABCDEFGH" for number in "12"]
    for name, text in zip("ABCDEFGH", texts, strict=True):
        assert text.count("refunded") == 2
        assert f'"{name}1"' in text
        assert f'"{name}2"' in text


async def test_tenant_and_principal_come_from_the_session(tools, done):
    """`who` is asked for each session, and what one tenant wrote is no repetition to another."""
    client = Scripted([("call_1", "refund", REFUND)], "Done.")
    seen = []

    def who(session):
        seen.append(session.state["user"])
        return {"tenant": session.state["user"]}

    guard = pokayoke.Guard(contracts(tools))
    agent = Agent(client, tools=tools, middleware=middleware(guard, who=who))
    for user in ("ann", "bob"):
        client.asked.clear()
        session = AgentSession(session_id=f"s-{user}")
        session.state["user"] = user
        await agent.run("Refund A1.", session=session)
    assert set(seen) == {"ann", "bob"}
    assert len(done) == 2
