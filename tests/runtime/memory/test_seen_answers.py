"""What one opening of a run remembers of its callers."""

import pytest

from pokayoke import Outcome
from pokayoke.runtime.memory import seen_answers
from pokayoke.runtime.memory.seen_answers import SeenAnswers


def outcome(key="k", status="ok", ident="c1"):
    return Outcome(status=status, call_id=ident, tool="add", text="x", key=key)


def hand_out(memory, made, turn=1, rounds=1):
    memory.hand_out(made, memory.view_caller(turn, rounds, may_ask=False))


@pytest.mark.parametrize(
    ("made", "kept"),
    [(outcome(), 1), (outcome(status="replayed"), 1), (outcome(status="failed"), 1), (outcome(None), 0)]
    + [(outcome(status=status), 0) for status in ("in_doubt", "pending", "refused")],
)
def test_only_answers_that_say_how_an_effect_ended_count(made, kept):
    """A doubt, a question and a refusal do not."""
    memory = SeenAnswers()
    hand_out(memory, made)
    assert len(memory.handed_answers("k")) == kept


def test_its_size_is_bounded(monkeypatch):
    """The oldest effects and chains are forgotten, and of one effect the first answer and the latest ones stay."""
    monkeypatch.setattr(seen_answers, "_MOST_EFFECTS", 2)
    monkeypatch.setattr(seen_answers, "_MOST_ANSWERS", 3)
    monkeypatch.setattr(seen_answers, "_MOST_CHAINS", 2)
    memory = SeenAnswers()
    for ident in ("c1", "c2", "c3", "c4"):
        hand_out(memory, outcome(ident=ident))
    assert [one.call_id for one in memory.handed_answers("k")] == ["c1", "c3", "c4"]
    for key in ("l", "m"):
        hand_out(memory, outcome(key))
    assert (memory.handed_answers("k"), len(memory.handed_answers("m"))) == ((), 1)
    for base in ("a", "b", "c"):
        memory.keep_chain(base, ("~1",))
    assert (memory.known_chain("a"), memory.known_chain("c")) == ((), ("~1",))


def test_the_places_of_a_message():
    """A message that was begun may deliver a call twice; in a round, each call comes once; the next one begins anew."""
    memory = SeenAnswers()
    assert [memory.find_place("k", "c1", 1) for _ in range(2)] == [0, 1]
    assert memory.find_place("k", "c1", 2) == 0
    assert [memory.find_place("k", ident, -1) for ident in ("c1", "c2", "c1")] == [0, 1, 0]
    assert memory.find_place("l", "c1", -1) == 0


def test_a_message_that_nobody_begins_is_a_round():
    """After `begin_message`, and with an exact history, rounds do not count."""
    memory = SeenAnswers()
    assert memory.view_caller(1, 7, may_ask=False).message == 7
    memory.set_history([], 1, is_exact=False)
    assert memory.view_caller(1, 7, may_ask=False).message == 7
    memory.set_history([], 1, is_exact=True)
    first = memory.view_caller(1, 7, may_ask=False)
    memory.begin_message()
    assert memory.view_caller(1, 7, may_ask=False).message != first.message
    memory.reset_after_fork()
    assert memory.find_place("k", "c", first.message) == 0
