"""Signed messages about approvals: sender, time and address.

One scheme for both directions: the announcements of a guard, and the answers of a person's program. The signature
covers the method and the path, so that a yes to one question is never a yes to another.

In: a message and a shared secret.
Out: headers, or the time of a verified message.
Never: a message accepted that is unsigned, altered, sent to another address or too old.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final

from pokayoke.errors import ConfigurationError

SECRET: Final = "POKAYOKE_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
"""The environment variable with the secret that both sides share."""
TIMESTAMP: Final = "Pokayoke-Timestamp"
"""The header with the wall-clock second at which a message was signed."""
SIGNATURE: Final = "Pokayoke-Signature"
"""The header with `v1=` and the signature in hexadecimal digits."""
WINDOW: Final = 300.0
"""Most seconds between the clocks of both sides; an older message is refused."""
_LEAST: Final = 16
_VERSION: Final = "v1="


def secret_from_environment() -> bytes:
    """Return the secret of this process.

    Raises:
        ConfigurationError: there is none, or it is short enough to be guessed.
    """
    secret = os.environ.get(SECRET, "").encode("utf-8", "surrogateescape")
    if len(secret) < _LEAST:
        kind = "is not set" if not secret else f"has {len(secret)} bytes, which can be guessed"
        raise ConfigurationError(f"{SECRET} {kind}: set it on both sides to the output of `openssl rand -hex 32`")
    return secret


def sign(secret: bytes, method: str, path: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers that sign a message.

    Args:
        secret: shared by both sides.
        method: such as `POST`.
        path: of the URL, with its query.
        body: of the message.
        now: wall-clock second.
    """
    stamp = str(int(now))
    return {TIMESTAMP: stamp, SIGNATURE: _VERSION + _message_digest(secret, stamp, method, path, body)}


def verify(
    secret: bytes, method: str, path: str, body: bytes, *, headers: Mapping[str, str | None], now: float
) -> float | None:
    """Return the second at which a message was signed; None if it is unsigned, forged or too old.

    Args:
        secret: shared by both sides.
        method: of the message.
        path: of the message.
        body: of the message.
        headers: name to value, or None where there is none.
        now: wall-clock second.
    """
    stamp, found = headers.get(TIMESTAMP) or "", headers.get(SIGNATURE) or ""
    # Compared as bytes, since a header may hold non-ASCII, and in constant time.
    expected = (_VERSION + _message_digest(secret, stamp, method, path, body)).encode()
    if not hmac.compare_digest(expected, found.encode("utf-8", "surrogatepass")):
        return None
    if not stamp.isascii() or not stamp.isdecimal() or abs(now - int(stamp)) > WINDOW:
        return None
    return float(stamp)


def _message_digest(secret: bytes, stamp: str, method: str, path: str, body: bytes) -> str:
    head = f"{stamp}\n{method}\n{path}\n".encode("utf-8", "surrogatepass")
    return hmac.new(secret, head + body, hashlib.sha256).hexdigest()
