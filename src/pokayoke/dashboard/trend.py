"""Small pictures of numbers over time, drawn by the server.

In: numbers.
Out: coordinates for an SVG in a template.
Never: a style attribute, which the policy of the pages forbids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 120
HEIGHT: Final = 28
_EDGE: Final = 2.0


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
