"""The file of approved listings, and what waits beside it: whole, bounded, and changed by a person only."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from pokayoke.core.versions.listing_changes import promises_hash
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.versions.approved_listings import ApprovedFile, approve_listing, read_approved, read_waiting

NOW = 1_900_000_000.0
PAY = {"name": "pay", "description": "Pay.", "inputSchema": {"type": "object"}, "_meta": {"v": 2**70}}
CHANGED = {**PAY, "description": "Pay \u202e <b>all</b>, " + "x" * 5_000}
LOOK = {"name": "look", "inputSchema": {"type": "object"}}
WHO = {"by": "ann", "reason": "asked its authors", "now": NOW}


@pytest.fixture
def path(tmp_path):
    """A saved answer with one tool."""
    found = tmp_path / "approved.json"
    found.write_text(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": [PAY]}}))
    return found


def approve(path, tool="pay", **more):
    """Approve what waits for a tool."""
    seen = next(one.hash for one in read_waiting(path) if one.tool == tool)
    return approve_listing(path, tool, **{"seen": seen, **WHO, **more})


def test_an_approval_takes_the_very_entry_and_keeps_who_and_why(path):
    """The entry is the server's own, the others stay, the history has both hashes, and nothing waits any more."""
    ApprovedFile(path).note_listed({"pay": CHANGED, "look": LOOK}, NOW)
    assert json.loads(path.read_text())["result"]["tools"] == [PAY]
    waiting = {one.tool: one for one in read_waiting(path)}
    assert (waiting["pay"].entry, waiting["pay"].approved, waiting["look"].approved) == (CHANGED, PAY, None)
    approve(path, "look")
    done = approve(path)
    found = read_approved(path)
    assert found.tools == {"pay": CHANGED, "look": LOOK}
    assert found.history[-1] == done
    assert (done.at, done.before, done.after) == ("2030-03-17T17:46:40Z", promises_hash(PAY), promises_hash(CHANGED))
    assert [one.before for one in found.history] == ["", promises_hash(PAY)]
    assert read_waiting(path) == []


def test_what_was_not_looked_at_is_not_approved(path):
    """Another hash, the beginning of one, and a tool for which nothing waits change nothing."""
    file = ApprovedFile(path)
    file.note_listed({"pay": CHANGED}, NOW)
    before = path.read_bytes()
    seen = promises_hash(CHANGED)
    with pytest.raises(ConfigurationError, match="Look at it once more"):
        approve(path, seen=seen[:20])
    file.note_listed({"pay": {**CHANGED, "title": "Pay"}}, NOW + 5)
    with pytest.raises(ConfigurationError, match="Look at it once more"):
        approve(path, seen=seen)
    with pytest.raises(ConfigurationError, match=r"nothing waits for 'look'.*waiting: pay"):
        approve_listing(path, "look", seen=seen, **WHO)
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [{"by": " "}, {"reason": ""}, {"reason": "x" * 2_000}, {"by": "\ud800"}])
def test_an_approval_has_a_name_and_a_reason(path, words):
    """Empty, endless and undecodable ones are refused."""
    ApprovedFile(path).note_listed({"pay": CHANGED}, NOW)
    with pytest.raises(ConfigurationError):
        approve(path, **words)
    assert read_approved(path).history == ()


def test_an_entry_of_which_no_contract_can_be_made_is_not_approved(path):
    """A gateway could not start with it."""
    ApprovedFile(path).note_listed({"pay": {**PAY, "inputSchema": {"type": 5}}}, NOW)
    with pytest.raises(ConfigurationError, match="no contract can be made"):
        approve(path)


def test_two_who_approve_at_once_are_told_apart(path):
    """One of many has approved it, and every other is told that nothing waits."""
    ApprovedFile(path).note_listed({"pay": CHANGED}, NOW)
    seen, told = promises_hash(CHANGED), []

    def try_it(name):
        try:
            approve_listing(path, "pay", seen=seen, by=name, reason="r", now=NOW)
        except ConfigurationError as error:
            told.append(str(error))

    threads = [threading.Thread(target=try_it, args=(f"p{number}",)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(read_approved(path).history) == 1
    assert len(told) == 7
    assert all("nothing waits" in one for one in told)


def test_a_tool_that_is_listed_as_before_waits_no_more(path):
    """What its server takes back leaves the file beside it; what is noted already is not written again."""
    file = ApprovedFile(path)
    file.note_listed({"pay": CHANGED, "look": LOOK}, NOW)
    beside = path.with_name("approved.json.waiting")
    state = beside.stat()
    file.note_listed({"pay": dict(CHANGED)}, NOW + 60)
    assert beside.stat().st_ino == state.st_ino
    file.note_listed({"pay": None}, NOW + 90)
    assert [(one.tool, one.since) for one in read_waiting(path)] == [("look", "2030-03-17T17:46:40Z")]


def test_a_server_that_lists_without_end_crowds_out_no_known_tool(path):
    """The file beside it stays bounded, and a change of an approved tool is in it."""
    flood = {f"a{number}": {**LOOK, "name": f"a{number}"} for number in range(1_500)}
    huge = {**LOOK, "name": "huge", "description": "x" * 1_000_001}
    ApprovedFile(path).note_listed({**flood, "huge": huge, "pay": CHANGED}, NOW)
    tools = [one.tool for one in read_waiting(path)]
    assert len(tools) == 1_000
    assert "pay" in tools
    assert "huge" not in tools


@pytest.mark.parametrize("damage", ["{", "5", '{"pokayoke": "x"}', '{"pokayoke": "waiting listings", "format": 2}',
                                    '{"pokayoke": "waiting listings", "waiting": {"pay": {"entry": {}}}}'])  # fmt: skip
def test_a_damaged_file_of_what_waits_is_named_and_left(path, damage):
    """Neither a gateway nor an approval writes over it."""
    ApprovedFile(path).note_listed({"pay": CHANGED}, NOW)
    beside = path.with_name("approved.json.waiting")
    beside.write_text(damage)
    with pytest.raises(ConfigurationError, match=r"approved\.json\.waiting"):
        ApprovedFile(path).note_listed({"pay": CHANGED}, NOW)
    with pytest.raises(ConfigurationError, match=r"approved\.json\.waiting"):
        approve_listing(path, "pay", seen=promises_hash(CHANGED), **WHO)
    assert beside.read_text() == damage


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ('{"tools": [', "Put back a copy"),
        ('{"tools": []}', "holds no tools"),
        ('{"tools": [{}]}', "without a name"),
        ('{"pokayoke": "approved listings", "format": 9, "tools": [{"name": "a"}]}', "Upgrade"),
        ('{"pokayoke": "approved listings", "tools": [{"name": "a"}], "history": [{}]}', "history is damaged"),
        ('{"pokayoke": "pokayoke contracts.lock"}', "not the file that was expected"),
    ],
)
def test_a_damaged_file_of_what_is_approved_is_named_and_left(path, damage, told):
    """The error says what to do, and nothing is written."""
    path.write_text(damage)
    with pytest.raises(ConfigurationError, match=told):
        approve_listing(path, "pay", seen="", **WHO)
    assert path.read_text() == damage
    path.unlink()
    with pytest.raises(ConfigurationError, match="--save-listing"):
        ApprovedFile(path).read_entries()


KILLED = """
import os, signal, sys
from pathlib import Path
from pokayoke.runtime.versions import approved_listings as room

real, at = os.fsync, int(sys.argv[2])
def stop(fd):
    global at
    at -= 1
    if at == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(fd)
os.fsync = stop
path = Path(sys.argv[1])
(one,) = room.read_waiting(path)
room.approve_listing(path, one.tool, seen=one.hash, by="ann", reason="r", now=1.0)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that nobody can catch")
@pytest.mark.parametrize(("at", "approved"), [(1, PAY), (2, CHANGED)])
def test_a_process_that_is_killed_in_the_middle_leaves_whole_files(path, at, approved):
    """Killed in the first write, the old file is there; between the two, the approval counts and nothing waits."""
    ApprovedFile(path).note_listed({"pay": CHANGED}, NOW)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(at)], env=environment, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert read_approved(path).tools == {"pay": approved}
    assert len(read_waiting(path)) == (approved == PAY)
    ApprovedFile(path).note_listed({"look": LOOK}, NOW)  # its lock went with it
