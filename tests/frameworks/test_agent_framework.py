"""What is special about Microsoft Agent Framework; the scenarios that all frameworks share are played elsewhere."""

import asyncio
import datetime as dt
import gc
import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("agent_framework", reason="run by make frameworks")

from agent_framework import (
    SKIP_PARSING,
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
    UserInputRequiredException,
    tool,
)
from framework_shop import Shop
from job import Job
from model_server import STREAMS, ModelServer, Turn
from runner import load

import pokayoke
from pokayoke.adapters.agent_framework import calls, contracts, message, middleware
from pokayoke.errors import MissingExtraError, UsageError

HERE = Path(__file__).resolve().parent
REFUND = '{"order_id": "A1", "amount": 5}'


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A model in this process. A turn is a text, or a list of (id, name, arguments)."""

    def __init__(self, *turns, tokens=None, **kwargs):
        super().__init__(**kwargs)
        self.turns, self.tokens = list(turns), tokens
        self.asked: list[dict] = []

    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        names = [one.name for one in options.get("tools") or ()]
        self.asked.append(
            {
                "messages": list(messages),
                "tools": names,
                "instructions": options.get("instructions"),
                "options": dict(options),
            }
        )
        turn = self.turns[min(len(self.asked), len(self.turns)) - 1]
        contents = (
            [Content.from_text(turn)]
            if isinstance(turn, str)
            else [Content.from_function_call(ident, name, arguments=text) for ident, name, text in turn]
        )
        usage = {"total_token_count": self.tokens} if self.tokens else None
        whole = ChatResponse(messages=[Message("assistant", contents)], finish_reason="stop", usage_details=usage)
        if not stream:
            return self._soon(whole)

        async def updates():
            for content in contents:
                pieces = content.text.split(" ") if content.type == "text" else [content]
                for number, piece in enumerate(pieces):
                    part = piece if content.type != "text" else Content.from_text(f"{' ' * bool(number)}{piece}")
                    yield ChatResponseUpdate(contents=[part], role="assistant", message_id="m")

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

    async def _soon(self, whole):
        return whole

    def read(self):
        """The results that the latest request held."""
        return [
            one.result for said in self.asked[-1]["messages"] for one in said.contents if one.type == "function_result"
        ]


@pytest.fixture
def done():
    """What the tools did."""
    return []


@pytest.fixture
def tools(done):
    """A read and a write."""

    async def get_order(order_id: str) -> dict:
        """Look up an order."""
        done.append(("get_order", order_id))
        return {"order_id": order_id, "qty": 2}

    async def refund(order_id: str, amount: float) -> dict:
        """Refund an order."""
        done.append(("refund", order_id, amount))
        return {"refunded": order_id}

    return [get_order, refund]


def guarded(tools, client, *, more=(), **options):
    """An agent with a guard, and the guard."""
    fields = options.pop("fields", None)
    guard = pokayoke.Guard(contracts(tools, reads=["get_order"], fields=fields), **options)
    return Agent(client, tools=tools, middleware=[*middleware(guard), *more]), guard


# -- adopting it -------------------------------------------------------------------------------------


async def test_five_lines_are_enough(tools, done):
    """Two imports, a guard and an argument make an agent refuse to do a write twice."""
    client = Scripted([("call_1", "refund", REFUND)], [("call_2", "refund", REFUND)], "Done.")
    guard = pokayoke.Guard(contracts(tools, reads=["get_order"]))
    agent = Agent(client, tools=tools, middleware=middleware(guard))
    response = await agent.run("Refund A1.")
    assert response.text == "Done."
    assert done == [("refund", "A1", 5)]
    assert "already" in client.read()[-1]


def test_without_the_framework_the_error_says_what_to_install():
    """An import where the framework is missing names the extra."""
    code = """
        import sys
        sys.modules["agent_framework"] = None
        import pokayoke.errors
        try:
            import pokayoke.adapters.agent_framework
        except pokayoke.errors.MissingExtraError as error:
            print(error)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "pokayoke[agent-framework]" in out.stdout
    assert issubclass(MissingExtraError, ImportError)


def test_tools_of_every_kind_get_contracts(tools):
    """Functions, decorated functions and tool objects become contracts; a name that no tool has is an error."""

    @tool(approval_mode="never_require")
    def ping(times: int = 1) -> str:
        """Say hello."""
        return "hello" * times

    bare = FunctionTool(name="bare", description="Nothing.", func=lambda: None, input_model={"type": "object"})
    made = contracts([*tools, ping, bare, {"type": "web_search"}], reads=["ping"], destructive=["bare"])
    assert [(one.name, one.effect) for one in made] == [
        ("get_order", "write"), ("refund", "write"), ("ping", "read"), ("bare", "destructive"),
    ]  # fmt: skip
    assert made[2].description == "Say hello."
    with pytest.raises(UsageError, match="pong"):
        contracts([ping], reads=["pong"])


def test_calls_and_message_serve_a_loop_of_your_own(tools):
    """The calls of a response go to a run as they were written, and its outcomes come back as messages."""
    response = ChatResponse(
        messages=[Message("assistant", [Content.from_function_call("c1", "refund", arguments='{"order_id": "A1')])],
        finish_reason="length",
    )
    guard = pokayoke.Guard(contracts(tools))
    with guard.run() as run:
        (call,) = calls(response, run)
        assert (call.id, call.name, call.arguments, call.stop_reason) == ("c1", "refund", '{"order_id": "A1', "length")
        answer = message(run.call(call))
    assert answer.role == "tool"
    assert answer.contents[0].call_id == "c1"
    assert "cut" in answer.contents[0].result


# -- streams -----------------------------------------------------------------------------------------


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


# -- sessions ----------------------------------------------------------------------------------------


async def test_a_session_is_one_run_and_each_text_a_turn(tools, done):
    """Writes are remembered over turns; a turn that lost its tools does not take them from the next."""
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
    assert done == [("refund", "A1", 5)]
    assert "already" in client.read()[-1]


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
    guard = pokayoke.Guard(contracts([*tools, tool], reads=["get_order"]))
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


async def test_the_providers_count_of_tokens_is_the_runs(tools):
    """A token budget is held against what the provider counted."""
    client = Scripted([("call_1", "get_order", '{"order_id": "A1"}')], "Done.", tokens=5_000)
    agent, _ = guarded(tools, client, config={"budgets": {"tokens": 4_000}})
    await agent.run("Look.")
    assert any("budget" in str(text) for text in client.read())


# -- what the framework would lose ---------------------------------------------------------------------


async def test_the_tool_gets_the_frameworks_own_types(done):
    """Arguments that the guard lets through are converted by the framework as ever: a date is a date."""

    def book(day: dt.date, rooms: int = 1) -> dict:
        """Book rooms."""
        done.append((day, rooms))
        return {"ok": True}

    agent, _ = guarded_write([book], Scripted([("c", "book", '{"day": "2026-01-02", "rooms": "2"}')], "Done."))
    await agent.run("Book.")
    assert done == [(dt.date(2026, 1, 2), 2)]


def guarded_write(tools, client, *, more=(), **options):
    """As `guarded`, with writes only."""
    fields = options.pop("fields", None)
    guard = pokayoke.Guard(contracts(tools, fields=fields), **options)
    return Agent(client, tools=tools, middleware=[*middleware(guard), *more]), guard


async def test_names_that_only_differ_in_spelling_reach_the_tool(tools, done):
    """What the guard understands runs, although the framework knows no such name."""
    client = Scripted([("c", "getOrder", '{"order_id": "A1"}')], "Done.")
    agent, _ = guarded(tools, client)
    await agent.run("Look.")
    assert done == [("get_order", "A1")]
    said = [one for m in client.asked[-1]["messages"] for one in m.contents if one.type == "function_call"]
    assert [one.name for one in said] == ["get_order"]


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
async def test_a_tool_that_is_denied_is_not_shown(tools, done, mode):
    """It is not offered, and a call of it does not run; monitor mode offers and runs what it would deny."""
    client = Scripted([("c", "refund", REFUND)], [("d", "refund", REFUND)], "Done.")
    agent, _ = guarded_write(tools, client, config={"mode": mode, "access": {"deny": ["refund"]}})
    await agent.run("Refund.")
    shown = mode == "monitor"
    assert [one["tools"] for one in client.asked[:2]] == [["get_order", "refund"] if shown else ["get_order"]] * 2
    assert done == ([("refund", "A1", 5)] if shown else [])


async def test_an_agent_whose_tools_are_all_denied_asks_without_any(tools):
    """The request then names neither tools nor a choice among them: providers refuse an empty list."""
    client = Scripted("Done.")
    agent, _ = guarded_write(tools[1:], client, config={"access": {"deny": ["refund"]}})
    answer = await agent.run("Refund.", options={"tool_choice": "required"})
    assert answer.text == "Done."
    assert not {"tools", "tool_choice"} & {*client.asked[0]["options"]}


async def test_a_demand_for_a_tool_that_is_denied_is_dropped(tools):
    """Providers refuse a request that demands a tool it does not offer; a list to choose from gets shorter."""
    client = Scripted("Done.", "Done.")
    agent, _ = guarded_write(tools, client, config={"access": {"deny": ["refund"]}})
    await agent.run("Refund.", options={"tool_choice": {"mode": "required", "required_function_name": "refund"}})
    await agent.run("Refund.", options={"tool_choice": {"mode": "auto", "allowed_tools": ["get_order", "refund"]}})
    assert "tool_choice" not in client.asked[0]["options"]
    assert client.asked[1]["options"]["tool_choice"] == {"mode": "auto", "allowed_tools": ["get_order"]}


async def test_a_large_output_can_be_paged_through():
    """Once an output is too large the model is offered a tool to page through it, and it works."""

    def read_log(name: str) -> str:
        """Read a log."""
        return "\n".join(f"line {number}" for number in range(20_000))

    client = Scripted([("c1", "read_log", '{"name": "a"}')], [("c2", "read_more", "{}")], "Done.")
    agent, guard = guarded_write([read_log], client, fields={"read_log": {"output_schema": "text", "max_chars": 10**6}})
    pager = guard.pager.name
    client.turns[1] = [("c2", pager, '{"handle": "out-1", "offset": 1000, "limit": 100}')]
    await agent.run("Read.")
    assert pager not in client.asked[0]["tools"]
    assert pager in client.asked[1]["tools"]
    assert "line 1" in client.read()[1]
    assert len(client.read()[0]) < 10_000


async def test_images_pass_beside_the_text():
    """A tool that returns text and an image gives both to the model; a replay gives the text."""

    def photo(number: int) -> list:
        """Take a photo."""
        return [Content.from_text(f"photo {number}"), Content.from_data(b"\x89PNG", media_type="image/png")]

    client = Scripted([("c1", "photo", '{"number": 1}')], [("c2", "photo", '{"number": 1}')], "Done.")
    agent, _ = guarded_write([photo], client)
    await agent.run("Go.")
    results = [one for m in client.asked[-1]["messages"] for one in m.contents if one.type == "function_result"]
    assert [[item.type for item in one.items] for one in results] == [["text", "data"], ["text"]]
    assert "photo 1" in results[0].result
    assert "already" in results[1].result


async def test_a_result_parser_of_the_tools_author_is_respected(done):
    """What the author's parser makes of the result is the result; the tool object behaves as before elsewhere."""

    @tool(result_parser=lambda value: f"<{value}>")
    def shout(word: str) -> str:
        """Shout."""
        return word.upper()

    client = Scripted([("c1", "shout", '{"word": "hi"}')], "Done.")
    agent, _ = guarded_write([shout], client, fields={"shout": {"output_schema": "text"}})
    await agent.run("Go.")
    assert "<HI>" in client.read()[0] or "&lt;HI&gt;" in client.read()[0]
    assert [one.text for one in await shout.invoke(arguments={"word": "ho"})] == ["<HO>"]
    json.dumps(shout.to_dict())


async def test_the_frameworks_own_limits_do_not_end_a_run_first(tools, done):
    """Three failures in a row, with successes of others between, are no reason to take the tools away."""
    bad = [("c", "refund", '{"order_id": "A1"}'), ("d", "get_order", "{}")]
    turns = [[("x", "get_order", json.dumps({"order_id": str(number)})), bad[0]] for number in range(4)]
    client = Scripted(*turns, "Done.")
    agent, _ = guarded(tools, client)
    await agent.run("Go.")
    assert client.asked[4]["tools"] == ["get_order", "refund"]


# -- the framework's own exceptions ----------------------------------------------------------------------


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
    """The write is settled: after the loop was ended, the same call is a repetition."""
    client = Scripted([("c1", "refund", REFUND)], [("c2", "refund", REFUND)], "Done.")
    guard = pokayoke.Guard(contracts(tools))
    shared = middleware(guard)
    ending = Agent(client, tools=tools, middleware=[*shared, Raising(MiddlewareTermination("enough"), after=True)])
    session = AgentSession(session_id="s1")
    await ending.run("Refund.", session=session)
    assert (len(client.asked), done) == (1, [("refund", "A1", 5)])
    await Agent(client, tools=tools, middleware=shared).run("Again.", session=session)
    assert done == [("refund", "A1", 5)]


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


# -- approvals -----------------------------------------------------------------------------------------

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


async def test_a_no_is_told_to_the_guard(tools, done):
    """Nothing runs, model and user are told, and the question is answered in the guard's books, too."""
    client = Scripted([("c1", "refund", REFUND)], "Well then.", [("c2", "refund", REFUND)], "Denied.")
    agent, guard = guarded(tools, client, fields=ASKING)
    session = AgentSession(session_id="s1")
    (request,) = (await agent.run("Refund A1.", session=session)).user_input_requests
    (waiting,) = guard.approvals.list()
    no = Message("user", [request.to_function_approval_response(approved=False)])
    answer = await agent.run(no, session=session)
    assert answer.text.endswith("[Not done: refund (approval_denied).]")
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


# The shared conversation leaves its client to the process.
_UNCLOSED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def streamed(turn, log, wire="chat"):
    """What the tools did in a conversation that begins with that turn."""
    shop = Shop(log)
    with ModelServer([turn, Turn("Done.")]) as server:
        load("agent-framework").play(Job(server.url, shop, wire=wire, mode="stream"))
        assert server.bodies[0]["stream"]
        assert not server.refused
    gc.collect()
    return shop.happened()


@_UNCLOSED
@pytest.mark.parametrize(("wire", "left"), [("chat", 2), ("responses", 1), ("responses", 3)])
def test_a_stream_that_ends_before_its_provider_said_why_runs_nothing(tmp_path, wire, left):
    """A call that is whole proves nothing: what would have said that the message is whole never came."""
    whole = Turn(calls=(("call_1", "refund", REFUND),))
    broken = Turn(calls=whole.calls, breaks=len(list(STREAMS[wire](whole))) - left)
    assert streamed(broken, tmp_path / "log", wire) == []


@_UNCLOSED
def test_a_cut_that_a_stream_has_told_is_not_taken_back(tmp_path):
    """A later chunk with another reason to stop changes nothing about the first."""
    turn = Turn(calls=(("call_1", "refund", REFUND),), stop="length", then="tool_calls")
    assert streamed(turn, tmp_path / "log") == []


# -- killed in the middle --------------------------------------------------------------------------------

CHILD = """
    import asyncio, os, signal, sys
    sys.path[:0] = {paths!r}
    from agent_framework import AgentSession
    from job import Job
    from runner import load
    from framework_shop import Shop

    host = load("agent-framework")

    class Killed(Shop):
        def note(self, tool, **arguments):
            super().note(tool, **arguments)
            if {kill} and tool == "refund":
                os.kill(os.getpid(), signal.SIGKILL)

    job = Job({url!r}, Killed({log!r}), store={store!r}, run_id="order-8", mode={mode!r})
    print(host.play(job))
"""


@pytest.mark.parametrize("mode", ["async", "stream"])
def test_a_process_killed_in_mid_write_does_not_write_twice(tmp_path, mode):
    """After a restart with the same session id the effect exists once, and the model is told that it may exist."""
    store = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(store, create=True).close()
    turns = [Turn(calls=(("call_1", "refund", REFUND),)), Turn("Done.")]
    paths = [str(HERE), str(HERE.parent / "support"), str(HERE.parent / "core")]

    def child(kill):
        with ModelServer(list(turns)) as server:
            code = CHILD.format(
                paths=paths, kill=kill, url=server.url, log=str(tmp_path / "log"), store=store, mode=mode
            )
            command = [sys.executable, "-c", textwrap.dedent(code)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
            return done, server.bodies

    done, _ = child(kill=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    done, bodies = child(kill=False)
    assert done.returncode == 0, done.stderr
    assert [one["tool"] for one in Shop(tmp_path / "log").happened()] == ["refund"]
    (told,) = [one["content"] for one in bodies[-1]["messages"] if one["role"] == "tool"]
    assert "refund" in json.dumps(told)
    assert "not known whether refund took effect" in done.stdout
