"""The confidence in a call, from the repairs and corrections it needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pokayoke.core.call import Correction
from pokayoke.core.correct.whole_numbers import WHOLE_RULE

_PER_REPAIR = 0.05
_PER_CORRECTION = 0.1
_PER_LIKELY = 0.3
_MOST_FROM_GIVEN = 0.15


def call_confidence(repairs: Sequence[str], corrections: Sequence[Correction], given: float | None = None) -> float:
    """Return how certain a call is, from 0 to 1.

    It is 1.0 less 0.05 per repair, 0.1 per correction and 0.3 more per likely one. The same correction of several
    items of one list counts once: it is one slip of the model. 2.0 that became 2 is the same number and costs nothing.
    The host's own confidence is lowered by at most 0.15.

    Args:
        repairs: names of the repairs that made the text parse.
        corrections: the changes that made the value fit.
        given: the host's own confidence; it is clamped to 0 to 1, and NaN counts as 0.
    """
    slips = {
        (tuple("*" if step.isdecimal() else step for step in item.at.split("/")), item.rule, item.kind)
        for item in corrections
        if item.rule != WHOLE_RULE
    }
    likely = sum(kind == "likely" for _, _, kind in slips)
    less = _PER_REPAIR * len(repairs) + _PER_CORRECTION * len(slips) + _PER_LIKELY * likely
    start = 1.0
    if given is not None:
        start = 0.0 if math.isnan(given) else min(1.0, max(0.0, given))
        less = min(less, _MOST_FROM_GIVEN)
    return round(max(0.0, start - less), 6)
