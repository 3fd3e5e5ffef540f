"""Snapshots: which tools a caller is offered, and the plan that a name means."""

import pytest
from msgspec import structs

from pokayoke import Contract, Policy
from pokayoke.core.flow.plan import build_snapshot
from pokayoke.core.gate.rules import Principal
from pokayoke.core.policy import AccessPolicy


def contract(effect="read", **fields):
    return Contract.from_schema(
        "tool", fields.pop("schema", {"type": "object"}), effect=effect, output_schema={}, **fields
    )


@pytest.mark.parametrize(
    ("access", "roles", "principal", "shown"),
    [
        (AccessPolicy(), (), None, True),
        (AccessPolicy(allow=("tool",)), (), None, True),
        (AccessPolicy(allow=("other",)), (), None, False),
        (AccessPolicy(deny=("tool",)), (), None, False),
        (AccessPolicy(roles={"tool": ("a", "b")}), (), Principal("u", ("b",)), True),
        (AccessPolicy(roles={"tool": ("a",)}), ("c",), Principal("u", ("c",)), False),
        (AccessPolicy(roles={"tool": ("a",)}), ("c",), Principal("u", ("a",)), False),
        (AccessPolicy(roles={"tool": ("a",)}), ("c",), Principal("u", ("a", "c")), True),
        (AccessPolicy(roles={"tool": ("a",)}), ("c", "a"), Principal("u", ("a",)), True),
        (AccessPolicy(roles={"tool": ()}), ("c",), Principal("u", ("c",)), True),
        (AccessPolicy(roles={"tool": ("a",)}), (), Principal("u", ("b",)), False),
        (AccessPolicy(), ("c",), None, False),
    ],
)
def test_who_is_offered_a_tool(access, roles, principal, shown):
    """Deny wins, an allow-list hides the rest, and contract and policy each demand one of their roles."""
    force = build_snapshot([contract(roles=roles)], Policy(access=access))
    assert (force.offered_tools(principal) != [], force.is_offered("tool", principal)) == (shown, shown)


def test_monitor_mode_offers_what_it_would_deny():
    """In monitor mode every tool is offered, because every call runs."""
    force = build_snapshot([contract()], Policy(mode="monitor", access=AccessPolicy(deny=("tool",))))
    assert [one.name for one in force.offered_tools(None)] == ["tool"]
    assert force.is_offered("tool", None)


@pytest.mark.parametrize(
    ("access", "offered"),
    [
        (AccessPolicy(allow=("tool",)), ["tool", "ours"]),
        (AccessPolicy(allow=("tool",), deny=("ours",)), ["tool"]),
        (AccessPolicy(roles={"ours": ("a",)}), ["tool"]),
        (AccessPolicy(), ["tool", "ours"]),
    ],
)
def test_the_guards_own_tools_need_not_be_allowed(access, offered):
    """An allow-list is about the host's tools; the guard's own are denied by name only."""
    ours = Contract.from_schema("ours", {"type": "object"}, output_schema="text", effect="read")
    force = build_snapshot([contract()], Policy(access=access), own=[ours])
    assert [one.name for one in force.offered_tools(None)] == offered
    assert [force.is_offered(name, None) for name in ("tool", "ours", "nobodys")] == [True, "ours" in offered, None]


def test_a_snapshot_finds_plans_by_spelling():
    """A name gives its plan, or the finding that it is unknown."""
    taken = build_snapshot([contract()], Policy())
    assert taken.find_plan("Tool").contract.name == "tool"
    assert taken.find_plan("other").code == "unknown_tool"


def test_a_snapshot_finds_contracts_in_force():
    """A name gives its contract in any spelling, unless it means none or its version was withdrawn."""
    taken = build_snapshot([contract()], Policy())
    assert [getattr(taken.find_contract(name), "name", None) for name in ("Tool", "other")] == ["tool", None]
    assert structs.replace(taken, plans={}).find_contract("tool") is None
