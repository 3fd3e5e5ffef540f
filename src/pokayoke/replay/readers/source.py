"""A recording of any known format: recognised, and read call by call.

In: a file's name, and perhaps the format it is said to have.
Out: recordings, and the reason for every line that is none.
Never: a file read in another format than its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

import msgspec

from pokayoke.core.json.values import is_array, is_object
from pokayoke.errors import ConfigurationError
from pokayoke.replay.readers.anthropic import AnthropicReader
from pokayoke.replay.readers.json_lines import JsonLinesReader
from pokayoke.replay.readers.langchain import LangChainReader
from pokayoke.replay.readers.lines import LARGEST_DOCUMENT, TOO_LONG, InputFile, LineBlock
from pokayoke.replay.readers.openai_chat import OpenAIChatReader
from pokayoke.replay.readers.openai_responses import OpenAIResponsesReader
from pokayoke.replay.readers.opentelemetry import OpenTelemetryReader
from pokayoke.replay.readers.trace import TraceReader
from pokayoke.replay.recording import FormatName, ReaderFactory, ReadResult, RecordingReader, UnreadRecord

READERS: Final[dict[FormatName, ReaderFactory]] = {
    "trace": TraceReader,
    "langchain": LangChainReader,
    "anthropic": AnthropicReader,
    "openai-chat": OpenAIChatReader,
    "openai-responses": OpenAIResponsesReader,
    "otel": OpenTelemetryReader,
    "plain": JsonLinesReader,
}
FORMATS: Final = tuple(READERS)
_SAMPLE: Final = 200
_PROOF: Final = 2
_CUT: Final = "not JSON: the line is cut, or damaged"
_LONG: Final = "the line is longer than 16 MB"


class SourceFormat(msgspec.Struct, frozen=True):
    """How a file is read; small, so that it can be passed to another process.

    Attributes:
        format: the name of its format.
        fields: the field mapping of plain JSON Lines.
        unit: what its numbers count: lines, or the items of one JSON document.
    """

    format: FormatName
    fields: dict[str, str] = {}
    unit: str = "line"

    def build_reader(self) -> RecordingReader:
        """Return a new reader for one file."""
        return JsonLinesReader(self.fields) if self.format == "plain" else READERS[self.format]()


class Source:
    """One recording, opened and recognised. Use it as a context manager; it is read once.

    Args:
        name: of the file; `-` is stdin.
        claimed: the format it is said to have; None to detect it.
        fields: part of a call to its field, for plain JSON Lines (implied if `claimed` is None).

    Raises:
        ConfigurationError: it cannot be read, is empty, or has another format than it is said to have.
    """

    def __init__(
        self,
        name: str,
        *,
        claimed: FormatName | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._input = InputFile(name)
        self.size = self._input.size
        self._blocks = self._input.read_blocks()
        self._first: list[LineBlock] = []
        try:
            unit = self._read_start()
            said = claimed or ("plain" if fields else None)
            self.kind = SourceFormat(self._recognise_format(said, fields or {}), dict(fields or {}), unit)
        except BaseException:
            self._input.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._input.close()

    @property
    def is_splittable(self) -> bool:
        """True if it can be read from the middle: a record is one line, and the file is not compressed."""
        return self._input.is_seekable and self.kind.unit == "line" and not self.kind.build_reader().joins

    def read_blocks(self) -> Iterator[LineBlock]:
        """Return the lines of the file, in blocks."""
        yield from self._first
        self._first = []
        yield from self._blocks

    def read_recordings(self) -> Iterator[ReadResult]:
        """Yield its calls, and what could not be read, in order."""
        reader = self.kind.build_reader()
        for block in self.read_blocks():
            yield from read_block(block, reader)
        yield from reader.finish()

    def _read_start(self) -> str:
        """Read the beginning; a JSON document over many lines becomes one line per item."""
        first = next(self._blocks, None)
        if first is None:
            raise ConfigurationError(f"{self.name}: is empty")
        self._first = [first]
        lines = [line for line in first.data.split(b"\n") if line.strip()]
        if (
            not lines
            or not lines[0].lstrip().startswith((b"{", b"["))
            or any(_decode_line(x) is not None for x in lines[:9])
        ):
            return "line"
        return self._read_document()

    def _read_document(self) -> str:
        held = sum(len(block.data) for block in self._first)
        for block in self._blocks:
            self._first.append(block)
            held += len(block.data)
            if held > LARGEST_DOCUMENT:
                raise ConfigurationError(
                    f"{self.name}: is one JSON document of more than {LARGEST_DOCUMENT // 1_000_000} MB. "
                    "Write it as JSON Lines: one record per line"
                )
        value = _decode_line(b"".join(block.data for block in self._first))
        if value is None:
            return "line"  # not a document either: lines, most of them damaged
        one = not is_array(value) or any(maker().match_strength(value) for maker in READERS.values())
        items: list[Any] = [value] if one else value
        self._first = [LineBlock(1, b"\n".join(map(msgspec.json.encode, items)) + b"\n", self.size)]
        return "item"

    def _recognise_format(self, claimed: FormatName | None, fields: Mapping[str, str]) -> FormatName:
        sample = [value for value in map(_decode_line, self._first[0].data.split(b"\n")[:_SAMPLE]) if value is not None]
        if not sample:
            long = self._first[0].data.startswith(TOO_LONG)
            why = "its first line is longer than 16 MB" if long else "none of its first lines is JSON"
            raise ConfigurationError(f"{self.name}: is no JSON Lines, one record per line: {why}")
        readers: dict[FormatName, RecordingReader] = {
            **{name: make() for name, make in READERS.items()},
            "plain": JsonLinesReader(fields),
        }
        looks: dict[FormatName, list[int]] = {
            name: [_match_strength(reader, value) for value in sample] for name, reader in readers.items()
        }
        proven: list[FormatName] = [name for name, strengths in looks.items() if _PROOF in strengths]
        level = _PROOF if proven else 1
        fitting: list[FormatName] = [name for name, strengths in looks.items() if level in strengths]
        if claimed is None:
            if fitting:  # most records decide, then the first one, then the order of the table
                return max(fitting, key=lambda name: (looks[name].count(level), -looks[name].index(level)))
            raise ConfigurationError(
                f"{self.name}: no known kind of recording. {_describe_record(sample[0])} {_ADVICE}"
            )
        if claimed in fitting:
            return claimed
        other = f"It looks like {proven[0]}." if proven else _describe_record(sample[0])
        missing = f" {_ADVICE}" if claimed == "plain" else ""
        raise ConfigurationError(f"{self.name}: is no recording of the kind {claimed}. {other}{missing}")


_ADVICE: Final = "Name the fields of a call: --map tool=FIELD,arguments=FIELD,output=FIELD"


def parse_format(name: str | None) -> FormatName | None:
    """Return the format a user named, or None.

    Raises:
        ConfigurationError: there is no such format; the message lists them.
    """
    if name is None or name == "auto":
        return None
    for known in FORMATS:
        if known == name:
            return known
    raise ConfigurationError(f"--format: {name!r} is no known format. Formats: {', '.join(FORMATS)}")


def read_block(block: LineBlock, reader: RecordingReader) -> Iterator[ReadResult]:
    """Yield the calls of some lines, and an `UnreadRecord` for every line that cannot be read."""
    for number, line in enumerate(block.data.split(b"\n"), block.line):
        if not line or line.isspace():
            continue
        value = _decode_line(line)
        if value is None:
            yield UnreadRecord(number, _LONG if line == TOO_LONG else _CUT)
        else:
            yield from read_value(value, reader, number)


def read_value(value: Any, reader: RecordingReader, line: int) -> Iterable[ReadResult]:
    """Return the calls of one decoded line: one record, or a list of records."""
    if reader.match_strength(value):
        return reader.read_record(value, line)
    if is_array(value) and value and all(reader.match_strength(item) for item in value):
        return [found for item in value for found in reader.read_record(item, line)]
    return (
        reader.read_record(value, line)
        if isinstance(reader, JsonLinesReader)
        else (UnreadRecord(line, "a record of another kind"),)
    )


def _match_strength(reader: RecordingReader, value: Any) -> int:
    found = reader.match_strength(value)
    return max(map(reader.match_strength, value), default=0) if not found and is_array(value) else found


def _decode_line(line: bytes) -> Any:
    """The JSON value of a line; None if it is none (a bare `null` is no record either)."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _describe_record(value: Any) -> str:
    """What a record looks like, in few words."""
    if is_object(value):
        return f"Its first record has the fields {', '.join(repr(key[:40]) for key in list(value)[:12]) or '(none)'}."
    return f"Its first record is a JSON {'array' if is_array(value) else type(value).__name__}."
