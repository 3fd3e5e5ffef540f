"""Calls of a framework's history that nobody answered.

In: the messages of a request, in the framework's own types. Out: the messages in which each call has a result. Never:
a request that a provider refuses because its history holds a call without a result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.context.open_calls import has_open_calls


class MissingResult(NamedTuple):
    """What stands in the place of a missing result; `failed` marks it as one that is none."""

    call_id: str
    name: str
    text: str
    failed: bool


async def answer_open_calls(
    adapter_run: AdapterRun,
    messages: Sequence[Any],
    as_chat: Callable[[Any], Iterable[dict[str, Any]]],
    add_results: Callable[[list[MissingResult], Any], Any],
) -> Sequence[Any]:
    """Return a history with what the ledger knows of each call that nobody answered; itself if every call has a result.

    Args:
        adapter_run: the run.
        messages: the history; it is not changed.
        as_chat: yields a message in the shape of a chat, see `chat_messages`.
        add_results: returns a message with these results, and before those of a message that it is given, if any.
    """
    chats: list[dict[str, Any]] = []
    sources: list[int] = []
    for at, message in enumerate(messages):
        found = [*as_chat(message)]
        chats += found
        sources += [at] * len(found)
    if not has_open_calls(chats):
        return messages
    holders = {at for at, chat in zip(sources, chats, strict=True) if chat["role"] == "tool"}
    missing: defaultdict[int, list[MissingResult]] = defaultdict(list)
    for (call, _, position), answer in await adapter_run.run.adescribe_open_calls(chats):
        missing[sources[position] + 1].append(MissingResult(call.id or "", call.name, *answer))
    whole: list[Any] = []
    for at in range(len(messages) + 1):
        if at in missing and at not in holders:
            whole.append(add_results(missing[at], None))
        if at < len(messages):
            both = at in missing and at in holders
            whole.append(add_results(missing[at], messages[at]) if both else messages[at])
    return whole
