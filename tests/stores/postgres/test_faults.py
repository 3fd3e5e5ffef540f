"""The PostgreSQL store when the network, a backend or the server fails: bounded, and nothing lost or doubled."""

import asyncio
import signal
import threading
import time

import psycopg
import pytest
from pgacts import done, line, wish
from pgserver import Cluster, Missing, joined
from tcpproxy import Proxy, once

from pokayoke.core.ledger.admission import Charge
from pokayoke.errors import StoreError
from pokayoke.stores.postgres.store import PostgresStore
from pokayoke.stores.values import RecordQuery

pytestmark = pytest.mark.xdist_group("postgres")

PATIENCE = 2.0
BOUND = 2 * PATIENCE + 5  # twice the time of an act, and room for a busy machine: it only has to end


@pytest.fixture(scope="module")
def cluster(need):
    """A private PostgreSQL."""
    try:
        with Cluster() as cluster:
            yield cluster
    except Missing as missing:
        need(str(missing))


@pytest.fixture
def url(cluster):
    """An empty database in it."""
    with psycopg.connect(cluster.url, autocommit=True) as conn:
        name = f"t{time.monotonic_ns()}"
        conn.execute(f"CREATE DATABASE {name}")
    yield cluster.url_of(name)
    with psycopg.connect(cluster.url, autocommit=True) as conn:
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def proxy(url):
    """A proxy in front of it."""
    PostgresStore(url, create=True).close()
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture(params=["threads", "event loop"])
def caller(request):
    """Who uses the store."""
    return request.param


@pytest.fixture(params=["one exchange", "two exchanges"])
def exchanges(request):
    """In how many exchanges a claim and a completion are written."""
    return request.param


@pytest.fixture
def near(caller, exchanges, proxy):
    """A store behind the proxy that is used from a thread or from an event loop."""
    store = PostgresStore(joined(proxy.url, f"act_timeout={PATIENCE}", "prepare=off"))
    if exchanges == "two exchanges":
        store._known.find_rows = lambda *_: None
    used = Used(store, asynchronous=caller == "event loop")
    yield used
    store.close()
    used.loop.close()


@pytest.fixture
def commit(exchanges):
    """What the server is sent, and what it answers, where something is committed."""
    return (
        {">": b"RETURNING xmin", "<": b" 1\x00"} if exchanges == "one exchange" else dict.fromkeys("<>", b"COMMIT\x00")
    )


class Used:
    """A store used one way or the other."""

    def __init__(self, store, *, asynchronous):
        self.store, self._asynchronous = store, asynchronous
        self.loop = asyncio.Runner()

    def admit(self, *args, **more):
        request = wish(*args, **more)
        return self.loop.run(self.store.aadmit(request)) if self._asynchronous else self.store.admit(request)

    def settle(self, *args, **more):
        report = done(*args, **more)
        return self.loop.run(self.store.asettle(report)) if self._asynchronous else self.store.settle(report)


def sql(url, text, *values):
    """Carry out a statement beside the store."""
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(text, values)
        return cursor.fetchall() if cursor.description else []


TWO = pytest.mark.parametrize("exchanges", ["two exchanges"], indirect=True)


# -- the answer to COMMIT is lost -----------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_a_claim_whose_commit_was_not_answered_is_kept_once(near, proxy, url, times, commit):
    """Cut between commit and reply: the claim is found again by itself and executes, with one attempt."""
    near.admit("warm")
    proxy.cut = once("<", commit["<"], times)
    answer = near.admit("k")
    assert (answer.kind, answer.record.attempt) == ("execute", 1)
    assert sql(url, "SELECT state, attempt, claim_id FROM pokayoke_records WHERE key = 'k'") == [("executing", 1, "c1")]


def test_a_completion_whose_commit_was_not_answered_is_kept(near, proxy, commit):
    """Cut between commit and reply: the completion is accepted, and no late effect is told."""
    near.admit("k")
    proxy.cut = once("<", commit["<"])
    assert near.settle("k").accepted
    assert near.store.record("k").output == b'{"ok":true}'
    assert near.store.audit() == ()


def test_a_commit_that_never_arrived_is_made_up_for(near, proxy, url, commit):
    """Cut before it reaches the server: the act is carried out again, and its claim is kept once."""
    near.admit("warm")
    proxy.cut = once(">", commit[">"])
    answer = near.admit("k")
    assert (answer.kind, answer.record.attempt) == ("execute", 1)
    assert sql(url, "SELECT count(*) FROM pokayoke_records WHERE key = 'k'") == [(1,)]


@TWO
@pytest.mark.parametrize("direction", ["<", ">"])
def test_an_act_that_cannot_recognise_itself_is_kept_once(near, proxy, direction):
    """A line of the audit, whose commit was or was not carried out: the server's word decides, and it stands once."""
    near.admit("warm")
    proxy.cut = once(direction, b"COMMIT\x00")
    near.store.note(line("once"))
    assert [entry.subject for entry in near.store.audit()] == ["once"]


@TWO
def test_limits_are_charged_once_through_a_lost_answer(near, proxy, url):
    """A claim with a charge whose commit was not answered: the limit has given out one call."""
    near.admit("warm")
    proxy.cut = once("<", b"COMMIT\x00")
    assert near.admit("k", charges=(Charge("day", 5, 100.0, 7.0),)).kind == "execute"
    assert sql(url, "SELECT calls, amount FROM pokayoke_counters") == [(1, 7.0)]


def test_a_server_that_is_gone_after_the_commit_is_told_as_unknown(near, proxy, commit):
    """Cut after the commit, and no answer comes any more: the error says that it is unknown, and later the claim is there."""
    near.admit("warm")

    def cut(direction, chunk):
        proxy.refuses = proxy.refuses or (direction == "<" and commit["<"] in chunk)
        return proxy.refuses

    proxy.cut = cut
    began = time.monotonic()
    with pytest.raises(StoreError, match="it is unknown whether"):
        near.admit("k")
    assert time.monotonic() - began < BOUND
    proxy.refuses, proxy.cut = False, lambda *_: False
    answer = near.admit("k")
    assert (answer.kind, answer.record.attempt) == ("execute", 1)


@TWO
def test_a_commit_that_is_still_at_work_is_waited_for(cluster, near, proxy):
    """The connection is cut while the server works on the COMMIT: asked, it says so, and then that it was done."""
    near.admit("warm")
    cut_once = []

    def cut(direction, chunk):
        if direction == ">" and b"COMMIT\x00" in chunk and not cut_once:
            ((pid,),) = sql(
                proxy.server,
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'pokayoke' "
                "AND datname = current_database() AND xact_start IS NOT NULL",
            )
            cut_once.append(pid)
            cluster.stall(pid)
            proxy.send_on(chunk)
            threading.Timer(0.3, cluster.go_on, [pid]).start()
            return True
        return False

    proxy.cut = cut
    near.store.note(line("once"))
    assert cut_once
    assert [entry.subject for entry in near.store.audit()] == ["once"]


def test_cuts_anywhere_lose_and_double_nothing(near, proxy, url):
    """The connection is cut at every chunk of an act in turn: each claim is kept exactly once."""
    near.admit("warm")
    for place in range(12):
        for direction in "<>":
            passed = [0]

            def cut(seen, chunk, place=place, direction=direction, passed=passed):
                passed[0] += seen == direction
                return seen == direction and passed[0] == place + 1

            proxy.cut = cut
            key = f"k{direction}{place}"
            assert near.admit(key).kind == "execute"
            assert near.settle(key).accepted
    proxy.cut = lambda *_: False
    assert sql(url, "SELECT count(*) FROM pokayoke_records WHERE state = 'completed' AND attempt = 1") == [(24,)]
    assert near.store.audit() == ()


# -- terminated backends, black holes -------------------------------------------------------------


def test_a_terminated_backend_costs_a_connection_only(near, url):
    """Every idle session of the store is terminated: the next act opens another one and is carried out."""
    for number in range(3):
        assert near.admit(f"k{number}").kind == "execute"
        sql(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pokayoke' "
            "AND datname = current_database()",
        )
        time.sleep(0.05 * number)


def test_a_backend_terminated_within_an_act_is_made_up_for(near, proxy, url):
    """The session is terminated before it writes: nothing was committed, the act is carried out again."""
    near.admit("warm")
    hit = []

    def cut(direction, chunk):
        if direction == ">" and b"INSERT INTO pokayoke_records" in chunk and not hit:
            hit.append(1)
            sql(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pokayoke' "
                "AND datname = current_database() AND left(state, 4) = 'idle'",
            )
        return False

    proxy.cut = cut
    answer = near.admit("k")
    assert hit
    assert (answer.kind, answer.record.attempt) == ("execute", 1)


def test_a_black_hole_ends_in_a_bounded_refusal(near, proxy, url):
    """Nothing comes through in either direction, the sockets stay open: a StoreError in time, no row, no hang."""
    near.admit("warm")
    proxy.stalled = True
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"no answer within|timeout expired"):
        near.admit("k")
    assert PATIENCE * 0.9 < time.monotonic() - began < BOUND
    proxy.stalled = False
    assert near.admit("k2").kind == "execute"
    assert near.store.record("k2").state == "executing"


def test_a_black_hole_after_the_commit_was_sent_is_told_as_unknown(near, proxy, commit):
    """The reply to the commit never comes and the network stays dead: bounded, and the error says that it is unknown."""
    near.admit("warm")

    def cut(direction, chunk):
        if direction == "<" and commit["<"] in chunk:
            proxy.stalled = True
            while proxy.stalled and not proxy._ended:
                time.sleep(0.01)
        return False

    proxy.cut = cut
    began = time.monotonic()
    with pytest.raises(StoreError, match="it is unknown whether"):
        near.admit("k")
    assert time.monotonic() - began < BOUND
    proxy.stalled, proxy.cut = False, lambda *_: False
    assert near.admit("k").record.attempt == 1


def test_a_server_that_refuses_connections_is_told_at_once(near, proxy):
    """The port closes every connection: a StoreError, not a wait."""
    near.admit("warm")
    proxy.refuses = True
    proxy.cut_all()
    began = time.monotonic()
    with pytest.raises(StoreError, match="nothing was written"):
        near.admit("k")
    assert time.monotonic() - began < BOUND


# -- a slow server --------------------------------------------------------------------------------


def test_a_slow_server_within_patience_answers(near, proxy):
    """Every reply is held back by 0.2 seconds: acts go through."""
    near.admit("warm")
    proxy.delay = 0.2
    assert near.admit("k").kind == "execute"


def test_a_server_slower_than_patience_is_refused_in_time(near, proxy):
    """Every reply is held back by 5 seconds: the caller is told within its time."""
    near.admit("warm")
    proxy.delay = 5.0
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"no answer within|timeout expired"):
        near.admit("k")
    assert time.monotonic() - began < BOUND


def test_a_server_that_trickles_gets_no_longer(near, proxy):
    """One byte every now and then keeps the socket busy; the deadline holds all the same."""
    near.admit("warm")
    proxy.trickles = True
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"no answer within|timeout expired"):
        near.admit("k")
    assert time.monotonic() - began < BOUND


def test_a_stalled_backend_is_passed_over(cluster, url):
    """SIGSTOP of the backend that is sent a claim: it is kept through another one, once, also when that goes on."""
    PostgresStore(url, create=True).close()
    store = PostgresStore(joined(url, f"act_timeout={PATIENCE}"))
    store.admit(wish("warm"))
    (pid,) = {link.info.backend_pid for link in store._links.pool_for_threads().free}
    cluster.stall(pid)
    try:
        began = time.monotonic()
        assert store.admit(wish("k")).kind == "execute"
        assert time.monotonic() - began < BOUND
    finally:
        cluster.go_on(pid)
    _until_ended(url, pid)
    assert store.settle(done("k")).accepted
    assert sql(url, "SELECT attempt, claim_id FROM pokayoke_records WHERE key = 'k'") == [(1, "c1")]
    store.close()


def test_a_claim_that_a_stalled_server_takes_up_too_late_is_none(cluster, url):
    """SIGSTOP of backend and postmaster: a StoreError in time; what is taken up after that claims nothing."""
    PostgresStore(url, create=True).close()
    store = PostgresStore(joined(url, f"act_timeout={PATIENCE}"))
    store.admit(wish("warm"))
    (pid,) = {link.info.backend_pid for link in store._links.pool_for_threads().free}
    cluster.stall(pid)
    cluster.signal(0, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(StoreError, match="it is unknown whether"):
            store.admit(wish("k"))
        assert time.monotonic() - began < BOUND
    finally:
        cluster.signal(0, signal.SIGCONT)
        cluster.go_on(pid)
    _until_ended(url, pid)
    assert store.admit(wish("k", "c2")).kind == "execute"
    store.close()


def test_a_stalled_backend_that_holds_nothing_is_told(cluster, url):
    """SIGSTOP of the backend of an act in two exchanges: a StoreError in time; nothing of it is left."""
    PostgresStore(url, create=True).close()
    store = PostgresStore(joined(url, f"act_timeout={PATIENCE}"))
    store._known.find_rows = lambda *_: None
    store.admit(wish("warm"))
    (pid,) = {link.info.backend_pid for link in store._links.pool_for_threads().free}
    cluster.stall(pid)
    try:
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"no answer within.*nothing was written"):
            store.admit(wish("k"))
        assert time.monotonic() - began < BOUND
        assert store.admit(wish("other")).kind == "execute"  # on another connection
    finally:
        cluster.go_on(pid)
    _until_ended(url, pid)
    assert store.admit(wish("k", "c2")).kind == "execute"
    store.close()


def _until_ended(url, pid):
    """Wait until a backend has noticed that its client is gone: whatever it was sent is carried out by then."""
    ends = time.monotonic() + 20
    while sql(url, "SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid):
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_stalled_postmaster_does_not_hold_a_caller(cluster, url):
    """SIGSTOP of the postmaster: no new connection, yet a bounded refusal."""
    PostgresStore(url, create=True).close()
    store = PostgresStore(joined(url, f"act_timeout={PATIENCE}"))
    store._links.pool_for_threads().free.pop().close()
    cluster.signal(0, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(StoreError, match="nothing was written"):
            store.admit(wish("k"))
        assert time.monotonic() - began < BOUND
    finally:
        cluster.signal(0, signal.SIGCONT)
    assert store.admit(wish("k")).kind == "execute"
    store.close()


def test_a_caller_that_stops_amid_an_act_frees_its_locks(url):
    """A client that holds locks and says nothing more is ended by the server; others get their turn."""
    store = PostgresStore(joined(url, f"act_timeout={PATIENCE}"), create=True)
    store._known.find_rows = lambda *_: None
    frozen, go_on = threading.Event(), threading.Event()
    link = store._links.pool_for_threads().free[-1]
    exchange = link.execute_batch

    def freezing(statements):
        rows = exchange(statements)
        if statements[0][0].startswith("BEGIN") and not frozen.is_set():
            frozen.set()
            go_on.wait(30)
        return rows

    link.execute_batch = freezing
    late = []
    thread = threading.Thread(target=lambda: late.append(_error(lambda: store.admit(wish("k")))))
    thread.start()
    assert frozen.wait(10)
    other = PostgresStore(joined(url, "act_timeout=10"))
    assert other.admit(wish("k", "c2")).kind == "execute"
    go_on.set()
    thread.join()
    assert isinstance(late[0], StoreError) or late[0].finding.code == "in_progress"
    assert other.record("k").claim_id == "c2"
    other.close()
    store.close()


# -- restarts -------------------------------------------------------------------------------------


def test_restarts_lose_and_double_nothing(cluster, url):
    """Three crashes of the server under load: every completion that was told is kept, no claim is doubled."""
    store = PostgresStore(joined(url, "act_timeout=5"), create=True)
    stop = threading.Event()
    told, executed = [], []

    def work(name):
        number = 0
        while not stop.is_set():
            key = f"{name}-{number}"
            number += 1
            try:
                answer = store.admit(wish(key))
            except StoreError:
                stop.wait(0.01)
                continue
            if answer.kind == "execute":
                executed.append(key)
                for _ in range(200):
                    try:
                        if store.settle(done(key)).accepted:
                            told.append(key)
                        break
                    except StoreError:
                        time.sleep(0.05)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.4)
        cluster.restart("immediate")
    time.sleep(0.4)
    stop.set()
    for thread in threads:
        thread.join()
    completed = {key for (key,) in sql(url, "SELECT key FROM pokayoke_records WHERE state = 'completed'")}
    assert len(executed) == len(set(executed)) > 0
    assert sorted(told) == sorted(executed)
    assert completed == set(told)
    assert all(attempt == 1 for (attempt,) in sql(url, "SELECT attempt FROM pokayoke_records"))
    store.close()


def test_a_mended_server_is_used_again_without_opening_anew(cluster, url):
    """The server is stopped and started: refused while it is away, served afterwards by the same store."""
    store = PostgresStore(joined(url, f"act_timeout={PATIENCE}"), create=True)
    store.admit(wish("before"))
    cluster.stop("immediate")
    try:
        with pytest.raises(StoreError, match="nothing was written"):
            store.admit(wish("away"))
    finally:
        cluster.start()
    assert store.admit(wish("after")).kind == "execute"
    assert [record.key for record in store.records(RecordQuery())] == ["after", "before"]
    store.close()


# -- what the server may not do -------------------------------------------------------------------


def test_settings_that_lose_claims_are_told(need):
    """A server without fsync and full_page_writes: both are named, with what they cost."""
    try:
        with Cluster(fsync="off", full_page_writes="off") as careless:
            store = PostgresStore(careless.url, create=True)
            _, first, second = store.weaknesses()
            store.close()
    except Missing as missing:
        need(str(missing))
    assert "fsync is off" in first
    assert "full_page_writes is off" in second


def test_a_read_only_server_is_named(url):
    """A database that only takes reads refuses the act with a reason."""
    store = PostgresStore(url, create=True)
    sql(url, "REVOKE ALL ON pokayoke_records FROM PUBLIC")
    sql(url, "CREATE ROLE reader LOGIN")
    try:
        sql(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        reader = PostgresStore(url.replace("postgres@", "reader@"))
        with pytest.raises(StoreError, match="lacks a right"):
            reader.admit(wish("k"))
        reader.close()
    finally:
        sql(url, "DROP OWNED BY reader")
        sql(url, "DROP ROLE reader")
    store.close()


def _error(function):
    try:
        return function()
    except Exception as error:
        return error
