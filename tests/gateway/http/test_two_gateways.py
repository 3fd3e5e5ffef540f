"""Two gateways on one PostgreSQL ledger, of which one is killed in the middle of a write."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import httpx
import pytest
from gateway_http import call, modern, read_answer, routed, serve_app
from pgserver import Missing, empty_schema

from pokayoke.stores import open_store


@contextlib.asynccontextmanager
async def gateway_process(file, store):
    """Run `pokayoke gateway` as a process of its own; yield it and its address."""
    words = [
        sys.executable,
        "-m",
        "pokayoke",
        "gateway",
        str(file),
        "--port",
        "0",
        "--store",
        store,
        "--run",
        "desk",
        "--json",
    ]
    process = await asyncio.create_subprocess_exec(
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    try:
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        yield process, json.loads(line)["url"]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


@pytest.fixture
def ledger(need):
    """Return the URL of an empty ledger on PostgreSQL."""
    try:
        with empty_schema() as url:
            open_store(url, create=True).close()
            yield url
    except Missing as missing:
        need(str(missing))


@pytest.mark.timeout(120)
async def test_a_write_that_was_cut_off_is_not_done_by_the_other_gateway(tmp_path, ledger):
    """The effect exists once: the survivor says that it is in doubt, and replays what has an answer."""
    notes, begun = [], asyncio.Event()

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        body = json.loads((await receive())["body"])
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        result = {"resultType": "complete", "content": [{"type": "text", "text": "noted"}]}
        if body["method"] == "server/discover":
            result = {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            }
        elif body["method"] == "tools/list":
            result = {
                "resultType": "complete",
                "tools": [{"name": "add_note", "inputSchema": schema}],
                "ttlMs": 0,
                "cacheScope": "private",
            }
        else:
            notes.append(body["params"]["arguments"]["text"])
            begun.set()
            if notes[-1] == "slow":
                await asyncio.sleep(30)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send(
            {
                "type": "http.response.body",
                "body": json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode(),
            }
        )

    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve_app(app))
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"notes": {"url": f"http://127.0.0.1:{port}/mcp"}}}))
        first, one = await stack.enter_async_context(gateway_process(file, ledger))
        _, other = await stack.enter_async_context(gateway_process(file, ledger))

        quick = await call(one, "add_note", text="quick")
        assert quick["content"][0]["text"] == "noted"
        again = await call(other, "add_note", ident="new id", text="quick")
        assert again["_meta"]["io.github.pokayoke/outcome"]["status"] == "replayed"
        assert notes == ["quick"]

        begun.clear()
        message = modern("tools/call", name="add_note", arguments={"text": "slow"})
        async with httpx.AsyncClient(timeout=30) as client:
            sent = asyncio.ensure_future(client.post(one, json=message, headers=routed(message)))
            async with asyncio.timeout(10):
                await begun.wait()
            first.kill()
            with pytest.raises(httpx.HTTPError):
                await sent
            response = await client.post(other, json={**message, "id": "new id"}, headers=routed(message))
        result = read_answer(response)["result"]
    assert notes == ["quick", "slow"]
    assert result["isError"] is True
    assert result["_meta"]["io.github.pokayoke/outcome"]["status"] in ("in_doubt", "refused")
