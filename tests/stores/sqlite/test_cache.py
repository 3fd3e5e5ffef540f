"""What the writer knows without looking is never older than what others have written."""

import apsw
import pytest

from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.core.state.run_state import step_down_to
from pokayoke.stores.sqlite import cache as sqlite_notes
from pokayoke.stores.sqlite.connection import SqliteConnection
from pokayoke.stores.sqlite.store import SqliteStore
from pokayoke.stores.values import SwitchCommand


@pytest.fixture
def url(tmp_path):
    """Where the ledger lies."""
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def here(url):
    """A store, which has written already."""
    store = SqliteStore(url, create=True)
    claim(store, "warm")
    yield store
    store.close()


@pytest.fixture
def there(url, here):
    """The same ledger, as another process would hold it."""
    store = SqliteStore(url)
    yield store
    store.close()


@pytest.fixture
def read(monkeypatch):
    """The statements that were read."""
    seen = []
    fetch = SqliteConnection.fetch

    def counted(self, sql, values=()):
        seen.append(sql)
        return fetch(self, sql, values)

    monkeypatch.setattr(SqliteConnection, "fetch", counted)
    return seen


def claim(store, key="k", claim_id="c1"):
    wish = Claim(key, "h", claim_id, "pay", "pay@1", "r", 100.0, 10.0)
    return store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, wish))


def done(key="k", claim_id="c1", state="completed"):
    return Settlement(key, claim_id, state, 101.0, b'"x"')


def test_what_was_written_here_is_not_read_again(here, read):
    """A settlement after its claim reads nothing; the next claim reads only whether its record is there."""
    claim(here)
    read.clear()
    assert here.settle(done()).accepted
    assert read == []
    claim(here, "k2")
    assert len(read) == 1
    assert "pokayoke_records" in read[0]


def test_a_settlement_of_another_process_is_seen(here, there):
    """A claim that was settled elsewhere is answered from there, and cannot be settled once more."""
    claim(here)
    assert there.settle(done()).accepted
    assert not here.settle(done(state="failed_retriable")).accepted
    assert claim(here, claim_id="c2").kind == "replay"


def test_a_claim_of_another_process_is_seen(here, there):
    """A record that was not there before is found once another process has made it."""
    claim(there)
    assert claim(here, claim_id="c2").kind == "refuse"


def test_a_switch_of_another_process_is_seen(here, there):
    """A kill switch that another process opens refuses the very next write, and closed lets it pass."""
    there.flip(SwitchCommand("*", "open", "ann", "incident", 1.0))
    assert claim(here).finding.code == "kill_switch"
    there.flip(SwitchCommand("*", "closed", "ann", "over", 2.0))
    assert claim(here).kind == "execute"


def test_a_run_that_another_process_stops_is_seen(here, there):
    """A run that is stopped elsewhere claims nothing here."""
    there.change_run("r", lambda state: step_down_to(state, "stopped", "kill_switch"))
    assert claim(here).finding.code == "run_stopped"


def test_a_change_of_its_own_is_seen(here):
    """The run's state and the switches that this store has written count from then on."""
    here.change_run("r", lambda state: step_down_to(state, "stopped", "kill_switch"))
    assert claim(here).finding.code == "run_stopped"


def test_what_was_rolled_back_is_forgotten(here, monkeypatch):
    """A claim whose commit failed is not there for its settlement, nor for the next claim."""
    real = SqliteConnection.commit
    error = apsw.FullError("full")
    error.result = 13

    def full(_):
        raise error

    monkeypatch.setattr(SqliteConnection, "commit", full)
    with pytest.raises(Exception, match="the disk is full"):
        claim(here)
    monkeypatch.setattr(SqliteConnection, "commit", real)
    assert here.settle(done()).record is None
    assert claim(here, claim_id="c2").kind == "execute"


def test_what_was_pruned_is_forgotten(here):
    """After a record was pruned, the same effect can be claimed anew."""
    claim(here)
    here.settle(done(state="failed_retriable"))
    assert here.prune(1_000.0, by="ann", now=2_000.0) == 1
    assert claim(here, claim_id="c2").record.attempt == 1


def test_only_so_much_is_remembered(here, monkeypatch):
    """With more open records than the bound, it begins anew and is still right."""
    monkeypatch.setattr(sqlite_notes, "_MOST", 3)
    for number in range(10):
        assert claim(here, f"k{number}").kind == "execute"
        assert len(here._notes._records) <= 3
    assert all(here.settle(done(f"k{number}")).accepted for number in range(10))
