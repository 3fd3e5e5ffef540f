"""Observers of events while they are recorded: alerts, metrics, a host's own callback.

In: events as they happen, unredacted.
Out: copies without payloads and without texts that may repeat a value, so that no observer can leak what the
    trace redacts.
Never: an observer's exception that reaches a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pokayoke.runtime.trace.line import SAFE_FIELDS

Observer = Callable[[dict[str, Any]], object]

# Names, numbers and codes; every other field may hold what a model, a user or a tool wrote.
_PUBLIC_FIELDS: Final = SAFE_FIELDS | {"error", "alert", "invalid", "outputs", "candidate", "differs"}


def public_event(event: dict[str, Any], *, common: bool) -> dict[str, Any]:
    """Return the part of an event that an observer sees.

    Args:
        event: as the trace received it.
        common: True if it holds only names, numbers and the two payloads, and no finding but our own.

    Returns:
        Names, numbers and hashes; the codes of findings (`findings`) and the rules of corrections (`corrections`).
        `broken` holds the codes of an output that broke its contract and was passed on in monitor mode. `tool` is
        what the model wrote unless `contract` is there too.
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
        # In monitor mode a broken output ends ok. A tool without an output contract breaks none.
        if event.get("status") == "ok" and "no_output_contract" not in codes:
            seen["broken"] = tuple([finding.code for finding in findings if finding.blame == "tool"])
    if corrections := event.get("corrections"):
        seen["corrections"] = tuple([correction.rule for correction in corrections])
    if event.get("event") == "stop":
        seen["reason"] = event.get("reason")  # a `StopReason`, never free text
    return seen


def notify_observers(
    observers: tuple[Observer, ...],
    seen: dict[str, Any],
    broken: list[Observer],
    record: Callable[[dict[str, Any]], object],
) -> None:
    """Notify all observers of one event.

    Args:
        observers: in the order of registration.
        seen: from `public_event`.
        broken: the observers whose failure was reported; this adds to it.
        record: records the first failure of an observer as an event.
    """
    for observer in observers:
        try:
            observer(seen)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the observer's own failure must not reach the call
            if not any(one is observer for one in broken):
                broken.append(observer)
                record({"event": "observer", "ok": False, "reason": f"an observer raised {type(error).__name__}"})
