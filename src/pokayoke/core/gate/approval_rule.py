"""Which calls of a tool a person must approve, and how many people.

In: a rule, and the arguments that the tool would get.
Out: how many different people have to say yes; 0 if nobody is asked.
Never: a call let through because its amount is unknown. What cannot be measured is more than any amount.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pokayoke.core.ledger.admission import amount_size
from pokayoke.core.policy import AmountApproval

TWO: Final = 2


class ApprovalRule(msgspec.Struct, frozen=True, gc=False):
    """When calls of one tool need approval.

    Args:
        always: True if every call does.
        amounts: the arguments that do above an amount.
        defaults: what counts for those arguments where a call leaves them out.
        needs_two: True if two people have to approve whatever is asked.
    """

    always: bool = False
    amounts: tuple[AmountApproval, ...] = ()
    defaults: Mapping[str, Any] = {}
    needs_two: bool = False

    @property
    def may_ask(self) -> bool:
        """True if any call may need approval."""
        return self.always or bool(self.amounts)

    def count_approvers(self, arguments: Mapping[str, Any], *, is_asked: bool = False) -> int:
        """Return how many different people have to approve a call: 0, 1 or 2.

        Args:
            arguments: of the call.
            is_asked: True if another rule asks already, such as the one about repetitions.
        """
        count = 1 if self.always or is_asked else 0
        for one in self.amounts:
            value = arguments.get(one.field, self.defaults.get(one.field, math.inf))
            if amount_size(value) > one.above:
                count = max(count, one.approvers)
        return TWO if count and self.needs_two else count
