"""A history that grows message by message."""

import pytest
from history_cases import FACTS, LONG, SHAPES, A, U, chat_call, chat_result, everything, got, history, note_in, use
from provider_rules import PROBLEMS
from random_histories import Human

from pokayoke.core.context import History
from pokayoke.core.context.groups import UNANSWERED
from pokayoke.core.context.note import fact_lines, read_note


@pytest.mark.parametrize("shape", SHAPES)
def test_a_history_that_grows(shape):
    """Below the window at every step, one note at most, and what was added last is always there."""
    kept = History(20_000, facts=lambda: FACTS, kept=True)
    shortened = 0
    for message in history(shape, rounds=60, text=LONG * 2):
        kept.add(message)
        result = kept.compacted()
        assert PROBLEMS[shape](result.messages) == []
        assert kept.tokens <= 20_000
        assert kept.finding is None
        shortened += result.shortened
    assert 2 < shortened < 12
    assert read_note(note_in(kept.messages())).facts == fact_lines(FACTS)
    assert "Where is ORD-2026-17?" in everything(kept.messages()[:2])


def test_a_report_makes_the_prefix_exact():
    """What the provider counted replaces the estimate of what was sent; after shortening it is an estimate again."""
    kept = History(4_000, keep_last=3, messages=history("openai", rounds=3))
    kept.report(2_345)
    assert kept.tokens == 2_345
    assert kept.compacted().before == 2_345
    kept.report(0)
    assert kept.tokens == 2_345
    kept.report(3_990)
    result = kept.compacted()
    assert result.shortened
    assert kept.tokens == result.after < 2_800
    kept.report(1_111)
    assert kept.tokens == 1_111
    kept.add(U)
    assert 1_111 < kept.tokens < 1_130


def test_what_every_request_holds_is_taken_into_account():
    """Tool definitions count in a report; what has to stay is then judged with them."""
    kept = History(4_000, messages=history("openai", rounds=3))
    kept.report(1_700)
    kept.add(A)
    kept.report(5_700)
    result = kept.compacted()
    assert result.finding is not None
    assert result.finding.data["tokens"] == result.after > 4_000


def test_a_result_may_still_come():
    """A call that waits is answered in what is sent, and by its own result when it has come, also after shortening."""
    kept = History(3_000, messages=history("openai", rounds=3))
    kept.add(chat_call("late"))
    assert kept.messages()[-1] == chat_result("late", UNANSWERED)
    kept.report(2_999)
    assert kept.compacted().shortened
    assert kept.messages()[-1]["content"] == UNANSWERED
    kept.add(chat_result("late", "at last"))
    assert kept.messages()[-1] == chat_result("late", "at last")
    assert UNANSWERED not in everything(kept.messages())


def test_a_call_nobody_waits_for_any_more():
    """After sixty-four messages a result is not waited for: what is older is settled."""
    kept = History(10**6, messages=[U, chat_call("lost")])
    for _ in range(80):
        kept.add(A)
        kept.messages()
    kept.add(chat_result("lost"))
    assert kept.messages()[2]["content"] == UNANSWERED
    assert [finding.code for finding in kept.compacted().findings] == ["orphan_result"]


def test_pins_of_a_history():
    """A pinned message survives every shortening, wherever it was when it came."""
    kept = History(3_000)
    for at, message in enumerate(history("openai", rounds=40)):
        kept.add(message, pin=at == 33)
        if at == 33:
            pinned = message
        kept.messages()
    places = kept.compacted().pinned
    assert len(places) == 1
    assert pinned in kept.messages()[places[0] : places[0] + 3]
    late = History(100_000, messages=history("openai", rounds=2))
    late.add({"role": "user", "content": "keep"}, pin=True)
    late.report(90_000)
    assert late.messages()[late.compacted().pinned[0]]["content"] == "keep"


def test_a_pin_at_the_very_end():
    """Where only the first user message is left, and it got the note, it is still pinned."""
    kept = History(600, keep_last=0, threshold=0.2, format="anthropic")
    kept.add(U, pin=True)
    for count in range(8):
        kept.add(use(f"c{count}"))
        kept.add(got(f"c{count}", text=LONG))
    assert kept.compacted().dropped
    kept.add(A)
    assert kept.compacted().pinned == (0,)
    assert "hi" in everything(kept.messages()[:1])


def test_a_history_pages_what_it_put_aside():
    """An offloaded output is read under its handle, sixty-four of them are kept."""
    kept = History(8_000, kept=True, messages=[U])
    for count in range(70):
        kept.add(chat_call(f"c{count}"))
        kept.add(chat_result(f"c{count}", f"{count} " + LONG * 8))
        kept.messages()
    assert 10 < len(kept.offloaded) <= 64
    handle = next(reversed(kept.offloaded))
    part = kept.page(handle, 0, 10)
    assert (part.text, part.next_offset) == (kept.offloaded[handle][:10], 10)
    assert kept.page("out-0") is None


def test_a_history_forgets_the_oldest_texts():
    """Beyond sixty-four offloaded texts the oldest is gone."""
    kept = History(400_000, kept=True, large=300, messages=[U])
    for count in range(90):
        kept.add(chat_call(f"c{count}", name=f"f{count}"))
        kept.add(chat_result(f"c{count}", f"{count} " + LONG * 3))
    kept.report(399_999)
    result = kept.compacted()
    assert len(result.offloaded) > 64 == len(kept.offloaded)
    assert list(result.offloaded)[-1] in kept.offloaded
    assert next(iter(result.offloaded)) not in kept.offloaded


def test_a_history_learns_its_shape():
    """Words alone fit every provider; the first call shows whose they are, and everything is put together anew."""
    kept = History(100_000, messages=[U, U, A])
    assert kept.messages() == [U, U, A]
    kept.add(use("a"))
    kept.add(got("a"))
    assert PROBLEMS["anthropic"](kept.messages()) == []


def test_ids_that_come_again_in_a_history_that_grows():
    """Anthropic takes an id once in the whole history: one that came before what is settled is changed too."""
    kept = History(100_000, messages=[U])
    for _ in range(4):
        kept.add(use("again"))
        kept.add(got("again"))
        assert PROBLEMS["anthropic"](kept.messages()) == []
    assert "again_4" in everything(kept.messages())


def test_nothing_may_be_kept_at_the_end():
    """With keep_last=0 even the end goes into the note, and the history goes on from there."""
    for shape in SHAPES:
        kept = History(1_000, keep_last=0, messages=history(shape, rounds=8))
        assert kept.compacted().dropped
        kept.add({"role": "user", "content": "next"} if shape != "langchain" else Human(content="next"))
        assert PROBLEMS[shape](kept.messages()) == []
        assert "next" in everything(kept.messages()[-1:])
