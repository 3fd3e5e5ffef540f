"""The last word: the model's text with what speaks against it, or what is known."""

import pytest

from pokayoke.core.answer import final_answer


@pytest.mark.parametrize(
    ("text", "done", "more", "said", "verified"),
    [
        ("Done.", ["put"], {}, "Done.", True),
        ("Done.", [], {"unmet": {"put": "in_doubt", "pay": "quota_exceeded"}}, "Done.\n\n[Not done: put (in_doubt), pay (quota_exceeded).]", False),
        ("Done.", ["put"], {"certain": False}, "Done.", False),
        (None, [], {}, "I could not finish this safely. Nothing was changed.", False),
        ("", ["put", "put"], {}, "I could not finish this safely. Done: put, put.", False),
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


def test_reasons_are_said_once():
    """What was not done is listed in order, each reason once, and the stop reason is handed on."""
    answer = final_answer("", [], ["put: in_doubt", "get: tool_failure", "put: in_doubt"], "tool_failure")
    assert (
        answer.text
        == "I could not finish this safely. Nothing was changed. Not done: put: in_doubt; get: tool_failure."
    )
    assert answer.stop_reason == "tool_failure"
    assert not final_answer("Well.", [], [], "tool_failure").verified
