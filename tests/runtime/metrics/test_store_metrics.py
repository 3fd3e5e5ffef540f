"""The metrics of a store: what waits in it, whoever asks and after whatever restart."""

from contextlib import ExitStack

import pytest
from pgserver import Missing, empty_schema
from prometheus_client.parser import text_string_to_metric_families

from pokayoke import open_store
from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Claim
from pokayoke.errors import StoreError
from pokayoke.runtime.metrics import STORE_INSTRUMENTS, render_store_metrics
from pokayoke.stores.memory import MemoryStore
from pokayoke.stores.values import AuditEntry, SwitchCommand

NOW = 1_800_000_000.0
EVIL = 'a"b\\c\nd\u202e} 1'


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path, need):
    """A store of each kind."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'l.db'}"
        if request.param == "postgres":
            try:
                url = stack.enter_context(empty_schema())
            except Missing as missing:
                need(str(missing))
        opened = MemoryStore() if request.param == "memory" else open_store(url, create=True)
        stack.callback(opened.close)
        yield opened


def read(store, now=NOW):
    """The samples, as the library of Prometheus reads them."""
    families = list(text_string_to_metric_families(render_store_metrics(store, now)))
    assert [(one.name, one.type) for one in families] == [(one.name, one.kind) for one in STORE_INSTRUMENTS]
    return {(one.name.removeprefix("pokayoke_store_"), *one.labels.values()): one.value
            for family in families for one in family.samples}  # fmt: skip


def fill(store):
    """A doubt of an hour, a question of ten minutes, an open and a closed switch, two reconciliations of a tool."""
    claim = Claim("k" * 64, "h", "claim-1", "pay", "pay@1", "r", NOW - 3_600, 60.0)
    store.admit(AdmissionRequest("r", "pay", "write", None, NOW - 3_600, claim=claim))
    asked = Approval("ap-1", "f" * 64, "pay", "pay@1", {"to": "ann"}, "r", NOW - 600, NOW + 600)
    store.propose(asked)
    for scope, mode in ((EVIL, "open"), ("*", "open"), ("*", "closed")):
        store.flip(SwitchCommand(scope, mode, "ann", "why", NOW))
    for at, left in ((NOW - 90_000, 3), (NOW - 100, 1)):
        store.note(AuditEntry(at, "reconciled", "pay", data={"open": left, "keys": {"matched": 5}}))
    store.note(AuditEntry(NOW - 50, "reconciled", "*", data={"open": 0}))


def test_an_empty_store_waits_for_nothing(store):
    """Zeros where something could wait, and no series for what never was."""
    assert read(store) == {
        ("doubts",): 0, ("oldest_doubt_seconds",): 0, ("questions",): 0, ("oldest_question_seconds",): 0,
    }  # fmt: skip


def test_what_waits_is_counted_with_its_age(store):
    """Doubts, questions, switches and the last reconciliation of each tool; a hostile scope stays one label."""
    fill(store)
    found = read(store)
    evil = next(name for name in found if name[0] == "kill_switch_open" and name[1] != "*")
    assert evil[1] == 'a"b\\c\\nd\\u202e} 1'
    assert found == {
        evil: 1, ("kill_switch_open", "*"): 0,
        ("doubts",): 1, ("oldest_doubt_seconds",): 3_600, ("questions",): 1, ("oldest_question_seconds",): 600,
        ("reconciled_timestamp_seconds", "pay"): NOW - 100, ("reconciled_timestamp_seconds", "*"): NOW - 50,
        ("reconciled_open_keys", "pay"): 1, ("reconciled_open_keys", "*"): 0,
    }  # fmt: skip
    assert read(store, NOW + 601)[("questions",)] == 0


def test_a_restart_hides_nothing(tmp_path):
    """Another process, or the same one after a restart, reads the same."""
    url = f"sqlite:///{tmp_path / 'l.db'}"
    store = open_store(url, create=True)
    fill(store)
    before = render_store_metrics(store, NOW)
    store.close()
    store = open_store(url)
    assert render_store_metrics(store, NOW) == before
    store.close()


def test_a_store_that_is_away_gives_no_figures(store, monkeypatch):
    """An error, never zeros."""

    def away(now):
        raise StoreError("away")

    monkeypatch.setattr(store, "overview", away)
    with pytest.raises(StoreError):
        render_store_metrics(store, NOW)
