"""A server that misbehaves: what the client gets, within which time, and what is left running."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from mcp_lines import LineClient, gateway, status, text

SERVER = str(Path(__file__).parents[2] / "support" / "hostile_mcp_server.py")
DEADLINE = 2.0

# The way, the tool, the status of a call, a part of its text, and whether the server has to be another process then.
TABLE = [
    ("page", "act", "invalid_output", "cannot be used", False),
    ("page", "look", "invalid_output", "cannot be used", False),
    ("truncated", "act", "in_doubt", "not known whether", False),
    ("truncated_before_the_id", "act", "in_doubt", "not known whether", False),
    ("nan", "act", "in_doubt", "not known whether", False),
    ("double_keys", "act", "in_doubt", "not known whether", False),
    ("wrapper", "act", "failed", "no stock", False),
    ("huge", "act", "in_doubt", "not known whether", False),
    ("dies", "act", "in_doubt", "not known whether", True),
    ("dies_in_a_line", "act", "in_doubt", "not known whether", True),
    ("leaves_a_child", "act", "in_doubt", "not known whether", True),
    ("hangs", "act", "in_doubt", "not known whether", True),
    ("forgets", "act", "in_doubt", "not known whether", True),
    ("floods", "act", "ok", "done", False),
    ("prints", "act", "ok", "done", False),
    ("twice", "act", "ok", "first", False),
    ("foreign", "act", "ok", "done", False),
    ("shapeless", "act", "failed", "not known whether", False),
    ("nothing", "act", "failed", "not known whether", False),
    ("refuses", "act", "failed", "bad arguments", False),
    ("breaks", "act", "failed", "database is down", False),
]


def children_of(pid):
    """Return the processes below one, with their groups."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found += [int(entry.name), *children_of(int(entry.name))]
    return found


def memory_of(pid):
    """Return the most resident memory of a process so far, in MB."""
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


@pytest.mark.parametrize(("way", "tool", "expected", "part", "is_new"), TABLE)
def test_a_call_is_answered_whatever_its_server_does(tmp_path, way, tool, expected, part, is_new):
    """Each way ends in one answer within the deadline; the effect exists once, and the next call gets its answer."""
    effects = tmp_path / "effects"
    with LineClient(
        *gateway("--deadline", str(DEADLINE), server=[sys.executable, SERVER, way, str(effects)])
    ) as client:
        client.initialize()
        before = children_of(client.process.pid)
        begun = time.monotonic()
        result = client.call(tool, {"n": 1}, within=DEADLINE + 18)
        took = time.monotonic() - begun
        assert (status(result), part in text(result)) == (expected, True), result
        if way != "huge":
            assert took < DEADLINE + 13
        again = client.call("look", {"n": 0})
        if expected == "invalid_output":
            assert status(again) == "refused"  # nothing undeclared is a read, and no write follows an unusable answer
        else:
            assert text(again) == "done"
        after = children_of(client.process.pid)
        assert (before != after) is is_new
        assert memory_of(client.process.pid) < 250
        assert not [one for one in client.seen if "method" not in one]  # nothing was answered twice
    assert effects.read_text().split("\n").count(f"{tool} 1") == 1
    for pid in {*before, *after}:
        assert not Path(f"/proc/{pid}").exists() or "zombie" in Path(f"/proc/{pid}/status").read_text()


def test_an_effect_in_doubt_is_not_run_again(tmp_path):
    """After its server has died in a write, the same write under a new id is answered, and not executed."""
    effects = tmp_path / "effects"
    with LineClient(*gateway(server=[sys.executable, SERVER, "dies", str(effects)])) as client:
        client.initialize()
        assert [status(client.call("act", {"n": 1})) for _ in range(3)] == ["in_doubt"] * 3
    assert effects.read_text() == "act 1\n"


def test_a_tool_that_changes_after_it_was_listed_is_refused(tmp_path):
    """The server says that its tools have changed; the next call of a changed one is not run, with the difference."""
    effects = tmp_path / "effects"
    with LineClient(*gateway(server=[sys.executable, SERVER, "changes_its_mind", str(effects)])) as client:
        client.initialize()
        assert status(client.call("act", {"n": 1})) == "ok"
        refused = client.call("act", {"n": 2})
        assert (status(refused), "sends your files" in text(refused)) == ("refused", True)
        listed = client.request("tools/list")["result"]["tools"]
        assert [one["name"] for one in listed] == ["look"]
    assert effects.read_text() == "act 1\n"


def test_a_server_that_never_speaks_ends_the_gateway(tmp_path):
    """The client learns that its server is not there: its request is answered, and the process ends with code 2."""
    with LineClient(*gateway(server=[sys.executable, SERVER, "never_speaks", str(tmp_path / "e")])) as client:
        client.send(id=1, method="initialize", params={})
        assert "exit code 3" in client.answer(1)["error"]["message"]
        assert client.process.wait(10) == 2


def test_a_server_that_starts_no_more_is_given_up_and_tried_again_later(tmp_path):
    """After five starts in a row that came to nothing, calls are answered at once; nothing ran, so they may be repeated."""
    with LineClient(*gateway(server=[sys.executable, SERVER, "starts_once", str(tmp_path / "e")])) as client:
        client.initialize()
        assert status(client.call("act", {"n": 1})) == "in_doubt"
        lost = client.call("act", {"n": 2}, within=60)
        assert (status(lost), "Nothing was changed" in text(lost) or "not run" in text(lost)) == ("failed", True)
        begun = time.monotonic()
        assert status(client.call("act", {"n": 3})) == "failed"
        assert time.monotonic() - begun < 10
    assert b"".join(client.notes).count(b"started again") == 5


def test_a_program_that_does_not_exist_is_an_error_before_anything_is_read():
    """The message names the program."""
    with LineClient(*gateway(server=["/no/such/program"])) as client:
        assert client.process.wait(20) == 2
        assert b"/no/such/program" in b"".join(client.notes)


@pytest.mark.parametrize("how", ["eof", "term", "kill"])
def test_nothing_is_left_running_when_the_client_goes(tmp_path, how):
    """The server ends with the client, also one that hangs in a call; SIGKILL of the gateway closes its input."""
    way = "dies" if how == "kill" else "hangs"
    with LineClient(*gateway(server=[sys.executable, SERVER, way, str(tmp_path / "e")])) as client:
        client.initialize()
        client.call("look", {"n": 0})
        pids = children_of(client.process.pid)
        if way == "hangs":
            client.send(id=99, method="tools/call", params={"name": "act", "arguments": {"n": 1}})
            time.sleep(0.3)
        if how == "eof":
            client.process.stdin.close()
        else:
            os.kill(client.process.pid, signal.SIGTERM if how == "term" else signal.SIGKILL)
        client.process.wait(15)
    end = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
