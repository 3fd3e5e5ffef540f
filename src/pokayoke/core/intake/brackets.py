"""Where the brackets of a text are closed that no reader can take at its word: outside of its strings.

Text goes in, offsets come out. No stretch is walked over more than twice, whatever is asked.
"""

from __future__ import annotations

import re

_TOKENS = re.compile(
    r"\"(?:[^\"\\]++|\\.)*(?:\"|(?P<cut>\\?\Z))|(?<![\w\\])'(?:[^'\\\n]++|\\.)*'|[{\[]|[}\]]"
    r"|(?P<tag></?(?:tool_call|function_call|function|(?:[\w.｜-]{1,40}[:｜])?invoke)\b|<[|｜]|\[TOOL_CALLS\])",
    re.DOTALL,
).finditer
"""Strings, brackets, and the tags of calls. An apostrophe in a word opens no string."""


class BracketIndex:
    """The brackets of one text, as far as somebody asked.

    Attributes:
        cut: True once a string was open where the text ended.
    """

    __slots__ = ("_closers", "_text", "_walked", "cut")

    def __init__(self, text: str) -> None:
        """Start without having looked."""
        self.cut = False
        self._text = text
        self._closers: dict[int, int] = {}
        self._walked = -1

    def find_end(self, start: int) -> int:
        """Return where what a bracket at `start` opens is over; -1 if the tag of a call or the end comes first.

        Args:
            start: the offset of an opening bracket; the offsets of one text are asked for in rising order.
        """
        if start >= self._walked:
            self._scan_from(start)
        return self._closers.get(start, -1)

    def _scan_from(self, start: int) -> None:
        opened: list[int] = []
        for found in _TOKENS(self._text, start):
            sign = found[0]
            if sign in ("{", "["):
                opened.append(found.start())
            elif sign in ("}", "]"):
                self._closers[opened.pop()] = self._walked = found.end()
                if not opened:
                    return
            elif found["tag"]:
                self._walked = found.start()
                return
            elif found["cut"] is not None:
                self.cut = True
        self._walked = len(self._text)
