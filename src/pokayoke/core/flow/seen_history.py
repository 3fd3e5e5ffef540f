"""What a caller has seen: the answered calls of a history, and the turns in which they were answered.

In: the messages of a request, in any shape that `core/messages` reads.
Out: one `AnsweredCall` for each call with a result, in order.
Never: a turn that a repeated message of the user begins before it was answered.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from pokayoke.core.json.dump import dump_foreign
from pokayoke.core.messages.messages import MessageCall, calls_in, results_in, role_of, text_of
from pokayoke.core.output.model_text import FRAME_START


class AnsweredCall(NamedTuple):
    """A call of a history, and its result.

    Attributes:
        id: the provider's id; "" if it has none.
        name: the tool's name as the model wrote it.
        arguments: the arguments as the history holds them: text, or an object.
        text: the result as text.
        turn: the turn in which it stands, counted from the beginning of the history.
    """

    id: str
    name: str
    arguments: Any
    text: str
    turn: int


class SeenHistory(NamedTuple):
    """The answered calls of a history, the number of its last turn, and the user's texts."""

    calls: tuple[AnsweredCall, ...]
    turn: int
    said: tuple[str, ...] = ()


def read_seen_history(messages: Iterable[Any]) -> SeenHistory:
    """Read a history. A turn begins with the user's text, unless it says once more what is not answered yet."""
    asked: defaultdict[str, deque[MessageCall]] = defaultdict(deque)
    found: list[AnsweredCall] = []
    texts: dict[str, None] = {}
    turn, said, is_over = 0, "", True
    for message in messages:
        role, text, calls = role_of(message), text_of(message), calls_in(message)
        if role == "user" and text.strip() and not is_result(message, text):
            texts[text] = None
        if role == "user" and (is_over or text != said):
            turn, said, is_over = turn + 1, text, False
        elif role == "assistant" and text.strip() and not calls:
            is_over = True
        for call in calls:
            asked[call.id or ""].append(call)
        for result in results_in(message):
            if waiting := asked[result.id or ""]:
                call = waiting.popleft()
                found.append(AnsweredCall(call.id or "", call.name, call.arguments, _result_text(result.content), turn))
    return SeenHistory(tuple(found), turn, tuple(texts))


def is_result(message: Any, text: str) -> bool:
    """Return whether a message of the role `user` carries results of tools: none of it is the user's words."""
    return FRAME_START in text or any(True for _ in results_in(message))


def _result_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if text := text_of({"content": content}):
        return text
    try:
        return dump_foreign(content).decode()
    except (TypeError, ValueError, RuntimeError):  # no JSON, or changed meanwhile: it is nobody's answer
        return ""
