"""FastMCP beyond the common scenarios: which calls are the same, what programs get, what passes, what is offered."""

import asyncio
import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("fastmcp", reason="run by make frameworks")

from fastmcp import Client, Context, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp.server import create_proxy
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.tools.base import ToolResult
from framework_shop import Shop
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ImageContent,
    InputRequiredResult,
    ToolAnnotations,
)

import pokayoke
from pokayoke.adapters import fastmcp as adapter
from pokayoke.adapters.fastmcp import calls, contracts, guard_server, message
from pokayoke.errors import UsageError

spec = importlib.util.spec_from_file_location("host_fastmcp", Path(__file__).parent / "hosts" / "fastmcp.py")
host = importlib.util.module_from_spec(spec)
spec.loader.exec_module(host)

# FastMCP and its server warn of what they will drop.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

REFUND = {"order_id": "A1", "amount": 5}


@pytest.fixture
def shop(tmp_path):
    """The tools and their log."""
    return Shop(tmp_path / "log")


def guarded(*tools, reads=(), fields=None, guard=None, **options):
    """A guarded server of some tools."""
    server = FastMCP("shop")
    for tool in tools:
        server.tool(tool)
    made = pokayoke.Guard(contracts(server, reads=reads, fields=fields), **(guard or {}))
    guard_server(server, made, **options)
    return server


async def test_lines_of_the_guide_guard_a_server(shop):
    """Two equal writes of one client are one effect, and the second answer says so."""
    server = FastMCP("shop")
    server.tool(shop.functions(["refund"])[0])
    guard = pokayoke.Guard(contracts(server))
    guard_server(server, guard)
    async with Client(server) as client:
        first = await client.call_tool("refund", REFUND)
        again = await client.call_tool("refund", REFUND)
    assert first.data == again.data == {"refunded": "A1", "amount": 5}
    assert "already" in again.content[0].text
    assert len(shop.happened()) == 1


def test_without_the_framework_the_extra_is_named():
    """Whoever imports the adapter without FastMCP reads which extra to install."""
    code = "import sys; sys.modules['fastmcp'] = None; import pokayoke.adapters.fastmcp"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'pokayoke[fastmcp]'" in done.stderr


# -- contracts ---------------------------------------------------------------------------------------


async def test_contracts_come_from_the_servers_own_listing(shop):
    """Schemas of both directions are the server's; hints count only if they are trusted; a running loop is no matter."""
    server = FastMCP("shop")
    server.tool(shop.functions(["get_order"])[0], annotations=ToolAnnotations(read_only_hint=True))
    server.tool(shop.functions(["page"])[0], annotations=ToolAnnotations(destructive_hint=True))
    plain = {one.name: one for one in contracts(server)}
    trusted = {one.name: one for one in contracts(server, trust_hints=True)}
    assert plain["get_order"].input_schema["required"] == ["order_id"]
    assert plain["page"].output_schema == {"type": "string"}
    assert [plain[name].effect for name in ("get_order", "page")] == ["write", "write"]
    assert [trusted[name].effect for name in ("get_order", "page")] == ["read", "destructive"]
    assert contracts(await server.list_tools(), reads=["page"])[1].effect == "read"


async def test_a_tool_without_a_contract_is_neither_listed_nor_run(shop):
    """At installation it is the programmer's mistake; one that comes later waits until it is declared."""
    ping, ship = shop.functions(["ping", "ship"])
    server = FastMCP("shop")
    server.tool(ping)
    guard = pokayoke.Guard(contracts(server, reads=["ping"]))
    server.tool(ship)
    with pytest.raises(UsageError, match="no contract for ship"):
        guard_server(server, guard)
    server.local_provider.remove_tool("ship")
    guard_server(server, guard)
    server.tool(ship)
    async with Client(server) as client:
        assert [one.name for one in await client.list_tools()] == ["ping", "read_more"]
        result = await client.call_tool("ship", {"order_id": "A1"}, raise_on_error=False)
    assert result.is_error
    assert shop.happened() == []


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
async def test_a_tool_that_is_denied_is_not_listed(shop, mode):
    """Nor does a call of it run; monitor mode lists and runs what it would deny. The guard's own tool is no other."""
    config = {"mode": mode, "access": {"deny": ["refund", "read_more"]}}
    server = guarded(*shop.functions(["ping", "refund"]), reads=["ping"], guard={"config": config})
    async with Client(server) as client:
        listed = [one.name for one in await client.list_tools()]
        await client.call_tool("refund", REFUND, raise_on_error=False)
    shown = mode == "monitor"
    assert listed == (["ping", "refund", "read_more"] if shown else ["ping"])
    assert len(shop.happened()) == shown


async def test_an_allow_list_leaves_the_guards_own_tool(shop):
    """What is listed is what is allowed, and the tool by which the model reads on."""
    config = {"access": {"allow": ["ping"]}}
    server = guarded(*shop.functions(["ping", "refund"]), reads=["ping"], guard={"config": config})
    async with Client(server) as client:
        assert [one.name for one in await client.list_tools()] == ["ping", "read_more"]


async def test_an_unguarded_tool_is_run_as_it_is(shop):
    """Its name is the only thing the guard knows of it."""
    server = FastMCP("shop")
    ping, ship = shop.functions(["ping", "ship"])
    server.tool(ping)
    guard = pokayoke.Guard(contracts(server, reads=["ping"]))
    server.tool(ship)
    guard_server(server, guard, unguarded=["ship"])
    async with Client(server) as client:
        for _ in range(2):
            assert (await client.call_tool("ship", {"order_id": "A1"})).data == {"shipped": "A1"}
    assert len(shop.happened()) == 2


async def test_a_tool_that_went_away_is_answered(shop):
    """The guard still knows it, the server does not: nothing happened, and nothing is in doubt."""
    server = guarded(*shop.functions(["ship"]))
    server.local_provider.remove_tool("ship")
    async with Client(server) as client:
        result = await client.call_tool("ship", {"order_id": "A1"}, raise_on_error=False)
        assert result.is_error
        assert "Nothing was changed" in result.content[0].text
    assert shop.happened() == []


# -- which calls are the same ------------------------------------------------------------------------


@pytest.mark.parametrize(("stateless", "mode", "times"), [(False, "legacy", 1), (True, "auto", 2), (True, "legacy", 2)])
async def test_over_http_a_session_is_a_run_and_without_one_nobody_can_tell(shop, stateless, mode, times):
    """In a session an equal write is a retry. A stateless client that names no key may mean it twice."""
    server = guarded(*shop.functions(["refund"]))
    async with host.over_http(server, stateless_http=stateless) as url, Client(url, mode=mode) as client:
        for _ in range(2):
            await client.call_tool("refund", REFUND)
    assert len(shop.happened()) == times


async def test_a_key_in_the_meta_data_makes_a_retry_the_same_call(shop):
    """It holds across sessions and reconnections; another key is another wish."""
    server = guarded(*shop.functions(["refund"]))
    async with host.over_http(server) as url:
        for key in ("k1", "k1", "k2"):
            async with Client(url) as client:
                await client.call_tool("refund", REFUND, meta={"idempotencyKey": key})
    assert len(shop.happened()) == 2


async def test_a_host_says_what_belongs_together(shop):
    """`run_id` may be a function of the request: here every client has a desk."""
    server = guarded(
        *shop.functions(["refund"]), run_id=lambda context: context.fastmcp_context.request_context.meta["desk"]
    )
    async with Client(server) as client:
        for desk in ("north", "north", "south"):
            await client.call_tool("refund", REFUND, meta={"desk": desk})
    assert len(shop.happened()) == 2


async def test_who_calls_is_who_the_token_says(shop):
    """Scopes are roles, and a key is a caller's own: with the same one, another caller makes another call."""
    tokens = {
        "t-ada": {"client_id": "ada", "scopes": ["cashier"]},
        "t-bob": {"client_id": "bob", "scopes": ["cashier"]},
        "t-eve": {"client_id": "eve", "scopes": []},
    }
    server = FastMCP("shop", auth=StaticTokenVerifier(tokens))
    server.tool(shop.functions(["refund"])[0])
    guard_server(server, pokayoke.Guard(contracts(server, fields={"refund": {"roles": ("cashier",)}})))
    failed = []
    async with host.over_http(server) as url:
        for token in ("t-ada", "t-ada", "t-bob", "t-eve"):
            async with Client(url, auth=token) as client:
                meta = {"idempotencyKey": "k"}
                result = await client.call_tool("refund", REFUND, meta=meta, raise_on_error=False)
                failed.append(result.is_error)
    assert failed == [False, False, False, True]
    assert len(shop.happened()) == 2


async def test_no_key_reaches_what_another_caller_has_done(shop):
    """A client without users of its own cannot write a user's name into its key and get that user's result."""
    tokens = {
        "ann": {"client_id": "app", "sub": "ann", "scopes": []},
        "app": {"client_id": "app", "scopes": []},
        "slash": {"client_id": "app/ann", "scopes": []},
    }
    server = FastMCP("shop", auth=StaticTokenVerifier(tokens))
    server.tool(shop.functions(["refund"])[0])
    guard_server(server, pokayoke.Guard(contracts(server)))
    texts = []
    async with host.over_http(server) as url:
        for token, key in (("ann", "k"), ("app", "ann/k"), ("slash", "k")):
            async with Client(url, auth=token) as client:
                texts.append((await client.call_tool("refund", REFUND, meta={"idempotencyKey": key})).content[0].text)
    assert not any("already" in text for text in texts)
    assert len(shop.happened()) == 3


async def test_a_durable_ledger_wants_to_know_what_belongs_together(shop, tmp_path):
    """Without a key or a run id a restart could not find the write again, so it does not happen."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(url, create=True).close()
    server = guarded(*shop.functions(["refund"]), guard={"store": url})
    async with Client(server) as client:
        refused = await client.call_tool("refund", REFUND, raise_on_error=False)
        done = await client.call_tool("refund", REFUND, meta={"idempotencyKey": "k"})
    assert refused.is_error
    assert done.data["refunded"] == "A1"
    assert len(shop.happened()) == 1


async def test_clients_at_once_do_not_mix(shop):
    """Forty clients with keys of their own: forty effects, each answer to its own call."""
    server = guarded(*shop.functions(["refund"]))

    async def one(number):
        async with Client(server) as client:
            meta = {"idempotencyKey": f"k{number}"}
            return (await client.call_tool("refund", {"order_id": str(number), "amount": 1}, meta=meta)).data

    done = await asyncio.gather(*(one(number) for number in range(40)))
    assert [each["refunded"] for each in done] == [str(number) for number in range(40)]
    assert len(shop.happened()) == 40


# -- what the client gets ----------------------------------------------------------------------------


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
    assert "its result was not kept" in again.content[0].text


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


async def test_a_call_that_failed_before_may_be_made_again():
    """A server hears no user begin a turn, so however often a call has failed, it works again when its target does."""
    asked = []

    def status(order: str) -> dict:
        """Read the status."""
        asked.append(order)
        if len(asked) < 6:
            raise ToolError("down")
        return {"order": order}

    async with Client(guarded(status, reads=["status"])) as client:
        failed = [(await client.call_tool("status", {"order": "A"}, raise_on_error=False)).is_error for _ in range(6)]
    assert failed == [True] * 5 + [False]


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


# -- what passes -------------------------------------------------------------------------------------


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


async def test_an_approval_is_awaited_outside(shop):
    """The client reads that a person has to agree; the same call, sent again after that, runs once."""
    server = FastMCP("shop")
    server.tool(shop.functions(["refund"])[0])
    guard = pokayoke.Guard(contracts(server, fields={"refund": {"approval": True}}))
    guard_server(server, guard, run_id="desk")
    async with Client(server) as client:
        waits = await client.call_tool("refund", REFUND, raise_on_error=False)
        assert waits.is_error
        guard.approvals.approve(guard.approvals.list()[0].id, by="boss")
        done = await client.call_tool("refund", REFUND)
    assert done.data["refunded"] == "A1"
    assert len(shop.happened()) == 1


async def test_mounted_servers_are_guarded_too(shop):
    """Their tools have the names under which they are listed."""
    inner = FastMCP("inner")
    inner.tool(shop.functions(["refund"])[0])
    outer = FastMCP("outer")
    outer.mount(inner, namespace="till")
    guard_server(outer, pokayoke.Guard(contracts(outer)))
    async with Client(outer) as client:
        for _ in range(2):
            await client.call_tool("till_refund", REFUND)
    assert len(shop.happened()) == 1


async def test_a_server_that_is_somebody_elses_is_guarded_in_front_of_it(shop):
    """A proxy's contracts come from the other server's listing, and its results are checked like any."""
    other = FastMCP("other")
    for tool in shop.functions(["refund", "page"]):
        other.tool(tool)
    front = create_proxy(other)
    fields = {"page": {"output_schema": {"type": "object"}}}
    guard_server(front, pokayoke.Guard(contracts(front, reads=["page"], fields=fields)))
    async with Client(front) as client:
        for _ in range(2):
            await client.call_tool("refund", REFUND)
        page = await client.call_tool("page", {"order_id": "A1"}, raise_on_error=False)
    assert page.is_error
    assert [one["tool"] for one in shop.happened()] == ["refund", "page"]


STDIO = """
import sys
sys.path[:0] = {path!r}
from fastmcp import FastMCP
from framework_shop import Shop
import pokayoke
from pokayoke.adapters.fastmcp import contracts, guard_server
server = FastMCP("shop")
server.tool(Shop({log!r}).functions(["refund"])[0])
guard_server(server, pokayoke.Guard(contracts(server)))
server.run(show_banner=False)
"""


async def test_over_stdio_the_process_is_the_run(shop, tmp_path):
    """A real client over a real pipe: its retry is answered from the first result."""
    script = tmp_path / "server.py"
    script.write_text(textwrap.dedent(STDIO).format(path=[str(Path(__file__).parent)], log=str(shop.log)))
    async with Client(StdioTransport(sys.executable, [str(script)])) as client:
        for _ in range(2):
            result = await client.call_tool("refund", REFUND)
    assert "already" in result.content[0].text
    assert len(shop.happened()) == 1


def test_calls_and_message_speak_mcp():
    """A request's parameters give its call, whatever its arguments are; an outcome becomes a result."""
    (call,) = calls(CallToolRequestParams(name="get", arguments={"a": 1}))
    assert (call.name, call.arguments) == ("get", {"a": 1})
    assert calls({"name": "get", "arguments": ["a"]})[0].arguments == '["a"]'
    assert calls({"name": "get"})[0].arguments == ""
    told = message(pokayoke.Guard([]).run().call(call))
    assert isinstance(told, ToolResult)
    assert told.is_error
    assert all(hasattr(adapter, name) for name in adapter.__all__)
