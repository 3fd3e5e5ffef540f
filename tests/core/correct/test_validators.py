"""Validators that run before a type's own check: found, named, and used as correctors."""

import dataclasses
import json
from collections import Counter
from typing import Annotated

import pytest
from pydantic import BaseModel, BeforeValidator, Field, HttpUrl, WrapValidator, field_validator, model_validator
from typing_extensions import TypedDict

import pokayoke
from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.contract.correctors import hidden_validator_text
from pokayoke.core.contract.python_types import build_type_adapter, find_before_validators

WORDS = {"one": 1, "two": 2}


def read_count(value):
    """A count in words; other values are not read."""
    if isinstance(value, str):
        if value not in WORDS:
            raise ValueError(f"{value!r} is no count")
        return WORDS[value]
    return value


Count = Annotated[int, BeforeValidator(read_count)]


class Order(BaseModel):
    """An order."""

    sku: str
    amount: Annotated[int, Field(validation_alias="count")]
    seen: Counter[str] = Counter()
    rows: "list[Order]" = []

    @field_validator("amount", mode="before")
    @classmethod
    def read(cls, value):
        return read_count(value)


class Checked(BaseModel):
    """A model with a validator of its own around it."""

    n: Annotated[int, WrapValidator(lambda value, check: check(read_count(value)))]
    m: Annotated[int, BeforeValidator(read_count, json_schema_input_type=int | str)] = 1

    @model_validator(mode="before")
    @classmethod
    def same(cls, value):
        return value


class Link(BaseModel):
    """A model with a type that pydantic itself wraps."""

    url: HttpUrl


class Typed(TypedDict):
    """A dict with types."""

    a: list[Count]
    b: int


@dataclasses.dataclass
class Plain:
    """A dataclass."""

    a: Count
    b: int = 1


@pytest.mark.parametrize(
    ("model", "names"),
    [(Order, ("count",)), (Checked, ("n",)), (Typed, ("a",)), (Plain, ("a",)), (Link, ()), (int, ()), (list[int], ())],
)
def test_before_validators_are_found(model, names):
    """In every kind of model, by their names in JSON; those that say what they take, and the library's own, are not."""
    assert find_before_validators(build_type_adapter(model, "m")) == names


@pokayoke.tool(effect="write", output="text")
def order(sku: str, amount: Count) -> str:
    """Order something."""
    return f"{amount} x {sku}"


@pokayoke.tool(effect="write", output="text", correctors={"amount": read_count})
def corrected(sku: str, amount: Count) -> str:
    """Order something."""
    return f"{amount} x {sku}"


def test_what_the_schema_hides_is_named():
    """A contract names its hidden validators, until a corrector is declared at their place."""
    assert order.hidden_validators == ("amount",)
    assert corrected.hidden_validators == ()
    assert Contract.from_model("order", Order, output="text", correctors={"/count": read_count}).hidden_validators == ()
    assert "correctors={'amount': that_function}" in hidden_validator_text("amount")


def test_a_guard_names_it_once(tmp_path):
    """A guard records the hidden validators of its tools with its first call."""
    with Guard([order], config={"trace": {"path": str(tmp_path / "t.jsonl")}}) as guard:
        for _ in range(2):
            guard.run().call(ToolCall("c1", "order", {"sku": "S1", "amount": 2}))
    events = map(json.loads, (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines())
    told = [event["reason"] for event in events if event["event"] == "config"]
    assert len(told) == 1
    assert "order@1 has a validator on `amount`" in told[0]


def test_a_validator_may_be_the_corrector():
    """Declared as a corrector it reads what the schema refuses; what it cannot read is the model's mistake."""
    with Guard([order, corrected]).run() as run:
        assert run.call(ToolCall("c1", "order", {"sku": "S1", "amount": "two"})).status == "refused"
        outcome = run.call(ToolCall("c2", "corrected", {"sku": "S1", "amount": "two"}))
        assert (outcome.value, outcome.corrections[0].kind) == ("2 x S1", "declared")
        refused = run.call(ToolCall("c3", "corrected", {"sku": "S1", "amount": "some"}))
    assert [(finding.code, finding.blame) for finding in refused.findings] == [("wrong_type", "model")]
