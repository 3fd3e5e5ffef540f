"""The SQLite file: which one it is, what may be wrong with it, and the user's own transaction."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import apsw
import pytest
from nobody import as_nobody

from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.errors import StoreError
from pokayoke.stores import open_store
from pokayoke.stores.sql import migrations as schema
from pokayoke.stores.sqlite import connection as sqlite_file
from pokayoke.stores.sqlite import install as sqlite_install
from pokayoke.stores.sqlite.store import SqliteStore
from pokayoke.stores.values import RecordQuery

INIT = "pokayoke ledger init --store sqlite:///"


@pytest.fixture
def path(tmp_path):
    """Where the ledger lies."""
    return tmp_path / "ledger.db"


@pytest.fixture
def opened(path):
    """Opens stores on the file and closes them afterwards."""
    stores = []

    def open_(*, create=False, **options):
        stores.append(SqliteStore(f"sqlite:///{path}", create=create, **options))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def store(opened):
    """A new ledger."""
    return opened(create=True, limit=0.3)


def claim(store, key="k", claim_id="c1"):
    wish = Claim(key, "h", claim_id, "pay", "pay@1", "r", 100.0, 10.0)
    return store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, wish))


def done(key="k", claim_id="c1", **more):
    return Settlement(key, claim_id, "completed", 101.0, **more)


# -- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:ledger.db", "sqlite://host/x.db"]
)
def test_a_url_names_a_file(url):
    """What names no file is an error that shows both forms of a URL."""
    with pytest.raises(StoreError, match=r"sqlite:///relative\.db or sqlite:////absolute/path\.db"):
        open_store(url)


def test_what_lists_and_pages_read_with_changes_nothing(opened):
    """A statement that would change a row fails where everything is read, and the row stays."""
    store = opened(create=True)
    wish = Claim("k", "h", "c", "pay", "pay@1", "r", 1.0, 60.0)
    store.admit(AdmissionRequest("r", "pay", "write", (), 1.0, wish))
    with pytest.raises(StoreError, match="read-only for this process"):
        store._fetch_rows(("DELETE FROM pokayoke_records", ()))
    assert store.record("k") is not None


@pytest.mark.parametrize(
    ("options", "words"), [("?mode=ro", "unknown option 'mode'"), ("?library=duckdb", "no SQLite library")]
)
def test_unknown_options_are_errors(path, options, words):
    """A URL's options are known ones."""
    with pytest.raises(StoreError, match=words):
        open_store(f"sqlite:///{path}{options}", create=True)


def test_a_kind_of_store_that_nobody_knows():
    """The message lists the kinds."""
    with pytest.raises(StoreError, match="'mysql' is not a kind of store: use memory://, sqlite:///"):
        open_store("mysql://x")


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    """A store goes on with its file when the process changes its folder."""
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///here.db", create=True)
    monkeypatch.chdir("/")
    assert claim(store).kind == "execute"
    store.close()
    assert (tmp_path / "here.db").is_file()


def test_a_missing_ledger_names_the_command_that_makes_one(path, opened):
    """Opening never creates: a missing and an empty file are errors, and stay as they are."""
    with pytest.raises(StoreError, match=rf"there is no ledger at .*{INIT}"):
        opened()
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError, match=rf"is empty: .*{INIT}"):
        opened()
    assert path.stat().st_size == 0


def test_an_empty_file_can_be_made_a_ledger(path, opened):
    """`create` takes an empty file, too, and makes it whole at once."""
    path.touch()
    assert claim(opened(create=True)).kind == "execute"
    assert path.stat().st_size > 10_000


def test_a_missing_folder_is_said_to_be_missing(tmp_path):
    """Also with `create`: a folder is never made."""
    for create in (False, True):
        with pytest.raises(StoreError, match=r"the folder .*nowhere of the ledger is missing: create it"):
            open_store(f"sqlite:///{tmp_path}/nowhere/x.db", create=create)


def test_creating_again_keeps_what_is_there(opened):
    """`create` on a ledger changes nothing: its records and its id stay."""
    first = opened(create=True)
    claim(first)
    assert claim(opened(create=True), claim_id="c2").kind == "refuse"


def test_nobody_else_may_read_a_new_ledger(path, store):
    """The file is made for its owner only."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_ledger_is_marked_and_durable(path, store):
    """The file has our application id, a write-ahead log, and every connection flushes each commit."""
    claim(store)
    conn = apsw.Connection(str(path))
    assert (conn.pragma("application_id"), conn.pragma("journal_mode")) == (sqlite_install.APPLICATION_ID, "wal")
    conn.close()
    connection = store._writer._connection
    assert connection.fetch("PRAGMA synchronous") == [(3,)]


def test_an_old_library_gets_no_write_ahead_log(path, opened, monkeypatch):
    """Below 3.51.3 a checkpoint may damage the file: then the ledger has a rollback journal."""
    monkeypatch.setattr(sqlite_install, "_SAFE_WAL", 99_000_000)
    opened(create=True)
    conn = apsw.Connection(str(path))
    assert conn.pragma("journal_mode") == "delete"
    conn.close()


def test_two_that_create_at_once_make_one_ledger(path):
    """Of six processes that initialise the same file, all end with the same ledger."""
    code = (
        "import sys; from pokayoke.stores import open_store; s = open_store(sys.argv[1], create=True);"
        "print(s._identity.ledger_id); s.close()"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    said = [process.communicate(timeout=50)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 6
    assert len(set(said)) == 1


def test_whoever_changes_the_journal_waits_for_a_writer(path):
    """SQLite refuses that at once while somebody writes, whatever it was told; it is asked again."""
    one, other = apsw.Connection(str(path)), apsw.Connection(str(path))
    one.execute("CREATE TABLE orders (id); BEGIN IMMEDIATE")
    waited = []

    def wait(attempts):
        waited.append(attempts)
        if attempts == 2:
            one.execute("COMMIT")
        return attempts < 9

    sqlite_install._set_journal_mode(other, "WAL", wait)
    assert (waited, other.pragma("journal_mode")) == ([0, 1, 2], "wal")
    one.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.BusyError):
        sqlite_install._set_journal_mode(other, "DELETE", lambda attempts: attempts < 3)
    one.close()
    other.close()


# -- somebody else's database -----------------------------------------------------------------------


def test_the_ledger_may_lie_in_the_users_database(path, opened):
    """`create` adds the tables beside the user's, and leaves their data, mark and journal mode alone."""
    conn = apsw.Connection(str(path))
    conn.execute("CREATE TABLE orders (id); INSERT INTO orders VALUES (7); PRAGMA application_id = 5")
    with pytest.raises(StoreError, match=rf"holds no ledger: .*{INIT}"):
        opened()
    assert claim(opened(create=True)).kind == "execute"
    assert list(conn.execute("SELECT id FROM orders")) == [(7,)]
    assert (conn.pragma("application_id"), conn.pragma("journal_mode")) == (5, "delete")
    conn.close()


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\x00" + b"\xff" * 8_000])
def test_a_file_of_another_kind_is_refused(path, opened, content):
    """What is no database is neither opened nor changed, also with `create`."""
    path.write_bytes(content)
    for create in (False, True):
        with pytest.raises(StoreError, match=r"is no database|is damaged|cannot be"):
            opened(create=create)
    assert path.read_bytes() == content


def test_a_folder_is_no_ledger(tmp_path):
    """A path that leads to a folder is an error with words."""
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}")


# -- the wrong file -------------------------------------------------------------------------------


def both_refuse(store, words):
    """Claims, completions and reads fail with the same words."""
    for act in (lambda: claim(store, "new"), lambda: store.settle(done()), lambda: store.records(RecordQuery())):
        with pytest.raises(StoreError, match=words):
            act()


def test_a_replaced_file_is_noticed(path, store, tmp_path):
    """After another file took the name, nothing is written to either, and the message says so."""
    claim(store)
    other = tmp_path / "other.db"
    SqliteStore(f"sqlite:///{other}", create=True).close()
    os.replace(other, path)
    both_refuse(store, "is another file than the one that was opened")


def test_a_ledger_of_two_names_is_refused(path, store, opened, tmp_path):
    """SQLite keeps a log beside each name, so both would be a ledger: neither is opened, nor written, until one is gone."""
    claim(store)
    other = tmp_path / "other.db"
    other.hardlink_to(path)
    both_refuse(store, r"2 names \(hard links\)")
    for name in (path, other):
        for create in (False, True):
            with pytest.raises(StoreError, match="Remove all but one"):
                SqliteStore(f"sqlite:///{name}", create=create)
    other.unlink()
    claim(store, "other", "c2")
    assert len(opened().records(RecordQuery())) == 2


@pytest.mark.parametrize("name", ["ledger.db", "a ledger\\of mine.db"])
def test_a_ledger_that_is_mounted_by_itself_is_refused(tmp_path, monkeypatch, name):
    """Its log would stay in the container: the message says to mount the folder, which is what works."""
    path, mounts = tmp_path / name, tmp_path / "mountinfo"
    SqliteStore(f"sqlite:///{path}", create=True).close()
    escaped = str(path).replace("\\", r"\134").replace(" ", r"\040")
    monkeypatch.setattr(sqlite_file, "_MOUNTS", mounts)
    mounts.write_text(f"31 1 8:1 /srv {tmp_path} rw - ext4 /dev/sda1 rw\n")
    SqliteStore(f"sqlite:///{path}").close()
    mounts.write_text(f"31 1 8:1 / / rw - ext4 x rw\n32 31 8:1 /srv/l.db {escaped} rw,relatime - ext4 /dev/sda1 rw\n")
    for create in (False, True):
        with pytest.raises(StoreError, match="Mount its folder instead"):
            SqliteStore(f"sqlite:///{path}", create=create)
    mounts.unlink()
    SqliteStore(f"sqlite:///{path}").close()


def test_a_ledger_that_is_really_mounted_by_itself_is_refused(path, store, tmp_path, need):
    """What the system says of such a mount is understood."""
    inside = tmp_path / "inside.db"
    inside.touch()
    script = 'mount --bind "$0" "$1" && exec "$2" -m pokayoke.cli ledger list --store "sqlite:///$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, path, inside, sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "mount: " in done.stderr or "unshare: " in done.stderr:
        need(f"rights to mount: {done.stderr.strip()}")
    assert (done.returncode, "Mount its folder instead" in done.stderr) == (2, True)


def test_a_copy_is_another_file(path, store):
    """A backup that is put back under the name of an open ledger is noticed, though its id is the same."""
    claim(store)
    shutil.copy(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)
    both_refuse(store, "is another file than the one that was opened")


def test_a_deleted_file_is_noticed_and_not_made_anew(path, store):
    """A deleted ledger is an error at the next act; no new file appears."""
    claim(store)
    path.unlink()
    both_refuse(store, r"there is no ledger at .*put the file back")
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 4096, 20_000])
def test_a_file_that_was_cut_off_is_noticed(path, store, size):
    """A shorter file than before is refused before anything is written."""
    claim(store)
    os.truncate(path, size)
    both_refuse(store, "is shorter than before")
    assert path.stat().st_size == size


def test_a_file_that_came_back_is_used_again(path, store):
    """After the right file is back at its place, the store goes on."""
    claim(store)
    path.rename(f"{path}.away")
    with pytest.raises(StoreError, match="there is no ledger"):
        claim(store, "k2")
    Path(f"{path}.away").rename(path)
    assert claim(store, "k2").kind == "execute"
    assert store.record("k").state == "executing"


def test_another_ledger_in_the_same_file_is_noticed(path, store):
    """A file whose ledger changed its id is refused."""
    conn = apsw.Connection(str(path))
    conn.execute("UPDATE pokayoke_meta SET value = 'other' WHERE name = 'ledger_id'")
    conn.close()
    with pytest.raises(StoreError, match="holds another ledger than before"):
        claim(store)


@pytest.mark.parametrize("offset", [0, 4096 * 2, 4096 * 5])
def test_damage_is_found_when_opening(path, opened, offset):
    """Overwritten pages are found before the first act; the file is left as it is."""
    first = opened(create=True)
    for number in range(20):
        claim(first, f"k{number}")
    first.close()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xa5" * 3_000)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"is damaged|is no database"):
        opened()
    assert path.read_bytes() == before


def test_damage_while_open_ends_in_an_error(path, opened):
    """A page that is overwritten while the store is open refuses the act that meets it, and nothing hangs."""
    first = opened(create=True)
    for number in range(200):
        claim(first, f"k{number}")
    first._writer._connection.fetch("PRAGMA wal_checkpoint(TRUNCATE)")
    first._writer._connection.close()
    first._reader._connection.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(StoreError, match="is damaged"):
        claim(first, "k1")
    with pytest.raises(StoreError, match="is damaged"):
        first.record("k1")


# -- versions -------------------------------------------------------------------------------------


def at_version(path, version):
    conn = apsw.Connection(str(path))
    conn.set_busy_timeout(5_000)
    conn.execute("UPDATE pokayoke_meta SET value = ? WHERE name = 'schema_version'", (str(version),))
    conn.close()


def test_a_newer_ledger_is_read_and_not_written(path, store, opened):
    """A version that this program does not know: open stores and new ones refuse to write, and go on reading."""
    claim(store)
    at_version(path, 99)
    for one in (store, opened()):
        with pytest.raises(StoreError, match=r"version 99 .* upgrade pokayoke"):
            claim(one, "k2")
        assert one.record("k").state == "executing"
    with pytest.raises(StoreError, match="upgrade pokayoke"):
        opened(create=True)
    at_version(path, schema.latest_version())
    assert claim(store, "k2").kind == "execute"


def test_an_older_ledger_waits_for_the_command(path, store, opened, monkeypatch):
    """An older version is not migrated by opening, but by `create`."""
    newest = schema.latest_version()
    more = schema.Migration(newest + 1, ("CREATE TABLE pokayoke_new (x)",))
    steps = (*schema.load_migrations(sqlite_install.SQLITE), more)
    monkeypatch.setattr(schema, "load_migrations", lambda _: steps)
    with pytest.raises(StoreError, match=rf"has version {newest} .*pokayoke ledger migrate --store sqlite:///"):
        opened()
    assert claim(opened(create=True)).kind == "execute"
    assert claim(opened(), "k2").kind == "execute"


# -- other processes ------------------------------------------------------------------------------


def test_a_ledger_that_stays_locked_refuses_in_time(path, store):
    """While another holds a transaction open, a write is refused after the limit; then it goes through."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"stayed locked for 0\.3 seconds: .* nothing was written"):
        claim(store)
    assert store.record("k") is None
    other.execute("ROLLBACK")
    assert claim(store).kind == "execute"
    other.close()


def test_a_waiting_write_goes_through_when_the_lock_is_gone(path, opened):
    """Within the limit a write waits for another process."""
    store = opened(create=True)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, lambda: other.execute("COMMIT")).start()
    assert claim(store).kind == "execute"
    other.close()


CHILD = """
import sys
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.stores import open_store
store = open_store(sys.argv[1])
for n in range(40):
    key = sys.argv[2] + str(n)
    wish = Claim(key, "h", sys.argv[2], "pay", "pay@1", "r", 100.0, 10.0)
    assert store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, wish)).kind == "execute"
    assert store.settle(Settlement(key, sys.argv[2], "completed", 101.0)).accepted
store.close()
"""


def test_processes_share_a_ledger(path, store):
    """Four processes write at once: none is refused and nothing is lost."""
    running = [subprocess.Popen([sys.executable, "-c", CHILD, f"sqlite:///{path}", name]) for name in "abcd"]
    assert [process.wait(timeout=50) for process in running] == [0] * 4
    assert len(store.records(RecordQuery(states=("completed",)))) == 160


def test_a_full_disk_refuses_and_recovers(path, store, monkeypatch):
    """Without room nothing is written and the message says so; with room the store goes on."""
    claim(store)
    pages = store._writer._connection.fetch("PRAGMA page_count")[0][0]
    store._writer._connection.fetch(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="the disk is full"):
        store.settle(done(output=b"x" * 100_000))
    assert store.record("k").state == "executing"
    store._writer._connection.fetch("PRAGMA max_page_count = 1000000")
    assert store.settle(done(output=b"x" * 100_000)).accepted


@pytest.fixture
def public():
    """A folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_missing_rights_are_named(public):
    """A file or folder that may not be written is an error when opening, with what to change."""
    path = public / "ledger.db"
    SqliteStore(f"sqlite:///{path}", create=True).close()
    path.chmod(0o444)
    said = as_nobody(lambda: str(SqliteStore(f"sqlite:///{path}")))
    assert "may not be read and written by this process: change its owner" in said
    path.chmod(0o666)
    public.chmod(0o555)
    said = as_nobody(lambda: str(claim(SqliteStore(f"sqlite:///{path}")).kind))
    assert said.startswith("StoreError: ")
    assert "folder" in said
    said = as_nobody(lambda: str(SqliteStore(f"sqlite:///{public}/new.db", create=True)))
    assert said.startswith("StoreError: ")
    assert "cannot be reached (Permission denied): check its folder and who owns it" in said


# -- two libraries --------------------------------------------------------------------------------


def test_two_libraries_never_open_one_file(path, store):
    """What one SQLite library of this process has open, a store with the other refuses: they destroy a file."""
    claim(store)
    with pytest.raises(StoreError, match=r"another SQLite library.*\?library=apsw"):
        SqliteStore(f"sqlite:///{path}?library=sqlite3")
    store.close()
    theirs = SqliteStore(f"sqlite:///{path}?library=sqlite3")
    claim(theirs, "k2")
    with pytest.raises(StoreError, match=r"another SQLite library.*\?library=sqlite3"):
        SqliteStore(f"sqlite:///{path}")
    theirs.close()
    again = SqliteStore(f"sqlite:///{path}")
    assert len(again.records(RecordQuery())) == 2
    again.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not tell which files are open")
def test_the_users_own_connection_counts(path, store, monkeypatch):
    """A file that the user has open through `sqlite3` is refused; one open through `apsw` is not."""
    store.close()
    monkeypatch.setattr(apsw, "connections", list)
    theirs = sqlite3.connect(path)
    theirs.execute("SELECT * FROM pokayoke_meta")
    with pytest.raises(StoreError, match="another SQLite library"):
        SqliteStore(f"sqlite:///{path}")
    theirs.close()
    monkeypatch.undo()
    right = apsw.Connection(str(path))
    right.execute("SELECT * FROM pokayoke_meta").fetchall()
    SqliteStore(f"sqlite:///{path}").close()
    right.close()


# -- the user's own transaction -------------------------------------------------------------------


@pytest.fixture(params=["apsw", "sqlite3"])
def shop(request, path):
    """A business database with a ledger in it, the store, and a connection of the user through the same library."""
    if request.param == "apsw":
        conn = apsw.Connection(str(path))
    else:
        conn = sqlite3.connect(path, isolation_level=None)
        conn.row_factory = sqlite3.Row
    conn.execute("CREATE TABLE orders (id)")
    store = SqliteStore(f"sqlite:///{path}?library={request.param}", create=True, limit=0.3)
    claim(store)
    yield store, conn
    store.close()
    conn.close()


def orders(conn):
    return [row[0] for row in conn.execute("SELECT id FROM orders")]


def test_an_effect_and_its_completion_commit_together(shop):
    """In the user's transaction both happen; before the commit nobody sees either, after it both."""
    store, conn = shop
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO orders VALUES (7)")
    assert store.settle_on(conn, done(reference="7", early=True))
    assert store.record("k").state == "executing"
    conn.execute("COMMIT")
    record = store.record("k")
    assert (record.state, record.reference, record.settled_at, orders(conn)) == ("completed", "7", None, [7])
    assert store.settle(done(output=b"1")).accepted


def test_an_effect_and_its_completion_roll_back_together(shop):
    """After a rollback neither the effect nor the record is there, and the claim still stands."""
    store, conn = shop
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO orders VALUES (7)")
    assert store.settle_on(conn, done(early=True))
    conn.execute("ROLLBACK")
    assert (store.record("k").state, orders(conn)) == ("executing", [])
    assert store.settle(done()).accepted


def test_a_lost_claim_is_said_in_the_users_transaction(shop):
    """Who lost the claim is told False: their transaction can still be rolled back as a whole."""
    store, conn = shop
    conn.execute("BEGIN IMMEDIATE")
    assert not store.settle_on(conn, done(claim_id="c9", early=True))
    conn.execute("ROLLBACK")
    assert store.record("k").state == "executing"
    assert store.audit() == ()


async def test_the_asynchronous_twin_does_the_same(shop):
    """`asettle_on` settles in the user's transaction, too."""
    store, conn = shop
    conn.execute("BEGIN IMMEDIATE")
    assert await store.asettle_on(conn, done(early=True))
    conn.execute("COMMIT")
    assert store.record("k").state == "completed"


def test_a_transaction_has_to_be_open(shop):
    """Without a transaction the completion would be committed at once: that is refused."""
    store, conn = shop
    with pytest.raises(StoreError, match="no open transaction: execute BEGIN IMMEDIATE"):
        store.settle_on(conn, done(early=True))
    assert store.record("k").state == "executing"


def test_what_wraps_a_connection_is_unwrapped(shop):
    """SQLAlchemy's connection holds the driver's two levels down, a cursor one."""
    store, conn = shop

    class Pooled:
        driver_connection = conn

    class Fairy:
        connection = Pooled()

    class Older:
        dbapi_connection = conn

    class Old:
        connection = Older()

    for number, wrapped in enumerate((Fairy(), Old(), conn.cursor())):
        claim(store, f"w{number}")
        conn.execute("BEGIN IMMEDIATE")
        assert store.settle_on(wrapped, done(f"w{number}", early=True))
        conn.execute("COMMIT")


def test_the_connection_has_to_lead_to_the_ledger(shop, tmp_path):
    """Another file, a copy of the ledger and a database in memory are refused, with both names."""
    store, conn = shop
    kind = type(conn)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
    for place, said in ((tmp_path / "copy.db", "copy.db"), (":memory:", "a database in memory")):
        other = kind(str(place))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=f"leads to .*{said}, the ledger is in .*ledger.db"):
            store.settle_on(other, done(early=True))
        other.close()


@pytest.mark.parametrize("conn", [None, "text", object()])
def test_what_is_no_connection_is_refused(store, conn):
    """Anything else is an error that names its type."""
    with pytest.raises(StoreError, match=type(conn).__name__):
        store.settle_on(conn, done(early=True))


def test_a_connection_of_the_other_library_is_refused(store, tmp_path):
    """A `sqlite3` connection cannot complete an effect in a file that the store has open through apsw."""
    conn = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    with pytest.raises(StoreError, match=r"sqlite3\.Connection cannot .* two SQLite libraries .*\?library=sqlite3"):
        store.settle_on(conn, done(early=True))
    conn.close()


def test_a_snapshot_that_is_too_old_is_an_error_with_words(path, store):
    """A deferred transaction that began before another write cannot write: the effect is not completed."""
    claim(store)
    conn = apsw.Connection(str(path))
    conn.execute("BEGIN")
    conn.execute("SELECT * FROM pokayoke_records").fetchall()
    claim(store, "k2")
    with pytest.raises(StoreError, match="locked"):
        store.settle_on(conn, done(early=True))
    conn.execute("ROLLBACK")
    conn.close()


def test_a_newer_ledger_is_not_written_by_a_guest(path, store):
    """The user's transaction does not write to tables that this program does not know."""
    claim(store)
    at_version(path, 99)
    conn = apsw.Connection(str(path))
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="upgrade pokayoke"):
        store.settle_on(conn, done(early=True))
    conn.close()


# -- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(sqlite_file._ERROR_TEXTS))
def test_every_failure_of_the_file_has_words(code):
    """Each code of SQLite that concerns the whole file is told with its path, and without gaps."""
    place = sqlite_file.SqliteLocation("sqlite:///x.db", "/x.db", 10.0, None)
    error = apsw.Error("why")
    error.result = code | 0x100
    said = sqlite_file.error_message(error, place)
    assert said.startswith("/x.db ")
    assert "{" not in said
    assert sqlite_file.is_file_failure(error)
    assert not sqlite_file.is_file_failure(apsw.ConstraintError("x"))
