"""Rebuilds histories whose results are separate messages: OpenAI chat completions, LangChain.

In: messages in one of these formats.
Out: groups in which the results of a message with calls follow it directly, one per call, as the providers require.
Never: leave a call without a result, or a result without its call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pokayoke.core.call import Finding
from pokayoke.core.context.findings import repair_finding
from pokayoke.core.context.groups import (
    REMOVE_FIELD,
    UNANSWERED,
    GroupResult,
    MessageGroup,
    RebuiltHistory,
    free_id,
    usable_name,
    with_fields,
)
from pokayoke.core.context.note import is_note
from pokayoke.core.context.quotes import output_tool
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import MessageCall, MessageResult, calls_in, results_in, role_of, text_of


class MessageMaker:
    """Makes messages in the style of earlier ones: dicts of OpenAI, or LangChain's objects and dicts."""

    def __init__(self) -> None:
        """Start without a style."""
        self._kinds: dict[str, Any] = {}
        self._manner: str | None = None

    def learn_style(self, message: Any) -> None:
        """Learn the style of this message."""
        kind = read_field(message, "type")
        if not isinstance(kind, str):
            return
        if not isinstance(message, Mapping):
            self._kinds.setdefault(kind, type(message))
        elif self._manner is None and kind in {"human", "ai", "system", "tool"}:
            self._manner = "dumped" if "data" in message else "flat"

    def user_message(self, text: str) -> Any:
        """Return a user message."""
        return self._build_message("human", {"content": text}) or {"role": "user", "content": text}

    def result_message(self, call: MessageCall, text: str, *, legacy: bool) -> Any:
        """Return a result message."""
        if legacy:
            return {"role": "function", "name": call.name, "content": text}
        fields = {"content": text, "tool_call_id": call.id}
        return self._build_message("tool", fields) or {"role": "tool", "tool_call_id": call.id, "content": text}

    def _build_message(self, kind: str, fields: dict[str, Any]) -> Any:
        if kind in self._kinds:
            return self._kinds[kind](**fields)
        if self._manner == "dumped":
            return {"type": kind, "data": {**fields, "type": kind}}
        return {"type": kind, **fields} if self._manner == "flat" else None


class _Exchange:
    """A message and the results of its calls.

    `keys` are the original ids of the calls; `spoilt` counts the calls at the end with unreadable arguments
    (LangChain keeps them apart): without a result they are left out.
    """

    def __init__(
        self, at: int, message: Any, calls: list[MessageCall], keys: list[str], *, legacy: bool = False, spoilt: int = 0
    ) -> None:
        self.at, self.message, self.calls, self.keys = at, message, calls, keys
        self.legacy, self.spoilt = legacy, spoilt
        self.answers: list[_FoundResult | None] = [None] * len(calls)


_FoundResult = tuple[int, Any, MessageResult]
_CallSlot = tuple[_Exchange, int]


def rebuild_chat(messages: Sequence[Any], maker: MessageMaker, base: int = 0) -> RebuiltHistory:
    """Return a history in which each call is directly followed by its one result.

    Args:
        messages: the history, or its end.
        maker: makes the missing messages in the style of the history.
        base: position of the first message.
    """
    findings: list[Finding] = []
    turns: list[_Exchange] = []
    opened: dict[str, list[_CallSlot]] = {}
    answered: dict[str, _CallSlot] = {}
    for at, message in enumerate(messages, base):
        if role_of(message) == "tool":
            for answer in results_in(message):
                code = _attach_result(turns, opened, answered, (at, message, answer))
                if code is not None:
                    findings.append(repair_finding(code, at, f"result of call {answer.id!a}"))
            continue
        turn = _build_exchange(at, message, findings)
        if turn is None:
            continue
        turns.append(turn)
        for number, key in enumerate(turn.keys):
            opened.setdefault(key, []).append((turn, number))
    groups = [group for turn in turns if (group := _build_group(turn, maker, findings)) is not None]
    return RebuiltHistory(groups, findings)


def _attach_result(
    turns: list[_Exchange], opened: dict[str, list[_CallSlot]], answered: dict[str, _CallSlot], found: _FoundResult
) -> str | None:
    """Attach a result to its call. Returns the code of a finding, or None."""
    name = found[2].id or ""
    waiting = opened.get(name)
    if not waiting and not name and turns:
        # A result without an id answers the first open call of the latest message.
        turn = turns[-1]
        free = (number for number, answer in enumerate(turn.answers) if answer is None)
        waiting = opened.get(next((turn.keys[number] for number in free), ""))
    if waiting:
        latest = waiting[-1][0]
        slot = next(entry for entry in waiting if entry[0] is latest)
        waiting.remove(slot)
        answered[slot[0].keys[slot[1]]] = slot
        slot[0].answers[slot[1]] = found
        return None if slot[0] is turns[-1] else "displaced_result"
    place = answered.get(name)
    if place is None:
        return "orphan_result"
    before = place[0].answers[place[1]]
    if before is not None and (before[2].content == UNANSWERED or place[0] is turns[-1]):
        place[0].answers[place[1]] = found  # the later result is newer: a decision, a late answer
        return "duplicate_result"
    return "orphan_result"


def _build_exchange(at: int, message: Any, findings: list[Finding]) -> _Exchange | None:
    """Return a message in a form that a provider accepts; None if it is empty."""
    if role_of(message) != "assistant":
        return _Exchange(at, message, [], [])
    asked = as_sequence(read_field(message, "tool_calls"))
    written = [call for call in asked if _is_call(call)]
    if len(written) < len(asked):
        findings.append(repair_finding("unusable_call", at, "what stood among the calls and is none; it was left out"))
        message = with_fields(message, tool_calls=written)
    if isinstance(message, Mapping) and read_field(message, "tool_calls") == [] and read_field(message, "type") != "ai":
        message = with_fields(message, tool_calls=REMOVE_FIELD)
    calls = calls_in(message)
    keys = [call.id or "" for call in calls]
    if written:
        fixed = _fix_calls(calls)
        if fixed != calls:
            findings.append(repair_finding("unusable_call", at, "a call without an id or a name of its own"))
            message = with_fields(message, tool_calls=_rewrite_calls(written, fixed))
            calls = fixed
    spoilt = [
        MessageCall(read_field(call, "id"), read_field(call, "name") or "", read_field(call, "args"))
        for call in as_sequence(read_field(message, "invalid_tool_calls"))
    ]
    if not calls and not spoilt and _is_empty_message(message):
        findings.append(repair_finding("empty_message", at, "a message of the model that says nothing"))
        return None
    keys += [call.id or "" for call in spoilt]
    return _Exchange(at, message, calls + spoilt, keys, legacy=bool(calls) and not written, spoilt=len(spoilt))


def _is_call(written: Any) -> bool:
    """Return whether a value may be a call: it has fields, and so has the place of its name."""
    parts = (written, read_field(written, "function"), read_field(written, "custom"))
    return written is not None and not any(isinstance(part, (str, bytes, int, float, list, tuple)) for part in parts)


def _is_empty_message(message: Any) -> bool:
    """Return whether a model message has no content that a provider accepts."""
    beside = ("refusal", "audio", "function_call", "reasoning_content", "additional_kwargs")
    return not read_field(message, "content") and not any(read_field(message, name) for name in beside)


def _fix_calls(calls: list[MessageCall]) -> list[MessageCall]:
    """Return calls with ids and names that a provider accepts."""
    used: set[str] = set()
    wanted = {call.id for call in calls if call.id}
    fixed: list[MessageCall] = []
    for call in calls:
        key = call.id if call.id and call.id not in used else free_id(call.id or "", wanted | used)
        used.add(key)
        fixed.append(MessageCall(key, usable_name(call.name), call.arguments))
    return fixed


def _rewrite_calls(written: Sequence[Any], fixed: list[MessageCall]) -> list[Any]:
    """Return the calls of a message in its own format, with other ids and names."""
    calls: list[Any] = []
    for outer, call in zip(written, fixed, strict=True):
        inner = next((name for name in ("function", "custom") if read_field(outer, name) is not None), None)
        named = {"name": call.name} if inner is None else {inner: with_fields(read_field(outer, inner), name=call.name)}
        calls.append(with_fields(outer, id=call.id, **named))
    return calls


def _build_group(turn: _Exchange, maker: MessageMaker, findings: list[Finding]) -> MessageGroup | None:
    """Return the group of a message and its results; None if nothing is left."""
    role = role_of(turn.message)
    message, answers, spoilt = turn.message, list(zip(turn.calls, turn.answers, strict=True)), turn.spoilt
    if spoilt and None in turn.answers[-spoilt:]:
        message = _without_unreadable_calls(message, [found is not None for found in turn.answers[-spoilt:]])
        answers = [*answers[:-spoilt], *(pair for pair in answers[-spoilt:] if pair[1] is not None)]
        findings.append(repair_finding("unanswered_call", turn.at, "a call with unreadable arguments; it was left out"))
        if not answers and _is_empty_message(message):
            return None
    answers.sort(
        key=lambda pair: (pair[1] is None, pair[1][0] if pair[1] else 0)
    )  # in the original order, added results last
    messages, sources, results = [message], [turn.at], list[GroupResult]()
    for number, (call, found) in enumerate(answers, 1):
        if found is None:
            findings.append(repair_finding("unanswered_call", turn.at, f"call {call.id!a} of {call.name!a}"))
            messages.append(maker.result_message(call, UNANSWERED, legacy=turn.legacy))
            results.append(GroupResult(call, UNANSWERED, failed=True, message=number, known=False))
            continue
        at, result, answer = found
        messages.append(result if turn.legacy or answer.id == call.id else with_fields(result, tool_call_id=call.id))
        sources.append(at)
        known = answer.content != UNANSWERED
        results.append(GroupResult(call, answer.content, answer.failed or not known, number, known=known))
    if role == "user" and (tool := output_tool(text_of(turn.message))):
        # In a chat without tool calls, user messages carry the outputs.
        output = GroupResult(
            MessageCall(None, tool, None), read_field(turn.message, "content"), failed=False, message=0
        )
        return MessageGroup(tuple(messages), tuple(sources), "tool", (output,))
    speaks = role == "user" and not is_note(text_of(turn.message))
    return MessageGroup(tuple(messages), tuple(sources), role, tuple(results), speaks)


def _without_unreadable_calls(message: Any, stays: list[bool]) -> Any:
    """Return a LangChain message without its unreadable calls that have no result."""
    left = [
        call for call, stay in zip(as_sequence(read_field(message, "invalid_tool_calls")), stays, strict=True) if stay
    ]
    beside = read_field(message, "additional_kwargs")
    if isinstance(beside, Mapping) and "tool_calls" in beside:
        return with_fields(
            message, invalid_tool_calls=left, additional_kwargs=with_fields(beside, tool_calls=REMOVE_FIELD)
        )
    return with_fields(message, invalid_tool_calls=left)
