"""Judges each call by its place in the text: as the act, as a suggestion, or as something that is only shown.

In: a text, the calls found in it, and the thoughts and data that hold none.
Out: the calls with the grade of their place, and markup of calls that nothing could read.
Never: look at words. What counts is marks, lines, quotation marks, tags, code, and what stands before and behind.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from pokayoke.core.intake.framings import BARE, CLOSES, NAME_MEMBER, OPENS, OTHERS, OWN_TURN, STRAY
from pokayoke.core.intake.reading import ReadCall, refused_reading

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


class CallContext(NamedTuple):
    """What is known beside the text.

    Attributes:
        has_own_form: True if unmarked calls have the form that the host named for its model.
        has_native_calls: True once the model has made a native call.
        read_texts: texts that the model has read.
    """

    has_own_form: bool = False
    has_native_calls: bool = False
    read_texts: Iterable[str] = ()


def judge_places(
    text: str, calls: Sequence[ReadCall], named: Container[int], passed_over: Sequence[Piece], known: CallContext
) -> tuple[ReadCall, ...]:
    """Return the calls in order, each with the grade that its place allows, and unread marks as a refused call.

    Args:
        text: the text.
        calls: the calls in it.
        named: offsets of the calls that begin with a mark which holds their name.
        passed_over: the thoughts and the data in the text.
        known: what is known beside it.
    """
    if not calls and not _BARE(text):
        return ()
    walk = _PlaceWalk(text, calls, named, passed_over)
    first = min((place.at for place in walk.places.values() if not place.is_shown), default=-1)
    behind = [at for at in walk.words if at > first >= 0]
    read_texts = _spellings(known.read_texts) if calls else ()

    def find_reason(call: ReadCall, place: _Place) -> str:
        if place.is_shown:
            return "disowned"
        if behind and behind[0] < place.at:
            return "after_text"
        if any(call.text in one for one in read_texts):
            return "recited"
        if known.has_native_calls:
            return "not_native"
        is_own = place.is_framed or known.has_own_form
        return "" if (place.begins and not behind if is_own else not walk.words) else "beside_text"

    judged = [
        call if call.reading.value is None or place is None else _with_reason(call, find_reason(call, place))
        for call in calls
        for place in (walk.places.get(call.span[0]),)  # None: it is in thoughts
    ]
    if (unread := walk.unread) is not None:
        member, end = NAME_MEMBER.search(text, unread, unread + _NEAR), min(unread + _NEAR, len(text))
        reading = refused_reading("unread_call", unread)
        judged.append(ReadCall(name=member[1] if member else "", reading=reading, span=(unread, end)))
    return tuple(sorted(judged, key=lambda call: call.span))


def _with_reason(call: ReadCall, reason: str) -> ReadCall:
    """Return a call that was read, with the grade of its place."""
    if not reason:
        return call
    reading = refused_reading(reason, call.span[0])
    if reading.grade == "edited":
        changed = {} if call.reading.grade == "edited" else {"grade": "edited", "reason": reason}
        reading = msgspec.structs.replace(call.reading, **changed)
    return msgspec.structs.replace(call, reading=reading)


def _spellings(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts, and what they say with one and two layers of JSON escapes undone."""
    layers = [tuple(texts)]
    for _ in range(2):
        layers.append(tuple(_ESCAPE(_unescape, text) for text in layers[-1] if "\\" in text))
    return tuple(dict.fromkeys(chain(*layers)))


def _unescape(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2])


class _Place(msgspec.Struct):
    """The place of a mark, or of calls: does it begin a line, is it only shown, does a mark stand before it."""

    at: int
    begins: bool
    is_shown: bool
    is_framed: bool = True


class _PlaceWalk:
    """One pass over the pieces of a text, in order.

    Attributes:
        places: offset of a call -> its place.
        words: numbers of the pieces that are neither calls nor marks.
        unread: offset of the first mark without a call, if it begins a line outside of quotations, tags and code.
    """

    def __init__(
        self, text: str, calls: Sequence[ReadCall], named: Container[int], passed_over: Sequence[Piece]
    ) -> None:
        self.text = text
        self.named = named
        self.places: dict[int, _Place] = {}
        self.words: list[int] = []
        self.unread: int | None = None
        self._open: dict[str, bool] = {}
        self._line_start = 0
        self._has_begun = True
        self._mark: _Place | None = None
        self._mark_start: int | None = None
        self._frame: _Place | None = None
        self._fence: list[_Place] | None = None
        self._fence_has_words = False
        self._depth = 0
        pieces = list(_split_text(text, calls, passed_over))
        elements = _closed_elements(text, pieces)
        position = 0
        for at, piece in enumerate(pieces):
            self._begin_line(position, piece.start)
            self._take_piece(at, piece, elements.get(at, 0))
            self._begin_line(piece.start, piece.end, is_text=piece.kind == "text")
            if piece.kind in ("text", "tag"):
                self._read_quotes(max(piece.start, self._line_start), piece.end)
            position = piece.end
        self._lose_mark()
        self._end_fence()

    def _take_piece(self, at: int, piece: Piece, depth: int) -> None:
        if piece.kind == "call":
            self._place_call(at, piece)
        elif piece.kind in ("bare", "open", "stray"):
            self._place_mark(at, piece)
        elif piece.kind == "fence" and not self._end_fence():
            self._fence, self._fence_has_words = [], False
        elif piece.kind in ("turn", "aside"):
            if piece.kind == "aside" and self.places:
                self._add_words(at)
            self._has_begun = True
        elif piece.kind in ("text", "data", "tag"):
            self._depth += depth
            self._add_words(at)
            self._has_begun = False

    def _begin_line(self, start: int, end: int, *, is_text: bool = False) -> None:
        """Begin a line at the last line break of a part, if there is one."""
        found = self.text.rfind("\n", start, end) + 1
        if found:
            self._open.clear()
            self._line_start = found
            self._has_begun = not (is_text and self.text[found:end].strip())

    def _read_quotes(self, start: int, end: int) -> None:
        for sign in _QUOTES(self.text, start, end):
            kind = _QUOTE_KINDS[sign[0][0]]
            self._open[kind] = not self._open.get(kind, False)

    def _place_at(self, at: int, piece: Piece) -> _Place:
        is_code = self.text[piece.start - 1 : piece.start] == self.text[piece.end : piece.end + 1] == "`"
        is_quoted = any(is_open for kind, is_open in self._open.items() if not (is_code and kind == "`"))
        is_line = _SHOWN_LINE(self.text, self._line_start) is not None
        return _Place(at, self._has_begun, is_quoted or is_line or self._depth > 0)

    def _place_mark(self, at: int, piece: Piece) -> None:
        if self._mark is None:
            place = self._place_at(at, piece)
            if self._frame is not None or piece.kind == "stray":
                place.begins = self._frame.begins if self._frame is not None else True
            is_lost_alone = piece.kind != "open" and place.begins and not place.is_shown and self._fence is None
            self._mark, self._mark_start = place, piece.start if is_lost_alone else None
        self._has_begun = False

    def _place_call(self, at: int, piece: Piece) -> None:
        before = self._mark or self._frame
        place = before or self._place_at(at, piece)
        is_framed = piece.start in self.named or (before is not None and before.is_framed)
        place = _Place(at, place.begins, place.is_shown, is_framed and self._fence is None)
        if self._fence is not None:
            self._fence.append(place)
        self._mark, self._frame = None, place
        self.places[piece.start] = place

    def _add_words(self, at: int) -> None:
        self.words.append(at)
        self._fence_has_words = True
        self._frame = None
        self._lose_mark()

    def _lose_mark(self) -> None:
        """Report a mark without a call behind it."""
        if self._mark is not None and self.unread is None:
            self.unread = self._mark_start
        self._mark = None

    def _end_fence(self) -> bool:
        """End code, if there is some; return whether there was. Calls beside words in it are only shown."""
        fence, self._fence = self._fence, None
        for place in fence or ():
            place.is_shown = place.is_shown or self._fence_has_words
        return fence is not None


def _split_text(text: str, calls: Sequence[ReadCall], passed_over: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces of a text in order; white space and separators between them are none."""
    fixed = sorted({*(Piece("call", *call.span) for call in calls), *passed_over}, key=lambda piece: piece.start)
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
