"""Memory is the reference: whatever is asked of a store, SQLite answers the same."""

import itertools
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.ledger.admission import AdmissionRequest, Approval, Charge
from pokayoke.core.ledger.records import Claim, Resolution, Settlement
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import Taint, begin_turn, latch, step_down_to, unlatch
from pokayoke.errors import StoreError
from pokayoke.stores import MemoryStore
from pokayoke.stores.sqlite.store import SqliteStore
from pokayoke.stores.values import AuditEntry, RecordQuery, SwitchCommand

KEYS, CALLERS, TOOLS, RUNS = ("k1", "k2"), ("c1", "c2", "c3"), ("pay", "read"), ("r1", "r2")
TIMES = st.floats(1.0, 2_000.0, allow_nan=False).map(lambda value: round(value, 1))
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=6)  # NUL and half characters, too

CLAIMS = st.builds(
    Claim,
    key=st.sampled_from(KEYS),
    args_hash=st.sampled_from(["h1", "h1", "h1", "h2"]),
    claim_id=st.sampled_from(CALLERS),
    tool=st.sampled_from(TOOLS),
    contract=st.just("pay@1"),
    run_id=st.sampled_from(RUNS),
    now=TIMES,
    lease=st.sampled_from([1.0, 100.0]),
    max_attempts=st.integers(1, 3),
    reruns=st.booleans(),
    resolves=st.booleans(),
    dead=st.sampled_from(["", *CALLERS]),
    proceed=st.booleans(),
)
APPROVALS = st.builds(
    Approval,
    id=st.sampled_from(["a1", "a2"]),
    fingerprint=st.sampled_from(["f1", "f2"]),
    tool=st.just("pay"),
    contract=st.just("pay@1"),
    arguments=st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=2),
    run_id=st.just("r1"),
    asked_at=TIMES,
    expires_at=TIMES,
)
CHARGES = st.lists(
    st.builds(
        Charge,
        st.sampled_from(["n1", "n2"]),
        st.none() | st.integers(1, 3),
        st.none() | st.just(5.0),
        st.sampled_from([0.0, 1.5]),
    ),
    max_size=2,
).map(tuple)


def request(claim, write, asks, charges):
    return AdmissionRequest(
        claim.run_id, claim.tool, "write" if write else "read", None, claim.now, claim if write else None, charges, asks
    )


def change(kind, taint):
    steps = {
        "worsen": lambda state: step_down_to(state, "safe_mode", "tool_failure"),
        "end": lambda state: step_down_to(state, "final_answer", "loop_detected"),
        "latch": lambda state: latch(state, taint),
        "unlatch": lambda state: unlatch(state, taint.tool),
        "turn": begin_turn,
    }
    return steps[kind]


CHANGES = st.builds(
    change,
    st.sampled_from(["worsen", "end", "latch", "unlatch", "turn"]),
    st.builds(Taint, st.sampled_from(TOOLS), st.just("i"), st.integers(1, 9), TEXTS),
)
SEEN = st.lists(
    st.builds(OutputObservation, st.sampled_from(TOOLS), st.sampled_from([False, False, True]), TIMES),
    min_size=1,
    max_size=4,
)
STEPS = st.one_of(
    st.tuples(
        st.just("admit"),
        st.builds(request, CLAIMS, st.sampled_from([True, True, False]), st.none() | APPROVALS, CHARGES),
    ),
    st.tuples(st.just("admit"), st.builds(request, CLAIMS, st.just(True), st.none(), st.just(()))),
    st.tuples(
        st.just("settle"),
        st.builds(
            Settlement,
            st.sampled_from(KEYS),
            st.sampled_from(CALLERS),
            st.sampled_from(["completed", "failed_retriable", "failed_final", "in_doubt"]),
            TIMES,
            output=st.none() | st.binary(max_size=5),
            output_ok=st.booleans(),
            failure=TEXTS,
            reference=TEXTS,
            dead_since=st.none() | TIMES,
            early=st.booleans(),
        ),
    ),
    st.tuples(
        st.just("decide"), st.builds(Resolution, st.sampled_from(KEYS), st.booleans(), TEXTS, TEXTS, TIMES, TEXTS)
    ),
    st.tuples(st.just("change_run"), st.tuples(st.sampled_from(RUNS), CHANGES)),
    st.tuples(st.just("observe"), st.tuples(SEEN, TIMES)),
    st.tuples(st.just("propose"), APPROVALS),
    st.tuples(st.just("answer"), st.tuples(st.sampled_from(["a1", "a2"]), st.booleans(), TEXTS, TIMES)),
    st.tuples(
        st.just("flip"),
        st.builds(
            SwitchCommand, st.sampled_from([*TOOLS, "*"]), st.sampled_from(["open", "closed"]), TEXTS, TEXTS, TIMES
        ),
    ),
    st.tuples(
        st.just("note"),
        st.builds(
            AuditEntry, TIMES, st.just("compensated"), TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=1)
        ),
    ),
    st.tuples(st.just("prune"), st.tuples(TIMES, TIMES)),
)


def do(store, step):
    """What a store answers; an error counts by its words."""
    name, given_ = step
    try:
        if name == "change_run":
            return store.change_run(*given_)
        if name == "observe":
            return store.observe(*given_)
        if name == "answer":
            ident, approved, by, now = given_
            return store.answer(ident, approved=approved, by=by, reason=by, now=now)
        if name == "prune":
            return store.prune(given_[0], by="ann", now=given_[1])
        return getattr(store, name)(given_)
    except StoreError as error:
        return str(error)


def everything(store):
    """All that a store holds, in an order of its own."""
    return {
        "records": store.records(RecordQuery()),
        "whole": [store.record(key) for key in KEYS],
        "runs": [store.load_run(run) for run in RUNS],
        "approvals": sorted(store.approvals(), key=lambda one: (one.asked_at, one.fingerprint)),
        "switches": store.switches(),
        "rates": store.rates(),
        "audit": store.audit(),
    }


@pytest.fixture(scope="module")
def folder():
    """A folder in memory where there is one: these files need not survive anything."""
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as name:
        yield name


NUMBERS = itertools.count()


@given(st.lists(STEPS, max_size=25))
def test_memory_and_sqlite_agree(folder, steps):
    """After any sequence of acts both gave the same answers and hold the same records, runs, questions and audit."""
    memory = MemoryStore()
    durable = SqliteStore(f"sqlite:///{folder}/{next(NUMBERS)}.db", create=True, clock=lambda: 1e12)
    try:
        for step in steps:
            assert do(durable, step) == do(memory, step)
        assert everything(durable) == everything(memory)
    finally:
        durable.close()


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(CALLERS)), min_size=1, max_size=12))
def test_whatever_happens_a_key_is_completed_once(folder, calls):
    """However claims and completions follow one another, the first completed output is the one that stays."""
    store = SqliteStore(f"sqlite:///{folder}/{next(NUMBERS)}.db", create=True)
    first = {}
    try:
        for number, (key, caller) in enumerate(calls):
            wish = Claim(key, "h", caller, "pay", "pay@1", "r1", float(number), 1_000.0)
            store.admit(AdmissionRequest("r1", "pay", "write", None, wish.now, wish))
            if store.settle(Settlement(key, caller, "completed", wish.now, output=b"%d" % number)).accepted:
                first.setdefault(key, b"%d" % number)
        assert {key: store.record(key).output for key in first} == first
    finally:
        store.close()


def test_the_law_notices_a_difference(folder):
    """A store that forgets one field is not equal: the comparison looks at everything."""
    memory, other = MemoryStore(), MemoryStore()
    wish = Claim("k1", "h", "c1", "pay", "pay@1", "r1", 1.0, 10.0)
    for store, owner in ((memory, "a"), (other, "b")):
        store.admit(AdmissionRequest("r1", "pay", "write", None, 1.0, msgspec.structs.replace(wish, owner=owner)))
    assert everything(memory) != everything(other)
