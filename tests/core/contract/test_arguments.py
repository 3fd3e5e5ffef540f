"""Arguments of a tool: found in its schema, and the key argument that the model never sees."""

import pytest
from contract_samples import made

from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ContractError


def test_the_key_argument_is_hidden_from_the_model():
    """The model does not see the key argument, may not send it, and need not."""
    contract = made(key_argument="key")
    assert "key" not in contract.model_schema["properties"]
    assert contract.model_schema["required"] == ["user"]
    assert contract.input.is_valid({"user": "u"})
    assert not contract.input.is_valid({"user": "u", "key": "k"})
    assert "key" in contract.input_schema["properties"]
    optional = Contract.from_schema(
        "t", {"type": "object", "properties": {"k": {"type": ["string", "null"]}}}, key_argument="k"
    )
    assert optional.model_schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "rest",
    [{}, {"allOf": [{"required": ["to"]}]}, {"additionalProperties": False, "patternProperties": {"^k": {}}}],
)
def test_a_key_from_the_model_is_refused_where_other_names_are_not(rest):
    """Two keys would be two effects: an open schema takes any name but this one."""
    schema = {"type": "object", "properties": {"to": {}, "key": {"type": "string"}}, **rest}
    contract = Contract.from_schema("t", schema, key_argument="key")
    assert contract.input.is_valid({"to": 1, "kind": 2})
    assert not contract.input.is_valid({"to": 1, "key": "k"})
    assert "key" not in str(contract.model_schema)


def test_async_handlers_are_recognised():
    """Coroutine functions and objects with an async __call__ are async, everything else is not."""

    async def work(**arguments):
        """Do nothing."""

    class Worker:
        async def __call__(self, **arguments):
            """Do nothing."""

    assert made(handler=work).is_async
    assert made(handler=Worker()).is_async
    assert not made(handler=dict).is_async


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "string", "maxLength": 36},
        {"type": "string", "format": "uuid"},
        {"type": "string", "pattern": "^PO-"},
        {"$ref": "#/$defs/short"},
    ],
)
def test_the_schema_of_a_key_argument_takes_a_ledger_key(declared):
    """A schema that no ledger key fits is refused: every call would break it."""
    schema = {"type": "object", "properties": {"a/k": declared}, "$defs": {"short": {"type": "string", "maxLength": 9}}}
    with pytest.raises(ContractError, match="'a/k' takes no ledger key"):
        Contract.from_schema("pay", schema, key_argument="a/k")


def test_arguments_are_found_through_references_and_unions():
    """Arguments named by identity and paths may be declared in $ref, allOf and anyOf; open schemas allow any name."""
    schema = {
        "$defs": {"p": {"type": "string"}, "base": {"properties": {"a": {"$ref": "#/$defs/p"}}}},
        "allOf": [{"$ref": "#/$defs/base"}, {"$ref": "#/$defs/base"}],
        "anyOf": [{"properties": {"b": {"type": "array", "items": {"$ref": "#/$defs/p"}}}}, True],
        "if": True,
        "then": {"properties": {"c": True}},
    }
    contract = Contract.from_schema(
        "pay", schema, identity=("a", "b", "c"), paths={"a": ["/x"], "b": ["/x"], "c": ["/x"]}
    )
    assert contract.identity == ("a", "b", "c")
    with pytest.raises(ContractError, match="'d'"):
        Contract.from_schema("pay", schema, identity=("d",))
    open_names = {"type": "object", "patternProperties": {"^x-": {}}}
    assert Contract.from_schema("pay", open_names, identity=("x-1",)).identity == ("x-1",)
    with pytest.raises(ContractError, match="not a string"):
        Contract.from_schema("pay", {"properties": {"a": {"anyOf": [{"type": "null"}, False]}}}, paths={"a": ["/x"]})
    assert Contract.from_schema("pay", {"properties": {"a": {}}}, paths={"a": ["/x"]}).paths == {"a": ("/x",)}
    with pytest.raises(ContractError, match="It has: none"):
        Contract.from_schema("pay", {"type": "object"}, identity=("a",))
