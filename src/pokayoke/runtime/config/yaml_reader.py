"""A strict reader of YAML 1.2 (and so of JSON) documents written by people.

What enters: the text of a file. What leaves: plain values, and the line each of them stands on. What
must never happen here: a key silently overwritten, a value of a type JSON does not have, an alias that
unfolds into a bomb, a constructor that runs.

ruamel.yaml splits the text into events; the values are built from those by the rules of the YAML 1.2
core schema (section 10.3), iteratively, so that neither depth nor aliases can hurt.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

import msgspec

from pokayoke.core.text.rare import compile_pattern
from pokayoke.errors import ConfigurationError

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 50_000  # a few seconds: every value passes a scanner in Python, since that in C reads YAML 1.1

ValuePath = tuple[str | int, ...]

_INTEGER: Final = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_MOST_DIGITS: Final = 100
_FLOAT: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class DocumentError(ConfigurationError):
    """The text is not a document this reader accepts. The message begins with its name and line."""


class Document(msgspec.Struct, frozen=True):
    """What stands in a file.

    Args:
        value: dict, list, str, int, float, bool or None.
        lines: line (from 1) of every value, by its path.
        name: of the file, for messages.
    """

    value: Any
    lines: dict[ValuePath, int]
    name: str

    def location_of(self, path: ValuePath) -> str:
        """Return `file:line` of the value at a path, or of what is nearest above it."""
        for end in range(len(path), -1, -1):
            line = self.lines.get(path[:end])
            if line is not None:
                return f"{self.name}:{line}"
        return self.name


def read_document(text: str | bytes, *, name: str = "configuration") -> Document:
    """Read one YAML 1.2 or JSON document.

    Args:
        text: the content, UTF-8 if bytes; at most 1,000,000 bytes, 50,000 values and 64 levels.
        name: what messages call it, usually the file's path.

    Raises:
        DocumentError: it does not parse, is empty, is several documents, holds a duplicate key, an
            anchor, an alias, a tag or a non-finite number, or is too large or too deep.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 - 40 ms of import, for those who have a file
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    content = _decode_text(text, name)
    builder = _DocumentBuilder(name)
    reader: Any = YAML(typ="safe", pure=True)
    try:
        for event in reader.parse(content):
            builder.take_event(event)
    except YAMLError as error:
        raise _parse_error(error, name) from None
    return builder.build_document()


def _decode_text(text: str | bytes, name: str) -> str:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > MAX_BYTES:
        raise DocumentError(f"{name}: {len(data):,} bytes, expected at most {MAX_BYTES:,}.")
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"{name}:{line}: not UTF-8 (byte {data[error.start]:#04x}).") from None
    if not content.strip():
        raise DocumentError(f"{name}: the file is empty. Write {{}} if nothing shall differ from the defaults.")
    return content


def _parse_error(error: Any, name: str) -> DocumentError:
    mark = getattr(error, "problem_mark", None)
    where = f"{name}:{mark.line + 1}" if mark is not None else name
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return DocumentError(f"{where}: {problem}. Tabs, quotes, colons and indentation are the usual reasons.")


class _OpenNode:
    """A mapping or a sequence whose end was not seen yet."""

    __slots__ = ("key", "lines", "path", "value")

    def __init__(self, value: dict[str, Any] | list[Any], path: ValuePath) -> None:
        self.value, self.path = value, path
        self.key: str | None = None
        self.lines: dict[str, int] = {}


class _DocumentBuilder:
    """Builds the values of one document out of parser events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[_OpenNode] = []
        self._lines: dict[ValuePath, int] = {}
        self._roots: list[Any] = []

    def build_document(self) -> Document:
        if not self._roots:
            raise DocumentError(f"{self._name}: the file holds only comments. Write {{}} for the defaults.")
        return Document(self._roots[0], self._lines, self._name)

    def take_event(self, event: Any) -> None:
        kind = type(event).__name__
        line = event.start_mark.line + 1
        if kind == "ScalarEvent":
            self._add_scalar(event, line)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._refuse_extras(event, line)
            self._open_collection({} if kind == "MappingStartEvent" else [], line)
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._open.pop()
        elif kind == "AliasEvent":
            raise self._error_at(line, "aliases (*name) are not supported. Write the value out")
        elif kind == "DocumentStartEvent":
            self._check_document_start(event, line)

    def _error_at(self, line: int, text: str) -> DocumentError:
        return DocumentError(f"{self._name}:{line}: {text}.")

    def _check_document_start(self, event: Any, line: int) -> None:
        if self._roots:
            raise self._error_at(line, "a second document begins. One file holds one")
        if event.version is not None and tuple(event.version) != (1, 2):
            raise self._error_at(line, "only YAML 1.2 is read. Remove the %YAML line")

    def _refuse_extras(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            raise self._error_at(line, f"anchors (&{event.anchor}) are not supported. Write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self._error_at(line, f"the tag {str(tag)!r} is not supported. Plain values need none")

    def _open_collection(self, value: dict[str, Any] | list[Any], line: int) -> None:
        if self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None:
            raise self._error_at(line, "a key must be a plain text, not a mapping or a list")
        if len(self._open) >= MAX_DEPTH:
            raise self._error_at(line, f"nested deeper than {MAX_DEPTH} levels")
        path = self._add_value(value, line)
        self._open.append(_OpenNode(value, path))

    def _add_scalar(self, event: Any, line: int) -> None:
        self._refuse_extras(event, line)
        text = self._join_surrogates(event.value, line)
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            if text in top.value:
                raise self._error_at(line, f"the key {text!r} stands here and in line {top.lines[text]}. Keep one")
            top.key, top.lines[text] = text, line
            return
        value = self._resolve_scalar(text, line) if event.style in (None, "") else text
        self._add_value(value, line)

    def _join_surrogates(self, text: str, line: int) -> str:
        r"""Join what JSON writes as two escapes (`\ud83d\ude00`); half of such a pair is not a character."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._error_at(line, "half of a surrogate pair is not a character") from None

    def _add_value(self, value: Any, line: int) -> ValuePath:
        path: ValuePath = ()
        if len(self._lines) >= MAX_VALUES:
            raise self._error_at(line, f"more than {MAX_VALUES:,} values. Split the file; contracts may be JSON too")
        if not self._open:
            self._roots.append(value)
        else:
            top = self._open[-1]
            if isinstance(top.value, list):
                path = (*top.path, len(top.value))
                top.value.append(value)
            else:
                key = cast("str", top.key)
                path = (*top.path, key)
                top.value[key] = value
                # A mapping is found where its key stands, not where its first entry does.
                line, top.key = top.lines[key], None
        self._lines[path] = line
        return path

    def _resolve_scalar(self, text: str, line: int) -> Any:
        """The value of a plain scalar by the core schema: `no` is a text, `0o10` is 8, `1.0` a float."""
        if text in _WORDS:
            return _WORDS[text]
        if compile_pattern(_INTEGER).fullmatch(text):
            if len(text) > _MOST_DIGITS:
                raise self._error_at(line, f"an integer of {len(text)} characters, expected at most {_MOST_DIGITS}")
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text, base)
        if compile_pattern(_FLOAT).fullmatch(text):
            number = float(text)
            if math.isfinite(number):
                return number
        if text.lower().lstrip("+-") in (".inf", ".nan") or compile_pattern(_FLOAT).fullmatch(text):
            raise self._error_at(line, f"{text} is not a finite number")
        return text
