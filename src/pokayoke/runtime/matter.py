"""A call that a run must not forget."""

from __future__ import annotations

from typing import Any, NamedTuple


class Matter(NamedTuple):
    """A call that is not over, or would be refused again.

    Args:
        tool: its tool.
        reason: what keeps it open, or the code of the finding.
        arguments: as the model sent them; None if nobody knows any more.
    """

    tool: str
    reason: str
    arguments: Any = None
