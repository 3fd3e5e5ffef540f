"""What a new version of a contract breaks, and for which side."""

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Range
from pokayoke.core.policy import LimitPolicy
from pokayoke.core.versions.contract_diff import SIDE_MEANINGS, Change, contract_changes

N, S = {"type": "number"}, {"type": "string"}


def obj(required=(), **properties):
    """A closed object schema."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def contract(version="1", **fields):
    """A contract of one tool."""
    return Contract(
        **{"name": "pay", "version": version, "input_schema": obj(["a"], a=N), "output_schema": obj(a=N), **fields}
    )


def change(old, new):
    """The one change between two versions that differ in one thing, as kind and sides."""
    (found,) = contract_changes(contract(**old), contract("2", **new))
    return found.kind, found.breaks


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (obj(a=N), obj(a=S), Change("input /a", "type: number -> string", "breaking", ("model",))),
        (obj(a=N), obj(["a"], a=N), Change("input /a", "is required now", "breaking", ("model",))),
        (obj(["a"], a=N), obj(a=N), Change("input /a", "is not required any more", "safe")),
        (obj(a=N), obj(a=N, b=S), Change("input /b", "field added", "safe")),
        (obj(a=N, b=S), obj(a=N), Change("input /b", "field removed", "breaking", ("model",))),
        (
            obj(a={"pattern": "x"}),
            obj(a={"pattern": "y"}),
            Change("input /a", "pattern: x -> y", "unknown", ("model",)),
        ),
    ],
)
def test_inputs_are_the_models(old, new, expected):
    """A narrower input refuses calls that were fine; a wider one breaks nobody."""
    assert contract_changes(contract(input_schema=old), contract("2", input_schema=new)) == (expected,)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (obj(a=N), obj(a=S), Change("output /a", "type: number -> string", "breaking", ("readers", "tool"))),
        (obj(a=N), obj(a={}), Change("output /a", "type: number -> anything", "breaking", ("readers",))),
        (obj(["a"], a=N), obj(a=N), Change("output /a", "is not required any more", "breaking", ("readers",))),
        (obj(a=N), obj(["a"], a=N), Change("output /a", "is required now", "breaking", ("tool",))),
        (obj(a=N, b=S), obj(a=N), Change("output /b", "field removed", "breaking", ("readers", "tool"))),
        (
            {**obj(a=N, b=S), "additionalProperties": True},
            {**obj(a=N), "additionalProperties": True},
            Change("output /b", "field removed", "breaking", ("readers",)),
        ),
        (obj(a=N), obj(a=N, b=S), Change("output /b", "field added", "safe")),
        (obj(), {**obj(), "additionalProperties": True}, Change("output /*", "other fields: was not allowed", "safe")),
        (
            {**obj(), "additionalProperties": N},
            {**obj(), "additionalProperties": True},
            Change("output /*", "other fields: type: number -> anything", "breaking", ("readers",)),
        ),
        (
            {**obj(), "additionalProperties": N},
            {**obj(a={}), "additionalProperties": N},
            Change("output /a", "type: number -> anything", "breaking", ("readers",)),
        ),
        (
            obj(a={"pattern": "x"}),
            obj(a={"pattern": "y"}),
            Change("output /a", "pattern: x -> y", "unknown", ("readers", "tool")),
        ),
        (obj(a={"title": "x"}), obj(a={"title": "y"}), Change("output /a", "`title` reads differently", "safe")),
        ("text", obj(), Change("output", "text -> a schema", "breaking", ("readers", "tool"))),
        (obj(), None, Change("output", "a schema -> nothing", "breaking", ("readers", "operators"))),
        (None, "text", Change("output", "nothing -> text", "breaking", ("tool",))),
    ],
)
def test_outputs_are_the_readers_and_the_tools(old, new, expected):
    """A wider output surprises who reads it, a narrower one refuses the tool's answers, a new field is seen by nobody."""
    assert contract_changes(contract(output_schema=old), contract("2", output_schema=new)) == (expected,)


CALLS = LimitPolicy(tool="pay", calls=3)
DAILY = LimitPolicy(tool="pay", calls=9, per="day")


@pytest.mark.parametrize(
    ("old", "new", "sides"),
    [
        ({"effect": "destructive"}, {"effect": "write"}, ("operators",)),
        ({"effect": "read"}, {"effect": "write"}, ("model",)),
        ({"approval": True}, {}, ("operators",)),
        ({}, {"approval": True}, ("model",)),
        ({"roles": ("a",)}, {}, ("operators",)),
        ({"roles": ("a",)}, {"roles": ("b",)}, ("operators", "model")),
        ({}, {"roles": ("a",)}, ("model",)),
        ({"quota": (CALLS,)}, {}, ("operators",)),
        ({}, {"quota": (CALLS,)}, ("model",)),
        ({"quota": (CALLS,)}, {"quota": (LimitPolicy(tool="pay", calls=4),)}, ("operators",)),
        ({"quota": (CALLS,)}, {"quota": (LimitPolicy(tool="pay", calls=2),)}, ("model",)),
        ({"sources": ("x",)}, {}, ("model",)),
        ({}, {"sources": ("x",)}, ("operators",)),
        ({}, {"literal": ("a",)}, ("operators",)),
        ({"literal": ("a",)}, {}, ("model",)),
        ({}, {"thread": "caller"}, ("operators",)),
        ({"secret": True}, {}, ("operators",)),
        ({"redact": ("iban",)}, {}, ("operators",)),
        ({"timeout": 9}, {"timeout": 5}, ("tool",)),
        ({"max_chars": 9}, {"max_chars": 5}, ("tool",)),
        ({}, {"output_checks": "size_only"}, ("readers", "operators")),
        ({"output_checks": "size_only"}, {}, ("tool",)),
        ({"identity": ("a",)}, {}, ("operators",)),
        ({}, {"scope": "session"}, ("operators",)),
        ({"invariants": (Range(at="/a", min=1),)}, {}, ("readers",)),
        ({}, {"invariants": (Range(at="/a", min=1),)}, ("tool",)),
    ],
)
def test_other_fields_break_somebody(old, new, sides):
    """Looser is the operators' loss, tighter is the caller's; what names the effect must not change unseen."""
    assert change(old, new) == ("breaking", sides)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"timeout": 5}, {"timeout": 9}),
        ({}, {"secret": True}),
        ({}, {"redact": ("iban",)}),
        ({"description": "a"}, {"description": "b"}),
        ({"quota": (CALLS, DAILY)}, {"quota": (DAILY, CALLS)}),
        ({"effect": "read", "identity": ("a",)}, {"effect": "read"}),
    ],
)
def test_other_fields_break_nobody(old, new):
    """More time, more secrecy, other words, limits in another order, and names of effects that there are none of, are safe."""
    assert change(old, new) == ("safe", ())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"content_type": "text/csv"}),
        ({}, {"timeout": 5}),
        ({"quota": (CALLS,)}, {"quota": (LimitPolicy(tool="pay", amount=3, field="a"),)}),
        ({"quota": (CALLS,)}, {"quota": (LimitPolicy(tool="pay", calls=3, per="day"),)}),
        (
            {"quota": (LimitPolicy(tool="pay", calls=3, amount=3, field="a"),)},
            {"quota": (LimitPolicy(tool="pay", amount=3, field="a"),)},
        ),
        ({"quota": (CALLS,)}, {"quota": (LimitPolicy(tool="pay", calls=3, amount=3, field="a"),)}),
        (
            {"quota": (CALLS,)},
            {"quota": (LimitPolicy(tool="pay", calls=4), LimitPolicy(tool="pay", calls=9, per="day"))},
        ),
    ],
)
def test_what_cannot_be_told_says_so(old, new):
    """A change without a direction is unknown, and somebody has to look."""
    assert change(old, new) == ("unknown", ("operators",))


@pytest.mark.parametrize(
    ("old", "new", "sides"),
    [
        (("/a",), ("/a", "/b"), ("operators",)),
        (("/a", "/b"), ("/a",), ("model",)),
        (("/a",), ("/b",), ("operators", "model")),
        (("/a",), None, ("operators",)),
        (None, ("/a",), ("model",)),
    ],
)
def test_roots_are_a_protection(old, new, sides):
    """More roots, or none at all, are looser; fewer refuse paths that were fine."""
    schema = obj(["p"], p=S)
    paths = [{} if roots is None else {"paths": {"p": roots}} for roots in (old, new)]
    found = contract_changes(*(contract(str(n), input_schema=schema, **p) for n, p in enumerate(paths)))
    assert [(one.kind, one.breaks) for one in found] == [("breaking", sides)]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, True),
        ({"identity": ("b",)}, True),
        ({"identity": ("a",)}, False),
        ({"volatile": ("b",)}, False),
        ({"effect": "read"}, False),
    ],
)
def test_a_default_names_an_effect(fields, named):
    """With another one, a write that leaves the argument out gets another ledger key, if its key holds it."""
    old, new = [
        contract(version, input_schema=obj(["a"], a=N, b={"default": default}), **fields)
        for version, default in (("1", 1), ("2", 2))
    ]
    found = {one.at: one.breaks for one in contract_changes(old, new) if "another ledger key" in one.what}
    assert found == ({"defaults": ("operators",)} if named else {})


def test_texts_have_no_schema_to_compare():
    """Two versions that both promise text, or nothing, promise the same."""
    for promise in ("text", None):
        assert contract_changes(contract(output_schema=promise), contract("2", output_schema=promise)) == ()


def test_the_worst_stands_first():
    """Breaking changes come before those nobody can tell, and these before the safe ones."""
    old = contract(description="a", approval=True, content_type="text/csv")
    assert [one.kind for one in contract_changes(old, contract("2"))] == ["breaking", "unknown", "safe"]


def test_code_is_not_compared():
    """Callables are no part of the difference; what is shown beside them is."""

    def upper(value):
        return value.upper()

    old = contract(correctors={"a": upper}, invariants=(lambda output, arguments: True,))
    assert contract_changes(old, contract("2", correctors={"a": upper})) == ()
    rules = (Range(at="/a", min=1), lambda output, arguments: True)
    (found,) = contract_changes(contract(), contract("2", invariants=rules))
    assert (found.at, found.what) == ("invariants", "[] -> code")


def test_every_side_is_explained():
    """Each side has a sentence that says what it means to be broken."""
    assert set(SIDE_MEANINGS) == {"model", "readers", "tool", "operators"}
