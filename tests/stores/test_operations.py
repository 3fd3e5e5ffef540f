"""Acts as values: what they need and what they decide, without any store."""

import pytest

from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Record, Resolution, Settlement, SettleResult
from pokayoke.core.state.kill_switch import OutputObservation, OutputRate, Switch, SwitchState
from pokayoke.errors import StoreError
from pokayoke.stores import operations as acts
from pokayoke.stores.operations import ReadRows
from pokayoke.stores.values import SwitchCommand

RECORD = Record("k", "h", "completed", 1, "c", 105.0, "pay", "pay@1", "r", 95.0, settled_at=100.0, decided_by="ann")


@pytest.mark.parametrize(("effect", "board"), [("read", "none"), ("write", "switches"), ("destructive", "switches")])
def test_only_writes_look_at_the_switches(effect, board):
    """A read goes on whatever is switched off, so it neither reads nor locks the board."""
    claim = None if effect == "read" else Claim("k", "h", "c", "pay", "pay@1", "r", 1.0, 10.0)
    assert acts.admit_operation(AdmissionRequest("r", "pay", effect, None, 1.0, claim)).need.board == board


def test_a_report_of_what_nobody_claimed_is_a_late_effect():
    """There is no record to compare with, and the audit says so."""
    changes, settled = acts.settle_operation(Settlement("k", "c", "completed", 100.0)).decide(ReadRows())
    assert settled == SettleResult(False, None)
    (entry,) = changes.entries
    assert (entry.kind, entry.reason, entry.data["state"]) == ("late_effect", "found unknown", "unknown")


def test_what_a_lookup_has_found_too_late_is_no_late_effect():
    """Who looked has had no effect of its own: the record stays, and the audit too."""
    found = Settlement("k", "c9", "completed", 100.0, found=True)
    changes, settled = acts.settle_operation(found).decide(ReadRows(record=RECORD))
    assert (changes.entries, changes.record, settled.accepted) == ((), None, False)


@pytest.mark.parametrize(("by", "now", "own"), [("ann", 100.0, True), ("ann", 101.0, False), ("bob", 100.0, False)])
def test_only_ones_own_decision_is_recognised(by, now, own):
    """The same word of the same person at the same second came through before; any other finds nothing to decide."""
    act = acts.decide_operation(Resolution("k", True, by, "asked", now))
    if own:
        assert act.decide(ReadRows(record=RECORD)) == (acts.NO_WRITES, RECORD)
    else:
        with pytest.raises(StoreError, match="not in doubt"):
            act.decide(ReadRows(record=RECORD))


def test_a_probe_that_does_not_close_a_switch_is_no_flip():
    """A switch that only counts a valid read is written, and neither told nor audited."""
    switch = Switch("crm", "open", 1, 100.0, opened=(100.0,))
    board = SwitchState({"crm": OutputRate("crm")}, {"crm": switch})
    changes, turned = acts.observe_operation([OutputObservation("crm", True, 200.0)], 200.0).decide(
        ReadRows(board=board)
    )
    assert (turned, changes.entries) == ((), ())
    assert changes.board.switches["crm"].valid == 1


@pytest.mark.parametrize("rated", [True, False])
def test_a_flip_by_hand_forgets_a_rate_where_there_is_one(rated):
    """And makes none up for a scope of which no output was ever counted."""
    board = SwitchState({"crm": OutputRate("crm", ((1.0, False),), 1)} if rated else {})
    changes, _ = acts.flip_operation(SwitchCommand("crm", "open", "ann", "so", 2.0)).decide(ReadRows(board=board))
    assert changes.board.rates == ({"crm": OutputRate("crm")} if rated else {})
