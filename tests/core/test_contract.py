"""Contracts: what a field means, what contradicts itself, what other people's definitions become."""

import dataclasses
import functools
import json
import math

import msgspec
import pytest

from pokayoke.core.contract.contract import Contract, require_output_contract
from pokayoke.core.contract.terms import Compare, Envelope, Equal, Format, Range
from pokayoke.core.policy import LimitPolicy, RetryPolicy, ToolOutputPolicy
from pokayoke.errors import ContractError

ORDER = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "amount": {"type": "integer", "minimum": 1},
        "file": {"type": "string"},
        "files": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "key": {"type": "string"},
    },
    "required": ["user", "key"],
    "additionalProperties": False,
}
TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
ROW = {"type": "object", "properties": {"price": {"type": "number"}}}
ROWS = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
    "$defs": {"row": ROW},
}


class RefusedError(Exception):
    """A narrow failure of a made-up target."""


def made(**fields):
    """A contract over ORDER."""
    return Contract.from_schema("pay", ORDER, **fields)


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


def test_the_key_argument_is_hidden_from_the_model():
    """The model neither sees nor may send it, and it is required of nobody."""
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


def test_calling_a_contract_calls_the_function():
    """A contract is used like its handler in tests; without one, the error says so."""
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


def test_lists_become_tuples_and_roots_become_texts(tmp_path):
    """What YAML or a hurried hand gives as a list is kept as a tuple; a single root and a Path are roots."""
    contract = made(
        identity=["user"], roles=["admin"], paths={"file": tmp_path, "files": ["/a", tmp_path], "maybe": "/b"}
    )
    assert contract.identity == ("user",)
    assert contract.roles == ("admin",)
    assert contract.paths == {"file": (str(tmp_path),), "files": ("/a", str(tmp_path)), "maybe": ("/b",)}


GOOD = [
    {"effect": "destructive", "approval": True, "quota": (LimitPolicy(tool="pay", amount=5, field="amount"),)},
    {"effect": "read", "approval": True, "retry": RetryPolicy()},
    {"retry": RetryPolicy(retries=0)},
    {"retry": RetryPolicy(), "no_effect_errors": (RefusedError,)},
    {"retry": RetryPolicy(), "idempotent": True, "on_ambiguous": "rerun_safe"},
    {"retry": RetryPolicy(), "on_ambiguous": "downstream_key", "key_argument": "key"},
    {"on_ambiguous": "lookup", "lookup": print, "lookup_safe": "executor_dead"},
    {"on_ambiguous": "lookup", "lookup": print, "lookup_safe": "settled", "settle_after": 60},
    {"on_ambiguous": "lookup", "lookup": print, "lookup_safe": "downstream_key", "key_argument": "key"},
    {"on_ambiguous": "lookup", "lookup": print, "lookup_safe": "downstream_key", "forwards_key": True},
    {"on_ambiguous": "downstream_key", "forwards_key": True},
    {"volatile": ["amount"], "on_duplicate": "refuse", "key_epoch": 2, "compensate": print},
    {"on_duplicate": "ask"},
    {"output_schema": TOTAL, "envelope": Envelope(ok="/ok", error="/error", data="/data")},
    {
        "output_schema": TOTAL,
        "invariants": (Range("/total", max=9), Equal("/total", "/amount"), Compare("/total", "<", "")),
    },
    {"output_schema": TOTAL, "invariants": (Range("/total", min=1, max=9), Format("/total", "date"))},
    {"output_schema": "text", "output_checks": "size_only", "content_type": "text/plain", "max_chars": 10},
    {"sources": (), "timeout": 0.5, "transient_errors": [TimeoutError], "redact": ["user"], "secret": True},
]


@pytest.mark.parametrize("fields", GOOD)
def test_contracts_that_make_sense_are_built(fields):
    """Each of these combinations is accepted."""
    assert made(**fields).name == "pay"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"effect": "delete"}, "effect is one of read, write, destructive"),
        ({"scope": "forever"}, "scope is one of"),
        ({"on_ambiguous": "retry"}, "on_ambiguous is one of"),
        ({"output_checks": "none"}, "output_checks is one of"),
        ({"version": "1@2"}, "without @"),
        ({"version": ""}, "without @"),
        ({"version": 2}, "without @"),
        ({"handler": "print"}, "handler must be callable"),
        ({"timeout": 0}, "timeout must be a positive number"),
        ({"timeout": True}, "timeout must be a positive number"),
        ({"max_chars": float("inf")}, "max_chars must be a positive number"),
        ({"timeout": "5"}, "timeout must be a positive number"),
        ({"description": 5}, "description must be a text"),
        ({"approval": "no"}, "approval must be True or False"),
        ({"idempotent": "no"}, "idempotent must be True or False"),
        ({"open_world": "yes"}, "open_world must be True or False"),
        ({"key_epoch": "x"}, "key_epoch must be a whole number"),
        ({"key_epoch": 1.5}, "key_epoch must be a whole number"),
        ({"schemas": [1]}, "schemas maps absolute URIs"),
        ({"retry": RetryPolicy(), "idempotent": True}, "on_ambiguous='rerun_safe' with idempotent=True"),
        ({"retry": 3}, "retry must be RetryPolicy"),
        ({"envelope": {"ok": "/ok"}}, "envelope must be Envelope"),
        ({"quota": (5,)}, "quota holds LimitPolicy"),
        ({"roles": (5,)}, "roles holds names"),
        ({"no_effect_errors": ("Refused",)}, "no_effect_errors holds exception classes"),
        ({"transient_errors": (KeyboardInterrupt,)}, "transient_errors holds exception classes"),
        ({"identity": "user"}, "identity is a tuple"),
        ({"sources": "tool"}, "sources is a tuple"),
        ({"roles": None}, "roles is a tuple"),
        ({"paths": ["file"]}, "paths maps argument names"),
        ({"correctors": [int]}, "correctors maps argument names"),
        ({"paths": {"file": []}}, "names no root"),
        ({"identity": ()}, "every call the same effect"),
        ({"identity": ("usr",)}, "identity names 'usr', but the input schema has no such property. It has: user"),
        ({"identity": ("key",), "key_argument": "key"}, "it is made from the others"),
        ({"paths": {"fil": ["/a"]}}, "paths names 'fil'"),
        ({"paths": {"amount": ["/a"]}}, "which is not a string"),
        ({"quota": (LimitPolicy(amount=1, field="sum"),)}, "quota counts 'sum'"),
        ({"quota": (LimitPolicy(tool="refund", calls=1),)}, "quota names 'refund'"),
        ({"quota": (LimitPolicy(),)}, "quota limits nothing"),
        ({"quota": (LimitPolicy(amount=1),)}, "quota needs `amount` and `field` together"),
        ({"quota": (LimitPolicy(calls=-1),)}, "quota holds what no file could say: Expected `int` >= 0"),
        ({"quota": (LimitPolicy(per="year", calls=1),)}, "quota holds what no file could say: Invalid enum value 'year'"),
        ({"effect": "read", "retry": RetryPolicy(retries=99)}, "retry holds what no file could say: Expected `int` <= 20"),
        ({"effect": "read", "retry": RetryPolicy(initial=5j)}, "retry holds what no file could say: "),
        ({"key_argument": "token"}, "no property of the input schema"),
        ({"key_argument": "amount"}, "must take a string"),
        ({"key_argument": "key", "effect": "read"}, "a read has no ledger key"),
        ({"effect": "read", "on_ambiguous": "rerun_safe"}, "a read has none"),
        ({"retry": RetryPolicy()}, "could repeat its effect"),
        ({"on_ambiguous": "rerun_safe"}, "idempotent=True"),
        ({"on_ambiguous": "downstream_key"}, "needs a way for the key to reach the target: a key_argument, or forwards_key"),
        ({"effect": "read", "compensate": print}, "a read has none"),
        ({"effect": "read", "on_duplicate": "ask"}, "a read has none"),
        ({"effect": "read", "volatile": ("amount",)}, "a read has none"),
        ({"volatile": ("sum",)}, "volatile names 'sum'"),
        ({"volatile": "amount"}, "volatile is a tuple"),
        ({"volatile": ("key",), "key_argument": "key"}, "it is made from the others"),
        ({"on_duplicate": "repeat"}, "on_duplicate is one of replay, refuse, ask"),
        ({"compensate": "undo"}, "compensate must be callable"),
        ({"lookup": print}, "only used with on_ambiguous='lookup'"),
        ({"lookup_safe": "settled"}, "only used with on_ambiguous='lookup'"),
        ({"on_ambiguous": "lookup", "lookup_safe": "executor_dead"}, "needs lookup="),
        ({"on_ambiguous": "lookup", "lookup": print}, "no proof that nothing will happen"),
        ({"on_ambiguous": "lookup", "lookup": print, "lookup_safe": "downstream_key"}, "needs a way for the key"),
        ({"on_ambiguous": "lookup", "lookup": print, "lookup_safe": "settled"}, "needs settle_after"),
        ({"no_effect_errors": (Exception,)}, "also raised after an effect"),
        ({"extract": json.loads}, "describe it with an output schema"),
        ({"output_schema": TOTAL, "output_checks": "size_only", "invariants": (print,)}, "nothing but the size"),
        ({"content_type": "json"}, "no media type"),
        ({"envelope": Envelope()}, "says nothing"),
        ({"envelope": Envelope(ok="ok")}, "no JSON pointer"),
        ({"invariants": (Range("/total", min=1),)}, "has no schema"),
        ({"output_schema": TOTAL, "invariants": ("total > 0",)}, "invariants holds callables"),
        ({"output_schema": TOTAL, "invariants": (Range("total", min=1),)}, "no JSON pointer"),
        ({"output_schema": TOTAL, "invariants": (Range("/total"),)}, "give min, max or both"),
        ({"output_schema": TOTAL, "invariants": (Range("/total", min=2, max=1),)}, "min is above max"),
        ({"output_schema": TOTAL, "invariants": (Range("/total", min="1"),)}, "min and max are numbers"),
        ({"output_schema": TOTAL, "invariants": (Range("/total", max=math.nan),)}, "min and max are numbers"),
        ({"output_schema": TOTAL, "invariants": (Range("/total", min=True),)}, "min and max are numbers"),
        ({"output_schema": TOTAL, "invariants": (Range(None, min=1),)}, "None is no JSON pointer"),
        ({"output_schema": TOTAL, "invariants": (Equal("/total", None),)}, "None is no JSON pointer"),
        ({"output_schema": TOTAL, "invariants": (Format("/total", "datetime"),)}, "'datetime' is no format"),
        ({"output_schema": TOTAL, "invariants": (Format("/total", ["date"]),)}, "is no format"),
        ({"output_schema": TOTAL, "invariants": (Range("/sum", min=1),)}, "knows no 'sum' there"),
        ({"output_schema": TOTAL, "invariants": (Equal("/sum", "/amount"),)}, "Fields: total"),
        ({"output_schema": TOTAL, "invariants": (Compare("/total", "<", "/total/max"),)}, "knows no 'max' there"),
        ({"output_schema": ROWS, "invariants": (Range("/rows/price", min=1),)}, "write * for each of its items"),
        ({"output_schema": ROWS, "invariants": (Range("/rows/*/cost", min=1),)}, "knows no 'cost' there"),
        ({"output_schema": TOTAL, "invariants": (Compare("/a", "=", "/b"),)}, "op is one of"),
        ({"output_schema": TOTAL, "invariants": (Equal("/total", "/sum"),)}, "no property 'sum'"),
        ({"correctors": {"amout": "counter_suffix"}}, "no such field"),
        ({"colour": "red"}, "a contract has no field colour. Known: approval, "),
        ({"aproval": True}, "a contract has no field aproval. Did you mean 'approval'?"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_the_way_out(fields, words):
    """Each of these raises a ContractError that names the tool and what to change."""
    with pytest.raises(ContractError) as caught:
        made(**fields)
    assert words in str(caught.value)
    assert "pay" in str(caught.value)


@pytest.mark.parametrize(
    ("output", "at"),
    [
        (TOTAL, "/total"),
        (TOTAL, ""),
        (ROWS, "/rows/*/price"),
        (ROWS, "/rows/0/price"),
        ({"type": "object"}, "/anything/at/all"),
        ({}, "/anything"),
        ({**TOTAL, "additionalProperties": {"type": "number"}}, "/other"),
        ({**TOTAL, "patternProperties": {"^x-": {}}}, "/x-sum"),
        ({"anyOf": [TOTAL, {"properties": {"rows": {"items": ROW}}}]}, "/rows/*/price"),
        ({"type": "object", "properties": {"any": {}}}, "/any/where/*/at"),
    ],
)
def test_a_rule_about_a_place_that_may_be_there_is_taken(output, at):
    """A place that the schema describes, or says nothing about, may be looked at."""
    assert made(output_schema=output, invariants=(Range(at, min=1),)).invariants


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (
            lambda usr, key: None,
            "every call has the argument 'user', which the handler does not take. It takes: usr, key",
        ),
        (lambda *names: None, "every call has the argument 'user', which the handler does not take. It takes: nothing"),
        (lambda user, /, key: None, "every call has the argument 'user'"),
        (lambda user, key, total: None, "the handler needs 'total', but the input schema has no such property"),
    ],
)
def test_a_handler_that_no_call_fits_is_refused(handler, words):
    """Its parameters are named as the schema names the arguments."""
    with pytest.raises(ContractError, match="pay: ") as caught:
        made(handler=handler)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "handler"),
    [
        (ORDER, lambda **arguments: None),
        (ORDER, lambda user, key, amount=1, total=2: None),
        (ORDER, functools.wraps(lambda other: None)(lambda *_, **__: None)),
        (ORDER, dict),
        ({"type": "object"}, lambda user: None),
        ({"type": "object", "properties": {"user": {}}}, lambda total: None),
        ({"type": "object", "patternProperties": {"^t": {}}, "additionalProperties": False}, lambda total: None),
    ],
)
def test_a_handler_that_some_call_fits_is_taken(schema, handler):
    """Any name, a default, a wrapper, an unknown signature and an open schema leave room."""
    assert Contract.from_schema("pay", schema, handler=handler).handler is handler


def test_a_handler_has_to_take_the_key():
    """The guard fills the key argument in every call, whether the schema requires it or not."""
    schema = {"type": "object", "properties": {"k": {"type": "string"}}}
    with pytest.raises(ContractError, match="every call has the argument 'k'"):
        Contract.from_schema("pay", schema, key_argument="k", handler=lambda: None)


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
    """A schema that no key fits would refuse every call, or would be broken by every one."""
    schema = {"type": "object", "properties": {"a/k": declared}, "$defs": {"short": {"type": "string", "maxLength": 9}}}
    with pytest.raises(ContractError, match="'a/k' takes no ledger key"):
        Contract.from_schema("pay", schema, key_argument="a/k")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "it is blank"), ("  ", "it is blank"), (None, "it is blank"), (" a", "white space"), ("a\u00a0b", "white space"),
        ("a\tb", "U+0009|white space"), ("x" * 129, "more than 128"), ("é" * 129, "more than 128"), ("é\u3000é", "white space"), ("pa\u200by", "U+200B"), ("pay\u202e", "U+202E"),
        ("p\u0430y", "mixes scripts"), ("ｐａｙ", "displays like 'pay'"), ("\u0440\u0430\u0443", "look like Latin"), ("e\u0301", "U+0301"),
    ],
)  # fmt: skip
def test_names_that_can_be_mistaken_are_refused(name, words):
    """Blank, invisible, full-width, mixed and imitated names cannot be registered."""
    with pytest.raises(ContractError, match="cannot be registered") as caught:
        Contract.from_schema(name, {"type": "object"})
    assert any(word in str(caught.value) for word in words.split("|"))


@pytest.mark.parametrize(
    "name", ["get_user", "http.get", "a b", "查询天气", "find_査詢", "перевод", "größe", "get-user/v2", "검색tool"]
)
def test_honest_names_of_any_language_are_accepted(name):
    """One script, or Latin beside Chinese, Japanese or Korean, is fine."""
    assert Contract.from_schema(name, {"type": "object"}).name == name


@pytest.mark.parametrize("schema", [True, [], "object", {"type": "array"}, {"type": ["string", "null"]}])
def test_arguments_are_an_object(schema):
    """An input schema that describes no object is refused."""
    with pytest.raises(ContractError):
        Contract.from_schema("pay", schema)


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
    """Strict refuses exactly the code-defined tools without an output contract, and names the fix."""
    silent = made(defined_in_code=True)
    require_output_contract([made(), made(defined_in_code=True, output_schema="text")], ToolOutputPolicy())
    require_output_contract([silent], ToolOutputPolicy(schema="declared"))
    with pytest.raises(ContractError, match=r"pay@1.*output="):
        require_output_contract([silent], ToolOutputPolicy())


# -- sources --------------------------------------------------------------------------------------


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
    """Its schema would be passed over, and every call of it refused: the error names who reads it."""
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
        ({"readOnlyHint": True}, True, ("read", False, True)),
        ({"readOnlyHint": True}, False, ("write", False, True)),
        ({"destructiveHint": True, "idempotentHint": True}, True, ("destructive", True, True)),
        ({"destructiveHint": True, "idempotentHint": True, "openWorldHint": False}, False, ("write", False, True)),
        ({"openWorldHint": False}, True, ("write", False, False)),
        ({"readOnlyHint": "yes"}, True, ("write", False, True)),
        (None, True, ("write", False, True)),
        ("read", True, ("write", False, True)),
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


def test_a_schema_that_no_call_can_fit_is_refused():
    """A closed object that requires what it does not name would be an exchange without end; an open one would not."""
    schema = {"type": "object", "properties": {"a": {}}, "required": ["b"]}
    with pytest.raises(ContractError, match="requires 'b' and allows no such property"):
        Contract.from_schema("t", {**schema, "additionalProperties": False})
    for loose in ({}, {"additionalProperties": False, "patternProperties": {"^b": {}}}):
        assert Contract.from_schema("t", {**schema, **loose})
