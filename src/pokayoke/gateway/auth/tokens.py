"""Tokens that an operator hands out, known here by their hashes only.

In: a file of tokens, and the token of a request.
Out: whose it is, or nothing.
Never: a token that can be read from the file or a log, or a comparison whose time tells how much of it was right.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from pokayoke.errors import ConfigurationError
from pokayoke.runtime.files.atomic_file import read_followed

_PREFIX: Final = "pgw_"
_LINE: Final = re.compile(r"(?P<subject>[^\s:]{1,200})\s+sha256:(?P<digest>[0-9a-f]{64})(?:\s+(?P<scopes>\S.*))?")
_MAX_BYTES: Final = 1_048_576


class CallerIdentity(NamedTuple):
    """Whom a token proves its bearer to be.

    Attributes:
        subject: the verified subject.
        scopes: what the token is for.
    """

    subject: str
    scopes: tuple[str, ...] = ()


class Verifier(Protocol):
    """Verifies the token of a request."""

    async def verify(self, token: str) -> CallerIdentity | None:
        """Return whose token it is; None if it is not valid (any more)."""
        ...


class StaticTokens:
    """Verifies tokens of a file, which is read again when it has changed.

    A line of the file is `SUBJECT sha256:HEX [SCOPE..]`; empty lines and those that begin with `#` say nothing.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no such line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None
        self._known: list[tuple[bytes, CallerIdentity]] = []
        self._read()

    async def verify(self, token: str) -> CallerIdentity | None:
        """Return whose token it is; None if it is none of the file's."""
        try:
            if self._stat() != self._stamp:
                self._read()
        except (OSError, ConfigurationError):
            return None  # a file that cannot be read proves nobody; the operator sees it at the next start
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        found: CallerIdentity | None = None
        for known, identity in self._known:  # all of them, so that the time does not tell which
            if hmac.compare_digest(known, digest):
                found = identity
        return found

    def _stat(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> None:
        try:
            stamp, data = self._stat(), read_followed(self._path)
        except OSError as error:
            raise ConfigurationError(f"{self._path}: the tokens cannot be read: {error.strerror or error}") from None
        if len(data) > _MAX_BYTES:
            raise ConfigurationError(f"{self._path}: more than {_MAX_BYTES} bytes are no file of tokens")
        known: list[tuple[bytes, CallerIdentity]] = []
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if (found := _LINE.fullmatch(line.strip())) is None:
                raise ConfigurationError(
                    f"{self._path}, line {number}: expected SUBJECT sha256:HEX [SCOPE..], as "
                    "`pokayoke gateway --new-token SUBJECT` prints it"
                )
            scopes = tuple((found["scopes"] or "").split())
            known.append((bytes.fromhex(found["digest"]), CallerIdentity(found["subject"], scopes)))
        self._stamp, self._known = stamp, known


def create_token(subject: str) -> tuple[str, str]:
    """Return a new token of 256 random bits, and the line of the file that stands for it.

    Raises:
        ConfigurationError: the subject is empty, longer than 200 characters, or holds white space or a colon.
    """
    token = _PREFIX + secrets.token_urlsafe(32)
    line = f"{subject} sha256:{hashlib.sha256(token.encode()).hexdigest()}"
    if _LINE.fullmatch(line) is None:
        raise ConfigurationError(f"{subject!r} is no subject: it has up to 200 characters, no white space and no colon")
    return token, line
