"""The last word of a run: the model's own answer if it says something, else an honest fallback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache

import msgspec

from pokayoke.core.call import Outcome, StopReason
from pokayoke.core.host_input import as_answer
from pokayoke.core.text.neutralise import neutralise

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
    not_done: Collection[str],
    stop_reason: StopReason | None,
    *,
    unmet: Collection[tuple[str, str]] = (),
    unrepeated: Collection[str] = (),
    fallback: str | None = None,
    certain: bool = True,
    doubts: Collection[str] = (),
    harmless: bool = True,
) -> Answer:
    """Accept or replace the model's last text.

    A model may claim what it did not do, and no rule can read that out of a text. So what was tried and
    not done, or may have been, is said beside its words, whatever they are.

    Args:
        text: what the model wrote; None or blank if it wrote nothing.
        done: names of the writes that took effect, in order.
        not_done: what was refused or failed, in order, with reasons; see `add_not_done`.
        stop_reason: why the run ended, if it has.
        unmet: tools of writes that were tried and not done, each with the reason; `in_doubt` if it may have been.
        unrepeated: tools of writes that were to happen a second time and did not.
        fallback: the host's own text for a model that wrote nothing; None makes one of what is known.
        certain: False if there may be writes that are not in `done`, because the ledger cannot be read.
        doubts: tools of writes of which nobody knows whether they took effect.
        harmless: False if a write failed by no more than its tool's word, which does not prove that nothing happened.

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
    parts = ["I could not finish this safely."]
    times = [name if count == 1 else f"{name} ({count} times)" for name, count in Counter(done).items()]
    unchanged = certain and harmless and not doubts
    parts.append(f"Done: {', '.join(times)}." if done else "Nothing was changed." if unchanged else "")
    parts += [_unrepeated_sentence(unrepeated), _doubts_sentence(doubts)]
    if not certain:
        parts.append("What was changed before cannot be looked up now.")
    if not_done:
        named = [*not_done][:_MAX_NAMES] + ["and more"] * (len(not_done) > _MAX_NAMES)
        parts.append(f"Not done: {'; '.join(named)}.")
    return Answer(" ".join(filter(None, parts)), verified=False, stop_reason=stop_reason)


def _unmet_note(unmet: Collection[tuple[str, str]]) -> str:
    """What is said of the writes that a text may claim: what may have happened is not told as not done."""
    known = {tool: reason for tool, reason in unmet if reason != "in_doubt"}
    failed = ", ".join(f"{tool} ({reason})" for tool, reason in known.items())
    unknown = _doubts_sentence(dict.fromkeys(tool for tool, reason in unmet if reason == "in_doubt"))
    return " ".join(filter(None, (f"Not done: {failed}." if failed else "", unknown)))


def _unrepeated_sentence(tools: Collection[str]) -> str:
    return f"Not run a second time: {', '.join([*dict.fromkeys(tools)][:_MAX_NAMES])}." if tools else ""


def _doubts_sentence(doubts: Collection[str]) -> str:
    return f"It is not known whether {', '.join([*doubts][:_MAX_NAMES])} took effect." if doubts else ""


def add_not_done(not_done: dict[str, None], outcome: Outcome) -> None:
    """Add what did not end well, each thing once; beyond twenty only that there was more.

    The tool's name may be one that the model invented: it is cut, and shown so that it does nothing.
    """
    if len(not_done) <= _MAX_NAMES:
        not_done[f"{_display_name(outcome.tool[:_NAME_CHARS])}: {outcome.stop_reason}"] = None


@lru_cache(512)
def _display_name(name: str) -> str:
    return neutralise(name.replace("\n", " "))
