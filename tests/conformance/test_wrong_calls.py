"""Wrong calls: damaged values of every kind, over every recorded tool, beside two published recipes."""

import collections
import json
from typing import Any

import pytest
import recipes
import value_damage

from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.gate.confidence import call_confidence
from pokayoke.core.json.values import equal_json
from pokayoke.core.policy import Policy

pytestmark = pytest.mark.conformance
pytest.importorskip("json_repair")

POLICY = Policy()
GROUPS = ("provable", "likely", "lost")


def _guarded(args: dict[str, Any], contract: Contract, effect: str) -> dict[str, Any] | None:
    kinds = POLICY.corrections.read if effect == "read" else POLICY.corrections.write
    prepared = correct_arguments(args, contract, kinds=kinds)
    if prepared.findings or call_confidence((), prepared.corrections) < POLICY.confidence.threshold:
        return None
    return prepared.value


@pytest.fixture(scope="module")
def counted(shared, full):
    """Per way and kind of damage: executed right, executed wrong, refused; beside what still fitted."""
    rows = list(map(json.loads, (shared / "data" / "bfcl_calls.jsonl").read_text(encoding="utf-8").splitlines()))
    table: dict[str, dict[str, collections.Counter]] = collections.defaultdict(
        lambda: collections.defaultdict(collections.Counter)
    )
    fitted: collections.Counter = collections.Counter()
    samples: dict[tuple[str, str], list[Any]] = collections.defaultdict(list)
    for number, row in enumerate(rows if full else rows[::20]):
        schema = row["schema"]
        contract = Contract.from_schema(
            "tool", schema, correctors=value_damage.correctors(schema), identity=tuple(schema["properties"])
        )
        for case in value_damage.cases(number, row["args"], schema):
            if (
                contract.input.accepts(case.damaged)
                and not correct_arguments(case.damaged, contract, kinds=()).findings
            ):
                fitted[case.kind] += 1
                continue
            answers = {
                "write": _guarded(case.damaged, contract, "write"),
                "read": _guarded(case.damaged, contract, "read"),
                "contract-driven": recipes.contract_driven(case.damaged, schema, contract.input.accepts),
                "five guardrails": recipes.five_guardrails(case.damaged, schema, contract.input.accepts),
            }
            for way, answer in answers.items():
                verdict = "refused" if answer is None else "right" if equal_json(answer, case.truth) else "wrong"
                table[way][case.kind][verdict] += 1
                expected = "refused" if case.group != "provable" else "right"
                if way in ("write", "read") and verdict != expected and len(samples[way, case.kind]) < 3:
                    samples[way, case.kind].append((verdict, case.truth, case.damaged, answer))
    return table, fitted, samples


def _group(table: dict[str, collections.Counter], group: str) -> collections.Counter:
    total: collections.Counter = collections.Counter()
    for name, counts in table.items():
        if value_damage.KINDS[name][0] == group:
            total.update(counts)
    return total


def _cell(counts: collections.Counter) -> str:
    return f"{counts['right']}/{counts['wrong']}/{counts['refused']}"


def test_the_table(counted, capsys):
    """At least twelve kinds of damage were tried, and the table says what became of each."""
    table, fitted, samples = counted
    with capsys.disabled():
        print(f"\n{'damage':26}{'group':10}{'cases':>7}{'fits':>7}  right/wrong/refused:", *table, sep="  ")
        for name, (group, _) in value_damage.KINDS.items():
            cells = [_cell(table[way][name]) for way in table]
            cases = sum(table["write"][name].values())
            print(f"{name:26}{group:10}{cases:7}{fitted[name]:7}  " + "".join(f"{cell:>18}" for cell in cells))
        for group in GROUPS:
            cells = [_group(table[way], group) for way in table]
            print(f"{group:36}" + "".join(f"{_cell(c):>18}" for c in cells))
        for (way, name), found in samples.items():
            if value_damage.KINDS[name][0] == "provable" or any(item[0] == "wrong" for item in found):
                print(way, name, found[0])
    assert len(table["write"]) >= 12


def test_no_wrong_write(counted):
    """Not one damaged call of a writing tool runs with other arguments than the true ones."""
    table = counted[0]
    assert sum(counts["wrong"] for counts in table["write"].values()) == 0


def test_few_wrong_reads(counted):
    """At most 0.2 % of the damaged calls of a reading tool run with other arguments than the true ones."""
    table = counted[0]
    wrong = sum(counts["wrong"] for counts in table["read"].values())
    assert wrong <= 0.002 * sum(sum(counts.values()) for counts in table["read"].values())


def test_the_provable_is_recovered(counted):
    """At least 90 % of the provable cases run, with the true arguments, for writes as for reads."""
    table = counted[0]
    for way in ("write", "read"):
        counts = _group(table[way], "provable")
        assert counts["right"] >= 0.9 * sum(counts.values())


def test_the_recipes_do_worse(counted):
    """Both published recipes run calls with wrong arguments on the very cases where none of ours does."""
    table = counted[0]
    for way in ("contract-driven", "five guardrails"):
        assert sum(counts["wrong"] for counts in table[way].values()) > 0
