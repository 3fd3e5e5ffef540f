"""Approvals: requests of the framework and questions of the guard are one thing."""

import json

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    Content,
    FunctionMiddleware,
    Message,
    tool,
)
from agent_framework_support import REFUND, Scripted, guarded, guarded_write

import pokayoke
from pokayoke.adapters.agent_framework import contracts, middleware

ASKING = {"refund": {"approval": True}}


def reopened(session):
    """The session as another process gets it."""
    return AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_of_the_guard_is_the_frameworks_own(tools, done, stream):
    """The run ends with an approval request that shows the arguments; a yes runs the call once."""
    client = Scripted([("c1", "refund", "{'order_id': 'A1', 'amount': 5,}")], "Done.")
    agent, guard = guarded(tools, client, fields=ASKING)
    session = AgentSession(session_id="s1")

    async def run(what):
        if not stream:
            return await agent.run(what, session=session)
        whole = agent.run(what, session=session, stream=True)
        async for _ in whole:
            pass
        return await whole.get_final_response()

    first = await run("Refund A1.")
    (request,) = first.user_input_requests
    assert request.function_call.parse_arguments() == {"order_id": "A1", "amount": 5}
    assert done == []
    (waiting,) = guard.approvals.list()
    last = await run(Message("user", [request.to_function_approval_response(approved=True)]))
    assert last.text.endswith("Done.")
    assert done == [("refund", "A1", 5)]
    assert guard.approvals.get(waiting.id).by == "agent_framework"
    assert len(client.read()) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("last_first", [False, True])
async def test_every_question_is_answered_before_the_model_is_asked(tools, done, stream, last_first):
    """After the first of two answers the other question comes back; then the model reads both results."""
    twice = [("c1", "refund", REFUND), ("c2", "refund", '{"order_id": "B2", "amount": 7}')]
    client = Scripted(twice, "Done.")
    agent, _ = guarded(tools, client, fields=ASKING)
    session = AgentSession(session_id="s1")

    async def run(what):
        return (
            await agent.run(what, session=session, stream=True).get_final_response()
            if stream
            else (await agent.run(what, session=session))
        )

    asked = (await run("Refund both.")).user_input_requests
    first, second = reversed(asked) if last_first else asked
    (again,) = (await run(Message("user", [first.to_function_approval_response(approved=True)]))).user_input_requests
    assert again.function_call.parse_arguments() == second.function_call.parse_arguments()
    assert (len(done), len(client.asked)) == (1, 1)
    last = await run(Message("user", [again.to_function_approval_response(approved=True)]))
    assert last.text.endswith("Done.")
    assert (len(done), len(client.asked), len(client.read())) == (2, 2, 2)


async def test_a_no_is_told_to_the_guard(tools, done):
    """Nothing runs, model and user are told, and the question is answered in the guard's books, too."""
    client = Scripted([("c1", "refund", REFUND)], "Well then.", [("c2", "refund", REFUND)], "Denied.")
    agent, guard = guarded(tools, client, fields=ASKING)
    session = AgentSession(session_id="s1")
    (request,) = (await agent.run("Refund A1.", session=session)).user_input_requests
    (waiting,) = guard.approvals.list()
    no = Message("user", [request.to_function_approval_response(approved=False)])
    answer = await agent.run(no, session=session)
    assert answer.text.endswith("[Not done: refund (a person said no).]")
    assert guard.approvals.get(waiting.id).status == "denied"
    again = await agent.run("Once more.", session=session)
    assert again.user_input_requests == []
    assert done == []


async def test_an_approval_survives_the_process(tools, done, tmp_path):
    """Session and ledger are all that is kept: another process gives the answer, and the call runs once."""
    store = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(store, create=True).close()
    first = Scripted([("c1", "refund", REFUND), ("c2", "get_order", '{"order_id": "B2"}')])
    agent, guard = guarded(tools, first, fields=ASKING, store=store)
    session = AgentSession(session_id="s1")
    (request,) = (await agent.run("Refund A1.", session=session)).user_input_requests
    kept, answer = session.to_dict(), request.to_dict()
    guard.close()
    assert done == [("get_order", "B2")]

    second = Scripted("Done.")
    agent, guard = guarded(tools, second, fields=ASKING, store=store)
    session = AgentSession.from_dict(json.loads(json.dumps(kept)))
    response = Content.from_dict(json.loads(json.dumps(answer))).to_function_approval_response(approved=True)
    assert (await agent.run(Message("user", [response]), session=session)).text.endswith("Done.")
    guard.close()
    assert done == [("get_order", "B2"), ("refund", "A1", 5)]
    assert len(second.read()) == 2


async def test_the_frameworks_own_approvals_are_no_answer_to_the_guards_question(tools, done):
    """A sibling that comes back approved because nobody had to ask is still asked about by the guard."""

    @tool(approval_mode="always_require")
    def wipe(order_id: str) -> dict:
        """Wipe an order."""
        done.append(("wipe", order_id))
        return {"wiped": order_id}

    client = Scripted([("c1", "wipe", '{"order_id": "A1"}'), ("c2", "refund", REFUND)], "Done.")
    agent, _ = guarded([*tools, wipe], client, fields=ASKING)
    session = AgentSession(session_id="s1")
    (request,) = (await agent.run("Go.", session=session)).user_input_requests
    assert request.function_call.name == "wipe"
    second = await agent.run(Message("user", [request.to_function_approval_response(approved=True)]), session=session)
    assert done == [("wipe", "A1")]
    (request,) = second.user_input_requests
    assert request.function_call.name == "refund"
    await agent.run(Message("user", [request.to_function_approval_response(approved=True)]), session=session)
    assert done == [("wipe", "A1"), ("refund", "A1", 5)]


async def test_the_frameworks_own_question_shows_what_will_run(done):
    """The framework asks before the guard looks, and about the arguments with which one yes runs the call."""

    @tool(approval_mode="always_require")
    def wipe(order_id: str) -> dict:
        """Wipe an order."""
        done.append(order_id)
        return {"wiped": order_id}

    client = Scripted([("c1", "Wipe", '{"arguments": {"order_id": "A1"}}')], "Done.")
    agent, _ = guarded_write([wipe], client)
    session = AgentSession(session_id="s1")
    (request,) = (await agent.run("Go.", session=session)).user_input_requests
    assert (request.function_call.name, request.function_call.parse_arguments()) == ("wipe", {"order_id": "A1"})
    await agent.run(Message("user", [request.to_function_approval_response(approved=True)]), session=session)
    assert done == ["A1"]


@pytest.mark.parametrize(
    "written", ['{"order_id": "A1", "amount": "500"}', '{"arguments": {"order_id": "A1", "amount": 500}}']
)
async def test_middleware_in_front_of_the_guard_judges_what_would_run(tools, done, written):
    """One that refuses large amounts refuses one that the guard would have put right behind it."""

    class Strict(FunctionMiddleware):
        async def process(self, context, call_next):
            if context.arguments.get("amount", 0) > 100:
                context.result = "too much"
            else:
                await call_next()

    guard = pokayoke.Guard(contracts(tools, reads=["get_order"]))
    client = Scripted([("c", "refund", written)], "Done.")
    await Agent(client, tools=tools, middleware=[Strict(), *middleware(guard)]).run("Refund.")
    assert done == []


async def test_without_a_session_the_model_is_told_that_a_person_is_asked(tools, done):
    """The framework takes answers only for a session; without one the question stands in the guard's books."""
    client = Scripted([("c1", "refund", REFUND)], "I asked somebody.")
    agent, guard = guarded(tools, client, fields=ASKING)
    response = await agent.run("Refund A1.")
    assert response.user_input_requests == []
    assert "I asked somebody." in response.text
    assert len(guard.approvals.list()) == 1
    assert done == []


@pytest.mark.parametrize("yes", [True, False])
async def test_a_write_that_a_user_wants_once_more_is_a_request_for_approval(tools, done, yes):
    """A write that repeats only if a person says so asks in a later turn of a session, and a yes is for one more."""
    client = Scripted([("call_1", "refund", REFUND)], "Done.", [("call_2", "refund", REFUND)], "Done again.")
    agent, guard = guarded_write(tools, client, fields={"refund": {"repeats": "once"}})
    session = agent.create_session()
    assert not (await agent.run("Refund A1.", session=session)).user_input_requests
    asked = await agent.run("Once more.", session=session)
    (request,) = asked.user_input_requests
    assert len(done) == 1
    answer = request.to_function_approval_response(approved=yes)
    await agent.run(Message("user", [answer]), session=session)
    assert len(done) == 1 + yes
    assert guard.approvals.list() == ()
