"""Shortens a history: large outputs first, then superseded results, then the middle.

In: groups and a limit.
Out: fewer or smaller groups. Each step begins with the oldest group and ends as soon as the history is short enough;
the next one is taken only if it is not. All are idempotent.
Never: leave out the system prompt, the first user message, pinned or last messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import cached_property
from itertools import takewhile
from math import inf
from typing import Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.context.chat import MessageMaker
from pokayoke.core.context.findings import left_out_finding, overflow_finding, summariser_finding
from pokayoke.core.context.groups import (
    GroupResult,
    MessageGroup,
    Shape,
    answer_text,
    flatten_groups,
    with_result_texts,
)
from pokayoke.core.context.note import (
    DONE_PREFIX,
    ContextNote,
    fact_lines,
    merge_notes,
    quote_json,
    unique_texts,
    write_note,
)
from pokayoke.core.context.note_placement import put_note, take_notes
from pokayoke.core.context.quotes import (
    PRIORITY_PREFIXES,
    SUPERSEDED,
    UNREADABLE,
    NoteLine,
    find_ids,
    has_output_label,
    ids_not_shown,
    is_tool_answer,
    note_lines,
    output_ids,
    output_trust,
    parse_arguments,
    select_lines,
)
from pokayoke.core.context.tokens import estimate_message
from pokayoke.core.context.values import Facts, HistoryOptions
from pokayoke.core.json.dump import dump_foreign
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.output.preview import build_preview

# Lines and ids of a note: the first row that fits is used.
_LEVELS = ((60, 80), (40, 60), (26, 40), (17, 30), (11, 24), (7, 16), (4, 12), (2, 8), (1, 6), (0, 6), (0, 0))
_MANY_LINES = 400  # lines from which a note chooses
_TARGET_SHARE = 0.8  # target size as a share of the limit
_NOTE_SHARE = 0.05  # of the window that a note for a part of the middle begins with
_MOST_PREVIEW = 1_500  # characters


class _NotedHistory(msgspec.Struct, frozen=True, gc=False):
    """A history with a note: its estimated tokens, the number of messages that the note replaces, findings.

    `is_whole` tells whether the note has a line for everything that it replaces.
    """

    groups: list[MessageGroup]
    tokens: int
    dropped: int = 0
    findings: list[Finding] = []
    is_whole: bool = True


class HistoryShortener:
    """A history that is being shortened.

    Attributes:
        groups: the current groups.
        tokens: estimated tokens of their messages.
        dropped: number of left-out messages.
        superseded: number of results reduced to their ids.
        offloaded: offloaded texts by handle.
        findings: problems of shortening.
    """

    def __init__(
        self,
        groups: list[MessageGroup],
        options: HistoryOptions,
        shape: Shape,
        maker: MessageMaker,
        pinned: frozenset[int],
    ) -> None:
        """Start with the whole history.

        Args:
            groups: the history.
            options: format and limits.
            shape: shape of its messages.
            maker: makes messages in its style.
            pinned: positions of messages that stay.
        """
        self.groups, self._options, self._maker, self._pins = groups, options, maker, pinned
        self._shape: Shape = shape
        self._costs = [self._estimate_group(group) for group in groups]
        self.tokens = sum(self._costs)
        self.dropped = self.superseded = 0
        self.offloaded: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._scale, self._fixed = 1.0, 0.0
        self._before: dict[int, MessageGroup] = {}  # groups before their outputs were reduced, by position
        self._lines: dict[int, tuple[MessageGroup, list[NoteLine]]] = {}  # of groups quoted so far, by identity

    @cached_property
    def _facts(self) -> Facts | None:
        """Facts for the note; a function is called once."""
        facts = self._options.facts
        return facts() if callable(facts) else facts

    @cached_property
    def _has_labels(self) -> bool:
        """Whether outputs in this history have labels."""
        texts = (answer_text(result.content) for group in self.groups for result in group.results)
        return any(has_output_label(text) for text in texts if text is not None)

    @property
    def request_tokens(self) -> float:
        """Tokens of a request with this history."""
        return self._fixed + self._scale * self.tokens

    def shorten(self, scale: float = 1.0, fixed: float = 0.0) -> None:
        """Take as many steps as necessary.

        Args:
            scale: tokens per estimated token.
            fixed: tokens of a request besides its messages.
        """
        self._scale, self._fixed = scale, fixed
        if self._is_below(self._options.token_limit):
            return
        # Just below the limit, the next message would lead to shortening again, with a changed beginning each time.
        stays = self._mark_staying()
        self._offload_outputs([not stay for stay in stays], self._aim)
        if not self._is_below(self._aim):
            self._supersede_results(stays)
        if not self._is_below(self._aim):
            self._summarise_middle(stays)
        if not self._is_below(self._options.max_tokens):
            self.findings.append(overflow_finding(round(self.request_tokens), self._options.max_tokens))

    @property
    def _aim(self) -> float:
        """Tokens of a request that are few enough."""
        return self._options.token_limit * _TARGET_SHARE

    def _is_below(self, limit: float) -> bool:
        return self.request_tokens <= limit

    def _estimate_group(self, group: MessageGroup) -> int:
        return sum(estimate_message(message, self._options.estimate) for message in group.messages)

    def _replace_group(self, place: int, group: MessageGroup) -> None:
        cost = self._estimate_group(group)
        self.tokens += cost - self._costs[place]
        self._before.setdefault(place, self.groups[place])
        self.groups[place], self._costs[place] = group, cost

    def _set_groups(self, groups: list[MessageGroup]) -> None:
        self.groups = groups
        self._costs = [self._estimate_group(group) for group in groups]
        self.tokens = sum(self._costs)

    def _is_pinned(self, group: MessageGroup) -> bool:
        return not self._pins.isdisjoint(group.sources)

    def _tail_start(self) -> int:
        """Return the position of the first of the last messages; notes do not count."""
        left, start = self._options.keep_last, len(self.groups)
        while left > 0 and start > 0:
            start -= 1
            group = self.groups[start]
            left -= len(group.messages) if group.role != "user" or group.speaks else 0
        return start

    def _mark_staying(self) -> list[bool]:
        """Return for each group whether it stays unchanged."""
        tail = self._tail_start()
        stays = [at >= tail or self._is_pinned(group) for at, group in enumerate(self.groups)]
        for at, group in enumerate(self.groups):
            if group.role != "system":
                break
            stays[at] = True
        first = next((at for at, group in enumerate(self.groups) if group.speaks), None)
        if first is not None:
            stays[first] = True
        # Open requests at the end stay: their answers would otherwise lack a request.
        waiting = len([*takewhile(lambda group: group.is_open, reversed(self.groups))])
        return [*stays[: len(stays) - waiting], *[True] * waiting]

    def _mark_tail(self) -> list[bool]:
        tail = self._tail_start()
        return [at >= tail and not self._is_pinned(group) for at, group in enumerate(self.groups)]

    def _offload_outputs(self, where: list[bool], until: float) -> None:
        """Replace large outputs by previews, from the oldest on, until the history is short enough."""
        for at, group in enumerate(list(self.groups)):
            if self._is_below(until):
                return
            if not where[at]:
                continue
            texts: dict[int, str] = {}
            for number, result in enumerate(group.results):
                text = answer_text(result.content)
                if text is None or self._options.estimate(text) <= self._options.large_tokens or _is_preview(text):
                    continue
                handle = f"out-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
                brief = self._build_preview(text, result, handle)
                if self._options.estimate(brief) < self._options.estimate(text):
                    texts[number] = brief
                    self.offloaded[handle] = text
            if texts:
                self._replace_group(at, with_result_texts(group, texts))

    def _build_preview(self, text: str, result: GroupResult, handle: str) -> str:
        """Return a preview of an output (JSON: its outline, text: its beginning), and whether it is a tool's output."""
        name, most = handle if self._options.kept else None, min(_MOST_PREVIEW, 2 * self._options.large_tokens)
        trust = output_trust(text) if is_tool_answer(text, failed=result.failed, labelled=self._has_labels) else "error"
        tool, body = result.call.name, text
        if text.startswith("<tool_output ") and text.rstrip().endswith("</tool_output>"):
            body = text.partition("\n")[2].rpartition("\n</tool_output>")[0]
        try:
            value, dumped = parse(body)
        except StrictError:
            return build_preview(body, handle=name, max_chars=most, tool=tool, trust=trust)
        return build_preview(value, dumped, handle=name, max_chars=most, tool=tool, trust=trust)

    def _supersede_results(self, stays: list[bool]) -> None:
        """Reduce the older results of a call with a newer good one to their ids, from the oldest on."""
        seen: set[Hashable] = set()
        stubs: dict[int, dict[int, str]] = {}
        for at in range(len(self.groups) - 1, -1, -1):
            group = self.groups[at]
            for number in range(len(group.results) - 1, -1, -1):
                result = group.results[number]
                key, text = self._call_identity(result.call.name, result.call.arguments), answer_text(result.content)
                if key is None or text is None or not result.known:
                    continue
                if key in seen and not stays[at] and not text.startswith(SUPERSEDED):
                    stub = f"{SUPERSEDED} It showed {quote_json(output_ids(text))}]"
                    if self._options.estimate(stub) < self._options.estimate(text):
                        stubs.setdefault(at, {})[number] = stub
                elif is_tool_answer(text, failed=result.failed, labelled=self._has_labels):
                    seen.add(key)
        for at in reversed(stubs):
            if self._is_below(self._aim):
                return
            self.superseded += len(stubs[at])
            self._replace_group(at, with_result_texts(self.groups[at], stubs[at]))

    def _call_identity(self, name: str, arguments: Any) -> Hashable | None:
        if arguments is None:  # the call is no longer known
            return None
        value, text = parse_arguments(arguments)
        if self._options.identity is not None:
            return self._options.identity(name, value)
        if value is UNREADABLE:
            return None
        try:
            return name, dump_foreign(value, sort=True)
        except (TypeError, ValueError):  # keys without an order, or a lone surrogate: equal if written equally
            return name, text

    def _summarise_middle(self, stays: list[bool]) -> None:
        """Replace the middle by one note.

        Messages of the host and the latest words of the user stay while they fit the window; the host's stay longer,
        as they are rules. Large outputs at the end are offloaded before them where the model can read them on.
        """
        latest = self._last_user_place()
        ruled = [stay or group.role == "system" for stay, group in zip(stays, self.groups, strict=True)]
        noted = self._try_note([stay or at == latest for at, stay in enumerate(ruled)])
        for fewer in (ruled, stays):
            if self._excess_tokens(noted) > 0:
                noted = self._try_note(fewer)
        self._set_groups(noted.groups)
        self.dropped += noted.dropped
        self.findings += noted.findings

    def _try_note(self, stays: list[bool]) -> _NotedHistory:
        """Return `_add_note`; if that does not fit, after offloading readable large outputs at the end."""
        noted = self._add_least_note(stays)
        if not self._options.kept or self._excess_tokens(noted) <= 0:
            return noted
        self._offload_outputs(self._mark_tail(), until=self.request_tokens - self._excess_tokens(noted))
        return self._add_least_note(stays)

    def _add_least_note(self, stays: list[bool]) -> _NotedHistory:
        """Return the history with a note for as many of its oldest groups as have to go; at the worst for all.

        A note that has to leave out lines gets more room, up to a half of what may be left beside it.
        """
        aim = (self._aim - self._fixed) / self._scale
        most = (aim - sum(cost for cost, stay in zip(self._costs, stays, strict=True) if stay)) / 2
        room = _NOTE_SHARE * self._options.max_tokens / self._scale
        kept, has_gone = self.tokens, False
        for at, stay in enumerate(stays if room <= most else ()):
            while has_gone and kept + room <= aim:
                noted = self._add_note([*stays[:at], *[True] * (len(stays) - at)], room=aim - kept)
                if noted.tokens <= aim and (noted.is_whole or room >= most):
                    return noted
                if room >= most:
                    break
                room = min(room * 2, most)
            if not stay:
                kept, has_gone = kept - self._costs[at], True
        return self._add_note(stays)

    def _last_user_place(self) -> int | None:
        """Return the position of the user's latest words."""
        return next((at for at in range(len(self.groups) - 1, -1, -1) if self.groups[at].speaks), None)

    def _excess_tokens(self, noted: _NotedHistory) -> float:
        """Return the tokens by which a history exceeds the window."""
        return self._fixed + self._scale * noted.tokens - self._options.max_tokens

    def _add_note(self, stays: list[bool], room: float | None = None) -> _NotedHistory:
        """Return the history with a note for the groups that do not stay, or unchanged if that is not shorter.

        Args:
            stays: for each group, whether it stays.
            room: tokens for the note; None for its share of what is left free.
        """
        as_it_is = _NotedHistory(self.groups, self.tokens)
        kept, notes, place = take_notes(self.groups, stays, self._shape)
        gone = [
            at
            for at, group in enumerate(self.groups)
            if not stays[at] and not (group.role == "user" and not group.speaks)
        ]
        if not gone:
            return as_it_is
        middle = [self._before.get(at, self.groups[at]) for at in gone]
        latest = self._last_user_place()
        findings = [
            left_out_finding("user_left_out" if at == latest else "system_left_out", group.sources[0])
            for at, group in zip(gone, middle, strict=True)
            if at == latest or group.role == "system"
        ]
        count = sum(len(group.messages) for group in middle)
        budget = self._note_budget(kept) if room is None else (room, inf)
        text, is_whole = self._fit_note(middle, merge_notes(notes), count, budget, findings)
        groups = put_note(kept, place, text, self._shape, self._maker)
        tokens = sum(self._estimate_group(group) for group in groups)
        return _NotedHistory(groups, tokens, count, findings, is_whole) if tokens < self.tokens else as_it_is

    def _note_budget(self, kept: list[MessageGroup]) -> tuple[float, float]:
        """Return the tokens for a note, and those for its facts.

        The note gets half of the free ones below the limit, and at least a quarter of the window's; facts twice that.
        """
        taken = sum(self._estimate_group(group) for group in kept)
        below, within = (
            (most - self._fixed) / self._scale - taken for most in (self._options.token_limit, self._options.max_tokens)
        )
        return max(below / 2, within / 4), max(below, within / 2)

    def _fit_note(
        self,
        middle: list[MessageGroup],
        old: ContextNote,
        count: int,
        budget: tuple[float, float],
        findings: list[Finding],
    ) -> tuple[str, bool]:
        """Return the longest note that fits the budget, or else the shortest, and whether no line is missing."""
        room, facts_room = budget
        facts = old.facts if self._facts is None else fact_lines(self._facts)
        lines = [NoteLine(line, find_ids(line), first=line.startswith(PRIORITY_PREFIXES)) for line in old.lines]
        lines += self._middle_lines(middle)
        all_ids = unique_texts((*old.ids, *(one for line in lines for one in line.ids)))
        told = self._summary_line(middle, old, room, findings)
        lines_told = lines if told is None else [told]
        done = [fact for fact in facts if fact.startswith(DONE_PREFIX)]
        levels = [(*level, 0) for level in _LEVELS]
        # What was done goes last, the oldest first: it is what the model would do again.
        levels += [(0, 0, -(-len(done) * eighths // 8)) for eighths in range(1, 9) if done]
        text, is_whole = "", False
        for most_lines, most_ids, less in levels:
            shown = select_lines(lines_told, most_lines)
            kept = tuple(fact for fact in facts if fact not in done[:less])
            said = "\n".join((*kept, *(line.text for line in shown)))
            ids = ids_not_shown(all_ids, said, most_ids)
            text = write_note(ContextNote(old.left_out + count, kept, ids, tuple(line.text for line in shown)))
            if self._options.estimate(text) <= (room if most_lines or most_ids else facts_room):
                is_whole = len(shown) == len(lines_told)
                break
        return text, is_whole

    def _middle_lines(self, middle: list[MessageGroup]) -> list[NoteLine]:
        """Return the lines for these groups; of the oldest of very many only the words of user and host."""
        parts: list[list[NoteLine]] = []
        found = 0
        for group in reversed(middle):
            if found < _MANY_LINES or group.speaks or group.role == "system":
                # Several notes are tried, and nearly all groups of one are in the next: each is quoted once.
                known = self._lines.get(id(group))
                if known is None:
                    known = self._lines[id(group)] = group, note_lines(group, labelled=self._has_labels)
                parts.append(known[1])
                found += len(parts[-1])
        return [line for part in reversed(parts) for line in part]

    def _summary_line(
        self, middle: list[MessageGroup], old: ContextNote, room: float, findings: list[Finding]
    ) -> NoteLine | None:
        """Return the line of the host's summariser; None without one, or if it fails."""
        if self._options.summarise is None:
            return None
        earlier = [self._maker.user_message(write_note(old))] if old.left_out else []
        try:
            line = (
                "summary: "
                f"{quote_json(str(self._options.summarise([*earlier, *flatten_groups(middle)], max(int(room), 0))))}"
            )
        except Exception as error:  # noqa: BLE001 - foreign code, usually a model behind a network
            findings.append(summariser_finding(type(error).__name__))
            return None
        if self._options.estimate(line) > room:
            findings.append(summariser_finding("the summary is longer than the room there is"))
            return None
        return NoteLine(line, (), first=True)


def _is_preview(text: str) -> bool:
    head = text[:300].partition("\n")[0]  # our part; after it comes the tool's text
    return text.startswith(SUPERSEDED) or (head.startswith("<tool_output") and ' preview="true"' in head)
