"""An approved list of tools: saved from a server, read, and held against what the server lists later."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_lines import ROOT, LineClient, gateway, status, text

from pokayoke.runtime.versions.approved_listings import approve_listing, read_waiting

SERVER = str(Path(__file__).parents[2] / "support" / "hostile_mcp_server.py")


@pytest.fixture
def approved(tmp_path):
    """The list of a server's tools, as `pokayoke learn` saves it."""
    target, contracts = tmp_path / "approved.json", tmp_path / "contracts.yaml"
    words = [sys.executable, "-m", "pokayoke", "learn", "--mcp", "--save-listing", str(target), "-o", str(contracts)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    server = [sys.executable, SERVER, "twice", str(tmp_path / "e")]
    subprocess.run([*words, "--", *server], check=True, capture_output=True, env=environment, timeout=60)
    again = subprocess.run(
        [*words, "--force", "--", *server], capture_output=True, env=environment, timeout=60, check=False
    )
    assert again.returncode == 0
    return target


def test_what_was_saved_is_approved_and_nothing_else(approved, tmp_path):
    """A tool that is missing in the file is neither listed nor run, and one that was changed there is refused."""
    server = [sys.executable, SERVER, "twice", str(tmp_path / "e")]
    with LineClient(*gateway("--approved", str(approved), server=server)) as client:
        client.initialize()
        assert len(client.request("tools/list")["result"]["tools"]) == 2
        assert text(client.call("look", {"n": 0})) == "done"
    saved = json.loads(approved.read_text())
    saved["tools"] = [{**one, "description": "Another."} for one in saved["tools"] if one["name"] == "look"]
    approved.write_text(json.dumps(saved))
    with LineClient(*gateway("--approved", str(approved), server=server)) as client:
        client.initialize()
        assert client.request("tools/list")["result"]["tools"] == []
        assert [status(client.call(name, {"n": 0})) for name in ("look", "act")] == ["refused", "refused"]
        (waiting,) = [one for one in read_waiting(approved) if one.tool == "act"]
        approve_listing(approved, "act", seen=waiting.hash, by="ann", reason="ours", now=1.0)
        assert text(client.call("act", {"n": 0})) == "done"
        assert status(client.call("look", {"n": 0})) == "refused"
    with LineClient(*gateway("--approved", str(approved), "--drift", "serve", server=server)) as client:
        client.initialize()
        assert saved["tools"][0] in client.request("tools/list")["result"]["tools"]
        assert text(client.call("look", {"n": 0})) == "done"


def test_learnt_contracts_win_over_the_list(approved, tmp_path):
    """The file that `learn` wrote, edited by a person, says which tool reads."""
    contracts = tmp_path / "contracts.yaml"
    contracts.write_text(contracts.read_text().replace("effect: write", "effect: read"))
    server = [sys.executable, SERVER, "twice", str(tmp_path / "e")]
    with LineClient(*gateway("--contracts", str(contracts), server=server)) as client:
        client.initialize()
        assert [text(client.call("act", {"n": 0})) for _ in range(2)] == ["done", "done"]


def test_a_file_that_holds_no_list_is_an_error_before_the_server_starts(tmp_path):
    """The message names the file."""
    (tmp_path / "empty.json").write_text("{}")
    server = [sys.executable, SERVER, "twice", str(tmp_path / "e")]
    with LineClient(*gateway("--approved", str(tmp_path / "empty.json"), server=server)) as client:
        assert client.process.wait(30) == 2
        assert b"empty.json" in b"".join(client.notes)
    assert not (tmp_path / "e").exists()


def test_monitor_repeats_and_shows_everything_and_says_what_enforce_would_refuse(tmp_path):
    """Nothing is held back: a page is shown with its mark, an equal write runs again, a bad argument reaches the server."""
    effects = tmp_path / "e"
    config = tmp_path / "watch.yaml"
    config.write_text(f"trace: {{path: {tmp_path / 'trace.jsonl'}}}\n")
    server = [sys.executable, SERVER, "page", str(effects)]
    with LineClient(*gateway("--mode", "monitor", "--config", str(config), server=server)) as client:
        client.initialize()
        page = client.call("act", {"n": 1})
        assert "Sign in" in text(page)
        assert page["_meta"]["io.github.pokayoke/outcome"]["findings"][0] == "html_instead_of_data"
        client.call("act", {"n": 1})
        client.call("act", {"n": "x"})
    assert effects.read_text() == "act 1\nact 1\nact x\n"
    assert "html_instead_of_data" in (tmp_path / "trace.jsonl").read_text()
