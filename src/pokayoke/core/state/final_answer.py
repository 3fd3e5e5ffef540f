"""The last word of a run: the model's own answer if it says something, else an honest fallback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from pokayoke.core.call import Outcome, StopReason
from pokayoke.core.host_input import as_answer
from pokayoke.core.text.neutralise import neutralise

UNUSABLE: Final = "unusable"
"""The reason of a write that ran, and whose answer was unusable; beside stop reasons."""
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
"""Why something was not done, in words for users, by stop reason."""
_MAX_NAMES = 20
_NAME_CHARS = 64


class Answer(msgspec.Struct, frozen=True):
    """What the user gets to read.

    Attributes:
        text: the model's text, with a note of what was tried and not done, or may have been; or the fallback.
        verified: True if the model's text was not empty, the run did not stop before it, and no write is unmet.
        stop_reason: why the run ended; None while it goes on.
    """

    text: str
    verified: bool
    stop_reason: StopReason | None


def final_answer(
    text: str | None,
    done: Sequence[str],
    not_done: Collection[tuple[str, str]],
    stop_reason: StopReason | None,
    *,
    unmet: Collection[tuple[str, str]] = (),
    unrepeated: Collection[str] = (),
    fallback: str | None = None,
    certain: bool = True,
    doubts: Collection[str] = (),
    unusable: Collection[str] = (),
) -> Answer:
    """Accept or replace the model's last text.

    A model may claim what it did not do, and no rule can read that out of a text. So what was tried and
    not done, or may have been, is said beside its words, whatever they are.

    Args:
        text: what the model wrote; None or blank if it wrote nothing.
        done: names of the writes that took effect and answered so, in order.
        not_done: what was refused or failed and had no effect, in order, with reasons; see `add_not_done`.
        stop_reason: why the run ended, if it has.
        unmet: tools of writes that did not end well, each with the reason; `in_doubt` if nobody knows whether it took
            effect, `UNUSABLE` if it ran.
        unrepeated: tools of writes that were to happen a second time and did not.
        fallback: the host's own text for a model that wrote nothing; None makes one of what is known.
        certain: False if there may be writes that are not in `done`, because the ledger cannot be read.
        doubts: tools of writes of which nobody knows whether they took effect.
        unusable: tools of writes that ran, and whose answers were unusable.

    Raises:
        UsageError: what the model wrote is neither a text nor None.
    """
    text = as_answer(text)
    if text is not None and text.strip():
        note = " ".join(filter(None, (_unmet_note(unmet), _unrepeated_sentence(unrepeated))))
        shown = f"{text}\n\n[{note}]" if note else text
        return Answer(
            shown, verified=certain and not note and stop_reason in (None, "success"), stop_reason=stop_reason
        )
    if fallback and fallback.strip():
        return Answer(fallback, verified=False, stop_reason=stop_reason)
    times = [name if count == 1 else f"{name} ({count} times)" for name, count in Counter(done).items()]
    unchanged = certain and not doubts and not unusable
    parts = (
        "I could not finish this safely.",
        f"Done: {', '.join(times)}." if done else "Nothing was changed." if unchanged else "",
        _unusable_sentence(unusable),
        _unrepeated_sentence(unrepeated),
        _doubts_sentence(doubts),
        "" if certain else "What was changed before cannot be looked up now.",
        _not_done_sentence(not_done),
    )
    return Answer(" ".join(filter(None, parts)), verified=False, stop_reason=stop_reason)


def _unmet_note(unmet: Collection[tuple[str, str]]) -> str:
    """What is said of the writes that a text may claim: what may have happened is not told as not done."""
    failed = dict(one for one in unmet if one[1] not in ("in_doubt", UNUSABLE))
    parts = (
        _not_done_sentence(failed.items()),
        _unusable_sentence(dict.fromkeys(tool for tool, reason in unmet if reason == UNUSABLE)),
        _doubts_sentence(dict.fromkeys(tool for tool, reason in unmet if reason == "in_doubt")),
    )
    return " ".join(filter(None, parts))


def _not_done_sentence(not_done: Collection[tuple[str, str]]) -> str:
    named = [f"{tool} ({REASON_WORDS.get(why, 'it could not be done')})" for tool, why in not_done]
    more = ["and more"] * (len(named) > _MAX_NAMES)
    return f"Not done: {', '.join([*named[:_MAX_NAMES], *more])}." if named else ""


def _unusable_sentence(tools: Collection[str]) -> str:
    ran = f"{', '.join([*tools][:_MAX_NAMES])} ran"
    return f"{ran}, but {'its answer was' if len(tools) == 1 else 'their answers were'} unusable." if tools else ""


def _unrepeated_sentence(tools: Collection[str]) -> str:
    return f"Not run a second time: {', '.join([*dict.fromkeys(tools)][:_MAX_NAMES])}." if tools else ""


def _doubts_sentence(doubts: Collection[str]) -> str:
    return f"It is not known whether {', '.join([*doubts][:_MAX_NAMES])} took effect." if doubts else ""


def add_not_done(not_done: dict[tuple[str, str], None], outcome: Outcome) -> None:
    """Add what did not end well, as tool and reason, each thing once; beyond twenty only that there was more.

    The tool's name may be one that the model invented: it is cut, and shown so that it does nothing.
    """
    if len(not_done) <= _MAX_NAMES:
        not_done[_display_name(outcome.tool[:_NAME_CHARS]), outcome.stop_reason or outcome.status] = None


def forget_not_done(not_done: dict[tuple[str, str], None], tool: str) -> None:
    """Forget what a tool did not do, now that it did its work; what a person refused stays refused."""
    name = _display_name(tool[:_NAME_CHARS])
    for one in [one for one in not_done if one[0] == name and one[1] != "approval_denied"]:
        not_done.pop(one, None)


@lru_cache(512)
def _display_name(name: str) -> str:
    return neutralise(name.replace("\n", " "))
