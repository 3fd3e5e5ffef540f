"""Several gateways on one store: the servers of one client share a run, and an effect exists once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mcp_lines import ROOT, LineClient, gateway, status, text
from pgserver import Missing, empty_schema

SERVERS = str(Path(__file__).parents[2] / "support" / "crm_mcp_servers.py")
RUN = "io.github.pokayoke/run"


@pytest.fixture
def sqlite(tmp_path):
    """A ledger in a file."""
    url = f"sqlite:///{tmp_path / 'effects.db'}"
    words = [sys.executable, "-m", "pokayoke", "ledger", "init", "--store", url]
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    return url


@pytest.fixture
def postgres(need):
    """A ledger in a schema of its own."""
    try:
        with empty_schema() as url:
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
            words = [sys.executable, "-m", "pokayoke", "ledger", "init", "--store", url]
            subprocess.run(words, check=True, capture_output=True, env=environment)
            yield url
    except Missing as missing:
        need(str(missing))


def wrap(url, *server, more=()):
    """Start a client of one wrapped server."""
    client = LineClient(*gateway("--client", "test", "--store", url, *more, server=[sys.executable, SERVERS, *server]))
    client.initialize()
    return client


def test_a_page_of_one_server_holds_back_the_writes_of_another(tmp_path, sqlite):
    """The CRM incident: the page never is data, no record is written from it, and a valid answer lets writes go on."""
    state, rows = tmp_path / "state", tmp_path / "rows"
    state.write_text("page")
    reads = ("--read", "get_profile")
    with wrap(sqlite, "profiles", str(state), more=reads) as profiles, wrap(sqlite, "crm", str(rows)) as crm:
        page = profiles.call("get_profile", {"user": "u1"})
        assert (status(page), page["isError"]) == ("degraded", True)
        assert "back soon" not in str(page)
        held = crm.call("update_record", {"user": "u1", "name": "We'll be back soon."})
        assert (status(held), held["_meta"]["io.github.pokayoke/outcome"]["findings"]) == ("refused", ["latched"])
        assert not rows.exists()
        state.write_text("up")
        assert "Ada" in text(profiles.call("get_profile", {"user": "u1"}))
        assert status(crm.call("update_record", {"user": "u1", "name": "Ada"})) == "ok"
    assert len(rows.read_text().splitlines()) == 1


def test_another_client_has_a_run_of_its_own(tmp_path, sqlite):
    """What one client has seen holds back no other one, and an equal write of it is another effect."""
    rows = tmp_path / "rows"
    words = gateway("--store", sqlite, server=[sys.executable, SERVERS, "crm", str(rows)])
    call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"update_record","arguments":{"user":"u"}}}'
    script = f"import subprocess, sys; sys.exit(subprocess.run({words!r}, input={call!r}.encode() + b'\\n').returncode)"
    for _ in range(2):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, timeout=60, env=environment
        )
        assert b'"status":"ok"' in done.stdout, done.stderr
    assert len(rows.read_text().splitlines()) == 2


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_gateway_that_is_killed_in_a_write_leaves_one_effect(request, tmp_path, store):
    """The client sends the call again, under a new id and to another gateway: it learns of the doubt, and nothing runs.

    A second write that had its answer is replayed there.
    """
    url, rows = request.getfixturevalue(store), tmp_path / "rows"
    arguments = {"user": "u1", "name": "Ada"}
    with wrap(url, "crm", str(rows), "1") as first:
        assert status(first.call("update_record", {"user": "u0"})) == "ok"
        first.send(id=9, method="tools/call", params={"name": "update_record", "arguments": arguments})
        end = time.monotonic() + 20
        while len(rows.read_text().splitlines()) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(10)
    with wrap(url, "crm", str(rows), "0") as second:
        doubt = second.call("update_record", arguments, ident=10)
        assert status(doubt) == "in_doubt", doubt
        assert status(second.call("update_record", {"user": "u0"}, ident=11)) == "replayed"
    assert len(rows.read_text().splitlines()) == 2


def test_two_gateways_at_once_run_one_effect(tmp_path, postgres):
    """The same call reaches both at the same moment; one runs it, and the other says that it is under way or done."""
    rows = tmp_path / "rows"
    with wrap(postgres, "crm", str(rows), "0.5") as one, wrap(postgres, "crm", str(rows), "0.5") as other:
        for client in (one, other):
            client.request("tools/list")
        params = {"name": "update_record", "arguments": {"user": "u1"}, "_meta": {RUN: "order-7"}}
        for client in (one, other):
            client.send(id=20, method="tools/call", params=params)
        said = sorted(status(client.answer(20)["result"]) for client in (one, other))
        assert "ok" in said
        assert said != ["ok", "ok"]
    assert len(rows.read_text().splitlines()) == 1
