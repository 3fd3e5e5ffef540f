"""Histories in which a result is a message of its own: OpenAI chat completions, LangChain.

The rule of the providers: all results of a message that calls tools follow it at once, one per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pokayoke.core.call import Finding
from pokayoke.core.context.findings import mended
from pokayoke.core.context.groups import GONE, UNANSWERED, Group, Rebuilt, Result, altered, free_id, usable_name
from pokayoke.core.context.note import is_note
from pokayoke.core.context.quotes import tool_in
from pokayoke.core.messages.messages import Answered, Asked, answers_in, calls_in, field, items, role_of, text_of


class Maker:
    """Makes messages in the manner of those it has seen: dicts of OpenAI, or LangChain's objects and dicts."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self._kinds: dict[str, Any] = {}
        self._manner: str | None = None

    def learn(self, message: Any) -> None:
        """Take over how this message is written."""
        kind = field(message, "type")
        if not isinstance(kind, str):
            return
        if not isinstance(message, Mapping):
            self._kinds.setdefault(kind, type(message))
        elif self._manner is None and kind in {"human", "ai", "system", "tool"}:
            self._manner = "dumped" if "data" in message else "flat"

    def user(self, text: str) -> Any:
        """Return a user's message."""
        return self._made("human", {"content": text}) or {"role": "user", "content": text}

    def result(self, call: Asked, text: str, *, legacy: bool) -> Any:
        """Return a tool's result."""
        if legacy:
            return {"role": "function", "name": call.name, "content": text}
        fields = {"content": text, "tool_call_id": call.id}
        return self._made("tool", fields) or {"role": "tool", "tool_call_id": call.id, "content": text}

    def _made(self, kind: str, fields: dict[str, Any]) -> Any:
        if kind in self._kinds:
            return self._kinds[kind](**fields)
        if self._manner == "dumped":
            return {"type": kind, "data": {**fields, "type": kind}}
        return {"type": kind, **fields} if self._manner == "flat" else None


class _Turn:
    """A message and the results its calls have got.

    `keys` are the ids of the calls as they came; `spoilt` counts the calls at the end whose arguments
    could not be read (LangChain keeps them apart): they may go unanswered, and then they are left out.
    """

    def __init__(
        self, at: int, message: Any, calls: list[Asked], keys: list[str], *, legacy: bool = False, spoilt: int = 0
    ) -> None:
        self.at, self.message, self.calls, self.keys = at, message, calls, keys
        self.legacy, self.spoilt = legacy, spoilt
        self.answers: list[_Found | None] = [None] * len(calls)


_Found = tuple[int, Any, Answered]
_Slot = tuple[_Turn, int]


def rebuild(messages: Sequence[Any], maker: Maker, base: int = 0) -> Rebuilt:
    """Return a history in which every call is answered once, right behind it.

    Args:
        messages: the history, or its end.
        maker: writes what is missing; it has seen the history.
        base: number of the first message.
    """
    findings: list[Finding] = []
    turns: list[_Turn] = []
    opened: dict[str, list[_Slot]] = {}
    answered: dict[str, _Slot] = {}
    for at, message in enumerate(messages, base):
        if role_of(message) == "tool":
            for answer in answers_in(message):
                code = _take(turns, opened, answered, (at, message, answer))
                if code is not None:
                    findings.append(mended(code, at, f"result of call {answer.id!a}"))
            continue
        turn = _turn(at, message, findings)
        if turn is None:
            continue
        turns.append(turn)
        for number, key in enumerate(turn.keys):
            opened.setdefault(key, []).append((turn, number))
    groups = [group for turn in turns if (group := _group(turn, maker, findings)) is not None]
    return Rebuilt(groups, findings)


def _take(turns: list[_Turn], opened: dict[str, list[_Slot]], answered: dict[str, _Slot], found: _Found) -> str | None:
    """Give a result to its call. Returns what is odd about it, if anything."""
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
        place[0].answers[place[1]] = found  # the later one knows more: a decision, a late answer
        return "duplicate_result"
    return "orphan_result"


def _turn(at: int, message: Any, findings: list[Finding]) -> _Turn | None:
    """Return a message in a form that a provider takes; None if it says nothing at all."""
    if role_of(message) != "assistant":
        return _Turn(at, message, [], [])
    asked = items(field(message, "tool_calls"))
    written = [call for call in asked if _is_call(call)]
    if len(written) < len(asked):
        findings.append(mended("unusable_call", at, "what stood among the calls and is none; it was left out"))
        message = altered(message, tool_calls=written)
    if isinstance(message, Mapping) and field(message, "tool_calls") == [] and field(message, "type") != "ai":
        message = altered(message, tool_calls=GONE)
    calls = calls_in(message)
    keys = [call.id or "" for call in calls]
    if written:
        fixed = _usable(calls)
        if fixed != calls:
            findings.append(mended("unusable_call", at, "a call without an id or a name of its own"))
            message = altered(message, tool_calls=_respelt(written, fixed))
            calls = fixed
    spoilt = [
        Asked(field(call, "id"), field(call, "name") or "", field(call, "args"))
        for call in items(field(message, "invalid_tool_calls"))
    ]
    if not calls and not spoilt and _says_nothing(message):
        findings.append(mended("empty_message", at, "a message of the model that says nothing"))
        return None
    keys += [call.id or "" for call in spoilt]
    return _Turn(at, message, calls + spoilt, keys, legacy=bool(calls) and not written, spoilt=len(spoilt))


def _is_call(written: Any) -> bool:
    """False for what cannot be a call, since it has no fields, or nothing with fields where its name belongs."""
    parts = (written, field(written, "function"), field(written, "custom"))
    return written is not None and not any(isinstance(part, (str, bytes, int, float, list, tuple)) for part in parts)


def _says_nothing(message: Any) -> bool:
    """True for a message of the model without anything a provider would take."""
    beside = ("refusal", "audio", "function_call", "reasoning_content", "additional_kwargs")
    return not field(message, "content") and not any(field(message, name) for name in beside)


def _usable(calls: list[Asked]) -> list[Asked]:
    """Return calls with ids and names that a provider takes."""
    used: set[str] = set()
    wanted = {call.id for call in calls if call.id}
    fixed: list[Asked] = []
    for call in calls:
        key = call.id if call.id and call.id not in used else free_id(call.id or "", wanted | used)
        used.add(key)
        fixed.append(Asked(key, usable_name(call.name), call.arguments))
    return fixed


def _respelt(written: Sequence[Any], fixed: list[Asked]) -> list[Any]:
    """Return calls as they are written in a message, with other ids and names."""
    calls: list[Any] = []
    for outer, call in zip(written, fixed, strict=True):
        inner = next((name for name in ("function", "custom") if field(outer, name) is not None), None)
        named = {"name": call.name} if inner is None else {inner: altered(field(outer, inner), name=call.name)}
        calls.append(altered(outer, id=call.id, **named))
    return calls


def _group(turn: _Turn, maker: Maker, findings: list[Finding]) -> Group | None:
    """Return a message with its results behind it; None if nothing of it is left."""
    role = role_of(turn.message)
    message, answers, spoilt = turn.message, list(zip(turn.calls, turn.answers, strict=True)), turn.spoilt
    if spoilt and None in turn.answers[-spoilt:]:
        message = _without_spoilt(message, [found is not None for found in turn.answers[-spoilt:]])
        answers = [*answers[:-spoilt], *(pair for pair in answers[-spoilt:] if pair[1] is not None)]
        findings.append(mended("unanswered_call", turn.at, "a call with unreadable arguments; it was left out"))
        if not answers and _says_nothing(message):
            return None
    answers.sort(key=lambda pair: (pair[1] is None, pair[1][0] if pair[1] else 0))  # as they came; those put in, last
    messages, sources, results = [message], [turn.at], list[Result]()
    for number, (call, found) in enumerate(answers, 1):
        if found is None:
            findings.append(mended("unanswered_call", turn.at, f"call {call.id!a} of {call.name!a}"))
            messages.append(maker.result(call, UNANSWERED, legacy=turn.legacy))
            results.append(Result(call, UNANSWERED, failed=True, message=number, known=False))
            continue
        at, result, answer = found
        messages.append(result if turn.legacy or answer.id == call.id else altered(result, tool_call_id=call.id))
        sources.append(at)
        known = answer.content != UNANSWERED
        results.append(Result(call, answer.content, answer.failed or not known, number, known=known))
    if role == "user" and (tool := tool_in(text_of(turn.message))):
        # In a chat without tool calls the user's side brings the outputs.
        output = Result(Asked(None, tool, None), field(turn.message, "content"), failed=False, message=0)
        return Group(tuple(messages), tuple(sources), "tool", (output,))
    speaks = role == "user" and not is_note(text_of(turn.message))
    return Group(tuple(messages), tuple(sources), role, tuple(results), speaks)


def _without_spoilt(message: Any, stays: list[bool]) -> Any:
    """Return a message of LangChain without the unreadable calls that nobody answered."""
    left = [call for call, stay in zip(items(field(message, "invalid_tool_calls")), stays, strict=True) if stay]
    beside = field(message, "additional_kwargs")
    if isinstance(beside, Mapping) and "tool_calls" in beside:
        return altered(message, invalid_tool_calls=left, additional_kwargs=altered(beside, tool_calls=GONE))
    return altered(message, invalid_tool_calls=left)
