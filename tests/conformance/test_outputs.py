"""Recorded tool outputs, good and damaged, against hand-written contracts (POKAYOKE_FULL=1 for all of them)."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from output_contracts import BFCL, TAU
from output_damage import DAMAGES

from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.output.validate import check_output
from pokayoke.core.policy import ToolOutputPolicy

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

POLICY = ToolOutputPolicy()
RECORDINGS = {"tau_calls": TAU, "bfcl_multiturn_calls": BFCL}
LONGEST = {"tau_calls": 8_000, "bfcl_multiturn_calls": 4_000}  # longer outputs were cut by whoever recorded them
Row = tuple[Contract, str, dict[str, Any]]


def recorded(shared: Path, name: str) -> tuple[list[Row], list[Row]]:
    """The recorded answers of the tools that have a contract: those with data, and those that report a failure."""
    contracts = {one.name: one for one in RECORDINGS[name]}
    good: list[Row] = []
    errors: list[Row] = []
    for line in (shared / "data" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        contract, text = contracts.get(row["tool"]), row["output"]
        if contract is None or len(text) >= LONGEST[name]:
            continue
        try:
            arguments = json.loads(row["arguments"])
        except ValueError:
            continue
        if not isinstance(arguments, dict):
            continue
        failed = text.startswith(("Error", "None")) or (text.startswith("{") and "error" in json.loads(text))
        (errors if failed else good).append((contract, text, arguments))
    return good, errors


@pytest.fixture(scope="module", params=sorted(RECORDINGS))
def rows(request, shared, full):
    """Good and failed rows of one recording; a fixed tenth of them by default."""
    good, errors = recorded(shared, request.param)
    rng = random.Random(1)
    if not full:
        good, errors = rng.sample(good, len(good) // 10), rng.sample(errors, len(errors) // 10)
    return request.param, good, errors


def verdict(raw: Any, contract: Contract, arguments: dict[str, Any]):
    return check_output(raw, contract, arguments=arguments, policy=POLICY)


def test_good_outputs_pass(rows, capsys):
    """At most one good recorded output in a hundred is refused, as text, as Python value and over a wire alike."""
    name, good, _ = rows
    alarms: Counter[str] = Counter()
    for contract, text, arguments in good:
        forms = [text, json.loads(text), Raw(text.encode(), "application/json; charset=utf-8", 200)]
        results = [verdict(form, contract, arguments) for form in forms]
        assert len({result.ok for result in results}) == 1
        assert all(result.value == json.loads(text) for result in results)
        if not results[0].ok:
            found = results[0].findings[0]
            alarms[f"{contract.name} {found.code} {found.at}"] += 1
    with capsys.disabled():
        print(f"\n{name}: {len(good)} good outputs, {sum(alarms.values())} refused {dict(alarms)}")
    assert sum(alarms.values()) <= 0.01 * len(good)


def test_recorded_failures_are_no_data(rows):
    """An answer in which a tool reports a failure is never taken for data."""
    _, _, errors = rows
    assert errors
    assert [row[1] for row in errors if verdict(row[1], row[0], row[2]).ok] == []


def test_every_provable_damage_is_caught(rows, capsys):
    """No damaged output passes: every kind of damage is caught in every recorded output it applies to."""
    name, good, _ = rows
    rng = random.Random(2)
    seen: Counter[str] = Counter()
    passed: list[tuple[str, str, Any]] = []
    for contract, text, arguments in good:
        value = json.loads(text)
        for damage in DAMAGES:
            raw = damage(value, contract, rng)
            if raw is None:
                continue
            seen[damage.__name__] += 1
            result = verdict(raw, contract, arguments)
            if result.ok:
                passed.append((damage.__name__, contract.name, raw))
            else:
                assert result.failure is not None or all(found.blame == "tool" for found in result.findings)
    with capsys.disabled():
        print(f"\n{name}: {sum(seen.values())} damaged outputs, {len(passed)} passed; {dict(seen)}")
    assert passed[:5] == []
    assert set(seen) == {damage.__name__ for damage in DAMAGES}
