"""Declared corrections: when a corrector of the contract is asked, and user code that misbehaves."""

import pytest
from corrector_samples import WRITE, order, outcome

from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.finding_codes import CODES_BY_ROOM


def test_correctors_that_agree():
    """Two correctors with one answer are one answer."""
    assert outcome("day", "04/04/2026", ["date:%d/%m/%Y", "date:%m/%d/%Y"]) == "2026-04-04"


def test_an_answer_that_harms_is_no_rival():
    """Of two answers the one that breaks a rule elsewhere does not count."""
    schema = {
        "type": "object",
        "properties": {"v": {"type": "array", "items": {"enum": ["A", "B"]}, "uniqueItems": True}},
    }
    made = Contract.from_schema("t", schema, correctors={"/v/*": ({"aliases": {"x": "A"}}, lambda value: "B")})
    assert correct_arguments({"v": ["A", "x"]}, made, kinds=WRITE).value == {"v": ["A", "B"]}


def test_declared_corrections_come_before_guesses_for_alike_items():
    """Two items that the same corrector settles are settled by it, like a single one."""
    schema = {"type": "object", "properties": {"codes": {"type": "array", "items": {"type": "string"}}}}
    asked = Contract.from_schema("f", schema, correctors={"/codes/*": lambda code: str(code).zfill(3)})
    for codes, right in (([7], ["007"]), ([7, 8], ["007", "008"])):
        prepared = correct_arguments({"codes": codes}, asked, kinds=(*WRITE, "likely"))
        assert prepared.value == {"codes": right}
        assert {item.kind for item in prepared.corrections} == {"declared"}


def test_a_corrector_gets_only_invalid_values():
    """It gets no value that fits, and none that another spelling of the same value settles."""
    seen = []
    made = order({"amount": lambda value: seen.append(value) or 1})
    for value in (5, "5"):
        assert correct_arguments({"amount": value}, made, kinds=WRITE).value == {"amount": 5}
    assert seen == []


def test_nested_fields():
    """A pointer reaches fields inside lists; a name reaches only the top."""
    made = order({"/rows/*/n": "counter_suffix"})
    assert correct_arguments({"rows": [{"n": "2件"}, {"n": "3件"}]}, made, kinds=WRITE).value == {
        "rows": [{"n": 2}, {"n": 3}]
    }


@pytest.mark.parametrize("sent", [{"grams": "2件"}, {"rows": [{"n": "2件"}]}, {"rows": "2件"}])
def test_no_other_field(sent):
    """The corrector of one field does not touch another one."""
    for made in (order({"amount": "counter_suffix"}), order({"/rows/*": lambda value: {"n": 2}})):
        assert [item.code for item in correct_arguments(sent, made, kinds=WRITE).findings] == ["wrong_type"]


def test_declared_needs_its_class():
    """Without the class declared the answer is a hint."""
    found = outcome("amount", "2件", "counter_suffix", kinds=("equivalent",))
    assert "Send `amount` as 2 if" in found[0].hint
    assert found[0].data["rule"] == "counter_suffix"


class WordlessError(Exception):
    """An exception that cannot even be shown."""

    def __str__(self):
        raise RuntimeError("no words")


def raising(exc):
    def corrector(value):
        raise exc

    return corrector


class Odd(int):
    """An integer that is no plain JSON integer."""


@pytest.mark.parametrize(
    "corrector",
    [
        *map(raising, [TypeError("no"), SystemExit(3), GeneratorExit(), WordlessError(), RecursionError()]),
        lambda value: (1, 2),
        lambda value: Odd(3),
        lambda value: {1: 2},
        lambda value: {"a": {1, 2}},
        lambda value: [0] * 200_000,
        lambda: 5,
    ],
)
def test_user_code_never_escapes(corrector):
    """Whatever a corrector raises or returns becomes a finding that blames the policy, not the model."""
    found = outcome("amount", "seven", corrector)
    assert [(item.code, item.blame) for item in found] == [("corrector_failed", "policy"), ("wrong_type", "model")]
    assert found[0].at == "/amount"
    assert found[0].code in CODES_BY_ROOM["correct"]


def test_a_failing_corrector_stops_the_call():
    """If one corrector fails, the call is refused even where another has an answer."""
    found = outcome("amount", "seven", (raising(TypeError()), lambda value: 7))
    assert [item.code for item in found] == ["corrector_failed"]


def test_interrupts_pass():
    """A KeyboardInterrupt is not swallowed."""
    with pytest.raises(KeyboardInterrupt):
        outcome("amount", "seven", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        correct_arguments({}, order(validate_input=raising(KeyboardInterrupt())), kinds=WRITE)


def test_user_code_gets_a_copy():
    """A change that a corrector makes to its argument does not reach the call."""
    value = {"amount": [{"deep": 1}, 2]}
    correct_arguments(value, order({"amount": lambda item: item[0].clear()}), kinds=WRITE)
    assert value == {"amount": [{"deep": 1}, 2]}
