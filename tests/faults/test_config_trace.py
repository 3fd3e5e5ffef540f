"""Faults of the trace, the terminal and the configuration, provoked and counted."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

import pokayoke
from pokayoke.runtime.config import config as config_module

CANARY = "CANARY-hunter2-4711"
TERMINAL = "\x1b]52;c;Y2FuYXJ5\x07\x1b[2J\x9b31m\x1b]8;;http://evil.example\x07"


def _tools():
    secret = {"type": "object", "properties": {"user": {"type": "string"}, "password": {"type": "string"}}}

    def echo(user, password):
        return {"note": f"logged in {user} with {password}", "session": {"token": CANARY + "-token"}}

    def wrong(user, password):
        return {"remark": f"{user} {password}"}

    def broken(user, password):
        raise RuntimeError(f"no login for {user} with {password}")

    result = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
    return [
        pokayoke.Contract.from_schema(name, secret, output_schema=result, effect=effect, handler=handler)
        for name, effect, handler in (("echo", "read", echo), ("wrong", "read", wrong), ("broken", "write", broken))
    ]


def _secretive_calls(run):
    whole = {"user": "bob", "password": CANARY}
    run.call(pokayoke.ToolCall("c1", "echo", whole))
    run.call(pokayoke.ToolCall("c2", "broken", whole))
    run.call(pokayoke.ToolCall("c3", "wrong", json.dumps(whole) + ","))
    run.call(pokayoke.ToolCall("c4", "echo", json.dumps(whole)[:-3]))
    run.call(pokayoke.ToolCall("c5", "echo", "{'user': 'bob', 'password': '" + CANARY + "'"))
    run.call(pokayoke.ToolCall("c6", "nosuch", whole))
    run.call(pokayoke.ToolCall("c7", "echo", {"user": 3, "password": [CANARY]}))
    run.call(pokayoke.ToolCall("c8", "echo", {"user": f"Bearer {CANARY}", "password": CANARY}))


def test_secrets_in_arguments_outputs_and_exceptions_reach_no_trace(tmp_path):
    """A canary in arguments, outputs, damaged texts and exception texts is 0 times in file and ring."""
    path = tmp_path / "t.jsonl"
    for payloads in ("redacted", "hash", "off"):
        guard = pokayoke.Guard(_tools(), config={"trace": {"path": str(path), "payloads": payloads}})
        with guard.run("run_1") as run:
            _secretive_calls(run)
            ring = str(list(run.trace))
        guard.close()
        assert len(ring) > 1_000
        assert CANARY not in ring
    text = path.read_text()
    assert text.count("\n") == 3 * 9  # nine events in each of the three modes
    assert CANARY not in text
    assert "bob" in text


def test_secrets_reach_no_command_output(tmp_path):
    """Reading the trace back shows the canary 0 times, as text, as JSON and as a report."""
    path = tmp_path / "t.jsonl"
    guard = pokayoke.Guard(_tools(), config={"trace": {"path": str(path)}})
    with guard.run("run_1") as run:
        _secretive_calls(run)
    guard.close()
    for words in ([str(path)], [str(path), "--json"], ["report", str(path)], ["report", str(path), "--json"]):
        done = _pokayoke("trace", *words)
        assert done.stdout
        assert CANARY.encode() not in done.stdout + done.stderr


def test_one_record_is_one_line(tmp_path):
    """Line feeds, carriage returns, U+0085, U+2028 and U+2029 in names, ids, arguments and results end no line."""
    path = tmp_path / "t.jsonl"
    ends = "a\nb\rc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i"
    tool = pokayoke.Contract.from_schema(
        "echo", {"type": "object"}, output_schema="text", effect="read", handler=lambda **given: ends
    )
    guard = pokayoke.Guard([tool], config={"trace": {"path": str(path)}})
    with guard.run(f"run{ends}") as run:
        run.call(pokayoke.ToolCall(f"id{ends}", "echo", {ends: ends}))
        run.call(pokayoke.ToolCall("id", f"no{ends}", "{" + ends))
        events = len(run.trace)
    guard.close()
    text = path.read_bytes().decode()
    assert len(text.splitlines()) == text.count("\n") == events >= 2
    assert json.loads(text.splitlines()[0])["arguments"] == {ends: ends}


def test_no_escape_reaches_a_terminal(tmp_path):
    """OSC 8, OSC 52, CSI and C1 bytes of tools, names and traces are 0 times on stdout and stderr, also when piped."""
    path = tmp_path / "t.jsonl"
    tool = pokayoke.Contract.from_schema(
        "echo", {"type": "object"}, output_schema="text", effect="read", handler=lambda **given: TERMINAL
    )
    guard = pokayoke.Guard([tool], config={"trace": {"path": str(path)}})
    with guard.run(f"run{TERMINAL}") as run:
        run.call(pokayoke.ToolCall("c1", "echo", {TERMINAL: TERMINAL}))
        run.call(pokayoke.ToolCall("c2", f"no{TERMINAL}", "{" + TERMINAL))
    guard.close()
    raw = tmp_path / "raw.jsonl"
    raw.write_text(
        json.dumps({"event": "e", "tool": TERMINAL, "reason": TERMINAL, "ok": False}, ensure_ascii=False)
        + f"\n{TERMINAL}\n"
    )
    definitions = tmp_path / "tools.json"
    definitions.write_text(json.dumps([{"name": f"t{TERMINAL}", "input_schema": {"type": TERMINAL}}]))
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"mode": TERMINAL}))
    good = tmp_path / "good.json"
    good.write_text('[{"name": "good", "input_schema": {"type": "object"}, "output_schema": "text", "timeout": 1}]')
    commands = [
        ["trace", str(path)], ["trace", str(path), "--json"], ["trace", "report", str(path)],
        ["trace", str(raw)], ["trace", str(raw), "--json"], ["trace", "report", str(raw)],
        ["trace", f"/missing/{TERMINAL}"], ["check", str(definitions)], ["check", str(config)],
        ["check", str(good), "--call", json.dumps({"name": f"x{TERMINAL}", "arguments": {TERMINAL: TERMINAL}})],
        ["check", str(good), "--json", "--call", json.dumps({"name": "good", "arguments": {TERMINAL: TERMINAL}})],
    ]  # fmt: skip
    assert b"\x1b" not in path.read_bytes()
    for words in commands:
        done = _pokayoke(*words)
        for stream in (done.stdout, done.stderr):
            text = stream.decode()
            acting = [c for c in text if (ord(c) < 0x20 and c != "\n") or 0x7F <= ord(c) <= 0x9F]
            assert acting == [], words


def _pokayoke(*words):
    return subprocess.run(
        [sys.executable, "-m", "pokayoke.cli", *words],
        capture_output=True,
        check=False,
        timeout=50,
        env=dict(os.environ),
    )


WRITERS = """
import itertools, json, os, random, signal, sys, time
from pokayoke.runtime.trace.file import TraceFile

def write(who, most=None):
    file = TraceFile(sys.argv[1], max_bytes=10**10, backups=1)
    for number in range(most) if most else itertools.count():
        lines = [{"who": who, "step": step, "pad": "x" * random.randrange(2_000)} for step in range(4)]
        file.append([json.dumps(line).encode() for line in lines])

def begun(*what):
    if (pid := os.fork()) == 0:
        write(*what)
        os._exit(0)
    return pid

survivor, kills = begun("survivor", 12_000), 0
while not os.waitpid(survivor, os.WNOHANG)[0]:
    pid = begun("killed")
    time.sleep(random.uniform(0.001, 0.004))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    kills += 1
print(kills)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows lets a write that has begun come to its end")
def test_killed_writers_cost_the_others_no_line(tmp_path):
    """Beside processes that are killed in the middle of a write, every line of one that lives is whole in the file."""
    path, whole, torn = tmp_path / "t.jsonl", Counter(), 0
    command = [sys.executable, "-c", WRITERS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    for line in path.read_bytes().splitlines():
        try:
            event = json.loads(line)
            whole[event["who"], event["step"]] += 1
        except ValueError:
            torn += 1
    path.unlink()
    print(f"{done.stdout.strip()} writers were killed, {torn} lines torn")
    assert [whole["survivor", step] for step in range(4)] == [12_000] * 4


def test_a_configuration_that_changes_during_calls_is_whole_or_old(tmp_path, monkeypatch):
    """Under renames and partial writes each run has one whole version; a bad file leaves the old one and an event."""
    monkeypatch.setattr(config_module, "_QUIET", 0.02)
    path, trace = tmp_path / "pokayoke.yaml", tmp_path / "t.jsonl"

    def version(number):
        return f"trace:\n  path: {trace}\nbudgets:\n  calls: {number}\n  rounds: {number}\n...\n"

    path.write_text(version(100))
    tool = pokayoke.Contract.from_schema(
        "echo", {"type": "object"}, output_schema="text", effect="read", handler=lambda **given: "x"
    )
    guard = pokayoke.Guard([tool], config=path)
    done = threading.Event()

    def write():
        beside = tmp_path / "new"
        for number in range(101, 131):
            beside.write_text(version(number))
            beside.rename(path)
            if number % 3 == 0:
                time.sleep(0.04)
            path.write_text(version(number)[: 40 + number % 30])
            if number % 10 == 0:
                path.write_text("budgets: {calls: ")
                time.sleep(0.06)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        run = guard.run()
        budgets = guard.policy.budgets
        seen.add((budgets.calls, budgets.rounds))
        assert run.call(pokayoke.ToolCall("c", "echo", {})).ok
    writer.join()
    path.write_text("budgets: {calls: ")
    time.sleep(0.05)
    guard.run()
    guard.close()
    assert len(seen) > 1
    assert all(calls == rounds and calls is not None for calls, rounds in seen)
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    reasons = [event for event in events if event["event"] == "config" and event["ok"] is False]
    assert reasons
    assert str(path) in reasons[-1]["reason"]
