"""One recorded call: its arguments, its answer and, if known, the right arguments.

In: the values that `readers/` find.
Out: frozen structs.
Never: a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from pokayoke.core.call import Finding

FormatName = Literal["trace", "openai-chat", "openai-responses", "anthropic", "langchain", "otel", "plain"]


class Recording(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One recorded call.

    Attributes:
        tool: the tool name as the model wrote it.
        arguments: the argument text as recorded, or the object a client had parsed.
        output: the tool's answer, text or JSON value; UNSET if it was not recorded.
        is_error: True or False if the recording says whether the tool failed; None if it does not say.
        run: name of the run, conversation or task the call belongs to; "" if the recording does not say.
        truth: the arguments that would have been right; None if no such call should have been made;
            UNSET if they are unknown. In plain JSON Lines, true stands for the recorded arguments.
        line: number of its line, from 1.
        stop_reason: the provider's reason for the end of the message, if it was recorded.
        contract: `name@version` that was in force according to the recording, or None.
        used: the arguments the tool received, where the recording distinguishes them from those the model sent.
        ran: False if the recording says that the call was refused and the tool did not run.
        effect: `read` if the recording says that the tool only read, `write` if it claimed an effect; None if it does
            not say.
        seconds: how long the tool took, if it was measured.
        fault: the problem of an answer that is not recorded because it broke its contract.
    """

    tool: str
    arguments: str | dict[str, Any]
    output: Any | UnsetType = UNSET
    is_error: bool | None = None
    run: str = ""
    truth: Any | UnsetType = UNSET
    line: int = 0
    stop_reason: str | None = None
    contract: str | None = None
    used: dict[str, Any] | None = None
    ran: bool = True
    effect: Literal["read", "write"] | None = None
    seconds: float | None = None
    fault: Finding | None = None


class UnreadRecord(msgspec.Struct, frozen=True, gc=False):
    """A line, or a call on it, that could not be read.

    Attributes:
        line: its number, from 1.
        why: what is wrong with it, in a few words that repeat no recorded text.
    """

    line: int
    why: str


ReadResult = Recording | UnreadRecord


class RecordingReader(Protocol):
    """Reads the records of one format. An instance reads one file, in order.

    Attributes:
        joins: True if a call and its answer may stand on different lines, so that one instance must read all
            lines in order.
    """

    joins: bool = False

    def match_strength(self, value: Any) -> int:
        """Return 2 if a JSON value is a record of this format, 1 if it may be one, else 0."""
        ...

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """Return the calls of one record."""
        ...

    def finish(self) -> Iterable[ReadResult]:
        """Return the calls without an answer at the end of the file; nothing if every record is complete."""
        return ()


ReaderFactory = Callable[[], RecordingReader]
