"""Contracts from Python types through pydantic: schemas, conversion of arguments, validators.

In: a type, a model or a typed handler.
Out: schemas and callables for a contract, or a ContractError.
Never: an import of pydantic before the first such contract is built.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin

from pokayoke.core.call import Finding
from pokayoke.core.contract.arguments import KEY_STAND_IN
from pokayoke.core.json.pointer import to_pointer
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.schema.index import iter_subschemas
from pokayoke.core.text.clip import clip_at_word
from pokayoke.errors import ContractError

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

_MAX_FINDINGS = 20
_SCALARS = (str, int, float, bool, type(None))
_NAIVE_TIMES = {
    "date-time": (r"^\d{4}-\d\d-\d\dT\d\d:\d\d", "2026-11-21T09:30:00"),
    "time": (r"^\d\d:\d\d", "09:30:00"),
}
"""Pattern and example of times without a required zone, by their format. The type checks the rest."""


def input_schema_of(kind: Any, where: str) -> dict[str, Any]:
    """Return the closed JSON Schema of the values that a type accepts.

    Every object with listed properties is closed unless its type says `extra="allow"`: an undeclared field is a typo
    of the model.
    """
    schema = _json_schema(build_type_adapter(kind, where), "validation", where)
    _close_objects(schema)
    return schema


def output_schema_of(kind: Any, where: str) -> dict[str, Any] | Literal["text"] | None:
    """Return the schema of the serialised values of a return type.

    Returns:
        `"text"` for `str`; None for types that promise nothing: Any and object. A bare `dict` or `list` promises an
        object or an array, whatever is in it.
    """
    if kind is str:
        return "text"
    if kind in (inspect.Signature.empty, Any, object):
        return None
    return _json_schema(build_type_adapter(kind, where), "serialization", where)


def from_model(name: str, model: Any, output: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contract fields of a tool whose arguments are one model."""
    where = f"model of {name!r}"
    schema = input_schema_of(model, where)
    if fields.get("paths"):
        refuse_unconfined_paths(where, _field_types(model), fields["paths"])
    adapter = build_type_adapter(model, where)
    made: dict[str, Any] = {
        "name": name,
        "input_schema": schema,
        "output_schema": output_schema_from(output, where),
        "description": schema.pop("description", ""),
        "validate_input": build_validator(adapter, fields.get("key_argument")),
        "before_validators": find_before_validators(adapter),
        "defined_in_code": True,
        **fields,
    }
    handler = fields.get("handler")
    if handler is not None:
        made["function"] = handler
        made["handler"] = build_typed_handler(handler, adapter, spread=False)
    return made


def output_schema_from(output: Any, where: str) -> Any:
    """Return the output schema of an `output=` argument: a schema, "text", a type or None."""
    if output is None or isinstance(output, str | bool | dict):
        return cast(Any, output)
    return output_schema_of(output, where)


def build_typed_handler(handler: Callable[..., Any], adapter: TypeAdapter[Any], *, spread: bool) -> Callable[..., Any]:
    """Return a handler that takes JSON values by name and calls the typed one.

    Args:
        handler: the function to call.
        adapter: makes the typed value.
        spread: True if the handler takes the fields of the value, False if the value itself.
    """

    def typed_call(arguments: dict[str, Any]) -> Any:
        value = _parse_arguments(adapter, arguments)
        if not spread:
            return handler(_restore_confined_paths(arguments, value))
        return handler(**{name: _keep_confined_paths(sent, getattr(value, name)) for name, sent in arguments.items()})

    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def call_async(**arguments: Any) -> Any:
            return await typed_call(arguments)

        return call_async

    @functools.wraps(handler)
    def call_sync(**arguments: Any) -> Any:
        return typed_call(arguments)

    return call_sync


def _parse_arguments(adapter: TypeAdapter[Any], arguments: dict[str, Any]) -> Any:
    """Return the typed value of JSON values that fit the schema.

    Not in strict mode: strict types refuse a text for an enum, a date or a UUID, and JSON has no other form for them.
    """
    return adapter.validate_python(arguments, strict=False)


def _keep_confined_paths(sent: Any, value: Any) -> Any:
    """Return the typed value; where a text is expected, a confined path (a text with its own `open`) is kept."""
    if type(value) is str and isinstance(sent, str):
        return sent
    if type(value) in (list, tuple) and is_array(sent) and len(sent) == len(value):
        return type(value)([_keep_confined_paths(*pair) for pair in zip(sent, value, strict=True)])
    if type(value) in (set, frozenset) and is_array(sent):
        given = {one: one for one in sent if isinstance(one, str)}
        return type(value)([given.get(one, one) for one in value])
    return value


def _restore_confined_paths(arguments: dict[str, Any], model: Any) -> Any:
    """Return a model whose confined paths are restored where pydantic made plain texts of them."""
    for name, sent in arguments.items():
        if any(isinstance(one, str) and type(one) is not str for one in (sent if is_array(sent) else (sent,))):
            field = _fields_by_alias(type(model)).get(name, name)
            if is_object(model):
                model[field] = _keep_confined_paths(sent, model[field])
            else:  # also in a frozen model: its value stays equal
                object.__setattr__(model, field, _keep_confined_paths(sent, getattr(model, field)))
    return model


def _field_types(model: Any) -> dict[str, Any]:
    """Return the types of a model's fields, by their names in JSON."""
    declared: dict[str, Any] | None = getattr(model, "__pydantic_fields__", None)
    if declared is None:
        return typing.get_type_hints(model) if isinstance(model, type) else {}
    names = {field: name for name, field in _fields_by_alias(model).items()}
    return {names.get(field, field): info.annotation for field, info in declared.items()}


def _fields_by_alias(model: Any) -> dict[str, str]:
    """Return the fields of a model that have another name in JSON, keyed by that name."""
    declared = getattr(model, "__pydantic_fields__", {}).items()
    named = ((info.validation_alias or info.alias, field) for field, info in declared)
    return {alias: field for alias, field in named if isinstance(alias, str)}


def refuse_unconfined_paths(where: str, hints: Mapping[str, Any], paths: Mapping[str, Any]) -> None:
    """Refuse a path argument whose type would open files without the check.

    Raises:
        ContractError: it is a `pathlib` path, whose own `open` follows links out of the root.
    """
    for name in paths:
        if name in hints and mentions_type(hints[name], PurePath):
            raise ContractError(
                f"{where}: the path argument {name!r} is a pathlib path, which opens what a link leads to by then. "
                "Declare it as pokayoke.ConfinedPath (or str) and open it with its own .open()"
            )


def mentions_type(kind: Any, wanted: type, around: tuple[Any, ...] = ()) -> bool:
    """Return whether a type is a class, contains it (a union, a list), or is an alias of such a type.

    Args:
        kind: the type.
        wanted: the class.
        around: the types that contain this one, because an alias may contain itself.
    """
    if isinstance(kind, type) and issubclass(kind, wanted):
        return True
    if any(kind is one for one in around):
        return False
    named = (getattr(kind, name, None) for name in ("__supertype__", "__value__", "__bound__"))
    return any(mentions_type(one, wanted, (*around, kind)) for one in (*get_args(kind), *named) if one is not None)


def build_validator(
    adapter: TypeAdapter[Any], key_argument: str | None = None
) -> Callable[[dict[str, Any]], tuple[dict[str, Any], tuple[Finding, ...]]]:
    """Return the function that runs a model's validators on arguments.

    The function returns the arguments as JSON values, changed only where a validator changed them, and findings for
    what the validators refuse. Defaults are not filled in: arguments that were not sent stay unsent.

    Raises:
        ContractError: a validator refuses a ledger key in the key argument.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - only where a model is used

    if key_argument is not None:
        _refuse_strict_key(adapter, key_argument)

    def validate_arguments(arguments: dict[str, Any]) -> tuple[dict[str, Any], tuple[Finding, ...]]:
        given = arguments if key_argument is None else {**arguments, key_argument: KEY_STAND_IN}
        try:
            value = _parse_arguments(adapter, given)
        except ValidationError as exc:
            errors = exc.errors(include_url=False, include_context=False, include_input=False)
            return arguments, tuple(_model_finding(error) for error in errors[:_MAX_FINDINGS])
        # A default that was not sent may have no JSON form.
        sent_only: dict[str, Any] = {"exclude_unset": True, "exclude": _unsent_fields(value, arguments)}
        as_python: Any = adapter.dump_python(value, by_alias=True, round_trip=True, warnings=False, **sent_only)
        as_json: Any = adapter.dump_python(
            value, mode="json", by_alias=True, round_trip=True, warnings=False, **sent_only
        )
        return _merge_validated(arguments, as_python, as_json), ()

    return validate_arguments


def find_before_validators(adapter: TypeAdapter[Any]) -> tuple[str, ...]:
    """Return the fields of a model with a validator that runs before the type's own check, by their names in JSON.

    The JSON Schema does not say what such a validator takes, so a value that only it could read is refused before it
    runs. One that declares its input (`json_schema_input_type`) hides nothing.
    """
    root: Any = adapter.core_schema
    known = {one.get("ref"): one for one in root.get("definitions", ())}
    while is_object(root) and root["type"] not in _FIELD_HOLDERS:
        root = known.get(root.get("schema_ref")) or root.get("schema")
    fields: Any = root["fields"] if is_object(root) else ()
    named = fields.items() if is_object(fields) else ((one["name"], one) for one in fields)
    return tuple(
        alias if isinstance(alias := field.get("validation_alias"), str) else name
        for name, field in named
        if _has_before_validator(field)
    )


_FIELD_HOLDERS = ("model-fields", "dataclass-args", "typed-dict")


def _has_before_validator(node: Any) -> bool:
    """Return whether a part of a core schema runs a validator of the user before its own check."""
    if is_array(node) or isinstance(node, tuple):
        return any(map(_has_before_validator, cast(Iterable[Any], node)))
    if not is_object(node):
        return False
    if node.get("type") in ("function-before", "function-wrap") and "json_schema_input_schema" not in node:
        written = getattr(node["function"]["function"], "__module__", None) or ""
        if not written.startswith("pydantic."):  # which wraps some types of the standard library itself
            return True
    return any(_has_before_validator(child) for word, child in node.items() if word != "metadata")


def _refuse_strict_key(adapter: TypeAdapter[Any], key_argument: str) -> None:
    """Refuse a model that would refuse every call. Only the key's own validators can run without other arguments."""
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    errors: list[ErrorDetails] = []
    try:
        _parse_arguments(adapter, {key_argument: KEY_STAND_IN})
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_context=False, include_input=False)
    except Exception:  # noqa: BLE001 - a validator of the whole model may fail because the rest is missing
        return
    for error in errors:
        if error["loc"][:1] == (key_argument,):
            raise ContractError(
                f"key_argument {key_argument!r} takes no ledger key (64 hexadecimal digits): "
                f"{str(error['msg'])[:300]}. Make it a plain string, and shorten or convert it in the handler"
            )


def _unsent_fields(value: Any, arguments: Mapping[str, Any]) -> set[str] | None:
    """Return the fields of a dataclass that were not sent; a pydantic model tracks that itself."""
    kind = type(cast("object", value))
    names = _fields_by_alias(kind)
    sent = {names.get(name, name) for name in arguments}
    return {field for field in getattr(kind, "__dataclass_fields__", ()) if field not in sent} or None


def _merge_validated(sent: Any, as_python: Any, as_json: Any) -> Any:
    """Return a value after validation: as it was sent, unless a validator changed its meaning.

    A text that became another text was changed. A text that became a datetime, a UUID or a Decimal was only parsed;
    its serialised form may differ without a change, and so may 2.0 parsed as 2.
    """
    if is_object(sent) and is_object(as_python):
        return {
            name: _merge_validated(item, as_python[name], as_json[name])
            if name in as_python and name in as_json
            else item
            for name, item in sent.items()
        }
    if is_array(sent) and isinstance(as_python, list | tuple):
        values = cast(list[Any], as_python)
        if len(sent) == len(values):
            return [_merge_validated(*triple) for triple in zip(sent, values, as_json, strict=True)]
        return as_json
    if type(as_python) not in _SCALARS or sent == as_json:
        return sent
    return as_json


def _model_finding(error: ErrorDetails) -> Finding:
    at = to_pointer(map(str, error["loc"]))
    name = at[1:].replace("/", ".") or "arguments"
    said = clip_at_word(str(error["msg"]), 300)
    return Finding(
        code="model_rejected",
        at=at,
        blame="model",
        message=f"{at or 'the value'}: {said}",
        hint=f"`{name[:100]}` is not acceptable: {said}",
        data={"type": error["type"]},
    )


def needs_no_conversion(kind: Any) -> bool:
    """Return whether every JSON value that fits the type's schema is already a value of the type."""
    from pydantic.fields import FieldInfo  # noqa: PLC0415 - only where a function is typed

    origin = get_origin(kind)
    if origin is typing.Annotated:
        inner, *notes = get_args(kind)
        return needs_no_conversion(inner) and all(
            isinstance(note, str | FieldInfo) or type(note).__module__ == "annotated_types" for note in notes
        )
    if origin in (Union, types.UnionType, list):
        return all(needs_no_conversion(one) for one in get_args(kind))
    if origin is dict:
        key, value = get_args(kind)
        return key is str and needs_no_conversion(value)
    if origin is Literal:
        return all(type(one) in _SCALARS for one in get_args(kind))
    return kind in (*_SCALARS, None, Any, dict, list)


def build_type_adapter(kind: Any, where: str) -> TypeAdapter[Any]:
    """Return the pydantic adapter of a type.

    Raises:
        ContractError: pydantic does not support the type.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415 - only where a model is used
    from pydantic.errors import PydanticUserError  # noqa: PLC0415
    from pydantic_core import SchemaError  # noqa: PLC0415

    try:
        return TypeAdapter(kind)
    except (PydanticUserError, SchemaError, TypeError, NameError) as exc:  # such as a pattern that looks around
        raise ContractError(
            f"{where}: {_reason_line(exc)}. Give a JSON Schema instead, or a type pydantic knows"
        ) from None


def _json_schema(adapter: TypeAdapter[Any], mode: Literal["validation", "serialization"], where: str) -> dict[str, Any]:
    from pydantic.errors import PydanticUserError  # noqa: PLC0415 - only where a model is used
    from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning  # noqa: PLC0415
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415

    class UntitledJsonSchema(GenerateJsonSchema):
        """Leaves out the titles made from field names, which tell a model nothing and cost tokens."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the name pydantic calls
            return False

        def datetime_schema(self, schema: Any) -> dict[str, Any]:
            return _relax_time_zone(super().datetime_schema(schema), schema)

        def time_schema(self, schema: Any) -> dict[str, Any]:
            return _relax_time_zone(super().time_schema(schema), schema)

        def encode_default(self, dft: Any) -> Any:
            encoded = super().encode_default(dft)
            if isinstance(encoded, float) and not math.isfinite(encoded):
                raise PydanticSerializationError("JSON has no such number")
            return encoded

    try:
        with warnings.catch_warnings():
            # A default that is no JSON value is left out of the schema; the tool still has it.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            schema = adapter.json_schema(mode=mode, schema_generator=UntitledJsonSchema)
    except (PydanticUserError, PydanticSerializationError) as exc:  # such as an Enum with a member that is no JSON
        raise ContractError(f"{where}: {_reason_line(exc)}. Give a JSON Schema instead") from None
    schema.pop("title", None)
    return schema


def _relax_time_zone(node: dict[str, Any], kind: Mapping[str, Any]) -> dict[str, Any]:
    """Demand a time zone only where the type does: Python's times need none, and a model would have to guess one."""
    form = _NAIVE_TIMES.get(node.get("format", ""))
    if form is None or kind.get("tz_constraint") not in (None, "naive"):
        return node
    return {"type": "string", "pattern": form[0], "examples": [form[1]]}


def _reason_line(exc: BaseException) -> str:
    """Return the line of an error with its reason: the first, or the last if the first ends with a colon."""
    lines = str(exc).strip().splitlines() or [""]
    return (lines[-1] if lines[0].endswith(":") else lines[0]).strip().rstrip(".")


def _close_objects(schema: dict[str, Any]) -> None:
    """Close every object with listed properties, unless its type declares it open."""
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    for _, child in iter_subschemas(schema):
        if is_object(child):
            _close_objects(child)
