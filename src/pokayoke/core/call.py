"""The nouns of a call: the call, a finding, a correction, a verdict, an outcome.

In: plain values.
Out: immutable values that travel from room to room.
Never: a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from operator import index
from typing import Any, Final, Literal, cast

import msgspec

from pokayoke.errors import CallRefused, OutcomeError, ToolFailed, ToolOutputInvalid, UsageError

Effect = Literal["read", "write", "destructive"]
Blame = Literal["model", "tool", "policy", "host"]
Decision = Literal["allow", "refuse", "ask", "replay", "stop"]
Status = Literal["ok", "replayed", "degraded", "pending", "refused", "failed", "invalid_output", "in_doubt"]
Mode = Literal["normal", "safe_mode", "final_answer", "stopped"]
EffectStatus = Literal["none", "done", "unknown"]
CorrectionKind = Literal["equivalent", "declared", "likely"]
StopReason = Literal[
    "success",
    "unknown_tool",
    "invalid_arguments",
    "low_confidence",
    "permission_denied",
    "approval_denied",
    "awaiting_approval",
    "quota_exceeded",
    "invalid_tool_output",
    "tool_failure",
    "loop_detected",
    "context_overflow",
    "budget_exhausted",
    "kill_switch",
    "in_doubt",
]

UNDECLARED: Final = cast("Effect", str(b"write", "ascii"))
"""The effect of a tool whose host has declared none. It is a write like any other, but another object than the literal
`"write"`: provenance goes by the tool's name where nobody has said what the tool does."""
SUCCESSFUL: frozenset[Status] = frozenset(("ok", "replayed"))
"""What an outcome's status is if there is a valid, current result."""
ERRORS: Mapping[Status, type[OutcomeError]] = {
    "refused": CallRefused,
    "pending": CallRefused,
    "invalid_output": ToolOutputInvalid,
    "degraded": ToolOutputInvalid,
    "failed": ToolFailed,
    "in_doubt": ToolFailed,
}
"""What an outcome of any other status is as an exception."""
NO_DATA: Mapping[str, Any] = {}


class ToolCall(msgspec.Struct, frozen=True):
    """What the model asks for.

    Args:
        id: the provider's call id. Ids repeat in real recordings; an id alone is never a key.
        name: the tool name as the model wrote it.
        arguments: the argument text or bytes as the provider sent them, or a dict already parsed.
        stop_reason: why the provider says the message ended, if known.
        confidence: the host's own confidence in this call, 0 to 1, if it has one.
        occurrence: 0 for the first; a wanted repetition of an equal write carries 1, 2, ...
        unread: the refusal by `read_calls`, if that found the call in a text and did not prove it (see
            `ReadCall.to_tool_call`): its name, and behind a space what it is about. The arguments are not read again.

    Raises:
        UsageError: the confidence is no number from 0 to 1 (NaN is taken for none at all, and so for 0), or the
            occurrence no whole number from 0.
    """

    id: str
    name: str
    arguments: str | bytes | dict[str, Any]
    stop_reason: str | None = None
    confidence: float | None = None
    occurrence: int = 0
    unread: str | None = None

    def __post_init__(self) -> None:
        """Take over what a provider left out (what is no text is an empty one), and numbers of any kind."""
        if type(self.id) is not str or type(self.name) is not str:
            for field, given in (("id", cast(object, self.id)), ("name", cast(object, self.name))):
                msgspec.structs.force_setattr(self, field, str.__str__(given) if isinstance(given, str) else "")
        if self.confidence is not None:
            msgspec.structs.force_setattr(self, "confidence", _parse_confidence(self.confidence))
        if type(self.occurrence) is not int or self.occurrence < 0:
            msgspec.structs.force_setattr(self, "occurrence", _parse_occurrence(self.occurrence))


def _parse_confidence(given: object) -> float:
    """Any kind of number from 0 to 1 as a float; a text is none."""
    if hasattr(type(given), "__float__"):
        with suppress(TypeError, ValueError, OverflowError):
            number = float(cast("float", given))
            if 0 <= number <= 1 or number != number:  # noqa: PLR0124 - NaN
                return number
    raise UsageError(f"confidence is a number from 0 to 1 or None, got {given!r}"[:200])


def _parse_occurrence(given: object) -> int:
    """Any kind of whole number from 0 as an int."""
    with suppress(TypeError):
        if (count := index(cast("int", given))) >= 0:
            return count
    raise UsageError(f"occurrence is a whole number from 0, got {given!r}"[:200])


class Finding(msgspec.Struct, frozen=True):
    """One observed problem.

    Args:
        code: stable, documented name, such as `missing_field`.
        at: JSON pointer into the value it is about; "" is the whole.
        blame: who has to change something: model, tool, policy or host.
        message: one sentence for operators: what, where, got, expected.
        hint: for the model: what to send instead. Under 600 characters, leaks no policy and no secret.
        data: machine-readable details, JSON values only.
    """

    code: str
    at: str = ""
    blame: Blame = "model"
    message: str = ""
    hint: str = ""
    data: Mapping[str, Any] = NO_DATA


class Correction(msgspec.Struct, frozen=True):
    """One value that was changed so that it fits its schema.

    Args:
        at: JSON pointer to the changed place, in the corrected value.
        rule: name of the rule that changed it, such as `number_from_string`.
        before: the value the model sent.
        after: the value the tool receives.
        kind: the class of the correction: equivalent, declared or likely.
    """

    at: str
    rule: str
    before: Any
    after: Any
    kind: CorrectionKind = msgspec.field(default="equivalent", name="class")


class Raw(msgspec.Struct, frozen=True):
    """A tool result as it came over a wire, to be walked through every transport room.

    Args:
        body: text or bytes of the response.
        content_type: the media type it was sent with, if any.
        status: the HTTP status, if any; a text such as "503" is read, and one that says no success is a failure.
    """

    body: str | bytes
    content_type: str | None = None
    status: int | str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided before execution. Nothing has run.

    Attributes:
        decision: allow, refuse, ask, replay or stop.
        tool: the resolved tool name, or the name the model wrote if none was found.
        contract: `name@version`, or None if no contract was found.
        arguments: the effective arguments, or None if they could not be read.
        findings: everything that was observed, worst first.
        corrections: every change made to the arguments.
        repairs: names of the repairs that made the text parse.
        confidence: 0 to 1.
        stop_reason: why, when the decision is not allow or replay.
        sources: where each target and amount of a write comes from: `argument`, `tier` (prompt, own, trusted,
            anchored, leaf or none), and `step` and `place` of the output that holds it.
    """

    decision: Decision
    tool: str
    contract: str | None = None
    arguments: dict[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    corrections: tuple[Correction, ...] = ()
    repairs: tuple[str, ...] = ()
    confidence: float = 1.0
    stop_reason: StopReason | None = None
    sources: tuple[dict[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """True if the call would run (or be answered from the ledger)."""
        return self.decision in ("allow", "replay")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is known after a call. Every call ends in exactly one.

    Attributes:
        status: ok, replayed, degraded, pending, refused, failed, invalid_output or in_doubt.
        call_id: the provider's id of the call this answers.
        tool: the resolved tool name (or the one the model wrote).
        value: the validated result; None unless the status is ok, replayed or degraded.
        text: what the model reads; always safe to append to the history.
        content: binary or image blocks the tool returned, unread.
        findings: everything that was observed.
        corrections: every change made to the arguments.
        repairs: names of the repairs that made the argument text parse.
        effect: whether the tool's effect happened: none, done or unknown.
        stop_reason: why the call did not end ok; None if it did.
        safe_mode: what an invalid output led to (`skip_writes`, `fail_closed`, `human_review`).
        message: one sentence for people.
        contract: `name@version`, or None.
        key: the ledger key of a write, or None.
        repeated: True if it is a new effect of a call that had an equal effect before.
        attempts: how many times the tool was started.
        retry_exhausted: True if retries were allowed and used up.
        retry_after: seconds after which the same call may be tried, if known.
        approval: id of the approval this call waits for, if any.
    """

    status: Status
    call_id: str
    tool: str
    value: Any = None
    text: str = ""
    content: tuple[Any, ...] = ()
    findings: tuple[Finding, ...] = ()
    corrections: tuple[Correction, ...] = ()
    repairs: tuple[str, ...] = ()
    effect: EffectStatus = "none"
    stop_reason: StopReason | None = None
    safe_mode: str | None = None
    message: str = ""
    contract: str | None = None
    key: str | None = None
    repeated: bool = False
    attempts: int = 0
    retry_exhausted: bool = False
    retry_after: float | None = None
    approval: str | None = None

    def __repr__(self) -> str:
        """Return one line: how which call of which tool ended, and why."""
        why = f" ({self.findings[0].code})" if self.findings and not self.ok else ""
        return f"<Outcome {self.status}: {self.tool}, call {self.call_id!r}{why}>"

    @property
    def ok(self) -> bool:
        """True if there is a valid, current result: status ok or replayed."""
        return self.status in SUCCESSFUL

    def unwrap(self) -> Any:
        """Return the value, or raise what `pokayoke.errors` says for this status.

        Raises:
            CallRefused: the call was refused or is pending.
            ToolOutputInvalid: the output broke its contract (also when a degraded value exists).
            ToolFailed: the tool failed, or its effect is in doubt.
        """
        if self.ok:
            return self.value
        raise ERRORS[self.status](self.message or self.text, self)
