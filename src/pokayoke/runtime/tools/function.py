"""Tools from Python functions: types and docstring become the contract.

    @tool(effect="read")
    def stock(sku: str, shop: Literal["north", "south"] = "north") -> Stock: ...

What comes back is a `Contract` that can still be called like the function.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from pokayoke.core.call import UNDECLARED, Effect
from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.values import is_array, is_object
from pokayoke.errors import ContractError

P = ParamSpec("P")
R = TypeVar("R")
_UNDECLARED = inspect.Signature.empty


class Tool(Contract, Generic[P, R]):
    """The contract of a Python function. Calling it calls the function, with the function's own signature."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it was written, unguarded; for tests of the tool itself."""
        result: R = super().__call__(*args, **kwargs)
        return result


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    effect: Effect = UNDECLARED,
    name: str | None = None,
    output: Any = None,
    identity: tuple[str, ...] | None = None,
    timeout: float | None = None,
    paths: typing.Mapping[str, typing.Sequence[Any]] | None = None,
    **fields: Any,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = UNDECLARED,
    name: str | None = None,
    output: Any = None,
    **fields: Any,
) -> Tool[..., Any] | Callable[[Callable[..., Any]], Tool[..., Any]]:
    """Turn a function into a tool. Works bare (`@tool`) and with options (`@tool(effect="read")`).

    Args:
        function: a sync or async function whose parameters are annotated.
        effect: read, write or destructive. What is not declared is a write.
        name: the tool's name; the function's own if not given.
        output: what it returns, if the return annotation does not say: a JSON Schema, a type that
            pydantic understands, or "text".
        fields: any other field of `Contract`, such as identity, timeout (seconds), paths, urls, approval,
            key_argument or version. `description` replaces the docstring.

    Returns:
        The contract. Calling it calls the function as it was written, unguarded.

    Raises:
        ContractError: the signature cannot be a tool's; the message says what to change.
    """

    def make_contract(function: Callable[..., Any]) -> Tool[..., Any]:
        return from_function(function, effect=effect, name=name, output=output, **fields)

    return make_contract if function is None else make_contract(function)


def from_function(
    function: Callable[P, R],
    *,
    effect: Effect = UNDECLARED,
    name: str | None = None,
    output: Any = None,
    **fields: Any,
) -> Tool[P, R]:
    """Build a contract from a function; see `tool`."""
    if not callable(cast(object, function)) or isinstance(function, type | Contract):
        raise ContractError(f"tool() takes a function, not {function!r}")
    named = name or getattr(function, "__name__", "")
    if not named or named == "<lambda>":
        raise ContractError(f"{function!r} has no name: give one with name=")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ContractError(f"{named} is a generator, whose items come after it has returned. Return a list")
    if "output_schema" in fields:
        raise ContractError(f"{named}: say what it returns with output=, which takes a schema, too; not output_schema=")
    from pokayoke.core.contract import python_types as typed  # noqa: PLC0415 - loaded with the first tool
    from pokayoke.runtime.tools.docstring import read_docstring  # noqa: PLC0415 - as above

    signature, hints = _tool_signature(function, named)
    _check_paths(named, hints, fields.get("paths") or {}, fields.get("urls") or {})
    notes = read_docstring(inspect.getdoc(_unwrap_partial(function)) or "")
    arguments = _arguments_type(named, signature, hints)
    where = f"arguments of {named!r}"
    schema = typed.input_schema_of(arguments, where)
    _add_descriptions(schema, notes.arguments)
    _show_defaults(schema, signature)
    made: dict[str, Any] = {
        "description": notes.summary,
        "handler": function,
        "function": function,
        "defined_in_code": True,
        **fields,
    }
    if not all(typed.needs_no_conversion(hints[parameter]) for parameter in signature.parameters):
        adapter = typed.build_type_adapter(arguments, where)
        made["handler"] = typed.build_typed_handler(function, adapter, spread=True)
        made["validate_input"] = typed.build_validator(adapter, fields.get("key_argument"))
        made["before_validators"] = typed.find_before_validators(adapter)
    promised = output if output is not None else hints.get("return", _UNDECLARED)
    made["output_schema"] = typed.output_schema_from(promised, f"output of {named!r}")
    return Tool[P, R].from_schema(named, schema, effect=effect, **made)


def _check_paths(
    name: str, hints: dict[str, Any], paths: typing.Mapping[str, Any], urls: typing.Mapping[str, Any]
) -> None:
    """Refuse a type that takes the check out of a path's opening, and one that promises a check nobody makes."""
    from pokayoke.core.contract import python_types as typed  # noqa: PLC0415 - loaded with the first tool
    from pokayoke.runtime.files.workspace import ConfinedPath  # noqa: PLC0415 - as above
    from pokayoke.runtime.network.confined_url import ConfinedUrl  # noqa: PLC0415 - as above

    typed.refuse_unconfined_paths(name, hints, paths)
    for argument, kind in hints.items():
        if argument not in paths and argument != "return" and typed.mentions_type(kind, ConfinedPath):
            raise ContractError(f"{name}: {argument!r} is a ConfinedPath. Say with paths= where it may lead")
        if argument not in urls and argument != "return" and typed.mentions_type(kind, ConfinedUrl):
            raise ContractError(f"{name}: {argument!r} is a ConfinedUrl. Say with urls= what it may reach")


def _unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function whose text has the annotations and the docstring."""
    bound: Any = function
    written: Callable[..., Any] = bound.func if isinstance(bound, partial) else bound
    return written


def _tool_signature(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return the signature and the resolved annotations of a function that can be a tool."""
    try:
        signature = inspect.signature(function)
    except ValueError as exc:  # a built-in function, for one
        raise ContractError(f"{name}: {exc}. Wrap it in a function with annotated parameters") from None
    written = _unwrap_partial(function)
    if written is not function:  # what is bound is no argument, and its value nothing for a model to read
        bound: Any = function
        free = [one for one in signature.parameters.values() if one.name not in bound.keywords]
        signature = signature.replace(parameters=free)
    target = written if inspect.isroutine(written) else type(written).__call__
    try:
        hints = typing.get_type_hints(inspect.unwrap(cast(Any, target)), include_extras=True)
    except NameError as exc:
        raise ContractError(
            f"{name}: the annotation {exc.name!r} cannot be resolved. Import it at module level"
        ) from None
    except Exception as exc:  # noqa: BLE001 - an annotation that is a text is code of the programmer's
        raise ContractError(f"{name}: an annotation cannot be resolved: {type(exc).__name__}: {exc}") from None
    for parameter in signature.parameters.values():
        what = f"{name}: parameter {parameter.name!r}"
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ContractError(f"{what} is positional-only, but tools are called by name. Remove the / after it")
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ContractError(f"{what} takes any number of values. Use one parameter with a list type")
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ContractError(f"{what} takes any name, so no misspelt one could be noticed. Name the parameters")
        if parameter.name not in hints:
            hint = "decorate the bound method: tool(...)(instance.method)" if parameter.name in ("self", "cls") else ""
            raise ContractError(f"{what} has no type. {hint or 'Annotate it, such as ' + parameter.name + ': str'}")
        _refuse_field(what, parameter, hints[parameter.name])
    return signature, hints


def _refuse_field(what: str, parameter: inspect.Parameter, hint: Any) -> None:
    """Refuse pydantic fields that say what only the function can: its defaults and the names it is called by."""
    from pydantic.fields import FieldInfo  # noqa: PLC0415 - loaded with the first tool

    if isinstance(parameter.default, FieldInfo | dataclasses.Field):
        raise ContractError(
            f"{what} has a field as its default, which the function would get in place of a value. "
            "Write Annotated[TYPE, Field(...)] = DEFAULT"
        )
    fields = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, FieldInfo)]
    if any(note.alias or note.validation_alias or note.serialization_alias for note in fields):
        raise ContractError(
            f"{what} has an alias, by which it cannot be called. Give it that name, or take the alias out"
        )
    if parameter.default is parameter.empty and not all(note.is_required() for note in fields):
        raise ContractError(f"{what} has a default only in its field. Write Annotated[TYPE, Field(...)] = DEFAULT")


def _arguments_type(name: str, signature: inspect.Signature, hints: dict[str, Any]) -> type:
    """Return a type with one field per parameter. A dataclass takes any name that Python does."""
    members: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.default is parameter.empty:
            members.append((parameter.name, hints[parameter.name]))
        else:
            default: Any = parameter.default
            if type(default).__hash__ is None:  # it can change, and a dataclass wants a maker for these
                default = dataclasses.field(default_factory=partial(copy.copy, default))
            members.append((parameter.name, hints[parameter.name], default))
    made = dataclasses.make_dataclass(name if name.isidentifier() else "Arguments", members, kw_only=True)
    made.__doc__ = None
    made.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]  # how pydantic reads options of a dataclass
    return made


def _show_defaults(schema: dict[str, Any], signature: inspect.Signature) -> None:
    """Say the defaults that are made anew for each call, which pydantic does not show."""
    for name, parameter in signature.parameters.items():
        default: Any = parameter.default
        if type(default) in (list, set) and all(type(one) in (str, int, bool) for one in default):
            # A set has no order of its own, and a contract must not look different in each process.
            shown = [*default] if is_array(default) else sorted(default, key=repr)
            schema["properties"][name].setdefault("default", shown)


def _add_descriptions(schema: dict[str, Any], notes: dict[str, str]) -> None:
    """Give arguments the description their docstring has, unless their type brought one."""
    schema.pop("description", None)
    for name, note in notes.items():
        described = schema.get("properties", {}).get(name)
        if is_object(described):
            described.setdefault("description", note)
