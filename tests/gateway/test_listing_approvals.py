"""A gateway with a file of approved listings: what it notes, and an approval that it takes over while it runs."""

import json

import pytest

from pokayoke import Guard
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.listing import ListingSettings
from pokayoke.gateway.runs import Caller
from pokayoke.runtime.versions.approved_listings import ApprovedFile, approve_listing, read_waiting

ME = Caller()
DONE = {"content": [{"type": "text", "text": "done"}]}
LOOK = {"name": "look", "inputSchema": {"type": "object"}}


def entry(name, argument):
    """A tool that takes one number."""
    schema = {"type": "object", "properties": {argument: {"type": "integer"}}, "required": [argument]}
    return {"name": name, "description": "Orders.", "inputSchema": schema}


ORDER, NEW = entry("order", "n"), entry("order", "m")


@pytest.fixture
def path(tmp_path):
    """Both tools are approved as they are."""
    found = tmp_path / "approved.json"
    found.write_text(json.dumps({"tools": [ORDER, LOOK]}))
    return found


def open_door(path, mode="enforce", config=None, **options):
    """A gateway in front of a server that lists both tools, one of them otherwise."""
    settings = ListingSettings(fields={"look": {"effect": "read"}}, approved=ApprovedFile(path), **options)
    found = Interceptor(Guard([], config={"mode": mode, **(config or {})}), listing=settings, scope="s")
    found.take_listing({"tools": [NEW, LOOK]}, ME, "legacy")
    return found


def play(door, name, arguments):
    """Take a call to its result; returns the result, and what the server got."""
    pending = door.begin({"name": name, "arguments": arguments}, ME)
    return (pending.answer, None) if pending.answer else (door.finish(pending, DONE), pending.params)


def approve(path, tool="order"):
    """A person looks at what waits and approves it."""
    seen = next(one.hash for one in read_waiting(path) if one.tool == tool)
    return approve_listing(path, tool, seen=seen, by="ann", reason="its authors say so", now=1.0)


def test_a_running_gateway_takes_an_approval_over_with_the_next_call(path):
    """The tool is refused, then approved, then called by its new schema; the other tool stays as it was."""
    door = open_door(path)
    assert play(door, "order", {"m": 1})[1] is None
    look = door.guard.snapshot.find_contract("look")
    assert [(one.tool, one.entry, one.approved) for one in read_waiting(path)] == [("order", NEW, ORDER)]
    approve(path)
    assert play(door, "order", {"m": 1})[1]["arguments"] == {"m": 1}
    assert play(door, "order", {"n": 1})[1] is None
    assert door.guard.snapshot.find_contract("look") is look
    assert door.take_listing({"tools": [NEW, LOOK]}, ME, "legacy") == {"tools": [NEW, LOOK]}


@pytest.mark.parametrize("options", [{}, {"drift": "serve"}, {"mode": "monitor"}])
def test_a_running_gateway_takes_an_approval_over_with_the_next_listing(path, options):
    """Hidden, served as it was, or watched: the approved entry is what clients are shown next."""
    door = open_door(path, **options)
    approve(path)
    assert door.take_listing({"tools": [NEW, LOOK]}, ME, "legacy") == {"tools": [NEW, LOOK]}
    assert play(door, "order", {"m": 1})[1] is not None
    assert read_waiting(path) == []


def test_a_new_tool_waits_and_is_run_once_it_is_approved(path):
    """Nobody has approved it, so it is neither shown nor run before."""
    door, third = open_door(path), entry("third", "n")
    assert door.take_listing({"tools": [third]}, ME, "legacy")["tools"] == []
    assert play(door, "third", {"n": 1})[1] is None
    approve(path, "third")
    assert play(door, "third", {"n": 1})[1] is not None


def test_a_server_that_changes_again_after_the_approval_is_refused_again(path):
    """An approval is of one entry."""
    door = open_door(path)
    door.take_listing({"tools": [{**NEW, "title": "Again"}]}, ME, "legacy")
    approve(path)
    door.take_listing({"tools": [NEW]}, ME, "legacy")
    assert play(door, "order", {"m": 1})[1] is None
    assert [one.entry for one in read_waiting(path)] == [NEW]


def test_a_tool_that_is_taken_out_of_the_file_is_not_run_any_more(path):
    """What the file holds is what is approved, also when a person has edited it."""
    door = open_door(path)
    path.write_text(json.dumps({"tools": [NEW]}))
    assert door.take_listing({"tools": [NEW, LOOK]}, ME, "legacy")["tools"] == [NEW]
    assert "nobody has approved" in play(door, "look", {})[0]["content"][0]["text"]


def test_a_damaged_file_stops_a_start_and_no_running_gateway(path, tmp_path):
    """A running one keeps what it has, and says once in the trace what is wrong; the files stay as they are."""
    trace = tmp_path / "trace.jsonl"
    door = open_door(path, config={"trace": {"path": str(trace)}})
    beside = path.with_name("approved.json.waiting")
    for one in (path, beside):
        one.write_text("{")
    for _ in range(3):
        assert door.take_listing({"tools": [NEW, LOOK]}, ME, "legacy")["tools"] == [LOOK]
        assert play(door, "order", {"m": 1})[1] is None
    with pytest.raises(ConfigurationError, match="damaged"):
        open_door(path)
    door.guard.close()
    told = [json.loads(line) for line in trace.read_text().splitlines() if "damaged" in line]
    assert {one["event"] for one in told} == {"contracts"}
    assert len(told) == 2
    assert [one.read_text() for one in (path, beside)] == ["{", "{"]


def test_a_call_that_may_run_looks_at_no_file(path, monkeypatch):
    """Only a listing and a refusal look whether the file has changed."""
    door = open_door(path)
    looked = []
    monkeypatch.setattr(ApprovedFile, "has_changed", lambda _: looked.append(1) or False)
    play(door, "look", {})
    assert looked == []
    play(door, "order", {"m": 1})
    assert looked == [1]
