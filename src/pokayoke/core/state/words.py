"""Every sentence that a user may read beside the model's words, in one table that a host may translate.

In: a host's own words, by the keys of `WORDS`.
Out: sentences.
Never: a sentence with another fact than the one it stands for: each keeps its `{places}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

REASON_WORDS: Final[Mapping[str, str]] = {
    "unknown_tool": "there is no such tool",
    "invalid_arguments": "the details did not fit",
    "low_confidence": "it was not clear enough what to do",
    "permission_denied": "it is not permitted",
    "approval_denied": "a person said no",
    "awaiting_approval": "it waits for a person",
    "quota_exceeded": "a limit is used up",
    "invalid_tool_output": "an answer it may build on was unusable",
    "tool_failure": "the tool failed",
    "loop_detected": "it was tried too often",
    "context_overflow": "the conversation has become too long",
    "budget_exhausted": "the budget is used up",
    "kill_switch": "it is switched off at the moment",
}
"""Why something was not done, by stop reason."""
QUESTION_WORDS: Final[Mapping[str, str]] = {
    "may_run": "May {tool} run with these arguments?",
    "no_answer": "this is no answer: resume with True or False",
    "which_call": "several calls may wait here: say which one is meant",
    "early_answer": "the answer was given before this was asked",
    "unanswered": "nothing was said about {question}",
}
"""What a person reads where a framework asks the guard's question, and of an answer that is none."""
WORDS: Final[Mapping[str, str]] = {
    "unfinished": "I could not finish this safely.",
    "done": "Done: {tools}.",
    "several_times": "{tool} ({count} times)",
    "unchanged": "Nothing was changed.",
    "unusable": "{tools} ran, but its answer was unusable.",
    "several_unusable": "{tools} ran, but their answers were unusable.",
    "unrepeated": "Not run a second time: {tools}.",
    "in_doubt": "It is not known whether {tools} took effect.",
    "unknown_before": "What was changed before cannot be looked up now.",
    "not_done": "Not done: {tools}.",
    "reason": "{tool} ({reason})",
    "more": "and more",
    "note": "[{note}]",
    **REASON_WORDS,
    "other": "it could not be done",
    **QUESTION_WORDS,
}
"""The sentences, the reasons and the questions; `other` is for a reason that has no words of its own."""
_PLACE: Final = re.compile(r"\{(\w+)\}")


def say(words: Mapping[str, str], key: str, **facts: str) -> str:
    """Return a sentence in the host's words, else ours, with the facts in its places."""
    text = words.get(key, WORDS[key])
    return _PLACE.sub(lambda place: facts[place[1]], text)


def find_word_problems(words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each key of a host's words that cannot be used, and why."""
    for key, text in words.items():
        if key not in WORDS:
            yield key, f"is no sentence there is. Sentences: {', '.join(WORDS)}"
        elif set(_PLACE.findall(text)) != (places := set(_PLACE.findall(WORDS[key]))):
            wanted = " and ".join(f"{{{place}}}" for place in sorted(places))
            yield key, f"is {text!r}; it holds {wanted or 'no {place}'}, such as {WORDS[key]!r}"
