"""The graded reader: one forward pass over a text that is no strict JSON.

Text goes in; the value comes out with a named repair for every deviation, or a named refusal with
its position. There is no search and no backtracking, so the time is linear. Nothing is ever dropped
or guessed, and no bare word becomes a string.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.intake import patterns as p
from pokayoke.core.intake.patterns import Refusal
from pokayoke.core.strict import dump_compact

_NO_VALUE_SIGNS = {".": "ellipsis", "…": "ellipsis", "<": "bare_reference", "$": "bare_reference", "{": "unexpected"}
_OPERATORS = frozenset("+-*/%^&|=<>?(")


class Reader:
    """Reads values out of one text.

    Attributes:
        repairs: names of the repairs so far, in order.
        unclosed: True once the text ended after a whole value with brackets still open.
        list_comma: offset of a trailing comma in a list, or None.
        commaless: True once a container with members had no trailing comma.
    """

    __slots__ = ("_depth", "_max_depth", "commaless", "list_comma", "repairs", "text", "unclosed")

    def __init__(self, text: str, *, max_depth: int) -> None:
        """Start at nothing."""
        self.text = text
        self.repairs: dict[str, None] = {}
        self.unclosed = False
        self.list_comma: int | None = None
        self.commaless = False
        self._depth = 0
        self._max_depth = max_depth

    # ------------------------------------------------------------- containers

    def read_object(self, position: int) -> tuple[dict[str, Any], int]:
        """Read an object whose opening brace stands before `position`; return it and where it ends."""
        self._enter(position)
        text, comma = self.text, False
        members: dict[str, Any] = {}
        while True:
            found = p.PAIR(text, position)
            if found is None:
                position = self.space(position)
                sign = text[position : position + 1]
                if sign == "}":
                    return members, self._leave(position, comma=comma)
                self._expect_more(sign, position, comma=comma)
                start = position
                key, position = self._key(sign, position)
                value, position, sign = self._member_value(position)
            else:
                start = position
                key, string, integer, number, word, sign = found.groups()
                position = found.end()
                if string is not None:
                    value = string
                elif integer is not None:
                    value = int(integer)
                elif word is not None:
                    value = p.WORDS[word]
                else:
                    value = self._number(number, found.start(4))
            if key in members:
                self._same(members[key], value, start)
            members[key] = value
            comma = sign == ","
            if sign == "}" or not sign:
                self.commaless = True
                self._depth -= 1
                return members, position

    def read_list(self, position: int, closer: str = "]") -> tuple[list[Any], int]:
        """Read a list (or a tuple) whose opening bracket stands before `position`."""
        self._enter(position)
        text, comma = self.text, False
        items: list[Any] = []
        while True:
            found = p.ITEM(text, position) if closer == "]" else None
            if found is None:
                position = self.space(position)
                sign = text[position : position + 1]
                if sign == closer:
                    if comma and closer == "]":
                        self.list_comma = position
                    return items, self._leave(position, comma=comma)
                self._expect_more(sign, position, comma=comma)
                value, position = self.read_value(position)
                sign, position = self._after(position, closer)
            else:
                string, integer, number, word, sign = found.groups()
                position = found.end()
                if string is not None:
                    value = string
                elif integer is not None:
                    value = int(integer)
                elif word is not None:
                    value = p.WORDS[word]
                else:
                    value = self._number(number, found.start(3))
            items.append(value)
            comma = sign == ","
            if sign == closer or not sign:
                self.commaless = True
                self._depth -= 1
                if closer == ")" and len(items) == 1 and sign:  # (1) is the number 1, or an expression
                    raise Refusal("expression", position - 1)
                return items, position

    def _enter(self, position: int) -> None:
        self._depth += 1
        if self._depth > self._max_depth:
            raise Refusal("too_deep", position)

    def _leave(self, position: int, *, comma: bool) -> int:
        """Close a container at a closer that follows its opener or a comma."""
        if comma:
            self.repair("trailing_comma")
        self._depth -= 1
        return position + 1

    def _expect_more(self, sign: str, position: int, *, comma: bool) -> None:
        """Refuse what can begin neither a key nor a value."""
        if not sign:
            raise Refusal("cut_after_comma" if comma else "cut_after_opener", position)
        if sign == ",":
            raise Refusal("lost_value", position)
        if sign in ".…":
            raise Refusal("ellipsis", position)
        if sign in "}])":
            raise Refusal("mismatched_closer", position)

    def _member_value(self, position: int) -> tuple[Any, int, str]:
        """Read from after a key to after the sign that ends its value."""
        position = self.space(position)
        sign = self.text[position : position + 1]
        if sign != ":":
            raise Refusal("missing_colon" if sign else "cut_in_key", position)
        position = self.space(position + 1)
        if position >= len(self.text):
            raise Refusal("cut_after_colon", position)
        value, position = self.read_value(position)
        sign, position = self._after(position, "}")
        return value, position, sign

    def _after(self, position: int, closer: str) -> tuple[str, int]:
        """Read the sign after a whole value: a comma, the closer, "" at the end of the text."""
        text = self.text
        if self.unclosed:
            return "", position
        if closer == "}" and p.NEXT_PAIR(text, position):
            self.repair("missing_comma")
            return ",", position
        start, position = position, self.space(position)
        sign = text[position : position + 1]
        if sign in (",", closer):
            return sign, position + 1
        if not sign:
            if start == position and text[position - 1] not in "\"'”’}])":
                raise Refusal("cut_in_number" if text[position - 1].isdigit() else "cut_in_word", position)
            self.unclosed = True
            return "", position
        if sign in "}])":
            raise Refusal("mismatched_closer", position)
        if sign == ":":
            raise Refusal("lost_quote", position)
        if sign in ".…":
            raise Refusal("ellipsis", position)
        if sign in _OPERATORS:
            raise Refusal("expression", position)
        raise Refusal("lost_comma", position)

    # ------------------------------------------------------------- values

    def read_value(self, position: int) -> tuple[Any, int]:
        """Read one value that begins at `position`; return it and where it ends."""
        text = self.text
        sign = text[position]
        if sign == "{":
            return self.read_object(position + 1)
        if sign == "[":
            return self.read_list(position + 1)
        if sign in p.CLOSING:
            return self.read_string(position, key=False)
        if sign == "(":
            self.repair("python_tuple")
            return self.read_list(position + 1, ")")
        found = p.NUMBER_LIKE(text, position)
        if found is not None:
            return self._loose_number(found[0], position), found.end()
        return self._word(position)

    def _number(self, token: str, position: int) -> int | float:
        """Turn a JSON number into the value it means."""
        digits = token.lstrip("-")
        if digits.isdigit():
            if len(digits) > 308:  # noqa: PLR2004 - the limit of the strict parser
                raise Refusal("number_too_long", position)
            return int(token)
        number = float(token)
        if number in (float("inf"), float("-inf")):
            raise Refusal("not_finite", position)
        return number

    def _loose_number(self, token: str, position: int) -> int | float:
        plain = token.removeprefix("+")
        if p.NUMBER(plain) is None:
            if position + len(token) == len(self.text):
                raise Refusal("cut_in_number", position)
            raise Refusal("expression" if "-" in plain[1:] or "+" in plain else "odd_number", position)
        if plain != token:
            self.repair("plus_sign")
        return self._number(plain, position)

    def _word(self, position: int) -> tuple[bool | None, int]:
        """Read true, false, null or Python's words for them; refuse every other word."""
        text = self.text
        found = p.WORD(text, position)
        if found is None:
            sign = text[position]
            if sign in ",:}])":
                raise Refusal("lost_value", position)
            raise Refusal(_NO_VALUE_SIGNS.get(sign, "unexpected"), position)
        word, end = found[0], found.end()
        if word in p.NOT_FINITE:
            raise Refusal("not_finite", position)
        if word in p.WORDS or word in p.PYTHON_WORDS:
            if not p.AFTER_VALUE(text, end) and not p.NEXT_PAIR(text, end):
                raise Refusal("expression", position)
            if word in p.WORDS:
                return p.WORDS[word], end
            self.repair("python_word")
            return p.PYTHON_WORDS[word], end
        raise Refusal("cut_in_word" if end == len(text) else "bare_reference", position)

    # ------------------------------------------------------------- keys and strings

    def _key(self, sign: str, position: int) -> tuple[str, int]:
        """Read a key that begins at `position`."""
        if sign in p.CLOSING:
            return self.read_string(position, key=True)
        found = p.KEY_WORD(self.text, position)
        if found is None:
            raise Refusal(_NO_VALUE_SIGNS.get(sign, "unexpected"), position)
        after = self.space(found.end())
        if self.text[after : after + 1] != ":":
            raise Refusal("cut_in_key" if after >= len(self.text) else "bare_reference", position)
        self.repair("unquoted_key")
        return found[0], found.end()

    def read_string(self, position: int, *, key: bool) -> tuple[str, int]:
        """Read a string whose opening quote stands at `position`."""
        text = self.text
        quote = p.CLOSING[text[position]]
        if quote != '"':
            self.repair("single_quotes" if quote == "'" else "smart_quotes")
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
                raise Refusal("cut_in_key" if key else "cut_in_string", begin)
            if sign == "\\":
                piece, position = self._escape(position + 1, quote)
            elif sign == quote and self._closes(position + 1, key=key):
                return "".join(parts), position + 1
            elif sign == quote:
                piece, position = self._inner(position, quote, key=key)
            else:
                piece, position = self._control(sign, position, key=key)
            parts.append(piece)

    def _closes(self, position: int, *, key: bool) -> bool:
        """Return whether the quote before `position` ends its string: only if a structural sign follows."""
        if key:
            position = p.ANY_SPACE(self.text, position).end()  # type: ignore[union-attr]
            return self.text[position : position + 1] in (":", "")
        return p.AFTER_VALUE(self.text, position) is not None or p.NEXT_PAIR(self.text, position) is not None

    def _inner(self, position: int, quote: str, *, key: bool) -> tuple[str, int]:
        """Read a quoted phrase inside a string, or refuse a quote that does not close it."""
        found = None if key or quote != '"' else p.INNER_QUOTED(self.text, position)
        if found is None:
            after = p.ANY_SPACE(self.text, position + 1).end()  # type: ignore[union-attr]
            raise Refusal(
                "lost_quote" if self.text[after : after + 1] == ":" else "missing_colon" if key else "inner_quote",
                position,
            )
        self.repair("inner_quotes")
        return found[0], found.end()

    def _control(self, sign: str, position: int, *, key: bool) -> tuple[str, int]:
        """Keep a raw line feed or tab of a value; a carriage return may be somebody else's line ending."""
        if sign not in "\n\t":
            raise Refusal("control_character" if sign < " " else "lost_quote", position)
        if key:
            raise Refusal("line_break_in_key", position)
        self.repair("raw_control_character")
        return sign, position + 1

    def _escape(self, position: int, quote: str) -> tuple[str, int]:
        """Read the escape after a backslash."""
        text = self.text
        sign = text[position : position + 1]
        if not sign:
            raise Refusal("cut_in_escape", position)
        if sign == "u":
            return self._unicode(position + 1)
        if sign in p.ESCAPES and not (quote == "'" and sign == "/"):
            return p.ESCAPES[sign], position + 1
        if sign == "'" and quote == "'":
            return sign, position + 1
        if sign in p.NEEDLESS_ESCAPES:
            self.repair("extra_escape")
            return sign, position + 1
        found = p.PYTHON_ESCAPE(text, position) if quote == "'" else None
        if found is None:
            raise Refusal("bad_escape", position - 1)
        code = int(found[1] or found[2], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:  # noqa: PLR2004 - beyond Unicode, or a surrogate
            raise Refusal("lone_surrogate", position - 1)
        self.repair("python_escape")
        return chr(code), found.end()

    def _unicode(self, position: int) -> tuple[str, int]:
        """Read the four digits of an escape, and its other half if it is a surrogate."""
        text = self.text
        found = p.HEX4(text, position)
        if found is None:
            raise Refusal("cut_in_escape" if len(text) < position + 4 else "bad_escape", position - 2)
        code = int(found[0], 16)
        if not 0xD800 <= code < 0xE000:  # noqa: PLR2004 - the surrogates
            return chr(code), position + 4
        low = p.HEX4(text, position + 6) if text.startswith("\\u", position + 4) else None
        if code >= 0xDC00 or low is None or not 0xDC00 <= int(low[0], 16) < 0xE000:  # noqa: PLR2004
            raise Refusal("cut_in_escape" if len(text) < position + 10 else "lone_surrogate", position - 2)
        return chr(0x10000 + ((code - 0xD800) << 10) + int(low[0], 16) - 0xDC00), position + 10

    # ------------------------------------------------------------- between the values

    def space(self, position: int) -> int:
        """Skip spaces and comments; return where the next sign stands."""
        text = self.text
        while True:
            plain = p.SPACE(text, position).end()  # type: ignore[union-attr]
            position = p.ANY_SPACE(text, plain).end()  # type: ignore[union-attr]
            if position > plain:
                self.repair("odd_whitespace")
            if text.startswith("/*", position):
                end = text.find("*/", position + 2)
                if end < 0:
                    raise Refusal("cut_in_comment", position)
                self._comment(text[position + 2 : end], position, block=True)
                position = end + 2
            elif text.startswith(("//", "#"), position):
                found = p.LINE_COMMENT(text, position)
                assert found is not None
                self._comment(found[1], position, block=False)
                position = found.end()
            else:
                return position

    def _comment(self, comment: str, position: int, *, block: bool) -> None:
        """Refuse a comment that stands for a value or may have swallowed one."""
        if p.LEFT_OUT(comment):
            raise Refusal("ellipsis", position)
        if comment.count('"') % 2 or (p.SWALLOWED_BLOCK if block else p.SWALLOWED)(comment):
            raise Refusal("comment_holds_data", position)
        before = (
            self.text[:position].rstrip(" \t")[-1:]
            if position < _NEAR
            else self.text[position - _NEAR : position].rstrip()[-1:]
        )
        if not block and before.isdigit() and comment.lstrip()[:1] in _OPERAND_STARTS:
            raise Refusal("expression", position)  # 5 // 2 is a division
        self.repair("comment")

    def repair(self, name: str) -> None:
        """Remember a repair."""
        self.repairs[name] = None

    def _same(self, first: Any, second: Any, position: int) -> None:
        """Accept a repeated key only if its value repeats too (1 and 1.0 do not)."""
        if dump_compact(first, sort=True) != dump_compact(second, sort=True):
            raise Refusal("duplicate_key", position)
        self.repair("equal_duplicate")


_NEAR = 200
_OPERAND_STARTS = frozenset("0123456789.(-")
