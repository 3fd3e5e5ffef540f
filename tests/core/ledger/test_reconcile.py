"""The classes of a key: a table of every case, and laws over all of them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.ledger.compensation import BusinessRow, undoing_hash, undoing_key
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.reconcile import (
    AGREEING_KINDS,
    COMPARISON_KINDS,
    Comparison,
    ReconcileTimes,
    build_compensations,
    compare_key,
    is_explained_by_undoing,
    is_same_amount,
    recorded_amount,
)
from pokayoke.core.ledger.records import Record

KEY = "a" * 64
MARK = sha256_hex(canonical_bytes({"sku": "S1"}))
TIMES = ReconcileTimes(read_at=1_000.0, cut_off=900.0)


def record(state="completed", **changes):
    """A record old enough to be judged."""
    base = Record(KEY, MARK, state, 1, "c1", 150.0, "order", "order@1", "r1", 100.0, settled_at=110.0)
    return msgspec.structs.replace(base, **changes)


def row(reference="O-1", number=1, **fields):
    return BusinessRow(number, KEY, reference, **fields)


TWO = (row("O-1", 1), row("O-2", 2))

TABLE = [
    # what the ledger says, the rows, what else is known, the class
    ("completed with its row", record(), [row()], {}, "matched"),
    ("completed with its row and equal arguments", record(), [row(digest=MARK)], {}, "matched"),
    ("completed without a row", record(), [], {}, "missing"),
    ("completed, output still to come, without a row", record(settled_at=None), [], {}, "missing"),
    ("a row without a record", None, [row()], {}, "extra"),
    ("nothing at all", None, [], {}, "matched"),
    ("failed, with a row", record("failed_final"), [row()], {}, "extra"),
    ("said not to have happened, with a row", record("failed_retriable", decided_by="ann"), [row()], {}, "extra"),
    ("failed, without a row", record("failed_retriable"), [], {}, "matched"),
    ("the row of a late effect", record(reference="O-1"), [row("O-9")], {"late": {"O-9"}}, "extra"),
    ("a late effect that the target dropped", record(reference="O-1"), [row("O-1")], {"late": {"O-1"}}, "matched"),
    ("a late effect without a name", record(reference="O-1"), [row("")], {"late": {""}}, "matched"),
    ("two rows", record(), TWO, {}, "duplicate"),
    ("two rows without a record", None, TWO, {}, "duplicate"),
    ("two rows of a failure", record("failed_final"), TWO, {}, "duplicate"),
    ("two rows of a doubt", record("in_doubt"), TWO, {}, "duplicate"),
    ("other arguments", record(), [row(digest="b" * 64)], {}, "mismatched"),
    ("another amount", record(), [row(amount="12.5")], {"amount": "13"}, "mismatched"),
    ("the same amount in another spelling", record(), [row(amount="12.50")], {"amount": "12.5"}, "matched"),
    ("an amount nobody recorded", record(), [row(amount="12.50")], {}, "matched"),
    ("another reference", record(reference="O-7"), [row("O-1")], {}, "mismatched"),
    ("an amount of which the row says nothing", record(), [row()], {"amount": "13"}, "matched"),
    ("a reference of which the row says nothing", record(reference="O-7"), [row("")], {}, "matched"),
    ("the same reference", record(reference="O-1"), [row("O-1")], {}, "matched"),
    ("in doubt with a row", record("in_doubt"), [row()], {}, "doubtful_happened"),
    ("in doubt with another amount", record("in_doubt"), [row(digest="b" * 64)], {}, "doubtful_happened"),
    ("in doubt without a row", record("in_doubt"), [], {}, "doubtful_not"),
    ("executing, its time over", record("executing"), [], {}, "doubtful_not"),
    ("resolving, its time over", record("resolving"), [row()], {}, "doubtful_happened"),
    ("executing, its time not over", record("executing", lease_until=1_001.0), [], {}, "in_flight"),
    ("completed, the time of its claim not over", record(lease_until=1_001.0), [], {}, "missing"),
    ("claimed a moment ago", record(claimed_at=901.0), [], {}, "in_flight"),
    ("settled after the rows were read", record(settled_at=1_001.0), [], {}, "in_flight"),
    ("young, with two rows", record(claimed_at=901.0), TWO, {}, "in_flight"),
    ("an undoing without a row of its own", record(compensates="b" * 64), [], {}, "matched"),
    ("an undoing with one", record(compensates="b" * 64), [row()], {}, "matched"),
    ("an undoing in doubt", record("in_doubt", compensates="b" * 64), [], {}, "doubtful_not"),
    ("an undoing in doubt with a row", record("in_doubt", compensates="b" * 64), [row()], {}, "doubtful_happened"),
    ("undone, its row gone", record(), [], {"undone": {""}}, "matched"),
    ("undone, its row marked", record(), [row()], {"undone": {""}}, "matched"),
    ("undone, two rows of which one is marked", record(), TWO, {"undone": {""}}, "matched"),
    ("undone, and three rows", record(), (*TWO, row("O-3", 3)), {"undone": {""}}, "duplicate"),
    ("undone, and two rows of a failure", record("failed_final"), TWO, {"undone": {""}}, "duplicate"),
    ("undone, and two rows of a doubt", record("in_doubt"), TWO, {"undone": {""}}, "duplicate"),
    ("an extra row undone", None, [row()], {"undone": {""}}, "matched"),
    ("two rows without a record, one undoing", None, TWO, {"undone": {""}}, "duplicate"),
    ("the surplus row undone by its name", record(), TWO, {"undone": {"O-2"}}, "matched"),
    ("both rows undone by name", record(), TWO, {"undone": {"O-1", "O-2"}}, "missing"),
]


@pytest.mark.parametrize(("held", "rows", "known", "kind"), [case[1:] for case in TABLE], ids=[c[0] for c in TABLE])
def test_every_case_has_its_class(held, rows, known, kind):
    """The class is the one of the table; only what is in order goes without a reason."""
    found = compare_key(KEY, held, rows, TIMES, **known)
    assert found.kind == kind
    assert bool(found.reason) == (kind not in AGREEING_KINDS)


def test_an_amount_that_was_not_recorded_is_counted_not_hidden():
    """It is matched by what could be compared, and says that the amount was not."""
    assert compare_key(KEY, record(), [row(amount="1")], TIMES).uncompared
    assert not compare_key(KEY, record(), [row(amount="1")], TIMES, amount="1").uncompared
    assert not compare_key(KEY, record(), [row()], TIMES).uncompared


SAME = {"digest": MARK, "amount": "5"}
SURPLUS = [
    ("the ledger knows which one it is", record(reference="O-2"), TWO, {}, ["O-1"]),
    ("the others are those of late effects", record(), TWO, {"late": {"O-1"}}, ["O-1"]),
    ("they say the same", record(), (row("O-1", 1, **SAME), row("O-2", 2, **SAME)), {}, ["O-2"]),
    (
        "they say the same, and nobody knows more",
        None,
        (row("O-1", 1, amount="5"), row("O-2", 2, amount="5")),
        {},
        ["O-2"],
    ),
    ("they say nothing", record(), TWO, {}, []),
    ("they say what was not claimed", record(), (row("O-1", digest="b" * 64), row("O-2", digest="b" * 64)), {}, []),
    ("they say what was not recorded", record(), (row("O-1", amount="5"), row("O-2", amount="5")), {"amount": "6"}, []),
    ("they have other names", record(reference="O-3"), (row("O-1", 1, **SAME), row("O-2", 2, **SAME)), {}, []),
    ("they say different things", record(), (row("O-1", 1, amount="5"), row("O-2", 2, amount="6")), {}, []),
    ("they have no names", record(), (row("", 1), row("", 2)), {}, []),
    ("they say the same under one name", record(), (row("O-1", 1, **SAME), row("O-1", 2, **SAME)), {}, []),
    ("they have one name", record(reference="O-1"), (row("O-1", 1), row("O-1", 2)), {}, []),
    ("all are those of late effects", record(), (row("O-1", amount="1"), row("O-2")), {"late": {"O-1", "O-2"}}, []),
    ("a late effect has no name, and a row", record(), (row("", 1), row("O-1", 2)), {"late": {""}}, []),
    ("a row nobody knows", None, (row(),), {}, ["O-1"]),
]


@pytest.mark.parametrize(("held", "rows", "known", "names"), [c[1:] for c in SURPLUS], ids=[c[0] for c in SURPLUS])
def test_a_row_is_surplus_only_with_proof(held, rows, known, names):
    """What is to be undone is named if it can be told, and nothing is if it cannot."""
    found = compare_key(KEY, held, rows, TIMES, **known)
    assert [one.reference for one in found.surplus] == names
    assert ("cannot be told" in found.reason) == (found.kind == "duplicate" and not names)


def test_each_surplus_row_is_undone_under_a_key_of_its_own():
    """Two of three rows: two undoings with two keys, each for one row; the keys stay the same next time."""
    rows = [row(f"O-{number}", number) for number in (1, 2, 3)]
    found = compare_key(KEY, record(reference="O-1"), rows, TIMES)
    steps = build_compensations(found, "why")
    assert [(step.effect_key, step.row.reference, step.reason) for step in steps] == [
        (KEY, "O-2", "why"),
        (KEY, "O-3", "why"),
    ]
    assert [step.key for step in steps] == [undoing_key(KEY, "O-2"), undoing_key(KEY, "O-3")]
    assert len({compensation_key(KEY), *(step.key for step in steps)}) == 3


def test_an_effect_is_undone_under_the_key_of_its_compensation():
    """An extra row, a chosen effect, one without a row: one undoing each; a row without any name cannot be undone."""
    for held, rows in [(None, [row()]), (record(), [row()]), (record(), [])]:
        (step,) = build_compensations(compare_key(KEY, held, rows, TIMES), "")
        assert (step.key, step.record, step.row) == (compensation_key(KEY), held, rows[0] if rows else None)
    nameless = compare_key("", None, [BusinessRow(4)], TIMES)
    assert (nameless.kind, build_compensations(nameless, "")) == ("extra", ())
    (step,) = build_compensations(compare_key("", None, [BusinessRow(4, reference="O-4")], TIMES), "")
    assert step.key == undoing_key("", "O-4")
    assert undoing_hash(KEY, "O-1") != undoing_hash(KEY, "O-2")


@pytest.mark.parametrize(
    ("output", "pointer", "found"),
    [
        (None, "/amount", None), (b'{"amount": 12.50}', "/amount", "12.5"), (b'{"a": {"b": "7"}}', "/a/b", "7"),
        (b'{"a": 1}', "/b", None), (b'{"amount": true}', "/amount", None), (b'{"amount": [1]}', "/amount", None),
        (b"5", "", "5"), (b"{", "/amount", None), (b'{"n": 12345678901234567890}', "/n", "12345678901234567890"),
    ],
)  # fmt: skip
def test_the_amount_is_read_where_it_stands(output, pointer, found):
    """A number or a text at the pointer; anything else is nothing to compare with."""
    assert recorded_amount(output, pointer) == found


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("1", "1.0", True), ("1e2", "100", True), ("12 EUR", "12 EUR", True), ("12 EUR", "12", False), ("1", "2", False)],
)
def test_amounts_are_compared_as_numbers(one, other, same):
    """Spelling makes no difference, size does; what is no number is compared as text."""
    assert is_same_amount(one, other) is same


records = st.builds(
    record,
    state=st.sampled_from(["executing", "resolving", "completed", "failed_retriable", "failed_final", "in_doubt"]),
    settled_at=st.sampled_from([None, 110.0, 1_001.0]),
    claimed_at=st.sampled_from([100.0, 950.0]),
    lease_until=st.sampled_from([150.0, 2_000.0]),
    reference=st.sampled_from(["", "O-1"]),
    compensates=st.sampled_from(["", "b" * 64]),
)
rows = st.lists(
    st.builds(row, st.sampled_from(["", "O-1", "O-2"]), digest=st.sampled_from(["", MARK, "b" * 64])), max_size=4
)
names = st.frozensets(st.sampled_from(["", "O-1", "O-2"]))


@given(st.none() | records, rows, names, names)
def test_no_disagreement_counts_as_matched(held, found, late, undone):
    """Every combination has one class; a settled completed effect without any undoing matches exactly one row."""
    told = compare_key(KEY, held, found, TIMES, late=late, undone=undone)
    assert isinstance(told, Comparison)
    assert told.kind in COMPARISON_KINDS
    assert set(told.surplus) <= set(found)
    assert not found or len(told.surplus) < len(found) or told.kind == "extra"
    if told.kind == "matched" and not undone and held is not None and not held.compensates:
        assert len(found) == (held.state == "completed")


@pytest.mark.parametrize(
    ("undoing", "held", "rows", "explained"),
    [
        (None, record(), 0, False),
        (record("in_doubt", claimed_at=120.0), record(), 0, False),
        (record(claimed_at=120.0), record(), 0, True),
        (record(claimed_at=120.0), record(), 1, True),
        (record(claimed_at=120.0), record(), 2, False),
        (record(claimed_at=120.0), None, 1, True),
        (record(claimed_at=90.0), record(), 0, False),
        (record(claimed_at=90.0), record(), 1, False),
        (record(claimed_at=90.0), record(), 2, True),
        (record(claimed_at=90.0), record("in_doubt"), 1, False),
        (record(claimed_at=90.0), record("failed_retriable"), 1, True),
    ],
)
def test_an_undoing_explains_what_it_may_have_left_behind(undoing, held, rows, explained):
    """One row, and none beside it; that of an earlier attempt wants the row of the one which ran again."""
    assert is_explained_by_undoing(undoing, held, rows) is explained
