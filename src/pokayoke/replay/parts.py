"""Parts of recordings: planned by one process, worked on by any, and put together in their order.

A part is a range of bytes; a line belongs to the part in which it begins. A file that cannot be read from the middle
(compressed, one JSON document, records that span lines) is one part. Within one machine the process that hands out the
parts reads such a file, and hands its content out in pieces.

In: names of recordings.
Out: a `Score` or a `Learner`, the same in whatever order the parts were finished.
Never: an effect, so that a part may be worked on twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from pokayoke.errors import ConfigurationError
from pokayoke.replay.job import load_scorer
from pokayoke.replay.learn.learner import Learner
from pokayoke.replay.readers.lines import InputFile, LineBlock
from pokayoke.replay.readers.source import Source, SourceFormat, read_block
from pokayoke.replay.recording import FormatName, ReadResult
from pokayoke.replay.score.counts import Score
from pokayoke.replay.score.scorer import Scorer

PART_BYTES: Final = 64_000_000
_LOCAL_PART_BYTES: Final = 4_000_000
_BATCH: Final = 1_000
ReportProgress = Callable[[int, int], None]
Work = Callable[["Part", Any], "PartResult"]


class Part(msgspec.Struct, frozen=True):
    """A piece of work, small enough to send.

    Attributes:
        number: its place in the order of all parts, from 0.
        file: number of its recording, from 0.
        url: name of the recording.
        kind: how it is read.
        size: its bytes in the recording, for progress; 0 if unknown.
        start: byte from which a line belongs to it.
        end: byte from which a line does not; None for all lines.
        content: what is read already: lines, or recordings that were joined from several lines.
    """

    number: int
    file: int
    url: str
    kind: SourceFormat
    size: int = 0
    start: int = 0
    end: int | None = None
    content: LineBlock | Iterable[ReadResult] | None = None


class PartResult(msgspec.Struct, frozen=True):
    """What was found in a part.

    Attributes:
        lines: its complete lines, if it is a range of a file.
        found: the score, or what was learnt.
    """

    lines: int
    found: Score | Learner


def plan(
    files: Sequence[str],
    *,
    size: int = PART_BYTES,
    claimed: FormatName | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[Part]:
    """Open every recording once, and return the parts of all of them.

    Args:
        files: names of recordings: paths that exist on every worker, or URLs.
        size: bytes of one part.
        claimed: the format they are said to have; None to detect it.
        fields: part of a call to its field, for plain JSON Lines.

    Raises:
        ConfigurationError: one cannot be read, or is stdin, which only this process can read.
    """
    parts: list[Part] = []
    for file, name in enumerate(files):
        if name == "-":
            raise ConfigurationError("stdin cannot be read by the workers of a cluster. Name a file or a URL")
        with Source(name, claimed=claimed, fields=fields) as source:
            whole = Part(len(parts), file, name, source.kind, source.size)
            parts += _split_ranges(whole, size) if source.is_splittable else [whole]
    return parts


def read_parts(
    files: Sequence[str],
    *,
    size: int = _LOCAL_PART_BYTES,
    in_pieces: bool = True,
    claimed: FormatName | None = None,
    fields: Mapping[str, str] | None = None,
) -> Iterator[Part]:
    """Yield the parts of recordings for this machine; what cannot be read from the middle is read here.

    Args:
        files: as for `plan`; `-` is stdin.
        size: as for `plan`.
        in_pieces: whether a file that is read here becomes many parts; if not, its part cannot be sent.
        claimed: as for `plan`.
        fields: as for `plan`.

    Raises:
        ConfigurationError: one cannot be read.
    """
    number = 0
    for file, name in enumerate(files):
        with Source(name, claimed=claimed, fields=fields) as source:
            whole = Part(number, file, name, source.kind, source.size)
            if source.is_splittable:
                found = _split_ranges(whole, size)
            elif in_pieces:
                found = _read_pieces(whole, source)
            else:
                found = iter([msgspec.structs.replace(whole, content=source.read_recordings())])
            for part in found:
                yield part
                number += 1


def _split_ranges(whole: Part, size: int) -> Iterator[Part]:
    for number, start in enumerate(range(0, whole.size, size), whole.number):
        end = min(start + size, whole.size)
        yield msgspec.structs.replace(whole, number=number, size=end - start, start=start, end=end)


def _read_pieces(whole: Part, source: Source) -> Iterator[Part]:
    position = done = 0

    def read_lines() -> Iterator[ReadResult]:
        nonlocal position
        reader = whole.kind.build_reader()
        for block in source.read_blocks():
            position = block.read
            yield from read_block(block, reader)
        yield from reader.finish()

    def read_batches() -> Iterator[LineBlock | list[ReadResult]]:
        nonlocal position
        if whole.kind.build_reader().joins:
            lines = read_lines()
            while batch := list(islice(lines, _BATCH)):
                yield batch
            return
        for block in source.read_blocks():
            position = block.read
            yield block

    for number, content in enumerate(read_batches(), whole.number):
        yield msgspec.structs.replace(whole, number=number, size=position - done, content=content)
        done = position


class PartReading:
    """The calls of a part, read while they are iterated over.

    Attributes:
        lines: complete lines so far, if the part is a range of a file.

    Raises:
        ConfigurationError: its recording cannot be read here.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self.lines = 0

    def __iter__(self) -> Iterator[ReadResult]:
        """Yield the calls, and what could not be read, in order."""
        part = self._part
        if isinstance(part.content, LineBlock):
            return read_block(part.content, part.kind.build_reader())
        if part.content is not None:
            return iter(part.content)
        return self._read_file(part) if part.end is None else self._read_range(part)

    def _read_file(self, part: Part) -> Iterator[ReadResult]:
        with Source(part.url, claimed=part.kind.format, fields=part.kind.fields) as source:
            yield from source.read_recordings()

    def _read_range(self, part: Part) -> Iterator[ReadResult]:
        reader = part.kind.build_reader()
        for block in _read_blocks(part):
            self.lines += block.data.count(b"\n")
            yield from read_block(block, reader)


def _read_blocks(part: Part) -> Iterator[LineBlock]:
    file = InputFile(part.url, part.start, part.end)
    try:
        yield from file.read_blocks()
    finally:
        file.close()


def score_part(part: Part, job: bytes | Scorer) -> PartResult:
    """Return the score of a part. A worker of any engine can call it.

    Args:
        part: one of `plan`.
        job: from `pack_job`.

    Raises:
        ConfigurationError: the part cannot be read here, or this worker cannot do the job.
    """
    reading = PartReading(part)
    score = load_scorer(job).score_recordings(reading, part.file)
    return PartResult(reading.lines, score)


def learn_part(part: Part, job: bytes | Scorer) -> PartResult:
    """Return what a part teaches; see `score_part`."""
    load_scorer(job)  # refuses another version
    reading, learner = PartReading(part), Learner(run_prefix=f"part {part.number} ")
    learner.add_recordings(reading)
    return PartResult(reading.lines, learner)


class Merger:
    """Puts the results of parts together, in the order of their numbers.

    Args:
        whole: what results are added to.
        told: called after every part with the bytes and the calls so far.

    Attributes:
        calls: of each recording, by its number.
    """

    def __init__(self, whole: Score | Learner, told: ReportProgress | None = None) -> None:
        self.whole = whole
        self.calls: dict[int, int] = {}
        self._told = told
        self._bytes = 0
        self._file: int = -1
        self._lines = 0

    def add(self, part: Part, result: PartResult) -> None:
        """Add the result of the next part."""
        self._enter_part(part)
        # A part numbers its lines from its first byte on; how many are before it is known here.
        result.found.number_lines(self._lines - part.start)
        self._lines += result.lines
        if isinstance(self.whole, Score):
            assert isinstance(result.found, Score), "one kind of work"
            self.whole.merge(result.found)
        else:
            assert isinstance(result.found, Learner), "one kind of work"
            self.whole.merge(result.found)
        self.calls[part.file] = self.calls.get(part.file, 0) + result.found.calls
        if self._told is not None:
            self._told(self._bytes, self.whole.calls)

    def skip(self, part: Part) -> None:
        """Leave the next part out: only its lines are counted, for the numbers of those behind it."""
        self._enter_part(part)
        if part.end is not None:
            self._lines += sum(block.data.count(b"\n") for block in _read_blocks(part))

    def _enter_part(self, part: Part) -> None:
        self._bytes += part.size
        if part.file != self._file:
            self._file, self._lines = part.file, 0
