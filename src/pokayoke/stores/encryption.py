"""Encryption of stored values: recorded outputs and the arguments of questions.

A sealed value is AES-256-GCM, bound to its table and row: moved to another row it does not open.
States, times and names stay readable without the key, so that an operator sees what happened.

In: values, and 32-byte keys of the host.
Out: sealed values, and what they hold.
Never: a value opened with a wrong key or in another row.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence

from pokayoke.errors import MissingExtraError, StoreError

VARIABLE = "POKAYOKE_STORE_KEY"
"""The environment variable with the keys: 32 random bytes each in base64, newest first, separated by commas."""

_SEALED, _ESCAPED = b"\x01", b"\x00"
_KEY_BYTES, _MARK_BYTES, _NONCE_BYTES = 32, 4, 12
_KEY_HINT = (
    f"set {VARIABLE} to the output of `openssl rand -base64 32`; several keys, newest first, are separated by commas"
)


class Seal:
    """Seals with the first key and opens with any; without a key, values are stored as they are.

    Args:
        keys: 32 bytes each, newest first.

    Raises:
        StoreError: a key has another length.
        MissingExtraError: there is a key, but `cryptography` is not installed.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers: dict[bytes, _Cipher] = {}
        for key in keys:
            if len(key) != _KEY_BYTES:
                raise StoreError(f"a store key has {_KEY_BYTES} bytes, not {len(key)}: {_KEY_HINT}")
            self._ciphers[hashlib.sha256(b"pokayoke store key" + key).digest()[:_MARK_BYTES]] = _Cipher(key)
        self._newest = next(iter(self._ciphers.items()), None)

    @property
    def has_key(self) -> bool:
        """True if new values are sealed."""
        return self._newest is not None

    def seal(self, value: bytes, table: str, row: str) -> bytes:
        """Return the bytes to store for a value of a row."""
        if self._newest is None:
            return _ESCAPED + value if value[:1] in (_SEALED, _ESCAPED) else value
        mark, cipher = self._newest
        return _SEALED + mark + cipher.encrypt(value, _associated_data(table, row))

    def open(self, stored: bytes, table: str, row: str) -> bytes:
        """Return the value that was stored in a row.

        Raises:
            StoreError: it is sealed with an unknown key, was altered, or belongs to another row.
        """
        kind = stored[:1]
        if kind == _ESCAPED:
            return stored[1:]
        if kind != _SEALED:
            return stored
        start = 1 + _MARK_BYTES
        cipher = self._ciphers.get(stored[1:start])
        if cipher is None:
            raise StoreError(
                f"a value of {row[:12]!r} is sealed with a key that is not in {VARIABLE}: add that key to it"
            )
        value = cipher.decrypt(stored[start:], _associated_data(table, row))
        if value is None:
            raise StoreError(f"a sealed value of {row[:12]!r} was altered or belongs to another row: restore a backup")
        return value


def seal_from_environment() -> Seal:
    """Return the seal with the keys of `POKAYOKE_STORE_KEY`, or one without keys if that is not set.

    Raises:
        StoreError: a key is not base64 or not 32 bytes long.
        MissingExtraError: there is a key, but `cryptography` is not installed.
    """
    given = os.environ.get(VARIABLE, "")
    return Seal([_decode_key(part.strip()) for part in given.split(",") if part.strip()])


class _Cipher:
    """AES-256-GCM with a random nonce before each value."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an optional dependency
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
        except ImportError:
            raise MissingExtraError("cryptography", "seal") from None
        self._cipher, self._invalid = AESGCM(key), InvalidTag

    def encrypt(self, value: bytes, bound: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, bound)

    def decrypt(self, stored: bytes, bound: bytes) -> bytes | None:
        try:
            return self._cipher.decrypt(stored[:_NONCE_BYTES], stored[_NONCE_BYTES:], bound)
        except (self._invalid, ValueError):  # a truncated nonce is a ValueError
            return None


def _associated_data(table: str, row: str) -> bytes:
    return f"{table}\x00{row}".encode("utf-8", "surrogatepass")


def _decode_key(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise StoreError(f"a key in {VARIABLE} is not base64: {_KEY_HINT}") from None
