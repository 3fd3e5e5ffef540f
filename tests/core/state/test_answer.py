"""The last word: the model's text with what speaks against it, or what is known."""

from typing import get_args

import pytest

from pokayoke.core.call import Outcome, StopReason
from pokayoke.core.state.final_answer import UNUSABLE, add_not_done, final_answer
from pokayoke.core.state.words import REASON_WORDS


@pytest.mark.parametrize(
    ("text", "done", "more", "said", "verified"),
    [
        ("Done.", ["put"], {}, "Done.", True),
        ("Done.", [], {"unmet": [("put", "in_doubt"), ("pay", "quota_exceeded")]}, "Done.\n\n[Not done: pay (a limit is used up). It is not known whether put took effect.]", False),
        ("Done.", [], {"unmet": [("put", "in_doubt"), ("put", "tool_failure")]}, "Done.\n\n[Not done: put (the tool failed). It is not known whether put took effect.]", False),
        ("Done.", [], {"unmet": [("put", "in_doubt")] * 2}, "Done.\n\n[It is not known whether put took effect.]", False),
        ("Done.", [], {"unmet": [("put", UNUSABLE), ("pay", UNUSABLE)]}, "Done.\n\n[put, pay ran, but their answers were unusable.]", False),
        ("", ["get"], {"unusable": ["put"]}, "I could not finish this safely. Done: get. put ran, but its answer was unusable.", False),
        ("", [], {"unusable": ["put"], "doubts": ["pay"]}, "I could not finish this safely. put ran, but its answer was unusable. It is not known whether pay took effect.", False),
        ("Done.", ["put"], {"certain": False}, "Done.", False),
        (None, [], {}, "I could not finish this safely. Nothing was changed.", False),
        ("", ["put", "get", "put"], {}, "I could not finish this safely. Done: put (2 times), get.", False),
        (" ", [], {"certain": False}, "I could not finish this safely. What was changed before cannot be looked up now.", False),
        (" ", ["put"], {"certain": False}, "I could not finish this safely. Done: put. What was changed before cannot be looked up now.", False),
        ("", ["put"], {"fallback": "Sorry."}, "Sorry.", False),
        ("", [], {"fallback": " "}, "I could not finish this safely. Nothing was changed.", False),
    ],
)  # fmt: skip
def test_what_the_user_reads(text, done, more, said, verified):
    """A text of the model's stands, with what was not done beside it; without one, only what is known is said."""
    answer = final_answer(text, done, [], None, **more)
    assert (answer.text, answer.verified) == (said, verified)


def refused(tool, reason="unknown_tool"):
    return Outcome(status="refused", call_id="1", tool=tool, stop_reason=reason)


def test_reasons_are_said_once():
    """What was not done is listed in order, each reason once, and the stop reason is handed on."""
    lacking = {}
    for tool, reason in (("put", "quota_exceeded"), ("get", "tool_failure"), ("put", "quota_exceeded")):
        add_not_done(lacking, refused(tool, reason))
    answer = final_answer("", [], lacking, "tool_failure")
    assert (
        answer.text
        == "I could not finish this safely. Nothing was changed. Not done: put (a limit is used up), get (the tool failed)."
    )
    assert answer.stop_reason == "tool_failure"
    assert not final_answer("Well.", [], [], "tool_failure").verified


def test_invented_names_do_not_fill_the_answer():
    """A thousand invented names are twenty and a word; a long one is cut, and none of them acts on a terminal."""
    lacking = {}
    for name in ("x" * 1_000_000, "red\x1b[31m\u202e", "two\nlines", "half\ud800"):
        add_not_done(lacking, refused(name))
    assert [*lacking] == [
        ("x" * 64, "unknown_tool"),
        ("red\\u001b[31m\\u202e", "unknown_tool"),
        ("two lines", "unknown_tool"),
        ("half\\ud800", "unknown_tool"),
    ]
    for number in range(15):
        add_not_done(lacking, refused(f"tool_{number}"))
    assert "and more" not in final_answer("", [], lacking, None).text
    for number in range(15, 1_000):
        add_not_done(lacking, refused(f"tool_{number}"))
    assert final_answer("", [], lacking, None).text.endswith("tool_15 (there is no such tool), and more.")
    assert len(lacking) == 21


def test_exactly_as_many_as_are_named_are_not_more():
    """Twenty reasons are all said."""
    lacking = {}
    for number in range(20):
        add_not_done(lacking, refused(f"tool_{number}"))
    assert final_answer("", [], lacking, None).text.endswith("tool_19 (there is no such tool).")


def test_an_answer_does_not_say_that_nothing_was_changed_while_a_write_is_in_doubt():
    """Without a text of the model's, a doubt is said as a doubt."""
    answer = final_answer(None, [], [("get", "tool_failure")], None, doubts=["pay", "put"])
    assert answer.text == (
        "I could not finish this safely. It is not known whether pay, put took effect. Not done: get (the tool failed)."
    )


def test_every_reason_has_words_for_users():
    """No user reads a stop reason; success and doubts have sentences of their own."""
    assert REASON_WORDS.keys() == {*get_args(StopReason)} - {"success", "in_doubt"}
    assert final_answer("", [], [("get", "made_up")], None).text.endswith("Not done: get (it could not be done).")
