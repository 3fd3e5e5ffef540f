"""Judges each call by its place in the text: as the act, as a suggestion, or as something that is only shown.

In: a text, the calls found in it, and the thoughts and data that hold none.
Out: the calls with the grade of their place, and markup of calls that nothing could read.
Never: look at words. What counts is marks, lines, quotation marks, tags, code, and what stands before and behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from pokayoke.core.contract.names import fold_name
from pokayoke.core.intake.framings import BARE, CLOSES, NAME_MEMBER, OPENS, OTHERS, OWN_TURN, STRAY
from pokayoke.core.intake.reading import ReadCall, Reading, refused_reading

_TOKENS = re.compile(
    rf"(?P<text>{OTHERS.pattern})|(?P<close>{CLOSES})|(?P<bare>{BARE})|(?P<open>{OPENS})|(?P<stray>{STRAY})"
    rf"|(?P<turn>{OWN_TURN})|(?P<fence>`{{3,}}[\w+-]{{0,20}}|(?m:^)~{{3,}}\w{{0,20}})"
    r"|(?P<tag></?[A-Za-z_][\w:.-]{0,60}(?:[ =][^<>\n]{0,200})?>)"
)
_BARE = re.compile(rf"{BARE}|{STRAY}").search
_WORD = re.compile(r"[^\s,;`]").search
"""A character that is neither white space, nor a separator of calls, nor a mark around code."""
_QUOTES = re.compile(r"[\"“”„‟«»‹›「」『』`]|~~|(?<!\w)['‘’‚]|['‘’‚](?!\w)").finditer
_QUOTE_KINDS = {sign: kind for kind in ('"', "“”„‟", "«»", "‹›", "「」", "『』", "`", "~", "'‘’‚") for sign in kind}
_SHOWN_LINE = re.compile(r"[ \t]*+(?:>(?!>)|//|#(?!#)|[-*] \[ \])").match
"""The beginning of a line that is a quotation, a comment, or a task that is still open."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL).sub
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_NEAR = 500


class Piece(NamedTuple):
    """A part of the text: a call, a mark, thoughts (`aside`), `data`, or words."""

    kind: str
    start: int
    end: int


class _Line(NamedTuple):
    """What stands before a mark or a call on its line."""

    begins: bool
    is_shown: bool


class CallGroup(NamedTuple):
    """Calls that share a place, such as those of one list.

    Attributes:
        start: offset of the first character.
        end: offset after the last.
        calls: the calls.
        is_named: True if the mark at its beginning holds the name.
    """

    start: int
    end: int
    calls: tuple[ReadCall, ...]
    is_named: bool


class Surroundings(NamedTuple):
    """What is known beside the text.

    Attributes:
        has_own_form: True if unmarked calls have the form that the host named for its model.
        has_native_calls: True once the model has made a native call.
        read_texts: texts that the model has read.
        tools: names of the offered tools, if known: an unmarked form beside words that names none of them is data.
    """

    has_own_form: bool = False
    has_native_calls: bool = False
    read_texts: Iterable[str] = ()
    tools: Iterable[str] | None = None


def judge_places(
    text: str, groups: Sequence[CallGroup], passed_over: Sequence[Piece], known: Surroundings
) -> tuple[ReadCall, ...]:
    """Return the calls in order, each with the grade that its place allows, and unread markup as a refused call."""
    if not groups and not _BARE(text):
        return ()
    walk = _PlaceWalk(text, groups, passed_over)
    walk.follow_pieces()
    calls: list[ReadCall] = []
    first = min((place for place, at in walk.places.items() if not walk.is_shown(at)), default=-1)
    behind = [at for at in walk.words if at > first >= 0]
    read_texts = _spellings(known.read_texts) if groups else ()
    for group in groups:
        at = walk.places_by_start.get(group.start)
        if at is None:  # it is in thoughts
            reason = ""
        elif walk.is_shown(walk.places[at]):
            reason = "disowned"
        elif behind and behind[0] < at:
            reason = "after_text"
        elif any(text[group.start : group.end] in one for one in read_texts):
            reason = "recited"
        elif known.has_native_calls:
            reason = "not_native"
        else:
            is_own = walk.places[at].is_framed or known.has_own_form
            is_act = walk.places[at].line.begins and not behind if is_own else not walk.words
            reason = "" if is_act else "beside_text"
            if reason and not is_own and not _names_tool(group, known.tools):
                continue
        calls += [_with_reason(call, reason) for call in group.calls]
    if walk.unread is not None:
        named = NAME_MEMBER.search(text, walk.unread, walk.unread + _NEAR)
        end = min(walk.unread + _NEAR, len(text))
        reading = refused_reading("unread_call", walk.unread)
        calls.append(ReadCall(name=named[1] if named else "", reading=reading, span=(walk.unread, end)))
    return tuple(sorted(calls, key=lambda call: call.span))


def _names_tool(group: CallGroup, tools: Iterable[str] | None) -> bool:
    """Return whether a call names an offered tool, in any spelling, or nobody knows which there are."""
    if tools is None:
        return True
    called = [fold_name(call.name) for call in group.calls]
    return any(name.endswith(fold_name(tool)) for tool in tools for name in called)


def _with_reason(call: ReadCall, reason: str) -> ReadCall:
    """Return a readable call with the grade of its place; one that is refused already stays so."""
    reading = call.reading
    if not reason or reading.value is None:
        return call
    refused = refused_reading(reason, call.span[0])
    if refused.grade == "edited":
        if reading.grade == "edited":
            return call
        refused = Reading(
            grade="edited",
            value=reading.value,
            repairs=reading.repairs,
            reason=reason,
            position=refused.position,
            canonical=reading.canonical,
        )
    return msgspec.structs.replace(call, reading=refused)


def _spellings(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts, and what they say with one and two layers of JSON escapes undone."""
    layers = [tuple(texts)]
    for _ in range(2):
        layers.append(tuple(_ESCAPE(_unescape, text) for text in layers[-1] if "\\" in text))
    return tuple(dict.fromkeys(chain(*layers)))


def _unescape(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2])


class _Place(msgspec.Struct):
    """The place of a group of calls."""

    line: _Line
    is_framed: bool
    depth: int
    in_shown_code: bool = False


class _PlaceWalk:
    """One pass over the pieces of a text, in order."""

    def __init__(self, text: str, groups: Sequence[CallGroup], passed_over: Sequence[Piece]) -> None:
        self.text = text
        self.groups = {group.start: group for group in groups}
        self.pieces = list(_split_text(text, groups, passed_over))
        self.elements = _closed_elements(text, self.pieces)
        self.places: dict[int, _Place] = {}
        self.places_by_start: dict[int, int] = {}
        self.words: list[int] = []
        self.unread: int | None = None
        self._open: dict[str, bool] = {}
        self._line_start = 0
        self._has_begun = True
        self._mark: _Line | None = None
        self._mark_start: int | None = None
        self._frame: _Place | None = None
        self._fence: list[int] | None = None
        self._fence_has_words = False
        self._depth = 0

    def is_shown(self, place: _Place) -> bool:
        """Return whether a call is only shown: quoted, in a tag, or in code that holds more."""
        return place.line.is_shown or place.depth > 0 or place.in_shown_code

    def follow_pieces(self) -> None:
        """Note the place of each call, and the first mark that no call follows."""
        position = 0
        for at, piece in enumerate(self.pieces):
            self._read_line(position, piece.start)
            if piece.kind == "call":
                self._place_call(at, piece)
            elif piece.kind in ("bare", "open", "stray"):
                self._note_mark(piece)
            elif piece.kind == "fence":
                self._toggle_fence()
            elif piece.kind in ("turn", "aside"):
                if piece.kind == "aside" and self.places:
                    self._note_words(at)
                self._has_begun = True
            elif piece.kind != "close":
                self._depth += self.elements.get(at, 0)
                self._note_words(at)
                self._has_begun = False
            if "\n" in self.text[piece.start : piece.end]:
                self._begin_line(self.text.rfind("\n", piece.start, piece.end) + 1)
                self._has_begun = piece.kind != "text" or not self.text[self._line_start : piece.end].strip()
            if piece.kind in ("text", "tag"):
                self._read_quotes(max(piece.start, self._line_start), piece.end)
            position = piece.end
        self._lose_mark()
        self._toggle_fence(is_end=True)

    def _begin_line(self, start: int) -> None:
        self._open.clear()
        self._line_start = start

    def _read_line(self, start: int, end: int) -> None:
        """Take in white space and separators."""
        line = self.text.rfind("\n", start, end)
        if line >= 0:
            self._begin_line(line + 1)
            self._has_begun = True

    def _read_quotes(self, start: int, end: int) -> None:
        for sign in _QUOTES(self.text, start, end):
            kind = _QUOTE_KINDS[sign[0][0]]
            self._open[kind] = not self._open.get(kind, False)

    def _current_line(self, piece: Piece) -> _Line:
        is_code = self.text[piece.start - 1 : piece.start] == self.text[piece.end : piece.end + 1] == "`"
        is_quoted = any(is_open for kind, is_open in self._open.items() if not (is_code and kind == "`"))
        return _Line(self._has_begun, is_quoted or _SHOWN_LINE(self.text, self._line_start) is not None)

    def _note_words(self, at: int) -> None:
        self.words.append(at)
        self._fence_has_words = True
        self._frame = None
        self._lose_mark()

    def _note_mark(self, piece: Piece) -> None:
        line = self._current_line(piece)
        if piece.kind == "stray":
            line = line._replace(begins=True)
        elif self._frame is not None:
            line = line._replace(begins=self._frame.line.begins)
        if self._mark is None:
            is_outside = not line.is_shown and self._depth == 0 and self._fence is None
            self._mark = line
            self._mark_start = piece.start if piece.kind != "open" and line.begins and is_outside else None
        self._has_begun = False

    def _lose_mark(self) -> None:
        """Report a mark without a call behind it, if it begins a line outside of quotations, tags and code."""
        if self._mark is not None and self.unread is None:
            self.unread = self._mark_start
        self._mark = None

    def _place_call(self, at: int, piece: Piece) -> None:
        group = self.groups[piece.start]
        if self._mark is not None:
            place = _Place(self._mark, is_framed=True, depth=self._depth)
        elif self._frame is not None:
            place = _Place(self._frame.line, is_framed=group.is_named or self._frame.is_framed, depth=self._depth)
        else:
            place = _Place(self._current_line(piece), is_framed=group.is_named, depth=self._depth)
        if self._fence is not None:
            place.is_framed = False
            self._fence.append(at)
        self._mark, self._frame = None, place
        self.places[at], self.places_by_start[piece.start] = place, at

    def _toggle_fence(self, *, is_end: bool = False) -> None:
        if self._fence is not None:
            if self._fence_has_words:
                for at in self._fence:
                    self.places[at].in_shown_code = True
            self._fence = None
        elif not is_end:
            self._fence, self._fence_has_words = [], False


def _split_text(text: str, groups: Sequence[CallGroup], passed_over: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces of a text in order; white space and separators between them are none."""
    calls = [Piece("call", group.start, group.end) for group in groups]
    fixed = sorted([*calls, *passed_over], key=lambda piece: piece.start)
    position = 0
    for piece in [*fixed, Piece("end", len(text), len(text))]:
        if piece.start < position:
            continue
        for found in _TOKENS.finditer(text, position, piece.start):
            if _WORD(text, position, found.start()):
                yield Piece("text", position, found.start())
            yield Piece(found.lastgroup or "", found.start(), found.end())
            position = found.end()
        if _WORD(text, position, piece.start):
            yield Piece("text", position, piece.start)
        if piece.kind != "end":
            yield piece
        position = piece.end


_ALONE = re.compile(r"[ \t]*+<[^<>\n]{1,300}>[ \t]*+(?:\n|\Z)").match
_VOID = frozenset({"br", "hr", "img", "input", "li", "link", "meta", "p", "td", "th", "tr"})
"""Elements of HTML without an end."""
_TAG_NAME = re.compile(r"</?([\w:.-]+)").match


def _closed_elements(text: str, pieces: Sequence[Piece]) -> dict[int, int]:
    """Return the places of tags that have a partner: 1 for one that opens, -1 for one that closes."""
    opened: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for at, piece in enumerate(pieces):
        if piece.kind != "tag" or (name := _TAG_NAME(text, piece.start)) is None:
            continue
        places = opened.setdefault(name[1], [])
        if text[piece.start + 1] != "/":
            places.append(at)
        elif places:
            found[places.pop()], found[at] = 1, -1
    # One that is alone on its line and is never closed holds all that follows.
    for at in (at for name, places in opened.items() if name.lower() not in _VOID for at in places):
        if _ALONE(text, text.rfind("\n", 0, pieces[at].start) + 1):
            found[at] = 1
    return found
