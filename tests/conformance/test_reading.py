"""Reading at full size: recorded texts, other people's damage, our own, and the published JSON suite.

Run with `-s` for the tables and with POKAYOKE_FULL=1 for full size. *Silently wrong* means: graded exact
or lossless, with a value that is not the one that was meant.
"""

import importlib.util
import json
import random
import re
from collections import Counter, defaultdict

import pytest
from reading_damage import DAMAGES

from pokayoke.core.intake import read_arguments, read_calls
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.schema.schema import compile_schema

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1800)]

PROVEN = ("exact", "lossless")


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def same(first, second):
    """Equal with types, whatever the order of keys."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def is_strict(text):
    """True for texts that strict JSON parsers accept: their damage cannot be seen."""
    try:
        json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


def verdict(reading, truth):
    """The grade, with + for the truth and ! for anything else."""
    if reading.value is None:
        return reading.grade
    return reading.grade + ("+" if same(reading.value, truth) else "!")


def table(title, lines):
    print(f"\n{title}")
    for name, counts in lines.items():
        print(f"  {name:28}", *(f"{grade} {count}" for grade, count in sorted(counts.items())))


def wrong(counts):
    """How many were silently wrong."""
    return sum(counts[f"{grade}!"] for grade in PROVEN)


@pytest.fixture(scope="module")
def calls(shared):
    """Recorded calls with their compiled schemas."""
    found = rows(shared / "data" / "bfcl_calls.jsonl")
    for row in found:
        row["schema"] = compile_schema(row["schema"])
    return found


@pytest.fixture(scope="module")
def corruption(shared):
    """The shared generator of damaged texts."""
    spec = importlib.util.spec_from_file_location("corrupt", shared / "bench" / "corrupt.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shared_damage(calls, corruption, full):
    """Per seed, at least 99 % of lossless texts are recovered, none silently wrong.

    Two kinds of texts are left out, as nothing in them proves the value: a missing final brace, and a raw line break
    that is the only white space of its value, which is read for reads only.
    """
    size = 300 if full else 25
    for seed in (7, 11, 101, 2026, 31337) if full else (5,):
        shuffled = calls[:]
        random.Random(seed).shuffle(shuffled)
        found = defaultdict(Counter)
        for row in shuffled:
            for name in corruption.OPERATORS:
                if found[name].total() < size:
                    for case in corruption.corrupt(row["args"], seed, name):
                        reading = read_arguments(case.text, schema=row["schema"])
                        seen = verdict(reading, case.original)
                        found[name][f"slip {seen}" if reading.reason == "raw_line_break" else seen] += 1
        table(f"seed {seed}", found)
        kept = [name for name, (kind, _) in corruption.OPERATORS.items() if kind == "lossless"]
        kept.remove("missing_final_brace")
        assert found["raw_newline"]["slip edited+"] > 0
        shares = [
            sum(found[name][f"{grade}+"] for grade in PROVEN) / (found[name].total() - found[name]["slip edited+"])
            for name in kept
        ]
        print(f"  lossless recovered: {sum(shares) / len(shares):.4f}")
        assert {name: wrong(counts) for name, counts in found.items() if wrong(counts)} == {}
        assert sum(shares) / len(shares) >= (0.99 if full else 0.98)


def test_recorded_texts_with_a_provable_truth(shared):
    """All 2,892 recorded texts whose truth can be proven are read right."""
    found = Counter()
    for row in rows(shared / "data" / "malformed_real.jsonl"):
        if row["how"] and row["form"] != "envelope_list":
            found[verdict(read_arguments(row["raw"]), row["intended"])] += 1
    table("recorded texts", {"one object": found})
    assert found == {"lossless+": 2892}


ARGUMENTS = ("arguments", "args", "parameters", "params", "input")

NOT_CALLS = 2
"""Recorded lists whose items are no envelopes: split, and every item refused."""
NO_LITERALS = 1
"""A recorded list with a backslash that Python keeps and JSON's readers drop: refused."""


def test_recorded_lists_of_calls_are_split_in_order(shared):
    """All 659 recorded lists are split in order, item by item; none gives a call that is not there."""
    found = Counter()
    for row in rows(shared / "data" / "malformed_real.jsonl"):
        if row["form"] != "envelope_list":
            continue
        truth = [
            (item["name"], next((item[key] for key in ARGUMENTS if key in item), None))
            if isinstance(item, dict) and "name" in item
            else None
            for item in row["intended"]
        ]
        calls = [(call.name, call.reading.value) for call in read_calls(row["raw"]).calls]
        assert len(calls) == len(truth), row["id"]
        if json.dumps(calls) == json.dumps(truth):
            found["right"] += 1
        elif all(value is None or (name, value) in truth for name, value in calls):
            found["refused" if any(calls) and all(item and item[1] for item in truth) else "not calls"] += 1
        else:
            found["wrong"] += 1
    table("recorded lists", {"calls": found})
    assert found == {"right": 659 - NOT_CALLS - NO_LITERALS, "not calls": NOT_CALLS, "refused": NO_LITERALS}


def test_recorded_texts_without_a_truth_are_mostly_refused(shared):
    """Of the recorded texts nobody can be sure about, fewer than one in five gives a value: tags or sentences round one."""
    found, repairs = Counter(), Counter()
    for row in rows(shared / "data" / "malformed_real.jsonl"):
        if not row["how"]:
            reading = read_arguments(row["raw"])
            found[reading.reason or reading.grade] += 1
            if reading.value is not None:
                repairs[" ".join(reading.repairs)] += 1
    table("recorded texts without a truth", {"reasons": found, "repairs": repairs})
    assert sum(repairs.values()) < 0.2 * found.total()


OTHER_ANSWERS = {
    "{}": "the library's test asks for its log as well; the value is the same empty object",
}


def test_repair_libraries_would_agree(shared):
    """On the test inputs of two repair libraries, every proven answer is theirs too, but for the ones explained here."""
    differing, answered = set(), 0
    for row in rows(shared / "data" / "malformed_tests.jsonl"):
        reading = read_arguments(row["raw"])
        answered += reading.grade in PROVEN
        if reading.grade in PROVEN and not same(reading.value, row["library_answer"]):
            differing.add(row["raw"])
    print(f"\ninputs of repair libraries: {answered} answered, {len(differing)} unlike theirs")
    assert differing == OTHER_ANSWERS.keys()


# ------------------------------------------------------------------ blind damage


def layout(value, rng):
    """A valid text in one of the three usual layouts."""
    style = rng.randrange(3)
    separators = (",", ":") if style == 0 else None
    return json.dumps(value, ensure_ascii=False, separators=separators, indent=2 if style == 2 else None)


def cut(text, rng):
    return text[: rng.randrange(1, len(text))]


def deleted(text, rng):
    """1 to 19 characters gone, never all."""
    length = min(rng.randrange(1, 20), len(text) - 1)
    at = rng.randrange(len(text) - length + 1)
    return text[:at] + text[at + length :]


def without_sign(text, rng):
    """One structural character gone, quotes included."""
    signs = [m.start() for m in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]', text)]
    signs += [m.end() - 1 for m in re.finditer(r'"(?:[^"\\]|\\.)*"', text)]
    at = rng.choice(sorted(signs))
    return text[:at] + text[at + 1 :]


def blind(calls, change, count, seed):
    """Damage random calls until `count` texts are left that strict JSON refuses."""
    rng, found = random.Random(seed), Counter()
    while sum(found.values()) - found["still strict"] - found["wrong and valid"] < count:
        row = rng.choice(calls)
        text = change(layout(row["args"], rng), rng)
        if is_strict(text):
            found["still strict"] += 1
            continue
        reading = read_arguments(text, schema=row["schema"])
        seen = verdict(reading, row["args"])
        found[seen] += 1
        if seen in ("exact!", "lossless!") and row["schema"].is_valid(reading.value):
            found["wrong and valid"] += 1
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_cuts_and_deletions(calls, full, seed):
    """Of texts cut anywhere, or with 1 to 19 characters gone, at most 0.1 % pass silently wrong and fit the schema."""
    count = 20_000 if full else 1_000
    found = {change.__name__: blind(calls, change, count // 2, f"{seed}{change.__name__}") for change in (cut, deleted)}
    table(f"random damage, seed {seed}", found)
    assert wrong(found["cut"]) == 0
    chance = 0 if full else 3  # a small sample may hold one more
    assert sum(counts["wrong and valid"] for counts in found.values()) <= 0.001 * count + chance
    assert sum(map(wrong, found.values())) <= 0.002 * count + chance


def test_one_lost_sign(calls, full):
    """Of texts that lost one structural character at least 77 % come back right, none of the rest comes back wrong."""
    count = 6_000 if full else 500
    found = blind(calls, without_sign, count, 4)
    table("one lost sign", {"without_sign": found})
    assert found["edited+"] + found["lossless+"] >= 0.77 * count
    assert (found["edited!"], wrong(found)) == (0, 0)


def is_a_slip(text, schema):
    """True if the text is byte for byte what a comma too many or too few in a valid object looks like.

    With a schema the reader tells lost lines by the property that is absent, so only a comma before the
    brace on one line counts; without one nothing tells them.
    """
    if schema is None:
        plain = re.sub(r",(\s*\})", r"\1", re.sub(r"([^\s,{\[])(\n\s*\")", r"\1,\2", text))
    else:
        plain = re.sub(r",([ ]*\})", r"\1", text)
    return plain != text and is_strict(plain)


@pytest.mark.parametrize("name", DAMAGES)
def test_our_own_damage(calls, full, name):
    """No text of any of our own operators is silently wrong, with the tool's schema and without.

    Texts that strict JSON accepts are left out, and so is the one loss that has the bytes of a slip: the
    last member of an object gone, its comma and brace still there.
    """
    assert len(DAMAGES) >= 25
    seeds, count = ((1, 2, 3, 4), 1_500) if full else ((1,), 60)
    for given in (True, False):
        found = Counter()
        for seed in seeds:
            rng = random.Random(f"{seed}{name}")
            for row in rng.choices(calls, k=count):
                text = DAMAGES[name](row["args"], rng)
                if not (text or "").strip() or is_strict(text):
                    found["strict" if text else "does not apply"] += 1
                    continue
                schema = row["schema"] if given else None
                seen = verdict(read_arguments(text, schema=schema), row["args"])
                if seen == "lossless!" and is_a_slip(text, schema):
                    seen = "a slip's bytes"
                found[seen] += 1
                assert seen not in ("exact!", "lossless!"), (text, row["args"])
        table("with schema" if given else "without", {name: found})


# ------------------------------------------------------------------ the JSON suite


def test_the_json_suite(shared):
    """No file that must be refused is exact, all that must parse do, but for the one with an unequal duplicate."""
    found, refused = Counter(), []
    for path in sorted((shared / "data" / "jsontestsuite").iterdir()):
        data, kind = path.read_bytes(), path.name[0]
        reading = read_arguments(data)
        try:
            parse(data)
            strict = True
        except StrictError:
            strict = False
        found[f"{kind} parsed" if strict else f"{kind} refused"] += 1
        found[f"{kind} exact"] += reading.grade == "exact"
        if kind == "n":
            assert not strict, path.name
            assert reading.grade != "exact", path.name
        if kind == "y" and not strict:
            refused.append(path.name)
    table("the JSON suite", {"files": found})
    assert refused == ["y_object_duplicated_key.json"]
    assert found["y parsed"] == 94
