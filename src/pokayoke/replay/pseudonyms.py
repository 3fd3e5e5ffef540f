"""Values that stand in for others: of the same type and pattern, and equal where the originals are equal.

What enters are JSON values and a secret key; what leaves are JSON values. Digits become digits, small
letters small letters, capitals capitals; signs stay. Dates stay dates, addresses stay addresses. What identifies
nobody stays as it is: field names, enum values, truth values, numbers below 1,000.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from collections.abc import Iterator
from typing import Any, Final

from pokayoke.core.schema import Schema, compile_schema
from pokayoke.core.shapes import is_array, is_object, properties_of
from pokayoke.errors import ContractError
from pokayoke.replay.strings import formats_of

_SMALL: Final = 1_000
_ID_LIKE: Final = re.compile(r"[0-9]{3}|@|^[0-9]+$", re.ASCII)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_CLOCK: Final = re.compile(r"([0-9]{2}):([0-9]{2})(:[0-9]{2})?", re.ASCII)
_PIECE: Final = re.compile(r"[^\W\d_]+|[0-9]+")
_ACCENTED: Final = "àâäåæçéèêëíîïñóôöøúûüý"
_WORD: Final = re.compile(r"\w+")
_SYNTAX: Final = frozenset(["true", "false", "null", "True", "False", "None", "NaN", "Infinity"])
_HAN: Final = range(0x4E00, 0x9FA6)
_DEEPEST: Final = 64


class Pseudonyms:
    """Gives values their stand-ins.

    Args:
        key: at least 16 random bytes. Equal keys give equal stand-ins; whoever has the key can test guesses.

    Raises:
        ValueError: the key is shorter.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:  # noqa: PLR2004 - what cannot be guessed
            raise ValueError("a key for pseudonyms has at least 16 bytes, such as secrets.token_bytes(32)")
        self._key = key

    def value(self, value: Any, schema: Any = None) -> Any:
        """Return the stand-in of a JSON value.

        Args:
            value: the value.
            schema: what is known about it: its enum values and field names are kept.
        """
        return self._value(value, schema, 0)

    def text(self, text: str) -> str:
        """Return the stand-in of a text."""
        formats = formats_of(text)
        if formats & {"date", "date-time"} or (_DATE.match(text) and len(text) < 40):  # noqa: PLR2004 - a date, no prose
            return self._moment(text)
        if "time" in formats:
            return _CLOCK.sub(self._clock, text)
        if "ipv4" in formats:
            return ".".join(str(byte % 256) for _, byte in zip(range(4), self._bytes(text), strict=False))
        if "uri" in formats:
            scheme, _, rest = text.partition("://")
            return f"{scheme}://{self._letters(rest)}"
        return self._letters(text)

    def raw(self, text: str, known: frozenset[str] = frozenset()) -> str:
        """Return a damaged argument text with its words replaced: what is wrong with it stays wrong.

        Args:
            text: the text as the model wrote it.
            known: words that stay, such as field names.
        """
        return _WORD.sub(lambda found: self._word(found[0], known), text)

    def _word(self, word: str, known: frozenset[str]) -> str:
        if word in known or word in _SYNTAX or (word.isdecimal() and int(word) < _SMALL):
            return word
        return self._letters(word)

    def _value(self, value: Any, schema: Any, depth: int) -> Any:
        if depth > _DEEPEST or value is None or isinstance(value, bool):
            return value
        if is_object(value):
            declared = properties_of(schema)
            inner = schema.get("additionalProperties") if is_object(schema) else None
            return {
                self._name(name, declared, schema, is_map=is_object(inner)): self._value(
                    item, declared.get(name, inner), depth + 1
                )
                for name, item in value.items()
            }
        if is_array(value):
            items = schema.get("items") if is_object(schema) else None
            return [self._value(item, items, depth + 1) for item in value]
        if is_object(schema) and (value in schema.get("enum", ()) or "const" in schema):
            return value
        if not isinstance(value, str):
            return self._number(value)
        made = self.text(value)
        pattern = schema.get("pattern") if is_object(schema) else None
        if not isinstance(pattern, str) or _fits(pattern, made) or not _fits(pattern, value):
            return made
        # Words that stand in the pattern itself are the schema's own, as the W of order numbers is.
        return _PIECE.sub(lambda found: found[0] if _is_own(found[0], pattern) else self._letters(found[0]), value)

    def _name(self, name: str, declared: dict[str, Any], schema: Any, *, is_map: bool) -> str:
        """The name of a member: kept where it is a field's, replaced where it is data."""
        if name in declared or not (is_map or _ID_LIKE.search(name)):
            return name
        return self._letters(name) if is_map or not is_object(schema) else name

    def _number(self, number: float) -> float:
        if abs(number) < _SMALL or number in (float("inf"), float("-inf")) or number != number:  # noqa: PLR0124 - NaN
            return number
        written = repr(number)
        if "e" in written:
            return number
        return type(number)(self._letters(written))

    def _bytes(self, text: str) -> Iterator[int]:
        """As many random bytes as wanted, the same for the same text."""
        seed = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        counter = 0
        while True:
            yield from hashlib.sha256(seed + counter.to_bytes(8, "big")).digest()
            counter += 1

    def _letters(self, text: str) -> str:
        random = self._bytes(text)
        made: list[str] = []
        for index, sign in enumerate(text):
            high, low = next(random), next(random)
            made.append(_like(sign, high * 256 + low, first=index == 0 or not text[index - 1].isdecimal()))
        return "".join(made)

    def _moment(self, text: str) -> str:
        """A date within the same years: month and day are replaced, the clock too."""
        random = self._bytes(text)

        def day(found: re.Match[str]) -> str:
            return f"{found[1]}-{next(random) % 12 + 1:02d}-{next(random) % 28 + 1:02d}"

        return _CLOCK.sub(self._clock, _DATE.sub(day, text, count=1))

    def _clock(self, found: re.Match[str]) -> str:
        random = self._bytes(found[0])
        seconds = f":{next(random) % 60:02d}" if found[3] else ""
        return f"{next(random) % 24:02d}:{next(random) % 60:02d}{seconds}"


@functools.lru_cache(maxsize=1_000)
def _checker(pattern: str) -> Schema | None:
    try:
        return compile_schema({"type": "string", "pattern": pattern}, where="pattern")
    except ContractError:
        return None


def _fits(pattern: str, text: str) -> bool:
    checker = _checker(pattern)
    return checker is None or checker.accepts(text)


def _is_own(piece: str, pattern: str) -> bool:
    return not piece.isdecimal() and piece in pattern


def _like(sign: str, number: int, *, first: bool) -> str:
    """A character of the same kind. A number that does not begin with zero keeps not beginning with it."""
    if sign.isascii():
        if sign.isdecimal():
            if first:
                return "0" if sign == "0" else str(1 + number % 9)
            return str(number % 10)
        if sign.islower():
            return chr(ord("a") + number % 26)
        return chr(ord("A") + number % 26) if sign.isupper() else sign
    if ord(sign) in _HAN:
        return chr(_HAN.start + number % len(_HAN))
    if sign.isdecimal():
        return chr(ord(sign) - int(sign) + number % 10)
    if sign.isalpha():
        made = _ACCENTED[number % len(_ACCENTED)]
        return made.upper() if sign.isupper() else made
    return sign
