"""Which of a framework's tools the model may see, and when that has to be worked out anew."""

import pytest

import pokayoke
from pokayoke.adapters._host.visibility import OfferedTools, allowed_tool_choice, is_hidden, paging_tool

READ = {"effect": "read", "output_schema": "text"}


def contract(name, **more):
    """A contract of a read."""
    return pokayoke.Contract.from_schema(name, {"type": "object"}, **{**READ, **more})


def test_a_look_holds_until_something_of_it_changes():
    """Other tools, another order, another caller or other contracts: each wants another look."""
    guard = pokayoke.Guard([contract("find")])
    run, tools = guard.run(principal="ann"), [object(), object()]
    look = OfferedTools(run, tools, lambda _: None)
    assert look.is_current(run, [*tools])
    for others in ([], tools[:1], tools[::-1], [*tools, object()]):
        assert not look.is_current(run, others)
    assert not look.is_current(guard.run(principal="bob"), tools)
    guard.replace([contract("find"), contract("list")])
    assert not look.is_current(run, tools)


def test_a_look_ends_when_there_is_something_to_page_through():
    """A long output brings the guard's own tool for reading on."""
    guard = pokayoke.Guard([contract("find")])
    run = guard.run()
    look = OfferedTools(run, [], lambda _: None)
    assert paging_tool(run) is None
    run.call(pokayoke.ToolCall("1", "find", "{}"), invoke=lambda _: "line\n" * 10_000)
    assert not look.is_current(run, [])
    assert paging_tool(run) is guard.pager


def test_what_has_no_contract_is_not_hidden():
    """Tools that a framework runs by itself are its own."""
    assert not is_hidden(pokayoke.Guard([contract("find")]).run(), "web_search")


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        (None, None),
        ("required", "required"),
        ("find", "find"),
        ("refund", None),
        ({"type": "function", "function": {"name": "refund"}}, None),
        ({"type": "function", "function": {"name": "find"}}, ...),
        ({"type": "tool", "name": "refund"}, None),
        ({"mode": "required", "required_function_name": "refund"}, None),
        ({"mode": "auto", "allowed_tools": ["find", "refund"]}, {"mode": "auto", "allowed_tools": ["find"]}),
        ({"mode": "required", "allowed_tools": ["refund"]}, "none"),
        ({"mode": "auto"}, ...),
    ],
)
def test_a_request_wants_no_tool_that_is_hidden(choice, left):
    """In every spelling: a demand for a hidden tool is dropped, a list to choose from gets shorter but never open."""
    guard = pokayoke.Guard([contract("find"), contract("refund")], config={"access": {"deny": ["refund"]}})
    assert allowed_tool_choice(guard.run(), choice) == (choice if left is ... else left)


def test_tools_are_offered_without_those_that_are_hidden():
    """Tools without a contract stay, hidden ones go, and the paging tool comes where the framework has none."""
    guard = pokayoke.Guard([contract("find"), contract("refund")], config={"access": {"deny": ["refund"]}})
    run, tools = guard.run(), ["find", "refund", "web_search"]

    def name_of(tool):
        return None if tool == "web_search" else tool

    offered = OfferedTools(run, tools, name_of, lambda own: own.name)
    assert (offered.shown, offered.hidden) == (["find", "web_search"], ["refund"])
    assert [*offered.by_name] == ["find", "refund"]
    run.call(pokayoke.ToolCall("1", "find", "{}"), invoke=lambda _: "line\n" * 10_000)
    assert not offered.is_current(run, tools)
    assert OfferedTools(run, tools, name_of, lambda own: own.name).shown[-1] == guard.pager.name
    assert OfferedTools(run, [*tools, guard.pager.name], name_of).shown.count(guard.pager.name) == 1
