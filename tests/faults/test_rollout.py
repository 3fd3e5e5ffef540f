"""A rollout while programs run: many processes, runs that are reopened, and a lock that changes under all of them."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import pokayoke
from pokayoke.core.rollout import drawn
from pokayoke.runtime.lockfile import read_lock

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

    def __init__(self, folder, store, prefix, runs):
        words = [folder / "contracts.lock", store, prefix, runs, "9.5"]
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
        assert (pin == "2") is (drawn(run, "get_order", rollout) < 0.25)


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
