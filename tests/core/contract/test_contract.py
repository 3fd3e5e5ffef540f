"""Contracts: what a field means, what is fixed, and what a strict policy demands."""

import dataclasses
import json

import pytest
from contract_samples import ORDER, TOTAL, made

from pokayoke.core.contract.contract import Contract, require_output_contract
from pokayoke.core.contract.terms import Range
from pokayoke.core.policy import ToolOutputPolicy
from pokayoke.errors import ContractError


def test_the_defaults_are_the_careful_ones():
    """Undeclared means: a write, identity over all arguments, run scope, a person settles doubt, unchecked output."""
    contract = made()
    assert (contract.id, contract.effect, contract.identity, contract.scope) == ("pay@1", "write", None, "run")
    assert (contract.on_ambiguous, contract.sources, contract.timeout, contract.retry) == ("human", None, None, None)
    assert contract.unchecked
    assert contract.output is None
    assert not any((contract.is_async, contract.input_hooks, contract.output_hooks, contract.text_output))
    assert contract.input.is_valid({"user": "u", "key": "k"})
    assert contract.model_schema == ORDER


def test_an_output_contract_is_a_schema_a_boolean_or_text():
    """A schema is compiled, text is declared without one, and any other word is refused."""
    assert made(output_schema=TOTAL).output.is_valid({"total": 1})
    assert not made(output_schema=False).output.is_valid(1)
    text = made(output_schema="text")
    assert (text.output, text.unchecked, text.text_output) == (None, False, True)
    with pytest.raises(ContractError, match="output_schema is a schema"):
        made(output_schema="json")


def test_a_contract_cannot_be_changed_only_replaced():
    """Assignment fails, replace() gives a new compiled contract, and equality is identity."""
    contract = made()
    with pytest.raises(dataclasses.FrozenInstanceError):
        contract.effect = "read"
    newer = dataclasses.replace(contract, version="2")
    assert newer.id == "pay@2"
    assert newer != contract
    assert len({contract, newer}) == 2


def test_calling_a_contract_calls_the_function():
    """Tests call a contract like its handler; without a handler the error says so."""
    assert made(handler=lambda user, key="": user + "!")("u") == "u!"
    assert made(handler=lambda user, key: user, function=lambda user: "as written")("u") == "as written"
    with pytest.raises(ContractError, match="no handler"):
        made()()


def test_user_code_is_announced():
    """input_hooks and output_hooks are True exactly if user code runs on that side."""
    assert made(correctors={"amount": "counter_suffix"}).input_hooks is False
    assert made(correctors={"amount": int}).input_hooks
    assert made(correctors={"amount": ["counter_suffix", int]}).input_hooks
    assert made(validate_input=lambda value: (value, ())).input_hooks
    assert made(output_schema=TOTAL, invariants=[Range("/total", min=0)]).output_hooks is False
    assert made(output_schema=TOTAL, invariants=[lambda output, arguments: None]).output_hooks
    assert made(output_schema=TOTAL, extract=json.loads).output_hooks


def test_documents_for_references_are_handed_in():
    """schemas= resolves $ref in input and output; without it they are refused."""
    documents = {"https://example.org/money": {"type": "integer"}}
    schema = {"type": "object", "properties": {"amount": {"$ref": "https://example.org/money"}}}
    contract = Contract.from_schema("pay", schema, output_schema=schema, schemas=documents)
    assert not contract.input.is_valid({"amount": "x"})
    assert not contract.output.is_valid({"amount": "x"})
    with pytest.raises(ContractError, match="input schema of 'pay'"):
        Contract.from_schema("pay", schema)


def test_a_tool_defined_in_code_must_promise_something():
    """Of a silent policy it is the tools in code that need an output contract, of a strict one all; the fix is named."""
    silent = made(defined_in_code=True)
    with pytest.raises(ContractError, match=r"pay@1.*output_schema"):
        require_output_contract([made()], ToolOutputPolicy(schema="strict"))
    require_output_contract([made(), made(defined_in_code=True, output_schema="text")], ToolOutputPolicy())
    require_output_contract([silent], ToolOutputPolicy(schema="declared"))
    with pytest.raises(ContractError, match=r"pay@1.*output="):
        require_output_contract([silent], ToolOutputPolicy())
