"""The graded reader: one forward pass over a text that is no strict JSON.

Text goes in; the value comes out with a named repair for every deviation, or a named refusal with
its position. There is no search and no backtracking, so the time is linear. Nothing is ever dropped
or guessed, and no bare word becomes a string.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.intake import tokens as p
from pokayoke.core.intake.scanner import Scanner
from pokayoke.core.intake.tokens import Refusal
from pokayoke.core.json.strict import dump_compact, read_double

_NO_VALUE_SIGNS = {".": "ellipsis", "…": "ellipsis", "<": "bare_reference", "$": "bare_reference", "{": "unexpected"}
_AFTER_SIGNS = {
    **dict.fromkeys("}])", "mismatched_closer"),
    **dict.fromkeys(".…", "ellipsis"),
    **dict.fromkeys("+-*/%^&|=<>?(", "expression"),
    ":": "lost_quote",
}
"""What a sign means that follows a value and neither separates nor closes."""
_ENDS = ("</", "<|", "<｜", "```")
"""What stands around arguments: with a bracket still open, that is missing."""


class Reader(Scanner):
    """Reads values out of one text.

    Attributes:
        unclosed: True once the text ended after a whole value with brackets still open.
        list_comma: offset of a trailing comma in a list, or None.
        commaless: True once a container with members had no trailing comma.
        uneven: by identity, the objects that have a comma too many before their last line, or one too few
            before another.
    """

    __slots__ = ("_depth", "_joined", "_max_depth", "commaless", "list_comma", "unclosed", "uneven")

    def __init__(self, text: str, *, max_depth: int) -> None:
        """Start at nothing."""
        super().__init__(text)
        self.unclosed = False
        self.list_comma: int | None = None
        self.commaless = False
        self.uneven: dict[int, dict[str, Any]] = {}
        self._depth = 0
        self._joined = False
        self._max_depth = max_depth

    # ------------------------------------------------------------- containers

    def read_object(self, position: int) -> tuple[dict[str, Any], int]:
        """Read an object whose opening brace stands before `position`; return it and where it ends."""
        self._enter(position)
        text, opened, comma = self.text, position, False
        members: dict[str, Any] = {}
        while True:
            found = p.PAIR(text, position)
            if found is None:
                before, position = position, self.space(position)
                sign = text[position : position + 1]
                if sign == "}":
                    if comma:
                        self._trailing_comma(members, opened, before, position)
                    self._depth -= 1
                    return members, position + 1
                self._expect_more(sign, position, comma=comma)
                start = position
                key, position = self._key(sign, position)
                value, position, sign = self._member_value(position)
            else:
                start = position
                key, single_key, string, single, integer, number, word, sign = found.groups()
                position = found.end()
                if key is None:
                    key = single_key
                    self.repair("single_quotes")
                value = string if string is not None else self._scalar(single, integer, number, word, start)
            if self._joined:
                self._join(members, opened, position)
            if key in members:
                self._same(members[key], value, start)
            if not key.isidentifier():
                self._odd_key(key, start)
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
                    if comma:
                        self.repair("trailing_comma")
                        if closer == "]" or len(items) > 1:  # (1,) is how Python writes a tuple of one
                            self.list_comma = position
                    self._depth -= 1
                    return items, position + 1
                self._expect_more(sign, position, comma=comma)
                value, position = self.read_value(position)
                sign, position = self._after(position, closer)
            else:
                string, single, integer, number, word, sign = found.groups()
                start, position = position, found.end()
                value = string if string is not None else self._scalar(single, integer, number, word, start)
            items.append(value)
            comma = sign == ","
            if sign == closer or not sign:
                self.commaless = True
                self._depth -= 1
                if closer == ")" and len(items) == 1 and sign:  # (1) is the number 1, or an expression
                    raise Refusal("expression", position - 1)
                return items, position

    def _scalar(self, single: str | None, integer: str | None, number: str | None, word: str | None, at: int) -> Any:
        """Turn the groups of a scalar that is no plain string into its value."""
        if integer is not None:
            return int(integer)
        if single is not None:
            self.repair("single_quotes")
            return single
        if number is not None:
            return self._number(number, at)
        assert word is not None
        if word in p.PYTHON_WORDS:
            self.repair("python_word")
        return p.WORDS[word]

    def _enter(self, position: int) -> None:
        self._depth += 1
        if self._depth > self._max_depth:
            raise Refusal("too_deep", position)

    def _trailing_comma(self, members: dict[str, Any], opened: int, comma: int, closer: int) -> None:
        """Accept a comma before a closing brace, unless the layout shows that a member stood there.

        With one member per line the brace is on the next line, further left than the members. A member
        that was lost leaves its indentation behind, or takes the line break with it.
        """
        text = self.text
        layout, gap = p.FIRST_LINE(text, opened), text[comma:closer]
        if layout is not None and not gap.strip():
            indent = len(gap) - gap.rfind("\n") - 1
            if gap.count("\n") != 1 or (indent and indent >= len(layout[1])):
                raise Refusal("misplaced_comma", closer)
            self.uneven[id(members)] = members
        self.repair("trailing_comma")

    def _join(self, members: dict[str, Any], opened: int, position: int) -> None:
        """Remember a comma that was added, unless the layout shows that the next key belongs into another object."""
        layout = p.FIRST_LINE(self.text, opened)
        key = self.space(position)
        if layout is not None and self.text[self.text.rfind("\n", opened, key) + 1 : key] != layout[1]:
            raise Refusal("lost_comma", key)
        self.uneven[id(members)] = members
        self._joined = False

    def _odd_key(self, key: str, position: int) -> None:
        """Refuse a key that holds another one, or stands for members that were left out."""
        if key.strip() in ("...", "…"):
            raise Refusal("ellipsis", position)
        if p.TWO_KEYS(key):
            raise Refusal("lost_quote", position)

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
            if text[position - 2] == ",":  # "text,"<line break>: the comma went inside the quote
                raise Refusal("lost_comma", position)
            self.repair("missing_comma")
            self._joined = True
            return ",", position
        start, position = position, self.space(position)
        sign = text[position : position + 1]
        if sign in (",", closer):
            return sign, position + 1
        if not sign:
            if start == position and text[position - 1].isdigit():  # the last digits may be missing
                raise Refusal("cut_in_number", position)
            self.unclosed = True
            return "", position
        if text.startswith(_ENDS, position):
            raise Refusal("missing_closer", position)
        raise Refusal(_AFTER_SIGNS.get(sign, "lost_comma"), position)

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
        number = read_double(token)
        if number in (float("inf"), float("-inf")):
            raise Refusal("not_finite", position)
        return number

    def _loose_number(self, token: str, position: int) -> int | float:
        plain = token.removeprefix("+")
        if p.NUMBER(plain) is None:
            if position + len(token) == len(self.text):
                raise Refusal("cut_in_number", position)
            reason = "expression" if "-" in plain[1:] or "+" in plain else "odd_number"
            raise Refusal(self._unquoted(position, reason), position)
        if plain != token:
            self.repair("plus_sign")
        return self._number(plain, position)

    def _word(self, position: int) -> tuple[bool | None, int]:
        """Read true, false, null or Python's words for them; refuse every other word."""
        text = self.text
        found = p.WORD(text, position)
        if found is None:
            sign = text[position]
            if text[position : position + 2] in ("-", "+"):  # nothing behind it
                raise Refusal("cut_in_number", position)
            if sign in ",:}])":
                raise Refusal("lost_value", position)
            raise Refusal(_NO_VALUE_SIGNS.get(sign, "unexpected"), position)
        word, end = found[0], found.end()
        if word in p.NOT_FINITE:
            raise Refusal("not_finite", position)
        if word in p.WORDS:
            if not p.AFTER_VALUE(text, end) and not p.NEXT_PAIR(text, end):
                raise Refusal(self._unquoted(position, "expression"), position)
            if word in p.PYTHON_WORDS:
                self.repair("python_word")
            return p.WORDS[word], end
        raise Refusal("cut_in_word" if end == len(text) else self._unquoted(position, "bare_reference"), position)

    def _unquoted(self, position: int, otherwise: str) -> str:
        """Tell a string that lost its opening quote from anything else that has none."""
        return "lost_quote" if p.QUOTE_AHEAD(self.text, position) else otherwise

    # ------------------------------------------------------------- keys and strings

    def _key(self, sign: str, position: int) -> tuple[str, int]:
        """Read a key that begins at `position`."""
        if sign in p.CLOSING:
            return self.read_string(position, key=True)
        found = p.KEY_WORD(self.text, position)
        if found is None:
            raise Refusal(_NO_VALUE_SIGNS.get(sign, "unexpected"), position)
        if found[0] in p.WORDS:
            raise Refusal("unexpected", position)
        after = self.space(found.end())
        if self.text[after : after + 1] != ":":
            raise Refusal(
                "cut_in_key" if after >= len(self.text) else self._unquoted(position, "bare_reference"), position
            )
        self.repair("unquoted_key")
        return found[0], found.end()

    def _same(self, first: Any, second: Any, position: int) -> None:
        """Accept a repeated key only if its value repeats too (1 and 1.0 do not)."""
        if dump_compact(first, sort=True) != dump_compact(second, sort=True):
            raise Refusal("duplicate_key", position)
        self.repair("equal_duplicate")
