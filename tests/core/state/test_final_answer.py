"""The final answer without anything to report."""

from pokayoke.core.state.final_answer import final_answer


def test_the_fallback_answer_without_any_call():
    """Without calls the answer is still an honest sentence."""
    assert final_answer("", [], [], None).text == "I could not finish this safely. Nothing was changed."
    assert final_answer("ok", [], [], "loop_detected").verified is False
