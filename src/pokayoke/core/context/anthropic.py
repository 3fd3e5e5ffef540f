"""Rebuilds histories of Anthropic: roles alternate, and results come first in the next user message.

In: messages in Anthropic's format.
Out: groups that the API accepts. A group is a model message with the user message after it, which answers all of its
calls; two messages of one role in a row become one. Roles alternate whatever groups are left out.
Never: leave a call without a result, or a result without its call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pokayoke.core.call import Finding
from pokayoke.core.context.findings import repair_finding
from pokayoke.core.context.groups import (
    UNANSWERED,
    GroupResult,
    MessageGroup,
    RebuiltHistory,
    free_id,
    usable_name,
    with_fields,
)
from pokayoke.core.context.note import is_note, opening_note
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import CALL_KINDS, MessageCall, MessageResult, calls_in, results_in, role_of

_RESULT = "tool_result"
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


_FoundResult = tuple[int, Any, Any, MessageResult]  # position of the message, the message, the block, its content


class _DraftMessage:
    """A message under construction: its blocks, its source messages, and the results of its calls.

    `keys` are the original ids of the calls.
    """

    def __init__(self, role: str, at: int, message: Any, blocks: list[Any], *, changed: bool) -> None:
        self.role, self.message, self.blocks, self.changed = role, message, blocks, changed
        self.sources = [at]
        self.calls: list[MessageCall] = []
        self.keys: list[str] = []
        self.answers: list[_FoundResult | None] = []

    def build_message(self) -> Any:
        """Return the message."""
        return with_fields(self.message, content=self.blocks) if self.changed else self.message


_CallSlot = tuple[_DraftMessage, int]


class _HistoryBuilder:
    """Builds the messages in one pass over a history."""

    def __init__(self, taken: AbstractSet[str], *, opens: bool) -> None:
        self.turns: list[_DraftMessage] = []
        self.findings: list[Finding] = []
        self._taken, self._used = taken, set[str]()
        self._leads = opens  # whether a system message may still come
        self._open: dict[str, list[_CallSlot]] = {}
        self._answered: dict[str, _CallSlot] = {}

    def add_message(self, at: int, message: Any) -> None:
        """Add the next message."""
        side, message = self._resolve_side(at, message)
        if side not in {"user", "assistant"}:
            self.turns.append(_DraftMessage(side, at, message, [], changed=False))
            return
        blocks = _content_blocks(message)
        answers = [block for block in blocks if read_field(block, "type") == _RESULT]
        for block in answers:
            self._attach_result(at, message, block)
        rest = [block for block in blocks if read_field(block, "type") != _RESULT and not _is_blank(block)]
        if len(rest) + len(answers) < len(blocks) or not blocks:
            self.findings.append(repair_finding("empty_message", at, "a message or a block that says nothing"))
        if not rest:
            return
        if side == "user":
            self.drop_trailing_thought()
        last = self.turns[-1] if self.turns else None
        if last is not None and last.role == side and not last.calls:
            last.blocks = [*last.blocks, *rest]
            last.sources.append(at)
            last.changed = True
        else:
            self.turns.append(_DraftMessage(side, at, message, rest, changed=len(rest) < len(blocks)))
        if side == "assistant":
            self._register_calls(self.turns[-1], at)

    def drop_trailing_thought(self) -> None:
        """Drop the latest message if it holds only thinking and no model message follows: the API refuses it."""
        last = self.turns[-1] if self.turns else None
        if (
            last is not None
            and last.role == "assistant"
            and all(read_field(one, "type") in _THOUGHTS for one in last.blocks)
        ):
            self.turns.pop()
            self.findings.append(
                repair_finding("empty_message", last.sources[0], "a message of the model that only thinks")
            )

    def _resolve_side(self, at: int, message: Any) -> tuple[str, Any]:
        """Return the role of a message, and the message."""
        role = role_of(message)
        leads, self._leads = self._leads, self._leads and role == "system"
        if role == "system" and not leads:
            # The API has no system role between the others. The host's words are kept in a user message.
            self.findings.append(repair_finding("system_in_between", at, "a message of the system between the others"))
            return "user", with_fields(message, role="user")
        return "user" if role == "tool" else role, message

    def _register_calls(self, turn: _DraftMessage, at: int) -> None:
        """Register the calls of a message, with ids that are unique in the history."""
        for place, block in enumerate(turn.blocks):
            if read_field(block, "type") not in CALL_KINDS:
                continue
            call = calls_in(block)[0]
            key, name = call.id or "", _NOT_IN_NAMES.sub("_", usable_name(call.name))
            right = _NOT_IN_NAMES.sub("_", key)
            if not right or right in self._used or right in self._taken:
                right = free_id(right, {*self._used, *self._taken})
            self._used.add(right)
            if (right, name) != (call.id, call.name):
                self.findings.append(repair_finding("unusable_call", at, f"call {key!a} of {call.name!a}"))
                turn.blocks = [*turn.blocks[:place], with_fields(block, id=right, name=name), *turn.blocks[place + 1 :]]
                turn.changed = True
            self._open.setdefault(key, []).append((turn, len(turn.calls)))
            turn.calls.append(MessageCall(right, name, call.arguments))
            turn.keys.append(key)
            turn.answers.append(None)

    def _attach_result(self, at: int, message: Any, block: Any) -> None:
        """Attach a result to its call."""
        answer = results_in(block)[0]
        name, code = answer.id or "", None
        waiting, latest = self._open.get(name), self.turns[-1] if self.turns else None
        if waiting:
            slot = next(entry for entry in waiting if entry[0] is waiting[-1][0])
            waiting.remove(slot)
            self._answered[name] = slot
            slot[0].answers[slot[1]] = (at, message, block, answer)
            code = None if slot[0] is latest else "displaced_result"
        else:
            code, before = "orphan_result", self._answered.get(name)
            if before is not None:
                known = before[0].answers[before[1]]
                if known is not None and (known[3].content == UNANSWERED or before[0] is latest):
                    before[0].answers[before[1]] = (at, message, block, answer)
                    code = "duplicate_result"
        if code is not None:
            self.findings.append(repair_finding(code, at, f"result of call {answer.id!a}"))


def rebuild_anthropic(
    messages: Sequence[Any], base: int = 0, taken: AbstractSet[str] = frozenset(), *, opens: bool = True
) -> RebuiltHistory:
    """Return a history that follows Anthropic's rules.

    Args:
        messages: the history, or its end from a model message on.
        base: position of the first message.
        taken: ids of earlier calls, which must not repeat.
        opens: True if no user or model message comes before it.
    """
    builder = _HistoryBuilder(taken, opens=opens)
    for at, message in enumerate(messages, base):
        builder.add_message(at, message)
    builder.drop_trailing_thought()
    return RebuiltHistory(_build_groups(builder, opens=opens), builder.findings)


def _content_blocks(message: Any) -> list[Any]:
    content = read_field(message, "content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(as_sequence(content))


def _is_blank(block: Any) -> bool:
    """Return whether a text block has no visible character: the API refuses it."""
    text = block if isinstance(block, str) else read_field(block, "text")
    return isinstance(text, str) and not text.strip()


def _build_groups(builder: _HistoryBuilder, *, opens: bool) -> list[MessageGroup]:
    """Return each model message with the user message after it; earlier messages are groups of their own."""
    turns, groups = builder.turns, list[MessageGroup]()
    begun = not opens
    number = 0
    while number < len(turns):
        turn = turns[number]
        number += 1
        if turn.role == "assistant" and not begun:
            groups.append(MessageGroup(({"role": "user", "content": opening_note()},), (), "user"))
        begun = begun or turn.role in {"assistant", "user"}
        if turn.role != "assistant":
            groups.append(_build_single_group(turn))
            continue
        following = turns[number] if number < len(turns) and turns[number].role == "user" else None
        number += following is not None
        groups.append(_build_pair(turn, following, builder.findings))
    return groups


def _build_single_group(turn: _DraftMessage) -> MessageGroup:
    speaks = turn.role == "user" and any(not is_note(block) for block in turn.blocks)
    return MessageGroup((turn.build_message(),), tuple(turn.sources), turn.role, speaks=speaks)


def _build_pair(turn: _DraftMessage, following: _DraftMessage | None, findings: list[Finding]) -> MessageGroup:
    """Return the group of a model message and of the message with its results and the user's next words."""
    sources = [*turn.sources, *(following.sources if following else ())]
    # In the order of the calls, so that a repaired history does not change again.
    pairs = list(zip(turn.calls, turn.answers, strict=True))
    blocks: list[Any] = []
    results: list[GroupResult] = []
    for place, (call, found) in enumerate(pairs):
        if found is None:
            findings.append(repair_finding("unanswered_call", turn.sources[0], f"call {call.id!a} of {call.name!a}"))
            blocks.append({"type": _RESULT, "tool_use_id": call.id, "content": UNANSWERED, "is_error": True})
            results.append(GroupResult(call, UNANSWERED, failed=True, message=1, block=place, known=False))
            continue
        at, _, block, answer = found
        blocks.append(block if answer.id == call.id else with_fields(block, tool_use_id=call.id))
        sources.append(at)
        known = answer.content != UNANSWERED
        results.append(GroupResult(call, answer.content, answer.failed, 1, place, known=known))
    speaks = following is not None and any(not is_note(block) for block in following.blocks)
    messages = [turn.build_message()]
    if following is not None and not blocks:
        messages.append(following.build_message())
    elif blocks:
        messages.append(_build_result_message(pairs, following, blocks))
    return MessageGroup(tuple(messages), tuple(sorted(set(sources))), "assistant", tuple(results), speaks=speaks)


def _build_result_message(
    pairs: list[tuple[MessageCall, _FoundResult | None]], following: _DraftMessage | None, blocks: list[Any]
) -> Any:
    """Return the user message with these results, followed by the user's other blocks."""
    whole = [*blocks, *(following.blocks if following else ())]
    origin = next((found[1] for _, found in pairs if found), following.message if following else None)
    if origin is None:
        return {"role": "user", "content": whole}
    before = as_sequence(read_field(origin, "content"))
    if len(before) == len(whole) and all(one is other for one, other in zip(before, whole, strict=True)):
        return origin
    return with_fields(origin, content=whole)
