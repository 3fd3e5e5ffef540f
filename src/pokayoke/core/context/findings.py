"""Findings about a history.

In: the code of a problem and its place.
Out: a finding for operators; the host or a framework caused it, as a model does not write a history.
Never: quote the content of a message at length.
"""

from __future__ import annotations

from pokayoke.core.call import Finding

CODES: dict[str, str] = {
    "context_overflow": "the part of the history that must stay does not fit the window",
    "orphan_result": "a tool result without a call was left out of the history",
    "duplicate_result": "a call had two results; the later one was kept",
    "displaced_result": "a tool result did not follow its call and was moved there",
    "unanswered_call": "a tool call had no result; a result that says so was added",
    "unusable_call": "a tool call had an id or a name that a provider refuses, and got another; or it was not a call",
    "system_in_between": "Anthropic accepts no system message between the others; it became part of a user message",
    "system_left_out": "a system message between the others no longer fits the window; a note quotes it",
    "user_left_out": "the user's latest words no longer fit the window; at most a note quotes them",
    "empty_message": "an empty message, or an empty part of one, was left out because a provider refuses it",
    "summariser_failed": "the summariser failed or wrote too much; the built-in one replaced it",
}


def repair_finding(code: str, index: int, detail: str) -> Finding:
    """Return the finding for a repaired place of a history.

    Args:
        code: one of `CODES`.
        index: position of the message in the original history, from 0.
        detail: the problem.
    """
    return Finding(code, at=f"/{index}", blame="host", message=f"message {index}: {detail}")


def left_out_finding(code: str, index: int) -> Finding:
    """Return the finding for left-out words of the user or the host; arguments as for `repair_finding`."""
    return repair_finding(code, index, CODES[code])


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
