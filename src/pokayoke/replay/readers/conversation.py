"""Matches calls and their answers inside one conversation.

Call ids repeat in real recordings, so an id alone is never a key: an answer belongs to the earliest call of its
id that has none yet; without an id, to the earliest call without an answer.

In: calls and answers in their order.
Out: recordings.
Never: an answer given to two calls.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import msgspec

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.recording import ReadResult, Recording, UnreadRecord

_NAMES_OF_A_RUN = ("run_id", "conversation_id", "thread_id", "session_id", "task_id", "trace_id", "id")


class CallMatcher:
    """Collects calls and answers in their order.

    Args:
        run: name of the conversation.
        line: number of its line.
    """

    def __init__(self, run: str, line: int) -> None:
        self._run, self._line = run, line
        self._calls: list[ReadResult] = []
        # Indices of the calls without an answer: in order with their ids, and by id.
        self._waiting: OrderedDict[int, str] = OrderedDict()
        self._named: dict[str, deque[int]] = {}

    def add_call(self, ident: Any, name: Any, arguments: Any, *, stop_reason: Any = None) -> None:
        """Add a call; without a name or arguments it becomes an unread record."""
        if arguments is None:
            arguments = ""
        if not isinstance(name, str) or not (isinstance(arguments, str) or is_object(arguments)):
            self._calls.append(
                UnreadRecord(self._line, "a tool call without a name or with arguments of an unknown kind")
            )
            return
        known, index = identifier_text(ident), len(self._calls)
        self._waiting[index] = known
        self._named.setdefault(known, deque()).append(index)
        self._calls.append(
            Recording(
                tool=name,
                arguments=arguments,
                run=self._run,
                line=self._line,
                stop_reason=stop_reason if isinstance(stop_reason, str) else None,
            )
        )

    def add_answer(self, ident: Any, output: Any, is_error: Any = None) -> None:
        """Add an answer; one that no call waits for becomes an unread record."""
        wanted = identifier_text(ident) or next(iter(self._waiting.values()), "")
        if not self._named.get(wanted):
            self._calls.append(UnreadRecord(self._line, "an answer to a call that is not in the recording"))
            return
        index = self._named[wanted].popleft()
        del self._waiting[index]
        found = self._calls[index]
        assert isinstance(found, Recording), "only recordings wait for an answer"
        failed = is_error if isinstance(is_error, bool) else None
        self._calls[index] = msgspec.structs.replace(found, output=output, is_error=failed)

    def list_recordings(self) -> Iterator[ReadResult]:
        """Return the calls in order, each with its answer if there was one."""
        return iter(self._calls)


def identifier_text(value: Any) -> str:
    """Return an identifier as text; "" for any other value."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def run_name(record: Any, line: int) -> str:
    """Return a record's name for its run; its line if it has none."""
    if is_object(record):
        for name in _NAMES_OF_A_RUN:
            if found := identifier_text(record.get(name)):
                return found
    return f"line {line}"


def message_objects(record: Any, *keys: str) -> list[dict[str, Any]]:
    """Return the objects of a list of messages: the record itself, or the list under one of these keys."""
    found: Any = record if is_array(record) else None
    if is_object(record):
        found = next((record[key] for key in keys if is_array(record.get(key))), None)
    return [item for item in found if is_object(item)] if is_array(found) else []


def join_text_blocks(blocks: Any) -> Any:
    """Return content blocks as one text if they hold nothing but text; any other value unchanged."""
    if not is_array(blocks) or not blocks:
        return blocks
    texts = [block.get("text") for block in blocks if is_object(block) and "text" in block]
    whole = [text for text in texts if isinstance(text, str)]
    return "\n".join(whole) if len(whole) == len(blocks) else blocks
