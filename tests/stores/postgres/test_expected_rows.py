"""A write that was decided on expected rows: right whatever others have written, and alone in one transaction or not."""

import asyncio
import random
import time

import msgspec
import psycopg
import pytest
from pgacts import done, wish
from pgserver import Missing, empty_schema

from pokayoke.core.ledger.admission import Charge
from pokayoke.core.ledger.records import Resolution
from pokayoke.core.state.run_state import step_down_to
from pokayoke.errors import StoreError
from pokayoke.stores.postgres import pool
from pokayoke.stores.postgres.store import PostgresStore
from pokayoke.stores.postgres.transaction import lock_statement
from pokayoke.stores.sql.dialect import POSTGRES
from pokayoke.stores.sql.statements import AdvisoryLock
from pokayoke.stores.values import RecordQuery, SwitchCommand

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def url(need):
    """A schema with the tables."""
    try:
        with empty_schema() as found:
            PostgresStore(found, create=True).close()
            yield found
    except Missing as missing:
        need(str(missing))


@pytest.fixture
def store(url):
    """A store that expects what it has seen."""
    store = PostgresStore(url)
    yield store
    store.close()


@pytest.fixture
def other(url):
    """Another process, as far as the first store can tell."""
    other = PostgresStore(url)
    yield other
    other.close()


def hold(conn, name):
    """Take a lock of the store beside it."""
    statement, values = lock_statement((AdvisoryLock(name),))
    conn.execute(POSTGRES.with_placeholders(statement), values)


def spy_on(store, monkeypatch):
    """Return the list of the batches that a store's connections of either kind will send."""
    sent = []
    for kind in (pool.Connection, pool.AsyncConnection):

        def spy(link, statements, real=kind.execute_batch):
            sent.append([sql for sql, _ in statements])
            return real(link, statements)

        monkeypatch.setattr(kind, "execute_batch", spy)
    return sent


# -- others have written ----------------------------------------------------------------------------


def _stop_run(other):
    other.change_run("r", lambda state: step_down_to(state, "stopped", "loop_detected"))


def _open_switch(other):
    other.flip(SwitchCommand("*", "open", "me", "stop", time.time()))


@pytest.mark.parametrize("known", [False, True], ids=["a new run", "a known run"])
@pytest.mark.parametrize("act", [_stop_run, _open_switch])
def test_what_another_process_has_stopped_is_refused(store, other, act, known):
    """The run or the switch is no longer as expected: nothing is claimed, and the answer is that of the new state."""
    if known:
        store.change_run("r", lambda state: msgspec.structs.replace(state, calls=1))
    assert store.admit(wish("before")).kind == "execute"
    act(other)
    assert store.admit(wish("k")).kind == "refuse"
    assert store.admit(wish("l")).kind == "refuse"
    assert [record.key for record in other.records(RecordQuery())] == ["before"]


def test_a_switch_that_was_closed_again_lets_writes_through(store, other):
    """What was seen last is expected next: open and closed switches are compared like none."""
    for mode, kind in (("open", "refuse"), ("closed", "execute"), ("open", "refuse")):
        other.flip(SwitchCommand("*", mode, "me", mode, time.time()))
        assert [store.admit(wish(f"{mode}{number}-{time.time()}")).kind for number in range(3)] == [kind] * 3


def test_a_key_that_another_process_has_claimed_is_in_progress(store, other):
    """No record was expected and there is one: it stays what it is."""
    assert other.admit(wish("k", "theirs")).kind == "execute"
    assert store.admit(wish("k", "ours")).finding.code == "in_progress"
    assert other.record("k").claim_id == "theirs"


def test_a_claim_that_another_process_has_taken_over_is_lost(store, other):
    """A person has settled the doubt and another one executes: the report of the first is a late effect."""
    store.admit(wish("k", "ours", lease=0.0))
    other.decide(Resolution("k", happened=False, by="me", reason="", now=time.time()))
    assert other.admit(wish("k", "theirs")).kind == "execute"
    settled = store.settle(done("k", "ours"))
    assert (settled.accepted, settled.record.claim_id) == (False, "theirs")
    assert [entry.kind for entry in store.audit()] == ["decided", "late_effect"]


def test_a_record_that_was_touched_meanwhile_is_read_again(store, url):
    """Equal columns are not enough: a version of the row that this process has not written is read first."""
    store.admit(wish("k"))
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("UPDATE pokayoke_records SET failure = 'left open' WHERE key = 'k'")
    assert store.settle(msgspec.structs.replace(done("k"), state="failed_retriable", output=None)).accepted
    assert (store.record("k").state, store.record("k").failure) == ("in_doubt", "left open")


def test_a_session_with_another_isolation_writes_in_transactions_of_ours(url, other, monkeypatch):
    """A snapshot from before the locks would not show what was committed while others held them."""
    strict = "options=-cdefault_transaction_isolation%3Drepeatable%5C%20read%20"
    store = PostgresStore(url.replace("options=", strict))
    sent = spy_on(store, monkeypatch)
    assert store.admit(wish("k")).kind == "execute"
    assert [batch[0].split()[0] for batch in sent] == ["SELECT", "BEGIN", "INSERT"]
    _open_switch(other)
    assert store.admit(wish("late")).kind == "refuse"
    store.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE pokayoke_meta SET value = 'other' WHERE name = 'ledger_id'", "another ledger"),
        ("UPDATE pokayoke_meta SET value = '9999' WHERE name = 'schema_version'", "version 9999"),
        ("DELETE FROM pokayoke_meta", r"another ledger \(none\)"),
    ],
)
def test_another_ledger_takes_no_new_claim(store, url, change, words):
    """Replaced, newer, or emptied under an open store: no row was expected, there is none, and none is written."""
    store.admit(wish("k"))
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(change)
        with pytest.raises(StoreError, match=words):
            store.admit(wish("new"))
        assert conn.execute("SELECT key FROM pokayoke_records").fetchall() == [("k",)]


def test_what_was_read_in_vain_is_not_expected_again(store, other, monkeypatch):
    """One wrong expectation costs one exchange: the next write in the same run has one again."""
    store.admit(wish("k1"))
    other.change_run("r", lambda state: msgspec.structs.replace(state, calls=5))
    sent = spy_on(store, monkeypatch)
    for number, expected in (("k2", 3), ("k3", 1)):
        sent.clear()
        assert store.admit(wish(number)).kind == "execute"
        assert len(sent) == expected


def test_a_long_output_is_sent_in_a_transaction_that_the_server_ends(store, monkeypatch):
    """What does not fit into one go of TCP has two exchanges, in which a caller that stops holds no lock for long."""
    store.admit(wish("k"))
    sent = spy_on(store, monkeypatch)
    assert store.settle(done("k", output=b'"' + b"x" * 20_000 + b'"')).accepted
    assert [batch[0].split()[0] for batch in sent] == ["BEGIN", "UPDATE"]


def test_more_rows_than_are_remembered_cost_an_exchange_only(store, monkeypatch):
    """What was forgotten is read again: a report on a claim that this process no longer remembers is taken."""
    monkeypatch.setattr("pokayoke.stores.postgres.expected_rows._MOST", 3)
    keys = [f"k{number}" for number in range(8)]
    for key in keys:
        store.admit(wish(key))
        store.admit(wish(f"{key} with a limit", charges=(Charge("day", 99, None, 1.0),)))
    assert all(store.settle(done(key)).accepted for key in keys)


# -- locks ------------------------------------------------------------------------------------------


def test_a_single_exchange_waits_for_no_lock(store, url):
    """Somebody holds the lock of one key: that one waits in a transaction of its own, and the others do not."""

    async def together():
        await store.aadmit(wish("warm"))
        with psycopg.connect(url) as holder:
            hold(holder, "record:k")
            waiting = asyncio.create_task(store.aadmit(wish("k")))
            answers = await asyncio.gather(*(store.aadmit(wish(f"n{number}")) for number in range(20)))
            assert not waiting.done()
        return [*answers, await waiting]

    assert {answer.kind for answer in asyncio.run(together())} == {"execute"}


# -- many tasks -------------------------------------------------------------------------------------


def test_tasks_that_write_at_the_same_time_share_transactions(store, monkeypatch):
    """Forty claims and completions of forty tasks: each is kept, in far fewer exchanges."""

    async def write(number):
        assert (await store.aadmit(wish(f"k{number}"))).kind == "execute"
        assert (await store.asettle(done(f"k{number}"))).accepted

    async def together():
        await store.aadmit(wish("warm"))
        sent = spy_on(store, monkeypatch)
        await asyncio.gather(*map(write, range(40)))
        return len(sent)

    assert asyncio.run(together()) < 40
    assert len(store.records(RecordQuery(states=("completed",)))) == 40


def test_tasks_that_want_the_same_key_share_no_claim(store):
    """A transaction holds its locks for all who are in it: of twenty equal wishes in it one executes."""

    async def together():
        await store.aadmit(wish("warm"))
        return await asyncio.gather(*(store.aadmit(wish("k", f"c{number}")) for number in range(20)))

    answers = asyncio.run(together())
    assert sorted(answer.kind for answer in answers) == ["execute"] + ["refuse"] * 19
    assert store.record("k").claim_id == next(answer for answer in answers if answer.kind == "execute").record.claim_id


@pytest.mark.parametrize("bad", ["\ud800", "\x00"], ids=["half a character", "NUL"])
def test_a_task_that_fails_takes_no_other_one_along(store, bad):
    """A value that cannot be stored ends the transaction of all: the others are carried out, that one is told."""

    async def together():
        await store.aadmit(wish("warm"))
        wishes = [wish(bad if number == 7 else f"k{number}") for number in range(20)]
        return await asyncio.gather(*map(store.aadmit, wishes), return_exceptions=True)

    answers = asyncio.run(together())
    assert isinstance(answers.pop(7), StoreError | UnicodeEncodeError)
    assert {answer.kind for answer in answers} == {"execute"}


def test_a_task_that_is_cancelled_leaves_the_others_their_answers(store):
    """Half of the tasks go away at random moments, again and again: the others get theirs, and nobody waits for ever."""
    lots = random.Random(5)

    async def write(number):
        await asyncio.sleep(lots.random() * 0.02)
        return (await store.aadmit(wish(f"k{number}"))).kind

    async def together(first):
        tasks = [asyncio.create_task(write(first + number)) for number in range(60)]
        for task in tasks[::2]:
            await asyncio.sleep(0.001)
            task.cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    async def again():
        await store.aadmit(wish("warm"))
        return [await together(first) for first in range(0, 300, 60)]

    for answers in asyncio.run(again()):
        assert set(answers[1::2]) == {"execute"}


def test_an_event_loop_that_ends_leaves_no_task_waiting(store):
    """`asyncio.run` returns while others write: they are cancelled, and the store works in the next loop."""

    async def ends():
        await store.aadmit(wish("warm"))
        for number in range(30):
            asyncio.create_task(store.aadmit(wish(f"k{number}")))  # noqa: RUF006 - the loop ends before them
        await asyncio.sleep(0.002)

    asyncio.run(ends())
    assert asyncio.run(store.aadmit(wish("after"))).kind == "execute"


def test_a_closed_store_tells_all_who_wait(store):
    """Closed while tasks wait for their turn: each is told so."""

    async def together():
        await store.aadmit(wish("warm"))
        tasks = [asyncio.create_task(store.aadmit(wish(f"k{number}"))) for number in range(200)]
        await asyncio.sleep(0)
        store.close()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    answers = asyncio.run(together())
    told = [answer for answer in answers if isinstance(answer, StoreError)]
    assert told
    assert all("closed" in str(error) for error in told)
