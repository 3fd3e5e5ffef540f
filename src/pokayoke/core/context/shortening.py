"""What goes and what stays: large outputs first, then superseded ones, then the middle.

In come groups and a limit; out come fewer or smaller groups. Each step is taken only if the one before was
not enough, and taking them again changes nothing: what was done once leaves nothing to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import cached_property
from itertools import takewhile
from typing import Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.context.chat import Maker
from pokayoke.core.context.findings import left_out, overflow, summariser_failed
from pokayoke.core.context.groups import Group, Result, Shape, answer_text, flat, with_results
from pokayoke.core.context.note import Note, lines_of_facts, merged, quoted, write
from pokayoke.core.context.note_placement import put_note, take_notes
from pokayoke.core.context.quotes import (
    FIRST,
    SUPERSEDED,
    UNREADABLE,
    Line,
    chosen,
    ids_in,
    is_good,
    is_labelled,
    lines_of,
    plain,
    shown_in,
    trust_in,
    unseen,
)
from pokayoke.core.context.tokens import estimate_message
from pokayoke.core.context.values import Options
from pokayoke.core.json.strict import StrictError, dump_foreign, parse
from pokayoke.core.output.preview import preview

# Lines and ids a note holds: the first row that fits is taken.
_LEVELS = ((60, 80), (40, 60), (26, 40), (17, 30), (11, 24), (7, 16), (4, 12), (2, 8), (1, 6), (0, 6), (0, 0))
_ENOUGH = 400  # lines from which a note chooses
_AIM = 0.8  # share of the limit to get down to
_MOST_PREVIEW = 1_500  # characters


class _Noted(msgspec.Struct, frozen=True, gc=False):
    """A history with a note in it: what it is worth as estimated, how many messages the note stands for."""

    groups: list[Group]
    tokens: int
    dropped: int = 0
    findings: list[Finding] = []


class Work:
    """A history while it becomes shorter.

    Attributes:
        groups: what there is now.
        tokens: what its messages are worth, as estimated.
        dropped: messages left out.
        superseded: results of which only the ids were kept.
        offloaded: texts put aside, by handle.
        findings: what went wrong.
    """

    def __init__(
        self, groups: list[Group], options: Options, shape: Shape, maker: Maker, pinned: frozenset[int]
    ) -> None:
        """Begin with what there is.

        Args:
            groups: the history.
            options: what is wanted of it.
            shape: how it is written.
            maker: writes messages in its manner.
            pinned: numbers of messages that stay.
        """
        self.groups, self._options, self._maker, self._pins = groups, options, maker, pinned
        self._shape: Shape = shape
        self._costs = [self._cost(group) for group in groups]
        self.tokens = sum(self._costs)
        self.dropped = self.superseded = 0
        self.offloaded: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._scale, self._fixed = 1.0, 0.0
        self._before: dict[int, Group] = {}  # what stood in a place before its outputs were cut down

    @cached_property
    def _labelled(self) -> bool:
        """Whether outputs in this history carry labels."""
        texts = (answer_text(result.content) for group in self.groups for result in group.results)
        return any(is_labelled(text) for text in texts if text is not None)

    @property
    def worth(self) -> float:
        """What a request with this history is worth."""
        return self._fixed + self._scale * self.tokens

    def shorten(self, scale: float = 1.0, fixed: float = 0.0) -> None:
        """Take the steps, as many as are needed.

        Args:
            scale: tokens per estimated token.
            fixed: tokens that a request holds beside its messages.
        """
        self._scale, self._fixed = scale, fixed
        if self._is_below(self._options.limit):
            return
        # Getting just below the limit would mean to be back after the next message, with another beginning each time.
        aim, stays = self._options.limit * _AIM, self._stays()
        self._offload([not stay for stay in stays])
        if not self._is_below(aim):
            self._supersede(stays)
        if not self._is_below(aim):
            self._summarise(stays)
        if not self._is_below(self._options.max_tokens):
            self.findings.append(overflow(round(self.worth), self._options.max_tokens))

    def _is_below(self, limit: float) -> bool:
        return self.worth <= limit

    def _cost(self, group: Group) -> int:
        return sum(estimate_message(message, self._options.estimate) for message in group.messages)

    def _replace(self, place: int, group: Group) -> None:
        cost = self._cost(group)
        self.tokens += cost - self._costs[place]
        self._before.setdefault(place, self.groups[place])
        self.groups[place], self._costs[place] = group, cost

    def _become(self, groups: list[Group]) -> None:
        self.groups = groups
        self._costs = [self._cost(group) for group in groups]
        self.tokens = sum(self._costs)

    def _pinned(self, group: Group) -> bool:
        return not self._pins.isdisjoint(group.sources)

    def _tail(self) -> int:
        """Return where the last messages begin; notes do not count."""
        left, start = self._options.keep_last, len(self.groups)
        while left > 0 and start > 0:
            start -= 1
            group = self.groups[start]
            left -= len(group.messages) if group.role != "user" or group.speaks else 0
        return start

    def _stays(self) -> list[bool]:
        """Tell for each group whether it stays as it is."""
        tail = self._tail()
        stays = [at >= tail or self._pinned(group) for at, group in enumerate(self.groups)]
        for at, group in enumerate(self.groups):
            if group.role != "system":
                break
            stays[at] = True
        first = next((at for at, group in enumerate(self.groups) if group.speaks), None)
        if first is not None:
            stays[first] = True
        # What waits at the end stays: its answer is on its way, and would answer nothing.
        waiting = len([*takewhile(lambda group: group.is_open, reversed(self.groups))])
        return [*stays[: len(stays) - waiting], *[True] * waiting]

    def _in_tail(self) -> list[bool]:
        tail = self._tail()
        return [at >= tail and not self._pinned(group) for at, group in enumerate(self.groups)]

    def _offload(self, where: list[bool], until: float | None = None) -> None:
        """Replace large outputs by previews, from the oldest on."""
        for at, group in enumerate(list(self.groups)):
            if until is not None and self._is_below(until):
                return
            if not where[at]:
                continue
            texts: dict[int, str] = {}
            for number, result in enumerate(group.results):
                text = answer_text(result.content)
                if text is None or self._options.estimate(text) <= self._options.large_tokens or _is_brief(text):
                    continue
                handle = f"out-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
                brief = self._brief(text, result, handle)
                if self._options.estimate(brief) < self._options.estimate(text):
                    texts[number] = brief
                    self.offloaded[handle] = text
            if texts:
                self._replace(at, with_results(group, texts))

    def _brief(self, text: str, result: Result, handle: str) -> str:
        """Return an output in brief: of JSON its outline, of text its beginning; and whether it is a good one."""
        name, most = handle if self._options.kept else None, min(_MOST_PREVIEW, 2 * self._options.large_tokens)
        trust = trust_in(text) if is_good(text, failed=result.failed, labelled=self._labelled) else "error"
        tool, body = result.call.name, text
        if text.startswith("<tool_output ") and text.rstrip().endswith("</tool_output>"):
            body = text.partition("\n")[2].rpartition("\n</tool_output>")[0]
        try:
            value, dumped = parse(body)
        except StrictError:
            return preview(body, handle=name, max_chars=most, tool=tool, trust=trust)
        return preview(value, dumped, handle=name, max_chars=most, tool=tool, trust=trust)

    def _supersede(self, stays: list[bool]) -> None:
        """Cut older results of a call of which there is a newer good one down to their ids."""
        seen: set[Hashable] = set()
        for at in range(len(self.groups) - 1, -1, -1):
            group, texts = self.groups[at], dict[int, str]()
            for number in range(len(group.results) - 1, -1, -1):
                result = group.results[number]
                key, text = self._same(result.call.name, result.call.arguments), answer_text(result.content)
                if key is None or text is None or not result.known:
                    continue
                if key in seen and not stays[at] and not text.startswith(SUPERSEDED):
                    stub = f"{SUPERSEDED} It showed {quoted(shown_in(text))}]"
                    if self._options.estimate(stub) < self._options.estimate(text):
                        texts[number] = stub
                elif is_good(text, failed=result.failed, labelled=self._labelled):
                    seen.add(key)
            if texts:
                self.superseded += len(texts)
                self._replace(at, with_results(group, texts))

    def _same(self, name: str, arguments: Any) -> Hashable | None:
        if arguments is None:  # nobody knows any more which call it was
            return None
        value, text = plain(arguments)
        if self._options.identity is not None:
            return self._options.identity(name, value)
        if value is UNREADABLE:
            return None
        try:
            return name, dump_foreign(value, sort=True)
        except (TypeError, ValueError):  # keys without an order, or half a character: equal if written equally
            return name, text

    def _summarise(self, stays: list[bool]) -> None:
        """Put one note in the place of the middle.

        What the host said in between and the latest words of the user stay as long as the window has room, the
        first of them longer: they are rules. Large outputs at the end go before them where they can be read on.
        """
        latest = self._latest()
        ruled = [stay or group.role == "system" for stay, group in zip(stays, self.groups, strict=True)]
        noted = self._tried([stay or at == latest for at, stay in enumerate(ruled)])
        for fewer in (ruled, stays):
            if self._excess(noted) > 0:
                noted = self._tried(fewer)
        self._become(noted.groups)
        self.dropped += noted.dropped
        self.findings += noted.findings

    def _tried(self, stays: list[bool]) -> _Noted:
        """Return `_noted`; if that does not fit, after large outputs at the end went that can be read on."""
        noted = self._noted(stays)
        if not self._options.kept or self._excess(noted) <= 0:
            return noted
        self._offload(self._in_tail(), until=self.worth - self._excess(noted))
        return self._noted(stays)

    def _latest(self) -> int | None:
        """Return where the user spoke last."""
        return next((at for at in range(len(self.groups) - 1, -1, -1) if self.groups[at].speaks), None)

    def _excess(self, noted: _Noted) -> float:
        """By how much a history would not fit the window."""
        return self._fixed + self._scale * noted.tokens - self._options.max_tokens

    def _noted(self, stays: list[bool]) -> _Noted:
        """Return the history with a note for what does not stay, or as it is if that is no longer."""
        as_it_is = _Noted(self.groups, self.tokens)
        kept, notes, place = take_notes(self.groups, stays, self._shape)
        gone = [
            at
            for at, group in enumerate(self.groups)
            if not stays[at] and not (group.role == "user" and not group.speaks)
        ]
        if not gone:
            return as_it_is
        middle = [self._before.get(at, self.groups[at]) for at in gone]
        latest = self._latest()
        findings = [
            left_out("user_left_out" if at == latest else "system_left_out", group.sources[0])
            for at, group in zip(gone, middle, strict=True)
            if at == latest or group.role == "system"
        ]
        count = sum(len(group.messages) for group in middle)
        text = self._note(middle, merged(notes), count, self._room(kept), findings)
        groups = put_note(kept, place, text, self._shape, self._maker)
        tokens = sum(self._cost(group) for group in groups)
        return _Noted(groups, tokens, count, findings) if tokens < self.tokens else as_it_is

    def _room(self, kept: list[Group]) -> float:
        """Return the tokens that a note may have: half of what is free below the limit, but some of the window's."""
        taken = sum(self._cost(group) for group in kept)
        below, within = (
            (most - self._fixed) / self._scale - taken for most in (self._options.limit, self._options.max_tokens)
        )
        return max(below / 2, within / 4)

    def _note(self, middle: list[Group], old: Note, count: int, room: float, findings: list[Finding]) -> str:
        """Return the longest note that fits the room, or else the shortest."""
        facts = old.facts if self._options.facts is None else lines_of_facts(self._options.facts)
        lines = [Line(line, ids_in(line), first=line.startswith(FIRST)) for line in old.lines]
        lines += _lines(middle, labelled=self._labelled)
        told = self._told(middle, old, room, findings)
        text = ""
        for most_lines, most_ids in _LEVELS:
            shown = chosen(lines if told is None else [told], most_lines)
            said = "\n".join((*facts, *(line.text for line in shown)))
            ids = unseen(lines, said, old.ids)[-most_ids:] if most_ids else ()
            text = write(Note(old.left_out + count, facts, ids, tuple(line.text for line in shown)))
            if self._options.estimate(text) <= room:
                break
        return text

    def _told(self, middle: list[Group], old: Note, room: float, findings: list[Finding]) -> Line | None:
        """Return what the host's summariser says; None if there is none, or it cannot be used."""
        if self._options.summarise is None:
            return None
        earlier = [self._maker.user(write(old))] if old.left_out else []
        try:
            line = f"summary: {quoted(str(self._options.summarise([*earlier, *flat(middle)], max(int(room), 0))))}"
        except Exception as error:  # noqa: BLE001 - foreign code, usually a model behind a network
            findings.append(summariser_failed(type(error).__name__))
            return None
        if self._options.estimate(line) > room:
            findings.append(summariser_failed("the summary is longer than the room there is"))
            return None
        return Line(line, (), first=True)


def _lines(middle: list[Group], *, labelled: bool) -> list[Line]:
    """Return what a note may say of these groups: of the oldest of very many only what user and host said."""
    parts: list[list[Line]] = []
    found = 0
    for group in reversed(middle):
        if found < _ENOUGH or group.speaks or group.role == "system":
            parts.append(lines_of(group, labelled=labelled))
            found += len(parts[-1])
    return [line for part in reversed(parts) for line in part]


def _is_brief(text: str) -> bool:
    head = text[:300].partition("\n")[0]  # ours; behind it the tool speaks
    return text.startswith(SUPERSEDED) or (head.startswith("<tool_output") and ' preview="true"' in head)
