"""Numbers without a fraction reach the tool as integers where integers are wanted, and nowhere else."""

from typing import Annotated, Literal

import pytest
from correction_samples import INTEGER, NUMBER, NUMBERS, READ, STRING, WRITE, contract, one
from hypothesis import given
from hypothesis import strategies as st

import pokayoke
from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.check.argument_checks import ArgumentChecks
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.correct.whole_numbers import MAX_RECORDED
from pokayoke.core.gate.confidence import call_confidence
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.values import equal_json
from pokayoke.core.schema.schema import compile_schema
from pokayoke.dropin import safe_parse_args

INTEGERS = {"type": "array", "items": INTEGER}


def kinds_of(value):
    """The value with the type of every number in it, because 2 equals 2.0."""
    if isinstance(value, dict):
        return {key: kinds_of(item) for key, item in value.items()}
    return [kinds_of(item) for item in value] if isinstance(value, list) else (type(value).__name__, value)


@pytest.mark.parametrize(
    ("node", "sent", "received"),
    [
        (INTEGER, 3.0, 3),
        (INTEGER, 1e2, 100),
        (INTEGER, -0.0, 0),
        (INTEGER, 1e22, 10**22),
        (INTEGERS, [1.0, 2, 3.0], [1, 2, 3]),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": 4.0}, {"a": 4}),
        ({"type": "object", "properties": {"n": INTEGERS}}, {"n": [[5.0][0]], "m": 5.0}, {"n": [5], "m": 5.0}),
        ({"anyOf": [INTEGER, STRING]}, 6.0, 6),
        ({"type": ["integer", "null"]}, 7.0, 7),
        ({"enum": [1, 2]}, 2.0, 2),
        ({"type": "integer", "const": 8}, 8.0, 8),
        ({"type": "array", "prefixItems": [NUMBER, INTEGER]}, [9.0, 9.0], [9.0, 9]),
        (NUMBER, 3.0, 3.0),
        (NUMBERS, [1.0], [1.0]),
        ({"anyOf": [INTEGER, NUMBER]}, 3.0, 3.0),
        ({"enum": [1.5, "a", 2.0]}, 2.0, 2.0),
        ({}, 3.0, 3.0),
        ({"type": "integer", "$comment": "a text may look like one: 2.0"}, 5, 5),
    ],
)
@pytest.mark.parametrize("written", [False, True])
def test_a_whole_number_is_an_integer_where_one_is_wanted(node, sent, received, written):
    """Alone, nested, in lists, unions and choices; a place that takes any number keeps what was sent."""
    tool = one(node)
    dumped = dump_compact({"v": sent}, sort=True) if written else None
    prepared = correct_arguments({"v": sent}, tool, kinds=(), canonical=dumped)
    assert prepared.findings == ()
    assert kinds_of(prepared.value["v"]) == kinds_of(received)
    changed = kinds_of(sent) != kinds_of(received)
    assert prepared.changed is changed
    assert {change.rule for change in prepared.corrections} == ({"integer_from_number"} if changed else set())


def test_draft_4_is_no_exception():
    """Draft 4 takes 2.0 for no integer; it becomes one all the same."""
    tool = contract({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"v": INTEGER}})
    prepared = correct_arguments({"v": 2.0}, tool, kinds=WRITE)
    assert kinds_of(prepared.value) == kinds_of({"v": 2})


def test_very_many_are_one_change():
    """More than some hundred numbers are recorded as one change, and all of them are integers."""
    sent = {"v": [float(number) for number in range(MAX_RECORDED + 1)]}
    prepared = correct_arguments(sent, one(INTEGERS), kinds=WRITE)
    assert [(change.at, change.before) for change in prepared.corrections] == [("", sent)]
    assert {type(item) for item in prepared.value["v"]} == {int}
    assert type(sent["v"][0]) is float


def test_it_is_no_reason_for_doubt():
    """Providers that write every integer so lose no confidence by it."""
    fields = dict.fromkeys("abcdefgh", INTEGER)
    prepared = correct_arguments(dict.fromkeys(fields, 1.0), contract({"properties": fields}), kinds=WRITE)
    assert len(prepared.corrections) == 8
    assert call_confidence((), prepared.corrections) == 1.0


@pytest.mark.parametrize("sent", ['{"n": 3.0, "few": [1e1], "by": {"a": 2.0}, "one": 2.0, "x": 2.0}', None])
def test_a_tool_gets_integers(sent):
    """A parameter declared int gets one, from text and from a dict, whatever else the tool takes."""

    @pokayoke.tool(effect="write", output="text")
    def count(n: Annotated[int, "how many"], few: list[int], by: dict[str, int], one: Literal[1, 2], x: float) -> str:
        """Count."""
        return repr((n, few, by, one, x))

    arguments = sent or {"n": 3.0, "few": [10.0], "by": {"a": 2.0}, "one": 2.0, "x": 2.0}
    with Guard([count]).run() as run:
        outcome = run.call(ToolCall("c1", "count", arguments))
    assert outcome.value == "(3, [10], {'a': 2}, 2, 2.0)"
    assert outcome.effect == "done"


def test_the_drop_in_returns_integers():
    """`safe_parse_args` with a schema returns integers too."""
    schema = {"type": "object", "properties": {"n": INTEGER}}
    assert kinds_of(safe_parse_args('{"n": 3.0}', schema)) == kinds_of({"n": 3})


def test_a_schema_without_integers_is_not_searched():
    """Where a schema names no integer, a whole double is no reason to look; where it names one, it is."""
    value = {"v": 2.0}
    assert not ArgumentChecks(
        compile_schema({"properties": {"v": NUMBER}, "additionalProperties": False})
    ).may_need_change(value, dump_compact(value))
    for node in (INTEGER, {"type": ["integer", "string"]}, {"enum": [2]}, {"const": 2}):
        checks = ArgumentChecks(compile_schema({"properties": {"v": node}, "additionalProperties": False}))
        assert checks.may_need_change(value, dump_compact(value))
        assert not checks.may_need_change({"v": 2}, b'{"v":2}')


NODES = st.recursive(
    st.sampled_from([INTEGER, NUMBER, STRING, {}, {"enum": [1, 2.0, "a"]}, {"type": ["integer", "string"]}]),
    lambda inner: st.one_of(
        inner.map(lambda node: {"type": "array", "items": node}),
        st.lists(inner, min_size=2, max_size=2).map(lambda nodes: {"anyOf": nodes}),
        inner.map(lambda node: {"type": "object", "properties": {"k": node}}),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.sampled_from([0.0, 1.0, 2, 2.5, 1e22, "a", "2.0", None, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("kj"), inner, max_size=2),
    max_leaves=5,
)


@given(NODES, VALUES)
def test_law_only_the_spelling_of_numbers_changes(node, sent):
    """Valid arguments stay equal and valid, and a second time nothing changes."""
    tool = Contract.from_schema("t", {"type": "object", "properties": {"v": node}})
    if not tool.input.accepts({"v": sent}):
        return
    first = correct_arguments({"v": sent}, tool, kinds=READ)
    if first.findings:
        return
    assert equal_json(first.value, {"v": sent})
    second = correct_arguments(first.value, tool, kinds=READ)
    assert not second.changed
    assert kinds_of(second.value) == kinds_of(first.value)
