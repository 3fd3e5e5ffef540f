"""Applies a person's answer to a question: one no decides, and one yes or two of different people.

In: a question, and an answer.
Out: the question as it stands after the answer, or why it takes none.
Never: two answers of one person counted as those of two.
"""

from __future__ import annotations

import unicodedata
from typing import Final

import msgspec

from pokayoke.core.ledger.admission import Approval, Endorsement

NOBODY: Final = ("", "unnamed")
"""Names that stand for a person who gave none."""


def apply_answer(known: Approval, *, approved: bool, by: str, reason: str, now: float) -> Approval | str:
    """Return a question after an answer, or a sentence about why it takes this answer not.

    Args:
        known: the question.
        approved: the answer.
        by: the person.
        reason: why.
        now: wall-clock second.
    """
    known = known.at(now)
    if known.status != "waiting":
        return f"approval {known.id!r} {_closed_reason(known)}"
    if approved and known.approvers > 1:
        person = _fold_person(by)
        if person in NOBODY:
            return f"approval {known.id!r} needs two people: say who approves it"
        if known.first is None:
            return msgspec.structs.replace(known, first=Endorsement(by, reason, now))
        if _fold_person(known.first.by) == person:
            return f"approval {known.id!r} was approved by {known.first.by} already; a second person has to approve it"
    status = "approved" if approved else "denied"
    return msgspec.structs.replace(known, status=status, by=by, reason=reason, decided_at=now)


def _fold_person(name: str) -> str:
    """Return a name as it is compared: case, width and white space make no second person."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _closed_reason(approval: Approval) -> str:
    """Return why a question takes no answer any more, and what that means for its call."""
    if approval.status == "expired":
        return "is expired already; the call has to ask again"
    return f"is {approval.status} already, by {approval.by}; {approval.consequence}"
