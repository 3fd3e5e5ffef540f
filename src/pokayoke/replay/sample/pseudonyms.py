"""Pseudonyms: replacements of the same type and pattern, equal where the originals are equal.

Digits become other digits, lower-case letters lower-case letters, capitals capitals; signs stay. Dates stay dates,
addresses stay addresses. Values that identify no person stay: field names, the schema's own words, booleans,
numbers below 1,000 to two decimals.

In: JSON values and a secret key.
Out: JSON values.
Never: an original that identifies a person.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final

from pokayoke.core.contract.correctors import Correctors
from pokayoke.core.json.pointer import Path
from pokayoke.core.json.values import equal_json, is_array, is_object
from pokayoke.core.redaction.keyed_digest import keyed_digest
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.core.schema.facts import SchemaFacts, facts_at, facts_of_child
from pokayoke.core.schema.schema import Schema, compile_schema
from pokayoke.replay.learn.string_shapes import DECIMALS, ID_LIKE, SMALL, formats_of

_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-[0-9]{2}", re.ASCII)
_CLOCK: Final = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?(\.[0-9]+)?", re.ASCII)
# The whole text is a date, or a date and a time: a text that begins with one may go on with anything.
_MOMENT: Final = re.compile(
    rf"{_DATE.pattern}(?:[Tt ]{_CLOCK.pattern} ?(?:[Zz]|[+-][0-9]{{2}}:[0-9]{{2}})?)?", re.ASCII
)
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_SCHEMES: Final = frozenset(("http", "https", "ws", "wss", "ftp", "file", "s3", "gs"))
_PIECE: Final = re.compile(r"[^\W\d_]+|[0-9]+")
_ACCENTED: Final = "àâäåæçéèêëíîïñóôöøúûüý"
_FIELD: Final = re.compile(r"[A-Za-z_$@][\w.:$-]*", re.ASCII)
_WORD: Final = re.compile(r"\w+")
_SYNTAX: Final = frozenset(["true", "false", "null", "True", "False", "None", "NaN", "Infinity"])
_HAN: Final = range(0x4E00, 0x9FA6)
_HEXADECIMAL: Final = frozenset("abcdefABCDEF")
_DEEPEST: Final = 64
_MAPS: Final = ("additionalProperties", "unevaluatedProperties", "patternProperties")
_ANY_SCHEMA: Final = compile_schema(True)
_redactor: Final = Redactor()
_LARGEST_EXPONENT: Final = 307  # with any digits before it the number is finite


class Pseudonyms:
    """Replaces values by pseudonyms.

    Args:
        key: at least 16 random bytes. Equal keys give equal pseudonyms; anyone with the key can test guesses.

    Raises:
        ValueError: the key is shorter.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:  # noqa: PLR2004 - too short to be guessed
            raise ValueError("a key for pseudonyms has at least 16 bytes, such as secrets.token_bytes(32)")
        self._key = key

    def replace_value(self, value: Any, schema: Schema | None = None, correctors: Correctors | None = None) -> Any:
        """Return the pseudonym of a JSON value.

        Args:
            value: the value.
            schema: its schema, whose enum values and field names are kept.
            correctors: the declared correctors of its fields, whose vocabulary is kept: units, aliases.
        """
        whole = schema or _ANY_SCHEMA
        return self._replace_nested(value, whole, facts_at(whole, ()), (), correctors)

    def replace_label(self, text: str) -> str:
        """Return the pseudonym of a name that only needs to differ from others: nothing of it is kept."""
        return bytes(byte for _, byte in zip(range(8), self._random_bytes(text), strict=False)).hex()

    def replace_text(self, text: str) -> str:
        """Return the pseudonym of a text."""
        formats = formats_of(text)
        if "time" in formats or (_MOMENT.fullmatch(text) and "date" in formats_of(text[:10])):
            return self._replace_date(text)
        if "ipv4" in formats:
            return ".".join(str(byte) for _, byte in zip(range(4), self._random_bytes(text), strict=False))
        if formats & {"uuid", "ipv6"}:
            return self._replace_letters(text, range(len(text)))
        if "uri" in formats:
            escaped = {place for found in _ESCAPE.finditer(text) for place in range(*found.span())}
            scheme, sign, _ = text.partition("://")
            start = len(scheme + sign) if scheme.lower() in _SCHEMES else 0
            return text[:start] + self._replace_letters(text, escaped)[start:]
        return self._replace_letters(text)

    def replace_raw(self, text: str, known: frozenset[str] = frozenset(), correctors: Correctors | None = None) -> str:
        """Return a damaged argument text with its words replaced: the damage stays the same.

        Args:
            text: the text as the model wrote it.
            known: words to keep, such as field names.
            correctors: see `replace_value`.
        """
        return _WORD.sub(lambda found: self._replace_word(found[0], known, correctors), text)

    def _replace_word(self, word: str, known: frozenset[str], correctors: Correctors | None) -> str:
        if word in known or word in _SYNTAX or _is_small(word):
            return word
        kept = None if correctors is None else self._replace_around(word, correctors.knows_word)
        return kept or self._replace_letters(word)

    def _replace_around(self, text: str, is_known: Callable[[str], bool]) -> str | None:
        """Return a text with all but its known words and small numbers replaced; None if it has no known word."""
        if is_known(text):
            return text
        found = False

        def replace_piece(match: re.Match[str]) -> str:
            nonlocal found
            found = found or is_known(match[0])
            return match[0] if is_known(match[0]) or _is_small(match[0]) else self._replace_letters(match[0])

        made = _PIECE.sub(replace_piece, text)
        return made if found else None

    def _replace_nested(
        self, value: Any, root: Schema, facts: SchemaFacts, path: Path, correctors: Correctors | None
    ) -> Any:
        if len(path) > _DEEPEST:
            return None
        if value is None or isinstance(value, bool) or _is_choice(value, facts):
            return value
        if is_object(value):
            return {
                self._replace_name(name, facts): self._replace_nested(
                    item, root, facts_of_child(root, facts, name), (*path, name), correctors
                )
                for name, item in value.items()
            }
        if is_array(value):
            kinds = [facts_of_child(root, facts, str(index)) for index in range(_count_item_schemas(facts) + 1)]
            return [
                self._replace_nested(item, root, kinds[min(index, len(kinds) - 1)], (*path, str(index)), correctors)
                for index, item in enumerate(value)
            ]
        if not isinstance(value, str):
            return self._replace_number(value)
        if correctors is not None:
            kept = self._replace_around(value, lambda word: correctors.knows_word(word, path))
            if kept is not None:
                return kept
        return self._replace_in_pattern(value, [node["pattern"] for node in facts.nodes if "pattern" in node])

    def _replace_in_pattern(self, text: str, patterns: Iterable[str]) -> str:
        """Return the pseudonym of a text that matches the same patterns, if there is one."""
        kept = [pattern for pattern in patterns if _is_match(pattern, text)]
        made = self.replace_text(text)
        if all(_is_match(pattern, made) for pattern in kept):
            return made
        digits = self._replace_letters(text, range(len(text)))
        if all(_is_match(pattern, digits) for pattern in kept):
            return digits
        # Words of the pattern itself belong to the schema, such as the W of order numbers.
        return _PIECE.sub(
            lambda found: found[0] if _is_pattern_word(found[0], kept) else self._replace_letters(found[0]), text
        )

    def _replace_name(self, name: str, facts: SchemaFacts) -> str:
        """Return the name of a member: kept if it is a field's, replaced if it is data."""
        is_map = any(is_object(node.get(key)) for node in facts.nodes for key in _MAPS)
        if name in facts.properties or _is_small(name) or not (is_map or _is_data(name)):
            return name
        return self._replace_in_pattern(
            name, [pattern for node in facts.nodes for pattern in node.get("patternProperties", ())]
        )

    def _replace_number(self, number: float) -> float:
        """Return a number of the same size. Below 1,000 the whole part stays, and up to two decimals."""
        if isinstance(number, int):
            return number if abs(number) < SMALL else int(self._replace_letters(str(number)))
        if not math.isfinite(number):
            return number
        mantissa, _, exponent = repr(number).partition("e")
        whole, _, decimals = mantissa.partition(".")
        if exponent:
            made = self._replace_letters(mantissa)
            return float(f"{made}e{min(int(exponent), _LARGEST_EXPONENT)}")
        if abs(number) >= SMALL:
            whole = self._replace_letters(whole)
        elif len(decimals) <= DECIMALS:
            return number
        zeros = len(decimals) - len(decimals.lstrip("0"))
        return float(f"{whole}.{decimals[:zeros]}{self._replace_letters(decimals[zeros:])}")

    def _random_bytes(self, text: str) -> Iterator[int]:
        """Yield random bytes without end, the same for the same text."""
        seed = keyed_digest(self._key, text)
        counter = 0
        while True:
            yield from hashlib.sha256(seed + counter.to_bytes(8, "big")).digest()
            counter += 1

    def _replace_letters(self, text: str, hexadecimal: Container[int] = ()) -> str:
        """Return a text of the same shape. Its letters at some places are hexadecimal digits, and stay such."""
        random = self._random_bytes(text)
        made: list[str] = []
        for index, sign in enumerate(text):
            number = next(random) * 256 + next(random)
            if index in hexadecimal and sign in _HEXADECIMAL:
                made.append(_shift_character(sign, "A" if sign.isupper() else "a", 6, number))
            else:
                made.append(_replace_character(sign, number, first=index == 0 or not text[index - 1].isdecimal()))
        return "".join(made)

    def _replace_date(self, text: str) -> str:
        """Return a date of the same year: month, day and time are replaced."""
        random = self._random_bytes(text)

        def replace_day(found: re.Match[str]) -> str:
            return f"{found[1]}-{(int(found[2]) + next(random) % 11) % 12 + 1:02d}-{next(random) % 28 + 1:02d}"

        return _CLOCK.sub(self._replace_time, _DATE.sub(replace_day, text, count=1))

    def _replace_time(self, found: re.Match[str]) -> str:
        random = self._random_bytes(found[0])
        seconds = f":{next(random) % 60:02d}" if found[1] else ""
        return f"{next(random) % 24:02d}:{next(random) % 60:02d}{seconds}{self._replace_letters(found[2] or '')}"


def _is_choice(value: Any, facts: SchemaFacts) -> bool:
    """True for the schema's own words; a text is looked up, because an enum may have thousands of them."""
    if isinstance(value, str):
        return value in facts.choices_by_spelling.get(" ".join(value.split()), ())
    return any(equal_json(value, choice) for choice in facts.choices)


def _count_item_schemas(facts: SchemaFacts) -> int:
    """Return how many items of an array have schemas of their own."""
    rows = [node.get("prefixItems", node.get("items")) for node in facts.nodes]
    return max((len(row) for row in rows if is_array(row)), default=0)


@functools.lru_cache(maxsize=1_000)
def _is_data(name: str) -> bool:
    """True for a member that no program has named: an id, a secret, or a person's name or address."""
    return ID_LIKE.search(name) is not None or not _FIELD.fullmatch(name) or _redactor.redact_text(name) != name


def _is_small(word: str) -> bool:
    return word.isdecimal() and len(word) < len(str(SMALL))


@functools.lru_cache(maxsize=1_000)
def _pattern_checker(pattern: str) -> Schema:
    return compile_schema({"type": "string", "pattern": pattern}, where="pattern")


def _is_match(pattern: str, text: str) -> bool:
    return _pattern_checker(pattern).accepts(text)


def _is_pattern_word(piece: str, patterns: Sequence[str]) -> bool:
    return not piece.isdecimal() and any(piece in pattern for pattern in patterns)


def _shift_character(sign: str, start: str, size: int, number: int) -> str:
    """Return another one of the signs that begin with `start`."""
    place = ord(sign) - ord(start)
    return chr(ord(start) + (place + 1 + number % (size - 1)) % size)


def _replace_character(sign: str, number: int, *, first: bool) -> str:
    """Return another character of the same kind. A number that does not begin with zero still does not."""
    if sign.isdecimal():
        zero = chr(ord(sign) - int(sign))
        if not first:
            return _shift_character(sign, zero, 10, number)
        return sign if sign == zero else _shift_character(sign, chr(ord(zero) + 1), 9, number)
    if sign.isascii():
        if not sign.isalpha():
            return sign
        return _shift_character(sign, "a" if sign.islower() else "A", 26, number)
    if ord(sign) in _HAN:
        return _shift_character(sign, chr(_HAN.start), len(_HAN), number)
    if not sign.isalnum():
        return sign
    made = [letter for letter in _ACCENTED if letter != sign.lower()]
    found = made[number % len(made)]
    return found.upper() if sign.isupper() else found
