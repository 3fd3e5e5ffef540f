"""Everything that reaches a terminal: data on stdout, messages on stderr.

In: values and texts of any origin.
Out: escaped lines.
Never: a text from a tool, a trace or a file that is not escaped by `escape_text` or `as_json`: it may hold escapes
    that rewrite the screen, the clipboard or the title, and marks that reorder text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pokayoke.code_pages import find_code_pages
from pokayoke.core.text.visible import make_visible
from pokayoke.runtime.trace.line import escape_controls

if TYPE_CHECKING:
    from pokayoke.replay.parts import Part

_MARKS: Final = {"ok": "32", "bad": "31", "dim": "2", "note": "33"}
_PROGRESS_FROM_BYTES: Final = 5_000_000
_MOST_NAMED: Final = 10


def escape_text(text: object, *, limit: int | None = None) -> str:
    r"""Return a text on one line in which every character is visible: ESC becomes `\x1b`.

    Args:
        text: anything; its `str` is shown.
        limit: longest result before `...`.
    """
    whole = str(text)
    if limit is not None and len(whole) > limit:
        whole = f"{whole[:limit]}..."
    return make_visible(whole)


def escape_lines(text: str) -> str:
    """Return a text of several lines, each of them escaped."""
    return "\n".join(escape_text(line) for line in text.split("\n"))


def as_json(value: Any) -> str:
    """Return one line of JSON without line ends or control characters."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # the name of a file may be any bytes, and a lone surrogate must not prevent the output
        encoded = json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
    return escape_controls(encoded).decode().replace("\x7f", "\\u007f")


def print_data(line: str) -> None:
    """Print one line of data. The caller has escaped foreign text."""
    sys.stdout.write(f"{line}\n")


def print_message(text: str) -> None:
    """Print a message to stderr, escaped line by line."""
    sys.stderr.write(f"{escape_lines(text)}\n")


def format_count(number: int, thing: str) -> str:
    """Return a number and what it counts: `1 run`, `2 runs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def choose_painter() -> Callable[[str, str], str]:
    """Return `paint(text, mark)` for stdout: colours on a terminal, plain text in a pipe or with NO_COLOR."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return lambda text, mark: text  # noqa: ARG005 - the signature of a painter
    return lambda text, mark: f"\x1b[{_MARKS[mark]}m{text}\x1b[0m"


def print_section(title: str, rows: Sequence[Sequence[object]]) -> None:
    """Print rows as aligned lines below a title; nothing if there are none."""
    if rows:
        print_data(f"{title}:")
        for line in format_table(rows):
            print_data(f"  {line}")


def print_code_pages(codes: Iterable[str]) -> None:
    """Print what finding codes mean and where they are explained; nothing for words that are no code."""
    print_section("codes", [(page.code, page.meaning, page.place) for page in find_code_pages(codes)])


def print_listing(heads: Sequence[str], rows: Sequence[Sequence[object]], marks: Sequence[str | None]) -> None:
    """Print rows below their heads, each coloured by its mark if it has one; nothing if there are no rows."""
    paint = choose_painter()
    for line, mark in zip(format_table([heads, *rows]) if rows else (), ("dim", *marks), strict=False):
        print_data(paint(line, mark) if mark else line)


def format_table(rows: Iterable[Sequence[object]]) -> list[str]:
    """Return rows as aligned lines; every cell is escaped. The last column is not padded."""
    shown = [[escape_text(cell) for cell in row] for row in rows]
    if not shown:
        return []
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]


@contextmanager
def progress_bar(names: Iterable[str]) -> Generator[Callable[[int, int], None]]:
    """Yield `update(bytes, calls)`, which moves a bar if stderr is a terminal and the files are large.

    Args:
        names: of the files that are read; only those on this machine are counted.
    """
    total = sum(Path(name).stat().st_size for name in names if Path(name).is_file())
    if total < _PROGRESS_FROM_BYTES or not sys.stderr.isatty():
        yield lambda read, calls: None  # noqa: ARG005 - the signature of a counter
        return
    from rich.console import Console  # noqa: PLC0415 - loaded where a bar is drawn
    from rich.progress import Progress  # noqa: PLC0415 - as above

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("0 calls", total=total)
        yield lambda read, calls: bar.update(task, completed=read, description=f"{calls:,} calls")


def announce_recordings(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts; before the first one of a recording, say in which format it is read."""
    file = -1
    for part in parts:
        if part.file != file:
            file = part.file
            print_message(f"{escape_text(part.url)}: {part.kind.format}")
        yield part


def report_lost_parts(lost: Sequence[Part]) -> None:
    """Say which parts are missing from the result, because every worker that had them died."""
    for part in lost[:_MOST_NAMED]:
        where = "the whole file" if part.end is None else f"bytes {part.start:,} to {part.end:,}"
        print_message(f"{escape_text(part.url)}: left out {where}: every worker that had this part died")
    if len(lost) > _MOST_NAMED:
        print_message(f"and {len(lost) - _MOST_NAMED} more parts")
