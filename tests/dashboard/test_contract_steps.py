"""Versions and listings of tools in the page: what differs, what it would do to recorded calls, and the steps."""

import json
from typing import Literal

import pytest
from clishell import Shell
from dashboard_site import Dashboard
from test_evidence import text_of

import pokayoke
from pokayoke.cli.contracts.page_steps import LockSteps
from pokayoke.dashboard.desk import Sources
from pokayoke.dashboard.trace_index import TraceIndex
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.listing import ListingSettings
from pokayoke.runtime.versions.lock_file import read_lock

CONTRACT = """
  - name: refund
    version: "{version}"
    effect: write
    input_schema:
      type: object
      properties: {{order: {{type: string}}, cents: {{type: integer, maximum: {most}}}}}
      required: [order, cents]
"""


@pytest.fixture
def shell(tmp_path):
    """Runs commands where the lock is."""
    return Shell(tmp_path)


@pytest.fixture
def trace(tmp_path):
    """The trace, and its index."""
    return TraceIndex(tmp_path / "trace.jsonl", tmp_path / "cache")


@pytest.fixture
def lock(shell, tmp_path):
    """A lock with a stable version, and a stricter one that half of the runs get."""
    both = CONTRACT.format(version=1, most=1000) + CONTRACT.format(version=2, most=100)
    (tmp_path / "contracts.yaml").write_text(f"contracts:{both}", encoding="utf-8")
    words = ("--by", "mo", "--reason", "first")
    for command in (
        ("lock", "contracts.yaml", "--stable", "refund@1"),
        ("shadow", "refund@2"),
        ("canary", "refund@2", "--share", "50%"),
    ):
        done = shell("contracts", *command, *words)
        assert done.returncode == 0, done.stderr
    return tmp_path / "contracts.lock"


@pytest.fixture
async def ann(store, clock, trace, lock):
    """Somebody who may decide, with the lock and the trace in the page."""
    sources = Sources(trace=trace, lock=lock, steps=LockSteps(lock, trace.path))
    return await Dashboard(store, clock, sources=sources).sign_in("ann")


async def test_a_version_shows_what_it_breaks_also_among_recorded_calls(ann, trace):
    """The page names the stricter bound and whom it breaks; on request it judges the calls of the trace with both."""
    call = {"event": "tool_result", "tool": "refund", "contract": "refund@1", "ok": True, "status": "ok", "ts": 1.0,
            "run_id": "r", "decision": "allow", "result": "done"}  # fmt: skip
    lines = [{**call, "step": n, "call_id": f"c{n}", "arguments": {"order": "A", "cents": 50 * n}} for n in range(1, 5)]
    trace.path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    trace.refresh_all()
    shown = text_of(await ann.get("/tools/refund"))
    assert "refund@1 and refund@2" in shown
    assert "breaking input /cents" in shown
    assert "recorded calls at the end" not in shown
    judged = text_of(await ann.submit("/tools/refund", step="score"))
    assert "Of 4 recorded calls at the end of the trace, 2 would be refused or answered otherwise" in judged


async def test_a_person_promotes_and_goes_back_with_name_and_reason(ann, lock):
    """The lock keeps each step as the command does; without a reason, or out of order, nothing changes."""
    refused = await ann.submit("/tools/refund", step="promote", reason=" ")
    assert (refused.status_code, "Nothing was changed" in refused.text) == (422, True)
    done = await ann.submit("/tools/refund", step="widen", share="80%", reason="a quiet day")
    assert done.status_code == 303
    assert "refund: " in text_of(await ann.get(done.headers["location"]))
    assert (await ann.submit("/tools/refund", step="promote", reason="a week")).status_code == 303
    assert read_lock(lock).tools["refund"].stable == "2"
    again = await ann.submit("/tools/refund", step="promote", reason="once more")
    assert (again.status_code, read_lock(lock).revision) == (422, 6)
    assert (await ann.submit("/tools/refund", step="delete", reason="x")).status_code == 422
    assert (await ann.submit("/tools/refund", step="rollback", reason="too strict")).status_code == 303
    entries = read_lock(lock).history[-3:]
    assert [(one.step, one.by, one.reason) for one in entries] == [
        ("widen", "ann", "a quiet day"), ("promote", "ann", "a week"), ("rollback", "ann", "too strict"),
    ]  # fmt: skip


async def test_the_kill_switch_names_the_writes_that_it_stops(ann, store):
    """Before the click, the page counts the locked writes that build on the tool."""
    del store
    shown = text_of(await ann.get("/switches?scope=look_up"))
    assert "Of the locked contracts 1 write builds on it, or does not say on what: refund." in shown
    assert "Of the locked contracts" not in text_of(await ann.get("/switches?scope=*"))


async def test_a_contract_that_was_changed_is_named_and_one_in_code_is_not_run(ann, lock, shell):
    """A file that differs from the lock is said to; a page does not import a module to look at it."""
    file = lock.parent / "contracts.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("maximum: 100}", "maximum: 10}"), encoding="utf-8")
    assert "is not what is locked under that version" in text_of(await ann.get("/tools/refund"))
    del shell
    text = lock.read_text(encoding="utf-8").replace('"contracts.yaml"', '"danger:ALL"')
    lock.write_text(text, encoding="utf-8")
    (lock.parent / "danger.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    assert "are code" in text_of(await ann.get("/tools/refund"))


def entry(description, maximum):
    """A tool as a server lists it."""
    schema = {"type": "object", "properties": {"cents": {"type": "integer", "maximum": maximum}}}
    return {"name": "refund", "description": description, "inputSchema": schema}


async def test_a_changed_listing_stands_beside_the_approved_one(ann, trace):
    """Description and schema, before and after; markup of the server is text."""
    config = {"trace": {"path": str(trace.path)}}
    with pokayoke.Guard([], config=config) as guard:
        there = Interceptor(guard, listing=ListingSettings())
        there.tools.take([entry("Refund an order.", 100)])
        there.tools.take([entry("Refund <b>anything</b>.", 9_999)])
    trace.refresh_all()
    shown = text_of(await ann.get("/tools/refund"))
    assert "Its server lists it otherwise" in shown
    assert "pokayoke dashboard --approved FILE" in shown
    assert "description Refund an order. Refund <b>anything</b>." in shown
    assert 'inputSchema/properties/cents {"maximum":100,"type":"integer"} {"maximum":9999,"type":"integer"}' in shown


async def test_set_up_shows_servers_and_what_enforce_would_refuse(store, clock, trace, tmp_path):
    """A server's latest state, its ends and its problem; calls of monitor mode are counted and lead to the tool."""

    @pokayoke.tool(effect="write", output="text")
    def pay(cents: int, kind: Literal["a", "b"] = "a") -> str:
        """Pay."""
        return "paid"

    config = tmp_path / "watch.yaml"
    config.write_text(f"mode: monitor\ntrace:\n  path: {trace.path}\n", encoding="utf-8")
    with pokayoke.Guard([pay], config=str(config)) as guard:
        there = Interceptor(guard)
        for is_up, said in ((True, "5 tools"), (False, "failed: no answer"), (True, "5 tools")):
            there.report_server("shop", is_up=is_up, reason=said)
        with guard.run() as run:
            assert run.call(pokayoke.ToolCall("c", "pay", '{"cents": 1, "kind": "c"}')).ok
    trace.refresh_all()
    ann = await Dashboard(store, clock, sources=Sources(trace=trace), config=config).sign_in("ann")
    shown = text_of(await ann.get("/setup"))
    assert "shop up 5 tools" in shown
    assert "1 failed: no answer" in shown
    assert "Mode: monitor. In monitor mode 1 calls of the trace ran that enforce would have refused" in shown
    assert "In monitor mode 1 calls ran that enforce would have refused: " in text_of(await ann.get("/tools/pay"))
