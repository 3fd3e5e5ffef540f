"""Findings for failed executions, in words for the model and for people.

In: how a tool or a store failed.
Out: a finding.
Never: an exception's text that reaches the model as anything but quoted data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pokayoke.core.call import Effect, EffectStatus, Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.steps import NotStarted, Raised, Reaction, TimedOut, ToolNotStarted
from pokayoke.core.output.envelope import failure_text
from pokayoke.core.text.clip import clip_at_word, end_sentence
from pokayoke.errors import StoreError, ToolError

_UNKNOWN = "It is not known whether it took effect. Do not"
_LOOK_AND_TELL = "read the current state and tell the user."


def failed_effect(reaction: Reaction, contract: Contract) -> Literal["none", "unknown", "doubt"]:
    """Return what is known of the effect of a write that did not return.

    `none`: nothing happened. `unknown`: the tool itself said no, and may have done something before. `doubt`: nobody
    said anything, so that the effect may even be still to come.
    """
    if isinstance(reaction, NotStarted):
        return "none"
    if not isinstance(reaction, Raised) or reaction.is_text:
        return "doubt"
    if isinstance(reaction.error, (ToolNotStarted, *contract.no_effect_errors)):
        return "none"
    return reaction.error.effect if isinstance(reaction.error, ToolError) else "doubt"


def failure_advice(effect: Effect, became: EffectStatus) -> str:
    """Return what a model may do after a failed call: whatever it says, it follows the effect.

    Args:
        effect: what the tool is declared to do. A read may still make guarded calls of its own that write, such as
            those of an agent it calls.
        became: whether the effect of this call happened.
    """
    if became == "unknown":
        return f"{_UNKNOWN} send it again; {_LOOK_AND_TELL}"
    changed = "The call itself changes nothing." if effect == "read" else "Nothing was changed."
    return f"{changed} Try other arguments or another tool, or tell the user."


def unusable_advice(became: EffectStatus) -> str:
    """Return what a model may do after a write whose answer is unusable."""
    if became == "unknown":
        return f"{_UNKNOWN} do it again, in this or any other way; {_LOOK_AND_TELL}"
    return "It ran, and took effect. Do not do it again, in this or any other way; tell the user."


def execution_finding(
    reaction: Raised | TimedOut | NotStarted,
    tool: str,
    effect: Effect,
    *,
    became: EffectStatus,
    exhausted: bool,
    redact: Callable[[str], str] = str,
) -> Finding:
    """The finding for a tool that raised, hung or could not be started.

    Args:
        reaction: how it failed.
        tool: the tool's name.
        effect: what it is declared to do.
        became: whether its effect happened.
        exhausted: True if it was tried several times.
        redact: takes the secrets out of an exception's text.
    """
    advice = failure_advice(effect, became)
    if isinstance(reaction, TimedOut):
        what = f"{tool} did not answer within {reaction.seconds:g} s"
        return Finding(code="tool_timeout", blame="tool", message=what, hint=f"{what}. {advice}")
    if isinstance(reaction, NotStarted):
        what = f"{tool} could not be started"
        return Finding(
            code="not_started", blame=reaction.blame, message=f"{what}: {reaction.reason}", hint=f"{what}. {advice}"
        )
    error = reaction.error
    said = redact(_error_text(error))
    told = f": {said}" if isinstance(error, ToolError) else f" ({type(error).__name__})"
    again = " after several tries" if exhausted else ""
    return Finding(
        code="tool_failed",
        blame="tool",
        message=f"{tool} raised {type(error).__name__}: {said}",
        hint=f"{end_sentence(f'{tool} failed{again}{told}')} {advice}",
        data={"reason": type(error).__name__},
    )


def declared_failure_finding(tool: str, said: str, effect: Effect, became: EffectStatus) -> Finding:
    """The finding for a tool that answered that it failed; see `failure_advice`."""
    return Finding(
        code="tool_error",
        blame="tool",
        message=f"{tool} reports a failure: {clip_at_word(said, 300)}",
        hint=f"{tool} reports a failure (quoted below as data). {failure_advice(effect, became)}",
    )


def _error_text(error: BaseException) -> str:
    """Return the first words of an exception, none of a page. One whose `str` raises must not end the call."""
    try:
        return clip_at_word(failure_text(str(error)), 300)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the tool's own code
        return "(without a readable text)"


def store_error_text(error: BaseException) -> str:
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
