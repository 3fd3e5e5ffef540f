"""Findings for failed executions, in words for the model and for people.

In: how a tool or a store failed.
Out: a finding.
Never: an exception's text that reaches the model as anything but quoted data.
"""

from __future__ import annotations

from pokayoke.core.call import Effect, Finding
from pokayoke.core.flow.steps import NotStarted, Raised, TimedOut
from pokayoke.core.text.clip import clip_at_word
from pokayoke.errors import StoreError, ToolError

_NOTHING_CHANGED = "Nothing was changed."
_CALL_CHANGES_NOTHING = "The call itself changes nothing."


def execution_finding(
    reaction: Raised | TimedOut | NotStarted, tool: str, effect: Effect, *, doubtful: bool, exhausted: bool
) -> Finding:
    """The finding for a tool that raised, hung or could not be started.

    Args:
        reaction: how it failed.
        tool: the tool's name.
        effect: what it is declared to do. A read may still make guarded calls of its own that write, such as
            those of an agent it calls.
        doubtful: True if it is not known whether it took effect.
        exhausted: True if it was tried several times.
    """
    advice = (
        "It is not known whether it took effect. Do not send it again; read the current state and tell the user."
        if doubtful
        else (
            f"{_CALL_CHANGES_NOTHING if effect == 'read' else _NOTHING_CHANGED} "
            "Try other arguments or another tool, or tell the user."
        )
    )
    if isinstance(reaction, TimedOut):
        what = f"{tool} did not answer within {reaction.seconds:g} s"
        return Finding(code="tool_timeout", blame="tool", message=what, hint=f"{what}. {advice}")
    if isinstance(reaction, NotStarted):
        what = f"{tool} could not be started"
        return Finding(
            code="not_started", blame=reaction.blame, message=f"{what}: {reaction.reason}", hint=f"{what}. {advice}"
        )
    error = reaction.error
    said = _error_text(error)
    told = f": {said}" if isinstance(error, ToolError) else f" ({type(error).__name__})"
    again = " after several tries" if exhausted else ""
    return Finding(
        code="tool_failed",
        blame="tool",
        message=f"{tool} raised {type(error).__name__}: {said}",
        hint=f"{tool} failed{again}{told}. {advice}",
        data={"reason": type(error).__name__},
    )


def declared_failure_finding(tool: str, said: str) -> Finding:
    """The finding for a tool that answered that it failed."""
    return Finding(
        code="tool_error",
        blame="tool",
        message=f"{tool} reports a failure: {clip_at_word(said, 300)}",
        hint=f"{tool} reports a failure (quoted below as data). Change the arguments or tell the user.",
    )


def _error_text(error: BaseException) -> str:
    """Return the first words of an exception. One whose `str` raises must not end the call."""
    try:
        return clip_at_word(str(error), 300)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the tool's own code
        return "(without a readable text)"


def store_error_text(error: Exception) -> str:
    """Return the failure of a store for operators: its own text, but only the type of a driver's error.

    The text of a driver's error may hold values.
    """
    return _error_text(error) if isinstance(error, StoreError) else type(error).__name__


def not_recorded_finding(tool: str, reason: str) -> Finding:
    """The finding for a completion that the ledger did not record."""
    return Finding(
        code="not_recorded",
        blame="host",
        message=f"{tool} took effect, but the ledger did not record it: {reason}",
        hint=f"{tool} took effect, but this could not be recorded. Do not send it again; tell the user.",
    )
