"""The last word of a run: the model's own answer if it says something, else an honest fallback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from pokayoke.core.call import Outcome, StopReason
from pokayoke.core.host_input import as_answer
from pokayoke.core.state.words import REASON_WORDS, WORDS, say
from pokayoke.core.text.neutralise import neutralise

UNUSABLE: Final = "unusable"
"""The reason of a write that ran, and whose answer was unusable; beside stop reasons."""
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
    words: Mapping[str, str] = WORDS,
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
        words: the host's own sentences; see `WORDS`.

    Raises:
        UsageError: what the model wrote is neither a text nor None.
    """
    text = as_answer(text)
    if text is not None and text.strip():
        note = " ".join(filter(None, (_unmet_note(unmet, words), _list_tools(words, "unrepeated", unrepeated))))
        shown = f"{text}\n\n{say(words, 'note', note=note)}" if note else text
        return Answer(
            shown, verified=certain and not note and stop_reason in (None, "success"), stop_reason=stop_reason
        )
    if fallback and fallback.strip():
        return Answer(fallback, verified=False, stop_reason=stop_reason)
    times = [
        name if count == 1 else say(words, "several_times", tool=name, count=str(count))
        for name, count in Counter(done).items()
    ]
    unchanged = certain and not doubts and not unusable
    parts = (
        say(words, "unfinished"),
        say(words, "done", tools=", ".join(times)) if done else say(words, "unchanged") if unchanged else "",
        _list_unusable(words, unusable),
        _list_tools(words, "unrepeated", unrepeated),
        _list_tools(words, "in_doubt", doubts),
        "" if certain else say(words, "unknown_before"),
        _list_not_done(words, not_done),
    )
    return Answer(" ".join(filter(None, parts)), verified=False, stop_reason=stop_reason)


def call_note(outcome: Outcome, words: Mapping[str, str]) -> str:
    """Return what a user has to read of one call whose result no model words: "" of one that ran and ended ok."""
    if outcome.status == "replayed":
        return _list_tools(words, "unrepeated", [outcome.tool])
    if outcome.ok:
        return ""
    reason: str = {"unknown": "in_doubt", "done": UNUSABLE}.get(outcome.effect) or outcome.stop_reason or "other"
    return _unmet_note([(outcome.tool, reason)], words)


def _unmet_note(unmet: Collection[tuple[str, str]], words: Mapping[str, str]) -> str:
    """What is said of the writes that a text may claim: what may have happened is not told as not done."""
    failed = dict(one for one in unmet if one[1] not in ("in_doubt", UNUSABLE))
    parts = (
        _list_not_done(words, failed.items()),
        _list_unusable(words, dict.fromkeys(tool for tool, reason in unmet if reason == UNUSABLE)),
        _list_tools(words, "in_doubt", [tool for tool, reason in unmet if reason == "in_doubt"]),
    )
    return " ".join(filter(None, parts))


def _list_not_done(words: Mapping[str, str], not_done: Collection[tuple[str, str]]) -> str:
    named = [
        say(words, "reason", tool=tool, reason=say(words, why if why in REASON_WORDS else "other"))
        for tool, why in not_done
    ]
    more = [say(words, "more")] * (len(named) > _MAX_NAMES)
    return say(words, "not_done", tools=", ".join([*named[:_MAX_NAMES], *more])) if named else ""


def _list_unusable(words: Mapping[str, str], tools: Collection[str]) -> str:
    return _list_tools(words, "unusable" if len(tools) == 1 else "several_unusable", tools)


def _list_tools(words: Mapping[str, str], key: str, tools: Collection[str]) -> str:
    """Return a sentence about tools, each named once; nothing about none."""
    return say(words, key, tools=", ".join([*dict.fromkeys(tools)][:_MAX_NAMES])) if tools else ""


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
