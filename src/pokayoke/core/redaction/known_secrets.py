"""Remembers the secrets of a run, so that they are hidden wherever they occur later.

In: values found under a secret name, later texts, JSON bytes.
Out: True or False, or the text with `[redacted]` in place of each secret.
Never: grow without bound; keep a value so short that hiding it would hide the trace.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

import msgspec

HIDDEN: Final = "[redacted]"


class KnownSecrets:
    """Values found under a secret name in this run, which must not occur elsewhere.

    Values under 6 characters are not kept: hiding every `1234` would hide the trace itself.
    """

    __slots__ = ("_needles",)
    _SHORTEST = 6
    _MOST = 64

    def __init__(self) -> None:
        self._needles: dict[str, dict[str, bytes]] = {}

    def __len__(self) -> int:
        return len(self._needles)

    def add(self, value: Any) -> None:
        """Remember every text and number in a secret value; the latest 64 are kept."""
        if isinstance(value, dict):
            value = list(cast("dict[str, Any]", value).values())
        if isinstance(value, list):
            for item in cast("Sequence[Any]", value):
                self.add(item)
            return
        text = str(value).encode(errors="backslashreplace").decode()  # half a character, as the trace writes it
        if len(text) >= self._SHORTEST and text != HIDDEN:
            self._needles[text] = self._needles.pop(text, {})
            if len(self._needles) > self._MOST:
                del self._needles[next(iter(self._needles))]

    def is_within(self, data: bytes) -> bool:
        """Return whether these JSON bytes hold one of the remembered values."""
        return any(needle in data for forms in self._encoded_forms() for needle in forms.values())

    def hide_values(self, text: str) -> str:
        """Return the text without the remembered values, longest first."""
        for form in sorted({form for forms in self._encoded_forms() for form in forms}, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text

    def _encoded_forms(self) -> list[dict[str, bytes]]:
        for text, forms in self._needles.items():
            if not forms:  # built at the first search, as most are never searched for
                self._needles[text] = {form: msgspec.json.encode(form)[1:-1] for form in _forms_of(text)}
        return [*self._needles.values()]


def _forms_of(text: str) -> set[str]:
    """Return the forms of a text inside another: plain, JSON (also ASCII-only, and twice), URL, Python literal."""
    inside, plain = msgspec.json.encode(text)[1:-1].decode(), _in_ascii(text)
    forms = {text, inside, plain, _in_ascii(plain), repr(text)[1:-1], repr(text.encode())[2:-1]}
    return forms | {quote(text), quote(text, safe=""), quote_plus(text)}


def _in_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]
