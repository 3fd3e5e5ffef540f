"""Long texts outside the history: the model reads a preview and pages through the rest.

In: a text.
Out: its handle, and pages of it.
Never: more than sixteen texts of a run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from pokayoke.core.output.preview import take_page
from pokayoke.errors import ToolError

_KEPT_TEXTS: Final = 16
_FOOTER: Final = 100  # characters that say how to go on


class OffloadedTexts:
    """The latest long texts of one run, by handle.

    Attributes:
        any: True once there is something to page through.
    """

    def __init__(self) -> None:
        self.any = False
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._handles = 0
        self._lock = threading.RLock()  # re-entrant: a finalizer may call a tool meanwhile

    def reset_after_fork(self) -> None:
        """Begin anew in a child process, whose parent may have held the lock."""
        self._lock = threading.RLock()

    def store_text(self, text: str, handle: str | None = None) -> str:
        """Keep a text; the oldest is dropped beyond sixteen. Returns its handle, a new one if None."""
        with self._lock:
            if handle is None:
                self._handles += 1
                handle = f"out-{self._handles}"
            self._texts[handle] = text
            self.any = True
            if len(self._texts) > _KEPT_TEXTS:
                self._texts.popitem(last=False)
        return handle

    def read_page(self, handle: str, offset: int = 0, limit: int = 4_000, *, most: int) -> str:
        """Return `limit` characters of a kept text from `offset` on, and how to go on, in `most` characters at most.

        Raises:
            ToolError: nothing is kept under that handle (any more).
        """
        text = self._texts.get(handle)
        if text is None:
            raise ToolError(f"there is no kept output {handle!r}; call the tool again")
        part = take_page(text, offset, min(limit, most - _FOOTER))  # a longer one would itself be put aside
        end = part.offset + len(part.text)
        rest = "" if part.next_offset is None else f" Continue with offset {part.next_offset}."
        return f"{part.text}\n[characters {part.offset} to {end} of {part.total}.{rest}]"
