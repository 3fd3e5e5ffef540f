"""JSON with comments, read with the place of each value, so that an edit can leave everything else as it is.

In: the text of a configuration.
Out: its values, each with its first and its last character.
Never: a text that is written anew from its values.

Accepted beyond RFC 8259 is what editors accept in their settings: `//` and `/* */` comments, and a comma after the last
member. Of the packages for this format, none is both maintained and able to give places without running Node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.command_line import Word

_BLANK: Final = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*/)*")
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*"')
_SCALAR: Final = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_DEEPEST: Final = 100  # four calls each: well below the limit of the interpreter

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsoncArray:
    """An array, from its bracket to its bracket; `commas` are the indices after its commas."""

    items: tuple[JsoncValue, ...]
    commas: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class JsoncObject:
    """An object, from its brace to its brace, with its members in their order; a key may occur twice."""

    members: tuple[tuple[Word, JsoncValue], ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class JsoncOther:
    """A number, a literal, or a value that nobody wanted to look into."""

    start: int
    end: int


JsoncValue = Word | JsoncArray | JsoncObject | JsoncOther


def parse_jsonc(text: str, is_wanted: Callable[[Path], bool] = lambda path: True) -> JsoncValue:  # noqa: ARG005 - the signature
    """Return the value of a text.

    Args:
        text: a document without byte order mark.
        is_wanted: whether the value below these keys is looked into; the steps into an array are called `*`. Any other
            value is checked and skipped, which keeps a large state file small in memory.

    Raises:
        ConfigurationError: it is not JSON with comments, or is nested more than 100 levels deep.
    """
    return _JsoncParser(text, is_wanted).parse_document()


def describe_place(text: str, position: int) -> str:
    """Return the line and the column of a character, both counted from 1."""
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


class _JsoncParser:
    def __init__(self, text: str, is_wanted: Callable[[Path], bool]) -> None:
        self.text = text
        self.is_wanted = is_wanted
        self.at = 0

    def parse_document(self) -> JsoncValue:
        self._skip_blank()
        value = self._parse_value((), 0)
        self._skip_blank()
        if self.at < len(self.text):
            self._fail("the end of the file")
        return value

    def _skip_blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        assert found is not None  # it matches the empty text
        self.at = found.end()

    def _fail(self, expected: str) -> NoReturn:
        got = repr(self.text[self.at]) if self.at < len(self.text) else "the end of the file"
        raise ConfigurationError(f"{describe_place(self.text, self.at)}: expected {expected}, got {got}")

    def _parse_value(self, path: Path, depth: int) -> JsoncValue:
        start = self.at
        sign = self.text[start : start + 1]
        if sign == '"':
            return self._parse_text("a string")
        if sign in ("{", "["):
            if depth == _DEEPEST:
                raise ConfigurationError(f"{describe_place(self.text, start)}: nested more than {_DEEPEST} levels deep")
            parse = self._parse_object if sign == "{" else self._parse_array
            return parse(path, depth)
        found = _SCALAR.match(self.text, start)
        if found is None:
            self._fail("a value")
        self.at = found.end()
        return JsoncOther(start, self.at)

    def _parse_text(self, expected: str) -> Word:
        found = _STRING.match(self.text, self.at)
        if found is None:
            self._fail(f"{expected} in double quotes, without line ends or unknown escapes")
        self.at = found.end()
        return Word(json.loads(found[0]), found.start(), found.end())

    def _parse_object(self, path: Path, depth: int) -> JsoncValue:
        start = self.at
        members: list[tuple[Word, JsoncValue]] = []

        def parse_member() -> None:
            key = self._parse_text("a key")
            self._skip_blank()
            if self.text[self.at : self.at + 1] != ":":
                self._fail("':' after the key")
            self.at += 1
            self._skip_blank()
            members.append((key, self._parse_value((*path, key.value), depth + 1)))
            if not wanted:
                members.clear()

        wanted = self.is_wanted(path)
        self._parse_members("}", parse_member)
        return JsoncObject(tuple(members), start, self.at) if wanted else JsoncOther(start, self.at)

    def _parse_array(self, path: Path, depth: int) -> JsoncValue:
        start = self.at
        items: list[JsoncValue] = []

        def parse_item() -> None:
            items.append(self._parse_value((*path, "*"), depth + 1))
            if not wanted:
                items.clear()

        wanted = self.is_wanted(path)
        commas = self._parse_members("]", parse_item)
        return JsoncArray(tuple(items), commas, start, self.at) if wanted else JsoncOther(start, self.at)

    def _parse_members(self, closer: str, parse_member: Callable[[], None]) -> tuple[int, ...]:
        """Step from the opener behind the closer; return the indices after the commas."""
        commas: list[int] = []
        self.at += 1
        self._skip_blank()
        while self.text[self.at : self.at + 1] != closer:
            parse_member()
            self._skip_blank()
            if self.text[self.at : self.at + 1] == ",":
                self.at += 1
                commas.append(self.at)
                self._skip_blank()
            elif self.text[self.at : self.at + 1] != closer:
                self._fail(f"',' or '{closer}'")
        self.at += 1
        return tuple(commas)
