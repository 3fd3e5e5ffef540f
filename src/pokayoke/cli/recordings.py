"""What commands say about the recordings they read in parts.

In: parts.
Out: messages.
Never: a part that was left out without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pokayoke.cli.output import escape_text, print_message
from pokayoke.replay.parts import Part

_MOST_NAMED: Final = 10


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
