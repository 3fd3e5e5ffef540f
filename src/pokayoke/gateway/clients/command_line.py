"""Where a server's command line stands in the text of a configuration, and the edits that change it.

In: the places of a program and its arguments.
Out: edits of the text.
Never: an edit that cannot be taken back by its counterpart; what stands between and around the words stays.

Words are put in front of a command line, and taken away again:

    "command": "npx", "args": ["-y", "files"]
    "command": "/bin/guard", "args": ["mcp", "--", "npx", "-y", "files"]

The program moves as it is written, and the rest of the list is not touched. Where an entry has no list of arguments one
is added, which begins with a blank; so the list that has to go again is told from an empty one that was there before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pokayoke.errors import ConfigurationError

_UNWRITABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters of a text, from `start` to before `end`, and what replaces them."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """A string in a text.

    Attributes:
        value: what it means.
        start: index of its first quote.
        end: index after its last quote.
    """

    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WordList:
    """A list of strings in a text.

    Attributes:
        words: its items.
        commas: index after the comma behind each item; the last item may have none.
        start: index of its bracket.
        end: index after its last bracket.
    """

    words: tuple[Word, ...]
    commas: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of one server in a text.

    Attributes:
        text: the whole text.
        program: None where the list holds the program as well.
        arguments: None where the entry has none.
        gap: where a list of arguments is added: after this character.
        key: what is written before an added list: its comma or line end, and its key.
    """

    text: str
    program: Word | None
    arguments: WordList | None
    gap: int
    key: str

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments."""
        program = () if self.program is None else (self.program.value,)
        return program + (() if self.arguments is None else tuple(word.value for word in self.arguments.words))

    def put_in_front(self, words: Sequence[str]) -> list[Edit]:
        """Return the edits that put words in front of the command line."""
        if self.program is None:
            assert self.arguments is not None  # a command line has at least one word
            return [self._insert(self.arguments, ", ".join(map(dump_word, words)))]
        first, *others = map(dump_word, words)
        moved = ", ".join([*others, self.text[self.program.start : self.program.end]])
        replaced = Edit(self.program.start, self.program.end, first)
        if self.arguments is None:
            return [replaced, Edit(self.gap, self.gap, f"{self.key}[ {moved}]")]
        return [replaced, self._insert(self.arguments, moved)]

    def replace_front(self, count: int, words: Sequence[str]) -> list[Edit]:
        """Return the edits that replace the first `count` words."""
        if self.program is None:
            return self._replace(count, words)
        first = Edit(self.program.start, self.program.end, dump_word(words[0]))
        return [first, *self._replace(count - 1, words[1:])]

    def take_from_front(self, count: int) -> list[Edit]:
        """Return the edits that take the first `count` words away."""
        assert self.arguments is not None  # there are words behind those
        removed = Edit(self._start_of_words(), self._end_of(count), "")
        if self.program is None:
            return [removed]
        moved = self.arguments.words[count - 1]
        restored = Edit(self.program.start, self.program.end, self.text[moved.start : moved.end])
        before = self.text[self.gap : self.arguments.start + 2]
        if before == f"{self.key}[ " and count == len(self.arguments.words):
            removed = Edit(self.gap, self.arguments.end, "")
        return [restored, removed]

    def _insert(self, into: WordList, written: str) -> Edit:
        at = into.start + 1
        if not into.words:
            return Edit(at, at, written)
        # A list that begins on a line of its own gets no blank at the end of the line.
        return Edit(at, at, f"{written}," if self.text[at : at + 1] in "\r\n" else f"{written}, ")

    def _replace(self, count: int, words: Sequence[str]) -> list[Edit]:
        assert self.arguments is not None  # there are words behind those
        old = self.arguments.words[:count]
        return [Edit(old[0].start, old[-1].end, ", ".join(map(dump_word, words)))]

    def _start_of_words(self) -> int:
        """Return where what `_insert` has written starts; a comment that somebody put before it stays."""
        assert self.arguments is not None  # it has words
        start = self.arguments.start + 1
        first = self.arguments.words[0].start
        return first if self.text[start:first].strip() else start

    def _end_of(self, count: int) -> int:
        """Return where what `_insert` has written ends, if it has put this many words into the list."""
        assert self.arguments is not None  # it has those words
        index = count - 1
        if index >= len(self.arguments.commas):
            return self.arguments.words[index].end
        end = self.arguments.commas[index]
        return end + 1 if self.text[end] == " " else end


def dump_word(word: str) -> str:
    """Return a word as a string of JSON, which is one of TOML as well.

    Raises:
        ConfigurationError: it holds a control character, or bytes that are no UTF-8.
    """
    if _UNWRITABLE.search(word):
        raise ConfigurationError(f"{word!r} cannot be written into a configuration: it holds a control character")
    return json.dumps(word, ensure_ascii=False)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return a text after edits that do not overlap."""
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        pieces += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join([*pieces, text[at:]])
