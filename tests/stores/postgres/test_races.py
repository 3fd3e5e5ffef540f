"""The PostgreSQL store under races: one execution per key, no deadlock, no lost change."""

import asyncio
import multiprocessing
import random
import threading
import time

import msgspec
import psycopg
import pytest
from pgacts import done, line, wish
from pgserver import Missing, empty_schema, joined

from pokayoke.core.ledger.admission import Approval, Charge
from pokayoke.core.ledger.records import Resolution
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.errors import StoreError
from pokayoke.stores.postgres.store import PostgresStore
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
    """A store with room for every thread."""
    store = PostgresStore(joined(url, "pool_size=16", "act_timeout=30"))
    yield store
    store.close()


def test_threads_race_for_one_key(store):
    """Sixteen threads want the same effect: one executes, the others are told that it is in progress."""
    answers = _together([lambda n=n: store.admit(wish("k", f"c{n}")) for n in range(16)])
    assert sorted(answer.kind for answer in answers) == ["execute"] + ["refuse"] * 15
    assert {answer.finding.code for answer in answers if answer.finding} == {"in_progress"}


def test_tasks_race_for_one_key(store):
    """Forty tasks on sixteen connections want the same effect: one executes."""

    async def race():
        return await asyncio.gather(*(store.aadmit(wish("k", f"c{n}")) for n in range(40)))

    assert [answer.kind for answer in asyncio.run(race())].count("execute") == 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", ["small", "full"])
def test_processes_race_for_many_keys(url, full, size):
    """Eight processes in nearly equal order: every key is executed once, and every answer for it is equal."""
    if size == "full" and not full:
        pytest.skip("10,000 keys: set POKAYOKE_FULL=1")
    keys = 10_000 if size == "full" else 200
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_race, args=(url, number, keys, queue)) for number in range(8)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=50 if size == "small" else 600) for _ in workers]
    for worker in workers:
        worker.join()
    executed = [key for won, _ in results for key in won]
    assert sorted(executed) == sorted(f"k{n}" for n in range(keys))
    outputs = {}
    for _, replayed in results:
        for key, output in replayed.items():
            assert outputs.setdefault(key, output) == output


def _race(url, worker, keys, queue):
    store = PostgresStore(url + "&act_timeout=30")
    order = [f"k{n}" for n in range(keys)]
    lots = random.Random(worker)
    for place in range(len(order) - 1):
        if lots.random() < 0.3:
            order[place : place + 2] = order[place + 1], order[place]
    won, replayed = [], {}
    for key in order:
        answer = store.admit(wish(key, f"c{worker}"))
        if answer.kind == "execute":
            won.append(key)
            assert store.settle(done(key, f"c{worker}", str(worker).encode())).accepted
        elif answer.kind == "replay":
            replayed[key] = answer.record.output
    store.close()
    queue.put((won, replayed))


@pytest.mark.parametrize("forgetting", [False, True])
def test_random_acts_never_wait_for_each_other_in_a_circle(store, url, forgetting):
    """Every kind of act, over few names, from sixteen threads: all end well, and the server saw no deadlock.

    Forgetting takes no lock of acts: it may meet them, and is then carried out again.
    """
    kinds = [*ACTS, _prunes] if forgetting else ACTS
    before = _deadlocks(url)

    def work(seed):
        lots = random.Random(seed)
        for number in range(25):
            lots.choice(kinds)(store, lots, f"{seed}-{number}")

    _together([lambda seed=seed: work(seed) for seed in range(16)])
    assert forgetting or _deadlocks(url) == before


def _admits(store, lots, name):
    names = lots.sample(["a", "b", "c", "d"], 3)
    charges = tuple(Charge(counter, 10_000, None, 1.0) for counter in names)
    question = Approval(f"q{name}", f"f{lots.randrange(3)}", "pay", "pay@1", {}, "r", time.time(), time.time() + 9)
    store.admit(
        wish(
            f"k{lots.randrange(5)}",
            name,
            run=f"r{lots.randrange(2)}",
            charges=charges,
            approval=lots.choice([None, question]),
        )
    )


def _settles(store, lots, name):
    store.settle(done(f"k{lots.randrange(5)}", name))


def _changes(store, lots, name):
    store.change_run(f"r{lots.randrange(2)}", lambda state: msgspec.structs.replace(state, calls=state.calls + 1))


def _observes(store, lots, name):
    now = time.time()
    store.observe([OutputObservation(f"t{lots.randrange(3)}", valid=lots.random() < 0.9, at=now)], now)


def _flips(store, lots, name):
    store.flip(SwitchCommand(f"t{lots.randrange(3)}", lots.choice(["open", "closed"]), "me", name, time.time()))


def _answers(store, lots, name):
    waiting = store.approvals()
    if waiting:
        _or_says(
            ("already", "there is no approval"),
            lambda: store.answer(waiting[0].id, approved=True, by=name, reason="", now=time.time()),
        )


def _decides(store, lots, name):
    decision = Resolution(f"k{lots.randrange(5)}", happened=False, by=name, reason="", now=time.time())
    _or_says(("there is",), lambda: store.decide(decision))


def _or_says(words, act):
    try:
        act()
    except StoreError as error:
        if not any(one in str(error) for one in words):
            raise


def _notes(store, lots, name):
    store.note(line(name))


def _prunes(store, lots, name):
    store.prune(time.time() - lots.random(), by=name, now=time.time())


ACTS = [_admits, _admits, _admits, _settles, _changes, _observes, _flips, _answers, _decides, _notes]


def test_changes_of_a_run_are_never_lost(store):
    """Twelve threads count in one run: every step counts, and the version with it."""

    def count():
        for _ in range(10):
            store.change_run("r", lambda state: msgspec.structs.replace(state, calls=state.calls + 1))

    _together([count] * 12)
    assert (store.load_run("r").calls, store.load_run("r").version) == (120, 120)


def test_a_limit_is_never_exceeded(store):
    """Sixteen threads, a limit of five calls: five execute."""
    charge = (Charge("day", 5, None, 1.0),)
    answers = _together([lambda n=n: store.admit(wish(f"k{n}", charges=charge)) for n in range(16)])
    assert sorted(answer.kind for answer in answers) == ["execute"] * 5 + ["refuse"] * 11


@pytest.mark.parametrize("round_", range(3))
def test_no_claim_carries_an_epoch_from_before_a_switch_that_stood(url, round_):
    """Eight writers while a switch flips (fault 48): a claim that came after the flip was refused."""
    stores = [PostgresStore(joined(url, "act_timeout=30")) for _ in range(3)]
    stop = threading.Event()
    flipped_at = []

    def write(n):
        number = 0
        while not stop.is_set():
            stores[n % 2].admit(wish(f"{round_}-{n}-{number}", f"c{n}-{number}"))
            number += 1

    def flip():
        time.sleep(0.2)
        stores[2].flip(SwitchCommand("*", "open", "me", "stop", time.time()))
        # What is claimed now is claimed after the flip was committed.
        known = {record.key for record in stores[2].records(RecordQuery(limit=100_000))}
        flipped_at.append(known)
        time.sleep(0.3)
        stop.set()

    _together([*(lambda n=n: write(n) for n in range(8)), flip])
    after = {record.key for record in stores[2].records(RecordQuery(limit=100_000))}
    assert flipped_at[0]
    assert after == flipped_at[0]
    for store in stores:
        store.close()


def _deadlocks(url):
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SELECT pg_stat_force_next_flush()") if conn.info.server_version >= 150_000 else None
        return conn.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()[0]


def _together(functions):
    results, failures = [], []

    def call(function):
        try:
            results.append(function())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    return results
