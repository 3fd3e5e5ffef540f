"""Contracts from the tools of a framework."""

import functools
from typing import Any

import pytest

import pokayoke
from pokayoke.adapters._host.contracts import (
    ToolDescription,
    annotated_output,
    build_contracts,
    contracts_builder,
    require_contract,
)
from pokayoke.errors import UsageError

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


@pytest.mark.parametrize(
    ("more", "closed"),
    [
        ({}, True),
        ({"additionalProperties": True}, False),
        ({"patternProperties": {"^x": {}}}, False),
        ({"allOf": [{"properties": {"more": {}}}]}, False),
    ],
)
def test_a_schema_that_names_its_properties_is_closed(more, closed):
    """A key the tool does not name is refused unless the schema says that there may be others."""
    made = build_contracts([ToolDescription("get", "Get.", {**KEY, **more})])
    assert (made[0].input_schema.get("additionalProperties") is False) is closed


def test_a_schema_without_properties_stays_open():
    """An object of which nothing is said may hold anything."""
    assert (
        "additionalProperties"
        not in build_contracts([ToolDescription("get", "Get.", {"type": "object"})])[0].input_schema
    )


@pytest.mark.parametrize("option", [{"reads": ["get", "fetch"]}, {"destructive": ["fetch"]}, {"fields": {"fetch": {}}}])
def test_a_tool_that_does_not_exist_cannot_be_declared(option):
    """A name that no tool has is a mistake of the programmer, and the message says which."""
    with pytest.raises(UsageError, match="fetch"):
        build_contracts([ToolDescription("get", "Get.", KEY)], **option)


def test_the_thread_of_a_frameworks_tool_cannot_be_chosen():
    """The framework runs it, so `thread` would have no effect: it is refused."""
    with pytest.raises(UsageError, match="get: leave thread out, the framework decides"):
        build_contracts([ToolDescription("get", "Get.", KEY)], fields={"get": {"thread": "caller"}})


def test_what_is_not_declared_is_a_write_whose_output_is_unchecked():
    """A tool's effect is taken for the worse; its description and its further fields are kept."""
    made = build_contracts(
        [
            ToolDescription("get", "Get.", KEY),
            ToolDescription("put", "Put.", KEY),
            ToolDescription("drop", "Drop.", KEY),
        ],
        reads=["get"],
        destructive=["drop"],
        fields={"put": {"identity": ("key",)}},
    )
    assert [(one.name, one.effect) for one in made] == [("get", "read"), ("put", "write"), ("drop", "destructive")]
    assert [one.unchecked for one in made] == [True] * 3
    assert made[1].identity == ("key",)
    assert made[1].description == "Put."


def test_an_adapters_contracts_are_built_from_its_descriptions():
    """A tool's own time limit counts unless a field says otherwise, and control flow proves that nothing happened."""

    def describe(tools):
        return [ToolDescription(name, "", KEY, timeout=7.0) for name in tools]

    contracts = contracts_builder(describe, no_effect_errors=(KeyError,))
    get, put = contracts(["get", "put"], reads=["get"], fields={"put": {"timeout": 3.0}})
    assert [(one.effect, one.timeout) for one in (get, put)] == [("read", 7.0), ("write", 3.0)]
    assert KeyError in put.no_effect_errors


def test_a_tool_needs_a_contract_of_its_very_name():
    """Another spelling would be a call that the framework cannot answer by that name."""
    guard = pokayoke.Guard(build_contracts([ToolDescription("put_it", "Put.", KEY)]))
    assert require_contract(guard, "put_it").contract.name == "put_it"
    for name in ("putIt", "get"):
        with pytest.raises(UsageError, match=f"{name} has no contract: hand it over"):
            require_contract(guard, name, "hand it over")


class Opaque:
    """A type that no JSON has."""


Steering = type("Command", (), {"__module__": "langgraph.types"})


@pytest.mark.parametrize(
    ("returned", "promised"),
    [
        (str, "text"),
        (int, {"type": "integer"}),
        (dict, {"type": "object", "additionalProperties": True}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        ("dict[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("OnlyForTypeCheckers", None),
        ("1 +", None),
        (Any, None),
        (object, None),
        (Opaque, None),
        (Steering, None),
        (Steering | str, None),
    ],
)
def test_a_return_annotation_is_the_output_contract(returned, promised):
    """It is read as `@pokayoke.tool` reads it; one that says nothing about data promises nothing, and is no error."""

    def work(unknown: "AlsoForTypeCheckers") -> None:  # noqa: F821 - what only a type checker knows
        """Do it."""

    async def awaited():
        """Do it later."""

    for function in (work, awaited):
        function.__annotations__["return"] = returned
        assert annotated_output(function) == annotated_output(functools.partial(function)) == promised
    wrapped = functools.wraps(work)(lambda: None)
    assert annotated_output(wrapped) == promised


def test_no_function_promises_nothing():
    """Neither does one without an annotation, a generator, or what is no Python function."""

    def items() -> list[int]:
        yield 1

    assert [annotated_output(one) for one in (None, "x", lambda: 1, items, dict, len)] == [None] * 6


def test_what_the_host_declares_takes_the_place_of_the_annotation():
    """A field of the contract is the programmer's own word."""
    described = ToolDescription("get", "Get.", KEY, output="text")
    assert build_contracts([described])[0].text_output
    fields = {"get": {"output_schema": {"type": "object"}}}
    assert build_contracts([described], fields=fields)[0].output_schema == {"type": "object"}
