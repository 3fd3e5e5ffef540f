"""Tests a guarded agent without a model: see `docs/guides/testing.md`.

No other part of the package imports this one.
"""

from pokayoke.testing.clock import FrozenClock
from pokayoke.testing.crash import STEPS, Crash, CrashPoint, crash_at, died, run_script
from pokayoke.testing.model import Reply, ScriptedModel, ScriptExhausted, ask
from pokayoke.testing.store import FailingStore
from pokayoke.testing.tools import (
    FAULTS,
    Fault,
    Faults,
    Happening,
    cyclic,
    drifted_schema,
    empty_body,
    error_inside_success,
    exits,
    faulty,
    generator,
    hang,
    html_field,
    html_page,
    nan,
    oversized,
    plain_object,
    raise_after,
    raise_before,
    truncated_json,
)

__all__ = [
    "FAULTS",
    "STEPS",
    "Crash",
    "CrashPoint",
    "FailingStore",
    "Fault",
    "Faults",
    "FrozenClock",
    "Happening",
    "Reply",
    "ScriptExhausted",
    "ScriptedModel",
    "ask",
    "crash_at",
    "cyclic",
    "died",
    "drifted_schema",
    "empty_body",
    "error_inside_success",
    "exits",
    "faulty",
    "generator",
    "hang",
    "html_field",
    "html_page",
    "nan",
    "oversized",
    "plain_object",
    "raise_after",
    "raise_before",
    "run_script",
    "truncated_json",
]
