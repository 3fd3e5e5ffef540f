"""What programs and models get of a call, and what passes the guard."""

import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import ToolResult
from framework_shop import Shop
from guarded_servers import guarded, host
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ImageContent,
    InputRequiredResult,
)

import pokayoke
from pokayoke.adapters.fastmcp import calls, contracts, guard_server, message


async def test_a_tool_that_went_away_is_answered(shop):
    """The guard still knows it, the server does not: nothing happened, and nothing is in doubt."""
    server = guarded(*shop.functions(["ship"]))
    server.local_provider.remove_tool("ship")
    async with Client(server) as client:
        result = await client.call_tool("ship", {"order_id": "A1"}, raise_on_error=False)
        assert result.is_error
        assert "Nothing was changed" in result.content[0].text
    assert shop.happened() == []


async def test_programs_get_values_and_models_get_text(shop):
    """Structured content is what the tool returned, checked; the text says whose output it is."""

    def count(word: str) -> int:
        """Count letters."""
        return len(word)

    server = guarded(*shop.functions(["get_order"]), count, reads=["get_order", "count"])
    async with Client(server) as client:
        order = await client.call_tool("get_order", {"order_id": "A1", "qty": "3"})
        number = await client.call_tool("count", {"word": "four"})
    assert order.data == {"order_id": "A1", "qty": 3}
    assert 'tool="get_order"' in order.content[0].text
    assert number.data == 4


async def test_a_preview_is_no_value(shop):
    """A large text comes as a preview in its place, a large object as an error: a program must not take it for one."""

    def table() -> dict:
        """Read a table."""
        return {"rows": ["x" * 100] * 1_000}

    fields = {"huge": {"max_chars": 2_000_000}}
    server = guarded(*shop.functions(["huge"]), table, reads=["huge", "table"], fields=fields, run_id="r")
    async with Client(server) as client:
        text = await client.call_tool("huge", {"order_id": "A1"})
        rows = await client.call_tool("table", {}, raise_on_error=False)
        more = await client.call_tool("read_more", {"handle": "out-1", "offset": 7, "limit": 30})
    assert len(text.data) < 5_000
    assert rows.is_error
    assert 'handle="out-2"' in rows.content[0].text
    assert "x" * 30 in more.content[0].text


@pytest.mark.parametrize("kind", [int, dict])
async def test_a_result_that_was_not_kept_is_no_value(kind):
    """A write with a secret result is answered by a text alone, as an error: a program must not take null for it."""

    def issue(order: str) -> kind:
        """Issue a code."""
        return kind([("code", 42)]) if kind is dict else 42

    fields = {"issue": {"secret": True, "output_schema": {"type": "integer" if kind is int else "object"}}}
    async with Client(guarded(issue, fields=fields, run_id="r")) as client:
        first = await client.call_tool("issue", {"order": "A1"})
        again = await client.call_tool("issue", {"order": "A1"}, raise_on_error=False)
    assert not first.is_error
    assert again.is_error
    assert " was not kept" in again.content[0].text


async def test_other_blocks_pass_unread():
    """A picture reaches the client as it is."""

    def draw() -> ImageContent:
        """Draw."""
        return ImageContent(type="image", data="iVBORw==", mime_type="image/png")

    server = guarded(draw, reads=["draw"])
    async with Client(server) as client:
        result = await client.call_tool("draw", {}, raise_on_error=False)
    assert [block.data for block in result.content if block.type == "image"] == ["iVBORw=="]


async def test_blocks_beside_data_pass_with_it():
    """A tool may return its numbers and a chart of them: the program gets the numbers, the model the chart as well."""

    def chart() -> ToolResult:
        """Draw numbers."""
        picture = ImageContent(type="image", data="iVBORw==", mime_type="image/png")
        return ToolResult(content=[picture], structured_content={"points": [1, 2]})

    async with Client(guarded(chart, reads=["chart"])) as client:
        result = await client.call_tool("chart", {})
    assert result.structured_content == {"points": [1, 2]}
    assert [block.type for block in result.content] == ["text", "image"]


async def test_words_a_tool_means_for_the_client_stay_and_others_do_not():
    """`ToolError` is what FastMCP lets a tool say; any other exception's text stays on the server."""

    def pay(how: str) -> str:
        """Pay."""
        if how == "says":
            raise ToolError("The till is closed until noon.")
        raise RuntimeError("password=hunter2")

    server = guarded(pay, reads=["pay"])
    async with Client(server) as client:
        said = await client.call_tool("pay", {"how": "says"}, raise_on_error=False)
        kept = await client.call_tool("pay", {"how": "leaks"}, raise_on_error=False)
    assert "closed until noon" in said.content[0].text
    assert "hunter2" not in str(kept)


async def test_a_write_whose_result_cannot_be_serialised_happened():
    """FastMCP makes an error of it; a retry must not do it again."""
    done = []

    def order(item: str) -> object:
        """Order."""
        done.append(item)
        return Shop

    server = guarded(order, fields={"order": {"output_schema": {"type": "object"}}})
    async with Client(server) as client:
        for _ in range(2):
            assert (await client.call_tool("order", {"item": "a"}, raise_on_error=False)).is_error
    assert done == ["a"]


@pytest.mark.parametrize("value", [Shop("."), [Shop(".")], {"shop": Shop(".")}, ["a", Shop(".")]])
async def test_a_repr_is_no_result(value):
    """A tool without an output schema would send the model `<... object at 0x...>`, alone or within its data."""

    def look():
        """Look."""
        return value

    async with Client(_without_schema(look)) as client:
        result = await client.call_tool("look", {}, raise_on_error=False)
    assert result.is_error
    assert "object at 0x" not in str(result)


@pytest.mark.parametrize("text", ["12:01 leaked <asyncio.Task object at 0x7f3a2b>, closing", "[<a.B at 0x1>] in use"])
async def test_a_text_that_mentions_an_object_is_a_result(text):
    """A line of a log is text like any other, and no write has to wait for it."""

    def look():
        """Look."""
        return text

    async with Client(_without_schema(look)) as client:
        result = await client.call_tool("look", {}, raise_on_error=False)
    assert not result.is_error
    assert "at 0x" in result.content[0].text


def _without_schema(tool):
    """A guarded server whose one read promises nothing of its output."""
    server = FastMCP("shop")
    server.tool(tool, output_schema=None)
    guard_server(server, pokayoke.Guard(contracts(server, reads=[tool.__name__])))
    return server


async def test_arguments_that_are_no_object_reach_the_guard(shop):
    """A text that holds one runs; an array is refused in words, where FastMCP alone breaks off with a protocol error."""
    server = guarded(*shop.functions(["get_order"]), reads=["get_order"])
    async with Client(server) as client:
        text = await host.send(client, "get_order", '{"order_id": "A1", "qty": 2,}')
        array = await host.send(client, "get_order", ["A1", 2])
        trick = await host.send(client, "get_order", {"put_aside": "x"})
    assert text.structured_content == {"order_id": "A1", "qty": 2}
    assert array.is_error
    assert "object" in array.content[0].text
    assert "put_aside" in trick.content[0].text
    assert len(shop.happened()) == 1


async def test_a_question_to_the_client_is_no_result():
    """A tool that asks the client first has done nothing; its second leg runs, and only that one."""
    paid = []

    async def pay(amount: int, context: Context) -> str | InputRequiredResult:
        """Pay."""
        if not context.input_responses:
            params = ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
            return InputRequiredResult(input_requests={"sure": ElicitRequest(params=params)})
        paid.append(amount)
        return "paid"

    async def sure(*_):
        return {}

    server = guarded(pay, fields={"pay": {"output_schema": "text"}})
    async with Client(server, elicitation_handler=sure) as client:
        result = await client.call_tool("pay", {"amount": 5})
    assert "paid" in result.content[0].text
    assert paid == [5]


def test_calls_and_message_speak_mcp():
    """A request's parameters give its call, whatever its arguments are; an outcome becomes a result."""
    (call,) = calls(CallToolRequestParams(name="get", arguments={"a": 1}))
    assert (call.name, call.arguments) == ("get", {"a": 1})
    assert calls({"name": "get", "arguments": ["a"]})[0].arguments == '["a"]'
    assert calls({"name": "get"})[0].arguments == ""
    told = message(pokayoke.Guard([]).run().call(call))
    assert isinstance(told, ToolResult)
    assert told.is_error


async def test_the_client_reads_both_halves_of_a_result():
    """A file's text and its metadata are different things: the text for the model holds both, the value is the data."""
    server = FastMCP("files")

    @server.tool
    def read_file(name: str) -> dict:
        """Read a file."""
        return ToolResult(content="line 1: salt", structured_content={"fileName": name})

    guard_server(server, pokayoke.Guard(contracts(server, reads=["read_file"])))
    async with Client(server) as client:
        result = await client.call_tool_mcp("read_file", {"name": "recipe.txt"})
    assert result.structured_content == {"fileName": "recipe.txt"}
    assert "line 1: salt" in result.content[0].text
    assert "recipe.txt" in result.content[0].text
