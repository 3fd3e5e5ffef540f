"""The lower half of the reader: strings, comments and the spaces between values.

In: a text and an offset.
Out: a string, or the offset of the next token; repairs are recorded by name.
Never: take more than linear time; skip a comment that may hold data.
"""

from __future__ import annotations

from pokayoke.core.intake import tokens as p
from pokayoke.core.intake.tokens import TextRefused

_NEAR = 200
_LONGEST_COMMENT = 500
"""In characters. Each of many brackets before one comment reads it again."""
_QUOTES = "\"'“”"
_MOST_WORDS = 2
"""Words of a comment beside a value that is all it says: `or "y"`, `should be 6`."""
_OPERAND_STARTS = frozenset("0123456789.(-")


class Scanner:
    """Reads strings and skips spaces and comments.

    Attributes:
        text: the text.
        repairs: names of the repairs so far, in order.
        broken: strings with a raw line break or tab -> their offset.
        comments: texts of the skipped comments, in order.
        dropped: offset of the first backslash that JSON or its readers drop and Python keeps, or None.
    """

    __slots__ = ("broken", "comments", "dropped", "repairs", "text")

    def __init__(self, text: str) -> None:
        """Start without repairs."""
        self.text = text
        self.repairs: dict[str, None] = {}
        self.broken: dict[str, int] = {}
        self.comments: list[str] = []
        self.dropped: int | None = None

    def record_repair(self, name: str) -> None:
        """Record a repair."""
        self.repairs[name] = None

    def read_string(self, position: int, *, key: bool) -> tuple[str, int]:
        """Read the string whose opening quote is at `position`."""
        text = self.text
        quote = p.CLOSING[text[position]]
        if quote != '"':
            self.record_repair("single_quotes" if quote == "'" else "smart_quotes")
        chunk, begin = p.CHUNK[quote], position
        parts: list[str] = []
        position += 1
        while True:
            found = chunk(text, position)
            assert found is not None
            if found.end() > position:
                parts.append(found[0])
                position = found.end()
            sign = text[position : position + 1]
            if not sign:
                raise TextRefused("cut_in_key" if key else "cut_in_string", begin)
            if sign == "\\":
                piece, position = self._read_escape(position + 1, quote)
            elif sign == quote and self._is_closing_quote(position + 1, key=key):
                self._check_string(begin, position, key=key)
                value = "".join(parts)
                if p.RAW_CONTROL(text, begin, position):
                    self.broken[value] = begin
                return value, position + 1
            elif sign == quote:
                piece, position = self._read_inner_quote(position, quote, key=key)
            else:
                piece, position = self._read_control(sign, position, key=key)
            parts.append(piece)

    def _check_string(self, begin: int, end: int, *, key: bool) -> None:
        """Refuse a closed string with signs of a misplaced quote, a gap or an intended escape."""
        if "raw_control_character" in self.repairs:
            inside = self.text[begin + 1 : end]
            if p.SLIPPED_QUOTE(inside):
                raise TextRefused("lost_quote", end)  # the quote moved after the end of its line
            # An item of a list alone on its line, then a comma and another line at the same indentation: two items.
            layout = self.text[self.text.rfind("\n", max(0, begin - _NEAR), begin) : begin]
            if layout.isspace() and len(layout) > 1 and f",{layout}" in inside:
                raise TextRefused("lost_quote", begin)
            if p.STRAY_BREAK(inside):
                raise TextRefused("control_character", begin)
            if p.ELISION_LINE(inside):
                raise TextRefused("ellipsis", begin)
            if p.RESUMED_FENCE(inside):
                raise TextRefused("cut_in_string", begin)
        if "extra_escape" in self.repairs and p.NEEDLESS_ESCAPE(inside := self.text[begin + 1 : end]):
            # One of two escaped quotes has another kind, the quotes around a key are lost, or it is intended.
            odd = "\\'" in inside and (key or inside.count('\\"') % 2)
            if odd or p.MEANT_ESCAPE(inside):
                raise TextRefused("bad_escape", begin)

    def _is_closing_quote(self, position: int, *, key: bool) -> bool:
        """Return whether the quote before `position` ends its string: only if a structural sign follows."""
        if key:
            position = p.ANY_SPACE(self.text, position).end()  # type: ignore[union-attr]  # always matches, perhaps the empty text
            return self.text[position : position + 1] in (":", "")
        return p.AFTER_VALUE(self.text, position) is not None or p.NEXT_PAIR(self.text, position) is not None

    def _read_inner_quote(self, position: int, quote: str, *, key: bool) -> tuple[str, int]:
        """Read a quoted phrase inside a string, or refuse a quote that does not close it."""
        found = None if key or quote != '"' else p.INNER_QUOTED(self.text, position)
        if found is None:
            after = p.ANY_SPACE(self.text, position + 1).end()  # type: ignore[union-attr]  # always matches, perhaps the empty text
            raise TextRefused(
                "lost_quote" if self.text[after : after + 1] == ":" else "missing_colon" if key else "inner_quote",
                position,
            )
        self.record_repair("inner_quotes")
        return found[0], found.end()

    def _read_control(self, sign: str, position: int, *, key: bool) -> tuple[str, int]:
        """Keep a raw line feed or tab of a value; a carriage return may be added by another program."""
        if sign not in "\n\t":
            raise TextRefused("control_character" if sign < " " else "lost_quote", position)
        if key:
            raise TextRefused("line_break_in_key", position)
        self.record_repair("raw_control_character")
        return sign, position + 1

    def _read_escape(self, position: int, quote: str) -> tuple[str, int]:
        """Read the escape after a backslash."""
        text = self.text
        sign = text[position : position + 1]
        if not sign:
            raise TextRefused("cut_in_escape", position)
        if sign in p.PYTHON_KEEPS and self.dropped is None:
            self.dropped = position - 1
        if sign == "u":
            return self._read_unicode_escape(position + 1)
        if sign in p.ESCAPES and not (quote == "'" and sign == "/"):
            return p.ESCAPES[sign], position + 1
        if sign == "'" and quote == "'":
            return sign, position + 1
        if sign in p.NEEDLESS_ESCAPES and quote != "'":  # Python would keep the backslash
            self.record_repair("extra_escape")
            return sign, position + 1
        found = p.PYTHON_ESCAPE(text, position) if quote == "'" else None
        if found is None:
            raise TextRefused("bad_escape", position - 1)
        code = int(found[1] or found[2], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:  # noqa: PLR2004 - beyond Unicode, or a surrogate
            raise TextRefused("lone_surrogate", position - 1)
        self.record_repair("python_escape")
        return chr(code), found.end()

    def _read_unicode_escape(self, position: int) -> tuple[str, int]:
        """Read the four digits of an escape, and its second half if it is a surrogate."""
        text = self.text
        found = p.HEX4(text, position)
        if found is None:
            raise TextRefused("cut_in_escape" if p.CUT_HEX(text, position) else "bad_escape", position - 2)
        code = int(found[0], 16)
        if not 0xD800 <= code < 0xE000:  # noqa: PLR2004 - the surrogates
            return chr(code), position + 4
        low = p.HEX4(text, position + 6) if text.startswith("\\u", position + 4) else None
        if code >= 0xDC00 or low is None or not 0xDC00 <= int(low[0], 16) < 0xE000:  # noqa: PLR2004
            raise TextRefused("cut_in_escape" if p.CUT_LOW(text, position + 4) else "lone_surrogate", position - 2)
        return chr(0x10000 + ((code - 0xD800) << 10) + int(low[0], 16) - 0xDC00), position + 10

    # ------------------------------------------------------------- between the values

    def skip_space(self, position: int) -> int:
        """Skip spaces and comments; return the offset of the next token."""
        text = self.text
        while True:
            plain = p.SPACE(text, position).end()  # type: ignore[union-attr]  # always matches, perhaps the empty text
            position = p.ANY_SPACE(text, plain).end()  # type: ignore[union-attr]  # always matches, perhaps the empty text
            if position > plain:
                self.record_repair("odd_whitespace")
            if text.startswith(("/*", "//", "#"), position):
                position = self._skip_comment(position, block=text.startswith("/*", position))
            else:
                return position

    def _skip_comment(self, position: int, *, block: bool) -> int:
        """Skip a comment; refuse one that replaces a value or may hold one, as a long one may."""
        text = self.text
        begin = position + (1 if text[position] == "#" else 2)
        last = begin + _LONGEST_COMMENT
        end = text.find("*/" if block else "\n", begin, last)
        if end < 0 and last < len(text):
            raise TextRefused("comment_holds_data", position)
        if end < 0 and block:
            raise TextRefused("cut_in_comment", position)
        comment = text[begin : end if end >= 0 else len(text)]
        self._check_comment(comment, position, block=block)
        return begin + len(comment) + 2 * block

    def _check_comment(self, comment: str, position: int, *, block: bool) -> None:
        self.record_repair("comment")
        if not comment or comment.isspace():
            return
        self.comments.append(comment)
        if any(dots in comment for dots in p.LEFT_OUT):
            raise TextRefused("ellipsis", position)
        said = self.text[max(0, position - _NEAR) : position].rstrip()
        before = said[-1:]
        # 5 // 2 is a division
        divides = self.text.startswith("//", position) and comment.lstrip()[:1] in _OPERAND_STARTS and before.isdigit()
        if divides or p.CONTINUED_VALUE(comment):
            raise TextRefused("expression", position)
        if (
            (block and before in ("[", ",", ":") and p.LITERAL(comment))  # in the place of a value
            or _has_rival(comment, p.LAST_SCALAR(said)[0])  # type: ignore[index]  # always matches, perhaps the empty text
            or comment.count('"') % 2
            or (p.SWALLOWED_BLOCK(comment) if block else p.SWALLOWED_MEMBER(p.BRACKETED("_", comment)))
        ):
            raise TextRefused("comment_holds_data", position)


def _has_rival(comment: str, scalar: str) -> bool:
    """Return whether a comment is hardly more than another value of the same kind than the one before it.

    In a longer one a value is only mentioned, as is a quotation between its words.
    """
    value = scalar.strip(_QUOTES)
    kind = _literal_kind(value)
    if (value == scalar and not kind) or len(p.COMMENT_WORDS(p.COMMENT_LITERAL.sub("", comment))) > _MOST_WORDS:
        return False
    literals = [literal.strip(_QUOTES).rstrip(".") for literal in p.COMMENT_LITERAL.findall(comment)]
    edges = comment.strip().rstrip(".,;!")
    is_at_edge = bool(kind) or edges[:1] in _QUOTES or edges[-1:] in _QUOTES
    return is_at_edge and any(_literal_kind(one) == kind and one != value for one in literals)


def _literal_kind(literal: str) -> str:
    return "number" if p.NUMBER(literal) else "word" if literal in p.WORDS else ""
