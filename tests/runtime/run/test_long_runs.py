"""A run does not become slower or larger with what it has seen."""

import gc
import json
import sys

import pytest

import pokayoke

PAGE = "<html><body>Bad gateway</body></html>"


@pokayoke.tool(effect="read")
def lookup(key: int) -> dict:
    """Return a record; a negative key has none."""
    return PAGE if key < 0 else {"key": key}


@pokayoke.tool(effect="read")
def fail(key: int) -> dict:
    """Fail."""
    raise pokayoke.ToolError("no")


@pokayoke.tool(effect="write")
def put(key: int) -> dict:
    """Write a record."""
    return {"key": key}


def call(run, number, tool, arguments):
    return run.call(pokayoke.ToolCall(f"c{number}", tool, json.dumps(arguments)))


def talk(run, number):
    run.user(f"question {number}")
    call(run, number, "lookup", {"key": number})


KINDS = {
    "invalid outputs": lambda run, number: call(run, number, "lookup", {"key": -number}),
    "one invalid output": lambda run, number: call(run, number, "lookup", {"key": -1}),
    "invented tools": lambda run, number: call(run, number, f"invented_{number}", {"key": 1}),
    "wrong arguments": lambda run, number: call(run, number, "lookup", {"key": f"x{number}"}),
    "unreadable arguments": lambda run, number: run.call(
        pokayoke.ToolCall(f"c{number}", "lookup", f'{{"key": {number}')
    ),
    "failures": lambda run, number: call(run, number, "fail", {"key": number}),
    "refused writes": lambda run, number: call(run, number, "put", {"key": f"x{number}"}),
    "valid outputs": lambda run, number: call(run, number, "lookup", {"key": number}),
    "turns": talk,
}


def instructions(run, tool, number):
    """How many byte codes a valid call takes."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    wanted = pokayoke.ToolCall(f"valid{number}", tool, json.dumps({"key": number}))
    before = sys.gettrace()  # coverage may watch
    sys.settrace(trace)
    try:
        outcome = run.call(wanted)
    finally:
        sys.settrace(before)
    assert outcome.status == "ok" or tool == "put", outcome
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_costs_the_same_after_all_that_a_run_has_seen(kind):
    """Three times as many events leave a valid read and a write as cheap, and the run as large."""
    guard = pokayoke.Guard([lookup, fail, put], config={"loop": {"off": "*"}})
    run, costs, sizes, number = guard.run(), [], [], 0
    for until in (600, 1_800):
        while number < until:
            number += 1
            KINDS[kind](run, number)
        call(
            run, number, "put", {"key": -number}
        )  # reads the outputs up to here, and is one of untrusted content itself
        costs.append(
            [min(instructions(run, tool, 9_000_000 + until + k) for k in range(5)) for tool in ("put", "lookup")]
        )
        gc.collect()
        sizes.append(len(gc.get_objects()))
    assert costs[1] == pytest.approx(costs[0], rel=0.02)
    assert sizes[1] <= sizes[0] * 1.01
