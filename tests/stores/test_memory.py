"""The store in memory: what it forgets, and what it never does."""

import os
import signal

import msgspec

from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Resolution, Settlement
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import Taint, begin_turn, latch, step_down_to, unlatch
from pokayoke.stores import MemoryStore, memory
from pokayoke.stores.values import SwitchCommand

WISH = Claim("k", "h1", "c1", "pay", "pay@1", "r", now=100.0, lease=10.0)


def _done(store, key, output):
    store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, msgspec.structs.replace(WISH, key=key)))
    assert store.settle(Settlement(key, "c1", "completed", 101.0, output))


def test_outputs_are_bounded_and_records_are_not():
    """The oldest outputs go when the limit is passed; every record stays completed, so nothing runs again."""
    store = MemoryStore(max_output_bytes=25)
    for number in range(5):
        _done(store, f"k{number}", b"x" * 10)
    kept = [store.record(f"k{number}") for number in range(5)]
    assert [record.output is not None for record in kept] == [False, False, False, True, True]
    assert {record.state for record in kept} == {"completed"}
    again = store.admit(AdmissionRequest("r", "pay", "write", None, 102.0, msgspec.structs.replace(WISH, key="k0")))
    assert again.kind == "replay"


class _Unscanned(dict):
    """Records that may be looked up, and not gone through."""

    def values(self):
        raise AssertionError("every record was looked at")

    __iter__ = items = values


def test_counting_an_output_goes_through_no_records():
    """Which tools have an effect in doubt is known as it comes and goes, by a failure, a lookup or a person."""
    store = MemoryStore()
    store._records = _Unscanned()
    store.flip(SwitchCommand("*", "closed", "ann", "begin", 99.0))
    doubts = []

    def observed():
        store.observe([OutputObservation("pay", valid=True, at=101.0, read=True, run_id="r")], 101.0)
        doubts.append(set(store._switch_state().doubtful))

    for key in ("k1", "k2"):
        store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, msgspec.structs.replace(WISH, key=key)))
        observed()
        store.settle(Settlement(key, "c1", "in_doubt", 101.0))
        observed()
    store.settle(Settlement("k1", "c1", "completed", 102.0))
    observed()
    store.decide(Resolution("k2", happened=False, by="ann", reason="looked", now=103.0))
    observed()
    assert doubts == [set(), {"pay"}, {"pay"}, {"pay"}, {"pay"}, set()]


def test_an_output_over_the_limit_is_not_kept_at_all():
    """One output larger than everything allowed leaves the record without it."""
    store = MemoryStore(max_output_bytes=5)
    _done(store, "k", b"x" * 10)
    assert (store.record("k").state, store.record("k").output) == ("completed", None)


def test_a_failure_leaves_no_output_behind():
    """What has no output takes nothing from the limit."""
    store = MemoryStore(max_output_bytes=5)
    store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, WISH))
    assert store.settle(Settlement("k", "c1", "in_doubt", 101.0))
    assert store.record("k").state == "in_doubt"


def test_runs_are_bounded_but_for_those_that_must_not_go_on(monkeypatch):
    """The run that was not changed for longest goes; one that was stopped or is latched stays, until it is not."""
    monkeypatch.setattr(memory, "_MOST_RUNS", 2)
    store = MemoryStore()
    store.change_run("stopped", lambda state: step_down_to(state, "stopped", "kill_switch"))
    store.change_run("latched", lambda state: latch(state, Taint("crm", "i", 1, "html")))
    for run in ("a", "b", "a", "c"):
        store.change_run(run, begin_turn)
    held = {run: store.load_run(run) for run in ("stopped", "latched", "a", "b", "c")}
    assert [run for run, state in held.items() if state is None] == ["b"]
    assert (held["stopped"].mode, len(held["latched"].taints), held["a"].turn) == ("stopped", 1, 2)
    store.change_run("latched", lambda state: unlatch(state, "crm"))
    assert (store.load_run("a"), store.load_run("latched").taints) == (None, ())


def test_a_fork_in_the_middle_of_an_act_blocks_nobody():
    """A child that was forked while another thread held the lock claims and settles."""
    store = MemoryStore()
    store._lock.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        _done(store, "k", b"1")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    store._lock.release()
