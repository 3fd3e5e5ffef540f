"""Servers that go wrong: each is shown as such in time, and hides no other."""

import asyncio
import resource
import time

import pytest
from gateway_http import ask, call, make_setup, modern, serve_app, serve_gateway, small

from pokayoke.gateway.servers import upstream

DEADLINE = 15.0


def answering(status, body, content_type="text/html"):
    """Return an ASGI application that answers everything alike."""

    async def app(scope, receive, send):
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type.encode())]}
        )
        await send({"type": "http.response.body", "body": body})

    return app


async def hanging(scope, receive, send):
    """Answer nothing."""
    await asyncio.sleep(3_600)


STDIO = {
    "not there": ({"command": "/nowhere/server"}, "No such file"),
    "exits": (small("exits"), "Connection closed"),
    "silent": (small("silent", start_timeout=1), "did not answer within 1 s"),
    "babbles": (small("babbles", start_timeout=1), "did not answer within 1 s"),
    "no list": (small("no list"), "the database of tools is away"),
    "no tools in it": (small("no tools in it"), "holds no list of tools"),
    "endless pages": (small("endless pages"), "do not end"),
    "one page for ever": (small("one page for ever"), "do not end"),
    "no such variable": (
        {"command": "x", "env": {"KEY": "${POKAYOKE_NO_SUCH_VARIABLE}"}},
        "POKAYOKE_NO_SUCH_VARIABLE is not set",
    ),
    "nobody listens": ({"url": "http://127.0.0.1:9/mcp"}, "cannot be reached"),
}
HTTP = {
    "a page": (answering(200, b"<html>Sign in</html>"), ""),
    "not found": (answering(404, b"nothing here"), ""),
    "broken": (answering(500, b"{}", "application/json"), ""),
    "locked": (answering(401, b"no"), "refuses the gateway's credentials (HTTP 401)"),
    "other JSON": (answering(200, b'{"hello": 1}', "application/json"), ""),
    "hangs": (hanging, "did not answer within 1 s"),
}


async def assert_shown(bad, words):
    """Assert that a bad server is shown as such beside a good one, and as an error where it is the only one."""
    began = time.monotonic()
    async with serve_gateway(make_setup({"bad": bad, "good": small()})) as url:
        listing = (await ask(url, modern("tools/list"))).json()["result"]
        assert [one["name"] for one in listing["tools"]] == ["good__echo", "good__add_note"]
        shown = {one["name"]: one for one in listing["_meta"]["io.github.pokayoke/servers"]}
        assert shown["good"]["state"] == "ready"
        assert shown["bad"]["tools"] is None
        assert words in shown["bad"]["reason"]
        told = (await ask(url, modern("server/discover"))).json()["result"]["instructions"]
        assert "The MCP server 'bad' is not available" in told
        lost = await call(url, "bad__echo", text="x")
        assert (lost["isError"], "'bad' is not available" in lost["content"][0]["text"]) == (True, True)
        assert (await call(url, "good__echo", text="fine"))["content"][0]["text"] == "fine"
    async with serve_gateway(make_setup({"bad": bad, "worse": {"command": "/nowhere"}})) as url:
        answer = (await ask(url, modern("tools/list"))).json()
        assert "result" not in answer
        assert "'bad' is not available" in answer["error"]["message"]
    assert time.monotonic() - began < 2 * DEADLINE


@pytest.mark.parametrize("row", STDIO, ids=list(STDIO))
async def test_a_server_that_does_not_start_hides_no_other(row):
    """The good server's tools are listed, the bad one is named with its reason, and alone it is an error."""
    await assert_shown(*STDIO[row])


@pytest.mark.parametrize("row", HTTP, ids=list(HTTP))
async def test_an_address_that_is_no_server_hides_no_other(row):
    """The same over HTTP."""
    app, words = HTTP[row]
    async with serve_app(app, lifespan="off") as port:
        await assert_shown({"url": f"http://127.0.0.1:{port}/mcp", "start_timeout": 1}, words)


@pytest.mark.parametrize(
    "mode", ["dies", "hangs", "floods", "floods lines", "other ids", "no result", "garbage between", "answers twice"]
)
async def test_a_call_that_goes_wrong_is_answered_and_done_once(tmp_path, mode):
    """A read says what happened; a write is done once at most and is not repeated; other servers go on."""
    file = tmp_path / "notes"
    async with serve_gateway(
        make_setup(
            {"bad": small(mode, file, timeout=10 if mode == "floods lines" else 1), "good": small()}, scope="one"
        )
    ) as url:
        began = time.monotonic()
        works = mode in ("garbage between", "answers twice", "floods lines")
        write = await call(url, "bad__add_note", text="once")
        again = await call(url, "bad__add_note", text="once")
        assert file.read_text() == "once\n"
        assert bool(write.get("isError")) is not works
        assert again["_meta"]["io.github.pokayoke/outcome"]["status"] in (
            "replayed",
            "in_doubt",
            "refused",
            "pending",
            "failed",
        )
        read = await call(url, "bad__echo", text="hello")
        assert bool(read.get("isError")) is not works
        assert (await call(url, "good__echo", text="fine"))["content"][0]["text"] == "fine"
        assert time.monotonic() - began < DEADLINE


async def test_a_server_that_hangs_is_started_again(monkeypatch):
    """A process that gives no sign of life after an unanswered call is replaced."""
    monkeypatch.setattr(upstream, "_SIGN_SECONDS", 0.5)
    lines = []
    async with serve_gateway(make_setup({"one": small("hangs", timeout=1), "two": small()}, lines=lines)) as url:
        assert (await call(url, "one__echo", text="x"))["isError"]
        async with asyncio.timeout(DEADLINE):
            while lines.count("one: ready") < 2:  # noqa: ASYNC110 - the report is a list
                await asyncio.sleep(0.05)
    assert "one: failed (it does not answer any more)" in lines


async def test_a_flood_takes_no_more_memory_than_a_message(tmp_path):
    """A line of 200 MB is cut off at 16 MiB, and the server is started again."""
    lines = []
    async with serve_gateway(make_setup({"one": small("floods", timeout=10), "two": small()}, lines=lines)) as url:
        before = peak()
        result = await call(url, "one__echo", text="x")
        assert result["isError"]
        async with asyncio.timeout(DEADLINE):
            while "one: failed (its connection has ended)" not in lines:  # noqa: ASYNC110 - the report is a list
                await asyncio.sleep(0.05)
        assert peak() - before < 100_000_000


def peak():
    """Return the most memory this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


async def test_a_server_that_died_is_started_again(tmp_path):
    """A stdio server that ends in each call gets the next one all the same, in a new process."""
    file = tmp_path / "notes"
    async with serve_gateway(make_setup({"one": small("dies", file), "two": small()})) as url:
        for number in range(40):
            assert (await call(url, "one__add_note", text=f"note {number:02}"))["isError"]
            if number >= 2 and file.exists() and len(file.read_text().splitlines()) > 1:
                break
            await asyncio.sleep(0.05 * (number >= 2))
        assert (await ask(url, modern("tools/list"))).json()["result"]["tools"]
    done = file.read_text().splitlines()
    # A call may meet the process while it ends, so that it is not done; none is done twice, and a new process does more.
    assert done == sorted({*done})
    assert len(done) > 1
