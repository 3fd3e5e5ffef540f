"""Histories of the responses API: every call and every result is an item of its own.

The rule of the provider: each call has one result somewhere after it, and what a model reasoned stands
before what it led to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from pokayoke.core.call import Finding
from pokayoke.core.context.findings import mended
from pokayoke.core.context.groups import GONE, UNANSWERED, Group, Rebuilt, Result, altered, free_id, usable_name
from pokayoke.core.context.note import is_note
from pokayoke.core.messages.messages import Answered, Asked, answers_in, calls_in, field, role_of, text_of


class _Item:
    """An item, its call if it is one, and for a result the item that it answers."""

    def __init__(self, at: int | None, item: Any) -> None:
        self.at, self.item = at, item
        self.call: Asked | None = None
        self.key = ""
        self.answer: _Item | None = None
        self.answers: _Item | None = None
        self.said: Answered | None = None
        self.waits = False  # whether it wants an answer of another kind than a tool's result


def rebuild(messages: Sequence[Any], base: int = 0) -> Rebuilt:
    """Return a history in which every call has one result and every result its call.

    Args:
        messages: the history, or its end.
        base: number of the first item.
    """
    findings: list[Finding] = []
    line: list[_Item] = []
    opened: dict[str, list[_Item]] = {}
    answered: dict[str, _Item] = {}
    others: dict[str, _Item] = {}
    given: set[str] = set()
    for at, message in enumerate(messages, base):
        item = _Item(at, message)
        found = answers_in(message)
        if found:
            item.said = found[0]
            _take(item, line, opened, answered, findings)
            continue
        calls = calls_in(message)
        if calls:
            _open(item, calls[0], opened, given, findings)
        elif role_of(message) == "assistant" and _says_nothing(message):
            findings.append(mended("empty_message", at, "an item that says nothing"))
            continue
        else:
            _bind(item, others)
        line.append(item)
    return Rebuilt(_groups(_led_on(_answered(line, findings), findings)), findings)


def _bind(item: _Item, others: dict[str, _Item]) -> None:
    """Tie the answer to a call of another kind (a computer's, a shell's), or to a request for approval, to it."""
    kind = field(item.item, "type")
    if not isinstance(kind, str):
        return
    names = ("call_id", "approval_request_id", "id")
    keys = [key for name in names if isinstance(key := field(item.item, name), str)]
    if kind.endswith(("_output", "_approval_response")):
        item.answers = next((others[key] for key in keys if key in others), None)
        if item.answers is not None:
            item.answers.answer = item
    elif kind.endswith(("_call", "_approval_request")):
        others.update(dict.fromkeys(keys, item))
        # What the provider runs itself has no `call_id`, and its result in it.
        item.waits = isinstance(field(item.item, "call_id"), str) or kind.endswith("_approval_request")


def _open(item: _Item, call: Asked, opened: dict[str, list[_Item]], given: set[str], findings: list[Finding]) -> None:
    """Wait for the result of a call; one whose id still waits, or was given to another call, gets a new one."""
    item.key = call.id or ""
    waiting = opened.setdefault(item.key, [])
    right = free_id(item.key, opened) if waiting or not item.key or item.key in given else item.key
    name = usable_name(call.name)
    item.call = Asked(right, name, call.arguments)
    if item.call != call:
        item.item = altered(item.item, call_id=right, name=name, id=GONE)
        findings.append(mended("unusable_call", item.at or 0, f"call {item.key!a} of {call.name!a}"))
        opened.setdefault(right, [])
        given.add(right)
    waiting.append(item)


def _take(
    item: _Item,
    line: list[_Item],
    opened: dict[str, list[_Item]],
    answered: dict[str, _Item],
    findings: list[Finding],
) -> None:
    """Give a result to its call."""
    assert item.said is not None, "only results are taken"
    name = item.said.id or ""
    waiting = opened.get(name)
    code = "orphan_result"
    if waiting:
        answered[name] = waiting.pop(0)
        _tie(answered[name], item)
        line.append(item)
        return
    call = answered.get(name)
    if call is not None and call.answer is not None:
        before = call.answer
        between = line[line.index(before) + 1 :]
        if (before.said is not None and before.said.content == UNANSWERED) or not any(
            role_of(other.item) in {"assistant", "user"} and other.call is None for other in between
        ):
            line.remove(before)
            _tie(call, item)
            line.append(item)
            code = "duplicate_result"
    findings.append(mended(code, item.at or 0, f"result of call {item.said.id!a}"))


def _tie(call: _Item, item: _Item) -> None:
    call.answer, item.answers = item, call
    if call.call is not None and item.said is not None and item.said.id != call.call.id:
        item.item = altered(item.item, call_id=call.call.id)


def _says_nothing(message: Any) -> bool:
    """True for an empty message of the model; items of other kinds are left alone."""
    return field(message, "type") in {None, "message"} and not field(message, "content")


def _answered(line: list[_Item], findings: list[Finding]) -> list[_Item]:
    """Return the items with a result behind each call that has none."""
    whole: list[_Item] = []
    for item in line:
        whole.append(item)
        if item.call is None or item.answer is not None:
            continue
        findings.append(mended("unanswered_call", item.at or 0, f"call {item.call.id!a} of {item.call.name!a}"))
        kind = f"{field(item.item, 'type')}_output"
        stand_in = _Item(None, {"type": kind, "call_id": item.call.id, "output": UNANSWERED})
        stand_in.said = Answered(item.call.id, failed=True, content=UNANSWERED)
        item.answer, stand_in.answers = stand_in, item
        whole.append(stand_in)
    return whole


def _led_on(line: list[_Item], findings: list[Finding]) -> list[_Item]:
    """Return the items without reasoning that led to nothing: what follows it must be the model's."""
    kept: list[_Item] = []
    for item in reversed(line):
        if field(item.item, "type") == "reasoning" and (
            not kept or kept[-1].answers is not None or role_of(kept[-1].item) in {"user", "system", "tool"}
        ):
            findings.append(mended("empty_message", item.at or 0, "reasoning that led to nothing"))
            continue
        kept.append(item)
    return kept[::-1]


def _groups(line: list[_Item]) -> list[Group]:
    """Return the items in pieces: a call, what led to it, and all up to its result stay together."""
    spans = [0] * (len(line) + 1)  # +1 where a span begins, -1 after its end
    places = {id(item): place for place, item in enumerate(line)}
    for place, item in enumerate(line):
        if item.answers is not None:
            spans[places[id(item.answers)] + 1] += 1
            spans[place + 1] -= 1
        if field(item.item, "type") == "reasoning":
            spans[place + 1] += 1
            spans[min(place + 2, len(line))] -= 1
    tied = list(accumulate(spans))
    groups: list[Group] = []
    start = 0
    for place in range(1, len(line) + 1):
        if place == len(line) or tied[place] <= 0:
            groups.append(_group(line[start:place]))
            start = place
    return groups


def _group(part: list[_Item]) -> Group:
    results: list[Result] = []
    for place, item in enumerate(part):
        if item.answers is not None and item.answers.call is not None and item.said is not None:
            known = item.said.content != UNANSWERED
            results.append(
                Result(item.answers.call, item.said.content, item.said.failed or not known, place, known=known)
            )
    return Group(
        tuple(item.item for item in part),
        tuple(item.at for item in part if item.at is not None),
        role_of(part[0].item),
        tuple(results),
        speaks=any(role_of(item.item) == "user" and not is_note(text_of(item.item)) for item in part),
        waits=any(item.waits and item.answer is None for item in part),
    )
