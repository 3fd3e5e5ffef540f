"""Rebuilds histories of OpenAI's responses API, in which each call and each result is an item.

In: items.
Out: groups in which each call has one result after it, and reasoning precedes the item it led to.
Never: leave a call without a result, or reasoning without its item.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
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
from pokayoke.core.json.values import read_field
from pokayoke.core.messages.messages import MessageCall, MessageResult, calls_in, results_in, role_of, text_of


class _ResponseItem:
    """An item, its call if it is one, and for a result the item of its call."""

    def __init__(self, at: int | None, item: Any) -> None:
        self.at, self.item = at, item
        self.call: MessageCall | None = None
        self.key = ""
        self.answer: _ResponseItem | None = None
        self.answers: _ResponseItem | None = None
        self.said: MessageResult | None = None
        self.waits = False  # whether it needs another kind of answer than a tool's result


def rebuild_responses(messages: Sequence[Any], base: int = 0) -> RebuiltHistory:
    """Return a history in which every call has one result and every result its call.

    Args:
        messages: the history, or its end.
        base: position of the first item.
    """
    findings: list[Finding] = []
    line: list[_ResponseItem] = []
    opened: dict[str, list[_ResponseItem]] = {}
    answered: dict[str, _ResponseItem] = {}
    others: dict[str, _ResponseItem] = {}
    given: set[str] = set()
    for at, message in enumerate(messages, base):
        item = _ResponseItem(at, message)
        found = results_in(message)
        if found:
            item.said = found[0]
            _attach_result(item, line, opened, answered, findings)
            continue
        calls = calls_in(message)
        if calls:
            _open_call(item, calls[0], opened, given, findings)
        elif role_of(message) == "assistant" and _is_empty_message(message):
            findings.append(repair_finding("empty_message", at, "an item that says nothing"))
            continue
        else:
            _bind_answer(item, others)
        line.append(item)
    return RebuiltHistory(_build_groups(_drop_idle_reasoning(_add_missing_results(line, findings), findings)), findings)


def _bind_answer(item: _ResponseItem, others: dict[str, _ResponseItem]) -> None:
    """Connect an answer with its call of another kind (computer, shell) or its approval request."""
    kind = read_field(item.item, "type")
    if not isinstance(kind, str):
        return
    names = ("call_id", "approval_request_id", "id")
    keys = [key for name in names if isinstance(key := read_field(item.item, name), str)]
    if kind.endswith(("_output", "_approval_response")):
        item.answers = next((others[key] for key in keys if key in others), None)
        if item.answers is not None:
            item.answers.answer = item
    elif kind.endswith(("_call", "_approval_request")):
        others.update(dict.fromkeys(keys, item))
        # A call that the provider runs itself has no `call_id`, and holds its result.
        item.waits = isinstance(read_field(item.item, "call_id"), str) or kind.endswith("_approval_request")


def _open_call(
    item: _ResponseItem,
    call: MessageCall,
    opened: dict[str, list[_ResponseItem]],
    given: set[str],
    findings: list[Finding],
) -> None:
    """Register a call; one whose id is open or was given to another call gets a new id."""
    item.key = call.id or ""
    waiting = opened.setdefault(item.key, [])
    right = free_id(item.key, opened) if waiting or not item.key or item.key in given else item.key
    name = usable_name(call.name)
    item.call = MessageCall(right, name, call.arguments)
    if item.call != call:
        item.item = with_fields(item.item, call_id=right, name=name, id=REMOVE_FIELD)
        findings.append(repair_finding("unusable_call", item.at or 0, f"call {item.key!a} of {call.name!a}"))
        opened.setdefault(right, [])
        given.add(right)
    waiting.append(item)


def _attach_result(
    item: _ResponseItem,
    line: list[_ResponseItem],
    opened: dict[str, list[_ResponseItem]],
    answered: dict[str, _ResponseItem],
    findings: list[Finding],
) -> None:
    """Attach a result to its call."""
    assert item.said is not None, "only results are taken"
    name = item.said.id or ""
    waiting = opened.get(name)
    code = "orphan_result"
    if waiting:
        answered[name] = waiting.pop(0)
        _link_result(answered[name], item)
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
            _link_result(call, item)
            line.append(item)
            code = "duplicate_result"
    findings.append(repair_finding(code, item.at or 0, f"result of call {item.said.id!a}"))


def _link_result(call: _ResponseItem, item: _ResponseItem) -> None:
    call.answer, item.answers = item, call
    if call.call is not None and item.said is not None and item.said.id != call.call.id:
        item.item = with_fields(item.item, call_id=call.call.id)


def _is_empty_message(message: Any) -> bool:
    """Return whether this is an empty model message; items of other kinds never are."""
    return read_field(message, "type") in {None, "message"} and not read_field(message, "content")


def _add_missing_results(line: list[_ResponseItem], findings: list[Finding]) -> list[_ResponseItem]:
    """Return the items with a result after each call without one."""
    whole: list[_ResponseItem] = []
    for item in line:
        whole.append(item)
        if item.call is None or item.answer is not None:
            continue
        findings.append(repair_finding("unanswered_call", item.at or 0, f"call {item.call.id!a} of {item.call.name!a}"))
        kind = f"{read_field(item.item, 'type')}_output"
        stand_in = _ResponseItem(None, {"type": kind, "call_id": item.call.id, "output": UNANSWERED})
        stand_in.said = MessageResult(item.call.id, failed=True, content=UNANSWERED)
        item.answer, stand_in.answers = stand_in, item
        whole.append(stand_in)
    return whole


def _drop_idle_reasoning(line: list[_ResponseItem], findings: list[Finding]) -> list[_ResponseItem]:
    """Return the items without reasoning that no model item follows."""
    kept: list[_ResponseItem] = []
    for item in reversed(line):
        if read_field(item.item, "type") == "reasoning" and (
            not kept or kept[-1].answers is not None or role_of(kept[-1].item) in {"user", "system", "tool"}
        ):
            findings.append(repair_finding("empty_message", item.at or 0, "reasoning that led to nothing"))
            continue
        kept.append(item)
    return kept[::-1]


def _build_groups(line: list[_ResponseItem]) -> list[MessageGroup]:
    """Return the items in groups: a call, its reasoning, and all items up to its result."""
    spans = [0] * (len(line) + 1)  # +1 at the start of a span, -1 after its end
    places = {id(item): place for place, item in enumerate(line)}
    for place, item in enumerate(line):
        if item.answers is not None:
            spans[places[id(item.answers)] + 1] += 1
            spans[place + 1] -= 1
        if read_field(item.item, "type") == "reasoning":
            spans[place + 1] += 1
            spans[min(place + 2, len(line))] -= 1
    tied = list(accumulate(spans))
    groups: list[MessageGroup] = []
    start = 0
    for place in range(1, len(line) + 1):
        if place == len(line) or tied[place] <= 0:
            groups.append(_build_group(line[start:place]))
            start = place
    return groups


def _build_group(part: list[_ResponseItem]) -> MessageGroup:
    results: list[GroupResult] = []
    for place, item in enumerate(part):
        if item.answers is not None and item.answers.call is not None and item.said is not None:
            known = item.said.content != UNANSWERED
            results.append(
                GroupResult(item.answers.call, item.said.content, item.said.failed or not known, place, known=known)
            )
    return MessageGroup(
        tuple(item.item for item in part),
        tuple(item.at for item in part if item.at is not None),
        role_of(part[0].item),
        tuple(results),
        speaks=any(role_of(item.item) == "user" and not is_note(text_of(item.item)) for item in part),
        waits=any(item.waits and item.answer is None for item in part),
    )
