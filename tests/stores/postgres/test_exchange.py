"""Statements and rows over libpq's pipeline: every value comes back as it was, and a failure ends the exchange."""

import math

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgserver import Missing, empty_schema

from pokayoke.stores.postgres import exchange
from pokayoke.stores.postgres.pool import Connection


@pytest.fixture(scope="module")
def link(need):
    """A connection that prepares its statements."""
    try:
        with empty_schema() as url, Connection.connect(url, autocommit=True) as conn:
            conn.prepared = {}
            yield conn
    except Missing as missing:
        need(str(missing))


pytestmark = pytest.mark.xdist_group("postgres")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)


@given(
    TEXTS,
    st.binary(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.sampled_from(["read", "write"]),
)
def test_a_value_comes_back_as_it_was(link, text, data, number, double, flag, word):
    """Of every type that the tables and settings have."""
    sql = "SELECT ?::text, ?::bytea, ?::int8, ?::float8, ?::int8 = 1, ?::varchar, ?::text, ?::int4"
    ((row,),) = link.execute_batch([(sql, (text, data, number, double, int(flag), word, None, 7))])
    assert row == (text, data, number, double, flag, word, None, 7)
    assert math.copysign(1, row[3]) == math.copysign(1, double)


def test_a_number_that_is_none_comes_back(link):
    """Infinity and NaN are what PostgreSQL calls them."""
    ((row,),) = link.execute_batch([("SELECT ?::float8, ?::float8", (math.inf, math.nan))])
    assert row[0] == math.inf
    assert math.isnan(row[1])


def test_a_text_with_a_nul_is_refused_and_never_cut_short(need):
    """PostgreSQL has no such text: an error, not the part before it."""
    try:
        with empty_schema() as url, Connection.connect(url, autocommit=True) as conn:
            with pytest.raises(psycopg.DataError):
                conn.execute_batch([("SELECT ?::text", ("a\x00b",))])
            assert conn.closed
    except Missing as missing:
        need(str(missing))


def test_every_statement_answers_with_its_own_rows(link):
    """Statements with many rows, one and none, prepared now or before, in one exchange."""
    many, none, one = ("SELECT generate_series(1, ?)", (3,)), ("SELECT 1 WHERE ? = 0", (1,)), ("SELECT ?::int8", (5,))
    for _ in range(2):
        assert link.execute_batch([many, none, one, many]) == [[(1,), (2,), (3,)], [], [(5,)], [(1,), (2,), (3,)]]


def test_no_more_statements_are_prepared_than_a_session_should_hold(link, monkeypatch):
    """Beyond that they are sent as they are."""
    monkeypatch.setattr(exchange, "_MOST_PREPARED", len(link.prepared) + 1)
    for number in range(5):
        assert link.execute_batch([(f"SELECT {number}", ())]) == [[(number,)]]
    assert len(link.prepared) == exchange._MOST_PREPARED


def test_the_first_failure_is_the_one_that_is_told(need):
    """What comes behind a failed statement is not carried out, and does not hide the reason."""
    try:
        with empty_schema() as url, psycopg.connect(url, autocommit=True) as beside:
            beside.execute("CREATE TABLE t (n int8)")
            with Connection.connect(url, autocommit=True) as conn, pytest.raises(psycopg.errors.DivisionByZero):
                conn.execute_batch([("INSERT INTO t VALUES (?)", (1,)), ("SELECT 1 / ?", (0,)), ("SELECT ?", ("x",))])
            assert beside.execute("SELECT * FROM t").fetchall() == []
    except Missing as missing:
        need(str(missing))


@pytest.mark.parametrize("value", [{}, [1], True, object()])
def test_a_value_of_another_type_is_the_programmers_mistake(value):
    """Nothing is guessed about it."""
    with pytest.raises(KeyError):
        exchange._write_values((value,))
