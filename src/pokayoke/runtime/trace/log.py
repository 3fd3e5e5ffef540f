"""Log lines for those who run a program: what keeps a guard from doing its work, on the logger `pokayoke`.

In: the redacted line of a trace event, or a problem in words.
Out: one line of the standard library's logging, level WARNING.
Never: a line about a model's mistake or a tool's answer, an argument, or an exception.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import orjson

LOGGED_EVENTS: Final = frozenset({"config", "contracts", "store", "webhook", "switch", "observer"})
"""Trace events about the guard and not about a call; one that is not ok is logged, too."""


def log_event(line: bytes) -> None:
    """Log a trace event from its line."""
    event: dict[str, Any] = orjson.loads(line)
    where = f" of {event['tool']}" if event.get("tool") not in (None, "*") else ""
    log_problem(f"{event['event']}{where}", str(event.get("reason", "")))


def log_problem(what: str, reason: str) -> None:
    """Log a problem on one line. A program that is ending has no logging any more."""
    with suppress(ImportError):
        import logging  # noqa: PLC0415 - 6 ms of import, for problems

        logging.getLogger("pokayoke").warning("%s: %s", what, " ".join(reason.split()))
