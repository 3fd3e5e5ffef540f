"""Correctors: what each reads, what it leaves alone, and mistakes in their declaration."""

from fractions import Fraction

import pytest
from corrector_samples import ORDER, WRITE, order, outcome

from pokayoke.core.contract.correctors import compile_correctors
from pokayoke.core.correct.correct import correct_arguments
from pokayoke.core.json.values import equal_json
from pokayoke.core.schema.schema import compile_schema
from pokayoke.errors import ContractError


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
    """A corrector that the contract names makes the value fit, and the change is recorded as declared."""
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
def test_ambiguous_values_are_left_alone(field, corrector, before):
    """A corrector leaves an ambiguous value alone; answers that differ or do not fit do not count."""
    assert isinstance(outcome(field, before, corrector), tuple)


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


@pytest.mark.parametrize(
    ("path", "word", "known"),
    [
        (("n",), "件", True),
        (("n",), "Kartons", True),
        (("n",), "yuan", False),
        (("w",), "lbs", True),
        (("w",), "min", False),
        (("w",), "nonsense", False),
        (("c",), " Yuan ", True),
        (("d",), "%d", False),
        (("x",), "件", False),
        (None, "yuan", True),
        (None, "李", False),
    ],
)
def test_correctors_know_their_words(path, word, known):
    """A word is known at the place of its corrector, or anywhere where no place is given."""
    text = {"type": "string"}
    schema = compile_schema({"properties": {"n": {}, "w": {}, "c": text, "d": text, "x": {}}})
    made = compile_correctors(
        {
            "n": ({"counter_suffix": ["kartons"]}, lambda value: value),
            "w": "unit:kg",
            "c": {"aliases": {"Yuan": "CNY"}},
            "d": "date:%d.%m.%Y",
        },
        schema,
    )
    assert made.knows_word(word, path) is known
