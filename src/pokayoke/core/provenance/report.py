"""What was found of where the values of a call come from, and what follows under a policy.

In: a judgement and the mode of the call's tool.
Out: a decision, what the trace keeps, the sentences of a question, the finding of a refusal.
Never: a value of the call in what the trace keeps: its arguments stand there, redacted.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.policy import UntrustedMode
from pokayoke.core.provenance.provenance import Judgement, Reason
from pokayoke.core.provenance.sentences import describe_reason, describe_source

SourceDecision = Literal["allow", "ask", "refuse"]
_MOST_SENTENCES = 12


class SourceReport(msgspec.Struct, frozen=True):
    """Where the values of one call come from, and what follows.

    Args:
        decision: what happens now: `allow`, `ask` or `refuse`.
        mode: the mode of its tool.
        judgement: what was found.
    """

    decision: SourceDecision
    mode: UntrustedMode
    judgement: Judgement

    @property
    def invented_arguments(self) -> tuple[str, ...]:
        """Arguments with a value that neither the user nor any tool named."""
        return _arguments_of(one for one in self.judgement.sources if one.tier == "none" and self.judgement.knows_words)

    @property
    def stale_arguments(self) -> tuple[str, ...]:
        """Arguments with a value that a later answer of the same call replaced."""
        return _arguments_of(one for one in self.judgement.sources if one.is_stale)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Why a person has to decide, in words."""
        return tuple(map(describe_reason, self.judgement.reasons[:_MOST_SENTENCES]))

    @property
    def source_rows(self) -> tuple[dict[str, Any], ...]:
        """Where each target and amount stands: argument, tier, and step and place of the output."""
        return tuple(map(_source_row, self.judgement.sources))

    def as_event(self) -> dict[str, Any]:
        """Return what the trace keeps."""
        judged = self.judgement
        kept: dict[str, Any] = {
            "mode": self.mode,
            "decision": self.decision,
            "sources": self.source_rows,
        }
        if judged.reasons:
            kept["reasons"] = [{"rule": one.rule, **_source_row(one)} for one in judged.reasons]
        if self.invented_arguments:
            kept["invented"] = self.invented_arguments
        if self.stale_arguments:
            kept["stale"] = self.stale_arguments
        if not judged.knows_words:
            kept["words"] = "unknown"
        return kept

    def finding(self, tool: str) -> Finding:
        """Return the refusal.

        Args:
            tool: the tool's name.
        """
        first = self.judgement.reasons[0]
        what = "the user has not asked for it"
        if first.argument:
            what = f"the value of {first.argument} does not come from the user, and tools may not decide it"
        hint = (
            f"{tool} was not executed: {what}. Do not send it again in this turn. Tell the user what you wanted to do, "
            "and let the user say it in their own words."
        )
        return Finding(
            code="untrusted_value",
            at=f"/{first.argument}" if first.argument else "",
            blame="policy",
            message=f"{tool} was refused: {describe_source(first) if first.argument else 'the act was not asked for'}",
            hint=hint,
            data={"rules": sorted({one.rule for one in self.judgement.reasons})},
        )

    def notes(self) -> tuple[Finding, ...]:
        """Return findings that stop nothing: values that nobody named, and values that were replaced."""
        invented = [
            Finding(code="invented_value", at=f"/{name}", blame="model", message=f"nobody named the value of {name}")
            for name in self.invented_arguments
        ]
        stale = [
            Finding(
                code="stale_value",
                at=f"/{name}",
                blame="model",
                message=f"the value of {name} stands only in an answer that a later one replaced",
            )
            for name in self.stale_arguments
        ]
        return (*invented, *stale)


def decide_on_sources(
    judgement: Judgement, mode: UntrustedMode, *, is_declared: bool, may_ask: bool, enforces: bool
) -> SourceDecision:
    """Return what follows from a judgement.

    Args:
        judgement: what was found.
        mode: the mode of the tool.
        is_declared: True if the operator chose that mode. One that only follows from what the tool is, asks nothing
            of hosts who never say what their users wrote.
        may_ask: True if a person can be asked.
        enforces: False in monitor mode, which stops nothing.
    """
    if mode in ("off", "note") or not judgement.reasons or not enforces:
        return "allow"
    if not is_declared and not judgement.knows_words:
        return "allow"
    return "ask" if mode == "ask" and may_ask else "refuse"


def _arguments_of(sources: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.argument for one in sources))


def _source_row(one: Reason) -> dict[str, Any]:
    row: dict[str, Any] = {"argument": one.argument, "tier": one.tier}
    if one.rule == "act":
        return {"argument": "", "tier": "none", "act": one.value}
    if one.step is not None:
        row |= {"step": one.step, "place": one.place}
    return row
