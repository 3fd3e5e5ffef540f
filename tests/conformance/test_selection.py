"""Staged selection on the questions of a public benchmark: is the right tool among the candidates, and what is saved?

Measured: catalogues of 500 tools, drawn from all that the recorded questions call (one contract per name), and every
question whose tool is in the catalogue. A question that needs several tools counts once for each. What is sent are
the definitions in the format of chat completions, in characters, the tool that searches included.
"""

import json
import random

import pytest

import pokayoke
from pokayoke.core.contract.names import provider_name

pytestmark = pytest.mark.conformance

TOOLS, MOST = 500, 30


@pytest.fixture(scope="module")
def rows(shared):
    """The recorded questions with the call that answers them."""
    return list(map(json.loads, (shared / "data" / "bfcl_calls.jsonl").read_text(encoding="utf-8").splitlines()))


@pytest.fixture(scope="module")
def contracts(rows):
    """One contract for each tool, as it is described where it first occurs."""
    found = {}
    for row in rows:
        contract = pokayoke.Contract.from_schema(
            row["tool"], row["schema"], description=row["description"], effect="read"
        )
        found.setdefault(provider_name(row["tool"], "openai"), contract)
    return {contract.name: contract for contract in found.values()}


def measured(rows, contracts, seed, *, every):
    """Questions, those with the right tool among the candidates, and the shares of characters sent."""
    names = random.Random(seed).sample(sorted(contracts), TOOLS)
    guard = pokayoke.Guard(
        [contracts[name] for name in names], config={"validation": {"tool_output": {"schema": "declared"}}}
    )
    run, catalogue = guard.run(), set(names)
    whole = len(json.dumps(run.tools()))
    asked = [row for row in rows if row["tool"] in catalogue][::every]
    hits, shares = 0, []
    for row in asked:
        hits += row["tool"] in run.select(row["question"], MOST).names
        shares.append(len(json.dumps(run.tools())) / whole)
    return len(asked), hits, sum(shares) / len(shares), max(shares), whole


def test_a_catalogue_of_500_tools(rows, contracts, full, capsys):
    """The definitions sent are cut by at least 90 %, and the right tool is among the candidates for at least 95 %."""
    for seed in range(10 if full else 2):
        questions, hits, share, worst, whole = measured(rows, contracts, seed, every=1 if full else 5)
        with capsys.disabled():
            print(
                f"\nselection, catalogue {seed}: {questions} questions, right tool among {MOST} of {TOOLS}: "
                f"{hits / questions:.2%}; sent {share:.2%} of {whole:,} characters, at most {worst:.2%}"
            )
        assert hits / questions >= 0.95
        assert share <= 0.10
