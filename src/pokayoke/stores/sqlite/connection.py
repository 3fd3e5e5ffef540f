"""One connection to a ledger in an SQLite file, checked before each transaction.

In: statements.
Out: rows, or a `StoreError` that says what to do.
Never: a forgotten ledger. A file that is missing, empty, shorter than before or replaced is an error, and
    nothing is created or repaired on the way.
"""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pokayoke.errors import StoreError
from pokayoke.stores.sql import migrations
from pokayoke.stores.sql.rows import Row
from pokayoke.stores.sqlite.library import Library, RawConnection, Wait, close_connection, error_code, open_connection

_SHORT_WAITS: Final = 200
_YIELD_SECONDS: Final = 0.0001, 0.0006
"""Seconds between two transactions, after one that had to wait for another process."""
_BUSY: Final = 5
_FATAL_CODES: Final = frozenset((10, 11, 14, 26))
"""I/O error, corrupt, cannot open, not a database: the connection is not used again."""
DAMAGED: Final = "is damaged ({error}): stop all writers and restore a backup; nothing is repaired here"
NO_RIGHTS: Final = (
    "may not be read and written by this process: change its owner or its rights, and those of its folder"
)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_ESCAPES: Final = ((b"\\", b"\\134"), (b" ", b"\\040"), (b"\t", b"\\011"), (b"\n", b"\\012"))
"""Characters that the mount table escapes, in the order of replacement."""
_ERROR_TEXTS: Final = {
    3: NO_RIGHTS,
    _BUSY: "stayed locked for {limit:g} seconds: another process keeps a transaction open; nothing was written",
    6: "is locked by another connection of this process; nothing was written",
    7: "cannot be used: the memory is exhausted; nothing was written",
    8: "is read-only for this process: change its owner or its rights, and those of its folder",
    10: "cannot be read or written ({error}): check the disk",
    11: DAMAGED,
    13: "cannot grow: the disk is full; nothing was written, free some space",
    14: "cannot be opened: check that file and folder exist and belong to the user of this process",
    15: "cannot be locked ({error}): a ledger must not lie on a network file system",
    26: "is no database (any more): restore a backup; nothing is repaired here",
}


class SqliteLocation(msgspec.Struct, frozen=True, gc=False):
    """The location of a ledger.

    Args:
        url: as the user wrote it.
        path: absolute.
        limit: seconds to wait for other processes.
        library: the library that opens it.
    """

    url: str
    path: str
    limit: float
    library: Library


class Identity:
    """The ledger and the file that every connection of a store must find again.

    Args:
        ledger_id: created with the ledger.
        device: of the file.
        inode: of the file.
        size: bytes the file had at least.
    """

    __slots__ = ("device", "inode", "ledger_id", "size")

    def __init__(self, ledger_id: str, device: int, inode: int, size: int) -> None:
        self.ledger_id, self.device, self.inode, self.size = ledger_id, device, inode, size


class SqliteConnection:
    """A connection that opens on first use, and again after it was closed or lost.

    Args:
        place: location of the ledger.
        identity: the ledger to expect there.
        only_reads: True for a connection on which every change fails.

    Attributes:
        patience: seconds to wait for other processes from now on.
        version: unchanged as long as no other connection has changed the file.
    """

    def __init__(self, place: SqliteLocation, identity: Identity, *, only_reads: bool = False) -> None:
        self._only_reads = only_reads
        self.patience = place.limit
        self.version = 0
        self._seen: list[Row] = []
        self._place, self._identity = place, identity
        self._open: RawConnection | None = None
        self._meta: list[Row] = []
        self._waiting_since, self._crowded = 0.0, False

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows."""
        return list(self._raw_connection.execute(sql, values))

    def execute_write(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run one statement that changes rows."""
        self._raw_connection.execute(sql, values)

    def count_changes(self) -> int:
        """Return how many rows were changed so far."""
        return self._place.library.changes(self._raw_connection)

    def begin(self) -> None:
        """Begin a transaction that excludes all other writers.

        Raises:
            StoreError: the ledger was replaced, or is too new to be written to.
        """
        self.ensure_open()
        raw = self._raw_connection
        if self._crowded:
            # A process at work finds the file free again long before one that only looks now and then.
            self._crowded = False
            time.sleep(random.uniform(*_YIELD_SECONDS))  # noqa: S311 - not a secret
        raw.execute("BEGIN IMMEDIATE")
        if (seen := list(raw.execute("PRAGMA data_version"))) == self._seen:
            return
        self.mark_stale()
        if (found := list(raw.execute(migrations.READ_META))) != self._meta:
            self._check_meta(found)
        self._seen = seen

    def mark_stale(self) -> None:
        """Mark everything read so far as possibly outdated."""
        self.version += 1
        self._seen = []

    def ensure_open(self) -> None:
        """Check that the file is still the same, and open it if needed.

        Raises:
            StoreError: it is not the same.
        """
        found = self.check_file()
        if self._open is None:
            self._open = self._open_raw(found)

    def check_file(self) -> os.stat_result:
        """Return the file's status.

        Raises:
            StoreError: it is gone or was replaced.
        """
        found = self._stat_file()
        if (found.st_dev, found.st_ino) != (self._identity.device, self._identity.inode):
            raise StoreError(
                f"{self._place.path} is another file than the one that was opened: it was replaced; nothing is "
                "written. Put the right file back and start this process again"
            )
        if found.st_size < self._identity.size:
            raise StoreError(
                f"{self._place.path} is shorter than before: it was cut off, or vacuumed; nothing is written. Restore "
                "a backup if it was cut off, and start this process again"
            )
        self._identity.size = found.st_size
        refuse_other_names(self._place.path, found)
        return found

    def commit(self) -> None:
        """Commit the transaction; its writes survive a loss of power."""
        self._raw_connection.execute("COMMIT")

    def handle_failure(self, error: BaseException) -> str:
        """Roll back after a failure of the whole file, and return its message."""
        if error_code(error) in _FATAL_CODES:
            self.close()
        else:
            self.roll_back()
        return error_message(error, self._place)

    def roll_back(self) -> None:
        """Roll back the open transaction, if there is one."""
        self.mark_stale()
        raw = self._open
        try:
            if raw is not None and raw.in_transaction:
                raw.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - closing rolls back too
            self.close()

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        raw, self._open = self._open, None
        self.mark_stale()
        if raw is None:
            return
        try:
            self.check_file()
        except StoreError:
            # Another file lies there now: its log must not be removed under its name.
            self._place.library.abandon(raw)
        close_connection(raw)

    @property
    def _raw_connection(self) -> RawConnection:
        assert self._open is not None, "a connection is begun before it is used"
        return self._open

    def _stat_file(self) -> os.stat_result:
        try:
            return os.stat(self._place.path)  # noqa: PTH116 - before each transaction, and Path costs more than the call
        except OSError as error:
            raise StoreError(missing_file_error(self._place, error)) from None

    def _open_raw(self, found: os.stat_result) -> RawConnection:
        raw = connect(self._place, self._wait_for_lock, found)
        try:
            self._meta = []
            self._check_ledger_id(migrations.parse_meta(raw.execute(migrations.READ_META)))
            if self._only_reads:
                raw.execute("PRAGMA query_only = ON")
        except BaseException:
            close_connection(raw)
            raise
        return raw

    def _check_meta(self, found: list[Row]) -> None:
        """Check a ledger whose meta has changed, or is read for the first time."""
        meta = migrations.parse_meta(found)
        self._check_ledger_id(meta)
        migrations.refuse_newer(meta)
        self._meta = found

    def _check_ledger_id(self, meta: migrations.LedgerMeta) -> None:
        if meta.ledger_id != self._identity.ledger_id:
            raise StoreError(f"{self._place.path} holds another ledger than before; nothing is written")

    def _wait_for_lock(self, attempts: int) -> bool:
        if attempts == 0:
            self._waiting_since = time.monotonic()
            self._crowded = True
        return wait_for_lock(attempts, time.monotonic() - self._waiting_since, self.patience)


def wait_for_lock(attempts: int, waited: float, patience: float) -> bool:
    """Wait a moment for another process; False if that took too long.

    The pauses are short and uneven, so that a waiting process finds the gap between two transactions of a
    process that writes all the time.
    """
    if waited >= patience:
        return False
    time.sleep(random.uniform(0.0001, 0.001 if attempts < _SHORT_WAITS else 0.005))  # noqa: S311 - not a secret
    return True


def connect(place: SqliteLocation, wait: Wait, found: os.stat_result) -> RawConnection:
    """Open a ledger's file for reading and writing; it is never created.

    Args:
        place: location of the ledger.
        wait: waits for other processes.
        found: the file's status.

    Raises:
        StoreError: another SQLite library has it open in this process.
        Exception: the library's own, if SQLite refuses.
    """
    raw = open_connection(place.library, place.path, found, wait, place.limit)
    try:
        # EXTRA is FULL that also survives a loss of power in a file without a write-ahead log.
        for pragma in ("synchronous = EXTRA", "cell_size_check = ON"):
            raw.execute(f"PRAGMA {pragma}")
    except BaseException:
        close_connection(raw)
        raise
    return raw


def refuse_other_names(path: str, found: os.stat_result) -> None:
    """Refuse a file with several names: SQLite keeps a log per name, so each name would be its own ledger.

    Raises:
        StoreError: there are hard links to the file.
    """
    if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
        raise StoreError(
            f"{path} has {found.st_nlink} names (hard links), and each would be a ledger of its own; nothing is "
            "written. Remove all but one, after every program that uses the ledger was stopped"
        )


def refuse_mounted(path: str) -> None:
    """Refuse a file that is mounted by itself: its log stays outside, as with a second name.

    Raises:
        StoreError: the file is a mount point.
    """
    here = os.fsencode(os.path.realpath(path))
    for character, code in _MOUNT_ESCAPES:
        here = here.replace(character, code)
    try:
        mounts = _MOUNTS.read_bytes()
    except OSError:
        return  # a system without a mount table
    if any(line.split(b" ", 5)[4:5] == [here] for line in mounts.splitlines()):
        raise StoreError(
            f"{path} is mounted by itself (a container's volume?): SQLite keeps a log next to it, so whoever "
            "opens it elsewhere would have another ledger. Mount its folder instead"
        )


def is_file_failure(error: BaseException) -> bool:
    """True for a failure of the whole file, False for one of a single statement or value."""
    return error_code(error) in _ERROR_TEXTS or _is_table_missing(error)


def is_busy(error: BaseException) -> bool:
    """True if another process kept the file locked."""
    return error_code(error) == _BUSY


def error_message(error: BaseException, place: SqliteLocation) -> str:
    """Return what a failure means and what to do."""
    if isinstance(error, StoreError):
        return str(error)
    if _is_table_missing(error):
        return f"{place.path} holds no ledger: run `pokayoke ledger init --store {place.url}`"
    said = _ERROR_TEXTS.get(error_code(error), "cannot be used ({error}); nothing was written")
    return f"{place.path} {said.format(limit=place.limit, error=error)}"


def missing_file_error(place: SqliteLocation, error: OSError) -> str:
    """Return why a file's status cannot be read."""
    folder = Path(place.path).parent
    if isinstance(error, FileNotFoundError) and not folder.is_dir():
        return f"the folder {folder} of the ledger is missing: create it"
    if isinstance(error, FileNotFoundError):
        return (
            f"there is no ledger at {place.path}: run `pokayoke ledger init --store {place.url}` for a new one, or "
            "put the file back if there was one"
        )
    return f"{place.path} cannot be reached ({error.strerror}): check its folder and who owns it"


def _is_table_missing(error: BaseException) -> bool:
    return error_code(error) == 1 and "no such table: pokayoke_" in str(error)
