"""The last word of a run: the model's own answer if it says something, else an honest fallback."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pokayoke.core.call import StopReason


class Answer(msgspec.Struct, frozen=True):
    """What the user gets to read.

    Attributes:
        text: the model's text, or the fallback.
        verified: True if the model's text was not empty and the run did not stop before it.
        stop_reason: why the run ended; None while it goes on.
    """

    text: str
    verified: bool
    stop_reason: StopReason | None


def final_answer(
    text: str | None,
    done: Sequence[str],
    not_done: Sequence[str],
    stop_reason: StopReason | None,
    *,
    fallback: str | None = None,
) -> Answer:
    """Accept or replace the model's last text.

    Args:
        text: what the model wrote; None or blank if it wrote nothing.
        done: names of the writes that took effect, in order.
        not_done: what was refused or failed, in order, with reasons.
        stop_reason: why the run ended, if it has.
        fallback: the host's own text for a model that wrote nothing; None makes one of what is known.
    """
    if text is not None and text.strip():
        return Answer(text, verified=stop_reason in (None, "success"), stop_reason=stop_reason)
    if fallback and fallback.strip():
        return Answer(fallback, verified=False, stop_reason=stop_reason)
    parts = ["I could not finish this safely."]
    parts.append(f"Done: {', '.join(done)}." if done else "Nothing was changed.")
    if not_done:
        parts.append(f"Not done: {'; '.join(dict.fromkeys(not_done))}.")
    return Answer(" ".join(parts), verified=False, stop_reason=stop_reason)
