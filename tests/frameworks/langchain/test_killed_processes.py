"""Processes that are killed and resumed from LangGraph's checkpoint."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_process import effects

import pokayoke


@pytest.fixture(scope="module")
def nursery():
    """The process of `langchain_process.py`, which starts the others."""
    here = Path(__file__).with_name("langchain_process.py")
    with subprocess.Popen([sys.executable, here], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def folder(tmp_path):
    pokayoke.open_store(f"sqlite:///{tmp_path}/ledger.db", create=True).close()
    return tmp_path


@pytest.fixture
def play(folder, nursery):
    """Plays one process; returns what it left."""

    def played(*step, dies=False):
        (folder / "deadly").touch() if dies else (folder / "deadly").unlink(missing_ok=True)
        nursery.stdin.write(json.dumps([str(folder), *step]) + "\n")
        nursery.stdin.flush()
        ended = json.loads(nursery.stdout.readline())
        assert ended["exit"] == (-signal.SIGKILL if dies else 0)
        assert dies or "wrong" not in ended["result"], ended["result"]["wrong"]
        return ended["result"]

    return played


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("kind", "said", "state"),
    [
        ("human", "not known whether", "in_doubt"),
        ("lookup", "refunded", "completed"),
        ("downstream", "refunded", "completed"),
    ],
)
def test_a_process_killed_in_mid_write_leaves_one_effect(folder, play, kind, said, state, mode):
    """Killed after the effect and before its record, and resumed from LangGraph's checkpoint, it happened once.

    A write nobody can ask about is in doubt; one whose target can be asked, or drops repeats, is completed.
    """
    play(kind, mode, "begin", dies=True)
    assert len(effects(folder)) == 1
    again = play(kind, mode, "go on")
    assert len(effects(folder)) == 1
    assert again["ledger"] == [state]
    assert said in again["said"][-1][1]
    assert len(play(kind, mode, "go on")["said"]) == len(again["said"])
    assert len(effects(folder)) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_approval_survives_its_process(folder, play, mode):
    """The graph waits for a person; a new process resumes it with a yes, and the effect happens once."""
    begun = play("approved", mode, "begin")
    assert begun["waits"][0]["arguments"] == {"order": "A1", "cents": 500}
    unclear = play("approved", mode, '"what?"')
    assert "no answer" in unclear["waits"][0]["problem"]
    assert not effects(folder)
    ended = play("approved", mode, '{"approved": true, "by": "ann"}')
    assert len(effects(folder)) == 1
    assert "refunded" in ended["said"][-1][1]
    assert ended["ledger"] == ["completed"]


def test_a_process_killed_after_an_approval_leaves_one_effect(folder, play):
    """An approved call that was killed before its record stays in doubt, and does not run again."""
    play("approved", "sync", "begin")
    play("approved", "sync", "true", dies=True)
    again = play("approved", "sync", "go on")
    assert len(effects(folder)) == 1
    assert again["ledger"] == ["in_doubt"]
