"""`contracts.lock`: read strictly, changed in one step, watched while a program runs.

The file is JSON, sorted, with one line per step of its history, so that a diff shows what was done.

In: the file, and steps of an operator.
Out: a `ContractLock`.
Never: half a lock, or two operators whose steps overwrite each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.versions.lock import FORMAT, ContractLock, lock_problem
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.files.atomic_file import atomic_write, read_followed
from pokayoke.system import hold_folder

NAME: Final = "contracts.lock"
"""The usual name of the file."""
_MARK: Final = "pokayoke contracts.lock"


def read_lock(path: Path, how: Callable[[Path], bytes] = Path.read_bytes) -> ContractLock:
    """Read a lock; `how` returns a file's content.

    Raises:
        ConfigurationError: it does not exist, or is no lock file.
    """
    try:
        data = how(path)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file. Make it with: pokayoke contracts lock FILE") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_lock(data, name=str(path))


def parse_lock(data: bytes, *, name: str) -> ContractLock:
    """Return the lock in a file's content.

    Raises:
        ConfigurationError: it is none; the message says what is wrong and where.
    """
    try:
        value: Any = parse(data)[0]
    except StrictError as error:
        line = data.count(b"\n", 0, getattr(error, "position", None) or 0) + 1
        raise ConfigurationError(f"{name}: not JSON at or after line {line}: {error}. Was it merged by hand?") from None
    if not is_object(value) or value.pop("pokayoke", None) != _MARK:
        raise ConfigurationError(f'{name}: no lock of contracts; one begins with "pokayoke": "{_MARK}"')
    if isinstance(value.get("format"), int) and value["format"] > FORMAT:
        raise ConfigurationError(f"{name}: of format {value['format']}; this version reads {FORMAT}. Upgrade pokayoke")
    try:
        lock = msgspec.convert(value, ContractLock)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{name}: {error}. Was it changed by hand?") from None
    for tool, entry in lock.tools.items():
        if (wrong := lock_problem(tool, entry)) is not None:
            raise ConfigurationError(f"{name}: {wrong}. Was it changed by hand?")
    return lock


def lock_text(lock: ContractLock) -> str:
    """Return the content of the file: sorted, with every step of the history on a line of its own.

    Raises:
        ConfigurationError: a name or a text in it is not valid Unicode, for example typed in another encoding.
    """
    try:
        return _lock_text(lock)
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{error.object!a} is no Unicode text, and a lock holds nothing else") from None


def _lock_text(lock: ContractLock) -> str:
    tools = msgspec.json.format(msgspec.json.encode(lock.tools, order="sorted"), indent=2).decode()
    dropped = msgspec.json.format(msgspec.json.encode(lock.dropped, order="sorted"), indent=2).decode()
    history = ",\n".join(f"    {msgspec.json.encode(event).decode()}" for event in lock.history)
    parts = {
        "pokayoke": f'"{_MARK}"',
        "format": str(lock.format),
        "revision": str(lock.revision),
        "tools": tools.replace("\n", "\n  "),
        **({"dropped": dropped.replace("\n", "\n  ")} if lock.dropped else {}),
        "history": f"[\n{history}\n  ]" if history else "[]",
    }
    return "{\n" + ",\n".join(f'  "{key}": {text}' for key, text in parts.items()) + "\n}\n"


@contextmanager
def exclusive_change(path: Path) -> Generator[Callable[[Callable[[ContractLock], ContractLock]], ContractLock]]:
    """Yield `change(how)`, which reads the lock, applies a step and writes it, while no other process can.

    A missing file is an empty lock. The new content replaces the file as a whole.
    """
    with hold_folder(path.parent):

        def apply_change(how: Callable[[ContractLock], ContractLock]) -> ContractLock:
            before = read_lock(path) if path.exists() else ContractLock()
            after = how(before)
            if after != before or not path.exists():
                text = lock_text(after)
                with atomic_write(path) as file:
                    file.write(text.encode())
            return after

        yield apply_change


class LockFile:
    """A lock that is watched while the program runs.

    JSON marks its own end, so half a file is never taken for the whole.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(cast("object", path), (str, os.PathLike)):
            raise ConfigurationError(f"contracts is the path of a {NAME}, not {path!r}")
        self.path = Path(path).absolute()  # the program may change its folder later
        self._known: tuple[int, ...] | None = ()

    def has_changed(self) -> bool:
        """Check the file (one system call); True if it changed since it was last read."""
        return file_signature(self.path) != self._known

    def read_lock(self) -> ContractLock:
        """Read the file in its present state; it is not read again until it changes.

        Raises:
            ConfigurationError: it is no lock.
        """
        self._known = file_signature(self.path)
        return read_lock(self.path, read_followed)


def file_signature(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """Return what identifies this state of a file; None if the file does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each call, and a Path would be made first
    except (OSError, ValueError):
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
