"""Servers and clients that others have written, directly and through the gateway: `make mcp`."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_lines import OUTCOME, ROOT, LineClient, gateway, status, text

pytest.importorskip("mcp.client.client", reason="needs the extra gateway")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

PARTS = ROOT / ".mcp-parts"
NPM = PARTS / "node_modules" / "@modelcontextprotocol"
CLIENT = ROOT / "tests" / "support" / "mcp_client.mjs"
NOT_THERE = "the parts of others are not installed: make mcp"


def server_words(name, folder):
    """The words that start a server, and a call that it answers alike each time."""
    if name in ("time", "git"):
        words = [str(PARTS / "python" / "bin" / f"mcp-server-{name}")]
    else:
        words = [shutil.which("node") or "node", str(NPM / f"server-{name}" / "dist" / "index.js")]
    if not Path(words[-1]).exists() or (words[0] == "node"):
        pytest.skip(NOT_THERE)
    if name == "filesystem":
        return [*words, str(folder)], ("read_text_file", {"path": str(folder / "a.txt")})
    if name == "git":
        return [*words, "--repository", str(folder)], ("git_status", {"repo_path": str(folder)})
    if name == "time":
        times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        return words, ("convert_time", times)
    return words, ("get-sum", {"a": 1, "b": 2})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


async def use(command, mode, call):
    place = StdioServerParameters(command=command[0], args=command[1:], env={"PYTHONPATH": str(ROOT / "src")})
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: ASYNC230 - nothing waits there
        async with Client(stdio_client(place, errlog=nowhere), mode=mode) as client:
            tools = [one.model_dump(by_alias=True) for one in (await client.list_tools()).tools]
            result = (await client.call_tool(*call)).model_dump(by_alias=True)
    facts = (result["_meta"] or {}).pop(OUTCOME, None)
    return tools, {**result, "_meta": result["_meta"] or None}, facts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("name", ["everything", "filesystem", "time", "git"])
def test_the_python_client_sees_the_same_through_the_gateway(name, mode, folder):
    """As many tools, each as its server lists it, and the same result but for its mark."""
    words, call = server_words(name, folder)
    direct = asyncio.run(use(words, mode, call))
    guarded = asyncio.run(use(gateway(server=words), mode, call))
    assert len(direct[0]) > 1
    assert guarded[0] == direct[0]
    assert guarded[1] == direct[1]
    assert guarded[2]["status"] == "ok"


@pytest.mark.parametrize("kind", ["1", "2"])
def test_the_typescript_clients_see_the_same_through_the_gateway(kind, folder):
    """The client of the handshake era, and the one of both; neither refuses a result because of its mark."""
    words, (name, arguments) = server_words("filesystem", folder)
    calls = json.dumps(
        [{"name": name, "arguments": arguments}, {"name": "list_directory", "arguments": {"path": str(folder)}}]
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CALLS": calls}
    seen = []
    for command in (words, gateway(server=words)):
        done = subprocess.run(
            ["node", str(CLIENT), str(PARTS), kind, *command],
            capture_output=True, timeout=60, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        seen.append(json.loads(done.stdout))
    direct, guarded = seen
    assert [one["_meta"].pop(OUTCOME)["status"] for one in guarded["results"]] == ["ok", "ok"]
    for one in guarded["results"]:
        if not one["_meta"]:
            del one["_meta"]
    assert guarded == direct


def test_a_write_into_a_folder_happens_once(folder):
    """The real server writes a file; the same call under a new id leaves what was written since."""
    words, _ = server_words("filesystem", folder)
    target = folder / "new.txt"
    arguments = {"path": str(target), "content": "one"}
    with LineClient(*gateway(server=words)) as client:
        client.initialize()
        assert status(client.call("write_file", arguments)) == "ok"
        target.write_text("two")
        assert text(client.call("write_file", arguments)).startswith("Not run again")
    assert target.read_text() == "two"


def test_the_zod_schema_of_the_guide_makes_the_contracts_that_the_gateway_takes(tmp_path):
    """With `io: "input"` a call without the default is let through; without it, Zod requires the field."""
    page = (ROOT / "docs" / "guides" / "mcp-gateway.md").read_text(encoding="utf-8")
    script = re.search(r"```js file=contracts.mjs\n(.*?)```", page, re.DOTALL)[1]
    if not (PARTS / "node_modules" / "zod").exists():
        pytest.skip(NOT_THERE)
    (tmp_path / "node_modules").symlink_to(PARTS / "node_modules")
    server = [sys.executable, str(ROOT / "tests" / "support" / "refund_mcp_server.py")]
    statuses = []
    for source in (script, script.replace(', { io: "input" }', "")):
        (tmp_path / "contracts.mjs").write_text(source)
        subprocess.run(["node", "contracts.mjs"], check=True, cwd=tmp_path, timeout=60)
        contracts = str(tmp_path / "contracts.json")
        with LineClient(*gateway("--contracts", contracts, server=server)) as client:
            client.initialize()
            statuses.append(status(client.call("refund", {"order": "A1", "cents": 50})))
            if source is script:
                statuses.append(status(client.call("refund", {"order": "A2", "cents": 9000})))
                statuses.append(status(client.call("refund", {"order": "A3", "cents": 51})))
    assert statuses == ["ok", "refused", "invalid_output", "refused"]
