"""What an effect in the ledger asks of a person, and what a person's decision on it means.

In: a record, and the record of its undoing.
Out: sentences.
Never: advice to send a write again whose effect is unknown.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import msgspec

from pokayoke.core.flow.repetition import REPLAY_WORDS, replay_words
from pokayoke.core.ledger.compensation import undoes
from pokayoke.core.ledger.records import MAX_ATTEMPTS, Record

NextStep = Literal["undone", "settle", "wait", "allow", "repeat", "reconcile", "look", "none"]


def find_next_step(record: Record, undoing: Record | None, now: float) -> NextStep:
    """Return what is to be done about an effect.

    Args:
        record: the effect.
        undoing: the effect that undoes it, or None.
        now: wall-clock second.
    """
    if undoing is not None and undoing.state == "completed" and undoes(undoing, record):
        return "undone"
    if record.is_doubtful(now):
        return "settle"
    if record.state in ("executing", "resolving"):
        return "wait"
    if record.state == "failed_retriable":
        return "allow" if record.attempt >= MAX_ATTEMPTS and not record.decided_by else "repeat"
    if record.state == "failed_final":
        return "reconcile"
    return "none" if record.output_ok else "look"


def describe_next_step(record: Record, undoing: Record | None, now: float) -> str:
    """Return what is to be done about an effect, in words that name the commands; arguments as in `find_next_step`."""
    resolve = f"`pokayoke ledger resolve {record.key[:12]}"
    until = datetime.fromtimestamp(record.lease_until, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "undone": "it was undone; nothing is to be done",
        "settle": (
            f"look in the target whether it took effect, then {resolve} --happened REF` or `--not-happened`, with "
            "--by and --reason"
        ),
        "wait": f"it is at work until {until} at the longest; look again then",
        "allow": (
            f"it failed {record.attempt} times without an effect and is not tried again, unless {resolve} "
            "--not-happened` allows it once more"
        ),
        "repeat": "nothing: the same call may run again",
        "reconcile": (
            "its tool reported a failure; `pokayoke ledger reconcile` tells whether it took effect all the same, and "
            f"{resolve} --happened REF` puts that on record"
        ),
        "look": "it took effect, and its output broke the contract: it never runs again; look at the tool",
        "none": "nothing: it happened once and never runs again",
    }[find_next_step(record, undoing, now)]


def preview_answer(record: Record, *, happened: bool) -> str:
    """Return how the next equal call is answered once a person has settled a doubt: what the model will read.

    Args:
        record: the effect in doubt.
        happened: the person's decision.
    """
    if not happened:
        return f"No text: the next equal call of {record.tool} runs once more, as if it had never been sent."
    settled = msgspec.structs.replace(record, state="completed", decided_by="a person")
    return (
        f"{REPLAY_WORDS}: {record.tool} {replay_words(settled, 0)}; the result of {record.tool} was not kept, only its "
        "reference: ..."
    )
