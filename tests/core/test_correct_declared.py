"""Declared corrections: correctors a contract names, units, and input models; user code that misbehaves."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import Finding
from pokayoke.core.contract import units
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.correctors import compile_correctors
from pokayoke.core.correct.correct import CODES, correct_arguments
from pokayoke.core.json.values import equal_json
from pokayoke.core.schema.schema import compile_schema
from pokayoke.errors import ContractError

WRITE = ("equivalent", "declared")
ORDER = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "weight": {"type": "number"},
        "grams": {"type": "integer"},
        "currency": {"enum": ["CNY", "USD"]},
        "day": {"type": "string", "format": "date"},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "additionalProperties": False,
}


def order(correctors=None, **fields):
    return Contract.from_schema("order", ORDER, correctors=correctors or {}, **fields)


def outcome(field, before, corrector, kinds=WRITE):
    prepared = correct_arguments({field: before}, order({field: corrector}), kinds=kinds)
    return prepared.value[field] if not prepared.findings else prepared.findings


@pytest.mark.parametrize(
    ("field", "corrector", "before", "after"),
    [
        ("amount", "counter_suffix", "2件", 2),
        ("amount", "counter_suffix", "２ 個", 2),
        ("amount", "counter_suffix", " 3 pcs. ", 3),
        ("amount", "counter_suffix", "1 Stück", 1),
        ("amount", "counter_suffix", "12items", 12),
        ("amount", {"counter_suffix": ["Kartons"]}, "4 kartons", 4),
        ("weight", "unit:kg", "500 g", 0.5),
        ("weight", {"unit": "kg"}, "1.5 tonnes", 1500),
        ("weight", "unit:lb", "1 kg", float(Fraction("1000") / Fraction("453.59237"))),
        ("grams", "unit:g", "1.5kg", 1500),
        ("weight", "unit:C", "212 °F", 100),
        ("weight", "unit:K", "-273.15 °C", 0),
        ("weight", "unit:m", "3 Feet", 0.9144),
        ("weight", "unit:MB", "1 GiB", 1073.741824),
        ("currency", {"aliases": {"Yuan": "CNY", "RMB": "CNY"}}, " yuan ", "CNY"),
        ("day", "date:%d.%m.%Y", "3.4.2026", "2026-04-03"),
        ("day", {"date": "%m/%d/%Y"}, "03/04/2026", "2026-03-04"),
        ("day", "date:%d%m%Y", "03042026", "2026-04-03"),
        ("amount", ("unit:kg", "counter_suffix"), "5 pcs", 5),
        ("amount", lambda value: 7 if value == "seven" else value, "seven", 7),
    ],
)
def test_declared(field, corrector, before, after):
    """A corrector that the contract names makes the value fit, and the change says that it was declared."""
    prepared = correct_arguments({field: before}, order({field: corrector}), kinds=WRITE)
    assert equal_json(prepared.value, {field: after})
    assert [item.kind for item in prepared.corrections] == ["declared"]
    assert prepared.corrections[0].rule


@pytest.mark.parametrize(
    ("field", "corrector", "before"),
    [
        *(
            ("amount", "counter_suffix", text)
            for text in ("1.5件", "2-3件", "1,000件", "-2件", "02件", "件", "2 dozen")
        ),
        *(
            ("amount", "counter_suffix", text)
            for text in ("2箱", "2 boxes", "2 kg", "two pcs", "2 pcs 3", "٢件", "101件", "9" * 300)
        ),
        ("amount", "counter_suffix", 2.5),
        *(("weight", "unit:kg", text) for text in ("5 km", "1,5 g", "1.500 g", "5 stone", "5 g 3 g", "kg", "5 " * 40)),
        ("weight", "unit:kg", ["5 g"]),
        ("weight", "unit:s", "5 m"),
        ("weight", "unit:l", "1 gallon"),
        ("weight", "unit:B", "1 KB"),
        ("grams", "unit:g", "1.5 mg"),
        ("currency", {"aliases": {"yuan": "CNY"}}, "yen"),
        ("currency", {"aliases": {"yuan": "CNY"}}, 5),
        ("day", "date:%d.%m.%Y", "03/04/2026"),
        ("day", "date:%d.%m.%Y", "31.2.2026"),
        ("day", "date:%d.%m.%Y", 5),
        *(("day", "date:%d%m%Y", text) for text in ("3042026", "1122026")),
        ("day", "date:%Y%m%d", "2026112"),
        ("day", ("date:%d/%m/%Y", "date:%m/%d/%Y"), "03/04/2026"),
        ("amount", lambda value: value, "seven"),
        ("amount", lambda value: 500, "seven"),
        ("amount", lambda value: 5, {7}),
        ("amount", (lambda value: 5, lambda value: 6), "seven"),
    ],
)
def test_not_what_was_declared(field, corrector, before):
    """A corrector leaves alone what it cannot read without doubt; answers that differ or misfit count for nothing."""
    assert isinstance(outcome(field, before, corrector), tuple)


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


def test_what_is_declared_comes_before_a_guess_also_for_alike_items():
    """Two items that the same corrector settles are settled by it, as one would be."""
    schema = {"type": "object", "properties": {"codes": {"type": "array", "items": {"type": "string"}}}}
    asked = Contract.from_schema("f", schema, correctors={"/codes/*": lambda code: str(code).zfill(3)})
    for codes, right in (([7], ["007"]), ([7, 8], ["007", "008"])):
        prepared = correct_arguments({"codes": codes}, asked, kinds=(*WRITE, "likely"))
        assert prepared.value == {"codes": right}
        assert {item.kind for item in prepared.corrections} == {"declared"}


def test_only_what_is_invalid_is_shown_to_a_corrector():
    """A corrector never sees a value that fits, nor one that another spelling of the same value settles."""
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
    """The corrector of one field says nothing about another one, beside it or below."""
    for made in (order({"amount": "counter_suffix"}), order({"/rows/*": lambda value: {"n": 2}})):
        assert [item.code for item in correct_arguments(sent, made, kinds=WRITE).findings] == ["wrong_type"]


def test_declared_needs_its_class():
    """Without the class declared the answer is a hint."""
    found = outcome("amount", "2件", "counter_suffix", kinds=("equivalent",))
    assert "Send `amount` as 2 if" in found[0].hint
    assert found[0].data["rule"] == "counter_suffix"


@pytest.mark.parametrize(
    ("correctors", "says"),
    [
        ({"amuont": "counter_suffix"}, "no such field"),
        ({"/rows/*/m": "counter_suffix"}, "no such field"),
        ({"amount": "counter"}, "is none"),
        ({"amount": "counter_suffix:x"}, "is none"),
        ({"amount": {"aliases": {}, "unit": "kg"}}, "is none"),
        ({"amount": {"aliases": 5}}, "is none"),
        ({"amount": 5}, "is none"),
        ({"amount": ()}, "none is given"),
        ({"weight": "unit:stone"}, "not a known unit"),
        ({"weight": {"unit": 5}}, "is none"),
        ({"amount": {"counter_suffix": [1]}}, "is none"),
        ({"currency": {"aliases": {1: "CNY"}}}, "quotation marks"),
        ({"day": "date:%d.%m"}, "once each"),
        ({"day": "date:%d.%d.%m.%Y"}, "once each"),
        ({"day": "date:%d %b %m %Y"}, "only %d"),
        ({"currency": {"aliases": {"euro": "EUR"}}}, "not an allowed value"),
        ({"currency": {"aliases": {"x": "CNY", "X ": "USD"}}}, "two values"),
    ],
)
def test_mistakes_of_the_programmer(correctors, says):
    """A corrector that cannot work is an error while building, and the error says why."""
    with pytest.raises(ContractError, match=says):
        compile_correctors(correctors, compile_schema(ORDER))


def test_aliases_may_repeat():
    """Two spellings of one alias with the same meaning are no contradiction."""
    assert compile_correctors({"currency": {"aliases": {"x": "CNY", "X": "CNY"}}}, compile_schema(ORDER))
    assert not compile_correctors({}, compile_schema(ORDER))


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
        *map(raising, [ValueError("no"), SystemExit(3), GeneratorExit(), WordlessError(), RecursionError()]),
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
    assert found[0].code in CODES


def test_a_failing_corrector_stops_the_call():
    """If one corrector fails, the call is refused even where another has an answer."""
    found = outcome("amount", "seven", (raising(ValueError()), lambda value: 7))
    assert [item.code for item in found] == ["corrector_failed"]


def test_interrupts_pass():
    """The user's own interrupt is not swallowed."""
    with pytest.raises(KeyboardInterrupt):
        outcome("amount", "seven", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        correct_arguments({}, order(validate_input=raising(KeyboardInterrupt())), kinds=WRITE)


def test_user_code_gets_a_copy():
    """What a corrector does to the value it is shown does not reach the call."""
    value = {"amount": [{"deep": 1}, 2]}
    correct_arguments(value, order({"amount": lambda item: item[0].clear()}), kinds=WRITE)
    assert value == {"amount": [{"deep": 1}, 2]}


def test_input_model_agrees():
    """An input model that changes nothing leaves the very object."""
    value = {"amount": 2, "rows": [{"n": 1}]}
    prepared = correct_arguments(value, order(validate_input=lambda args: ({**args, "amount": 2.0}, ())), kinds=WRITE)
    assert prepared.value is value
    assert prepared.corrections == ()


def test_input_model_changes():
    """A change by the input model is a declared correction of the field; additions and removals too."""

    def model(args):
        return {"currency": args["currency"], "amount": min(args.get("amount", 1), 10)}, ()

    value = {"currency": "CNY", "amount": "20", "day": "2026-01-01"}
    prepared = correct_arguments(value, order(validate_input=model), kinds=WRITE)
    assert prepared.value == {"currency": "CNY", "amount": 10}
    assert [(item.at, item.before, item.after, item.kind) for item in prepared.corrections] == [
        ("/amount", "20", 20, "equivalent"),
        ("/amount", 20, 10, "declared"),
        ("/day", "2026-01-01", None, "declared"),
    ]
    assert value["amount"] == "20"


def test_input_model_needs_the_class():
    """Where declared corrections are not allowed, the change is a hint."""
    prepared = correct_arguments(
        {"amount": 20}, order(validate_input=lambda args: ({"amount": 10}, ())), kinds=("equivalent",)
    )
    assert prepared.findings[0].code == "correction_not_allowed"
    assert "Send `amount` as 10" in prepared.findings[0].hint
    assert prepared.value == {"amount": 20}


def test_input_model_refuses():
    """What the input model finds is passed on, and nothing is changed; what the schema refuses it cannot let pass."""
    seven = correct_arguments({"amount": "seven"}, order(validate_input=lambda args: ({"amount": 7}, ())), kinds=WRITE)
    assert [item.code for item in seven.findings] == ["wrong_type"]
    finding = Finding("invalid_argument", "/amount")
    prepared = correct_arguments({"amount": 20}, order(validate_input=lambda args: ({}, (finding,))), kinds=WRITE)
    assert prepared.findings == (finding,)
    assert prepared.value == {"amount": 20}


COUNTER = iter(range(1, 1000))


@pytest.mark.parametrize(
    "model",
    [
        raising(SystemExit()),
        raising(ValueError("no")),
        lambda args: args,
        lambda args: ([1], ()),
        lambda args: (args, ["no finding"]),
        lambda args: (args, None),
        lambda args: ({"amount": Odd(3)}, ()),
        lambda args: ({"amount": True}, ()),
        lambda args: ({"amount": 500}, ()),
        lambda args: ({"amount": args["amount"] + 1}, ()),
        lambda args: ({"amount": 3}, () if args["amount"] == 1 else (Finding("x"),)),
    ],
)
def test_input_model_misbehaves(model):
    """A model that raises, returns what cannot be used, or never settles is a finding that blames the policy."""
    prepared = correct_arguments({"amount": 1}, order(validate_input=model), kinds=WRITE)
    assert [(item.code, item.blame) for item in prepared.findings] == [("corrector_failed", "policy")]
    assert prepared.value == {"amount": 1}


def test_input_model_gets_a_copy():
    """What the model does to the arguments it is shown does not reach the call."""

    def model(args):
        args["rows"].append(1)
        return {"rows": [{"n": 1}]}, ()

    value = {"rows": [{"n": 1}]}
    assert correct_arguments(value, order(validate_input=model), kinds=WRITE).value is value
    assert value == {"rows": [{"n": 1}]}


UNITS = ["kg", "g", "mg", "lb", "oz", "km", "m", "in", "mi", "s", "h", "wk", "l", "ml", "kB", "MiB", "C", "F", "K"]


@given(st.sampled_from(UNITS), st.sampled_from(UNITS), st.integers(-(10**6), 10**6))
def test_law_conversion_is_exact_and_reversible(one, other, number):
    """There and back is the same number, and units of another dimension never convert."""
    first, second = units.find_unit(one), units.find_unit(other)
    there = units.convert_amount(f"{number} {one}", second)
    assert (there is None) == (first.dimension != second.dimension)
    if there is not None:
        assert (there * second.factor + second.offset - first.offset) / first.factor == number


def test_unit_names():
    """Symbols are exact, words are read in any case, what means two things is unknown."""
    assert units.find_unit("Kilograms") is units.find_unit("kilograms") is not None
    assert units.find_unit("Mg") is None
    for name in ("gallon", "ton", "pint", "KB", "month", ""):
        assert units.find_unit(name) is None
