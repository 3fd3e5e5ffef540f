"""Input models: what a contract's own validators may change and refuse."""

import pytest
from corrector_samples import WRITE, order

from pokayoke.core.call import Finding
from pokayoke.core.correct.correct import correct_arguments


def raising(exc):
    def corrector(value):
        raise exc

    return corrector


class Odd(int):
    """An integer that is no plain JSON integer."""


def test_input_model_agrees():
    """An input model that changes nothing leaves the same object."""
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
    """Findings of the input model are returned without a change; it cannot accept what the schema refuses."""
    seven = correct_arguments({"amount": "seven"}, order(validate_input=lambda args: ({"amount": 7}, ())), kinds=WRITE)
    assert [item.code for item in seven.findings] == ["wrong_type"]
    finding = Finding("invalid_argument", "/amount")
    prepared = correct_arguments({"amount": 20}, order(validate_input=lambda args: ({}, (finding,))), kinds=WRITE)
    assert prepared.findings == (finding,)
    assert prepared.value == {"amount": 20}


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
    """A model that raises, returns an unusable value, or never settles is a finding that blames the policy."""
    prepared = correct_arguments({"amount": 1}, order(validate_input=model), kinds=WRITE)
    assert [(item.code, item.blame) for item in prepared.findings] == [("corrector_failed", "policy")]
    assert prepared.value == {"amount": 1}


def test_input_model_gets_a_copy():
    """A change that the model makes to its argument does not reach the call."""

    def model(args):
        args["rows"].append(1)
        return {"rows": [{"n": 1}]}, ()

    value = {"rows": [{"n": 1}]}
    assert correct_arguments(value, order(validate_input=model), kinds=WRITE).value is value
    assert value == {"rows": [{"n": 1}]}
