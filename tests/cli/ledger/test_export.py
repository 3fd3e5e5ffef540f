"""`pokayoke ledger audit`, `ledger metrics`, and what a reconciliation leaves behind for both."""

import json

from pokayoke.stores.values import SwitchCommand


def flip(ledger, count, by="ann"):
    store = ledger()
    for number in range(count):
        store.flip(SwitchCommand(f"tool{number}", "open", by, "a \x1b[31mreason", 1_800_000_000.0 + number))
    store.close()


def test_the_audit_is_exported_piece_by_piece(shell, ledger):
    """JSON Lines, oldest first; the second piece begins behind the last number of the first, and is counted."""
    flip(ledger, 3)
    first = shell("ledger", "audit", "--json")
    lines = [json.loads(line) for line in first.stdout.splitlines()]
    assert [(one["kind"], one["subject"], one["by"]) for one in lines] == [
        ("switch", f"tool{number}", "ann") for number in range(3)
    ]
    last = lines[-1]["number"]
    assert first.stderr == f"3 lines, number {lines[0]['number']} to {last}\n"
    assert shell("ledger", "audit", "--json", "--after", last).stderr == "0 lines\n"
    flip(ledger, 1, by="bob")
    (more,) = shell("ledger", "audit", "--json", "--after", last).stdout.splitlines()
    assert json.loads(more)["by"] == "bob"


def test_people_read_it_escaped_and_since(shell, ledger):
    """One line each, nothing that acts on a terminal; --since leaves older lines out."""
    flip(ledger, 2)
    done = shell("ledger", "audit")
    assert done.returncode == 0
    assert "tool1  by ann  (a \\x1b[31mreason)" in done.stdout.splitlines()[1]
    assert "\x1b" not in done.stdout
    assert shell("ledger", "audit", "--since", "2099-01-01").stdout == ""


def test_a_reconciliation_is_kept_for_metrics_and_audit(shell, ledger, tmp_path):
    """Its time, its tool and the keys that differ are in the store, whatever it found."""
    (tmp_path / "rows.jsonl").write_text('{"key": "", "reference": "PO-1", "tool": "order"}\n')
    assert shell("ledger", "reconcile", "--rows", "rows.jsonl", "--tool", "order").returncode == 1
    told = shell("ledger", "metrics").stdout
    assert 'pokayoke_store_reconciled_open_keys{tool="order"} 1.0' in told.splitlines()
    (tmp_path / "rows.jsonl").write_text("")
    assert shell("ledger", "reconcile", "--rows", "rows.jsonl", "--tool", "order").returncode == 0
    assert 'pokayoke_store_reconciled_open_keys{tool="order"} 0.0' in shell("ledger", "metrics").stdout.splitlines()
    found = [json.loads(line) for line in shell("ledger", "audit", "--json").stdout.splitlines()]
    assert [(one["kind"], one["subject"], one["data"]) for one in found] == [
        ("reconciled", "order", {"open": 1, "keys": {"extra": 1}}), ("reconciled", "order", {"open": 0, "keys": {}}),
    ]  # fmt: skip


def test_metrics_are_lines_of_json_too(shell, ledger):
    """Each value with its name and its labels, the same as in the text."""
    flip(ledger, 1)
    found = [json.loads(line) for line in shell("ledger", "metrics", "--json").stdout.splitlines()]
    assert {"metric": "pokayoke_store_kill_switch_open", "labels": {"scope": "tool0"}, "value": 1.0} in found
    assert {"metric": "pokayoke_store_doubts", "labels": {}, "value": 0.0} in found


def test_metrics_of_no_store_are_an_error(shell, tmp_path):
    """Exit code 2 and nothing on stdout: a file of zeros would say that all is well."""
    done = shell("ledger", "metrics", "--store", "sqlite:///none.db")
    assert (done.returncode, done.stdout) == (2, "")
