"""Finds closing brackets in a text that is not valid JSON, outside of its strings.

In: a text and the offsets of opening brackets, in rising order.
Out: the offsets after the matching closers.
Never: read a part of the text more than twice.
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
    """The brackets of one text, found on demand.

    Attributes:
        cut: True once the text is known to end inside a string.
    """

    __slots__ = ("_closers", "_text", "_walked", "cut")

    def __init__(self, text: str) -> None:
        """Start at the beginning of the text."""
        self.cut = False
        self._text = text
        self._closers: dict[int, int] = {}
        self._walked = -1

    def find_end(self, start: int) -> int:
        """Return the offset after the closer of the bracket at `start`; -1 if a tag of a call or the end comes first.

        Args:
            start: the offset of an opening bracket; later calls need larger offsets.
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
