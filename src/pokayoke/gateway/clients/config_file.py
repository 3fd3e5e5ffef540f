"""The file of a client's configuration: read once, replaced as a whole, with a backup beside it.

In: a path.
Out: its text; afterwards another text in its place.
Never: a write over a change that somebody else made in the meantime, or half a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.command_line import CommandLine
from pokayoke.gateway.clients.jsonc_config import JsoncConfig
from pokayoke.gateway.clients.servers import ServerEntry
from pokayoke.gateway.clients.toml_config import TomlConfig
from pokayoke.runtime.files.atomic_file import atomic_write, copy_permissions

_MARK: Final = "\ufeff"
_LARGEST: Final = 64_000_000
_BACKUP: Final = ".pokayoke-backup"


class ClientConfig(Protocol):
    """A configuration in one of the formats.

    Attributes:
        text: its content.
        servers: the servers in it.
    """

    text: str
    servers: list[ServerEntry]

    def find_command_line(self, server: ServerEntry) -> CommandLine:
        """Return where the command line of a server stands, which has one."""
        ...

    def read_entry(self, server: ServerEntry) -> Mapping[str, Any]:
        """Return the texts of a server's entry, which has a command line: its environment, its folder."""
        ...


class ConfigFile:
    """A configuration on the disk, as it was when it was read.

    Args:
        path: of the file; a link stays one.

    Raises:
        ConfigurationError: it is missing, empty, no regular file, larger than 64 MB, or not in UTF-8.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _read_regular_file(path)
        try:
            text = self._data.decode()
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path}: it is not UTF-8 at byte {error.start}. Save it as UTF-8") from error
        self._mark = _MARK if text.startswith(_MARK) else ""
        self.text = text.removeprefix(_MARK)
        if not self.text.strip():
            raise ConfigurationError(f"{path}: it is empty. Add a server with the client first")

    def parse(self, text: str | None = None) -> ClientConfig:
        """Return its servers, or those of another text in its format.

        Raises:
            ConfigurationError: it cannot be read, or lists no servers.
            MissingExtraError: its format needs a library that is not installed.
        """
        kinds = {".toml": TomlConfig, ".yaml": None, ".yml": None}
        kind = kinds.get(self.path.suffix.lower(), JsoncConfig)
        if kind is None:
            raise ConfigurationError(
                f"{self.path}: configurations in YAML are not edited. "
                "Put `pokayoke mcp --` in front of each command by hand"
            )
        try:
            return kind(self.text if text is None else text)
        except ConfigurationError as error:
            error.args = (f"{self.path}: {error}",)
            raise

    @property
    def backup(self) -> Path:
        """Where its backup stands: beside the file itself, where a link leads to one."""
        path = self.path.resolve()
        return path.with_name(path.name + _BACKUP)

    def require_writable(self) -> None:
        """Find out before a question is asked whether an answer can be carried out.

        Raises:
            OSError: the file or its folder takes no write.
        """
        self.path.open("ab").close()
        folder = self.path.resolve().parent
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "the folder takes no new file, so the file cannot be replaced", str(folder))

    def replace(self, text: str, *, back_up: bool) -> None:
        """Write another text in its place, with its permissions.

        Args:
            text: the new content.
            back_up: whether this content becomes the backup; otherwise only if there is none yet.

        Raises:
            ConfigurationError: the file has changed since it was read; nothing was written.
            OSError: it cannot be written.
        """
        self._require_unchanged()
        if back_up or not self.backup.exists():
            self._write_backup()
        with atomic_write(self.path) as file:
            file.write((self._mark + text).encode())
            self._require_unchanged()
        self._data = (self._mark + text).encode()
        self.text = text

    def drop_backup(self) -> bool:
        """Delete the backup if the file is what it was before the first change; return whether it is."""
        try:
            if self.backup.read_bytes() != self._data:
                return False
            self.backup.unlink()
        except OSError:
            return False
        return True

    def _require_unchanged(self) -> None:
        if _read_regular_file(self.path) != self._data:
            raise ConfigurationError(
                f"{self.path}: something else has changed it since it was read, so nothing was written. "
                "Run this again; if the client is open, close it first"
            )

    def _write_backup(self) -> None:
        """Write the backup with the permissions of the file, which may hold secrets."""
        draft = self.backup.with_name(f"{self.backup.name}-{os.urandom(8).hex()}")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - an open descriptor
                copy_permissions(self.path, draft)
                file.write(self._data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.backup)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _read_regular_file(path: Path) -> bytes:
    if path.is_dir():
        raise ConfigurationError(f"{path}: it is a folder. Name the configuration file in it")
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: there is no such file. Add a server with the client first") from error
    with open(fd, "rb") as file:  # noqa: PTH123 - an open descriptor
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path}: it is not a regular file")
        if status.st_size > _LARGEST:
            raise ConfigurationError(f"{path}: it is larger than {_LARGEST // 1_000_000} MB, which no configuration is")
        return file.read(_LARGEST + 1)
