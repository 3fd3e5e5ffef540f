"""Lists, pages and forgetting, over every store."""

import time

import msgspec
import pytest

from pokayoke.core.ledger.admission import AdmissionRequest, Approval, Charge
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import Taint, latch, step_down_to
from pokayoke.stores.sql import queries
from pokayoke.stores.values import RecordQuery, SwitchCommand

STATES = ("executing", "resolving", "completed", "failed_retriable", "failed_final", "in_doubt")


def put(store, key, state="completed", *, tool="pay", run="r", claimed=100.0, settled=110.0, output=b"1"):
    """A record in a state."""
    wish = Claim(key, "h", "c1", tool, f"{tool}@1", run, claimed, 1_000.0)
    store.admit(AdmissionRequest(run, tool, "write", None, claimed, wish))
    if state == "resolving":
        store.settle(Settlement(key, "c1", "in_doubt", settled))
        store.admit(
            AdmissionRequest(
                run, tool, "write", None, settled, msgspec.structs.replace(wish, claim_id="c2", resolves=True)
            )
        )
    elif state != "executing":
        store.settle(Settlement(key, "c1", state, settled, output=output if state == "completed" else None))


@pytest.fixture
def full(store):
    """One record of each state, and three more that differ in one thing each."""
    for number, state in enumerate(STATES):
        put(store, f"k{number}", state)
    put(store, "k6", tool="ship")
    put(store, "k7", run="r2")
    put(store, "k8", claimed=200.0)
    return store


def keys(store, **query):
    return [record.key for record in store.records(RecordQuery(**query))]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "012345678"),
        ({"states": ("in_doubt",)}, "5"),
        ({"states": ("completed",)}, "2678"),
        ({"states": ("completed", "executing")}, "02678"),
        ({"states": ("resolving", "failed_retriable", "failed_final")}, "134"),
        ({"tool": "ship"}, "6"),
        ({"run_id": "r2"}, "7"),
        ({"since": 200.0}, "8"),
        ({"until": 200.0}, "01234567"),
        ({"since": 200.1}, ""),
        ({"after": "k3"}, "45678"),
        ({"limit": 2}, "01"),
        ({"limit": 0}, ""),
        ({"tool": "pay", "run_id": "r", "states": ("completed",), "after": "k2"}, "8"),
        ({"tool": ""}, ""),
    ],
)
def test_a_query_finds_exactly_what_it_describes(full, query, expected):
    """Every field of a query restricts the list, alone and together, in the order of keys."""
    assert keys(full, **query) == [f"k{number}" for number in expected]


def test_pages_hold_every_record_once(full):
    """Going on after the last key of each page shows all records in order, none twice."""
    seen, after = [], None
    while page := full.records(RecordQuery(after=after, limit=2)):
        seen += [record.key for record in page]
        after = page[-1].key
    assert seen == [f"k{number}" for number in range(9)]


def test_keys_are_ordered_by_their_characters(store):
    """Capitals, digits, underscores and letters beyond ASCII stand in the order of their code points."""
    names = ["b", "B", "a", "_", "é", "1", "10", "2", "Z", "漢"]
    for name in names:
        put(store, name)
    assert keys(store) == sorted(names)


def test_a_list_leaves_outputs_out(full):
    """Lists hold everything but outputs; a single record holds that, too."""
    (listed,) = full.records(RecordQuery(run_id="r2"))
    whole = full.record("k7")
    assert (whole.output, listed) == (b"1", msgspec.structs.replace(whole, output=None))


def test_switches_and_rates_stand_in_the_order_of_their_names(store):
    """By code points, whatever came first."""
    for scope in ("read", "*", "Read", "pay"):
        store.flip(SwitchCommand(scope, "open", "ann", "", 100.0))
    store.observe([OutputObservation(tool, True, 200.0) for tool in ("b", "B", "a")], 200.0)
    assert [switch.scope for switch in store.switches()] == ["*", "Read", "pay", "read"]
    assert [rate.tool for rate in store.rates()] == ["B", "a", "b"]


# -- forgetting -----------------------------------------------------------------------------------


def test_only_what_was_settled_for_good_is_forgotten(full):
    """Pruning takes the completed and the failed, and leaves what is open or in doubt, however old."""
    assert full.prune(10_000.0, by="ann", now=10_000.0) == 6
    assert keys(full) == ["k0", "k1", "k5"]
    line = full.audit()[-1]
    assert (line.kind, line.subject, line.by, line.data) == (
        "pruned",
        "ledger",
        "ann",
        {"before": 10_000.0, "records": 6},
    )


def test_only_what_was_settled_before_is_forgotten(store):
    """The limit is exclusive: a record settled at that second stays."""
    put(store, "old", settled=109.9)
    put(store, "new", settled=110.0)
    assert store.prune(110.0, by="ann", now=500.0) == 1
    assert keys(store) == ["new"]


def test_what_was_committed_without_an_output_yet_is_not_forgotten(store):
    """A completion whose output is still to come has no time of settlement, and stays."""
    put(store, "k", "executing")
    store.settle(Settlement("k", "c1", "completed", 101.0, early=True))
    assert store.prune(10_000.0, by="ann", now=10_000.0) == 0
    assert keys(store) == ["k"]


def test_what_is_forgotten_may_be_done_again(store):
    """After pruning, the same key executes anew."""
    put(store, "k")
    store.prune(10_000.0, by="ann", now=10_000.0)
    wish = Claim("k", "h", "c5", "pay", "pay@1", "r", 20_000.0, 10.0)
    assert store.admit(AdmissionRequest("r", "pay", "write", None, 20_000.0, wish)).record.attempt == 1


def test_more_than_one_chunk_is_forgotten(durable, monkeypatch):
    """Pruning goes on until nothing is left, one small transaction after the other, and counts all of it."""
    monkeypatch.setattr(queries, "CHUNK", 3)
    store = durable.open()
    for number in range(7):
        put(store, f"k{number}")
    assert store.prune(10_000.0, by="ann", now=10_000.0) == 7
    assert keys(store) == []


def test_what_was_forgotten_before_pruning_was_interrupted_is_in_the_audit(durable, monkeypatch):
    """The line goes with the records, in one transaction: who reconciles afterwards has to know that some are gone."""
    monkeypatch.setattr(queries, "CHUNK", 3)
    store = durable.open()
    for number in range(7):
        put(store, f"k{number}")
    owner, name = (store, "_run_transaction") if durable.kind == "postgres" else (store._writer, "run_work")
    forget, rounds = getattr(owner, name), iter([True, False])

    def interrupted(*given):
        if next(rounds):
            return forget(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.prune(10_000.0, by="ann", now=10_000.0)
    assert len(keys(store)) == 4
    assert [line.data["records"] for line in store.audit()] == [3]


def test_old_questions_are_forgotten(store):
    """A question goes when its answer, or without one its expiry, is older than the limit."""
    for number, (expires, decided) in enumerate([(200.0, None), (400.0, None), (900.0, 150.0), (250.0, 240.0)]):
        store.propose(Approval(f"a{number}", f"f{number}", "pay", "pay@1", {}, "r", 100.0 + number, expires))
        if decided:
            store.answer(f"a{number}", approved=True, by="ann", reason="", now=decided)
    store.prune(240.0, by="ann", now=500.0)
    assert [approval.id for approval in store.approvals()] == ["a1", "a3"]


COUNTERS = {
    "tool:pay": "refuse",
    "user:amount:pay:ann": "refuse",
    "run:pay:held": "refuse",
    "run:amount:pay:stopped": "refuse",
    "run:pay:a:b": "refuse",
    "run:pay:idle": "execute",
    "run:pay:held:not": "execute",
    "day:pay:2026-11-21": "execute",
    "user_day:amount:pay:2026-11-21:ann": "execute",
}


def test_idle_runs_and_their_limits_are_forgotten(durable):
    """A limit per day goes with its day and one per run with its run; nothing else buys anybody room, or goes on."""
    store = durable.open()
    for run in ("idle", "held", "stopped", "latched", "a:b"):
        store.change_run(run, lambda state: msgspec.structs.replace(state, calls=1))
    store.change_run("stopped", lambda state: step_down_to(state, "stopped", "kill_switch"))
    for run in ("latched", "a:b"):
        store.change_run(run, lambda state: latch(state, Taint("crm", '"taints":[]', 1, '"mode":"stopped"')))
    put(store, "k", "in_doubt", run="held")

    def used(name):
        return store.admit(AdmissionRequest("x", "t", "write", None, 1.0, None, (Charge(name, 1, None, 1.0),))).kind

    assert {used(name) for name in COUNTERS} == {"execute"}
    store.prune(1_000.0, by="ann", now=1e12)
    assert store.load_run("idle") is not None
    store.prune(1e12, by="ann", now=time.time())  # what was counted within a day may be of today
    assert (store.load_run("idle"), store.load_run("held").calls) == (None, 1)
    assert store.load_run("stopped").mode == "stopped"
    assert store.load_run("latched").taints
    assert used("day:pay:2026-11-21") == "refuse"
    store.prune(1e12, by="ann", now=1e12)
    assert {name: used(name) for name in COUNTERS} == COUNTERS
