"""Sentences for users: every one of them may be the host's own."""

import ast
import itertools
from pathlib import Path

import pokayoke
from pokayoke.core.state.final_answer import UNUSABLE, final_answer
from pokayoke.core.state.words import QUESTION_WORDS, REASON_WORDS, WORDS, find_word_problems
from pokayoke.testing import ScriptedModel, ask

OWN = {key: key.upper() + "".join(f" {{{place}}}" for place in ("tools", "tool", "count", "reason", "note", "question") if f"{{{place}}}" in text)
       for key, text in WORDS.items()}  # fmt: skip


def test_every_sentence_can_be_the_hosts_own():
    """With a word for each key, no word of ours is left in any answer, and each key is used by one."""
    assert list(find_word_problems(OWN)) == []
    not_done = [(f"t{number}", why) for number, why in enumerate((*REASON_WORDS, "strange"))]
    said = [
        final_answer(text, done, not_done if many else [], None, unmet=unmet, unrepeated=["r"] * many, certain=certain,
                     doubts=["d"] * many, unusable=["u", "v"][:size], words=OWN).text
        for text, done, many, certain, size, unmet in itertools.product(
            ("", "Text."), ([], ["a", "a"]), (False, True), (True, False), (0, 1, 2), ((), [("w", "in_doubt"), ("x", UNUSABLE)])
        )
    ]  # fmt: skip
    said.append(final_answer("", [], [(f"n{number}", "other") for number in range(30)], None, words=OWN).text)
    whole = "\n".join(said)
    assert [key for key in WORDS if key.upper() not in whole] == list(QUESTION_WORDS)
    lower = {word.strip(".,[]()") for word in whole.replace("Text.", "").split() if not word.isupper()}
    assert {word for word in lower if len(word.rstrip("0123456789")) > 1} <= {key.upper() for key in WORDS}


def test_every_sentence_is_said_somewhere():
    """Each key that is no reason of a call is given to `say`, by itself or by a function that lists tools."""
    texts = {
        node.value
        for path in Path(pokayoke.__file__).parent.rglob("*.py")
        if path.name != "words.py"
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("say", "_list_tools")
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {*WORDS} - {*REASON_WORDS} - texts == set()


def test_facts_are_not_read_as_places():
    """A tool's name with braces is shown as it is."""
    assert final_answer("", ["{tools}"], [], None).text == "I could not finish this safely. Done: {tools}."


def test_a_loop_speaks_as_configured():
    """The sentences are an option of the policy."""

    @pokayoke.tool(output="text")
    def pay(n: int) -> str:
        """Pay."""
        return "paid"

    words = {"unfinished": "Das ging nicht zu Ende.", "done": "Erledigt: {tools}."}
    ended = pokayoke.Guard([pay], config={"words": words}).loop(ScriptedModel([ask("pay", n=1), "", ""]), "Pay.")
    assert ended.text == "Das ging nicht zu Ende. Erledigt: pay."
