"""Small charts as inline SVG: no script, no font, no request; every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

Part = tuple[str, int, str]
"""Name, size and CSS class of a part of a bar."""

_WIDTH: Final = 1000
_GAUGE: Final = 44.0


def draw_bar(parts: Sequence[Part], *, whole: int | None = None, height: int = 14) -> str:
    """Return one bar of stacked parts, as wide as its place.

    Args:
        parts: what it is made of, from the left.
        whole: what the full width stands for; None is the sum of the parts.
        height: of the bar, in pixels.
    """
    total = max(whole or sum(size for _, size, _ in parts), 1)
    label = ", ".join(f"{name} {size:,}" for name, size, _ in parts if size)
    shapes: list[str] = []
    left = 0.0
    for name, size, kind in parts:
        if size <= 0:
            continue
        # What is there is visible, however little it is.
        width = max(_WIDTH * size / total, 3.0)
        shapes.append(
            f'<rect class="{escape(kind)}" x="{left:.2f}" y="0" width="{width:.2f}" height="{height}">'
            f"<title>{escape(name)}: {size:,}</title></rect>"
        )
        left += width
    return (
        f'<svg class="bar" role="img" aria-label="{escape(label)}" viewBox="0 0 {max(_WIDTH, left):.0f} {height}" '
        f'preserveAspectRatio="none" height="{height}">{"".join(shapes)}</svg>'
    )


def draw_gauge(share: float | None, kind: str) -> str:
    """Return a ring that is filled as far as a share says; empty and dashed where there is none."""
    round_ = 2 * 3.14159265 * _GAUGE
    open_ = '<svg class="gauge" viewBox="0 0 100 100" aria-hidden="true">'
    if share is None:
        return f'{open_}<circle class="none" cx="50" cy="50" r="{_GAUGE}"/></svg>'
    filled = round_ * min(max(share, 0.0), 1.0)
    return (
        f'{open_}<circle class="track" cx="50" cy="50" r="{_GAUGE}"/>'
        f'<circle class="{escape(kind)}" cx="50" cy="50" r="{_GAUGE}" transform="rotate(-90 50 50)" '
        f'stroke-dasharray="{filled:.2f} {round_:.2f}"/></svg>'
    )
