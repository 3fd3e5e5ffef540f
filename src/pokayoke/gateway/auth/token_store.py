"""The tokens of hosted servers, sealed on the disk.

In: tokens and client registrations, and a key.
Out: the same, for the same server only.
Never: a token on the disk that can be read without the key, or one server's token for another.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from pathlib import Path
from typing import Any, Final

import anyio
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.files.atomic_file import atomic_write
from pokayoke.stores.encryption import VARIABLE, Seal, seal_from_environment

_TABLE: Final = "oauth"
_SERVICE, _USER = "pokayoke", "gateway-token-key"
_EARLY_SECONDS: Final = 30


class TokenStore:
    """Keeps what one server has issued; the SDK's client flow reads and writes it.

    Args:
        folder: for one file per server; it is made if it is not there.
        server: the address of the server. Tokens are bound to it.
        seal: seals the files.
        client: a client that is registered already, or None.
    """

    def __init__(self, folder: Path, server: str, seal: Seal, client: OAuthClientInformationFull | None = None) -> None:
        self._row = hashlib.sha256(server.encode()).hexdigest()
        self._file = folder / f"{self._row[:32]}.sealed"
        self._seal, self._client = seal, client

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens; one that has expired without its access token, so that it is refreshed first."""
        kept = (await self._read()).get("tokens")
        if not is_object(kept):
            return None
        if isinstance(ends := kept.pop("expires_at", None), int | float) and ends - _EARLY_SECONDS < time.time():
            kept["access_token"] = ""
        return OAuthToken.model_validate(kept)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        kept = tokens.model_dump(mode="json", exclude_none=True)
        if tokens.expires_in is not None:
            kept["expires_at"] = int(time.time()) + tokens.expires_in
        await self._update("tokens", kept)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registered client."""
        if self._client is not None:
            return self._client
        kept = (await self._read()).get("client")
        return OAuthClientInformationFull.model_validate(kept) if is_object(kept) else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registered client."""
        await self._update("client", client_info.model_dump(mode="json", exclude_none=True))

    async def _update(self, member: str, value: Any) -> None:
        kept = {**(await self._read()), member: value}
        await anyio.to_thread.run_sync(self._write, dump_compact(kept))

    async def _read(self) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(self._read_file)

    def _read_file(self) -> dict[str, Any]:
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            value, _ = parse(self._seal.open(data, _TABLE, self._row))
        except (StoreError, StrictError) as error:
            raise ConfigurationError(f"{self._file} cannot be opened ({error}): delete it and sign in again") from None
        return value if is_object(value) else {}

    def _write(self, data: bytes) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_write(self._file) as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)
            file.write(self._seal.seal(data, _TABLE, self._row))


def open_seal() -> Seal:
    """Return the seal for tokens: its key is in the environment, else in the keyring, where one is made if need be.

    Raises:
        ConfigurationError: there is neither.
        MissingExtraError: `cryptography` is not installed.
    """
    seal = seal_from_environment()
    return seal if seal.has_key else Seal([_keyring_key()])


def _keyring_key() -> bytes:
    import keyring  # noqa: PLC0415 - slow to import
    from keyring.errors import KeyringError  # noqa: PLC0415 - as above

    try:
        kept = keyring.get_password(_SERVICE, _USER)
        if kept is None:
            kept = base64.b64encode(os.urandom(32)).decode()
            keyring.set_password(_SERVICE, _USER, kept)
    except KeyringError:
        raise ConfigurationError(
            f"tokens are kept sealed, and there is neither a keyring nor a key: set {VARIABLE} to the output of "
            "`openssl rand -base64 32`"
        ) from None
    return base64.b64decode(kept)
