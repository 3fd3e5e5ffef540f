"""What the walks through the guard do not reach in the smaller rooms."""

import pytest

from pokayoke import Contract, Policy, Raw
from pokayoke.core.call import Finding
from pokayoke.core.flow.events import reason_of
from pokayoke.core.flow.plan import build_snapshot
from pokayoke.core.flow.steps import NotStarted, Raised, Returned, TimedOut
from pokayoke.core.flow.walk import is_transient
from pokayoke.core.gate.rules import Principal, RuleInput, first_finding, rules_for, stop_reason_for
from pokayoke.core.policy import AccessPolicy
from pokayoke.core.state.final_answer import final_answer

PATHS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "all": {"type": "array", "items": {"type": "string"}}},
}


def contract(effect="read", **fields):
    return Contract.from_schema(
        "tool", fields.pop("schema", {"type": "object"}), effect=effect, output_schema={}, **fields
    )


@pytest.mark.parametrize(
    ("reaction", "fields", "transient"),
    [
        (Raised(ConnectionError()), {}, True),
        (Raised(TimeoutError()), {}, True),
        (Raised(ValueError()), {}, False),
        (Raised(ValueError()), {"transient_errors": (ValueError,)}, True),
        (Raised(ConnectionError()), {"transient_errors": (ValueError,)}, False),
        (Raised(ConnectionError()), {"effect": "write"}, False),
        (Raised(LookupError()), {"effect": "write", "no_effect_errors": (LookupError,)}, True),
        (Raised(ConnectionError()), {"effect": "write", "no_effect_errors": (LookupError,)}, False),
        (
            Raised(KeyError()),
            {"effect": "write", "no_effect_errors": (LookupError,), "transient_errors": (IndexError,)},
            False,
        ),
        (TimedOut(1.0), {}, False),
        (NotStarted("x"), {}, False),
        (Returned(Raw("", "text/plain", 503)), {}, True),
        (Returned(Raw("", "text/plain", 429)), {}, True),
        (Returned(Raw("", "text/plain", 500)), {}, False),
        (Returned(Raw("", "text/plain", 503)), {"effect": "write"}, False),
        (Returned("text"), {}, False),
        (Returned({}), {}, False),
    ],
)
def test_what_may_be_tried_again(reaction, fields, transient):
    """Only failures that may go away and cannot have had an effect are repeated."""
    assert is_transient(contract(**fields), reaction) is transient


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
def test_path_rules_look_at_every_path(arguments, at):
    """Single paths and lists of paths are checked, and anything else is no path."""
    tool = contract(schema=PATHS, paths={"path": ("/srv/root",), "all": ("/srv/root",)})
    found = first_finding(rules_for(tool, Policy()), RuleInput(tool, arguments, 1.0, None))
    assert (found.at if found else None) == at


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
    """Deny wins, an allow-list hides the rest, and of the contract's and the configuration's roles one each is needed."""
    force = build_snapshot([contract(roles=roles)], Policy(access=access))
    assert (force.offered_tools(principal) != [], force.is_offered("tool", principal)) == (shown, shown)


def test_monitor_mode_offers_what_it_would_deny():
    """Where every call runs every tool is offered: a trial says what enforcing would refuse, and changes nothing."""
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
    """An allow-list is about the host's tools; the guard's own are taken away by name only."""
    ours = Contract.from_schema("ours", {"type": "object"}, output_schema="text", effect="read")
    force = build_snapshot([contract()], Policy(access=access), own=[ours])
    assert [one.name for one in force.offered_tools(None)] == offered
    assert [force.is_offered(name, None) for name in ("tool", "ours", "nobodys")] == [True, "ours" in offered, None]


def test_an_unlisted_code_is_a_matter_of_arguments():
    """Every refusal has a stop reason; what is not listed is the arguments' fault."""
    assert stop_reason_for(Finding(code="missing_field")) == "invalid_arguments"


@pytest.mark.parametrize(
    ("finding", "reason"),
    [
        (Finding(code="wrong_content_type", data={"reason": "content-type text/html"}), "content-type text/html"),
        (Finding(code="wrong_type", at="/a"), "wrong_type at /a"),
        (Finding(code="not_finite"), "not_finite"),
    ],
)
def test_reasons_in_the_trace(finding, reason):
    """A room's own words come first, then code and place."""
    assert reason_of(finding) == reason


def test_the_fallback_answer_without_anything_to_tell():
    """Nothing done and nothing refused is still an honest sentence."""
    assert final_answer("", [], [], None).text == "I could not finish this safely. Nothing was changed."
    assert final_answer("ok", [], [], "loop_detected").verified is False


def test_a_snapshot_finds_by_spelling_and_says_what_is_unknown():
    """The plan of a name, or the finding that there is none."""
    taken = build_snapshot([contract()], Policy())
    assert taken.find_plan("Tool").contract.name == "tool"
    assert taken.find_plan("other").code == "unknown_tool"
