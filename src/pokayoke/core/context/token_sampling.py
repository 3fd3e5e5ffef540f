"""Estimates the tokens of a long series of texts by sampling the series as a whole.

In: texts, one after the other, such as a run's outputs.
Out: their tokens in all. The beginning is read in full, then an ever smaller share, enough for the sum to be as good
as the estimate of a single text; a text without a sample costs one addition. Decision 0026 has the reasons.
Never: keep whole texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_WINDOW: Final = 50
"""Characters of one sample."""
_WINDOWS_PER_PACE: Final = 64
"""Samples until their distance doubles."""
_MAX_STEP: Final = 12_800
"""Maximum distance of samples in characters, on average."""
_GOLDEN_RATIO: Final = (5**0.5 - 1) / 2


class TokenSampler:
    """A sampled series of texts.

    Thread-safe: concurrent calls may at most sample a place twice or not at all.

    Args:
        weigh: estimates the tokens of a text from all of its characters.
    """

    __slots__ = ("_covered", "_density", "_looks", "_next", "_pace", "_pieces", "_texts", "_tokens", "_weigh")

    def __init__(self, weigh: Callable[[str], float]) -> None:
        """Start empty."""
        self._weigh = weigh
        self._texts = self._covered = 0  # number and characters of the texts since the last estimate
        self._next = 0  # start of the next sample, from the beginning of the next text
        self._pace, self._looks = _WINDOW, 0
        self._pieces: list[str] = []
        self._density = 0.0  # tokens per character of the latest samples
        self._tokens = 0.0

    def add_text(self, text: str) -> None:
        """Add a text."""
        size = len(text)
        self._texts += 1
        self._covered += size
        at = self._next
        if at < size:
            at = self._sample_text(text, size, at)
        self._next = at - size

    def take_totals(self) -> tuple[int, int]:
        """Return the number and the tokens of the texts since the last call."""
        self._weigh_samples()
        texts, tokens = self._texts, round(self._tokens)
        self._texts, self._tokens = 0, 0.0
        return texts, tokens

    def _sample_text(self, text: str, size: int, at: int) -> int:
        """Take the samples of a text. Returns the start of the next one."""
        pace = max(self._pace, size // _WINDOWS_PER_PACE)  # limits the samples of one text to about those of one pace
        if pace == _WINDOW:
            self._pieces.append(text)
            self._looks += 1 + size // _WINDOW
            at = size
        while at < size:
            self._pieces.append(text[at : at + _WINDOW] if at + _WINDOW <= size else text[-_WINDOW:])
            self._looks += 1
            # Never an even step: a tool's texts have one length and one shape, and each must be sampled at another
            # place. The golden ratio spreads the steps evenly.
            at += int(pace * (0.5 + self._looks * _GOLDEN_RATIO % 1))
        if self._looks >= _WINDOWS_PER_PACE:
            self._weigh_samples()
            self._looks, self._pace = 0, min(2 * self._pace, _MAX_STEP)
        return at

    def _weigh_samples(self) -> None:
        """Estimate all texts from the samples."""
        pieces, covered = self._pieces, self._covered
        self._pieces, self._covered = [], 0
        if sample := "".join(pieces):
            self._density = self._weigh(sample) / len(sample)
        self._tokens += covered * self._density
