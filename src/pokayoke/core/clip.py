"""Texts that must not get long."""

from __future__ import annotations


def clip(text: str, most: int) -> str:
    """Return a text of `most` characters at the most; one that was cut ends with `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"
