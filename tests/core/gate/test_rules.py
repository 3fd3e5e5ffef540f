"""Gate rules: paths, and the stop reason of a refusal."""

import pytest

from pokayoke import Contract, Policy
from pokayoke.core.call import Finding
from pokayoke.core.gate.rules import RuleInput, first_finding, rules_for, stop_reason_for

PATHS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "all": {"type": "array", "items": {"type": "string"}}},
}


def contract(effect="read", **fields):
    return Contract.from_schema(
        "tool", fields.pop("schema", {"type": "object"}), effect=effect, output_schema={}, **fields
    )


@pytest.mark.parametrize(
    ("arguments", "at"),
    [
        ({"path": "a/b"}, None),
        ({}, None),
        ({"path": None}, None),
        ({"path": 5}, "/path"),
        ({"path": {"path": "a"}}, "/path"),
        ({"path": "../x"}, "/path"),
        ({"all": ["a", "../x"]}, "/all/1"),
        ({"all": ["a", "b", 3]}, "/all/2"),
        ({"all": [["a"]]}, "/all/0"),
        ({"all": []}, None),
    ],
)
def test_path_rules_check_every_path(arguments, at):
    """Single paths and lists of paths are checked, and anything else is no path."""
    tool = contract(schema=PATHS, paths={"path": ("/srv/root",), "all": ("/srv/root",)})
    found = first_finding(rules_for(tool, Policy()), RuleInput(tool, arguments, 1.0, None))
    assert (found.at if found else None) == at


def test_an_unlisted_code_means_invalid_arguments():
    """Every refusal has a stop reason; for unlisted codes it is invalid_arguments."""
    assert stop_reason_for(Finding(code="missing_field")) == "invalid_arguments"
