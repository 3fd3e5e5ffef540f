"""What a run knows of its calls is bounded, and what it says of them stays true."""

from collections import deque

import pytest

import pokayoke
from pokayoke.core.provenance import provenance
from pokayoke.runtime.memory import call_log, completed_writes, seen_answers
from pokayoke.stores import open_store


@pytest.fixture
def few(monkeypatch):
    """Windows of a few calls, so that a short run is a long one."""
    monkeypatch.setattr(call_log, "_KEPT_EFFECTS", 20)
    monkeypatch.setattr(completed_writes, "_KEPT", 20)
    monkeypatch.setattr(seen_answers, "_MOST_EFFECTS", 20)
    monkeypatch.setattr(provenance, "_MOST_CALLS", 20)
    monkeypatch.setattr(provenance, "_MOST_WAITING_CALLS", 20)


@pytest.fixture
def run(tmp_path):
    """A run over a ledger in a file, with a write, a read, and a write that fails as nobody knows."""

    @pokayoke.tool(effect="write", repeats="once")
    def put(key: int) -> dict:
        """Write a record."""
        return {"key": key}

    @pokayoke.tool(effect="read")
    def look(key: int) -> dict:
        """Read a record."""
        return {"key": key}

    @pokayoke.tool(effect="write")
    def lose(key: int) -> dict:
        """Fail, as nobody knows."""
        raise pokayoke.ToolError(f"lost {key}", effect="unknown")

    config = {"loop": {"off": "*"}, "trace": {"ring": 10}}
    url = f"sqlite:///{tmp_path}/ledger.db"
    open_store(url, create=True).close()
    with pokayoke.Guard([put, look, lose], config=config, store=url) as guard:
        yield guard.run("r")


def call(run, tool, key, ident=None):
    return run.call(pokayoke.ToolCall(ident or f"{tool}-{key}", tool, {"key": key}))


def count_kept(run):
    """How many things each part of a run's memory holds; a set of hashes takes eight bytes for each, and is left out."""
    memory = run.progress
    parts = (memory, memory.matters, memory.written, memory.values, memory.values._provenance, run.seen)
    kinds = (dict, set, list, deque)
    return {
        (type(part).__name__, name): len(held)
        for part in parts
        for name, held in vars(part).items()
        if isinstance(held, kinds)
    }


@pytest.mark.parametrize("tool", ["put", "look", "lose"])
@pytest.mark.usefixtures("few")
def test_a_run_does_not_grow_with_its_calls(run, tool):
    """Three times as many calls leave each part of its memory as large."""
    counts, number = [], 0
    for until in (60, 180):
        while number < until:
            number += 1
            call(run, tool, number)
        counts.append(count_kept(run))
    assert counts[1] == counts[0]
    assert max(counts[1].values()) <= 200


@pytest.mark.usefixtures("few")
def test_what_is_old_is_still_counted_once(run):
    """An effect that is older than what is kept in order stays known: its replay adds none, and nothing of it is undone."""
    for number in range(60):
        assert call(run, "put", number).status == "ok"
    matters = run.progress.matters
    again = call(run, "put", 0, "another")
    assert again.effect == "done" or again.status == "pending"
    assert (len(matters.done_tools), len(matters._done)) == (60, 20)
    assert "put (60 times)" in run.answer("").text


@pytest.mark.usefixtures("few")
def test_doubts_of_very_many_calls_are_still_said(run):
    """Of the oldest failures only the tool is kept, and the answer speaks of it as before."""
    for number in range(60):
        call(run, "lose", number)
    assert len(run.progress.matters._unknown) <= 21
    assert "lose" in run.answer("").text
