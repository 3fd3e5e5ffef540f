"""A bar on stderr while a person waits for a long file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from pokayoke.cli.output import escape_text
from pokayoke.replay.readers import Source

_PROGRESS_FROM_BYTES: Final = 5_000_000


@contextmanager
def progress_bar(source: Source) -> Generator[Callable[[int, int], None]]:
    """Yield `told(bytes, calls)`: it moves a bar where stderr is a terminal and the file is large.

    Args:
        source: the opened file.
    """
    if source.size < _PROGRESS_FROM_BYTES or not sys.stderr.isatty():
        yield lambda read, calls: None  # noqa: ARG005 - the shape of a counter
        return
    from rich.console import Console  # noqa: PLC0415 - loaded where a bar is drawn
    from rich.markup import escape  # noqa: PLC0415 - as above
    from rich.progress import Progress  # noqa: PLC0415 - as above

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(escape_text(source.name, limit=40)), total=source.size)

        def update_bar(read: int, calls: int) -> None:
            bar.update(
                task, completed=read, description=f"{escape(escape_text(source.name, limit=40))}: {calls:,} calls"
            )

        yield update_bar
