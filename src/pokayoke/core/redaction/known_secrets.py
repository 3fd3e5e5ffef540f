"""Remembers the secrets of a run, so that they are hidden wherever they occur later.

In: values found under a secret name, later texts, JSON bytes.
Out: True or False, or the text with `[redacted]` in place of each secret; with a key, `[redacted#...]`.
Never: grow without bound; keep a value so short that hiding it would hide the trace.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

import msgspec

from pokayoke.core.redaction.keyed_digest import keyed_digest

HIDDEN: Final = "[redacted]"
HIDDEN_PATTERN: Final = r"\[redacted(?:#[0-9a-f]{16})?\]"
"""What stands in place of a secret, with or without the tag of its value."""
_HIDDEN: Final = re.compile(HIDDEN_PATTERN)
_TAG_BYTES: Final = 8


def is_hidden(value: object) -> bool:
    """Return whether a value is what stands in place of a secret."""
    return isinstance(value, str) and _HIDDEN.fullmatch(value) is not None


def holds_hidden(text: str) -> bool:
    """Return whether a secret of this text was replaced."""
    return _HIDDEN.search(text) is not None


class KnownSecrets:
    """Values found under a secret name in this run, which must not occur elsewhere.

    Values under 6 characters are not kept: hiding every `1234` would hide the trace itself.

    Attributes:
        key: the key of the tags, or None for replacements without a tag.
        hashes: digests of arguments that hold a secret, with those that are written instead; the latest 64.
    """

    __slots__ = ("_needles", "hashes", "key")
    _SHORTEST = 6
    _MOST = 64

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key
        self.hashes: dict[str, str] = {}
        self._needles: dict[str, dict[str, bytes]] = {}

    def __len__(self) -> int:
        return len(self._needles) + len(self.hashes)

    def add(self, value: Any) -> None:
        """Remember every text and number in a secret value; the latest 64 are kept."""
        if isinstance(value, dict):
            value = list(cast("dict[str, Any]", value).values())
        if isinstance(value, list):
            for item in cast("Sequence[Any]", value):
                self.add(item)
            return
        text = str(value).encode(errors="backslashreplace").decode()  # half a character, as the trace writes it
        if len(text) >= self._SHORTEST and not is_hidden(text):
            self._needles[text] = self._needles.pop(text, {})
            if len(self._needles) > self._MOST:
                del self._needles[next(iter(self._needles))]

    def mask(self, value: Any) -> str:
        """Return what is written in place of a secret value: equal for equal values if there is a key.

        What stands in place of a secret already stays as it is.
        """
        if self.key is None:
            return HIDDEN
        text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
        return text if is_hidden(text) else f"[redacted#{keyed_digest(self.key, text)[:_TAG_BYTES].hex()}]"

    def add_hash(self, digest: str, shown: str) -> None:
        """Remember what is written in place of a digest: a short secret could be guessed from it."""
        self.hashes[digest] = shown
        if len(self.hashes) > self._MOST:
            del self.hashes[next(iter(self.hashes))]

    def is_within(self, data: bytes) -> bool:
        """Return whether these JSON bytes hold one of the remembered values."""
        return any(needle in data for forms in self._encoded_forms() for needle in forms.values())

    def hide_values(self, text: str) -> str:
        """Return the text without the remembered values, longest first."""
        self._encoded_forms()
        whole = {form: secret for secret, forms in self._needles.items() for form in forms}
        for form in sorted(whole, key=len, reverse=True):
            if form in text:
                text = text.replace(form, self.mask(whole[form]))
        return text

    def _encoded_forms(self) -> list[dict[str, bytes]]:
        for text, forms in self._needles.items():
            if not forms:  # built at the first search, as most are never searched for
                self._needles[text] = {form: msgspec.json.encode(form)[1:-1] for form in _forms_of(text)}
        return [*self._needles.values()]


def _forms_of(text: str) -> set[str]:
    """Return the forms of a text inside another.

    They are: plain, JSON (also ASCII-only, and twice), URL, Python literal, hexadecimal, and base64 of any text
    around it.
    """
    inside, plain = msgspec.json.encode(text)[1:-1].decode(), _in_ascii(text)
    forms = {text, inside, plain, _in_ascii(plain), repr(text)[1:-1], repr(text.encode())[2:-1]}
    data = text.encode()
    return (
        forms | {quote(text), quote(text, safe=""), quote_plus(text), data.hex(), data.hex().upper()} | _in_base64(data)
    )


def _in_base64(data: bytes) -> set[str]:
    """Return what base64 (RFC 4648, both alphabets) writes for some bytes after 0, 1 or 2 others, whatever follows."""
    forms: set[str] = set()
    for lead in range(3):
        # A character stands for six bits: those that hold bits of a neighbour are left out.
        first, end = -(-8 * lead // 6), 8 * (lead + len(data)) // 6
        written = base64.b64encode(b"\0" * lead + data).decode()[first:end]
        forms |= {written, written.replace("+", "-").replace("/", "_")}
    return forms


def _in_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]
