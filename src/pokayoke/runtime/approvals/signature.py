"""Signed messages about approvals, as the Standard Webhooks specification has them.

One scheme for both directions: the announcements of a guard, and the requests of a person's program. The signature
covers id, time and body. It does not cover the path, so what a message is about stands in its body.

Source: Standard Webhooks 1.0.0, symmetric signatures (`v1`), https://www.standardwebhooks.com.

In: a message and the shared secrets.
Out: headers, or the time of a verified message.
Never: a message accepted that is unsigned, altered or too old.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pokayoke.errors import ConfigurationError

SECRET: Final = "POKAYOKE_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
"""The environment variable with the secrets that both sides share, separated by spaces."""
ID: Final = "webhook-id"
"""The header that identifies an event; it stays the same when a message is sent again."""
TIMESTAMP: Final = "webhook-timestamp"
"""The header with the wall-clock second at which a message was signed."""
SIGNATURE: Final = "webhook-signature"
"""The header with one signature for each secret, separated by spaces."""
WINDOW: Final = 300.0
"""Most seconds between the clocks of both sides; an older message is refused."""
_PREFIX: Final = "whsec_"
_FEWEST_BYTES, _MOST_BYTES = 24, 64
_VERSION: Final = "v1,"
_SECONDS: Final = re.compile("[0-9]{1,12}")
_COMMAND: Final = 'echo "whsec_$(openssl rand -base64 32)"'


def secrets_from_environment() -> tuple[bytes, ...]:
    """Return the secrets of this process: one, or an old one beside its successor while they are exchanged.

    Raises:
        ConfigurationError: there is none, or one is no secret of the specification.
    """
    texts = os.environ.get(SECRET, "").split()
    if not texts:
        raise ConfigurationError(f"{SECRET} is not set: set it on both sides to the output of `{_COMMAND}`")
    return tuple(_decode_secret(text) for text in texts)


def _decode_secret(text: str) -> bytes:
    """Return the key of a secret: 24 to 64 bytes, as base64 behind `whsec_`."""
    why = f"does not begin with {_PREFIX}"
    if text.startswith(_PREFIX):
        try:
            key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            why = f"is no base64 behind {_PREFIX}"
        else:
            if _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
                return key
            why = f"has {len(key)} bytes behind {_PREFIX}, not {_FEWEST_BYTES} to {_MOST_BYTES}"
    raise ConfigurationError(f"{SECRET} {why}: set it on both sides to the output of `{_COMMAND}`")


def sign(secrets: Sequence[bytes], message_id: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers that sign a message.

    Args:
        secrets: shared by both sides; the message gets a signature for each.
        message_id: of the event, the same for each attempt; without a dot.
        body: of the message, as it is sent.
        now: wall-clock second of this attempt.
    """
    stamp = str(int(now))
    signatures = " ".join(_sign_once(secret, message_id, stamp, body) for secret in secrets)
    return {ID: message_id, TIMESTAMP: stamp, SIGNATURE: signatures}


def verify(secrets: Sequence[bytes], body: bytes, *, headers: Mapping[str, str | None], now: float) -> float | None:
    """Return the second at which a message was signed; None if it is unsigned, forged or too old.

    Args:
        secrets: shared by both sides; one that signed is enough.
        body: of the message, as it was received; empty where there is none.
        headers: of the message. A mapping that finds lower-case names, as those of HTTP libraries do.
        now: wall-clock second.
    """
    message_id, stamp, found = (headers.get(name) or "" for name in (ID, TIMESTAMP, SIGNATURE))
    # A dot in the id would let part of one message pass for another.
    if not message_id or "." in message_id or not _SECONDS.fullmatch(stamp):
        return None
    expected = [_sign_once(secret, message_id, stamp, body).encode() for secret in secrets]
    # Compared as bytes, since a header may hold non-ASCII, and in constant time.
    given = [text.encode("utf-8", "surrogatepass") for text in found.split(" ")]
    if not any(hmac.compare_digest(own, other) for own in expected for other in given):
        return None
    return float(stamp) if abs(now - int(stamp)) <= WINDOW else None


def _sign_once(secret: bytes, message_id: str, stamp: str, body: bytes) -> str:
    head = f"{message_id}.{stamp}.".encode("utf-8", "surrogatepass")
    return _VERSION + base64.b64encode(hmac.new(secret, head + body, hashlib.sha256).digest()).decode()
