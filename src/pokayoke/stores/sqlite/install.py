"""Creates a ledger in an SQLite file, and checks an existing one.

In: a location.
Out: the identity of the ledger there.
Never: a file created without `create`, or a damaged file accepted.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from typing import Final

from pokayoke.errors import StoreError
from pokayoke.stores.sql import migrations
from pokayoke.stores.sql.dialect import SQLITE
from pokayoke.stores.sqlite.connection import (
    DAMAGED,
    NO_RIGHTS,
    Identity,
    SqliteLocation,
    connect,
    error_message,
    is_busy,
    missing_file_error,
    refuse_mounted,
    refuse_other_names,
    wait_for_lock,
)
from pokayoke.stores.sqlite.library import RawConnection, Wait, close_connection

APPLICATION_ID: Final = 0x706B6C67
"""Marks a file that was created for a ledger: "pklg"."""
_SAFE_WAL: Final = 3_051_003
"""From this version of SQLite on, a checkpoint next to a writer cannot damage the file."""
_FULL_CHECK_BYTES: Final = 16_000_000
"""Up to this size a file is checked as a whole when it is opened."""


def open_ledger(place: SqliteLocation, *, create: bool) -> Identity:
    """Check that a file holds a usable ledger, and return its identity.

    Args:
        place: location of the file.
        create: True creates what is missing.

    Raises:
        StoreError: it cannot be used; the message says why and what to do.
    """
    try:
        found = _find_file(place, create=create)
        wait = _build_wait(place.limit)
        if create:
            _create_tables(place, wait, found)
            found = os.stat(place.path)  # noqa: PTH116 - as everywhere else in the store
        raw = connect(place, wait, found)
        try:
            _check_integrity(raw, place, found.st_size)
            meta = migrations.parse_meta(raw.execute(migrations.READ_META))
        finally:
            close_connection(raw)
    except Exception as error:
        raise StoreError(error_message(error, place)) from error
    migrations.refuse_unready(meta, place.url)
    return Identity(meta.ledger_id, found.st_dev, found.st_ino, found.st_size)


def _find_file(place: SqliteLocation, *, create: bool) -> os.stat_result:
    try:
        if create and not os.path.lexists(place.path):
            # It holds values of tools: only its owner may read it by default.
            os.close(os.open(place.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        found = os.stat(place.path)  # noqa: PTH116 - as everywhere else in the store
    except FileExistsError:
        return _find_file(place, create=create)  # another process was faster
    except OSError as error:
        raise StoreError(missing_file_error(place, error)) from None
    if not found.st_size and not create:
        raise StoreError(
            f"{place.path} is empty: restore a backup if there was a ledger, or run `pokayoke ledger init --store "
            f"{place.url}` for a new one"
        )
    if not os.access(place.path, os.R_OK | os.W_OK):
        raise StoreError(f"{place.path} {NO_RIGHTS}")
    refuse_other_names(place.path, found)
    refuse_mounted(place.path)
    return found


def _create_tables(place: SqliteLocation, wait: Wait, found: os.stat_result) -> None:
    """Create the tables or migrate them; of two processes that do so at once, one does.

    A database of another application gets the tables next to its own and keeps its journal mode.
    """
    raw = connect(place, wait, found)
    try:
        raw.execute("BEGIN IMMEDIATE")
        ((tables,),) = raw.execute("SELECT COUNT(*) FROM sqlite_master")
        if not tables:
            raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute(migrations.CREATE_META)
        before = migrations.parse_meta(raw.execute(migrations.READ_META))
        for statement in migrations.migration_statements(before, SQLITE, str(uuid.uuid4())):
            raw.execute(*statement)
        raw.execute("COMMIT")
        ((own,),) = raw.execute("PRAGMA application_id")
        if own == APPLICATION_ID:
            _set_journal_mode(raw, "WAL" if place.library.version >= _SAFE_WAL else "DELETE", wait)
        # The file itself is complete from the start, so its size shows whether it was truncated.
        list(raw.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
    finally:
        close_connection(raw)


def _set_journal_mode(raw: RawConnection, mode: str, wait: Wait) -> None:
    """Set the journal mode; SQLite itself does not wait here for readers."""
    for attempts in itertools.count():
        try:
            list(raw.execute(f"PRAGMA journal_mode = {mode}"))
        except Exception as error:
            if not is_busy(error) or not wait(attempts):
                raise
        else:
            return


def _check_integrity(raw: RawConnection, place: SqliteLocation, size: int) -> None:
    """Check for damage: the whole file if it is small, else its migrations."""
    what = "" if size <= _FULL_CHECK_BYTES else "sqlite_master"
    found = list(raw.execute(f"PRAGMA quick_check({what or 1})"))
    if [tuple(row) for row in found] != [("ok",)]:
        raise StoreError(f"{place.path} {DAMAGED.format(error=found[0][0])}")


def _build_wait(limit: float) -> Wait:
    begun = time.monotonic()
    return lambda attempts: wait_for_lock(attempts, time.monotonic() - begun, limit)
