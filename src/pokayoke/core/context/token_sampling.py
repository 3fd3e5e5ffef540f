"""How many tokens a long row of texts is worth, looked at in passing.

In come texts, one after the other, as a run's outputs come; out goes what all of them are worth. What a run has seen
is asked for in all, so the row is sampled as a whole: the beginning is looked at in full, then ever less of what comes,
always enough for the sum to be as true as the estimate of a single text. A text without a window costs an addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_WINDOW: Final = 50
"""Characters looked at in one place."""
_WINDOWS_PER_PACE: Final = 64
"""Windows until the next ones lie twice as far apart."""
_MAX_STEP: Final = 12_800
"""Characters from one window to the next, in the middle, at the widest pace."""
_GOLDEN_RATIO: Final = (5**0.5 - 1) / 2


class TokenSampler:
    """A row of texts, sampled as it passes.

    Safe to share between threads: two that meet may look at one place twice, or at none.

    Args:
        weigh: estimates the tokens of a text by looking at all of it.
    """

    __slots__ = ("_covered", "_density", "_looks", "_next", "_pace", "_pieces", "_texts", "_tokens", "_weigh")

    def __init__(self, weigh: Callable[[str], float]) -> None:
        """Begin with nothing seen."""
        self._weigh = weigh
        self._texts = self._covered = 0  # how many came, and their characters, since the last were weighed
        self._next = 0  # where the next window begins, counted from the beginning of the next text
        self._pace, self._looks = _WINDOW, 0
        self._pieces: list[str] = []
        self._density = 0.0  # tokens per character, of the latest pieces
        self._tokens = 0.0

    def add_text(self, text: str) -> None:
        """Take one more text."""
        size = len(text)
        self._texts += 1
        self._covered += size
        at = self._next
        if at < size:
            at = self._sample_text(text, size, at)
        self._next = at - size

    def take_totals(self) -> tuple[int, int]:
        """Return how many texts came since the last time, and the tokens they are worth."""
        self._weigh_samples()
        texts, tokens = self._texts, round(self._tokens)
        self._texts, self._tokens = 0, 0.0
        return texts, tokens

    def _sample_text(self, text: str, size: int, at: int) -> int:
        """Cut the windows that lie in a text. Returns where the next one would begin."""
        pace = max(self._pace, size // _WINDOWS_PER_PACE)  # no text takes many more than the windows of one pace
        if pace == _WINDOW:
            self._pieces.append(text)
            self._looks += 1 + size // _WINDOW
            at = size
        while at < size:
            self._pieces.append(text[at : at + _WINDOW] if at + _WINDOW <= size else text[-_WINDOW:])
            self._looks += 1
            # Never an even step: a tool writes texts of one length and one shape, and each has to be looked at in
            # another place. By the golden section the steps are spread evenly.
            at += int(pace * (0.5 + self._looks * _GOLDEN_RATIO % 1))
        if self._looks >= _WINDOWS_PER_PACE:
            self._weigh_samples()
            self._looks, self._pace = 0, min(2 * self._pace, _MAX_STEP)
        return at

    def _weigh_samples(self) -> None:
        """Weigh what was looked at, for all that came."""
        pieces, covered = self._pieces, self._covered
        self._pieces, self._covered = [], 0
        if sample := "".join(pieces):
            self._density = self._weigh(sample) / len(sample)
        self._tokens += covered * self._density
