"""One measured ratio and its bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """One measured ratio and its bounds.

    Attributes:
        id: name of the goal.
        title: what over what.
        value: the ratio; None if it cannot be measured here.
        required: the bound that must hold.
        stretch: the bound to aim at.
        most: True if the bound is an upper one.
        note: absolute figures behind the ratio.
    """

    id: str
    title: str
    value: float | None
    required: float
    stretch: float
    most: bool = True
    note: str = ""

    @property
    def is_met(self) -> bool:
        if self.value is None:
            return True
        return self.value <= self.required if self.most else self.value >= self.required


def format_us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def format_goal(goal: Goal) -> str:
    if goal.value is None:
        return f"  {goal.id:4} {goal.title:68}        -  {goal.note}"
    bound = "" if math.isinf(goal.required) else f"{'<=' if goal.most else '>='} {goal.required:g} ({goal.stretch:g})"
    mark = "" if math.isinf(goal.required) else "ok" if goal.is_met else "MISSED"
    return f"  {goal.id:4} {goal.title:68} {goal.value:8.2f}  {bound:14} {mark:6}  {goal.note}"
