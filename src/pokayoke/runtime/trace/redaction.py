"""The redactor of a policy: one for everything that a guard or a command writes or shows.

In: the trace section of a policy.
Out: a redactor.
Never: a second set of rules.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pokayoke.core.policy import TracePolicy
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.runtime.files.key_file import load_key


def build_redactor(policy: TracePolicy, own: Callable[[Any], Any] | None = None) -> Redactor:
    """Return the redactor that a policy configures.

    Args:
        policy: the names, patterns and the key file.
        own: the user's redactor; it gets every payload first.

    Raises:
        ConfigurationError: the key cannot be used.
        PolicyError: a pattern cannot be used.
    """
    path = policy.redact_key_path
    key = None if path is None else load_key(Path(path), "trace.redact_key_path")
    return Redactor(policy.redact_fields, policy.redact_patterns, own, key=key)
