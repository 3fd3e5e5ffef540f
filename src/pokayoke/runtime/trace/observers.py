"""Who is told about events while they are recorded: alerts, metrics, a host's own callback.

What enters: events as they happen, unredacted. What leaves: copies without payloads and without texts
that may repeat a value, so that no observer can leak what the trace redacts. What must never happen
here: an exception of an observer that reaches a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pokayoke.runtime.trace.line import SAFE_FIELDS

Observer = Callable[[dict[str, Any]], object]

# Names, numbers and codes; everything else of an event may hold what a model, a user or a tool wrote.
_PUBLIC_FIELDS: Final = SAFE_FIELDS | {"error", "alert", "invalid", "outputs", "candidate", "differs"}


def public_event(event: dict[str, Any], *, common: bool) -> dict[str, Any]:
    """Return what an observer sees of an event.

    Args:
        event: as it was handed to the trace.
        common: it holds names, numbers and the two payloads only, and no finding but of our own.

    Returns:
        Names, numbers and hashes. Of findings their codes (`findings`), of corrections their rules
        (`corrections`); `broken` holds the codes of an output that was handed on in monitor mode although
        it broke its contract. `tool` is what the model wrote unless `contract` is there, too.
    """
    if common:
        seen = event.copy()
        seen.pop("arguments", None)
        seen.pop("result", None)
        if findings := seen.get("findings"):
            seen["findings"] = tuple([finding.code for finding in findings])
        return seen
    seen = {key: value for key, value in event.items() if key in _PUBLIC_FIELDS}
    if findings := event.get("findings"):
        seen["findings"] = codes = tuple([finding.code for finding in findings])
        # In monitor mode a broken output ends ok. A tool that promises nothing breaks nothing.
        if event.get("status") == "ok" and "no_output_contract" not in codes:
            seen["broken"] = tuple([finding.code for finding in findings if finding.blame == "tool"])
    if corrections := event.get("corrections"):
        seen["corrections"] = tuple([correction.rule for correction in corrections])
    if event.get("event") == "stop":
        seen["reason"] = event.get("reason")  # a `StopReason`, never somebody's words
    return seen


def notify_observers(
    observers: tuple[Observer, ...],
    seen: dict[str, Any],
    broken: list[Observer],
    record: Callable[[dict[str, Any]], object],
) -> None:
    """Tell all observers of one event.

    Args:
        observers: in the order in which they began.
        seen: from `public_event`.
        broken: the observers that have been reported; this adds to it.
        record: takes the event that reports the first failure of an observer.
    """
    for observer in observers:
        try:
            observer(seen)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - somebody else's code, and the call is none of its business
            if not any(one is observer for one in broken):
                broken.append(observer)
                record({"event": "observer", "ok": False, "reason": f"an observer raised {type(error).__name__}"})
