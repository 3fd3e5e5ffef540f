"""A rollout while programs run: many processes, runs that are reopened, and a lock that changes under all of them."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import pokayoke
from pokayoke.core.versions.rollout import draw_number
from pokayoke.runtime.versions.lock_file import read_lock

WORKER = Path(__file__).parents[1] / "support" / "drift_worker.py"


def version(number, kind):
    """One version of a contract, as YAML."""
    return f"""
  - name: get_order
    version: "{number}"
    effect: read
    timeout: 5
    input_schema: {{type: object, properties: {{order_id: {{type: string}}}}, required: [order_id]}}
    output_schema: {{type: object, properties: {{order_id: {{type: string}}, total: {{type: {kind}}}}}, required: [total]}}
"""


@pytest.fixture
def shop(tmp_path):
    """A folder with two locked versions, and a function that runs a command there."""
    (tmp_path / "contracts.yaml").write_text("contracts:" + version(1, "number") + version(2, "[number, string]"))

    def command(*words):
        done = subprocess.run(
            [sys.executable, "-m", "pokayoke.cli", "contracts", *words],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    why = ("--by", "mo", "--reason", "test")
    command("lock", "contracts.yaml", "--stable", "get_order@1", *why)
    return tmp_path, lambda *words: command(*words, *why)


class Program:
    """A program with a guard; `go` lets it open runs, `done` waits until it has."""

    def __init__(self, folder, store, prefix, runs, *, lock="contracts.lock", answer=9.5, **trace):
        config = json.dumps({"trace": trace})
        words = [lock, store, prefix, runs, json.dumps(answer), config]
        self.process = subprocess.Popen(
            [sys.executable, WORKER, *map(str, words)],
            cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def done(self):
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        """What it saw, once it has ended well."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]


def store_in(folder):
    """A new store in a file."""
    url = f"sqlite:///{folder / 'runs.db'}"
    pokayoke.open_store(url, create=True).close()
    return url


STEPS = (
    ("canary", "get_order@2", "--share", "0.3"),
    ("widen", "get_order", "--share", "0.6"),
    ("promote", "get_order"),
    ("rollback", "get_order"),
    ("canary", "get_order@2", "--share", "0.5"),
    ("rollback", "get_order"),
    ("shadow", "get_order@2"),
    ("rollback", "get_order"),
)


@pytest.mark.timeout(180)
def test_no_run_sees_two_versions_while_the_lock_changes(shop):
    """Four processes share their runs and reopen them again and again, while eight steps change the lock.

    Every run keeps one version for its whole life, in every process; a withdrawn one is refused, never switched.
    """
    folder, step = shop
    url = store_in(folder)
    programs = [Program(folder, url, "shared", 12) for _ in range(4)]
    for words in STEPS:
        for program in programs:
            program.go()
        step(*words)  # while they work
        for program in programs:
            program.done()
    seen = [line for program in programs for line in program.end()]
    assert len(seen) == 4 * 12 * sum(range(1, 9))
    pins, used = defaultdict(set), defaultdict(set)
    for run, pin, shown, status, codes in seen:
        pins[run].add(pin)
        used[run].add(shown)
        if status != "ok":
            assert (status, codes) == ("refused", ["version_withdrawn"])
    assert {run: found for run, found in pins.items() if len(found) != 1} == {}
    assert used == {run: {f"get_order@{pin}" for pin in found} for run, found in pins.items()}
    # Both versions were in use, and what was withdrawn was asked for again: otherwise nothing is shown here.
    assert set().union(*pins.values()) == {"1", "2"}
    assert any(status == "refused" for *_, status, _ in seen)


def test_the_share_is_near_what_was_asked_for(shop):
    """Of 600 runs in three processes, a quarter gets the canary, as counted and exactly as drawn from their ids."""
    folder, step = shop
    step("canary", "get_order@2", "--share", "25%")
    url = store_in(folder)
    programs = [Program(folder, url, f"p{number}", 200) for number in range(3)]
    for program in programs:
        program.go()
    for program in programs:
        program.done()
    seen = [line for program in programs for line in program.end()]
    found = Counter(shown for _, _, shown, _, _ in seen)
    assert abs(found["get_order@2"] - 150) < 4 * (600 * 0.25 * 0.75) ** 0.5
    rollout = read_lock(folder / "contracts.lock").tools["get_order"].candidate.rollout
    for run, pin, *_ in seen:
        assert (pin == "2") is (draw_number(run, "get_order", rollout) < 0.25)


def test_a_killed_program_goes_on_with_its_version(shop):
    """Runs whose process was killed are reopened after a promotion with the version they began with."""
    folder, step = shop
    url = store_in(folder)
    killed = Program(folder, url, "killed", 5)
    killed.go()
    killed.done()
    killed.process.kill()
    killed.process.communicate()
    step("canary", "get_order@2", "--share", "1.0")
    step("promote", "get_order")
    again = Program(folder, url, "killed", 6)
    again.go()
    again.done()
    seen = {run: shown for run, _, shown, _, _ in again.end()}
    assert seen == {**{f"killed-{n}": "get_order@1" for n in range(5)}, "killed-5": "get_order@2"}


def day(folder, name, answer, **options):
    """Two programs at once, of thirty runs each; returns how many calls ended how, and with which version."""
    trace = {"path": f"{name}.trace", "sample_path": f"{name}.jsonl", "sample_share": 1.0, "sample_key_path": "key"}
    store = options.pop("store", "-")
    programs = [Program(folder, store, f"{name}{number}", 30, answer=answer, **trace, **options) for number in range(2)]
    for program in programs:
        program.go()
    seen = []
    for program in programs:
        program.done()
        seen += program.end()
    return Counter((shown, status) for _, _, shown, status, _ in seen)


@pytest.mark.timeout(300)
def test_the_whole_story_of_a_drift(tmp_path):
    """Answers change on day two; replay shows it, a new version is learnt, compared, tried, promoted, and taken back.

    Every step is one command, every day is two programs, and no answer of the wrong shape is ever handed on.
    """
    why = ("--by", "mo", "--reason", "drift")

    def command(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "pokayoke.cli", *words], cwd=tmp_path, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    assert day(tmp_path, "day1", 9.5, lock="-") == {("get_order@1", "ok"): 60}
    command("learn", "day1.jsonl", "-o", "v1.yaml")
    command("contracts", "lock", "v1.yaml", *why)

    assert day(tmp_path, "day2", "9.50 EUR") == {("get_order@1", "degraded"): 60}
    shown = json.loads(command("replay", "day2.jsonl", "--contracts", "v1.yaml", "--json", code=1))
    (tool,) = shown["contracts"][0]["tools"]
    assert (tool["outputs"], tool["invalid"], list(tool["faults"])) == (60, 60, ["wrong_type"])
    command("learn", "day2.jsonl", "--contract-version", "2", "-o", "v2.yaml")
    command("contracts", "lock", "v2.yaml", *why)
    found = json.loads(
        command("contracts", "diff", "get_order@1", "get_order@2", "--against", "day2.jsonl", "--json", code=1)
    )
    assert [one["breaks"] for one in found["tools"]["get_order@1 -> get_order@2"]] == [["readers", "tool"]]
    assert (found["against"]["calls"], found["against"]["mended"]) == (60, 60)

    command("contracts", "shadow", "get_order@2", *why)
    assert day(tmp_path, "shadow", "9.50 EUR") == {("get_order@1", "degraded"): 60}
    report = json.loads(command("trace", "report", "shadow.trace", "--json"))
    assert report["shadows"] == {"get_order@1 -> get_order@2": {"judged": 60, "differ": 60, "output": 60}}

    command("contracts", "canary", "get_order@2", "--share", "50%", *why)
    tried = day(tmp_path, "canary", "9.50 EUR")
    assert set(tried) == {("get_order@1", "degraded"), ("get_order@2", "ok")}
    assert abs(tried["get_order@2", "ok"] - 30) < 4 * (60 * 0.25) ** 0.5
    versions = json.loads(command("trace", "report", "canary.trace", "--json"))["versions"]
    assert versions["get_order@2"] == {"calls": tried["get_order@2", "ok"], "valid": tried["get_order@2", "ok"]}

    command("contracts", "promote", "get_order", *why)
    url = store_in(tmp_path)
    assert day(tmp_path, "new", "9.50 EUR", store=url) == {("get_order@2", "ok"): 60}
    command("contracts", "rollback", "get_order", *why)
    assert day(tmp_path, "day3", 9.5) == {("get_order@1", "ok"): 60}
    assert day(tmp_path, "new", 9.5, store=url) == {("get_order@2", "refused"): 60}
    steps = [one["step"] for one in json.loads(command("contracts", "history", "--json"))]
    assert steps == ["lock", "lock", "shadow", "canary", "promote", "rollback"]
