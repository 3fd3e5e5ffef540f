"""A completion inside the user's own PostgreSQL transaction: effect and record are one commit, or neither."""

import threading
import time

import psycopg
import pytest
from pgacts import done, wish
from pgserver import Missing, empty_schema

from pokayoke.errors import StoreError
from pokayoke.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.xdist_group("postgres")

sqlalchemy = pytest.importorskip("sqlalchemy")
asynchronous = pytest.importorskip("sqlalchemy.ext.asyncio")

DRIVERS = ["psycopg", "psycopg2"]
ASYNC_DRIVERS = ["psycopg", "asyncpg"]


@pytest.fixture
def url(need):
    """A schema with the tables and one of the user's."""
    try:
        with empty_schema() as found:
            PostgresStore(found, create=True).close()
            with psycopg.connect(found, autocommit=True) as conn:
                conn.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
            yield found
    except Missing as missing:
        need(str(missing))


@pytest.fixture
def store(url):
    """A store with a claim on `k`."""
    store = PostgresStore(url)
    assert store.admit(wish("k")).kind == "execute"
    yield store
    store.close()


def early(claim_id="c1"):
    """What `this_effect().complete(conn)` reports."""
    return done("k", claim_id, None, early=True, reference="order 7")


def orders(url):
    """What the user's table holds."""
    with psycopg.connect(url) as conn:
        return [number for (number,) in conn.execute("SELECT id FROM orders")]


def engine(url, driver, make=None):
    """An engine of SQLAlchemy for the schema."""
    pytest.importorskip(driver)
    known = psycopg.conninfo.conninfo_to_dict(url)
    at = f"postgresql+{driver}://{known['user']}@{known['host']}:{known.get('port', 5432)}/{known['dbname']}"
    schema = known["options"].partition("=")[2]
    arguments = {"server_settings": {"search_path": schema}} if driver == "asyncpg" else {"options": known["options"]}
    return (make or sqlalchemy.create_engine)(at, connect_args=arguments)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("autocommit", [True, False])
def test_the_record_follows_the_users_commit(store, url, commits, autocommit):
    """With psycopg: after a commit effect and record are there; after a rollback neither is."""
    with psycopg.connect(url, autocommit=autocommit) as conn:
        try:
            with conn.transaction():
                conn.execute("INSERT INTO orders VALUES (7)")
                assert store.settle_on(conn, early())
                if not commits:
                    raise psycopg.Rollback
        finally:
            conn.rollback()
    assert orders(url) == ([7] if commits else [])
    record = store.record("k")
    assert (record.state, record.settled_at) == ("completed" if commits else "executing", None)
    assert record.reference == ("order 7" if commits else "")


def test_a_newer_ledger_is_not_written_by_a_guest(store, url):
    """Migrated while the tool was at work: this program does not know its tables, and the user rolls back."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("UPDATE pokayoke_meta SET value = '9999' WHERE name = 'schema_version'")
        with pytest.raises(StoreError, match="version 9999"), conn.transaction():
            store.settle_on(conn, early())
    assert store.record("k").state == "executing"


def test_it_commits_nothing_by_itself(store, url):
    """After `settle_on` the user's transaction is still open, and nobody else sees its record."""
    with psycopg.connect(url) as conn:
        assert store.settle_on(conn, early())
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        assert store.record("k").state == "executing"
        conn.rollback()


@pytest.mark.parametrize("driver", DRIVERS)
def test_sqlalchemy_connections_work(store, url, driver):
    """A connection of SQLAlchemy, in its transaction."""
    made = engine(url, driver)
    with made.begin() as conn:
        conn.execute(sqlalchemy.text("INSERT INTO orders VALUES (7)"))
        assert store.settle_on(conn, early())
    made.dispose()
    assert (orders(url), store.record("k").state) == ([7], "completed")
    assert store.settle(done("k")).record.output == b'{"ok":true}'


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
async def test_asynchronous_sqlalchemy_connections_work(store, url, driver):
    """An asynchronous connection of SQLAlchemy: commit and rollback decide."""
    made = engine(url, driver, asynchronous.create_async_engine)
    async with made.connect() as conn:
        assert await store.asettle_on(conn, early())
        await conn.rollback()
    assert store.record("k").state == "executing"
    async with made.begin() as conn:
        await conn.execute(sqlalchemy.text("INSERT INTO orders VALUES (7)"))
        assert await store.asettle_on(conn, early())
    await made.dispose()
    assert (orders(url), store.record("k").state) == ([7], "completed")


async def test_asynchronous_psycopg_connections_work(store, url):
    """An asynchronous connection of psycopg, with rows of another shape than ours."""
    async with await psycopg.AsyncConnection.connect(url, row_factory=psycopg.rows.dict_row) as conn:
        await conn.execute("INSERT INTO orders VALUES (7)")
        assert await store.asettle_on(conn, early())
    assert (orders(url), store.record("k").state) == ([7], "completed")


def test_rows_of_another_shape_do_not_matter(store, url):
    """The user's connection makes dicts of rows."""
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as conn:
        assert store.settle_on(conn, early())
    assert store.record("k").state == "completed"


def test_a_lost_claim_is_not_accepted(store, url):
    """Another call's claim: not accepted, and the record stays as it is."""
    with psycopg.connect(url) as conn:
        assert not store.settle_on(conn, early("somebody"))
    assert store.record("k").state == "executing"
    assert [entry.kind for entry in store.audit()] == ["late_effect"]


async def test_a_connection_that_commits_by_itself_is_refused(store, url):
    """Without a transaction effect and record would be two commits; psycopg and SQLAlchemy, both ways."""
    with psycopg.connect(url, autocommit=True) as conn, pytest.raises(StoreError, match="open a transaction first"):
        store.settle_on(conn, early())
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        with pytest.raises(StoreError, match="open a transaction first"):
            await store.asettle_on(conn, early())
    made = engine(url, "psycopg")
    alone = made.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as conn, pytest.raises(StoreError, match="open a transaction first"):
        store.settle_on(conn, early())
    made.dispose()
    assert store.record("k").state == "executing"


def test_another_ledger_is_refused(store):
    """A connection to another ledger: told, and nothing is written there."""
    with empty_schema() as elsewhere:
        other = PostgresStore(elsewhere, create=True)
        with psycopg.connect(elsewhere) as conn, pytest.raises(StoreError, match=other.ledger_id):
            store.settle_on(conn, early())
        other.close()
    assert store.record("k").state == "executing"


@pytest.mark.parametrize("kind", ["psycopg", "sqlalchemy"])
def test_a_database_without_a_ledger_is_refused(store, kind):
    """A connection to a database without our tables is told so in words."""
    with empty_schema() as elsewhere:
        if kind == "psycopg":
            with psycopg.connect(elsewhere) as conn, pytest.raises(StoreError, match="leads to no ledger"):
                store.settle_on(conn, early())
        else:
            made = engine(elsewhere, "psycopg")
            with made.connect() as conn, pytest.raises(StoreError, match="leads to no ledger"):
                store.settle_on(conn, early())
            made.dispose()


@pytest.mark.parametrize("conn", [None, "postgresql://h/d", object()])
async def test_what_is_no_connection_is_refused(store, conn):
    """Anything else names what to pass."""
    with pytest.raises(StoreError, match=r"pass psycopg\.Connection"):
        store.settle_on(conn, early())
    with pytest.raises(StoreError, match=r"pass psycopg\.AsyncConnection"):
        await store.asettle_on(conn, early())


def test_another_database_of_sqlalchemy_is_refused(store):
    """A connection to SQLite cannot complete what PostgreSQL holds."""
    made = sqlalchemy.create_engine("sqlite://")
    with made.connect() as conn, pytest.raises(StoreError, match="PostgreSQL, not to sqlite"):
        store.settle_on(conn, early())
    made.dispose()


def test_others_wait_for_the_users_commit(store, url):
    """While the user's transaction is open, an act on the same key waits; then it sees the completion."""
    answers = []
    with psycopg.connect(url) as conn:
        assert store.settle_on(conn, early())
        thread = threading.Thread(target=lambda: answers.append(store.settle(done("k"))))
        thread.start()
        time.sleep(0.2)
        assert not answers
        conn.commit()
    thread.join()
    assert answers[0].accepted
    assert answers[0].record.reference == "order 7"
