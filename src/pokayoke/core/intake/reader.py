"""The lenient reader: one forward pass over a text that is not strict JSON.

In: a text.
Out: the value with a named repair for every deviation, or a named refusal with its position.
Never: search or backtrack (the time is linear); drop or guess anything; read a bare word as a string.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.intake import tokens as p
from pokayoke.core.intake.scanner import Scanner
from pokayoke.core.intake.tokens import TextRefused
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import read_double

_NO_VALUE_REASONS = {**dict.fromkeys(".…", "ellipsis"), **dict.fromkeys("<$", "bare_reference"), "{": "doubled_brace"}
_AFTER_VALUE_REASONS = {
    **dict.fromkeys("}])", "mismatched_closer"),
    **dict.fromkeys(".…", "ellipsis"),
    **dict.fromkeys("+-*/%^&|=<>?(", "expression"),
    ":": "lost_quote",
}
"""Refusal for a character after a value that neither separates nor closes."""
_FRAME_ENDS = ("</", "<|", "<｜", "```")
"""Text around arguments: while a bracket is open, its closer is missing."""


class LenientReader(Scanner):
    """Reads values out of one text.

    Attributes:
        unclosed: True once the text ended after a complete value with open brackets.
        list_comma: offset of a trailing comma in a list, or None.
        commaless: True once a container with members had no trailing comma.
        uneven: ids of the objects with a surplus comma before a line's end, or a missing one before another line.
    """

    __slots__ = ("_depth", "_joined", "_max_depth", "commaless", "list_comma", "unclosed", "uneven")

    def __init__(self, text: str, *, max_depth: int) -> None:
        """Start without repairs."""
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
        """Read an object whose opening brace is before `position`; return it and its end."""
        self._enter_container(position)
        text, opened, comma = self.text, position, False
        members: dict[str, Any] = {}
        while True:
            found = p.PAIR(text, position)
            if found is None:
                before, position = position, self.skip_space(position)
                sign = text[position : position + 1]
                if sign == "}":
                    self._check_last_gap(before, position, follows=bool(members))
                    if comma:
                        self._accept_trailing_comma(members, opened, before, position)
                    self._depth -= 1
                    return members, position + 1
                self._check_start(sign, position, comma=comma)
                start = position
                key, position = self._read_key(sign, position)
                value, position, sign = self._read_member_value(position)
            else:
                start = position
                key, single_key, string, single, integer, number, word, sign = found.groups()
                position = found.end()
                if key is None:
                    key = single_key
                    self.record_repair("single_quotes")
                value = string if string is not None else self._convert_scalar(single, integer, number, word, start)
            if self._joined:
                self._record_added_comma(members, opened, position)
            if key in members:
                self._check_duplicate(members[key], value, start)
            if not key.isidentifier():
                self._check_key(key, start)
            members[key] = value
            comma = sign == ","
            if sign == "}" or not sign:
                self.commaless = True
                self._depth -= 1
                return members, position

    def read_list(self, position: int, closer: str = "]") -> tuple[list[Any], int]:
        """Read a list (or a tuple) whose opening bracket is before `position`."""
        self._enter_container(position)
        text, comma = self.text, False
        items: list[Any] = []
        while True:
            found = p.ITEM(text, position) if closer == "]" else None
            if found is None:
                before, position = position, self.skip_space(position)
                sign = text[position : position + 1]
                if sign == closer:
                    self._check_last_gap(before, position, follows=False)
                    if comma:
                        self.record_repair("trailing_comma")
                        if closer == "]" or len(items) > 1:  # (1,) is a Python tuple of one
                            self.list_comma = position
                    self._depth -= 1
                    return items, position + 1
                self._check_start(sign, position, comma=comma)
                value, position = self.read_value(position)
                sign, position = self._read_separator(position, closer)
            else:
                string, single, integer, number, word, sign = found.groups()
                start, position = position, found.end()
                value = string if string is not None else self._convert_scalar(single, integer, number, word, start)
            items.append(value)
            comma = sign == ","
            if sign == closer or not sign:
                self.commaless = True
                self._depth -= 1
                if closer == ")" and len(items) == 1 and sign:  # (1) is the number 1, or an expression
                    raise TextRefused("expression", position - 1)
                return items, position

    def _convert_scalar(
        self, single: str | None, integer: str | None, number: str | None, word: str | None, at: int
    ) -> Any:
        """Return the value of a scalar other than a plain string, from its match."""
        if integer is not None:
            return int(integer)
        if single is not None:
            self.record_repair("single_quotes")
            return single
        if number is not None:
            return self._convert_number(number, at)
        assert word is not None
        if word in p.PYTHON_WORDS:
            self.record_repair("python_word")
        return p.WORDS[word]

    def _enter_container(self, position: int) -> None:
        self._depth += 1
        if self._depth > self._max_depth:
            raise TextRefused("too_deep", position)

    def _check_last_gap(self, begin: int, position: int, *, follows: bool) -> None:
        """Refuse a comment before a closer that may stand for a member or an item.

        It explains the last member (`follows` it) if it is on the line of that member, or of the closer.
        """
        gap = self.text[begin:position]
        is_odd = not follows or p.OWN_LINE(gap) or (self.text[begin - 1] == "," and "\n" not in gap)
        if is_odd and ("/" in gap or "#" in gap):
            raise TextRefused("comment_holds_data", begin)

    def _accept_trailing_comma(self, members: dict[str, Any], opened: int, comma: int, closer: int) -> None:
        """Accept a comma before a closing brace, unless the layout shows a lost member.

        With one member per line the brace is on the next line, further left than the members. A lost member
        leaves its indentation behind, or removes the line break.
        """
        text = self.text
        layout, gap = p.FIRST_LINE(text, opened), text[comma:closer]
        if layout is not None and not gap.strip():
            indent = len(gap) - gap.rfind("\n") - 1
            if gap.count("\n") != 1 or (indent and indent >= len(layout[1])):
                raise TextRefused("misplaced_comma", closer)
        if layout is not None or gap.strip():
            self.uneven[id(members)] = members
        self.record_repair("trailing_comma")

    def _record_added_comma(self, members: dict[str, Any], opened: int, position: int) -> None:
        """Record an added comma, unless the layout shows that the next key belongs to another object."""
        layout = p.FIRST_LINE(self.text, opened)
        key = self.skip_space(position)
        if layout is not None and self.text[self.text.rfind("\n", opened, key) + 1 : key] != layout[1]:
            raise TextRefused("lost_comma", key)
        self.uneven[id(members)] = members
        self._joined = False

    def _check_key(self, key: str, position: int) -> None:
        """Refuse a key that holds another one, or represents left-out members."""
        if key.strip() in ("...", "…"):
            raise TextRefused("ellipsis", position)
        if p.TWO_KEYS(key):
            raise TextRefused("lost_quote", position)

    def _check_start(self, sign: str, position: int, *, comma: bool) -> None:
        """Refuse a character that begins neither a key nor a value."""
        if not sign:
            raise TextRefused("cut_after_comma" if comma else "cut_after_opener", position)
        if sign == ",":
            raise TextRefused("lost_value", position)
        if sign in ".…":
            raise TextRefused("ellipsis", position)
        if sign in "}])":
            raise TextRefused("mismatched_closer", position)

    def _read_member_value(self, position: int) -> tuple[Any, int, str]:
        """Read from the end of a key to after the separator that ends its value."""
        position = self.skip_space(position)
        sign = self.text[position : position + 1]
        if sign != ":":
            raise TextRefused("missing_colon" if sign else "cut_in_key", position)
        position = self.skip_space(position + 1)
        if position >= len(self.text):
            raise TextRefused("cut_after_colon", position)
        value, position = self.read_value(position)
        sign, position = self._read_separator(position, "}")
        return value, position, sign

    def _read_separator(self, position: int, closer: str) -> tuple[str, int]:
        """Read the separator after a complete value: a comma, the closer, "" at the end of the text."""
        text = self.text
        if self.unclosed:
            return "", position
        if closer == "}" and p.NEXT_PAIR(text, position):
            if text[position - 2] == ",":  # "text,"<line break>: the comma is inside the quote
                raise TextRefused("lost_comma", position)
            self.record_repair("missing_comma")
            self._joined = True
            return ",", position
        start, position = position, self.skip_space(position)
        sign = text[position : position + 1]
        if sign == closer:
            self._check_last_gap(start, position, follows=closer == "}")
        if sign in (",", closer):
            return sign, position + 1
        if not sign:
            if start == position and text[position - 1].isdigit():  # the last digits may be missing
                raise TextRefused("cut_in_number", position)
            self.unclosed = True
            return "", position
        if text.startswith(_FRAME_ENDS, position):
            raise TextRefused("missing_closer", position)
        raise TextRefused(_AFTER_VALUE_REASONS.get(sign, "lost_comma"), position)

    # ------------------------------------------------------------- values

    def read_value(self, position: int) -> tuple[Any, int]:
        """Read the value at `position`; return it and its end."""
        text = self.text
        sign = text[position]
        if sign == "{":
            return self.read_object(position + 1)
        if sign == "[":
            return self.read_list(position + 1)
        if sign in p.CLOSING:
            return self.read_string(position, key=False)
        if sign == "(":
            self.record_repair("python_tuple")
            return self.read_list(position + 1, ")")
        found = p.NUMBER_LIKE(text, position)
        if found is not None:
            return self._read_loose_number(found[0], position), found.end()
        return self._read_word(position)

    def _convert_number(self, token: str, position: int) -> int | float:
        """Return the value of a JSON number."""
        digits = token.lstrip("-")
        if digits.isdigit():
            if len(digits) > 308:  # noqa: PLR2004 - the limit of the strict parser
                raise TextRefused("number_too_long", position)
            return int(token)
        number = read_double(token)
        if number in (float("inf"), float("-inf")):
            raise TextRefused("not_finite", position)
        return number

    def _read_loose_number(self, token: str, position: int) -> int | float:
        plain = token.removeprefix("+")
        if p.NUMBER(plain) is None:
            if position + len(token) == len(self.text):
                raise TextRefused("cut_in_number", position)
            reason = "expression" if "-" in plain[1:] or "+" in plain else "odd_number"
            raise TextRefused(self._unquoted_reason(position, reason), position)
        if plain != token:
            self.record_repair("plus_sign")
        return self._convert_number(plain, position)

    def _read_word(self, position: int) -> tuple[bool | None, int]:
        """Read true, false, null or their Python forms; refuse every other word."""
        text = self.text
        found = p.WORD(text, position)
        if found is None:
            sign = text[position]
            if text[position : position + 2] in ("-", "+"):  # nothing after it
                raise TextRefused("cut_in_number", position)
            if sign in ",:}])":
                raise TextRefused("lost_value", position)
            raise TextRefused(_NO_VALUE_REASONS.get(sign, "unexpected"), position)
        word, end = found[0], found.end()
        if word in p.NOT_FINITE:
            raise TextRefused("not_finite", position)
        if word in p.WORDS:
            if not p.AFTER_VALUE(text, end) and not p.NEXT_PAIR(text, end):
                raise TextRefused(self._unquoted_reason(position, "expression"), position)
            if word in p.PYTHON_WORDS:
                self.record_repair("python_word")
            return p.WORDS[word], end
        raise TextRefused(
            "cut_in_word" if end == len(text) else self._unquoted_reason(position, "bare_reference"), position
        )

    def _unquoted_reason(self, position: int, otherwise: str) -> str:
        """Raise the refusal for a string that lost its opening quote, or for another bare text."""
        return "lost_quote" if p.QUOTE_AHEAD(self.text, position) else otherwise

    # ------------------------------------------------------------- keys and strings

    def _read_key(self, sign: str, position: int) -> tuple[str, int]:
        """Read the key at `position`."""
        if sign in p.CLOSING:
            return self.read_string(position, key=True)
        found = p.KEY_WORD(self.text, position)
        if found is None:
            raise TextRefused(_NO_VALUE_REASONS.get(sign, "unexpected"), position)
        if found[0] in p.WORDS:
            raise TextRefused("unexpected", position)
        after = self.skip_space(found.end())
        if self.text[after : after + 1] != ":":
            raise TextRefused(
                "cut_in_key" if after >= len(self.text) else self._unquoted_reason(position, "bare_reference"), position
            )
        self.record_repair("unquoted_key")
        return found[0], found.end()

    def _check_duplicate(self, first: Any, second: Any, position: int) -> None:
        """Accept a repeated key only with an equal value (1 and 1.0 are not equal)."""
        if dump_compact(first, sort=True) != dump_compact(second, sort=True):
            raise TextRefused("duplicate_key", position)
        self.record_repair("equal_duplicate")
