"""An MCP server's own list: asked for politely, within bounds, whatever the server does."""

import json
import os
import sys
import textwrap
import time

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ConfigurationError
from pokayoke.replay.learn.learner import Draft, Learner
from pokayoke.replay.learn.mcp_listing import ask_server, build_listed_drafts, merge_drafts, read_listing
from pokayoke.replay.recording import Recording

TOOLS = [
    {
        "name": "get_order",
        "description": "Look up.",
        "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
    },
    {
        "name": "send",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]

SERVER = """
    import json, sys, os, time, subprocess
    def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
    def requests():
        for line in sys.stdin:
            yield json.loads(line)
    tools = json.loads(os.environ["TOOLS"]) if "TOOLS" in os.environ else []
"""
POLITE = """
    for request in requests():
        if request["method"] == "initialize":
            assert request["params"]["protocolVersion"] and request["params"]["clientInfo"]
            print("starting up...", flush=True)
            say(method="notifications/message", params={})
            say(id=request["id"], result={"protocolVersion": "2025-06-18", "capabilities": {}})
        elif request["method"] == "tools/list":
            say(id="s1", method="ping")
            assert next(requests()) == {"jsonrpc": "2.0", "id": "s1", "result": {}}
            say(id="s2", method="roots/list")
            assert next(requests())["error"]["code"] == -32601
            at = int(request["params"].get("cursor", 0))
            more = {"nextCursor": str(at + 1)} if at + 1 < len(tools) else {}
            say(id=request["id"], result={"tools": tools[at:at + 1], **more})
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Writes a server; returns its command."""

    def write(body, tools=TOOLS):
        monkeypatch.setenv("TOOLS", json.dumps(tools))
        (tmp_path / "server.py").write_text(textwrap.dedent(SERVER) + textwrap.dedent(body))
        return [sys.executable, str(tmp_path / "server.py")]

    return write


def test_a_server_is_asked_for_all_its_pages(server):
    """Initialise, list page by page, answer a ping, decline the rest, pass over what is no message."""
    assert ask_server(server(POLITE), seconds=20) == TOOLS


def test_a_server_and_its_children_are_ended(server, tmp_path):
    """A server that ignores the end of its input, and a child it started, are gone afterwards."""
    stubborn = (
        POLITE
        + """
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open(os.environ["PIDS"], "w").write(f"{os.getpid()} {child.pid}")
    time.sleep(60)
    """
    )
    os.environ["PIDS"] = str(tmp_path / "pids")
    started = time.monotonic()
    assert len(ask_server(server(stubborn), seconds=20)) == 2
    assert time.monotonic() - started < 15
    deadline = time.monotonic() + 5
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(running, pids))


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("time.sleep(60)", "no answer within 1 seconds"),
        ("sys.stderr.write('need a key\\x1b[2J'); sys.exit(3)", "need a key"),
        ("print('x' * 200_000_000)", "no answer within|more than"),
        ("while True: print('{}', flush=True)", "no answer within 1 seconds"),
        ("say(id=1, error={'code': 1, 'message': 'no \\x1b]0;'})\ntime.sleep(5)", "initialize: no"),
        ("say(id=1, result=5)\nfor line in sys.stdin: pass", "no answer within|ended"),
        ("os.close(0); os.close(1); time.sleep(60)", "ended"),
    ],
)
def test_a_server_that_misbehaves_is_an_error_in_time(body, said, server):
    """Silence, a crash, a flood, an error and nonsense are errors within the deadline, with the server's last words."""
    started = time.monotonic()
    with pytest.raises(ConfigurationError, match=said):
        ask_server(server(textwrap.indent(textwrap.dedent(body), "    ")), seconds=1)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("command", [["/no/such/program"], [], ["/"]])
def test_a_command_that_cannot_start(command):
    """An absent program and an empty command are clear errors."""
    with pytest.raises(ConfigurationError, match="cannot be started"):
        ask_server(command)


@pytest.mark.parametrize(
    "shape", [lambda t: {"jsonrpc": "2.0", "id": 1, "result": {"tools": t}}, lambda t: {"tools": t}, lambda t: t]
)
def test_a_saved_listing(shape, tmp_path):
    """The whole message, its result and the bare list are read alike."""
    (tmp_path / "tools.json").write_text(json.dumps(shape(TOOLS)))
    assert read_listing(str(tmp_path / "tools.json")) == TOOLS


@pytest.mark.parametrize(("text", "said"), [("{", "not JSON"), ("{}", "holds no tools"), ("[1]", "holds no tools")])
def test_a_listing_that_is_none(text, said, tmp_path):
    """A file that is no listing is a clear error."""
    (tmp_path / "tools.json").write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_listing(str(tmp_path / "tools.json"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_listing(str(tmp_path / "none.json"))


def test_hints_count_only_if_trusted():
    """A server's own word about effects is not believed unless the user says so."""
    plain, _ = build_listed_drafts(TOOLS)
    trusted, _ = build_listed_drafts(TOOLS, trusted_hints=True)
    assert [draft.mapping["effect"] for draft in plain] == ["read", "write"]
    assert [draft.mapping["effect"] for draft in trusted] == ["read", "read"]
    assert all(Contract.from_mapping(draft.mapping) for draft in plain)


def test_a_definition_that_cannot_be_kept_is_skipped():
    """A schema that reaches out, or none at all, is named with its reason; the other tools stand."""
    bad = [{"name": "far", "inputSchema": {"$ref": "http://127.0.0.1:9/x"}}, {"name": "none"}, TOOLS[0]]
    drafts, skipped = build_listed_drafts(bad)
    assert [draft.mapping["name"] for draft in drafts] == ["get_order"]
    assert [one.tool for one in skipped] == ["far", "none"]


def test_recordings_complete_a_listing():
    """Where the server promises nothing about its output, the recording says what it was; what is promised stays."""
    listed, _ = build_listed_drafts(TOOLS)
    learner = Learner()
    learner.add_recordings(
        Recording(name, {"id": f"x{n}"}, json.dumps({"n": n}), run=str(n))
        for n in range(25)
        for name in ("get_order", "send", "own")
    )
    drafts = merge_drafts(listed, learner.build_drafts()[0])
    assert all(isinstance(draft, Draft) for draft in drafts)
    by_name = {draft.mapping["name"]: draft.mapping for draft in drafts}
    assert by_name["get_order"]["output_schema"]["required"] == ["n"]
    assert by_name["get_order"]["input_schema"] == TOOLS[0]["inputSchema"]
    assert by_name["send"]["output_schema"] == {"type": "object"}
    assert "own" in by_name
