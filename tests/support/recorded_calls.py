"""Recordings of a small shop for tests of replay, and the report that they give."""

import json

from pokayoke.cli.output import as_json
from pokayoke.core.contract.contract import Contract
from pokayoke.replay.engines import open_local, run
from pokayoke.replay.parts import Merger, plan, read_parts, score_part
from pokayoke.replay.score.counts import Score, Tally
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.html_report import html_report
from pokayoke.replay.score.summary import ContractSet, build_summary

ORDER = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "amount": {"type": "integer", "minimum": 1, "maximum": 100}},
    "required": ["sku", "amount"],
    "additionalProperties": False,
}
DONE = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"], "additionalProperties": False}


def shop(maximum=100):
    """Two contracts."""
    order = {
        **ORDER,
        "properties": {**ORDER["properties"], "amount": {"type": "integer", "minimum": 1, "maximum": maximum}},
    }
    query = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    return [
        Contract.from_schema("create_order", order, output_schema=DONE),
        Contract.from_schema("find", query, output_schema="text", effect="read", version="2"),
    ]


def two_sets():
    """The shop as it is, and a stricter one to compare."""
    return [ContractSet("v1", Judge(shop())), ContractSet("v2", Judge(shop(20)))]


def shop_rows(number):
    """Yield calls of every kind: good and bad ones, cut lines, invented tools, three hundred different failures."""
    for n in range(number):
        good = {"sku": "S", "amount": n % 120}
        yield {"tool": "create_order", "arguments": good, "output": {"id": str(n)}, "truth": good, "run": str(n // 9)}
        if n % 5 == 0:
            word = "".join(chr(97 + n * 7 // 26**place % 26) for place in range(3))
            yield {"tool": "find", "arguments": '{"q": "x"}', "output": f"Error: no {word} here"}
        if n % 7 == 0:
            yield {"tool": "create_order", "arguments": '{"sku": "S", "amount": "3",}', "output": {"id": n}}
        if n % 11 == 0:
            yield {"tool": f"make_{n % 300}", "arguments": {}}
        if n % 501 == 5:
            yield "{cut"


def write_rows(path, rows):
    """Write JSON Lines; a text is written as it is. Return the name of the file."""
    with path.open("w") as file:
        file.writelines((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows)
    return str(path)


def write_trace(path, number):
    """Write our own trace, in which a call and its answer are different lines. Return the name of the file."""
    events = []
    for step in range(number):
        call = {"run_id": "r", "step": step, "tool": "create_order", "call_id": "c", "contract": "create_order@1"}
        given = {"sku": "S", "amount": step % 120}
        events.append({**call, "event": "tool_call", "ok": True, "decision": "allow", "arguments": given})
        events.append({**call, "event": "tool_result", "ok": True, "status": "ok", "result": {"id": "1"}})
    return write_rows(path, events)


def score_local(names, sets, *, jobs=1, told=None, size=4_000_000):
    """Return the score of recordings on this machine."""
    score = Score(tallies=[Tally() for _ in sets])
    with open_local(sets, jobs=jobs) as engine:
        assert run(engine, score_part, read_parts(names, size=size), Merger(score, told)) == []
    return score


def score_planned(engine, names, sets, size, told=None):
    """Return the score of recordings on an engine, and the parts it lost."""
    score = Score(tallies=[Tally() for _ in sets])
    lost = run(engine, score_part, plan(names, size=size), Merger(score, told))
    return score, lost


def report(score, names, sets):
    """Return everything that is shown of a score, as bytes."""
    shown = build_summary(score, names, sets)
    return as_json(shown).encode(), html_report(shown).encode()
