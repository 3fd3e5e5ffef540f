"""Findings about a history.

In: the code of a problem and its place.
Out: a finding for operators; the host or a framework caused it, as a model does not write a history.
Never: quote the content of a message at length.
"""

from __future__ import annotations

from pokayoke.core.call import Finding
from pokayoke.core.finding_codes import FINDING_CODES


def repair_finding(code: str, index: int, detail: str) -> Finding:
    """Return the finding for a repaired place of a history.

    Args:
        code: one of the room `context`, see `core/finding_codes.py`.
        index: position of the message in the original history, from 0.
        detail: the problem.
    """
    return Finding(code, at=f"/{index}", blame="host", message=f"message {index}: {detail}")


def left_out_finding(code: str, index: int) -> Finding:
    """Return the finding for left-out words of the user or the host; arguments as for `repair_finding`."""
    return repair_finding(code, index, FINDING_CODES[code].meaning)


def overflow_finding(tokens: int, window: int) -> Finding:
    """Return the finding for a history whose fixed part is too large.

    Args:
        tokens: its tokens after everything possible was left out.
        window: size of the window in tokens.
    """
    return Finding(
        "context_overflow",
        blame="host",
        message=f"history: {tokens} tokens (estimated) have to stay; expected at most {window}",
        hint="The conversation is too long to go on. Give your final answer now.",
        data={"tokens": tokens, "limit": window},
    )


def summariser_finding(reason: str) -> Finding:
    """Return the finding for an unusable summary."""
    return Finding("summariser_failed", blame="host", message=f"summarise: {reason}; the built-in summary stands in")
