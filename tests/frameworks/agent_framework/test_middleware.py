"""Middleware in front of the guard and behind it, and the exceptions of the framework."""

import pytest
from agent_framework import (
    SKIP_PARSING,
    Agent,
    AgentSession,
    Content,
    FunctionMiddleware,
    MiddlewareFailure,
    MiddlewareTermination,
    UserInputRequiredException,
    tool,
)
from agent_framework_support import REFUND, Scripted, guarded, guarded_write

import pokayoke
from pokayoke.adapters.agent_framework import contracts, middleware


class Raising(FunctionMiddleware):
    """Middleware behind the guard that raises, before or after the tool."""

    def __init__(self, error, *, after=False):
        self.error, self.after = error, after

    async def process(self, context, call_next):
        if self.after:
            await call_next()
        raise self.error


@pytest.mark.parametrize("result", [None, "Stopped by policy."])
async def test_termination_before_the_tool_leaves_the_write_undone(tools, done, result):
    """Nothing ran, so nothing is in doubt or done: the same write runs when it is asked for again."""
    client = Scripted([("c1", "refund", REFUND)], [("c2", "refund", REFUND)], "Done.")
    shared = middleware(pokayoke.Guard(contracts(tools)))
    stopping = Agent(client, tools=tools, middleware=[*shared, Raising(MiddlewareTermination("no", result=result))])
    response = await stopping.run("Refund.", session=AgentSession(session_id="s1"))
    assert (len(client.asked), done) == (1, [])
    if result:
        assert str(response.messages[-1].contents[0].result) == result
    await Agent(client, tools=tools, middleware=shared).run("Again.", session=AgentSession(session_id="s1"))
    assert done == [("refund", "A1", 5)]


async def test_termination_after_the_tool_keeps_its_effect(tools, done):
    """The write is settled: after the loop was ended, the same call of the next turn is a new effect."""
    client = Scripted([("c1", "refund", REFUND)], [("c2", "refund", REFUND)], "Done.")
    guard = pokayoke.Guard(contracts(tools))
    shared = middleware(guard)
    ending = Agent(client, tools=tools, middleware=[*shared, Raising(MiddlewareTermination("enough"), after=True)])
    session = AgentSession(session_id="s1")
    await ending.run("Refund.", session=session)
    assert (len(client.asked), done) == (1, [("refund", "A1", 5)])
    await Agent(client, tools=tools, middleware=shared).run("Again.", session=session)
    assert done == [("refund", "A1", 5)] * 2


@pytest.mark.parametrize("after", [False, True])
async def test_failures_of_middleware_reach_the_caller(tools, done, after):
    """A fail-closed abort is no tool error: it goes through, before and after the tool."""
    client = Scripted([("c1", "refund", REFUND)], "Done.")
    agent, _ = guarded(tools, client, more=[Raising(MiddlewareFailure("closed"), after=after)])
    with pytest.raises(MiddlewareFailure, match="closed"):
        await agent.run("Refund.")
    assert bool(done) is after


class Rewriting(FunctionMiddleware):
    """Changes arguments: in place, or as a whole."""

    def __init__(self, whole, **changes):
        self.whole, self.changes = whole, changes

    async def process(self, context, call_next):
        if self.whole:
            context.arguments = {**context.arguments, **self.changes}
        else:
            context.arguments.update(self.changes)
        await call_next()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("text", "changes", "ran"),
    [
        (REFUND, {"amount": 7.5}, [("refund", "A1", 7.5)]),
        (REFUND, {"amount": "much"}, []),
        ('{"order_id": "A1", "amount": 1}', {"amount": True}, []),
        (REFUND, {"amount": object()}, []),
        (REFUND, {"more": 1}, []),
        (REFUND, {"order_id": "A1"}, [("refund", "A1", 5)]),
        ('{"order_id": "A1"}', {"amount": 3}, [("refund", "A1", 3)]),
        ('{"order_id": "A1", "amount": 5, "more": 1}', {}, []),
    ],
)
async def test_what_middleware_in_front_of_the_guard_makes_of_arguments_counts(tools, done, whole, text, changes, ran):
    """Its change is checked like any other arguments, and it reaches the tool."""
    client = Scripted([("c", "refund", text)], "Done.")
    guard = pokayoke.Guard(contracts(tools, reads=["get_order"]))
    agent = Agent(client, tools=tools, middleware=[Rewriting(whole, **changes), *middleware(guard)])
    await agent.run("Refund.")
    assert done == ran


@pytest.mark.parametrize("session", [None, "s1"])
async def test_middleware_in_front_of_the_guard_that_tries_again_writes_once(tools, done, session):
    """The second pass of one invocation is the same call of the same run, with a session and without."""

    class Twice(FunctionMiddleware):
        """Goes on two times."""

        async def process(self, context, call_next):
            await call_next()
            await call_next()

    client = Scripted([("c", "refund", '{"order_id": "A1", "amount": "5"}')], "Done.")
    guard = pokayoke.Guard(contracts(tools, reads=["get_order"]))
    agent = Agent(client, tools=tools, middleware=[Twice(), *middleware(guard)])
    await agent.run("Refund.", session=session and AgentSession(session_id=session))
    assert done == [("refund", "A1", 5)]
    assert "already ran" in client.read()[0]


async def test_a_tool_that_waits_for_a_person_is_called_again(done):
    """Its exception goes through with what it asks, and the claim is free for the second call."""
    asked = []

    def ask_boss(order_id: str) -> str:
        """Ask the boss."""
        if not asked:
            asked.append(order_id)
            call = Content.from_function_call("inner", "sign", arguments={})
            raise UserInputRequiredException([Content.from_function_approval_request("inner", call)])
        done.append(order_id)
        return "signed"

    client = Scripted([("c1", "ask_boss", '{"order_id": "A1"}')], [("c2", "ask_boss", '{"order_id": "A1"}')], "Done.")
    agent, _ = guarded_write([ask_boss], client)
    session = AgentSession(session_id="s1")
    response = await agent.run("Go.", session=session)
    assert [one.type for one in response.user_input_requests] == ["function_approval_request"]
    await agent.run("Again.", session=AgentSession(session_id="s1"))
    assert done == ["A1"]


class Cache(FunctionMiddleware):
    """Middleware that answers by itself."""

    async def process(self, context, call_next):
        context.result = '{"order_id": "A1", "qty": 7}'


async def test_a_cache_behind_the_guard_may_answer_a_read(tools, done):
    """What it says is judged like a result of the tool."""
    client = Scripted([("c1", "get_order", '{"order_id": "A1"}')], "Done.")
    agent, _ = guarded(tools, client, more=[Cache()], fields={"get_order": {"output_schema": {"type": "object"}}})
    await agent.run("Go.")
    assert '"qty":7' in client.read()[0]
    assert done == []


async def test_a_cache_behind_the_guard_is_no_write(tools, done):
    """The model reads what it says, but no write is on record: without the cache the same call runs."""
    client = Scripted([("c1", "refund", REFUND)], "So so.", [("c2", "refund", REFUND)], "Done.")
    shared = middleware(pokayoke.Guard(contracts(tools)))
    session = AgentSession(session_id="s1")
    await Agent(client, tools=tools, middleware=[*shared, Cache()]).run("Go.", session=session)
    assert client.read() == ['{"order_id": "A1", "qty": 7}']
    await Agent(client, tools=tools, middleware=shared).run("Go.", session=session)
    assert done == [("refund", "A1", 5)]


async def test_a_tool_whose_results_are_not_parsed_is_judged_all_the_same(done):
    """A raw result is the result, and its write is on record."""

    @tool(result_parser=SKIP_PARSING)
    def ship(order_id: str) -> dict:
        """Ship."""
        done.append(order_id)
        return {"shipped": order_id}

    client = Scripted([("c1", "ship", '{"order_id": "A1"}')], [("c2", "ship", '{"order_id": "A1"}')], "Done.")
    agent, _ = guarded_write([ship], client, fields={"ship": {"output_schema": {"type": "object"}}})
    await agent.run("Go.")
    assert done == ["A1"]
    assert '"shipped"' in client.read()[0]
