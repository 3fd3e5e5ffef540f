"""The final answer without anything to report."""

from pokayoke.core.state.final_answer import final_answer


def test_the_fallback_answer_without_anything_to_tell():
    """Nothing done and nothing refused is still an honest sentence."""
    assert final_answer("", [], [], None).text == "I could not finish this safely. Nothing was changed."
    assert final_answer("ok", [], [], "loop_detected").verified is False
