"""How much a request may take: redirects, bytes and seconds.

In: limits as a programmer writes them, and the body of a response as it arrives.
Out: the body, decompressed and counted; or a `UrlRefused`.
Never: more memory than a piece of the body takes, whatever the headers claim.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.errors import ConfigurationError, UrlRefused

_PIECE = 65_536  # bytes that are decompressed at once
_GZIP = 16 + zlib.MAX_WBITS
_TOO_LARGE = "The answer is too large to be read here. Ask for a smaller part of it, or tell the user."
_UNREADABLE = "The answer cannot be read. Try another source, or tell the user."


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one request, with its redirects, may take.

    Args:
        redirects: how many redirects are followed.
        max_bytes: longest body in bytes, as sent and after decompression.
        seconds: the time for all of it, from the first name that is resolved to the last byte of the body.

    Raises:
        ConfigurationError: a limit is no number, or too small.
    """

    redirects: int = 5
    max_bytes: int = 10_000_000
    seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing."""
        for name, least in (("redirects", 0), ("max_bytes", 1)):
            value: Any = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigurationError(f"HttpLimits: {name} is a whole number from {least}, not {value!r}")
        seconds = cast("object", self.seconds)
        if type(seconds) not in (int, float) or not 0 < self.seconds < float("inf"):
            raise ConfigurationError(f"HttpLimits: seconds is a positive number, not {self.seconds!r}")


class Deadline:
    """The moment by which a request has to be done.

    Args:
        seconds: from now.
    """

    __slots__ = ("_end",)

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def cut(self, timeout: float | None, error: type[Exception]) -> float:
        """Return the time in seconds that a step may take; raise `error` if none is left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise error("the time for the request is up")
        return left if timeout is None else min(timeout, left)


class BodyReader:
    """Counts and decompresses the body of a response.

    Args:
        encoding: its Content-Encoding; "" if it has none. Only `gzip` and `identity` are known.
        declared: its Content-Length, if it has one.
        limit: its longest size in bytes.

    Raises:
        UrlRefused: another encoding, or a declared size above the limit.
    """

    __slots__ = ("_decoded", "_limit", "_sent", "_unzip")

    def __init__(self, encoding: str, declared: str, limit: int) -> None:
        known = encoding.strip().lower()
        if known not in ("", "identity", "gzip", "x-gzip"):
            raise _build_refusal("response_encoding", f"the response is encoded as {encoding[:60]!a}", _UNREADABLE)
        self._limit, self._sent, self._decoded = limit, 0, 0
        self._unzip = zlib.decompressobj(_GZIP) if known.endswith("gzip") else None
        if declared.isdecimal() and (len(declared) > len(str(limit)) or int(declared) > limit):
            raise self._too_large()

    def read(self, piece: bytes) -> Iterator[bytes]:
        """Yield what a piece of the body holds.

        Raises:
            UrlRefused: the body is larger than its limit, or no gzip.
        """
        self._sent += len(piece)
        if self._sent > self._limit:
            raise self._too_large()
        if self._unzip is None:
            yield piece
            return
        while piece:
            try:
                decoded = self._unzip.decompress(piece, _PIECE)
            except zlib.error as error:
                raise _build_refusal("response_encoding", f"the response is no gzip: {error}", _UNREADABLE) from None
            self._decoded += len(decoded)
            if self._decoded > self._limit:
                raise self._too_large()
            if decoded:
                yield decoded
            piece = self._unzip.unconsumed_tail
            if self._unzip.eof and self._unzip.unused_data:  # gzip may be several files, one after the other
                piece, self._unzip = self._unzip.unused_data, zlib.decompressobj(_GZIP)

    def end(self) -> None:
        """Refuse a body that ends too early.

        Raises:
            UrlRefused: its gzip is cut off.
        """
        if self._unzip is not None and self._sent and not self._unzip.eof:
            raise _build_refusal("response_encoding", "the gzip of the response is cut off", _UNREADABLE)

    def _too_large(self) -> UrlRefused:
        return _build_refusal("response_too_large", f"the response has more than {self._limit} bytes", _TOO_LARGE)


def _build_refusal(code: str, message: str, hint: str) -> UrlRefused:
    return UrlRefused(message, Finding(code, "", "tool", message, hint))
