"""The business and the ledger fall apart, and what is too much is undone at most once."""

import base64
import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import msgspec
import pytest
from clishell import Shell
from pgserver import Missing, empty_schema

from pokayoke import Contract, Guard, ToolCall, open_store
from pokayoke.cli import options as operating
from pokayoke.cli.ledger.business_rows import build_row, parse_column_map
from pokayoke.cli.ledger.join import BusinessRows, ReconcileQuery, join_rows
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.compensation import BusinessRow, Compensation, undoing_key
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.reconcile import Comparison, ReconcileTimes, build_compensations
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.compensate import Compensator
from pokayoke.runtime.driver.effect import this_effect
from pokayoke.runtime.threads.clock import SystemClock
from pokayoke.stores import MemoryStore
from pokayoke.stores.values import SwitchCommand
from pokayoke.testing import FailingStore

ARGUMENTS = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["sku", "amount"],
}
SELECT = "SELECT key, id AS reference, amount, arguments FROM orders ORDER BY id"


@pytest.fixture
def shell(tmp_path):
    """`pokayoke` in this folder."""
    return Shell(tmp_path)


class Business:
    """The other side: a table of orders that no store of ours touches."""

    def __init__(self, url, run):
        self.url, self.run = url, run
        run("CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY, key VARCHAR(64), amount NUMERIC(10, 2), arguments TEXT)")

    def order(self, key, sku, amount):
        """Take an order, as a shop does that keeps the key it was given."""
        values = f"'PO-{sku}', '{key}', {amount}, '{json.dumps({'amount': amount, 'sku': sku})}'"
        self.run(f"INSERT INTO orders (id, key, amount, arguments) VALUES ({values})")
        return f"PO-{sku}"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path, need, monkeypatch):
    """The URL of a ledger and a business beside it."""
    monkeypatch.delenv("POKAYOKE_STORE_KEY", raising=False)
    if request.param == "sqlite":
        file = tmp_path / "shop.db"

        def run(sql):
            with sqlite3.connect(file) as conn:
                conn.execute(sql)
            conn.close()

        yield f"sqlite:///{tmp_path / 'ledger.db'}", Business(f"sqlite:///{file}", run)
        return
    import psycopg  # noqa: PLC0415 - an extra, which a user may lack

    try:
        with empty_schema() as url:

            def execute(sql):
                with psycopg.connect(url, autocommit=True) as conn:
                    conn.execute(sql)

            yield url, Business(url, execute)
    except Missing as missing:
        need(str(missing))


@pytest.fixture
def ledger(place, shell, monkeypatch):
    """The ledger's URL, made and named in the environment."""
    monkeypatch.setenv("POKAYOKE_STORE", place[0])
    assert shell("ledger", "init").returncode == 0
    return place[0]


@pytest.fixture
def shop(place):
    """The business."""
    return place[1]


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def reconciled(shell, shop, *words, sql=SELECT):
    """Exit code, class to keys, and the sums."""
    done = shell("ledger", "reconcile", "--sql", shop.url, sql, "--lease", "0s", "--json", *words)
    assert done.stdout, done.stderr
    told = lines(done)
    classes = {}
    for one in told:
        if "class" in one:
            classes.setdefault(one["class"], set()).add(one["key"])
    return done.returncode, classes, told[-1]["summary"]


def ordered(ledger, shop, count):
    """Order through a real guard. Returns the keys."""

    def order(sku, amount):
        shop.order(this_effect().key, sku, amount)
        return {"order": f"PO-{sku}", "amount": amount}

    output = {"type": "object", "required": ["order"]}
    guard = Guard([Contract.from_schema("order", ARGUMENTS, output_schema=output, handler=order)], store=ledger)
    with guard.run("r1") as run:
        outcomes = [run.call(ToolCall(f"c{n}", "order", {"sku": f"S{n:03}", "amount": n + 0.5})) for n in range(count)]
    guard.close()
    assert [outcome.status for outcome in outcomes] == ["ok"] * count
    return [outcome.key for outcome in outcomes]


def test_reconciliation_names_exactly_the_keys_that_fell_apart(shell, ledger, shop):
    """Business rows removed, added, altered and doubled: each key in its class, no other key anywhere."""
    keys = ordered(ledger, shop, 40)
    assert reconciled(shell, shop)[:2] == (0, {})
    shop.run(f"DELETE FROM orders WHERE key IN ('{keys[3]}', '{keys[4]}')")
    shop.run(f"UPDATE orders SET amount = amount + 1 WHERE key = '{keys[7]}'")
    shop.run(f'UPDATE orders SET arguments = \'{{"sku": "X", "amount": 1}}\' WHERE key = \'{keys[8]}\'')
    shop.run(f"INSERT INTO orders SELECT 'again', key, amount, arguments FROM orders WHERE key = '{keys[12]}'")
    shop.order("e" * 64, "S900", 5)
    code, classes, sums = reconciled(shell, shop)
    assert (code, classes) == (1, {
        "missing": {keys[3], keys[4]}, "mismatched": {keys[7], keys[8]}, "duplicate": {keys[12]}, "extra": {"e" * 64},
    })  # fmt: skip
    assert sums["matched"] == 35
    shop.run("DELETE FROM orders")
    assert reconciled(shell, shop)[1] == {"missing": set(keys)}


def test_doubts_and_late_effects_are_told_apart(shell, ledger, shop):
    """In doubt with and without a row, a row of what was said not to have happened, and a young claim in peace."""
    keys = {name: letter * 64 for name, letter in zip(("happened", "not", "denied", "young"), "abcd", strict=True)}
    store, now = open_store(ledger), time.time()
    for name, key in keys.items():
        at = now if name == "young" else now - 9_999
        store.admit(
            AdmissionRequest(
                "r", "order", "write", (), at, Claim(key, "h", f"c-{name}", "order", "order@1", "r", at, 60)
            )
        )
        if name != "young":
            store.settle(Settlement(key, f"c-{name}", "in_doubt", at, failure="timeout"))
    store.close()
    shop.order(keys["happened"], "S1", 1)
    assert shell("ledger", "resolve", "c" * 6, "--not-happened", "--by", "ann", "--reason", "gone").returncode == 0
    shop.order(keys["denied"], "S2", 2)
    code, classes, sums = reconciled(shell, shop)
    assert code == 1
    assert classes == {
        "doubtful_happened": {keys["happened"]},
        "doubtful_not": {keys["not"]},
        "extra": {keys["denied"]},
    }
    assert sums["in_flight"] == 1


def test_rows_are_found_by_reference_too(shell, ledger, shop):
    """A business that keeps no key: its own name of the effect, recorded by a person, leads to the record."""
    store, now = open_store(ledger), time.time() - 9_999
    for letter in "ab":
        key = letter * 64
        store.admit(
            AdmissionRequest("r", "order", "write", (), now, Claim(key, "h", letter, "order", "order@1", "r", now, 60))
        )
        store.settle(Settlement(key, letter, "completed", now, reference=f"PO-{letter}"))
    store.close()
    shop.run("INSERT INTO orders (id) VALUES ('PO-a'), ('PO-x')")
    sql = "SELECT id AS number FROM orders"
    code, classes, _ = reconciled(shell, shop, "--map", "reference=number", sql=sql)
    assert (code, classes) == (1, {"missing": {"b" * 64}, "extra": {""}})
    _, classes, sums = reconciled(shell, shop, "--map", "reference=number", "--since", "1h", sql=sql)
    assert (classes, sums["extra"], sums["matched"]) == ({"extra": {""}}, 1, 0)


def taken(store, *rows, tool=None):
    """The class of each key and of the rows without one, in the order in which they are told."""
    with closing(BusinessRows()) as aside:
        aside.add_rows(rows)
        return [found.kind for found in join_rows(store, aside, ReconcileQuery(tool), ReconcileTimes(9.0, 9.0))]


def test_a_row_without_a_key_belongs_to_one_effect_of_its_tool():
    """Two effects with one reference need two rows, and the payment number 7 is not the row of shipment number 7."""
    store = MemoryStore()
    for key, tool, reference in (("a", "pay", "7"), ("b", "pay", "8"), ("c", "pay", "8")):
        store.admit(
            AdmissionRequest("r", tool, "write", (), 1.0, Claim(key, "h", key, tool, f"{tool}@1", "r", 1.0, 1.0))
        )
        store.settle(Settlement(key, key, "completed", 2.0, reference=reference))
    one, two = BusinessRow(1, reference="7"), BusinessRow(2, reference="8")
    assert taken(store, one, two) == ["matched", "matched", "missing"]
    assert taken(store, one, two, BusinessRow(3, "c", "8")) == ["matched", "matched", "matched"]
    assert taken(store, BusinessRow(1, reference="7", tool="ship")) == ["missing", "missing", "missing", "extra"]
    assert taken(store, BusinessRow(1, reference="7", tool="pay"), tool="pay") == ["matched", "missing", "missing"]
    assert taken(store, one, BusinessRow(2, reference="7", tool="ship"), tool="ship") == ["extra", "extra"]


def test_what_ran_again_after_its_undoing_needs_a_row_again():
    """The undoing of the first attempt hides neither that the row of the second is missing nor that it is wrong."""
    store = MemoryStore()
    for at, key, compensates in ((1.0, undoing_key("a"), "a"), (3.0, "a", "")):
        claim = Claim(key, "h", key, "pay", "pay@1", "r", at, 1.0, compensates=compensates)
        store.admit(AdmissionRequest("r", "pay", "write", (), at, claim))
        store.settle(Settlement(key, key, "completed", at + 1))
    assert sorted(taken(store)) == ["matched", "missing"]
    assert sorted(taken(store, BusinessRow(1, "a", digest="other"))) == ["matched", "mismatched"]
    assert sorted(taken(store, BusinessRow(1, "a", "1"), BusinessRow(2, "a", "2"))) == ["matched", "matched"]


def test_a_key_is_compared_as_the_ledger_writes_it():
    """Upper case and spaces around a key, as databases pad it, are not another key; what is no text is an error."""
    padded = {"key": " " + "AB" * 32 + "  ", "reference": "P1 ", "digest": "AB ", "amount": " 1.50 ", "tool": "order  "}
    assert build_row(1, padded, parse_column_map(None)) == BusinessRow(1, "ab" * 32, "P1", "ab", "1.50", "order")
    for column in padded:
        for value in (["a"], {"a": 1}, b"a"):
            with pytest.raises(ConfigurationError, match=f"row 7: its {column} is no text"):
                build_row(7, {column: value}, parse_column_map(None))


def test_columns_of_a_fixed_width_hide_no_row():
    """A padded tool is no other tool, whose rows are left out, and a padded reference no other reference."""
    store = MemoryStore()
    for key, reference in (("a" * 64, "P1"), ("b" * 64, "P2   ")):
        store.admit(
            AdmissionRequest("r", "order", "write", (), 1.0, Claim(key, "h", key, "order", "order@1", "r", 1.0, 1.0))
        )
        store.settle(Settlement(key, key, "completed", 2.0, reference=reference))
    aside = BusinessRows()
    said = [{"reference": "P1   "}, {"reference": "P2"}, {"key": "e" * 64, "reference": "P9"}]
    aside.add_rows(
        build_row(number, one | {"tool": "order  "}, parse_column_map(None)) for number, one in enumerate(said, 1)
    )
    kinds = [found.kind for found in join_rows(store, aside, ReconcileQuery("order"), ReconcileTimes(99.0, 99.0))]
    aside.close()
    assert kinds == ["matched", "matched", "extra"]


def test_only_what_is_wanted_is_judged(shell, ledger, shop):
    """--tool and --since leave the other effects and their rows alone."""
    keys = ordered(ledger, shop, 6)
    store, at = open_store(ledger), time.time() - 9_999
    store.admit(
        AdmissionRequest("r", "mail", "write", (), at, Claim("a" * 64, "h", "c", "mail", "mail@1", "r", at, 60))
    )
    store.settle(Settlement("a" * 64, "c", "completed", at))
    store.close()
    shop.run(f"DELETE FROM orders WHERE key = '{keys[0]}'")
    assert reconciled(shell, shop)[1] == {"missing": {keys[0], "a" * 64}}
    assert reconciled(shell, shop, "--tool", "order")[1] == {"missing": {keys[0]}}
    assert reconciled(shell, shop, "--tool", "mail")[1] == {"missing": {"a" * 64}}
    assert reconciled(shell, shop, "--since", "1h")[1] == {"missing": {keys[0]}}


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_tool_without_any_effect_is_told(shell, ledger, shop):
    """A misspelt --tool leaves nothing to compare: that is no clean ledger without a word."""
    ordered(ledger, shop, 1)
    for name, told in (("ordr", True), ("order", False)):
        done = shell("ledger", "reconcile", "--sql", shop.url, SELECT, "--lease", "0s", "--json", "--tool", name)
        assert (done.returncode, f"no effect of a tool {name!r}" in done.stderr) == (0, told)


def test_the_business_cannot_be_written_from_here(shell, ledger, shop):
    """A query that writes is refused by the connection itself."""
    shop.order("a" * 64, "S1", 1)
    writes = ["DELETE FROM orders", "UPDATE orders SET key = ''", "INSERT INTO orders (id) VALUES ('x') RETURNING id"]
    if shop.url.startswith("postgresql"):
        shop.run("CREATE SEQUENCE numbers")
        writes += ["SELECT nextval('numbers') AS key", "SELECT 1 AS key; DELETE FROM orders"]
    else:
        writes += ["PRAGMA query_only = 0; DELETE FROM orders", "SELECT 1 AS key; DELETE FROM orders"]
    for sql in writes:
        done = shell("ledger", "reconcile", "--sql", shop.url, sql)
        assert (done.returncode, done.stdout) == (2, "")
    assert reconciled(shell, shop)[1] == {"extra": {"a" * 64}}


def test_a_ledger_of_many_pages_is_compared_as_a_whole(shell, tmp_path, monkeypatch):
    """Thousands of keys, a page at a time: every tenth has no row, and exactly these are named."""
    store, at = MemoryStore(), time.time() - 9_999
    monkeypatch.setenv("POKAYOKE_STORE", "sqlite:///any.db")
    monkeypatch.setattr(operating, "open_store", lambda url, create: store)
    with (tmp_path / "rows.jsonl").open("w") as file:
        for number in range(3_000):
            key = f"{number:064x}"
            store.admit(
                AdmissionRequest("r", "order", "write", (), at, Claim(key, "h", key, "order", "order@1", "r", at, 60))
            )
            store.settle(Settlement(key, key, "completed", at))
            if number % 10:
                file.write(json.dumps({"key": key, "reference": number}) + "\n")
    told = lines(shell("ledger", "reconcile", "--rows", "rows.jsonl", "--json"))
    assert [one["key"] for one in told[:-1]] == [f"{number:064x}" for number in range(0, 3_000, 10)]
    assert told[-1]["summary"]["matched"] == 2_700


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ('{"key": "a"}\n{"key": "b', (), "line 2"), ("[1]\n", (), "line 1"), ('{"key": "a", "arguments": "x"}', (), "arguments"),
        ('{"key": "a", "arguments": [1]}', (), "arguments"), ("{}", ("--map", "kex=a"), "--map"), ("{}", ("--map", "key"), "--map"),
        ("{}", ("--lease", "x"), "--lease"), ("{}", ("--yes",), "--compensate"), ("{}", ("--compensate",), "--contracts"),
        ("{}", ("--compensate", "--contracts", "x.json", "--yes"), "--by"), ("{}", ("--key", "a"), "--compensate"),
        ("{}", ("--compensate", "--contracts", "nope:ALL"), "nope"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read_say_so(shell, ledger, tmp_path, text, words, said):
    """A torn line could be any row, so nothing is said about the others: exit code 2, place and reason on stderr."""
    (tmp_path / "rows.jsonl").write_text(text)
    done = shell("ledger", "reconcile", "--rows", "rows.jsonl", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("words", [
    (), ("--rows", "no"), ("--rows", "a", "--sql", "sqlite:///a", "SELECT 1"), ("--sql", "sqlite:///no.db", "SELECT 1"),
    ("--sql", "mysql://h/d", "SELECT 1"), ("--sql", "shop", "SELEC"), ("--sql", "shop", "SELECT 1 AS one"),
    ("--sql", "shop", "-- none"), ("--sql", "shop", "SELECT id AS one FROM orders"),
    ("--sql", "shop", "SELECT 1 AS key; SELECT 1 AS reference, 2 AS key"),
])  # fmt: skip
def test_a_source_that_cannot_be_used_says_so(shell, ledger, shop, words):
    """None, two, a missing file, another kind, wrong SQL, no column that names a key, no query, two: exit code 2."""
    done = shell("ledger", "reconcile", *(shop.url if word == "shop" else word for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_a_column_that_a_query_gives_twice_is_refused(shell, ledger, shop):
    """Of a join's two amounts nobody can tell which is meant; a second column that is not asked for does no harm."""
    keys = ordered(ledger, shop, 1)
    done = shell("ledger", "reconcile", "--sql", shop.url, "SELECT key, 5 AS amount, amount FROM orders")
    assert (done.returncode, done.stdout, "'amount' more than once" in done.stderr) == (2, "", True)
    sql = "SELECT key, 1 AS other, amount, 2 AS other FROM orders; -- the end"
    assert (len(keys), *reconciled(shell, shop, sql=sql)[:2]) == (1, 0, {})


@pytest.mark.parametrize("keys", [None, b"w"])
def test_a_ledger_that_cannot_be_opened_whole_says_so_before_anything_else(shell, ledger, shop, monkeypatch, keys):
    """Without the key of a sealed output, or with another one, no line is printed that could pass for the result."""
    monkeypatch.setenv("POKAYOKE_STORE_KEY", base64.b64encode(b"k" * 32).decode())
    first, *_ = sorted(ordered(ledger, shop, 8))
    shop.run(f"DELETE FROM orders WHERE key = '{first}'")
    assert reconciled(shell, shop)[1] == {"missing": {first}}
    if keys is None:
        monkeypatch.delenv("POKAYOKE_STORE_KEY")
    else:
        monkeypatch.setenv("POKAYOKE_STORE_KEY", base64.b64encode(keys * 32).decode())
    done = shell("ledger", "reconcile", "--sql", shop.url, SELECT, "--lease", "0s")
    assert (done.returncode, done.stdout) == (2, "")
    assert "POKAYOKE_STORE_KEY" in done.stderr


# -- undoing -----------------------------------------------------------------------------------------

SHOP = """
import json, os, sys, time
import pokayoke

def undo(what):
    with open("undone.log", "a") as file:
        file.write(json.dumps([what.effect_key, what.key, what.row.reference if what.row else None]) + "\\n")
    how = os.environ.get("HOW", "")
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "raise":
        raise OSError("the connection was lost")
    if how == "slow":
        time.sleep(1.0)
    return f"back-{what.row.reference if what.row else what.effect_key[:4]}"

order = pokayoke.Contract.from_schema(
    "order", {"type": "object"}, output_schema={}, handler=lambda **given: {}, compensate=undo,
    timeout=0.3 if os.environ.get("HOW") == "slow" else 30.0,
)
mail = pokayoke.Contract.from_schema("mail", {"type": "object"}, output_schema={}, handler=lambda **given: {})
ALL = [order, mail]
"""


@pytest.fixture
def undoing(shell, shop, ledger, tmp_path, monkeypatch):
    """Run `reconcile --compensate`, also in a process of its own. Returns exit code and JSON lines."""
    (tmp_path / "shop.py").write_text(SHOP)
    words_of_all = ["ledger", "reconcile", "--sql", shop.url, SELECT, "--lease", "0s",
                    "--json", "--compensate", "--contracts", "shop:ALL", "--tool", "order"]  # fmt: skip

    def run(*words, how="", apart=False):
        monkeypatch.setenv("HOW", how)
        if not apart:
            done = shell(*words_of_all, *words)
            return done.returncode, [one for one in lines(done) if "undo" in one]
        command = [sys.executable, "-m", "pokayoke.cli", *words_of_all, *words]
        return subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return run


def undone(tmp_path):
    file = tmp_path / "undone.log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


NOW = ("--yes", "--by", "ann")


def test_what_is_too_much_is_undone_once(shell, ledger, shop, undoing, tmp_path):
    """First said, then done, then never again; the ledger holds the undoing, the audit who wanted it."""
    keys = ordered(ledger, shop, 3)
    shop.run(f"INSERT INTO orders SELECT 'again', key, amount, arguments FROM orders WHERE key = '{keys[1]}'")
    shop.order("e" * 64, "S9", 5)
    code, told = undoing()
    assert (code, [one["undo"] for one in told], undone(tmp_path)) == (1, ["would_undo"] * 2, [])
    code, told = undoing(*NOW)
    assert (code, [one["undo"] for one in told]) == (0, ["undone"] * 2)
    assert sorted(undone(tmp_path)) == sorted([
        [keys[1], undoing_key(keys[1], "again"), "again"], ["e" * 64, compensation_key("e" * 64), "PO-S9"],
    ])  # fmt: skip
    for _ in range(2):
        assert undoing(*NOW) == (0, [])
    assert len(undone(tmp_path)) == 2
    store = open_store(ledger)
    record = store.record(compensation_key("e" * 64))
    assert (record.state, record.compensates, record.reference) == ("completed", "e" * 64, "back-PO-S9")
    assert {(entry.kind, entry.subject, entry.by) for entry in store.audit() if entry.kind != "reconciled"} == {
        ("compensated", keys[1], "ann"), ("compensated", "e" * 64, "ann"),
    }  # fmt: skip
    store.close()


def test_a_chosen_effect_is_undone(shell, ledger, shop, undoing, tmp_path):
    """--key undoes what is in order; a doubt, and a key nobody knows, stop everything before anything is undone."""
    keys = ordered(ledger, shop, 2)
    assert undoing("--key", keys[0])[0] == 1
    assert undoing("--key", "f" * 64, "--key", keys[0], *NOW)[0] == 2
    assert undoing("--key", keys[0][:8], *NOW)[0] == 2
    assert undone(tmp_path) == []
    assert undoing("--key", keys[0], *NOW)[0] == 0
    assert undoing("--key", keys[0], *NOW)[1][0]["undo"] == "undone_before"
    assert undone(tmp_path) == [[keys[0], compensation_key(keys[0]), "PO-S000"]]
    shop.run(f"DELETE FROM orders WHERE key = '{keys[0]}'")
    assert reconciled(shell, shop)[:2] == (0, {})
    assert "it was undone" in shell("ledger", "show", keys[0]).stdout


def test_an_undoing_hides_no_second_row(shell, ledger, shop, undoing, tmp_path):
    """An effect that was undone and came twice is told; what is proven too many is undone by its own name."""
    key, _ = ordered(ledger, shop, 2)
    assert undoing("--key", key, *NOW)[0] == 0
    shop.run(f"INSERT INTO orders SELECT 'late', key, amount, arguments FROM orders WHERE key = '{key}'")
    assert reconciled(shell, shop)[:2] == (1, {"duplicate": {key}})
    assert undoing(*NOW)[0] == 0
    assert [one[2] for one in undone(tmp_path)] == ["PO-S000", "late"]
    assert reconciled(shell, shop)[:2] == (0, {})


def test_what_the_ledger_may_have_forgotten_is_not_undone(shell, ledger, shop, undoing, tmp_path):
    """After a prune an old order in order, and one that was undone, look like extra ones: only --key undoes those."""
    keys = ordered(ledger, shop, 2)
    shop.order("e" * 64, "S9", 5)
    assert undoing(*NOW)[0] == 0
    store = open_store(ledger)
    store.prune(time.time() + 10.0, by="ann", now=time.time())
    store.close()
    for words in ((), NOW):
        code, told = undoing(*words)
        assert (code, [(one["undo"], one["key"]) for one in told]) == (
            1, [("refused", key) for key in sorted([*keys, "e" * 64])],
        )  # fmt: skip
        assert "pruned" in told[0]["message"]
    assert len(undone(tmp_path)) == 1
    assert [one["undo"] for one in undoing("--key", keys[0], *NOW)[1]].count("undone") == 1
    assert [one[0] for one in undone(tmp_path)] == ["e" * 64, keys[0]]


@pytest.mark.parametrize("how", ["kill", "raise", "slow"])
def test_an_undoing_that_broke_is_in_doubt_and_never_repeated_blindly(shell, ledger, shop, undoing, tmp_path, how):
    """SIGKILL, an exception, a deadline in the middle of it: in doubt, not repeated, settled by a person."""
    ordered(ledger, shop, 1)
    shop.order("e" * 64, "S9", 5)
    if how == "kill":
        process = undoing(*NOW, how=how, apart=True)
        process.communicate(timeout=50)
        assert process.returncode == -9
    else:
        code, told = undoing(*NOW, how=how)
        assert (code, told[0]["undo"]) == (1, "in_doubt")
    for _ in range(2):
        code, told = undoing(*NOW)
        assert (code, [one["undo"] for one in told if one["key"] == "e" * 64]) == (1, ["in_doubt"])
    assert len(undone(tmp_path)) == 1
    doubt = compensation_key("e" * 64)
    assert [one["key"] for one in lines(shell("ledger", "list", "--in-doubt", "--json"))] == [doubt]
    assert shell("ledger", "resolve", doubt, "--not-happened", "--by", "ann", "--reason", "looked").returncode == 0
    assert undoing(*NOW)[0] == 0
    assert len(undone(tmp_path)) == 2


def test_two_people_undo_at_once(ledger, shop, undoing, tmp_path):
    """Four processes with the same plan: each row is undone once."""
    ordered(ledger, shop, 1)
    for number in range(8):
        shop.order(f"{number}" * 64, f"S{number}", 5)
    together = [undoing(*NOW, apart=True) for _ in range(4)]
    for process in together:
        process.communicate(timeout=50)
    assert sorted(one[0][0] for one in undone(tmp_path)) == list("01234567")


def test_rows_of_another_ledger_are_not_undone(ledger, shop, undoing, tmp_path):
    """In a ledger without any effect of the tool every order looks extra: only --key undoes one, and no more for it."""
    keys = ["e" * 64, "f" * 64]
    for key, number in zip(keys, ("S8", "S9"), strict=True):
        shop.order(key, number, 5)
    for words in ((), NOW):
        code, told = undoing(*words)
        assert (code, [(one["undo"], one["key"]) for one in told]) == (1, [("refused", key) for key in keys])
        assert "check --store" in told[0]["message"]
    for _ in range(2):  # what was undone is no effect of the tool
        assert undoing("--key", keys[0], *NOW)[0] == 1
        assert [one[0] for one in undone(tmp_path)] == keys[:1]
    ordered(ledger, shop, 1)
    assert undoing(*NOW)[0] == 0
    assert [one[0] for one in undone(tmp_path)] == keys


def test_what_cannot_be_told_is_not_undone(ledger, shop, undoing, tmp_path):
    """Two rows that say different things, and a tool that cannot be undone: said, and left alone."""
    keys = ordered(ledger, shop, 1)
    shop.run(f"INSERT INTO orders VALUES ('other', '{keys[0]}', 99, '{{}}')")
    code, told = undoing(*NOW)
    assert (code, [one["undo"] for one in told], undone(tmp_path)) == (1, ["refused"], [])
    assert "cannot be told" in told[0]["message"]


# -- the compensator itself ----------------------------------------------------------------------------


def contract(compensate, **fields):
    return Contract.from_schema(
        "order", ARGUMENTS, output_schema={}, handler=lambda **_: {}, compensate=compensate, **fields
    )


STEP = build_compensations(Comparison("extra", "e" * 64, rows=(BusinessRow(1, "e" * 64, "PO-1"),)), "too much")[0]


async def later(what):
    return "R-9"


@pytest.mark.parametrize("compensate", [lambda what: "R-9", later])
def test_a_function_of_either_kind_undoes(compensate):
    """A plain or an asynchronous function; what it returns is kept as the reference."""
    store = MemoryStore()
    became = Compensator(store, by="ann").undo_effect(contract(compensate), STEP)
    assert (became.status, became.reference) == ("undone", "R-9")
    again = Compensator(store, by="ann").undo_effect(contract(compensate), STEP)
    assert (again.status, again.reference) == ("undone_before", "R-9")


def test_the_function_is_handed_what_it_needs():
    """Key of the effect, key of the undoing, row, reason; and `this_effect` is the undoing."""
    seen = []
    Compensator(MemoryStore(), by="ann").undo_effect(
        contract(lambda what: seen.append((what, this_effect().key))), STEP
    )
    ((what, key),) = seen
    assert isinstance(what, Compensation)
    assert (what.effect_key, what.row.reference, what.reason) == ("e" * 64, "PO-1", "too much")
    assert what.key == key == compensation_key("e" * 64)


def test_a_late_end_ends_the_doubt():
    """It comes back after its deadline: in doubt first, completed then."""
    store = MemoryStore()
    became = Compensator(store, by="ann").undo_effect(contract(lambda what: time.sleep(0.3), timeout=0.05), STEP)
    assert became.status == "in_doubt"
    end = time.monotonic() + 20
    while store.record(STEP.key).state != "completed" and time.monotonic() < end:
        time.sleep(0.01)
    assert store.record(STEP.key).state == "completed"


class Quick(SystemClock):
    def sleep(self, seconds):
        pass


def test_an_undoing_that_cannot_be_recorded_is_no_success():
    """The store fails after it was undone: in doubt, and never done again."""
    times = []
    store = FailingStore(MemoryStore(), "settle")
    became = Compensator(store, by="ann", clock=Quick()).undo_effect(contract(times.append), STEP)
    assert (became.status, len(times)) == ("in_doubt", 1)
    store.fail_on(())
    assert Compensator(store, by="ann").undo_effect(contract(times.append), STEP).status in ("in_doubt", "refused")
    assert len(times) == 1


@pytest.mark.parametrize("fails", ["admit", "note"])
def test_a_store_that_fails_undoes_nothing_twice(fails):
    """Before the claim: nothing happens and the error is told. At the audit: it is undone, and stays so."""
    times = []
    store = FailingStore(MemoryStore(), fails)
    if fails == "admit":
        with pytest.raises(OSError, match="cannot be reached"):
            Compensator(store, by="ann").undo_effect(contract(times.append), STEP)
        assert times == []
    else:
        assert Compensator(store, by="ann").undo_effect(contract(times.append), STEP).status == "undone"


def test_an_open_kill_switch_stops_undoings_too():
    """While all writes are off, an undoing is refused with the reason, and possible afterwards."""
    store, times = MemoryStore(), []
    store.flip(SwitchCommand("*", "open", "ann", "stop", time.time()))
    became = Compensator(store, by="ann").undo_effect(contract(times.append), STEP)
    assert (became.status, times) == ("refused", [])
    assert "kill switch" in became.message
    store.flip(SwitchCommand("*", "closed", "ann", "go", time.time()))
    assert Compensator(store, by="ann").undo_effect(contract(times.append), STEP).status == "undone"


def test_a_contract_has_to_say_how():
    """Without `compensate` there is nothing to call: a configuration error before any claim."""
    store = MemoryStore()
    with pytest.raises(ConfigurationError, match="compensate="):
        Compensator(store, by="ann").undo_effect(contract(None), STEP)
    assert store.record(STEP.key) is None


def test_another_row_under_the_same_key_is_a_conflict():
    """An undoing key stands for one row: with another one it is refused, not done."""
    store, times = MemoryStore(), []
    assert Compensator(store, by="ann").undo_effect(contract(times.append), STEP).status == "undone"
    other = msgspec.structs.replace(STEP, row=BusinessRow(1, "e" * 64, "PO-2"))
    assert Compensator(store, by="ann").undo_effect(contract(times.append), other).status == "refused"
    assert len(times) == 1
