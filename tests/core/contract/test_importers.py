"""Tool definitions of providers and plain data become contracts, or a clear error."""

import json

import msgspec
import pytest
from contract_samples import ORDER, TOTAL, made

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Compare, Envelope, Equal, Format, Range
from pokayoke.core.policy import LimitPolicy, RetryPolicy
from pokayoke.errors import ContractError


def test_openai_definitions_of_every_shape():
    """Chat completions, responses and bare functions give the same contract; missing parameters mean none."""
    function = {"name": "pay", "description": "Pay.", "parameters": ORDER, "strict": True}
    for definition in ({"type": "function", "function": function}, {"type": "function", **function}, function):
        contract = Contract.from_openai(definition, effect="destructive")
        assert (contract.name, contract.description, contract.effect) == ("pay", "Pay.", "destructive")
        assert contract.input_schema == ORDER
    empty = Contract.from_openai({"type": "function", "function": {"name": "now", "parameters": None}})
    assert empty.input.is_valid({})
    assert not empty.input.is_valid({"a": 1})
    assert empty.unchecked
    assert not empty.defined_in_code


@pytest.mark.parametrize(
    "definition",
    [{"type": "web_search"}, {"type": "function", "function": 5}, {"type": "function"}, {"name": 5}, {"name": "a", "parameters": []}],
)  # fmt: skip
def test_openai_definitions_that_are_none(definition):
    """A hosted tool, a missing name and a schema of the wrong kind are ContractErrors."""
    with pytest.raises(ContractError):
        Contract.from_openai(definition)


@pytest.mark.parametrize(("key", "reader"), [("input_schema", "from_anthropic"), ("inputSchema", "from_mcp")])
def test_a_definition_of_another_kind_is_no_function_without_parameters(key, reader):
    """Its schema would be ignored and every call refused, so the error names the reader to use."""
    with pytest.raises(ContractError, match=f"'pay' is another kind of definition. Read it with Contract.{reader}"):
        Contract.from_openai({"name": "pay", key: ORDER})


@pytest.mark.parametrize(
    ("definition", "reader"),
    [
        ({"type": "function", "function": {"name": "pay", "parameters": ORDER}}, "from_openai"),
        ({"type": "function", "name": "pay", "parameters": ORDER}, "from_openai"),
        ({"name": "pay", "input_schema": ORDER}, "from_anthropic"),
        ({"name": "pay", "inputSchema": ORDER}, "from_mcp"),
    ],
)
def test_each_reader_names_the_one_that_reads_a_definition(definition, reader):
    """A definition is read by its own reader, and every other one names it."""
    for name in ("from_openai", "from_anthropic", "from_mcp"):
        read = getattr(Contract, name)
        if name == reader:
            assert read(definition).input_schema == ORDER
        else:
            with pytest.raises(ContractError, match=f"'pay' is another kind of definition. Read it with .*{reader}"):
                read(definition)
        with pytest.raises(ContractError, match="an object, not list: read one at a time"):
            read([definition])


def test_anthropic_definitions():
    """A client tool becomes a contract; one the provider runs is refused."""
    contract = Contract.from_anthropic({"name": "pay", "description": "Pay.", "input_schema": ORDER})
    assert (contract.description, contract.input_schema, contract.effect) == ("Pay.", ORDER, "write")
    with pytest.raises(ContractError, match="provider runs"):
        Contract.from_anthropic({"type": "web_search_20250305", "name": "web_search"})


@pytest.mark.parametrize(
    ("hints", "trusted", "expected"),
    [
        ({"readOnlyHint": True}, True, ("read", False, None)),
        ({"readOnlyHint": True}, False, ("write", False, None)),
        ({"destructiveHint": True, "idempotentHint": True}, True, ("destructive", True, None)),
        ({"destructiveHint": True, "idempotentHint": True, "openWorldHint": False}, False, ("write", False, None)),
        ({"openWorldHint": True}, True, ("write", False, True)),
        ({"openWorldHint": False}, True, ("write", False, False)),
        ({"readOnlyHint": "yes"}, True, ("write", False, None)),
        (None, True, ("write", False, None)),
        ("read", True, ("write", False, None)),
    ],
)
def test_mcp_hints_count_only_if_the_server_is_trusted(hints, trusted, expected):
    """An untrusted server's tool is a write whatever it claims; a trusted one's hints map to effects."""
    entry = {"name": "pay", "title": "Payments", "inputSchema": ORDER, "outputSchema": TOTAL, "annotations": hints}
    contract = Contract.from_mcp(entry, trusted_hints=trusted)
    assert (contract.effect, contract.idempotent, contract.open_world) == expected
    assert contract.description == "Payments"
    assert contract.output_schema == TOTAL


def test_mcp_entries_need_an_input_schema():
    """A listing entry without inputSchema is refused; without outputSchema it is unchecked."""
    assert Contract.from_mcp({"name": "a", "inputSchema": {"type": "object"}, "outputSchema": None}).unchecked
    with pytest.raises(ContractError, match="inputSchema"):
        Contract.from_mcp({"name": "a"})


def test_plain_data_and_back():
    """to_mapping() gives JSON data from which from_mapping() makes the same contract; code is left out."""
    contract = made(
        version="2",
        key_argument="key",
        identity=("user",),
        output_schema=TOTAL,
        retry=RetryPolicy(retries=1),
        idempotent=True,
        on_ambiguous="rerun_safe",
        quota=(LimitPolicy(amount=5, field="amount"),),
        invariants=(Range("/total", min=0), Equal("/total", "/amount"), lambda output, arguments: None),
        envelope=Envelope(data="/data"),
        correctors={"amount": ["counter_suffix", {"aliases": {"one": 1}}], "user": int},
        paths={"file": ["/data"]},
        handler=dict,
        sources=(),
    )
    data = json.loads(json.dumps(contract.to_mapping()))
    again = Contract.from_mapping(data, handler=dict)
    assert again.to_mapping() == contract.to_mapping()
    assert again.invariants == contract.invariants[:2]
    assert again.correctors == {"amount": ("counter_suffix", {"aliases": {"one": 1}})}
    assert again.sources == ()
    assert again.key_argument == "key"
    assert again.handler is dict
    assert Contract.from_schema("t", {}).to_mapping() == {"name": "t", "version": "1", "input_schema": {}}
    assert made(correctors={"user": int}).to_mapping().keys() == {"name", "version", "input_schema"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"name": "pay", "efect": "read"}, "unknown key 'efect'. Did you mean 'effect'?"),
        ({"name": "pay", "colour": "red"}, "unknown key 'colour'. Known: approval, "),
        ({"effect": "read"}, "needs a name"),
        ({"name": "pay", "timeout": "soon"}, "timeout: Expected"),
        ({"name": "pay", "retry": {"retrys": 1}}, "retry: Object contains unknown field"),
        ({"name": "pay", "invariants": [{"type": "rage", "at": "/a"}]}, "invariants: Invalid value"),
    ],
)
def test_plain_data_with_mistakes_is_refused(data, words):
    """An unknown key or a value of the wrong kind is named."""
    with pytest.raises(ContractError, match="contract") as caught:
        Contract.from_mapping(data)
    assert words in str(caught.value)


def test_the_declarative_terms_are_plain_values():
    """Terms survive a trip through JSON, tagged by their kind."""
    for term in (Range("/a", min=1), Format("/a", "date"), Equal("/a", "/b"), Compare("/a", "<=", "/b")):
        data = msgspec.json.encode(term)
        assert msgspec.json.decode(data, type=Range | Format | Equal | Compare) == term
