"""A digest that only the owner of a key can compute, so that equal values match and nobody else can test guesses.

In: a secret key and a text.
Out: 32 bytes (HMAC-SHA-256, RFC 2104).
Never: a digest without a key.
"""

from __future__ import annotations

import hashlib
import hmac


def keyed_digest(key: bytes, text: str | bytes) -> bytes:
    """Return the HMAC-SHA-256 of a text; a lone surrogate in it is encoded, too."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hmac.new(key, data, hashlib.sha256).digest()
