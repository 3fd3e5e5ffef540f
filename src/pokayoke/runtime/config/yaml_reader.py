"""A strict reader of YAML 1.2 (and so of JSON) documents written by people.

In: the text of a file.
Out: plain values, and the line of each.
Never: a key silently overwritten, a value of a type that JSON does not have, a constructor that runs.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pokayoke.errors import ConfigurationError

MAX_BYTES: Final = 1_000_000

ValuePath = tuple[str | int, ...]


class DocumentError(ConfigurationError):
    """The text is no acceptable document. The message begins with its name and line."""


class Document(msgspec.Struct, frozen=True):
    """The content of a file.

    Args:
        value: dict, list, str, int, float, bool or None.
        lines: line (from 1) of every value, by its path.
        name: of the file, for messages.
    """

    value: Any
    lines: dict[ValuePath, int]
    name: str

    def location_of(self, path: ValuePath) -> str:
        """Return `file:line` of the value at a path, or of its nearest parent that exists."""
        for end in range(len(path), -1, -1):
            line = self.lines.get(path[:end])
            if line is not None:
                return f"{self.name}:{line}"
        return self.name


def read_document(text: str | bytes, *, name: str = "configuration") -> Document:
    """Read one YAML 1.2 or JSON document.

    Args:
        text: the content, UTF-8 if bytes; at most 1,000,000 bytes, 50,000 values and 64 levels.
        name: of the document in messages, usually the file's path.

    Raises:
        DocumentError: it does not parse, is empty, is several documents, holds a duplicate key, an
            anchor, an alias, a tag or a non-finite number, or is too large or too deep.
    """
    from ruamel.yaml.composer import ComposerError  # noqa: PLC0415 - 40 ms of import, needed only with a file
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    from pokayoke.runtime.config.yaml_nodes import read_values  # noqa: PLC0415 - as above

    content = _decode_text(text, name)
    try:
        found = read_values(content)
    except ComposerError as error:
        refusal: Any = error
        raise DocumentError(f"{name}:{refusal.problem_mark.line + 1}: {refusal.problem}.") from None
    except YAMLError as error:
        raise _parse_error(error, name) from None
    if found is None:
        raise DocumentError(f"{name}: the file holds only comments. Write {{}} for the defaults.")
    return Document(*found, name)


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
