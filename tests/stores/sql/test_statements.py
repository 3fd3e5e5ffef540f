"""Statements, rows, locks and migrations that every SQL store shares."""

import itertools

import apsw
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.ledger.admission import Approval, LimitUsage
from pokayoke.core.ledger.records import Record
from pokayoke.core.state.kill_switch import OutputRate, Switch, SwitchState
from pokayoke.core.state.run_state import LoopCount, RunState, Taint
from pokayoke.errors import StoreError
from pokayoke.stores.encryption import Seal
from pokayoke.stores.lists import AuditFilter, EffectFilter, RunFilter
from pokayoke.stores.operations import ReadRows, ReadSet, WriteSet
from pokayoke.stores.sql import migrations as schema
from pokayoke.stores.sql import pages, queries, rows, statements
from pokayoke.stores.sql.dialect import POSTGRES, SQLITE
from pokayoke.stores.values import AuditEntry, RecordQuery

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)  # NUL and half characters, too
TIMES = st.floats(0, 2e9, allow_nan=False)
STATES = ("executing", "resolving", "completed", "failed_retriable", "failed_final", "in_doubt")
RECORDS = st.builds(
    Record,
    *[st.text("abc", max_size=3)] * 2,
    st.sampled_from(STATES),
    st.integers(1, 2**62),
    st.just("c"),
    TIMES,
    *[st.text("xyz", max_size=3)] * 3,
    TIMES,
    epoch=st.integers(0, 2**62),
    dead_since=st.none() | TIMES,
    settled_at=st.none() | TIMES,
    output=st.none() | st.binary(max_size=20),
    output_ok=st.booleans(),
    failure=TEXTS,
    reference=TEXTS,
    decided_by=TEXTS,
)
NEEDS = st.builds(
    ReadSet,
    record=st.none() | st.sampled_from("kl"),
    run=st.none() | st.sampled_from("rs"),
    keeps_run=st.booleans(),
    counters=st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(tuple),
    fingerprint=st.none() | st.sampled_from("fg"),
    approval=st.none() | st.sampled_from("xy"),
    board=st.sampled_from(["none", "switches", "all"]),
)
ALL = ReadSet("k", "r", False, ("a", "b"), "f", None, "all")
NO_SEAL = Seal()


@pytest.fixture
def db():
    """The tables of a new ledger, in memory."""
    conn = apsw.Connection(":memory:")
    conn.execute(schema.CREATE_META)
    for statement in schema.migration_statements(schema.LedgerMeta(), SQLITE, "L1"):
        conn.execute(*statement)
    yield conn
    conn.close()


def fetch(conn, statement):
    return list(conn.execute(*statement))


def keep(conn, changes, before=None):
    for statement in statements.write_statements(changes, before or ReadRows(), NO_SEAL, 1.0):
        conn.execute(*statement)


def found(conn, need):
    return statements.parse_rows(need, [fetch(conn, one) for one in statements.read_statements(need)], NO_SEAL)


# -- rows -----------------------------------------------------------------------------------------


@given(RECORDS, st.booleans())
def test_a_record_is_its_row(record, sealed):
    """Every record comes back from its row as it was, sealed or not."""
    seal = Seal([b"k" * 32]) if sealed else NO_SEAL
    assert rows.parse_record(rows.record_values(record, seal), seal) == record


@given(TEXTS)
def test_a_text_is_kept_in_a_form_that_every_database_takes(text):
    """What is stored has no NUL and can be encoded, and means the same."""
    kept = rows.encode_text(text)
    assert "\x00" not in kept
    kept.encode()
    assert rows.decode_text(kept) == text


def test_an_ordinary_text_is_stored_as_it_is():
    """People who look into the table can read it."""
    assert rows.encode_text("timeout after 3 s: é漢") == "timeout after 3 s: é漢"


def test_a_row_has_a_column_for_each_field(db):
    """The tables hold what the values have, and nothing else."""
    columns = {
        table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    }
    assert columns["pokayoke_records"] == set(Record.__struct_fields__)
    with_arguments = {"marks", "why", "approvers", "first", "limits", "wanted"}
    assert columns["pokayoke_approvals"] == set(Approval.__struct_fields__) - {"by"} - with_arguments | {"decider"}
    assert columns["pokayoke_audit"] == {"number", "at", "kind", "subject", "who", "reason", "data"}


def test_everything_an_act_changes_is_found_by_the_next(db):
    """What `writes` writes, `reads` and `books` find: every part of it, also when it replaces what was there."""
    for round_ in (1, 2):
        changes = WriteSet(
            Record("k", "h", "in_doubt", round_, "c", 1.0, "pay", "pay@1", "r", 1.0),
            RunState("r", taints=(Taint("t", "i", round_, "why"),), loop=LoopCount(why=str(round_))),
            {"a": LimitUsage(round_, 0.5)},
            Approval("x", "f", "pay", "pay@1", {"n": round_}, "r", 1.0, 2.0, by="me" if round_ == 2 else None),
            SwitchState(
                {"read": OutputRate("read", ((1.0, False),), round_)},
                {"read": Switch("read", "open", round_, opened=(1.0,))},
            ),
            (AuditEntry(1.0, "late_effect", "k"),),
        )
        keep(db, changes, found(db, ALL))
        books = found(db, ALL)
        assert (books.record, books.run, dict(books.used), books.approval) == (
            changes.record,
            changes.run,
            changes.used,
            changes.approval,
        )
        assert books.board == SwitchState(changes.board.rates, changes.board.switches, frozenset({"pay"}))
    assert [rows.parse_entry(row).number for row in fetch(db, queries.select_audit(0, 9))] == [1, 2]
    by_id = ReadSet(approval="x", board="switches")
    assert found(db, by_id) == ReadRows(approval=books.approval, board=SwitchState(switches=books.board.switches))


def test_a_settlement_writes_only_what_it_changes(db):
    """A record that keeps its claim is updated in the columns of a settlement; a new attempt writes the whole row."""
    before = Record("k", "h", "executing", 1, "c", 1.0, "pay", "pay@1", "r", 1.0)
    settled = msgspec.structs.replace(before, state="completed", settled_at=2.0, output=b"1", lease_until=9.0)
    again = msgspec.structs.replace(before, attempt=2, claim_id="d")
    for after, sql in ((settled, statements.SETTLE_RECORD), (again, statements.WRITE_RECORD)):
        ((used, _),) = statements.write_statements(WriteSet(after), ReadRows(before), NO_SEAL, 1.0)
        assert used == sql
        keep(db, WriteSet(before), found(db, ReadSet("k")))
        keep(db, WriteSet(after), ReadRows(before))
        assert found(db, ReadSet("k")).record == after


def test_a_new_record_takes_no_other_ones_place(db):
    """If a record stands where an act has seen none, writing fails and changes nothing."""
    first = Record("k", "h", "executing", 1, "c", 1.0, "pay", "pay@1", "r", 1.0)
    keep(db, WriteSet(first))
    with pytest.raises(apsw.ConstraintError):
        keep(db, WriteSet(msgspec.structs.replace(first, claim_id="d")))
    assert found(db, ReadSet("k")).record == first


def test_a_settlement_leaves_other_records_alone(db):
    """Only the row of its key is updated."""
    first = Record("k", "h", "executing", 1, "c", 1.0, "pay", "pay@1", "r", 1.0)
    other = msgspec.structs.replace(first, key="l")
    keep(db, WriteSet(first))
    keep(db, WriteSet(other))
    keep(db, WriteSet(msgspec.structs.replace(first, state="failed_final")), ReadRows(first))
    assert found(db, ReadSet("l")).record == other


@pytest.mark.parametrize("kind", [RunState, Switch, OutputRate])
def test_a_damaged_body_is_an_error_that_says_so(kind):
    """A body that is no JSON, or of something else, is never taken for a state."""
    for body in ("{", "[]", '{"run_id": 5}'):
        with pytest.raises(StoreError, match="restore a backup"):
            rows.load_json(body, kind)


# -- locks ----------------------------------------------------------------------------------------


@given(NEEDS, NEEDS)
def test_no_two_acts_can_wait_for_each_other(one, other):
    """What two acts both lock, they lock in the same order."""
    both = {lock.name for lock in statements.required_locks(one)} & {
        lock.name for lock in statements.required_locks(other)
    }
    orders = [[lock.name for lock in statements.required_locks(need) if lock.name in both] for need in (one, other)]
    assert orders[0] == orders[1]
    assert all(len(order) == len(set(order)) for order in orders)


@given(st.lists(NEEDS, min_size=2, max_size=4))
def test_no_circle_of_acts_can_wait_for_each_other(needs):
    """There is one order of all locks that every act keeps."""
    after = {}
    for need in needs:
        names = [lock.name for lock in statements.required_locks(need)]
        for before, later in itertools.combinations(names, 2):
            after.setdefault(before, set()).add(later)

    def reaches(start, goal, seen):
        return any(
            one == goal or (one not in seen and reaches(one, goal, seen | {one})) for one in after.get(start, ())
        )

    assert not any(reaches(name, name, frozenset()) for name in after)


def clash(one, other):
    """Whether two acts keep each other waiting."""
    theirs = {lock.name: lock.shared for lock in statements.required_locks(other)}
    return any(
        lock.name in theirs and not (lock.shared and theirs[lock.name]) for lock in statements.required_locks(one)
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (ReadSet("k"), ReadSet("k"), True),
        (ReadSet("k"), ReadSet("l"), False),
        (ReadSet(run="r"), ReadSet(run="r"), False),
        (ReadSet(run="r"), ReadSet(run="r", keeps_run=False), True),
        (ReadSet(run="r", keeps_run=False), ReadSet(run="s", keeps_run=False), False),
        (ReadSet(counters=("a", "b")), ReadSet(counters=("b", "c")), True),
        (ReadSet(counters=("a",)), ReadSet(counters=("b",)), False),
        (ReadSet(fingerprint="f"), ReadSet(fingerprint="f"), True),
        (ReadSet(fingerprint="f"), ReadSet(approval="x"), True),
        (ReadSet(board="switches"), ReadSet(board="switches"), False),
        (ReadSet(board="switches"), ReadSet(board="all"), True),
        (ReadSet(board="all"), ReadSet(board="all"), True),
        (ReadSet(), ReadSet(), False),
        (ReadSet("x"), ReadSet(run="x", keeps_run=False), False),
    ],
)
def test_acts_wait_for_each_other_where_they_must(one, other, expected):
    """Two acts exclude each other if one may change what the other reads, and only then."""
    assert clash(one, other) is clash(other, one) is expected


@given(TEXTS)
def test_a_lock_has_a_number_that_databases_take(name):
    """The number is a signed integer of 64 bits, the same in every process."""
    assert -(2**63) <= statements.AdvisoryLock(name).lock_key < 2**63
    assert statements.AdvisoryLock("record:k").lock_key == 4_557_626_094_261_784_158


# -- SQL ------------------------------------------------------------------------------------------


def every_statement():
    """Each SQL text that the product carries out on the tables."""
    constants = [value for name, value in vars(statements).items() if name.startswith(("READ_", "WRITE_", "SETTLE_"))]
    query = queries.select_records(RecordQuery(("in_doubt",), "t", "r", 1.0, 2.0, "k"))
    listing = [
        pages.select_effects(EffectFilter(("in_doubt",), 1.0, "t", "r", "k", 1.0, 2.0, (1.0, "k"))),
        pages.select_waiting(1.0, (1.0, "f"), 50), pages.select_lines(AuditFilter(("decided",), ("s",), 9)),
        pages.select_runs(RunFilter(("stopped",), ("r",), (1.0, "r"))),
        pages.select_overview(1.0), pages.select_pulse(1.0),
    ]  # fmt: skip
    pruning = [queries.prune_records(1.0, SQLITE), *queries.prune_rest(1.0, now=1.0)]
    pruning += [queries.audit_pruned(1.0, 1, by="me", now=1.0)]
    pruning += [*queries.select_run_counters(1.0), *queries.prune_counters(1.0, [("run:t:r",)], [])]
    return [
        *constants,
        schema.READ_META,
        *(sql for sql, _ in [query, *listing, *pruning, queries.select_approvals(), queries.select_audit(0, 1)]),
    ]


def test_a_question_mark_is_a_value_and_nothing_else():
    """Placeholders can be exchanged: no statement has a question or percent sign of its own."""
    for sql in every_statement():
        assert "%" not in sql
        assert POSTGRES.with_placeholders(sql).count("%s") == sql.count("?")
        assert SQLITE.with_placeholders(sql) == sql


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ((statements.READ_RECORD, ("k",)), "sqlite_autoindex_pokayoke_records_1"),
        ((statements.READ_RUN, ("r",)), "sqlite_autoindex_pokayoke_runs_1"),
        ((statements.READ_COUNTER, ("n",)), "sqlite_autoindex_pokayoke_counters_1"),
        ((statements.READ_QUESTION, ("f",)), "sqlite_autoindex_pokayoke_approvals_1"),
        ((statements.READ_QUESTION_BY_ID, ("x",)), "pokayoke_approvals_id"),
        ((statements.READ_DOUBTFUL, ()), "pokayoke_records_state"),
        (queries.select_records(RecordQuery(states=("in_doubt", "executing"))), "pokayoke_records_state"),
        (queries.select_records(RecordQuery(tool="pay")), "pokayoke_records_tool"),
        (queries.select_records(RecordQuery(run_id="r")), "pokayoke_records_run"),
        (queries.select_records(RecordQuery(after="k")), "sqlite_autoindex_pokayoke_records_1"),
        (queries.prune_records(1.0, SQLITE), "pokayoke_records_settled"),
        (pages.select_effects(EffectFilter()), "pokayoke_records_claimed"),
        (pages.select_effects(EffectFilter(after=(1.0, "k"))), "pokayoke_records_claimed"),
        (pages.select_effects(EffectFilter(tool="pay", after=(1.0, "k"))), "pokayoke_records_tool"),
        (pages.select_effects(EffectFilter(run_id="r")), "pokayoke_records_run"),
        (pages.select_effects(EffectFilter(states=("failed_final",))), "pokayoke_records_state"),
        (pages.count_effects(EffectFilter(doubtful_at=1.0)), "pokayoke_records_state"),
        (pages.select_waiting(1.0, (2.0, "f"), 50), "pokayoke_approvals_status"),
        (pages.select_lines(AuditFilter(subjects=("ap-1",))), "pokayoke_audit_subject"),
        (pages.select_runs(RunFilter(modes=("stopped",))), "pokayoke_runs_mode"),
        (pages.select_runs(RunFilter()), "pokayoke_runs_touched"),
        (pages.select_overview(1.0), "pokayoke_runs_mode"),
        (pages.select_pulse(1.0), "pokayoke_records_settled"),
    ],
)
def test_a_statement_finds_its_rows_by_an_index(db, statement, index):
    """No statement on the path of a call, and none that people wait for, reads a whole table."""
    sql, values = statement
    plan = " ".join(str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values))
    assert f"INDEX {index}" in plan
    assert "SCAN pokayoke_records\n" not in plan + "\n"


def test_forgetting_takes_one_chunk_at_a_time(db, monkeypatch):
    """One statement takes no more than a chunk, so that nobody waits long for it."""
    monkeypatch.setattr(queries, "CHUNK", 3)
    for number in range(5):
        keep(
            db, WriteSet(Record(f"k{number}", "h", "completed", 1, "c", 1.0, "pay", "pay@1", "r", 1.0, settled_at=1.0))
        )
    taken = []
    for _ in range(3):
        fetch(db, queries.prune_records(2.0, SQLITE))
        taken.append(db.changes())
    assert taken == [3, 2, 0]


def test_a_limit_of_a_run_that_is_used_between_listing_and_forgetting_stays(db):
    """Only limits that nobody has used for long are listed, and of those only what is still unused is forgotten."""
    for name, at in (("run:t:idle", 1.0), ("run:t:woken", 1.0), ("run:t:busy", 2.0)):
        db.execute(statements.WRITE_COUNTER, (name, 1, 0.0, at))
    listed = fetch(db, queries.select_run_counters(2.0)[0])
    assert sorted(listed) == [("run:t:idle",), ("run:t:woken",)]
    db.execute(statements.WRITE_COUNTER, ("run:t:woken", 2, 0.0, 2.0))
    for statement in queries.prune_counters(2.0, listed, []):
        fetch(db, statement)
    assert sorted(db.execute("SELECT name FROM pokayoke_counters")) == [("run:t:busy",), ("run:t:woken",)]


# -- migrations -----------------------------------------------------------------------------------


def test_migrations_are_numbered_without_a_gap():
    """The files are 1, 2, 3, ... and every name they give begins with pokayoke_."""
    found_ = schema.load_migrations(SQLITE)
    assert [step.number for step in found_] == list(range(1, schema.latest_version() + 1))
    for step in (*found_, *schema.load_migrations(POSTGRES)):
        for sql in step.statements:
            assert "{" not in sql
            words = [word for word in sql.split() if word.startswith("pokayoke_")]
            assert sql.split()[0] in ("CREATE", "DROP", "ALTER", "UPDATE")
            assert words[0] in sql.split()[1:3]


def test_a_new_ledger_gets_an_id_and_keeps_it(db):
    """The id is written once; at the newest version there is nothing to do."""
    meta = schema.parse_meta(db.execute(schema.READ_META))
    assert meta == schema.LedgerMeta("L1", schema.latest_version())
    assert schema.migration_statements(meta, SQLITE, "L2") == ()


def test_an_older_ledger_is_brought_up_to_date_in_steps(monkeypatch):
    """Only the missing steps are taken, in order, the id stays, and the version is the last step's."""
    steps = tuple(schema.Migration(number, (f"STEP {number}",)) for number in (1, 2, 3))
    monkeypatch.setattr(schema, "load_migrations", lambda _: steps)
    taken = schema.migration_statements(schema.LedgerMeta("L1", 1), SQLITE, "L2")
    assert [sql for sql, _ in taken[:-1]] == ["STEP 2", "STEP 3"]
    assert taken[-1][1] == ("schema_version", "3")


def test_a_newer_ledger_is_refused():
    """Nothing is written to tables that this program does not know; the message says what to upgrade."""
    newer = schema.LedgerMeta("L1", schema.latest_version() + 1)
    for act in (lambda: schema.refuse_newer(newer), lambda: schema.migration_statements(newer, SQLITE, "L2")):
        with pytest.raises(StoreError, match="upgrade pokayoke"):
            act()
    schema.refuse_newer(schema.LedgerMeta("L1", schema.latest_version()))


def test_what_is_no_ledger_names_the_command_that_makes_one():
    """Missing and older tables are told apart: the one names `ledger init`, the other `ledger migrate`, with the URL."""
    with pytest.raises(StoreError, match=r"there is no ledger at u: run `pokayoke ledger init --store u`"):
        schema.refuse_unready(schema.LedgerMeta(), "u")
    with pytest.raises(StoreError, match="is not a number"):
        schema.parse_meta([("schema_version", "x")])
    schema.refuse_unready(schema.LedgerMeta("L1", schema.latest_version() + 1), "u")


def test_an_older_ledger_names_the_command_that_upgrades_it(monkeypatch):
    """A ledger of an older version is not changed by opening it."""
    monkeypatch.setattr(schema, "latest_version", lambda: 2)
    with pytest.raises(StoreError, match=r"has version 1 .* run `pokayoke ledger migrate --store u`"):
        schema.refuse_unready(schema.LedgerMeta("L1", 1), "u")
