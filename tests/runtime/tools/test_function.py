"""Tools from functions and models: schema, description, output contract, conversion, and what cannot be a tool."""

import asyncio
import datetime as dt
import decimal
import enum
import functools
import json
import math
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NaiveDatetime,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from pokayoke import Guard, ToolCall
from pokayoke.core.contract.contract import Contract, require_output_contract
from pokayoke.core.contract.python_types import needs_no_conversion
from pokayoke.core.policy import ToolOutputPolicy
from pokayoke.errors import ContractError
from pokayoke.runtime.tools.docstring import read_docstring
from pokayoke.runtime.tools.function import tool


class Colour(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    """An ordered item."""

    sku: str
    count: int = 1


class Open(BaseModel):
    """A model that takes anything."""

    model_config = ConfigDict(extra="allow")
    a: int = 1


@dataclass
class Stock:
    """How much there is."""

    sku: str
    pieces: int


class Row(TypedDict):
    """A row."""

    id: int


def explode(value):
    """A validator that is itself broken."""
    raise RuntimeError(value)


def test_a_function_becomes_a_contract_and_stays_a_function():
    """Types, defaults and docstring are in the contract; calling it calls the function unguarded."""

    @tool(effect="read")
    def stock(sku: str, shop: Literal["north", "south"] = "north", schema: int | None = None) -> Stock:
        """Look up how much there is.

        In one shop.

        Args:
            sku: the article number,
                such as A-100.
            shop: which shop.
            schema: a name that a model class could not have.
        """
        return Stock(sku, len(shop) + (schema or 0))

    assert isinstance(stock, Contract)
    assert (stock.id, stock.effect, stock.description) == (
        "stock@1",
        "read",
        "Look up how much there is.\n\nIn one shop.",
    )
    assert stock.model_schema == {
        "type": "object",
        "properties": {
            "sku": {"type": "string", "description": "the article number, such as A-100."},
            "shop": {"enum": ["north", "south"], "type": "string", "default": "north", "description": "which shop."},
            "schema": {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "default": None,
                "description": "a name that a model class could not have.",
            },
        },
        "required": ["sku"],
        "additionalProperties": False,
    }
    assert stock.output.is_valid({"sku": "a", "pieces": 1})
    assert not stock.output.is_valid({"sku": "a"})
    assert stock("a") == Stock("a", 5)
    assert stock.handler(sku="a", schema=1) == Stock("a", 6)
    assert stock.defined_in_code
    assert not stock.input_hooks, "plain types need no conversion"
    assert not stock.is_async


def test_options_reach_the_contract():
    """Every field of a contract can be given, and description replaces the docstring."""

    @tool(
        name="crm.pay", version="2", identity=("user",), timeout=5, paths={"file": ["/data"]}, approval=True,
        key_argument="key", description="Pay somebody.", output="text",
    )  # fmt: skip
    def pay(user: str, file: str, key: str) -> dict:
        """Not this."""
        return {"user": user, "file": file, "key": key}

    assert (pay.id, pay.identity, pay.timeout, pay.paths) == ("crm.pay@2", ("user",), 5, {"file": ("/data",)})
    assert pay.description == "Pay somebody."
    assert pay.text_output
    assert "key" not in pay.model_schema["properties"]
    assert pay.handler(user="u", file="/data/a", key="k") == {"user": "u", "file": "/data/a", "key": "k"}
    with pytest.raises(ContractError, match="no field colour"):
        tool(colour="red")(pay.function)


def test_bare_decoration_is_a_write():
    """@tool without options declares nothing, so the tool is a write."""

    @tool
    def ping() -> None:
        """Ping."""

    assert ping.effect == "write"
    assert ping.output_schema == {"type": "null"}
    assert ping.model_schema == {"properties": {}, "type": "object", "additionalProperties": False}
    assert ping() is None


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, "text"),
        (int, {"type": "integer"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Row, {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "description": "A row."}),
        (AwareDatetime, {"type": "string", "format": "date-time"}),
        (dt.datetime, {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d", "examples": ["2026-11-21T09:30:00"]}),
        (dt.time, {"type": "string", "pattern": r"^\d\d:\d\d", "examples": ["09:30:00"]}),
        (Any, None),
        (object, None),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": True}),
        (list, {"type": "array", "items": {}}),
        (list[Any], {"type": "array", "items": {}}),
    ],
)  # fmt: skip
def test_the_return_annotation_is_the_output_contract(annotation, expected):
    """A type becomes a schema, a bare dict or list a weak one, str becomes text; Any and object promise nothing."""

    def work():
        """Do it."""

    work.__annotations__["return"] = annotation
    contract = tool(effect="read")(work)
    assert contract.output_schema == expected
    assert contract.unchecked is (expected is None)


WITHOUT_ZONE, WITH_ZONE = "2026-05-01T09:30:00", "2026-05-01T09:30:00+01:00"


@pytest.mark.parametrize(
    ("annotation", "accepted", "refused"),
    [
        (dt.datetime, (WITHOUT_ZONE, WITH_ZONE), ("2026-05-01T99:30", "2026-05-01", "soon")),
        (dt.time, ("09:30", "09:30:00+01:00"), ("99:30", "9.30", "soon")),
        (NaiveDatetime, (WITHOUT_ZONE,), (WITH_ZONE,)),
        (AwareDatetime, (WITH_ZONE,), (WITHOUT_ZONE,)),
    ],
)
def test_a_time_needs_the_zone_that_its_type_needs(annotation, accepted, refused):
    """Nobody has to guess a zone for a tool whose type takes none or leaves it open, and its answer needs none."""

    def echo(at):
        """Say it again."""
        return at

    echo.__annotations__.update({"at": annotation, "return": annotation})
    run = Guard([tool(effect="read")(echo)]).run()
    for number, text in enumerate((*accepted, *refused)):
        outcome = run.call(ToolCall(f"c{number}", "echo", json.dumps({"at": text})))
        assert outcome.status == ("ok" if text in accepted else "refused"), (text, outcome.text)


def test_output_wins_over_the_annotation():
    """output= may be a schema, a type, a boolean or text; a missing promise is a build error under strict."""

    def work() -> int:
        """Do it."""

    assert tool(output=Item)(work).output.is_valid({"sku": "a"})
    assert tool(output={"type": "null"})(work).output_schema == {"type": "null"}
    assert tool(output=True)(work).output_schema is True
    assert tool(output="text")(work).text_output

    with pytest.raises(ContractError, match="with output="):
        tool(output_schema={"type": "null"})(work)

    @tool
    def silent():
        """Promise nothing."""

    assert silent.unchecked
    with pytest.raises(ContractError, match="silent@1"):
        require_output_contract([silent], ToolOutputPolicy())


def test_typed_arguments_arrive_typed():
    """Dates, models, enums and constrained values are converted before the function sees them."""

    @tool(output="text")
    def book(
        when: dt.date,
        items: list[Item],
        colour: Colour,
        ident: uuid.UUID,
        note: Annotated[str, Field(max_length=9)] = "",
    ) -> str:
        """Book."""
        return repr((when, items, colour, ident, note))

    said = book.handler(when="2026-01-02", items=[{"sku": "a"}], colour="red", ident="0" * 32, note="n")
    expected = (dt.date(2026, 1, 2), [Item(sku="a")], Colour.RED, uuid.UUID(int=0), "n")
    assert said == repr(expected)
    assert book.function(*expected) == said
    assert book.input_hooks
    assert book.model_schema["$defs"]["Item"]["additionalProperties"] is False, "a typo in a nested field is found"


async def test_async_functions_stay_async():
    """Plain and converting async tools are coroutine functions."""

    @tool
    async def plain(name: str) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return name

    @tool
    async def typed(day: dt.date) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return day.isoformat()

    assert plain.is_async
    assert typed.is_async
    assert await plain.handler(name="a") == "a"
    assert await typed.handler(day="2026-01-02") == "2026-01-02"
    assert await typed(dt.date(2026, 1, 2)) == "2026-01-02"


def test_a_confined_path_stays_one_beside_typed_arguments():
    """A text subclass is handed on as it is where a text is wanted."""

    class Confined(str):
        __slots__ = ()

    @tool(output="text")
    def write(file: str, day: dt.date) -> str:
        """Write."""
        return f"{type(file).__name__} {day}"

    assert write.handler(file=Confined("/a"), day="2026-01-02") == "Confined 2026-01-02"


def test_open_types_stay_open():
    """A model with extra=allow keeps its objects open, every other listed object is closed."""

    @tool(output="text")
    def take(free: Open, row: Row, anything: dict[str, Any]) -> str:
        """Take."""
        return ""

    given = {"free": {"b": 2}, "row": {"id": 1}, "anything": {"x": 1}}
    assert take.input.is_valid(given)
    assert not take.input.is_valid({**given, "row": {"id": 1, "x": 2}})


def test_methods_and_callables_can_be_tools():
    """A bound method and a callable object with a name work; functools.wraps is seen through."""

    class Desk:
        def find(self, name: str) -> str:
            """Find it."""
            return name

        def __call__(self, name: str) -> str:
            """Call it."""
            return name

    found = tool(effect="read")(Desk().find)
    assert list(found.model_schema["properties"]) == ["name"]
    assert tool(name="desk")(Desk())("x") == "x"

    def loud(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs).upper()

        return wrapper

    @tool
    @loud
    def greet(name: str) -> str:
        """Greet."""
        return name

    assert greet.handler(name="a") == "A"


def positional(a: int, /) -> str:
    """Positional."""


def many(*a: int) -> str:
    """Many."""


def any_name(**a: int) -> str:
    """Any name."""


def untyped(a) -> str:
    """Untyped."""


def with_self(self, a: int) -> str:
    """A method outside its class."""


def unresolved(a: "Nowhere") -> str:  # noqa: F821 - that is the point
    """Unresolved."""


def items() -> Iterator[int]:
    """Generate."""
    yield 1


async def async_items():
    """Generate."""
    yield 1


def strange(a: Iterator["Desk"]) -> str:  # noqa: F821 - that is the point
    """Strange."""


def half(a: "list[") -> str:  # noqa: F722 - that is the point
    """Half an annotation."""


def elsewhere(a: "enum.Nowhere") -> str:
    """What a module does not have."""


def mixed(a: "int | 'Desk'") -> str:  # noqa: F821 - that is the point
    """A type or a text."""


class Unknown:
    """A type pydantic knows nothing about."""


def foreign(a: Unknown) -> str:
    """Foreign."""


def calls_back(a: Callable[[int], int]) -> str:
    """A type that has no JSON Schema."""


def returns_foreign() -> Unknown:
    """Foreign."""


def field_as_default(a: int = Field(default=10, ge=1)) -> str:
    """A default that is a field."""


def default_in_the_field(a: Annotated[int, Field(default=4)]) -> str:
    """A default that only pydantic knows."""


def renamed(a: Annotated[int, Field(alias="A")]) -> str:
    """A name that the function does not take."""


def read_by_another_name(a: Annotated[dt.date, Field(validation_alias="A")]) -> str:
    """As above."""


def looks_around(a: Annotated[str, Field(pattern="^(?!x)a")]) -> str:
    """A pattern that pydantic's engine does not take."""


class Handle(enum.Enum):
    """A choice that is no JSON."""

    OPEN = object()


def takes_a_handle(a: Handle) -> str:
    """A type without a JSON form."""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (looks_around, "look-around"),
        (takes_a_handle, "arguments of 'takes_a_handle'"),
        (field_as_default, "Write Annotated[TYPE, Field(...)] = DEFAULT"),
        (default_in_the_field, "Write Annotated[TYPE, Field(...)] = DEFAULT"),
        (renamed, "parameter 'a' has an alias"),
        (read_by_another_name, "parameter 'a' has an alias"),
        (positional, "positional-only"),
        (many, "list type"),
        (any_name, "misspelt"),
        (untyped, "a: str"),
        (with_self, "bound method"),
        (unresolved, "'Nowhere' cannot be resolved"),
        (items, "generator"),
        (async_items, "generator"),
        (strange, "cannot be resolved"),
        (half, "cannot be resolved: SyntaxError"),
        (elsewhere, "cannot be resolved: AttributeError"),
        (mixed, "cannot be resolved: TypeError"),
        (max, "Wrap it in a function"),
        (foreign, "JSON Schema instead"),
        (calls_back, "JSON Schema instead"),
        (returns_foreign, "JSON Schema instead"),
        (lambda: None, "no name"),
        (Item, "takes a function"),
        (5, "takes a function"),
    ],
)
def test_programmers_mistakes_name_the_fix(function, words):
    """Each signature that cannot be a tool's is a ContractError that says what to change."""
    with pytest.raises(ContractError) as caught:
        tool(effect="read")(function)
    assert words in str(caught.value)


def test_a_contract_is_not_a_function_to_decorate():
    """Decorating twice is refused."""

    @tool
    def once() -> None:
        """Once."""

    with pytest.raises(ContractError, match="takes a function"):
        tool(once)


def test_a_default_that_is_no_json_value_is_left_out_of_the_schema():
    """The tool keeps its default; the schema only says that the argument is optional."""

    @tool(output="text")
    def work(after: Any = Unknown, since: dt.date = dt.date(2026, 1, 1), choices: dict[str, int] = {"a": 1}) -> str:  # noqa: B006
        """Work."""
        return f"{after.__name__} {since} {choices}"

    assert "default" not in work.model_schema["properties"]["after"]
    assert work.handler() == "Unknown 2026-01-01 {'a': 1}"

    @tool(output="text")
    def least(above: float = math.inf, below: float = math.nan) -> str:
        """Least."""
        return f"{above} {below}"

    assert not any("default" in described for described in least.model_schema["properties"].values())
    assert least.handler() == "inf nan"


def test_a_default_may_be_a_value_that_can_change():
    """A dataclass or a model is a default like any other, and the function gets its own."""

    @tool(output="text")
    def work(stock: Stock = Stock("a", 1), item: Item = Item(sku="b")) -> str:  # noqa: B008
        """Work."""
        return f"{stock.sku} {item.sku}"

    assert work.validate_input({}) == ({}, ())
    assert work.handler() == "a b"
    assert work.handler(item={"sku": "c"}) == "a c"


def test_what_a_partial_binds_is_no_argument():
    """The rest of the function is the tool; a bound value is neither asked for nor shown."""

    def find(shop: str, name: str, count: int = 1, *, token: str) -> str:
        """Find it."""
        return f"{shop} {name} {count} {token}"

    found = tool(effect="read", name="find")(functools.partial(find, "north", token="t0"))
    assert found.model_schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer", "default": 1},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert found.description == "Find it."
    assert found.handler(name="a", count=2) == "north a 2 t0"


# -- models ---------------------------------------------------------------------------------------


class CreateOrder(BaseModel):
    """Create an order."""

    user_id: str
    amount: int = Field(ge=1, le=100)
    when: dt.datetime | None = None
    price: decimal.Decimal | None = None
    items: list[Item] = []
    labels: set[str] = set()
    shown: str = Field(default="", alias="shownAs")
    idempotency_key: str | None

    @field_validator("user_id", mode="before")
    @classmethod
    def strip(cls, value):
        """Take white space away."""
        return value.strip()

    @field_validator("amount")
    @classmethod
    def not_unlucky(cls, value):
        """Refuse 13."""
        if value == 13:
            raise ValueError("13 is refused")
        return value


def order(**fields):
    """The contract of CreateOrder."""
    return Contract.from_model("create_order", CreateOrder, key_argument="idempotency_key", **fields)


def test_a_model_becomes_a_contract():
    """Schema, description and validators come from the model; the key argument is hidden and still validated."""
    contract = order(output=Item, identity=("user_id",), handler=lambda given: given)
    assert contract.description == "Create an order."
    assert "idempotency_key" not in contract.model_schema["properties"]
    assert contract.output.is_valid({"sku": "a"})
    assert contract.input_hooks
    assert contract.defined_in_code
    value = contract.handler(user_id="u", amount=2, idempotency_key="k")
    assert isinstance(value, CreateOrder)
    assert value.idempotency_key == "k"
    assert contract("as written") == "as written"
    assert order().unchecked
    assert order(description="Mine.").description == "Mine."


@pytest.mark.parametrize(
    "given",
    [
        {"user_id": "u", "amount": 2},
        {"user_id": "u", "amount": 2, "when": "2026-01-02T03:04:05+00:00", "price": "1.50"},
        {"user_id": "u", "amount": 2, "items": [{"sku": "a"}, {"sku": "b", "count": 2}], "labels": ["b", "a"]},
        {"user_id": "u", "amount": 2.0, "price": 1.5, "shownAs": "x", "when": None},
    ],
)
def test_what_a_model_only_reads_is_not_changed(given):
    """Valid arguments come back as they were sent: no respelt dates, no filled-in defaults, no reordering."""
    assert json.dumps(order().validate_input(given)[0]) == json.dumps(given)
    assert order().validate_input(given)[1] == ()


def test_what_a_validator_changes_is_returned():
    """A before-validator's change is in the result, at any depth, and nothing else is."""
    given = {"user_id": " u ", "amount": 2}
    assert order().validate_input(given) == ({"user_id": "u", "amount": 2}, ())

    @tool(output="text")
    def tag(
        names: list[Annotated[str, AfterValidator(str.lower)]],
        all_of: Annotated[list[str], AfterValidator(lambda v: v[:1])],
    ) -> str:
        """Tag."""
        return ""

    assert tag.validate_input({"names": ["A", "b"], "all_of": ["x", "y"]}) == (
        {"names": ["a", "b"], "all_of": ["x"]},
        (),
    )


class Strict(BaseModel):
    """A model that converts nothing, as far as JSON can say it."""

    model_config = ConfigDict(strict=True)
    colour: Colour
    day: dt.date
    key: uuid.UUID
    pair: tuple[int, int] = (1, 2)


def test_a_strict_model_reads_what_json_can_only_write_as_a_text():
    """An enum, a date, a UUID and a tuple are read, at the top and inside; what the schema refuses stays refused."""
    sent = {"colour": "red", "day": "2026-01-02", "key": "12345678-1234-5678-1234-567812345678", "pair": [3, 4]}
    read = Strict(
        colour=Colour.RED, day=dt.date(2026, 1, 2), key=uuid.UUID("12345678-1234-5678-1234-567812345678"), pair=(3, 4)
    )
    whole = Contract.from_model("whole", Strict, handler=lambda given: given)
    assert whole.validate_input(sent) == (sent, ())
    assert whole.handler(**sent) == read
    assert not whole.input.is_valid({**sent, "pair": ["3", "4"]})

    @tool(output="text")
    def work(given: Strict) -> Any:
        """Work."""
        return given

    assert work.validate_input({"given": sent}) == ({"given": sent}, ())
    assert work.handler(given=sent) == read


def test_what_a_validator_refuses_is_a_finding():
    """Every refusal has its place, its reason and a hint; the arguments come back unchanged."""
    given = {"user_id": "u", "amount": 13, "items": [{"sku": "a", "count": "x"}]}
    arguments, findings = order().validate_input(given)
    assert arguments is given
    assert {(f.code, f.at, f.blame) for f in findings} == {
        ("model_rejected", "/amount", "model"),
        ("model_rejected", "/items/0/count", "model"),
    }
    assert "13 is refused" in findings[0].hint + findings[1].hint
    assert all(len(f.hint) < 600 for f in findings)


def test_a_whole_model_may_be_refused():
    """An error without a place is about the arguments as a whole."""

    def refuse(value):
        raise ValueError("not together")

    whole = Contract.from_model("whole", Annotated[Item, AfterValidator(refuse)])
    (finding,) = whole.validate_input({"sku": "a"})[1]
    assert finding.at == ""
    assert "not together" in finding.message


def test_a_broken_validator_is_not_hidden():
    """An exception that is no refusal leaves the validator, so that the caller can fail closed."""

    @tool(output="text")
    def work(a: Annotated[str, BeforeValidator(explode)]) -> str:
        """Work."""
        return a

    with pytest.raises(RuntimeError):
        work.validate_input({"a": "x"})


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (str, True), (int | None, True), (list[str] | None, True), (dict[str, list[int]], True), (Literal["a", 1], True),
        (Annotated[int, Field(ge=1)], True), (Annotated[str, "what it is"], True), (Any, True), (list, True), (None, True),
        (dict[int, str], False), (Literal[Colour.RED], False), (Colour, False), (dt.date, False), (tuple[int], False),
        (Annotated[str, AfterValidator(str.strip)], False), (list[Item], False), (Row, False), (bytes, False),
    ],
)  # fmt: skip
def test_only_json_types_skip_the_conversion(kind, plain):
    """A type whose JSON values are its values is plain; everything else is converted."""
    assert needs_no_conversion(kind) is plain


# -- docstrings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "summary", "arguments"),
    [
        ("", "", {}),
        ("Only a summary.", "Only a summary.", {}),
        ("Sum.\n\nArgs:\n    a: first: with colon\n    b (int, optional): second\n        line two: really\n\n    **c: third\n\nReturns:\n    d: no argument",
         "Sum.", {"a": "first: with colon", "b": "second line two: really", "c": "third"}),
        ("Sum.\n\nArgs:\n  a:\n    below\n  b: x", "Sum.", {"a": "below", "b": "x"}),
        ("Sum.\n\nParameters\n----------\na : int\n    The first\n    of two.\nb\n    The second.\n*args : int\n    no\n\nReturns\n-------\nint\n    nothing",
         "Sum.", {"a": "The first of two.", "b": "The second.", "args": "no"}),
        ("Sum.\n\n:param a: first\n    and more\n:param int b: second\n:type b: int\n:returns: nothing\n", "Sum.", {"a": "first and more", "b": "second"}),
        ("Sum.\n\nNote: this stays.\n\nExample:\n    a: no", "Sum.\n\nNote: this stays.", {}),
        ("Args:\n    no entries here", "", {}),
        ("Args:\n    a: x\nRaises:\n    b: y", "", {"a": "x"}),
    ],
)  # fmt: skip
def test_docstrings_of_three_styles(text, summary, arguments):
    """Google, numpy and Sphinx sections give descriptions; everything before the first section is the summary."""
    read = read_docstring(text)
    assert (read.summary, read.arguments) == (summary, arguments)


def test_a_description_in_the_type_wins_over_the_docstring():
    """Field(description=...) is kept; names the docstring invents are ignored."""

    @tool
    def work(a: Annotated[int, Field(description="from the type")], b: int) -> None:
        """Work.

        Args:
            a: from the docstring
            b: also
            z: no such argument
        """

    properties = work.model_schema["properties"]
    assert properties["a"]["description"] == "from the type"
    assert properties["b"]["description"] == "also"
    assert "z" not in properties


def test_pydantic_is_not_imported_until_it_is_needed():
    """Importing contracts, catalogue and the decorator leaves pydantic alone."""
    code = (
        "import sys, pokayoke.core.contract.contract, pokayoke.core.catalogue.catalogue, pokayoke.core.messages.tool_definitions, pokayoke.runtime.tools.function;"
        "print([m for m in ('pydantic', 'typer', 'rich', 'apsw') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


NOT_GIVEN = object()


def test_a_default_that_json_does_not_have_refuses_no_call():
    """An argument that nobody sends may default to anything: a validator beside it looks at what was sent alone."""

    @tool(effect="read", output="text")
    def report(day: dt.date, note: Any = NOT_GIVEN) -> str:
        """Report on a day."""
        return f"{day:%Y} {note is NOT_GIVEN}"

    class Wanted(BaseModel):
        day: dt.date
        note: Any = NOT_GIVEN
        name: str = Field(default="x", alias="Name")

        @field_validator("name")
        @classmethod
        def lower(cls, value: str) -> str:
            return value.lower()

    made = Contract.from_model(
        "wanted", Wanted, output="text", effect="read", handler=lambda one: f"{one.name} {one.note is NOT_GIVEN}"
    )
    run = Guard([report, made]).run()
    assert run.call(ToolCall("1", "report", {"day": "2026-01-02"})).value == "2026 True"
    assert run.call(ToolCall("2", "wanted", {"day": "2026-01-02", "Name": "ANN"})).value == "ann True"


def test_a_validator_that_takes_no_ledger_key_is_found_while_building():
    """A model's own check of the key argument would refuse every call; other fields are no matter of building."""

    class Order(BaseModel):
        amount: int
        key: str

        @field_validator("key")
        @classmethod
        def short(cls, value: str) -> str:
            if len(value) > 36:
                raise ValueError("a UUID is wanted")
            return value

    fields = {"output": "text", "effect": "write", "key_argument": "key"}
    with pytest.raises(ContractError, match=r"key_argument 'key' takes no ledger key .*a UUID is wanted"):
        Contract.from_model("order", Order, **fields)

    class Odd(BaseModel):
        amount: int
        key: str

        @model_validator(mode="before")
        @classmethod
        def look(cls, value: Any) -> Any:
            return {**value, "amount": value["amount"]}  # a KeyError where the amount is not there

    assert Contract.from_model("odd", Odd, **fields).key_argument == "key"
