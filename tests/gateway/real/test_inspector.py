"""The Inspector's command-line mode, with a server behind the gateway and without: `make mcp`."""

import json
import shutil
import subprocess
import sys

import pytest
from mcp_lines import OUTCOME, ROOT, gateway

SMALL = ROOT / "tests" / "support" / "small_mcp_server.py"
PARTS = ROOT / ".mcp-parts" / "node_modules" / "@modelcontextprotocol"
CLI = PARTS / "inspector" / "cli" / "build" / "cli.js"


def inspect(command, *words):
    """Return what the Inspector prints of an answer."""
    if not CLI.exists():
        pytest.skip("the parts of others are not installed: make mcp")
    node = shutil.which("node")
    line = [node, str(CLI), "--cli", *command, *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode and "Unsupported engine" in done.stderr:
        pytest.skip("this Node does not run it")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def ways():
    """The words that start the server, directly and behind the gateway."""
    server = [sys.executable, str(SMALL)]
    return server, gateway("--trust-hints", server=server)


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "prompts/list"])
def test_it_sees_the_same_listing(method):
    """What it prints of a listing of the protocol's own example server is the same."""
    direct = ["node", str(PARTS / "server-everything" / "dist" / "index.js"), "stdio"]
    shown = inspect(direct, "--method", method)
    assert next(iter(shown.values()))
    assert inspect(gateway(server=direct), "--method", method) == shown


def test_it_calls_a_tool(ways):
    """The answer is the server's; what the gateway adds stands in its `_meta`."""
    call = ("--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hi")
    direct, guarded = (inspect(way, *call) for way in ways)
    assert guarded.pop("_meta")[OUTCOME]["status"] == "ok"
    assert guarded == direct


def test_it_shows_a_refusal(ways):
    """A call that the contract refuses is an error of the tool, with the reason."""
    shown = inspect(ways[1], "--method", "tools/call", "--tool-name", "echo", "--tool-arg", "txet=hi")
    assert shown["isError"] is True
    assert "text" in shown["content"][0]["text"]
