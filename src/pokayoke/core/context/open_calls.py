"""Finds the calls of a history that nobody answered, and puts results into their places.

In: messages in any format.
Out: the open calls, as the model wrote them; the history in which each has a result.
Never: a changed history in which every call has its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pokayoke.core.context.chat import MessageMaker
from pokayoke.core.context.groups import (
    REMOVE_FIELD,
    UNANSWERED,
    GroupResult,
    MessageGroup,
    flatten_groups,
    history_shape,
    usable_name,
    with_fields,
    with_result_texts,
)
from pokayoke.core.context.normalise import rebuild_history
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import MessageCall, calls_in, results_in


class UnansweredCall(NamedTuple):
    """A call that nobody answered.

    Attributes:
        call: the call as the history holds it.
        earlier: answered calls before it that are equal, the id included: ids repeat.
        position: of its message in the history, from 0.
    """

    call: MessageCall
    earlier: int
    position: int


class CallAnswer(NamedTuple):
    """What stands in the place of a missing result; `failed` marks it as one that is none."""

    text: str
    failed: bool = True


class OpenCalls:
    """The open calls of a history. A result that only says that none is known leaves its call open.

    Args:
        messages: the history; it is not changed.

    Attributes:
        calls: the open calls, in order.
    """

    def __init__(self, messages: Sequence[Any]) -> None:
        """Find them. A history without open calls is read once, and nothing is built."""
        self._messages = messages
        self._groups: list[MessageGroup] = []
        self.calls: tuple[UnansweredCall, ...] = ()
        if not has_open_calls(messages):
            return
        maker = MessageMaker()
        for message in messages:
            maker.learn_style(message)
        self._groups = rebuild_history(messages, history_shape(messages, None) or "openai", maker).groups
        self.calls = tuple(self._find_calls())

    def with_answers(self, answers: Sequence[CallAnswer]) -> Sequence[Any]:
        """Return the history with these answers, one for each open call; the history itself if there are none."""
        if not self.calls:
            return self._messages
        left = iter(answers)
        return flatten_groups(_with_answers(group, left) for group in self._groups)

    def _find_calls(self) -> Iterator[UnansweredCall]:
        seen: Counter[str] = Counter()
        for group in self._groups:
            for result in group.results:
                position, call = self._original_call(group, result)
                mark = repr(call)
                if result.known:
                    seen[mark] += 1
                else:
                    yield UnansweredCall(call, seen[mark], position)

    def _original_call(self, group: MessageGroup, result: GroupResult) -> tuple[int, MessageCall]:
        """Return the call of a result as it was written, and where: a rebuilt history may have changed id and name."""
        made = result.call
        written = [(at, call) for at in group.sources for call in calls_in(self._messages[at])]
        same = [one for one in written if (usable_name(one[1].name), one[1].arguments) == (made.name, made.arguments)]
        return next((one for one in same if one[1].id == made.id), same[0] if same else (group.sources[0], made))


def has_open_calls(messages: Sequence[Any]) -> bool:
    """Return whether nobody answered a call of these messages: a history, or the end of one that had none before."""
    opened: Counter[str] = Counter()
    for message in messages:
        opened.update(call.id or "" for call in calls_in(message))
        for result in results_in(message):
            if result.content != UNANSWERED:
                opened[result.id or ""] -= 1
    return any(count > 0 for count in opened.values())


def _with_answers(group: MessageGroup, answers: Iterator[CallAnswer]) -> MessageGroup:
    texts = {place: next(answers) for place, result in enumerate(group.results) if not result.known}
    if not texts:
        return group
    answered = with_result_texts(group, {place: answer.text for place, answer in texts.items()})
    messages = list(answered.messages)
    for place, answer in texts.items():
        result = answered.results[place]
        if result.block is not None and not answer.failed:  # only blocks say whether a result is one
            blocks = list(as_sequence(read_field(messages[result.message], "content")))
            blocks[result.block] = with_fields(blocks[result.block], is_error=REMOVE_FIELD)
            messages[result.message] = with_fields(messages[result.message], content=blocks)
    return MessageGroup(tuple(messages), group.sources, group.role, answered.results, group.speaks, group.waits)
