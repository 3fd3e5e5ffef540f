"""What a person reads of where a value comes from.

In: a reason.
Out: one sentence: the argument, the value, where it stands.
Never: advice on the answer.
"""

from __future__ import annotations

from typing import Final

from pokayoke.core.provenance.provenance import Reason, Tier
from pokayoke.core.text.clip import clip_at_word

_MOST_VALUE: Final = 80  # characters
_TIERS: Final[dict[Tier, str]] = {
    "prompt": "the user named it",
    "own": "this run made it, or a person approved it",
    "trusted": "it comes from a trusted tool",
    "anchored": "it stands in a record that the user's words single out",
    "leaf": "it stands only in what a tool returned",
    "none": "neither the user nor any tool named it",
}


def describe_reason(reason: Reason) -> str:
    """Return the sentence that says why a call is asked about, or where one of its values stands."""
    if reason.rule == "act":
        return f"the user's words do not ask for an act of this kind ({reason.value})"
    if reason.rule == "unread":
        return "the outputs that this run has read could not be searched in time"
    where = _describe_place(reason)
    stale = ", and was replaced by a later answer of the same call" if reason.is_stale else ""
    value = clip_at_word(reason.value, _MOST_VALUE)
    if reason.rule == "contact":
        return f"{reason.argument} holds the address {value!r}: {_TIERS[reason.tier]}{where}"
    if reason.rule == "private":
        return f"{reason.argument} holds {value!r}, which is not for outsiders unless the user says so{where}"
    if reason.tier == "prompt":
        # The value is the user's own, and still the rule asks: it was named in another part.
        return f"{reason.argument} is {value!r}: the user names it, but not as the one whom this call is for"
    more = ", and is more than any amount there" if reason.rule == "amount" and reason.tier == "anchored" else ""
    return f"{reason.argument} is {value!r}: {_TIERS[reason.tier]}{where}{stale}{more}"


def describe_source(source: Reason) -> str:
    """Return the sentence that says where a value of a call stands."""
    where = "" if source.tier == "prompt" else _describe_place(source)
    return f"{source.argument}: {_TIERS[source.tier]}{where}"


def _describe_place(reason: Reason) -> str:
    """Where a value stands. Outputs that only a history knows have negative steps."""
    if reason.step is None:
        return ""
    when = f"step {reason.step}" if reason.step > 0 else "earlier in the conversation"
    return f" ({reason.place}, {when})"
