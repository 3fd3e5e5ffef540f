"""Servers that others have written, together behind the gateway: `make mcp` installs them."""

import asyncio
import contextlib
import os
import shutil
import socket
from pathlib import Path

import pytest
from gateway_http import make_setup, serve_gateway
from mcp import Client

ROOT = Path(__file__).resolve().parents[3]
NPM = ROOT / ".mcp-parts" / "node_modules" / "@modelcontextprotocol"


def script(name):
    """Return the words that start an npm server."""
    path, node = NPM / name / "dist" / "index.js", shutil.which("node")
    if node is None or not path.exists():
        pytest.skip("the parts of others are not installed: make mcp")
    return node, str(path)


@contextlib.asynccontextmanager
async def everything_over_http():
    """Run npm's server-everything over streamable HTTP; yield its address."""
    node, path = script("server-everything")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        node,
        path,
        "streamableHttp",
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


async def use(url, mode, prefix=""):
    """Return what a client sees of server-everything."""
    steps = []

    async def on_progress(progress, total, _message):
        steps.append((progress, total))

    async with Client(url, mode=mode) as client:
        tools = {
            one.name.removeprefix(prefix): one
            for one in (await client.list_tools()).tools
            if one.name.startswith(prefix)
        }
        called = [
            await client.call_tool(f"{prefix}{name}", arguments, progress_callback=on_progress)
            for name, arguments in (
                ("echo", {"message": "ü"}),
                ("get-sum", {"a": 1, "b": 2}),
                ("get-structured-content", {"location": "Chicago"}),
                ("get-tiny-image", {}),
                ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
            )
        ]
        prompts = [one.name.removeprefix(prefix) for one in (await client.list_prompts()).prompts]
        resources = [str(one.uri) for one in (await client.list_resources()).resources]
        read = await client.read_resource(resources[0])
    shown = {name: tool.model_dump(exclude={"name"}) for name, tool in tools.items()}
    answers = [one.model_dump(exclude={"meta"}) for one in called]
    return shown, answers, steps, prompts, resources, read.model_dump(include={"contents"})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_relay_shows_server_everything_as_it_is(mode):
    """Tools, results, progress, prompts and resources are the same through the relay as direct, for both eras."""
    async with everything_over_http() as direct, serve_gateway(make_setup({"one": {"url": direct}})) as url:
        assert await use(url, mode) == await use(direct, mode)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_servers_of_others_stand_side_by_side(tmp_path, mode):
    """Over stdio and HTTP together, each is what it is alone but for the prefix of its names."""
    node, path = script("server-filesystem")
    (tmp_path / "a.txt").write_text("hello")
    async with everything_over_http() as direct:
        servers = {
            "all": {"url": direct},
            "files": {"command": node, "args": [path, str(tmp_path)]},
            "dead": {"command": "/nowhere"},
        }
        async with serve_gateway(make_setup(servers)) as url:
            behind, alone = await use(url, mode, "all__"), await use(direct, "legacy")
            assert behind == alone
            async with Client(url, mode=mode) as client:
                result = await client.call_tool("files__read_text_file", {"path": str(tmp_path / "a.txt")})
                assert result.structured_content == {"content": "hello"}
