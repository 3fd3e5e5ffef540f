"""The kill switch between processes: the incident, the flip under writers, a probe that dies."""

import itertools
import json
import signal
import subprocess
import sys
import time

import pytest
from pgserver import Missing, empty_schema, joined

from pokayoke import Contract, Guard, ToolCall, open_store
from pokayoke.core.state.kill_switch import OutputObservation, mode_at
from pokayoke.stores.base import RecordQuery
from pokayoke.stores.values import SwitchCommand
from pokayoke.testing import run_script

STORES = ("sqlite", "postgres")


@pytest.fixture
def url(request, tmp_path, need):
    """An empty ledger that several processes can open."""
    if request.param == "sqlite":
        found = f"sqlite:///{tmp_path}/ledger.db"
        open_store(found, create=True).close()
        yield found
        return
    try:
        with empty_schema() as schema:
            found = joined(schema, "pool_size=2")
            open_store(found, create=True).close()
            yield found
    except Missing as missing:
        need(str(missing))


TOOLS = """
import os, signal, sys, time
from pokayoke import Contract, Guard, Raw, ToolCall, open_store

PROFILE = {"type": "object", "properties": {"plan": {"enum": ["free", "pro"]}}, "required": ["plan"]}
PAGE = Raw("<!doctype html><html><body>Maintenance</body></html>", "text/html", 200)

def guarded(url, answer):
    crm = Contract.from_schema("crm", {"type": "object"}, effect="read", output_schema=PROFILE, handler=answer)
    return Guard([crm], store=url)
"""

BROKEN = (
    TOOLS
    + """
guard = guarded(sys.argv[1], lambda: PAGE)
for number in range(3):
    print(guard.run(f"theirs-{number}").call(ToolCall("c1", "crm", {})).status)
guard.close()
"""
)


def contracts(done):
    """A read that works here, and writes that say differently what they build on."""

    def wrote(name):
        return lambda **arguments: done.append(name) or {}

    plan = {"type": "object", "properties": {"plan": {"enum": ["free", "pro"]}}, "required": ["plan"]}
    rows = (("tag", {}), ("mail", {"sources": ("crm",)}), ("log", {"sources": ("ping",)}), ("ping", {"sources": ()}))
    return [
        Contract.from_schema("crm", {"type": "object"}, effect="read", output_schema=plan, handler=lambda **_: {"plan": "pro"}),
        *(Contract.from_schema(name, {"type": "object"}, output_schema={}, handler=wrote(name), **more) for name, more in rows),
    ]  # fmt: skip


@pytest.mark.parametrize("url", STORES, indirect=True)
async def test_the_incident_in_one_process_stops_the_writes_of_all(url):
    """A profile tool answers with a maintenance page elsewhere: here, too, nothing is written from it, in old and new runs."""
    done = []
    guard = Guard(contracts(done), store=url)
    old = guard.run("ours-1")
    assert old.call(ToolCall("c1", "tag", {"n": 1})).ok
    assert (await old.acall(ToolCall("c1", "mail", {"n": 1}))).ok
    child = run_script(BROKEN, [url])
    assert (child.returncode, child.stdout.split()) == (0, ["degraded"] * 3), child.stderr
    new = guard.run("ours-2")
    for number, run in enumerate((old, new)):
        for name in ("tag", "mail"):
            call = ToolCall("c2", name, {"n": 2})
            outcome = await run.acall(call) if number else run.call(call)
            assert (outcome.status, outcome.stop_reason, outcome.effect) == ("refused", "kill_switch", "none")
        for name in ("log", "ping", "crm"):
            assert run.call(ToolCall("c3", name, {"n": 2})).ok
        assert run.mode == "normal"
    assert sorted(done) == ["log", "log", "mail", "ping", "ping", "tag"]
    guard.store.flip(SwitchCommand("crm", "closed", "ann", "repaired", time.time()))
    assert new.call(ToolCall("c4", "tag", {"n": 2})).ok
    guard.close()


WRITER = """
import os, sys, time
import pokayoke
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim

url, name, careless = sys.argv[1], sys.argv[2], sys.argv[3] == "careless"
store = pokayoke.open_store(url)
print("ready", flush=True)
sys.stdin.readline()
number = 0
lines = []
while not os.path.exists(sys.argv[4]):
    number += 1
    key = f"{name}-{number}"
    if careless and any(switch.mode == "open" for switch in store.switches()):
        continue  # looked first, claims afterwards: the gap that one act does not have
    claim = Claim(key, "h", key, "pay", "pay@1", "r", time.time(), 60.0)
    sources = () if careless else None
    begun = time.monotonic()
    answer = store.admit(AdmissionRequest("r", "pay", "write", sources, time.time(), claim))
    if answer.kind == "execute":
        lines.append(f"{key} {begun!r} {time.monotonic()!r}")
print("\\n".join(lines), flush=True)
store.close()
"""


def flips_under_writers(url, flips, folder, *, careless=False, writers=8):
    """Flip a switch while processes claim; returns the claims (key, begun, ended) and the flips (epoch, mode, begun, ended)."""
    stop = folder / "stop"
    kind = "careless" if careless else "careful"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, f"w{number}", kind, str(stop)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(writers)
    ]  # fmt: skip
    store = open_store(url)
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        history = []
        while len(history) < flips:
            time.sleep(0.03)
            begun = time.monotonic()
            switch = store.flip(
                SwitchCommand("crm", "closed" if len(history) % 2 else "open", "ann", f"{len(history)}", time.time())
            )
            history.append((switch.epoch, switch.mode, begun, time.monotonic()))
        stop.touch()
        claims = []
        for process in processes:
            told = process.communicate(timeout=60)[0].split("\n")
            assert process.returncode == 0
            claims += [(key, float(begun), float(ended)) for key, begun, ended in map(str.split, filter(None, told))]
        records = {record.key: record for record in store.records(RecordQuery(limit=1_000_000))}
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        store.close()
    return claims, history, records


def wrongly_claimed(history, records):
    """Records whose epoch is that of an open switch: claimed after a flip that had been committed."""
    modes = {epoch: mode for epoch, mode, _, _ in history}
    return [key for key, record in records.items() if modes.get(record.epoch) == "open"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("url", STORES, indirect=True)
def test_no_claim_comes_after_a_committed_flip(url, full, tmp_path):
    """Eight processes claim while the switch is flipped: 0 claims in an epoch in which it was open, by record and by clock."""
    claims, history, records = flips_under_writers(url, 60 if full else 11, tmp_path)
    assert [epoch for epoch, *_ in history] == list(range(1, len(history) + 1))
    assert len(claims) > 50
    assert {key for key, *_ in claims} == set(records)
    assert wrongly_claimed(history, records) == []
    for (_, mode, _, opened), (_, _, closing, _) in itertools.pairwise(history):
        if mode == "open":
            assert not [key for key, begun, ended in claims if begun > opened and ended < closing]
    assert {record.epoch for record in records.values()} - {0}, "something was claimed between two flips"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_looking_before_claiming_is_not_enough(url, tmp_path):
    """The same writers, looking at the switch first and claiming afterwards, do claim after a committed flip."""
    _, history, records = flips_under_writers(url, 20, tmp_path, careless=True)
    assert wrongly_claimed(history, records)


PROBING = (
    TOOLS
    + """
def die():
    print("probing", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

guard = guarded(sys.argv[1], die)
guard.run("probe").call(ToolCall("c1", "crm", {}))
"""
)


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_a_probe_that_is_killed_leaves_the_way_open_for_the_next(url):
    """Half open, three probing processes die by SIGKILL: nothing has to be handed back, five valid reads close the switch."""
    store = open_store(url)
    before = time.time() - 300
    store.observe([OutputObservation("crm", False, before)] * 3, before)
    (switch,) = store.switches()
    assert (switch.mode, mode_at(switch, time.time())) == ("open", "half_open")
    for _ in range(3):
        child = run_script(PROBING, [url])
        assert (child.returncode, child.stdout) == (-signal.SIGKILL, "probing\n")
    assert store.switches() == (switch,)
    done = []
    guard = Guard(contracts(done), store=url)
    run = guard.run("r")
    for number in range(5):
        assert run.call(ToolCall("c", "tag", {})).stop_reason == "kill_switch"
        assert run.call(ToolCall(f"p{number}", "crm", {})).ok
        guard.switchboard.flush()
    assert store.switches()[0].mode == "closed"
    assert run.call(ToolCall("c", "tag", {})).ok
    assert done == ["tag"]
    guard.close()
    store.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_two_processes_trip_one_switch_together(url):
    """Two invalid outputs here and one elsewhere are three in a row: the count is shared, not only the switch."""
    guard = Guard(contracts([]), store=url)
    guard.store.observe([OutputObservation("crm", False, time.time())] * 2, time.time())
    assert guard.run("a").call(ToolCall("c1", "tag", {})).ok
    once = BROKEN.replace("range(3)", "range(1)")
    assert run_script(once, [url]).stdout.split() == ["degraded"]
    assert guard.run("b").call(ToolCall("c1", "tag", {})).stop_reason == "kill_switch"
    flips = [entry.data for entry in guard.store.audit() if entry.kind == "switch"]
    assert json.dumps(flips) == json.dumps([{"mode": "open", "epoch": 1, "manual": False}])
    guard.close()
