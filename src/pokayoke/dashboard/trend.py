"""Small pictures of numbers over time, drawn by the server.

In: numbers.
Out: coordinates for an SVG in a template.
Never: a style attribute, which the policy of the pages forbids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

WIDTH: Final = 120
HEIGHT: Final = 28
_EDGE: Final = 2.0
MODES: Final = ("normal", "safe_mode", "final_answer", "stopped")
"""The rungs of a run's ladder, from the top."""


class Rung(msgspec.Struct, frozen=True, gc=False):
    """The mode of a run from a moment on.

    Args:
        mode: the mode.
        share: how much of the run's time had passed, 0 to 1.
        step: the number of the call.
        at: wall-clock second.
        reason: why.
    """

    mode: str
    share: float
    step: int
    at: float
    reason: str


def ladder_points(rungs: Sequence[Rung]) -> str:
    """Return the `points` of a line that goes down one stair at each change of the mode.

    Args:
        rungs: in the order of time; a mode without a rung is drawn at the lowest.
    """
    heights = [_EDGE + _rung_number(rung.mode) / (len(MODES) - 1) * (HEIGHT - 2 * _EDGE) for rung in rungs]
    corners: list[tuple[float, float]] = []
    for rung, height in zip(rungs, heights, strict=True):
        across = min(max(rung.share, 0.0), 1.0) * WIDTH
        corners += [(across, corners[-1][1])] if corners else []
        corners.append((across, height))
    corners += [(float(WIDTH), heights[-1])] if heights else []
    return " ".join(f"{across:.1f},{down:.1f}" for across, down in corners)


def _rung_number(mode: str) -> int:
    return MODES.index(mode) if mode in MODES else len(MODES) - 1


def trend_points(values: Sequence[float], top: float | None = None) -> str:
    """Return the `points` of a polyline that fills the picture.

    Args:
        values: the numbers, the latest last.
        top: the value at the upper edge; the highest of the numbers by default.
    """
    if len(values) == 1:
        values = [values[0], values[0]]
    step = WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{number * step:.1f},{trend_height(value, values, top):.1f}" for number, value in enumerate(values)
    )


def trend_height(value: float, values: Sequence[float], top: float | None = None) -> float:
    """Return the vertical place of a value."""
    highest = max([*values, top or 0.0, 1e-9]) if top is None else max(top, 1e-9)
    return HEIGHT - _EDGE - min(value / highest, 1.0) * (HEIGHT - 2 * _EDGE)
