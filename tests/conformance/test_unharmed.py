"""What was right stays right: no recorded true call is refused or changed, compared call by call."""

import json
import math

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.intake import read_arguments
from pokayoke.core.policy import Policy

pytestmark = pytest.mark.conformance

KINDS = Policy().corrections.read
OPEN = Contract.from_schema("anything", {"type": "object"})


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar test over the discordant pairs: the probability under equal harm."""
    total = only_first + only_second
    tail = sum(math.comb(total, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, 2.0 * tail / 2.0**total)


def test_mcnemar_by_hand():
    """The exact test gives what can be counted by hand: 1 for no difference, 2 / 2**5 for 5 to 0."""
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(0, 5) == 2 / 32
    assert mcnemar(1, 5) == 2 * 7 / 64


def _rows(path, full):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in (lines if full else lines[::20])]


def _pairs(shared, full):
    """Yield (source, unguarded value or None, guarded value or None) of every recorded call."""
    for row in _rows(shared / "data" / "bfcl_calls.jsonl", full):
        text = json.dumps(row["args"], ensure_ascii=False)
        contract = Contract.from_schema("tool", row["schema"])
        reading = read_arguments(text, schema=contract.input)
        yield "truths under their schema", row["args"], _guarded(reading, contract)
    for name in ("tau_calls", "bfcl_multiturn_calls"):
        for row in _rows(shared / "data" / f"{name}.jsonl", full):
            yield name, json.loads(row["arguments"]), _guarded(read_arguments(row["arguments"]), OPEN)


def _guarded(reading, contract):
    if reading.grade not in ("exact", "lossless"):
        return None
    prepared = correct_arguments(reading.value, contract, kinds=KINDS, canonical=reading.canonical)
    return None if prepared.findings else prepared.value


def test_nothing_right_is_refused_or_changed(shared, full, capsys):
    """Every recorded call runs guarded as it runs unguarded: none refused, no value changed."""
    table = {}
    for source, plain, guarded in _pairs(shared, full):
        counts = table.setdefault(source, {"calls": 0, "both": 0, "only unguarded": 0, "only guarded": 0})
        counts["calls"] += 1
        kept = guarded is not None and json.dumps(guarded, sort_keys=True) == json.dumps(plain, sort_keys=True)
        counts["both" if kept else "only unguarded"] += 1
    with capsys.disabled():
        print()
        for source, counts in table.items():
            p = mcnemar(counts["only unguarded"], counts["only guarded"])
            print(f"{source:28}{counts}  McNemar exact p = {p:.3g}")
    assert sum(counts["only unguarded"] for counts in table.values()) == 0
