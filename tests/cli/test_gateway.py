"""`pokayoke gateway` as a process."""

import json
import os
import subprocess
import sys

import pytest
from clishell import json_lines
from gateway_http import small
from mcp_lines import OUTCOME, LineClient


def run(*words, **environment):
    """Run the command and return what it did."""
    line = [sys.executable, "-m", "pokayoke", "gateway", *map(str, words)]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False
    )


def test_a_new_token_is_printed_once():
    """Stdout has the token and its line, and with --json both as one object."""
    done = run("--new-token", "ada")
    token, line = done.stdout.splitlines()
    assert done.returncode == 0
    assert line.startswith("ada sha256:")
    assert token not in done.stderr
    assert json.loads(run("--new-token", "ada", "--json").stdout).keys() == {"token", "line"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the file"),
        (["FILE", "--host", "0.0.0.0"], "--no-auth"),
        (["FILE", "--jwt-issuer", "https://id.example"], "--jwt-keys"),
        (["FILE", "--tokens", "nowhere"], "cannot be read"),
        (["FILE", "--sign-in", "small"], "no server 'small' with oauth"),
        (["nowhere.json"], "cannot be read"),
        (["--new-token", "a b"], "is no subject"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path, words, said):
    """Exit code 2, one line on stderr, and nothing on stdout."""
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"small": small()}}))
    key = {"POKAYOKE_STORE_KEY": "A" * 43 + "="}
    done = run(*(tmp_path / "servers.json" if one == "FILE" else one for one in words), **key)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_one_client_is_served_over_stdio(tmp_path):
    """A client that starts the command gets the tools of all servers, and the gateway ends with it."""
    (tmp_path / "servers.json").write_text(
        json.dumps({"mcpServers": {"a": small(), "b": small(), "dead": {"command": "/nowhere"}}})
    )
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "b__echo", "arguments": {"text": "hi"}}},
    ]
    line = [sys.executable, "-m", "pokayoke", "gateway", str(tmp_path / "servers.json"), "--stdio"]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        found = {}
        for message in lines:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            while "id" in message and message["id"] not in found:
                answer = json.loads(process.stdout.readline())
                if "id" in answer:
                    found[answer["id"]] = answer
        process.stdin.close()
        assert process.wait(20) == 0
    assert "'dead' is not available" in found[0]["result"]["instructions"] or found[1]["result"]["_meta"]
    assert [one["name"] for one in found[1]["result"]["tools"]] == ["a__echo", "a__add_note", "b__echo", "b__add_note"]
    assert found[2]["result"]["content"] == [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize(("mode", "refused"), [("monitor", False), ("enforce", True)])
def test_the_mode_is_one_switch(tmp_path, mode, refused):
    """What `enforce` refuses, `monitor` lets through and marks, whatever the configuration says."""
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"a": small()}}))
    (tmp_path / "other.yaml").write_text(f"mode: {'enforce' if mode == 'monitor' else 'monitor'}\n")
    words = [tmp_path / "servers.json", "--stdio", "--config", tmp_path / "other.yaml", "--mode", mode]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with LineClient(sys.executable, "-m", "pokayoke", "gateway", *map(str, words)) as client:
        client.request("initialize", hello, within=60)
        client.send(method="notifications/initialized")
        result = client.request("tools/call", {"name": "echo", "arguments": {"text": {}}}, within=60)["result"]
    facts = result["_meta"][OUTCOME]
    assert (facts["status"] == "refused") is refused
    assert refused or "monitored" in facts["findings"]


def test_a_tool_that_a_server_lists_otherwise_is_approved_while_the_gateway_runs(tmp_path, shell):
    """The file is saved from the gateway itself; after the command, the same connection calls the changed tool."""
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"a": small(), "b": small()}}))
    line = [sys.executable, "-m", "pokayoke", "gateway", str(tmp_path / "servers.json"), "--stdio"]
    saved = shell("learn", "--mcp", "--save-listing", "approved.json", "-o", "contracts.yaml", "--", *line)
    assert saved.returncode == 0, saved.stderr
    approved = json.loads((tmp_path / "approved.json").read_text())["tools"]
    assert [one["name"] for one in approved] == ["a__echo", "a__add_note", "b__echo", "b__add_note"]
    then = [{**one, "description": "As it was."} if one["name"] == "b__echo" else one for one in approved]
    (tmp_path / "approved.json").write_text(json.dumps({"tools": then}))
    with LineClient(*line, "--approved", str(tmp_path / "approved.json")) as client:
        client.initialize()
        shown = client.request("tools/list", within=60)["result"]["tools"]
        assert [one["name"] for one in shown] == ["a__echo", "a__add_note", "b__add_note"]
        assert client.call("b__echo", {"text": "hi"})["isError"] is True
        (waiting,) = json_lines(shell("listings", "list", "--approved", "approved.json", "--json"))
        assert waiting["entry"] == approved[2]
        words = ("--hash", waiting["hash"], "--by", "ann", "--reason", "ours")
        assert shell("listings", "approve", "b__echo", "--approved", "approved.json", *words).returncode == 0
        assert client.call("b__echo", {"text": "hi"})["content"] == [{"type": "text", "text": "hi"}]
        assert client.request("tools/list")["result"]["tools"] == approved
