"""Contracts that contradict themselves are refused with the way out; sensible ones are built."""

import functools
import json
import math

import pytest
from contract_samples import ORDER, TOTAL, made

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Compare, Envelope, Equal, Format, Range
from pokayoke.core.policy import LimitPolicy, RetryPolicy
from pokayoke.errors import ContractError

ROW = {"type": "object", "properties": {"price": {"type": "number"}}}
ROWS = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
    "$defs": {"row": ROW},
}


class RefusedError(Exception):
    """A narrow failure of a made-up target."""


def test_lists_become_tuples_and_roots_become_texts(tmp_path):
    """A list is stored as a tuple; a single root and a Path become roots."""
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
    {"volatile": ["amount"], "repeats": "once", "key_epoch": 2, "compensate": print},
    {"repeats": "each"},
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
        ({"open_world": "yes"}, "open_world must be True, False or None"),
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
        ({"effect": "read", "repeats": "each"}, "a read has none"),
        ({"effect": "read", "volatile": ("amount",)}, "a read has none"),
        ({"volatile": ("sum",)}, "volatile names 'sum'"),
        ({"volatile": "amount"}, "volatile is a tuple"),
        ({"volatile": ("key",), "key_argument": "key"}, "it is made from the others"),
        ({"repeats": "always"}, "repeats must be one of once, turn, each, or left out, not 'always'"),
        ({"on_duplicate": "ask"}, "no field on_duplicate. Write repeats instead: once"),
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
def test_a_rule_about_a_possible_place_is_accepted(output, at):
    """A rule may name a place that the schema describes, or says nothing about."""
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
    """A handler whose parameters differ from the arguments of the schema is refused."""
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
def test_a_handler_that_some_call_fits_is_accepted(schema, handler):
    """Any name, a default, a wrapper, an unknown signature and an open schema are accepted."""
    assert Contract.from_schema("pay", schema, handler=handler).handler is handler


def test_a_handler_has_to_take_the_key():
    """The guard fills the key argument in every call, whether the schema requires it or not."""
    schema = {"type": "object", "properties": {"k": {"type": "string"}}}
    with pytest.raises(ContractError, match="every call has the argument 'k'"):
        Contract.from_schema("pay", schema, key_argument="k", handler=lambda: None)


@pytest.mark.parametrize("schema", [True, [], "object", {"type": "array"}, {"type": ["string", "null"]}])
def test_arguments_are_an_object(schema):
    """An input schema that describes no object is refused."""
    with pytest.raises(ContractError):
        Contract.from_schema("pay", schema)


def test_a_schema_that_no_call_can_fit_is_refused():
    """A closed object that requires an undeclared name would refuse every call; an open one would not."""
    schema = {"type": "object", "properties": {"a": {}}, "required": ["b"]}
    with pytest.raises(ContractError, match="requires 'b' and allows no such property"):
        Contract.from_schema("t", {**schema, "additionalProperties": False})
    for loose in ({}, {"additionalProperties": False, "patternProperties": {"^b": {}}}):
        assert Contract.from_schema("t", {**schema, **loose})
