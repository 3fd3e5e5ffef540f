"""JSON Web Tokens of an authorization server (RFC 7519, RFC 9068).

In: the token of a request, and the public keys of the issuer, from a file or an address.
Out: whose it is, or nothing.
Never: a token for another audience or of another issuer, an algorithm that the token itself chose, or a request for
    keys for each bad token.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt

from pokayoke.core.json.strict import StrictError, parse
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.auth.tokens import CallerIdentity

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Those with a public key. A shared secret (HS256) would let each verifier issue tokens, and `none` anybody."""

_KEEP_SECONDS: Final = 300.0
_PAUSE_SECONDS: Final = 10.0
_FETCH_SECONDS: Final = 5.0
_LEEWAY_SECONDS: Final = 30
_MAX_KEYS_BYTES: Final = 262_144
_MAX_TOKEN: Final = 16_384


class JwtTokens:
    """Verifies the tokens of one issuer.

    Args:
        issuer: the value of `iss`.
        audience: the value that `aud` holds: the address of this gateway (RFC 8707).
        keys: a file or an https address with its JSON Web Key Set (RFC 7517).
        algorithms: those that are accepted, of `ALGORITHMS`.

    Raises:
        ConfigurationError: an algorithm is not accepted, the address is not encrypted, or the file holds no keys.
    """

    def __init__(self, *, issuer: str, audience: str, keys: str, algorithms: Sequence[str] = ALGORITHMS) -> None:
        if not issuer or not audience:
            raise ConfigurationError("tokens of an issuer need its name and the audience: give both")
        if strangers := sorted(set(algorithms) - set(ALGORITHMS)):
            raise ConfigurationError(
                f"no algorithm with a public key: {', '.join(strangers)}. There are: {', '.join(ALGORITHMS)}"
            )
        self._issuer, self._audience, self._algorithms = issuer, audience, list(algorithms)
        self._source = KeySource(keys)

    async def verify(self, token: str) -> CallerIdentity | None:
        """Return whose token it is; None if it is malformed, expired, or for another audience or issuer."""
        if len(token) > _MAX_TOKEN:
            return None
        try:
            header = jwt.get_unverified_header(token)
            key = await self._source.find_key(header.get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        subject = claims["sub"]
        return CallerIdentity(subject, _read_scopes(claims)) if isinstance(subject, str) and subject else None


class KeySource:
    """The public keys of an issuer.

    Keys of an address are kept for 300 seconds. A key that is not among them has the address asked again, at most
    once in 10 seconds, as an issuer changes its keys; while it cannot be reached, the keys that are known serve.

    Args:
        place: a file or an address.

    Raises:
        ConfigurationError: as for `JwtTokens`.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._keys: dict[str | None, Any] = {}
        self._fetched = self._tried = float("-inf")
        self._lock = anyio.Lock()
        self._is_remote = "://" in place
        if self._is_remote:
            _require_safe(place)
            return
        try:
            self._keys = _read_keys(Path(place).read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{place}: no keys can be read: {error}") from None

    async def find_key(self, ident: Any) -> Any:
        """Return the key of an id; the only one, if the token names none. None if there is no such key."""
        now = time.monotonic()
        if self._is_remote and (now - self._fetched > _KEEP_SECONDS or self._pick(ident) is None):
            await self._fetch(ident)
        return self._pick(ident)

    def _pick(self, ident: Any) -> Any:
        if isinstance(ident, str):
            return self._keys.get(ident)
        return next(iter(self._keys.values())) if ident is None and len(self._keys) == 1 else None

    async def _fetch(self, ident: Any) -> None:
        async with self._lock:
            now = time.monotonic()
            is_fresh = now - self._fetched <= _KEEP_SECONDS and self._pick(ident) is not None
            if is_fresh or now - self._tried < _PAUSE_SECONDS:
                return
            self._tried = now
            try:
                self._keys = _read_keys(await _download(self._place))
                self._fetched = now
            except (httpx2.HTTPError, ValueError, TimeoutError):
                return


async def _download(address: str) -> bytes:
    data = bytearray()
    with anyio.fail_after(_FETCH_SECONDS):
        async with httpx2.AsyncClient(trust_env=False) as client, client.stream("GET", address) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > _MAX_KEYS_BYTES:
                    raise ValueError("too large for a set of keys")
    return bytes(data)


def _read_keys(data: bytes) -> dict[str | None, Any]:
    try:
        value, _ = parse(data, max_bytes=_MAX_KEYS_BYTES)
        found = jwt.PyJWKSet.from_dict(value)
    except (StrictError, jwt.PyJWTError, AttributeError, TypeError) as error:
        raise ValueError(f"it is no JSON Web Key Set: {error}") from None
    return {one.key_id: one for one in found.keys if one.key_type != "oct"}


def _require_safe(address: str) -> None:
    """Refuse keys from an address that others could answer for."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        raise ConfigurationError(f"{address}: keys come from a file, an https address, or this machine")


def _read_scopes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scopes of RFC 9068 (`scope`), or of issuers that write `scp`."""
    given: Any = claims.get("scope", claims.get("scp", ()))
    if isinstance(given, str):
        return tuple(given.split())
    return tuple(one for one in given if isinstance(one, str)) if isinstance(given, list | tuple) else ()  # pyright: ignore[reportUnknownVariableType]
