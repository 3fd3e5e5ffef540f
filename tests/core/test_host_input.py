"""Host input: accepted if it can be stored, else refused at once with what to pass."""

import decimal
import fractions
import math

import pytest

from pokayoke import Guard, ToolCall
from pokayoke.core.gate.rules import Principal, as_principal
from pokayoke.core.host_input import as_storable_id, as_text_id, expect
from pokayoke.errors import UsageError


def test_expect_names_the_expectation_and_the_type():
    """A value of the type, or of one of several, is returned itself; any other is refused with the advice."""
    given = {}
    assert expect(given, dict, "it is a mapping") is given
    assert expect(None, (str, type(None)), "it is a text or None") is None
    with pytest.raises(UsageError, match=r"^it is a text, got int: pass str\(\) of it$"):
        expect(5, str, "it is a text", ": pass str() of it")


class Text(str):
    """A text with a class of its own."""

    __slots__ = ()


@pytest.mark.parametrize("kept", ["a", "run-1", "Zoë 林 🙂", "two\nlines\x1b", "x" * 500, Text("t")])
def test_an_id_that_every_store_can_keep_is_accepted(kept):
    """Text of up to 500 characters is returned as a plain str."""
    assert as_text_id(kept, "run_id") == kept
    assert type(as_text_id(kept, "run_id")) is str


def test_an_empty_id_of_a_run_names_none():
    """An empty run id is the same as none."""
    assert not Guard([]).run("").named
    assert as_text_id("", "run_id", empty=True) == ""


@pytest.mark.parametrize("name", ["session", "tenant", "principal"])
def test_an_empty_scope_id_is_refused(name):
    """An empty id of a session, tenant or user would be shared by all that have none."""
    with pytest.raises(UsageError, match=f"{name} is empty"):
        Guard([]).run(**{name: ""})
    assert Guard([]).run(principal={"id": "ann", "roles": [""]}).principal.roles == ("",)


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (5, "run_id is a text, got int: pass str() of it"),
        (b"run", "got bytes"),
        (object(), "got object"),
        ("x" * 501, "at most 500 characters, got 501"),
        ("a\0", "holds NUL, U+001F or a lone surrogate"),
        ("\x1f", "holds NUL, U+001F or a lone surrogate"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_an_unusable_id_is_refused_when_a_run_is_opened(refused, why):
    """The message names the argument, can be printed, and no run is opened."""
    for name in ("run_id", "session", "tenant", "principal"):
        with pytest.raises(UsageError) as raised:
            Guard([]).run(**{name: refused})
        assert name in str(raised.value)
        assert why.replace("run_id", name) in str(raised.value)
        str(raised.value).encode()


def test_an_id_of_a_framework_becomes_storable():
    """A storable id stays unchanged; any other becomes its own hash, always the same."""
    assert as_storable_id("thread 1\n") == "thread 1\n"
    assert as_storable_id(7) == "7"
    odd = ["x" * 501, "x" * 502, "a\0", "a\x1f", "\ud800", "\udfff"]
    assert [as_text_id(as_storable_id(ident), "run_id") for ident in odd] == [as_storable_id(ident) for ident in odd]
    assert len({*map(as_storable_id, odd)}) == len(odd)


def test_a_principal_is_an_id_or_an_id_with_roles():
    """Roles come as any collection of texts, and one text is not a collection of letters."""
    assert as_principal(None) is None
    assert as_principal("u") == as_principal({"id": "u"}) == Principal("u")
    assert as_principal({"id": "u", "roles": ["a", "b"]}) == as_principal(Principal("u", ("a", "b")))
    for roles in ("admin", 5, None, ["a", 5], [["a"]]):
        with pytest.raises(UsageError, match="role"):
            as_principal({"id": "u", "roles": roles})


@pytest.mark.parametrize(
    ("given", "taken"),
    [(1, 1.0), (True, 1.0), (decimal.Decimal("0.5"), 0.5), (fractions.Fraction(1, 4), 0.25), (0, 0.0)],
)
def test_any_kind_of_number_is_a_confidence(given, taken):
    """Any number type becomes a float."""
    call = ToolCall("1", "t", "{}", confidence=given)
    assert (type(call.confidence), call.confidence) == (float, taken)


@pytest.mark.parametrize(
    "given", ["0.9", b"1", [], {}, object(), 1j, 10**400, decimal.Decimal("sNaN"), 95, 1.01, -0.5, math.inf]
)
def test_a_confidence_that_is_no_number_is_refused(given):
    """The error is raised where the call is built."""
    with pytest.raises(UsageError, match="confidence is a number from 0 to 1 or None"):
        ToolCall("1", "t", "{}", confidence=given)


class Count:
    """A whole number of a library's own kind."""

    def __index__(self):
        return 3


@pytest.mark.parametrize(("given", "taken"), [(0, 0), (7, 7), (True, 1), (Count(), 3)])
def test_any_kind_of_whole_number_is_an_occurrence(given, taken):
    """Any integer type becomes an int."""
    call = ToolCall("1", "t", "{}", occurrence=given)
    assert (type(call.occurrence), call.occurrence) == (int, taken)


@pytest.mark.parametrize("given", [-1, None, 1.0, "1", math.nan, [], object()])
def test_an_occurrence_that_is_no_whole_number_is_refused(given):
    """A ledger key made from it could not be found again."""
    with pytest.raises(UsageError, match="occurrence is a whole number from 0"):
        ToolCall("1", "t", "{}", occurrence=given)


@pytest.mark.parametrize("given", ["user_cancelled", "", None, ["kill_switch"]])
def test_an_unknown_stop_reason_is_refused(given):
    """A run that was stopped for it could not be opened again."""
    run = Guard([]).run("r")
    for act in (run.stop, run.tools_off):
        with pytest.raises(UsageError, match="is no stop reason: take one of success"):
            act(given)
    assert run.mode == "normal"
    run.stop("loop_detected")
    assert run.stop_reason == "loop_detected"


@pytest.mark.parametrize("given", [1.5, "5", None, math.inf, math.nan, decimal.Decimal(5)])
def test_a_count_of_tokens_is_a_whole_number(given):
    """Any other value is refused at once, and nothing is counted."""
    run = Guard([]).run("r")
    with pytest.raises(UsageError, match="a number of tokens is a whole number"):
        run.usage(given)
    assert run.tokens == 0


@pytest.mark.parametrize(("given", "counted"), [(70, 70), (70.0, 70), (-1, 0), (0, 0)])
def test_a_token_count_is_added(given, counted):
    """Negative figures, which servers send for none, count as 0."""
    run = Guard([]).run("r")
    run.usage(given)
    assert run.tokens == counted
