"""Names in a policy or contract that match no tool or argument are reported with their place."""

import pytest

from pokayoke import Contract
from pokayoke.core.catalogue.unknown_names import unknown_names, unknown_sources
from pokayoke.core.policy import AccessPolicy, AmountApproval, ApprovalPolicy, LimitPolicy, Policy

AMOUNT = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
PATTERN = {"type": "object", "patternProperties": {"^sum": {"type": "number"}}}
NOTHING = {"type": "object", "additionalProperties": False}


def tool(name, schema=AMOUNT, **fields):
    return Contract.from_schema(name, schema, output_schema="text", **fields)


TOOLS = (tool("delete_user"), tool("refund"))


def limited(**fields):
    return Policy(limits=(LimitPolicy(calls=1), LimitPolicy(**fields)))


def above(**fields):
    """A policy that asks above an amount."""
    return Policy(approvals=ApprovalPolicy(amounts=(AmountApproval(above=1.0, **fields),)))


@pytest.mark.parametrize(
    ("policy", "place", "meant"),
    [
        (Policy(access=AccessPolicy(allow=("refund", "delete_usr"))), ("access", "allow", 1), "delete_user"),
        (Policy(access=AccessPolicy(deny=("Delete-User",))), ("access", "deny", 0), "delete_user"),
        (Policy(access=AccessPolicy(roles={"refnud": ("a",)})), ("access", "roles", "refnud"), "refund"),
        (Policy(approvals=ApprovalPolicy(tools=("REFUND",))), ("approvals", "tools", 0), "refund"),
        (Policy(approvals=ApprovalPolicy(second_approver=("refnd",))), ("approvals", "second_approver", 0), "refund"),
        (above(tool="refnd", field="amount"), ("approvals", "amounts", 0, "tool"), "refund"),
        (above(tool="refund", field="amuont"), ("approvals", "amounts", 0, "field"), "amount"),
        (limited(tool="refunds", calls=1), ("limits", 1, "tool"), "refund"),
        (limited(tool="refund", amount=1, field="amuont"), ("limits", 1, "field"), "amount"),
        (limited(amount=1, field="amuont"), ("limits", 1, "field"), "amount"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest_one(policy, place, meant):
    """Every key that names a tool or an argument reports its place and the nearest name."""
    [(found, text)] = unknown_names(policy, TOOLS)
    assert (found, text.endswith(f"Did you mean '{meant}'?")) == (place, True)


@pytest.mark.parametrize(
    ("policy", "tools"),
    [
        (Policy(), TOOLS),
        (Policy(access=AccessPolicy(allow=("refund", "read_more"), deny=("delete_user",))), TOOLS),
        (limited(tool="refund", amount=1, field="amount"), TOOLS),
        (limited(amount=1, field="amount"), (tool("ping", NOTHING), *TOOLS)),
        (limited(tool="any", amount=1, field="sum"), (tool("any", {"type": "object"}),)),
        (limited(tool="any", amount=1, field="sum_of_all"), (tool("any", PATTERN),)),
        (limited(tool="refund", amount=1, field="sum"), (*TOOLS, tool("refund", {"type": "object"}, version="2"))),
    ],
)
def test_a_known_name_is_not_reported(policy, tools):
    """A name is known if one tool, or one of its versions, has it or may have it."""
    assert list(unknown_names(policy, tools, ("read_more",))) == []


def test_a_limit_on_an_argument_that_no_tool_has_is_reported():
    """A tool without arguments has none to count, and the message says so."""
    [(_, text)] = unknown_names(limited(tool="ping", amount=1, field="sum"), (tool("ping", NOTHING),))
    assert "ping does not have" in text
    assert "There are none." in text


def test_a_limit_for_all_tools_on_a_text_argument_is_reported():
    """The report names the tool whose every call it would refuse; tools with a number there are not named."""
    text = tool("pay", {"type": "object", "properties": {"amount": {"type": "string"}}})
    [(place, wrong)] = unknown_names(limited(amount=1, field="amount"), (text, *TOOLS))
    assert place == ("limits", 1, "field")
    assert wrong.startswith("counts 'amount' of pay@1, which is declared as string")


def test_of_many_names_some_are_listed():
    """Without a near name the message lists the known ones, and stays short in a large catalogue."""
    tools = [tool(f"tool_{number}") for number in range(500)]
    [(_, text)] = unknown_names(Policy(access=AccessPolicy(deny=("xyz",))), tools)
    assert "Known: tool_0, " in text
    assert text.endswith(" and 440 more")


def test_an_unknown_source_is_reported():
    """A contract whose sources name no tool is reported with the nearest name."""
    note = tool("note", sources=("find_usr", "read_more"))
    free, all_of_them = tool("free", sources=()), tool("all")
    tools = (note, tool("find_user"), free, all_of_them)
    [(ident, text)] = unknown_sources(tools, ("read_more",))
    assert (ident, text.endswith("Did you mean 'find_user'?")) == ("note@1", True)
