"""Values that are not for outsiders, and whether a text gives one away.

In: values that came from private outputs; texts that would leave.
Out: the names of the fields of those that stand in a text, however they are grouped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from pokayoke.core.provenance.forms import close_up, fold
from pokayoke.core.provenance.index import ValueIndex

_LEAST: Final = 4
"""Characters of the shortest value that is looked for; a shorter one stands anywhere."""
_MOST_NAMES: Final = 4_096
"""Names of fields that are told apart; a user cannot ask for a value by a later one."""
_BEGINS: Final = re.compile(r"(?:^|(?<=[^\w]))\w")
_GAP: Final = re.compile(r"[\s\-./()]+")


class PrivateValues:
    """Private values: no value itself, only its beginning of four signs, its lengths and its hash."""

    __slots__ = ("_index", "_keys", "_lengths", "_names")

    def __init__(self) -> None:
        """Begin with none."""
        self._lengths: dict[str, int] = {}  # by beginning, one bit for each length
        self._index = ValueIndex()
        self._keys: dict[str, int] = {"": 0}
        self._names = [""]

    def add(self, form: str, key: str) -> None:
        """Note a private value and the name of its field."""
        value = form if form.isalnum() else close_up(form)
        if len(value) < _LEAST or value.isalpha() or not any(map(str.isdigit, value)):
            return
        if key not in self._keys and len(self._names) < _MOST_NAMES:
            self._keys[key] = len(self._names)
            self._names.append(key)
        begin = value[:_LEAST]
        self._lengths[begin] = self._lengths.get(begin, 0) | 1 << len(value)
        self._index.add((value,), self._keys.get(key, 0))

    def find_in(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield each private value that stands in a text, closed up, and the name of its field."""
        if not self._lengths:
            return
        pieces = _GAP.split(fold(text))
        squeezed = "".join(pieces)
        places = {hit.start() for hit in _BEGINS.finditer(squeezed)}
        at = 0
        for piece in pieces:
            places.add(at)
            at += len(piece)
        for place in sorted(places):
            lengths = self._lengths.get(squeezed[place : place + _LEAST], 0)
            while lengths:
                length = lengths.bit_length() - 1
                lengths ^= 1 << length
                value = squeezed[place : place + length]
                if len(value) == length:
                    yield from ((value, self._names[number]) for number in islice(self._index.find(value), 1))
