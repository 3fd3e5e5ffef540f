"""When a call is new, and what becomes of a new one."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.flow.repetition import (
    REPLAY_WORDS,
    CallerView,
    HandedAnswer,
    decide_repetition,
    replay_words,
    sight_answer,
)
from pokayoke.core.flow.seen_history import AnsweredCall, SeenHistory
from pokayoke.core.ledger.records import Record, call_mark

FRAME = '<tool_output tool="add" call="c1" trust="checked">\n{"n":1}\n</tool_output>'


class Memory:
    """What was handed out, by key."""

    def __init__(self, **handed):
        self._handed = handed

    def handed_answers(self, key):
        return self._handed.get(key, ())


def record(state="completed", ident="c1", output=b'{"n":1}', **fields):
    claim = "p-1-1" + ("" if ident is None else call_mark(ident))
    return Record("k", "h", state, 1, claim, 9.0, "add", "add@1", "r", 0.0, settled_at=1.0, output=output, **fields)


def caller(*calls, turn=1, handed=(), **fields):
    history = SeenHistory(tuple(calls), turn)
    return CallerView(Memory(k=handed), history=lambda: history, is_exact=True, **fields)


def call(text=FRAME, ident="c1", turn=1):
    return AnsweredCall(ident, "add", "{}", text, turn)


def sighting(known, view, ident="c2", marks=None, equal=True):
    return sight_answer(known, (known.mark,) if marks is None else marks, view, ident, lambda one: equal)


@pytest.mark.parametrize(
    ("text", "known", "stands"),
    [
        (FRAME, record(), True),
        ('<tool_output tool="add" handle="t1" preview="true" chars="9">\n...', record(), True),
        ('{"n": 1}', record(), True),
        ('{"n": 2}', record(), False),
        ("no JSON", record(), False),
        ("done", record(output=b'"done"'), True),
        ("It may or may not have been done", record(output=b'"done"'), False),
        (f"{REPLAY_WORDS}: add already ran at 1970-01-01 00:00:01 UTC; the result of add was:\n{FRAME}", record(), True),
        (f"{REPLAY_WORDS}: add already ran at 1970-01-01 00:00:02 UTC; the result of add was:\n{FRAME}", record(), False),
        ("It is not known whether add took effect. Do not send it again.", record(), False),
        ("[interrupted]", record(output=None), False),
        (FRAME, record(output=None), True),
        (FRAME, record(output_ok=False), False),
        (FRAME, record(ident="c9"), False),
        (FRAME, record(ident=None), False),
        ('add failed\n<tool_output tool="add" call="c1" trust="error">\nno\n</tool_output>', record("failed_final"), True),
        ("add failed", record("failed_final"), False),
        ('<tool_output tool="add" call="c1" trust="error">\nno\n</tool_output>', record(), False),
    ],
)  # fmt: skip
def test_an_answer_stands_in_a_history_if_it_says_how_the_effect_ended(text, known, stands):
    """A doubt does not, nor does a text that somebody made up for a lost answer, nor another call's answer."""
    assert sighting(known, caller(call(text))) == ("this_turn" if stands else "unseen")


def test_a_call_that_means_another_effect_has_no_answer_of_this_one():
    """Ids repeat, so an id alone proves nothing, nor does a time."""
    assert sighting(record(), caller(call()), equal=False) == "unseen"
    replay = call(f"{REPLAY_WORDS}: add {replay_words(record(), 0)}; result", "c5")
    assert sighting(record(), caller(replay)) == "this_turn"
    assert sighting(record(), caller(replay), equal=False) == "unseen"


def test_a_replay_says_which_effect_it_is_about():
    """When it ran, or was claimed if its output is still to come or a person settled it, and its number."""
    assert replay_words(record(), 0) == "already ran at 1970-01-01 00:00:01 UTC"
    decided = msgspec.structs.replace(record(), decided_by="ann")
    assert replay_words(decided, 0) == "already ran at 1970-01-01 00:00:00 UTC"
    early = msgspec.structs.replace(record(), settled_at=None)
    assert replay_words(early, 1) == "already ran (number 2) at 1970-01-01 00:00:00 UTC"
    second = call(f"{REPLAY_WORDS}: add {replay_words(record(), 1)}; result", "c5")
    assert sighting(record(), caller(second)) == "unseen"
    assert sighting(record(), caller(second), marks=("~x", "~y")) == "this_turn"


def test_each_effect_needs_an_answer_of_its_own():
    """Of two effects by calls of one id, one answer proves the first only."""
    marks = (call_mark("c1"),) * 2
    assert sighting(record(), caller(call()), marks=marks) == "unseen"
    assert sighting(record(), caller(call(), call()), marks=marks) == "this_turn"


def test_an_answer_that_was_handed_out_is_known_by_its_text():
    """Also one that was replayed for another call, and one that the record does not hold."""
    text = f"{REPLAY_WORDS}: add already ran; the result of add was not kept"
    handed = [HandedAnswer(0, "c5", 1, 1, hash(text))]
    known = record(output=None)
    assert sighting(known, caller(call(text, "c5"), handed=handed, count=1)) == "this_turn"
    assert sighting(known, caller(call("[interrupted]", "c5"), handed=handed, count=1)) == "unseen"
    assert sighting(known, caller(call(text, "c5"), handed=handed, count=0)) == "unseen"
    bare = [HandedAnswer(0, "c1", 1, 1, hash("a result of which nothing is kept"))]
    assert sighting(known, caller(call("a result of which nothing is kept"), handed=bare, count=1)) == "this_turn"


@pytest.mark.parametrize(
    ("answered", "last", "known_at", "now", "where"),
    [(1, 1, 3, 3, "this_turn"), (1, 2, 3, 3, "earlier_turn"), (1, 1, 3, 4, "earlier_turn")],
)
def test_the_turn_is_that_of_the_history(answered, last, known_at, now, where):
    """A later one has begun if the user has spoken behind the answer, or since the history was known."""
    view = CallerView(
        Memory(), turn=now, history=lambda: SeenHistory((call(turn=answered),), last), history_turn=known_at
    )
    assert sighting(record(), view) == where


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        (None, "unknown"),
        (("c1", 1, 1), "this_turn"),
        (("c1", 0, 1), "earlier_turn"),
        (("c2", 0, 1), "earlier_turn"),
        (("c2", 1, 1), "unseen"),
        (("c1", 1, 2), "unseen"),
    ],
)
def test_without_a_history_it_counts_what_was_handed_out(entry, where):
    """To a call of an earlier turn or with another id, but not of the same message."""
    handed = () if entry is None else [HandedAnswer(0, *entry, 0)]
    assert sighting(record(), CallerView(Memory(k=handed), turn=1, message=2, count=1)) == where
    beside = CallerView(Memory(k=handed), turn=1, message=2, count=1, history=lambda: SeenHistory((), 1))
    assert sighting(record(), beside) == ("unseen" if entry is None else where)


def test_what_was_handed_out_does_not_count_where_the_history_is_exact():
    """Time travel: the answer is not in the history that the request carried."""
    handed = [HandedAnswer(0, "c1", 0, 1, hash(FRAME))]
    assert sighting(record(), caller(handed=handed, turn=1, message=2, count=1)) == "unseen"
    view = CallerView(Memory(k=handed), turn=1, message=2, count=1, history=lambda: SeenHistory((), 0))
    assert sighting(record(), view) == "earlier_turn"


RULES = ("once", "turn", "each")
SIGHTINGS = ("unseen", "unknown", "this_turn", "earlier_turn")


@pytest.mark.parametrize(
    ("rule", "where", "later", "fields", "decided"),
    [
        *((rule, where, later, {}, "replay") for rule in RULES for where in SIGHTINGS[:2] for later in (False, True)),
        *(("each", where, False, {}, "run") for where in SIGHTINGS[2:]),
        ("turn", "this_turn", False, {}, "replay"),
        ("turn", "this_turn", True, {}, "run"),
        ("turn", "earlier_turn", False, {}, "run"),
        ("once", "this_turn", True, {}, "replay"),
        ("once", "earlier_turn", True, {}, "replay"),
        ("once", "this_turn", True, {"may_ask": True}, "replay"),
        ("once", "earlier_turn", False, {"may_ask": True}, "ask"),
        ("turn", "earlier_turn", True, {"knows_turns": False}, "replay"),
        ("turn", "this_turn", True, {"knows_turns": False, "may_ask": True}, "ask"),
        ("once", "this_turn", True, {"knows_turns": False, "may_ask": True}, "ask"),
        ("each", "this_turn", False, {"knows_turns": False}, "run"),
    ],
)
def test_what_becomes_of_a_call(rule, where, later, fields, decided):
    """Not seen: the recorded answer. Seen: what the contract says, and a question only where somebody can be asked."""
    view = CallerView(Memory(), **fields)
    assert decide_repetition(rule, where, view, record(), has_later_effect=later) == decided


@pytest.mark.parametrize(
    ("known", "rule", "where", "decided"),
    [
        (record("failed_final"), "turn", "earlier_turn", "run"),
        (record("failed_final"), "turn", "this_turn", "replay"),
        (record("failed_final"), "once", "earlier_turn", "ask"),
        (record("failed_final", output_ok=False), "turn", "earlier_turn", "ask"),
        (record("failed_final", output_ok=False), "each", "this_turn", "ask"),
        (record("failed_final", output_ok=False), "once", "this_turn", "replay"),
        (record(output_ok=False), "turn", "earlier_turn", "run"),
        (record("failed_retriable"), "once", "earlier_turn", "run"),
        (record("failed_retriable"), "once", "this_turn", "replay"),
    ],
)
def test_what_becomes_of_a_call_that_failed_before(known, rule, where, decided):
    """A no of the tool leaves the rule in force; where nobody said no, a person is asked; what had no effect may run."""
    assert decide_repetition(rule, where, CallerView(Memory(), may_ask=True), known, has_later_effect=False) == decided


@given(
    rule=st.sampled_from(RULES), where=st.sampled_from(SIGHTINGS), later=st.booleans(),
    knows=st.booleans(), asks=st.booleans(), state=st.sampled_from(["completed", "failed_final"]), said=st.booleans(),
)  # fmt: skip
def test_who_sees_more_gets_no_less(rule, where, later, knows, asks, state, said):
    """Unseen effects are never repeated, nobody is asked who cannot be, and a looser rule lets no less run."""
    order = ("replay", "ask", "run")

    def rank(rule, where):
        view = CallerView(Memory(), knows_turns=knows, may_ask=asks)
        known = record(state, output_ok=said)
        return order.index(decide_repetition(rule, where, view, known, has_later_effect=later))

    assert rank(rule, "unseen") == rank(rule, "unknown") == 0
    assert asks or rank(rule, where) != order.index("ask")
    ranks = [rank(rule, where) for rule in RULES]
    assert all(one <= other for one, other in itertools.pairwise(ranks))
    assert rank(rule, "this_turn") <= rank(rule, "earlier_turn")
