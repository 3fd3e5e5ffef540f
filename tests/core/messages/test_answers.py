"""The messages that answer a model's calls."""

from pokayoke import compact
from pokayoke.core.call import Outcome
from pokayoke.core.messages.answers import result_message, result_messages
from pokayoke.core.output.model_text import result_text


def test_answers_of_a_chat_without_tool_calls_are_one_message():
    """Where calls stand in the text, all answers are one message of the user's, so that sides take turns."""
    texts = [result_text(key, tool="t", call_id=key, trust="checked") for key in "ab"]
    outcomes = [Outcome(status="ok", call_id=key, tool="t", text=text) for key, text in zip("ab", texts, strict=True)]
    assert result_messages(outcomes, "text") == [{"role": "user", "content": "\n".join(texts)}]
    assert result_message(outcomes[0], "text") == {"role": "user", "content": texts[0]}
    assert [result_messages([], wire) for wire in ("openai", "responses", "anthropic", "text")] == [[]] * 4


def test_in_a_chat_without_tool_calls_no_answer_passes_for_the_user_s_words():
    """What the guard says itself stands behind a label too, alone or before an output; it is told by who said it."""
    refusal = Outcome(status="refused", call_id="c1", tool="get", text="get may not be used. Tell the user.")
    output = result_text({"a": 1}, tool="get", call_id="c2", trust="checked")
    replayed = Outcome(
        status="replayed", call_id="c2", tool="get", text=f"already ran; the result of get was:\n{output}"
    )
    (message,) = result_messages([refusal, replayed], "text")
    assert message["content"].split("\n") == [
        '<tool_output tool="get" call="c1" trust="error">', refusal.text, "</tool_output>",
        '<tool_output tool="get" call="c2" trust="checked">', "already ran; the result of get was:", "</tool_output>",
        *output.split("\n"),
    ]  # fmt: skip
    turns = [{"role": "assistant", "content": "{}"}, message] * 20
    note = compact([{"role": "user", "content": "hi"}, *turns], 600, keep_last=2)[1]["content"]
    assert "call: " in note
    assert "user: " not in note


def test_an_answer_that_is_well_is_no_error():
    """Anthropic's flag stands on what did not end well, and on nothing else."""
    good, bad = (Outcome(status=status, call_id="c", tool="t", text="x") for status in ("ok", "failed"))
    assert "is_error" not in result_message(good, "anthropic")
    assert result_message(bad, "anthropic")["is_error"]
