"""A file with a secret key: of pseudonyms, or of the tags of redacted values.

In: a path.
Out: the key.
Never: a key that others can read, or one that is seen half-written.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from pokayoke.errors import ConfigurationError
from pokayoke.system import HAS_FILE_MODES

KEY_BYTES: Final = 32
"""The length of a new key, and the least length of any."""


def load_key(path: Path, option: str) -> bytes:
    """Return the key from a file that only its owner may read; create one if there is none.

    Args:
        path: the file; it holds at least 64 hexadecimal digits. A new one has mode 0600, where files have modes.
        option: the option that names it, for messages.

    Raises:
        ConfigurationError: it cannot be made or read, holds no key, or can be read by others.
    """
    if not path.exists():
        try:
            _make_key(path)
        except OSError as error:
            raise ConfigurationError(f"{option} {str(path)!r} cannot be made: {error.strerror}.") from None
    return _read_key(path, option)


def _make_key(path: Path) -> None:
    """Create a key that is never visible half-written; of processes that do so at once, the first one wins."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _read_key(path: Path, option: str) -> bytes:
    try:
        open_to = HAS_FILE_MODES and stat.S_IMODE(path.stat().st_mode) & 0o077
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{option} {str(path)!r} cannot be read: {error.strerror}.") from None
    if open_to:
        raise ConfigurationError(
            f"{option} {str(path)!r} can be read by others, who could then test guesses: chmod 600 it."
        )
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise ConfigurationError(
            f"{option} {str(path)!r} holds no key: expected {2 * KEY_BYTES} hexadecimal digits, as "
            f"`openssl rand -hex {KEY_BYTES}` prints. Remove the file, and one is made."
        )
    return key
