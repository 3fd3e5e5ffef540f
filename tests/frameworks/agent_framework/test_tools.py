"""Contracts, results and types of tools."""

import datetime as dt
import json

import pytest
from agent_framework import (
    Agent,
    ChatResponse,
    Content,
    FunctionTool,
    Message,
    tool,
)
from agent_framework_support import REFUND, Scripted, guarded, guarded_write

import pokayoke
from pokayoke.adapters.agent_framework import calls, contracts, message, middleware
from pokayoke.errors import UsageError


async def test_five_lines_are_enough(tools, done):
    """Two imports, a guard and an argument make an agent refuse to do a write twice."""
    client = Scripted([("call_1", "refund", REFUND)], [("call_2", "refund", REFUND)], "Done.")
    guard = pokayoke.Guard(contracts(tools, reads=["get_order"]))
    agent = Agent(client, tools=tools, middleware=middleware(guard))
    response = await agent.run("Refund A1.")
    assert response.text.endswith("\n\n[Not run a second time: refund.]")
    assert done == [("refund", "A1", 5)]
    assert "already" in client.read()[-1]


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


async def test_the_tool_gets_the_frameworks_own_types(done):
    """Arguments that the guard lets through are converted by the framework as ever: a date is a date."""

    def book(day: dt.date, rooms: int = 1) -> dict:
        """Book rooms."""
        done.append((day, rooms))
        return {"ok": True}

    agent, _ = guarded_write([book], Scripted([("c", "book", '{"day": "2026-01-02", "rooms": "2"}')], "Done."))
    await agent.run("Book.")
    assert done == [(dt.date(2026, 1, 2), 2)]


async def test_names_that_only_differ_in_spelling_reach_the_tool(tools, done):
    """What the guard understands runs, although the framework knows no such name."""
    client = Scripted([("c", "getOrder", '{"order_id": "A1"}')], "Done.")
    agent, _ = guarded(tools, client)
    await agent.run("Look.")
    assert done == [("get_order", "A1")]
    said = [one for m in client.asked[-1]["messages"] for one in m.contents if one.type == "function_call"]
    assert [one.name for one in said] == ["get_order"]


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
