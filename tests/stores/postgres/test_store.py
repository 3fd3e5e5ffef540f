"""The PostgreSQL store on a healthy server: URLs, tables, connections, event loops, forks, poolers."""

import asyncio
import gc
import linecache
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import uuid
from urllib.parse import urlsplit

import psycopg
import pytest
from pgacts import done, line, wish
from pgserver import SERVER, Missing, empty_schema, joined
from tcpproxy import Proxy

from pokayoke.core.ledger.admission import Charge
from pokayoke.errors import StoreError
from pokayoke.stores.postgres import exchange, transaction
from pokayoke.stores.postgres import pool as postgres_link
from pokayoke.stores.postgres import store as postgres
from pokayoke.stores.postgres.store import PostgresStore
from pokayoke.stores.postgres.transaction import lock_statement
from pokayoke.stores.postgres.url import parse_url
from pokayoke.stores.sql import migrations as schema
from pokayoke.stores.sql.dialect import POSTGRES
from pokayoke.stores.sql.statements import MIGRATION, AdvisoryLock
from pokayoke.stores.values import RecordQuery

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def url(need):
    """An empty schema."""
    try:
        with empty_schema() as found:
            yield found
    except Missing as missing:
        need(str(missing))


@pytest.fixture
def store(url):
    """A store with its tables."""
    store = PostgresStore(url, create=True)
    yield store
    store.close()


def sql(url, text, *values):
    """Carry out a statement beside the store."""
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(text, values)
        return cursor.fetchall() if cursor.description else []


def hold(conn, name):
    """Take a lock of the store beside it."""
    statement, values = lock_statement((AdvisoryLock(name),))
    conn.execute(POSTGRES.with_placeholders(statement), values)


# -- the URL --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h/d", (10.0, 10, True)),
        ("postgres://h/d?act_timeout=2.5", (2.5, 10, True)),
        ("postgresql+psycopg://h/d", (10.0, 10, True)),
        ("postgresql://h/d?sslmode=disable&pool_size=3&prepare=off", (10.0, 3, False)),
    ],
)
def test_a_url_says_how_patient_and_how_many(url, expected):
    """Our own parameters are read and taken out; libpq never sees them."""
    at = parse_url(url)
    assert (at.act_timeout, at.pool_size, at.prepare) == expected
    found = psycopg.conninfo.conninfo_to_dict(at.conninfo)
    assert not set(found) & {"act_timeout", "pool_size", "prepare"}
    assert found["host"] == "h"
    assert found.get("sslmode") == ("disable" if "sslmode" in url else None)


def test_what_bounds_a_dead_peer_is_set_unless_the_url_says_otherwise():
    """TCP notices a dead peer within the time of an act; a value of the URL wins."""
    at = psycopg.conninfo.conninfo_to_dict(parse_url("postgresql://h/d?act_timeout=4&keepalives_idle=77").conninfo)
    assert (at["tcp_user_timeout"], at["keepalives_idle"]) == ("4000", "77")


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        ("postgresql://h/d", 10),
        ("postgresql://h/d?connect_timeout=3", 3),
        ("postgresql://h/d?connect_timeout=0", 10),
        ("postgresql://h/d?connect_timeout=99", 10),
        ("postgresql://h/d?connect_timeout=1", 2),
        ("postgresql://h,i:5433/d", 3),
        ("postgresql://h,i,j,k,l/d", 2),
        ("postgresql:///d?host=h,i&connect_timeout=2", 2),
    ],
)
def test_each_of_several_servers_gets_a_part_of_the_time(url, seconds):
    """A server that is silent leaves time for the next one; a smaller limit of the URL holds, libpq's least is 2."""
    assert parse_url(url).connect_timeout(10.0) == seconds


@pytest.mark.usefixtures("url")
def test_a_silent_server_is_passed_over():
    """The first of two servers takes the connection and never answers: the second one is reached in time."""
    server = urlsplit(SERVER)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        both = f"{silent.getsockname()[0]}:{silent.getsockname()[1]},{server.hostname}:{server.port or 5432}"
        url = server._replace(netloc=f"{server.username or 'postgres'}@{both}").geturl()
        with pytest.raises(StoreError, match="holds no ledger"):
            PostgresStore(joined(url, "act_timeout=6", "options=-csearch_path%3Dnone"))


def test_a_session_is_never_in_another_encoding(monkeypatch):
    """Whatever the environment prefers, every text can be reported."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    at = psycopg.conninfo.conninfo_to_dict(parse_url("postgresql://h/d?client_encoding=SQL_ASCII").conninfo)
    assert at["client_encoding"] == "UTF8"


@pytest.mark.usefixtures("url")
def test_a_database_that_cannot_hold_every_text_is_refused():
    """A database in LATIN1 is no place for a ledger: said when it is opened, before any claim."""
    name = f"pokayoke_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(SERVER, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StoreError, match="encoded in LATIN1"):
            PostgresStore(urlsplit(SERVER)._replace(path=f"/{name}").geturl(), create=True)
    finally:
        with psycopg.connect(SERVER, autocommit=True) as conn:
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:hunter2%@h/d", "percent notation"),
        ("postgresql://u:hunter2@h/d?nonsense=1", "cannot be read"),
        ("postgresql://u:hunter2@h/d?act_timeout=soon", "act_timeout='soon'"),
        ("postgresql://u:hunter2@h/d?act_timeout=nan", "act_timeout='nan'"),
        ("postgresql://u:hunter2@h/d?act_timeout=1e10", "act_timeout='1e10' .* from 0.1 to 86400"),
        ("postgresql://u:hunter2@h/d?connect_timeout=1e10", "connect_timeout='1e10'"),
        ("postgresql://u:hunter2@h/d?pool_size=0", "pool_size='0'"),
        ("postgresql://u:hunter2@h/d?pool_size=1e300", "pool_size='1e300'"),
        ("postgresql://u:hunter2@h/d?prepare=maybe", "prepare='maybe'"),
    ],
)
def test_a_bad_url_is_told_without_its_password(url, words):
    """The message names what is wrong and never shows the password."""
    with pytest.raises(StoreError, match=words) as refused:
        PostgresStore(url)
    assert "hunter2" not in str(refused.value)


def test_an_unreachable_server_is_told_at_once_and_without_the_password():
    """Nothing listens: the reason comes with the place, before the time of an act is over."""
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9/d: .*refused.*nothing was written") as refused:
        PostgresStore("postgresql://u:hunter2@127.0.0.1:9/d?act_timeout=30")
    assert "hunter2" not in str(refused.value)
    assert time.monotonic() - began < 15


# -- the tables -----------------------------------------------------------------------------------


def test_missing_tables_are_an_error_that_names_the_command(url):
    """A database without a ledger is never taken for an empty one."""
    with pytest.raises(StoreError, match="pokayoke ledger init --store URL"):
        PostgresStore(url)


def test_tables_that_vanish_stop_every_act(store, url):
    """Tables that were dropped under an open store are named, not made anew."""
    sql(url, "DROP TABLE pokayoke_records")
    with pytest.raises(StoreError, match=r"tables are missing.*nothing was written"):
        store.admit(wish("k"))


def test_a_ledger_keeps_its_id(store, url):
    """Opening and making again finds the same ledger."""
    for create in (False, True):
        other = PostgresStore(url, create=create)
        assert other.ledger_id == store.ledger_id != ""
        other.close()


@pytest.mark.parametrize("create", [False, True])
def test_a_newer_ledger_is_refused(store, url, create):
    """A program that does not know the tables writes nothing (fault 51)."""
    sql(url, "UPDATE pokayoke_meta SET value = '9999' WHERE name = 'schema_version'")
    with pytest.raises(StoreError, match=r"version 9999.*upgrade pokayoke"):
        PostgresStore(url, create=create)
    assert sql(url, "SELECT value FROM pokayoke_meta WHERE name = 'schema_version'") == [("9999",)]


def test_an_older_ledger_names_the_command(store, url, monkeypatch):
    """A program that needs newer tables does not bring them up to date unasked."""
    monkeypatch.setattr(schema, "latest_version", lambda: 9_999)
    with pytest.raises(StoreError, match=r"needs 9999.*ledger migrate"):
        PostgresStore(url)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE pokayoke_meta SET value = 'other' WHERE name = 'ledger_id'", "another ledger"),
        ("UPDATE pokayoke_meta SET value = '9999' WHERE name = 'schema_version'", "version 9999"),
        ("DELETE FROM pokayoke_meta", r"another ledger \(none\)"),
    ],
)
def test_a_ledger_that_changes_under_an_open_store_is_not_written(store, url, change, words, asynchronous):
    """Replaced, newer, or emptied: each act looks for itself, so nothing that was done before runs again."""
    assert store.admit(wish("k")).kind == "execute"
    sql(url, change)
    sql(url, "DELETE FROM pokayoke_records")
    with pytest.raises(StoreError, match=words):
        asyncio.run(store.aadmit(wish("k"))) if asynchronous else store.admit(wish("k"))
    assert sql(url, "SELECT key FROM pokayoke_records") == []


def test_an_act_that_waited_for_a_migration_looks_after_it(store, url):
    """A migration that is at work is not overtaken, and what it leaves behind is seen."""
    errors = []

    def act():
        with pytest.raises(StoreError) as caught:
            store.admit(wish("k"))
        errors.append(str(caught.value))

    thread = threading.Thread(target=act)
    with psycopg.connect(url) as conn:
        hold(conn, MIGRATION)
        conn.execute("UPDATE pokayoke_meta SET value = '9999' WHERE name = 'schema_version'")
        thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        while thread.is_alive() and conn.execute(waiting).fetchone() == (0,):
            time.sleep(0.01)
        conn.commit()
        thread.join(20)
    assert "version 9999" in errors[0]


def test_many_who_make_the_tables_at_once_make_one_ledger(url):
    """Eight programs start on an empty database: one makes the tables, all find the same ledger (fault 51)."""
    ids, failures = [], []

    def start():
        try:
            store = PostgresStore(url, create=True)
            ids.append(store.ledger_id)
            store.close()
        except Exception as error:
            failures.append(error)

    _together([start] * 8)
    assert failures == []
    assert len(ids) == 8
    assert len(set(ids)) == 1


# -- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda store, n: store.admit(wish(f"k{n}")), 1),
        (lambda store, n: store.settle(done(f"warm{n}")), 1),
        (lambda store, n: store.admit(wish(f"warm{n}", "other")), 2),
        (lambda store, n: store.admit(wish(f"far{n}", "other")), 3),
        (lambda store, n: store.admit(wish(f"k{n}", charges=(Charge("day", 5, 100.0, 7.0),))), 2),
    ],
    ids=["claim", "settlement", "repetition", "repetition of another process", "limit"],
)
def test_an_act_is_one_exchange_where_its_rows_are_expected(store, url, act, expected):
    """A claim of something new, and its settlement; what writes nothing has two, and what is mistaken two more.

    A server that is busy with others may refuse an expectation, so one of three tries has to show it.
    """
    for number in range(3):
        store.admit(wish(f"far{number}"))
    bare = psycopg.conninfo.conninfo_to_dict(url)
    found = []
    with Proxy(f"postgresql://{bare['user']}@{bare['host']}:{bare.get('port', 5432)}/{bare['dbname']}") as proxy:
        near = PostgresStore(joined(proxy.url, f"options={bare['options'].replace('=', '%3D')}"))
        for number in range(8):
            near.admit(wish(f"warm{number}"))
        turns = []
        proxy.cut = lambda direction, chunk: turns.append(direction) or False
        for number in range(3):
            turns.clear()
            act(near, number)
            heard = list(turns)
            found.append("".join(after for before, after in zip(["", *heard], heard, strict=False) if before != after))
        near.close()
    assert "><" * expected in found


def test_without_pipelines_everything_works_the_same(store, monkeypatch):
    """An old libpq sends one statement at a time."""
    for module in (exchange, transaction):
        monkeypatch.setattr(module, "PIPELINE", False)
    assert store.admit(wish("k")).kind == "execute"
    assert store.settle(done("k")).accepted
    assert asyncio.run(store.aadmit(wish("k", "c2"))).kind == "replay"
    with pytest.raises(StoreError, match="no approval"):
        store.answer("nobody", approved=True, by="me", reason="", now=1.0)
    assert store.record("k").state == "completed"


def test_a_refused_act_leaves_its_connection_usable(store):
    """An act that decides to raise is rolled back; its connection serves the next one."""
    store.admit(wish("k"))
    shelf = store._links.pool_for_threads()
    before = list(shelf.free)
    with pytest.raises(StoreError, match="no approval"):
        store.answer("nobody", approved=True, by="me", reason="", now=1.0)
    assert shelf.free == before
    assert all(link.is_usable for link in shelf.free)


def test_no_more_connections_than_allowed(url):
    """A pool of one: who waits too long for it is told so; then it serves again."""
    store = PostgresStore(joined(url, "pool_size=1", "act_timeout=0.5"), create=True)
    shelf = store._links.pool_for_threads()
    link = shelf.acquire_connection(time.monotonic() + 5)
    with pytest.raises(StoreError, match="all 1 connections were in use"):
        store.admit(wish("k"))
    shelf.release_connection(link)
    assert store.admit(wish("k")).kind == "execute"
    assert len(shelf.free) == 1
    store.close()


def test_a_closed_store_says_so_and_holds_nothing(url):
    """After close every act is a StoreError and no connection of the store is left."""
    name = f"pokayoke-{os.getpid()}-{time.monotonic_ns()}"
    store = PostgresStore(joined(url, f"application_name={name}"), create=True)
    store.admit(wish("k"))
    asyncio.run(store.aadmit(wish("k2")))
    assert len(sql(url, "SELECT 1 FROM pg_stat_activity WHERE application_name = %s", name)) == 2
    store.close()
    for act in (lambda: store.admit(wish("k")), lambda: asyncio.run(store.aadmit(wish("k")))):
        with pytest.raises(StoreError, match="closed"):
            act()
    _until(lambda: not sql(url, "SELECT 1 FROM pg_stat_activity WHERE application_name = %s", name))


def test_the_commit_is_durable_whatever_the_session_says(url):
    """A role, a URL or a pooler that turns synchronous_commit off does not reach an act; a stronger one stays."""
    for given, held in (("off", "on"), ("remote_apply", "remote_apply")):
        store = PostgresStore(url.replace("options=", f"options=-csynchronous_commit%3D{given}%20"), create=True)
        seen = []
        shelf = store._links.pool_for_threads()
        link = shelf.free[-1]
        exchange = link.execute_batch

        def spy(statements, exchange=exchange, seen=seen):
            rows = exchange([*statements[:-1], ("SELECT current_setting('synchronous_commit')", ()), statements[-1]])
            seen.append(rows.pop(-2)[0][0])
            return rows

        link.execute_batch = spy
        store.admit(wish(f"{given}-1", charges=(Charge("day", 5, None, 1.0),)))  # in two exchanges
        store.admit(wish(f"{given}-2"))  # in one
        assert seen == [held] * 3
        store.close()


# -- event loops ----------------------------------------------------------------------------------


def test_several_event_loops_one_after_another(store):
    """`asyncio.run` three times: each loop has its own connections, and those of a closed loop are closed."""
    for number in range(3):

        async def acts(number=number):
            answers = await asyncio.gather(*(store.aadmit(wish(f"k{number}-{i}")) for i in range(12)))
            assert {answer.kind for answer in answers} == {"execute"}
            settled = await asyncio.gather(*(store.asettle(done(f"k{number}-{i}")) for i in range(12)))
            assert all(one.accepted for one in settled)

        asyncio.run(acts())
        assert len(store._links._loops) == 1
    assert len(store.records(RecordQuery(states=("completed",)))) == 36


def test_two_event_loops_at_once(store):
    """Loops of two threads use the store at the same time."""

    def loop(name):
        async def acts():
            for number in range(20):
                assert (await store.aadmit(wish(f"{name}{number}"))).kind == "execute"

        asyncio.run(acts())

    _together([lambda: loop("a"), lambda: loop("b")])
    assert len(store.records(RecordQuery())) == 40


async def test_a_cancelled_act_leaves_nothing_behind(store):
    """Acts are cancelled at any moment: afterwards every slot of the pool is free and no lock is held."""
    for number in range(30):
        task = asyncio.create_task(store.aadmit(wish(f"k{number % 3}", f"c{number}")))
        await asyncio.sleep(number * 0.0002)
        task.cancel()
        answer = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(answer, asyncio.CancelledError) or answer.kind in ("execute", "refuse")
    answers = await asyncio.gather(*(store.aadmit(wish(f"n{number}")) for number in range(20)))
    assert {answer.kind for answer in answers} == {"execute"}


async def test_a_task_cancelled_while_the_server_works_is_let_go_at_once(store, url):
    """Cancelled while it waits for a lock in the server: no wait for the server, and the slot is free again."""
    with psycopg.connect(url) as holder:
        hold(holder, "record:k")
        task = asyncio.create_task(store.aadmit(wish("k")))
        while not sql(url, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.01)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 5
    assert store._links.pool_for_loop().free == []
    answers = await asyncio.gather(*(store.aadmit(wish(f"n{number}")) for number in range(20)))
    assert {answer.kind for answer in answers} == {"execute"}


class Interrupt(BaseException):
    """What a signal handler raises."""


def test_an_interrupted_thread_is_let_go_at_once(store, url):
    """Ctrl-C while it waits for a lock in the server: the interrupt comes through, the store stays usable."""

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with psycopg.connect(url) as holder:
            hold(holder, "record:k")
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            began = time.monotonic()
            with pytest.raises(Interrupt):
                store.admit(wish("k"))
            assert time.monotonic() - began < 5
    finally:
        signal.signal(signal.SIGALRM, before)
    assert store._links.pool_for_threads().free == []
    assert store.admit(wish("k2")).kind == "execute"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_line_takes_no_connection_along(url):
    """Wherever Ctrl-C arrives in taking a connection or giving it back, others go on with the only one there may be."""
    store = PostgresStore(joined(url, "pool_size=1"), create=True)
    files = {threading.__file__, postgres.__file__, postgres_link.__file__}

    def is_place(frame, event):
        code = frame.f_code
        if event != "line" or code.co_filename not in files or code.co_name in ("__del__", "current_thread"):
            return False
        # Nothing runs at a "try:", and no signal is looked at there.
        return linecache.getline(code.co_filename, frame.f_lineno).strip() != "try:"

    number, left = 0, True
    while left:
        number += 1
        left = number

        def trace(frame, event, _):
            nonlocal left
            if left and is_place(frame, event):
                left -= 1
                if not left:
                    raise Interrupt
            return trace

        interrupted = False
        before = sys.gettrace()  # coverage may watch
        sys.settrace(trace)
        try:
            store.admit(wish(f"k{number}"))
        except Interrupt:
            interrupted = True
        finally:
            sys.settrace(before)
        answers = []
        thread = threading.Thread(
            target=lambda n=number, a=answers: a.append(store.admit(wish(f"a{n}")).kind), daemon=True
        )
        thread.start()
        thread.join(20)
        assert answers == ["execute"], number
        left = interrupted
    assert number > 50
    store.close()
    gc.collect()  # what was interrupted says so when it goes, and must not say it in another test


# -- forks ----------------------------------------------------------------------------------------


def test_a_forked_process_opens_its_own_connections(store):
    """The child works, while the parent's connections stay untouched and usable (fault 46)."""
    store.admit(wish("before"))
    parents = {link.info.backend_pid for link in store._links.pool_for_threads().free}
    assert parents
    pid = os.fork()
    if not pid:
        code = 1
        try:
            answer = store.admit(wish("child"))
            own = {link.info.backend_pid for link in store._links.pool_for_threads().free}
            code = 0 if answer.kind == "execute" and own and not own & parents else 2
            store.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.admit(wish("after")).kind == "execute"
    assert {link.info.backend_pid for link in store._links.pool_for_threads().free} == parents
    assert {record.key for record in store.records(RecordQuery())} == {"before", "child", "after"}


def test_a_process_forked_while_threads_act(store):
    """Children forked amid acts of other threads hang on no lock of theirs (fault 46)."""
    stop = threading.Event()

    def busy(name):
        number = 0
        while not stop.is_set():
            store.admit(wish(f"{name}-{number}"))
            number += 1

    threads = [threading.Thread(target=busy, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    codes = []
    for number in range(5):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                code = 0 if store.admit(wish(f"child-{number}")).kind == "execute" else 2
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 5


# -- snapshots and locks --------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_committed_while_it_waited_is_seen(store, url, asynchronous):
    """An act that waits for a lock reads what its holder has committed meanwhile: its snapshots begin after it."""
    answers = []

    def second():
        answers.append(asyncio.run(store.aadmit(wish("k", "c2"))) if asynchronous else store.admit(wish("k", "c2")))

    first = PostgresStore(url)
    with psycopg.connect(url) as holder:
        hold(holder, "record:k")
        thread = threading.Thread(target=second)
        thread.start()
        _until(lambda: sql(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") != [(0,)])
        # The holder of the lock now writes the record, as an act of another process would.
        holder.execute(
            "INSERT INTO pokayoke_records VALUES ('k','h1','completed',1,'c1',0,'pay','pay@1','r',0,'',0,'',NULL,"
            "1,1,'','','','',convert_to('{\"n\":1}','UTF8'))"
        )
        holder.commit()
    thread.join()
    first.close()
    assert [answer.kind for answer in answers] == ["replay"]
    assert answers[0].record.output == b'{"n":1}'


def test_an_act_that_only_looks_sees_what_was_committed_while_it_waited(store, url):
    """Without a write that could collide, the snapshot alone decides: it begins after the lock is held."""
    seen = []
    with psycopg.connect(url) as holder:
        hold(holder, "run:r")
        thread = threading.Thread(target=lambda: seen.append(store.change_run("r", lambda state: state)[0].calls))
        thread.start()
        _until(lambda: sql(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") != [(0,)])
        holder.execute('INSERT INTO pokayoke_runs VALUES (\'r\', \'{"run_id":"r","calls":7}\', 1)')
        holder.commit()
    thread.join()
    assert seen == [7]


def test_an_act_that_waits_too_long_for_a_lock_gives_up(url):
    """Somebody holds the lock: the act ends in time with a reason, and nothing was written."""
    store = PostgresStore(joined(url, "act_timeout=0.5"), create=True)
    with psycopg.connect(url) as holder:
        hold(holder, "record:k")
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"(held a lock|no answer).*nothing was written"):
            store.admit(wish("k"))
        assert time.monotonic() - began < 10
    assert store.record("k") is None
    store.close()


# -- poolers --------------------------------------------------------------------------------------


def test_behind_a_pooler_nothing_is_prepared(store):
    """A server process that is not the one we were told at the start: no statement is prepared from then on."""
    pool = store._links.pool_for_threads()
    link, pool.server.clock = pool.free[-1], None  # as when the store is new

    class Pooled(type(link.info)):
        backend_pid = -1

    type(link).info = property(lambda self: Pooled(self.pgconn))
    try:
        for number in range(10):
            store.admit(wish(f"k{number}"))
    finally:
        del type(link).info
    assert link.prepared is None


def test_prepare_off_prepares_nothing(url):
    """The URL may say so from the start."""
    store = PostgresStore(joined(url, "prepare=off"), create=True)
    for number in range(10):
        store.admit(wish(f"k{number}"))
    assert not any(link.prepared for link in store._links.pool_for_threads().free)
    store.close()


def test_a_pooler_that_mixes_up_statements_is_found_out(url, monkeypatch):
    """Sessions that hold the names of another client already: one act is tried again, and none prepares any more."""
    connect = postgres_link.Connection.connect

    def connect_mixed_up(**parameters):
        link = connect(**parameters)
        for number in range(8):
            link.execute(f"PREPARE pokayoke{number} AS SELECT 1".encode())
        link.commit()
        return link

    monkeypatch.setattr(postgres_link.Connection, "connect", connect_mixed_up)
    store = PostgresStore(url, create=True)
    assert store.admit(wish("k1")).kind == "execute"
    assert len(store.records(RecordQuery())) == 1
    assert not any(link.prepared for link in store._links.pool_for_threads().free)
    store.close()


def test_acts_survive_a_pooler_that_forgets_sessions(store):
    """Between two acts everything a session knows is discarded, as in transaction pooling: nothing is missed."""
    for number in range(12):
        assert store.admit(wish(f"k{number}")).kind == "execute"
        for link in store._links.pool_for_threads().free:
            link.execute(b"DISCARD ALL" if number % 2 else b"DEALLOCATE ALL")
    assert len(store.records(RecordQuery())) == 12


# -- the rest -------------------------------------------------------------------------------------


def test_a_healthy_server_has_no_weakness(store):
    """Nothing but the missing key is said where fsync and full_page_writes are on, and no standby lags."""
    assert [sentence.partition(":")[0] for sentence in store.weaknesses()] == ["recorded outputs are not sealed"]


def test_pruning_goes_in_small_steps(store, monkeypatch):
    """More records than one transaction forgets are all forgotten, and counted."""
    monkeypatch.setattr("pokayoke.stores.sql.queries.CHUNK", 3)
    for number in range(8):
        store.admit(wish(f"k{number}"))
        store.settle(done(f"k{number}"))
    store.admit(wish("open"))
    assert store.prune(time.time() + 1, by="me", now=time.time()) == 8
    assert [record.key for record in store.records(RecordQuery())] == ["open"]
    assert [(entry.kind, entry.by, entry.data["records"]) for entry in store.audit()] == [
        ("pruned", "me", records) for records in (3, 3, 2)
    ]


def test_processes_share_one_ledger(store, url):
    """Four processes race for twenty keys: each key is executed once."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_claim_all, args=(url, number, queue)) for number in range(4)]
    for worker in workers:
        worker.start()
    won = [key for _ in workers for key in queue.get(timeout=60)]
    for worker in workers:
        worker.join()
    assert sorted(won) == sorted(f"k{number}" for number in range(20))


def _claim_all(url, worker, queue):
    store = PostgresStore(url)
    won = [f"k{n}" for n in range(20) if store.admit(wish(f"k{n}", f"c{worker}")).kind == "execute"]
    store.close()
    queue.put(won)


def test_the_audit_counts_and_pages(store):
    """Lines are numbered in order; a page begins after a number."""
    for number in range(5):
        store.note(line(f"s{number}"))
    numbers = [entry.number for entry in store.audit()]
    assert numbers == sorted(set(numbers))
    assert [entry.subject for entry in store.audit(after=numbers[2], limit=1)] == ["s3"]


def _together(functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def test_an_unescaped_password_is_not_taken_for_a_host_and_a_database():
    """A second @ before the parameters is a mistake, told without repeating the URL."""
    with pytest.raises(StoreError, match="percent notation") as caught:
        parse_url("postgresql://u:p@ss/CANARY@127.0.0.1:1/db")
    assert "CANARY" not in str(caught.value)
    assert parse_url("postgresql://u:p%40ss@127.0.0.1:1/d%40b").name == "127.0.0.1:1/d@b"
