"""Contracts learnt on one half of real recordings, held against the other half (POKAYOKE_FULL=1: both files, five seeds)."""

import copy
import json
import random
from collections import Counter

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.core.intake import read_arguments
from pokayoke.core.output.validate import check_output
from pokayoke.core.policy import ToolOutputPolicy
from pokayoke.replay.engines import open_local, run
from pokayoke.replay.learn.learner import Learner
from pokayoke.replay.learn.yaml_writer import yaml_text
from pokayoke.replay.parts import Merger, read_parts, score_part
from pokayoke.replay.readers import Source
from pokayoke.replay.recording import Recording
from pokayoke.replay.score.counts import Score, Tally
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.scorer import Scorer
from pokayoke.replay.score.summary import ContractSet, build_summary
from pokayoke.runtime.config.yaml_reader import read_document

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

POLICY = ToolOutputPolicy()
LONGEST = {"tau_calls": 8_000, "bfcl_multiturn_calls": 4_000}  # longer outputs were cut by whoever recorded them
OTHER_KINDS = {str: 7, int: "seven", float: "seven", bool: "maybe", list: 7, dict: 7, type(None): [[7]]}


def is_error(output):
    """The rule by which the data's own description counts 931 errors: the word near the beginning. Not the learner's."""
    return "error" in output[:40].lower()


def rows_of(shared, name):
    return list(map(json.loads, (shared / "data" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()))


def task(row):
    return f"{row.get('domain', '')} {row['task_id']}"


def cases(full):
    return [(name, seed) for name in LONGEST for seed in (range(1, 6) if full else (1,))]


@pytest.fixture(scope="module")
def halves(shared, full):
    """Per file and seed: the contracts of one half of its tasks, read back from their YAML, and the rows of the other."""
    found = {}
    for name, seed in cases(full):
        rows = rows_of(shared, name)
        tasks = sorted({task(row) for row in rows})
        chosen = set(random.Random(seed).sample(tasks, len(tasks) // 2))
        learner = Learner()
        learner.add_recordings(
            Recording(row["tool"], row["arguments"], row["output"], run=task(row))
            for row in rows
            if task(row) in chosen
        )
        document = read_document(yaml_text(*learner.build_drafts())).value
        contracts = {one["name"]: Contract.from_mapping(one) for one in document["contracts"]}
        found[name, seed] = contracts, [row for row in rows if task(row) not in chosen], rows
    return found


def data_of(row):
    """The answer as an object, or None if it is none."""
    try:
        value = json.loads(row["output"])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def good(rows, name):
    """The calls whose output is no error, with their arguments; cut outputs are no longer what the tool said."""
    for row in rows:
        if not is_error(row["output"]) and len(row["output"]) < LONGEST[name]:
            yield row, read_arguments(row["arguments"]).value


def test_good_calls_of_the_other_half_are_accepted(halves, capsys):
    """At least 98 % of the other half's good calls, and of their outputs, fit contracts that never saw them."""
    for (name, seed), (contracts, rows, _) in halves.items():
        total, refused = 0, Counter()
        for row, arguments in good(rows, name):
            total += 1
            contract = contracts.get(row["tool"])
            if contract is None:
                refused["call"] += 1
                refused["output"] += 1
                continue
            refused["call"] += not contract.input.accepts(arguments)
            refused["output"] += not check_output(row["output"], contract, arguments=arguments, policy=POLICY).ok
        with capsys.disabled():
            shares = {kind: f"{1 - refused[kind] / total:.2%}" for kind in ("call", "output")}
            print(f"\n{name} seed {seed}: {total} good calls of the other half, accepted {shares}")
        assert total > 1_000
        assert refused["call"] <= 0.02 * total
        assert refused["output"] <= 0.02 * total


def damaged(arguments, required, rng):
    """The arguments damaged in one of three ways, as (what, value)."""
    for field in required:
        if field in arguments:
            yield "removed", {key: value for key, value in arguments.items() if key != field}
    yield "added", {**arguments, "zz_extra": "x"}
    for field, value in arguments.items():
        changed = copy.deepcopy(arguments)
        changed[field] = OTHER_KINDS[type(value)]
        yield "retyped", changed


def test_damaged_calls_of_the_other_half_are_refused(halves, capsys):
    """At least 95 % of the same calls are refused once a required field is removed, one is added, or a type changed.

    Required is, independently of the learner, what every good call of the tool has in the whole file.
    """
    for (name, seed), (contracts, rows, whole) in halves.items():
        always = {}
        for row, arguments in good(whole, name):
            always[row["tool"]] = always.get(row["tool"], set(arguments)) & set(arguments)
        rng = random.Random(seed)
        tried, refused, whole_guard = Counter(), Counter(), Counter()
        judge = Judge(contracts.values())
        for row, arguments in good(rows, name):
            contract = contracts.get(row["tool"])
            for what, value in damaged(arguments, sorted(always[row["tool"]]), rng):
                tried[what] += 1
                refused[what] += contract is None or not contract.input.accepts(value)
                found = judge.judge_call(Recording(row["tool"], value))
                # What a correction brings back to what it was before the damage is not let through: it is mended.
                whole_guard[what] += found.refusal is not None or found.arguments == arguments
        with capsys.disabled():
            shares = {what: f"{refused[what] / tried[what]:.2%} of {tried[what]}" for what in tried}
            mended = {what: f"{whole_guard[what] / tried[what]:.2%}" for what in tried}
            print(f"\n{name} seed {seed}: refused {shares}; by the whole guard, corrections and all: {mended}")
        assert all(refused[what] >= 0.95 * tried[what] for what in tried)
        assert set(tried) == {"removed", "added", "retyped"}


def test_damaged_answers_of_the_other_half_are_refused(halves, capsys):
    """At least 95 % of the other half's data answers are refused once a required top-level field is gone or of another type."""
    for (name, seed), (contracts, rows, whole) in halves.items():
        always = {}
        for row, _ in good(whole, name):
            value = data_of(row)
            if value is not None:
                always[row["tool"]] = always.get(row["tool"], set(value)) & set(value)
        tried, refused = Counter(), Counter()
        for row, arguments in good(rows, name):
            contract = contracts.get(row["tool"])
            value = data_of(row)
            if (
                contract is None
                or not isinstance(value, dict)
                or contract.output is None
                or not always.get(row["tool"])
            ):
                continue
            for what, changed in damaged(value, sorted(always[row["tool"]]), None):
                if what == "retyped" and changed == value:
                    continue
                tried[what] += 1
                refused[what] += not check_output(json.dumps(changed), contract, arguments=arguments, policy=POLICY).ok
        with capsys.disabled():
            shares = {what: f"{refused[what] / tried[what]:.2%} of {tried[what]}" for what in tried}
            print(f"\n{name} seed {seed}: answers refused {shares}")
        assert refused["removed"] >= 0.95 * tried["removed"]
        assert tried["removed"] > 500


def test_every_real_tool_error_is_named(shared, capsys):
    """The report names all 931 answers that the data's description calls errors, and at most 1 % of the others."""
    named, others, missed, stated, total = 0, 0, [], 0, 0
    for name in LONGEST:
        rows = rows_of(shared, name)
        learner = Learner()
        learner.add_recordings(Recording(row["tool"], row["arguments"], row["output"], run=task(row)) for row in rows)
        judge = Judge(Contract.from_mapping(draft.mapping) for draft in learner.build_drafts()[0])
        for row in rows:
            found = judge.judge_call(Recording(row["tool"], row["arguments"], row["output"]))
            is_named = found.output == "failed" or found.mentions
            stated += found.output == "failed"
            total += 1
            if is_error(row["output"]):
                named += is_named
                if not is_named:
                    missed.append(row["output"][:100])
            else:
                others += is_named
    with capsys.disabled():
        print(
            f"\n{named} of 931 errors named, {stated} of them as stated by the tool; {others} of {total - 931} others"
        )
    assert missed == []
    assert named == 931
    assert others <= 0.01 * (total - 931)


def test_the_report_adds_the_errors_up(shared, tmp_path):
    """The figures of the report are those of the calls: stated and mentioned errors, per tool and in all."""
    name = str(shared / "data" / "tau_calls.jsonl")
    fields = {"run": "task_id"}
    learner = Learner()
    with Source(name, fields=fields) as source:
        learner.add_recordings(source.read_recordings())
    judge = Judge(Contract.from_mapping(draft.mapping) for draft in learner.build_drafts()[0])
    sets = [ContractSet("learnt", judge)]
    score = Score(tallies=[Tally()])
    with open_local(sets, jobs=2) as engine:
        run(engine, score_part, read_parts([name], fields=fields), Merger(score))
    shown = build_summary(score, [name], sets)
    (one,) = shown["contracts"]
    assert one["failed"] == 134
    assert sum(tool["failed"] for tool in one["tools"]) == 134
    assert sum(sum(tool["errors"].values()) for tool in one["tools"]) == 134
    assert shown["calls"] == 2_778
    with Source(name, fields=fields) as source:
        assert Scorer([judge]).score_recordings(source.read_recordings()) == score
