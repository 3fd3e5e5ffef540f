"""The arguments of a tool: those its schema declares, those its handler takes, and the key argument.

The key argument is filled by the guard with the ledger key. The tool's own schema has it; the model's has not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from pokayoke.core.json.pointer import pointer_step
from pokayoke.core.json.values import is_object
from pokayoke.core.schema.schema import Schema
from pokayoke.errors import ContractError

KEY_STAND_IN = "0" * 64
"""A text of a ledger key's form, for checks before a key exists."""


def declared_arguments(schema: Schema) -> tuple[dict[str, Any], bool]:
    """Return the arguments that a schema names at its top level, also through `$ref` and unions.

    Returns:
        The subschemas by name, and True unless patterns or dynamic references may allow further names.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    complete = True
    pending: list[Any] = [schema.raw]
    while pending:
        node = pending.pop()
        if not is_object(node) or id(node) in seen:
            continue
        seen.add(id(node))
        for name, value in node.get("properties", {}).items():
            found.setdefault(name, value)
        complete = complete and "patternProperties" not in node and "$dynamicRef" not in node
        for keyword in ("allOf", "anyOf", "oneOf"):
            pending.extend(node.get(keyword, ()))
        pending.extend((node.get("then"), node.get("else"), schema.resolve_ref(node)))
    return found, complete


def has_url_argument(schema: Schema) -> bool:
    """Return whether a tool takes a URL, by the format or the name of an argument, so that a page may be its answer."""
    for name, one in declared_arguments(schema)[0].items():
        kinds = (one, one.get("items")) if is_object(one) else ()
        if any(is_object(kind) and kind.get("format") in _URL_FORMATS for kind in kinds):
            return True
        if _WORD_ENDS.split(name)[-1].lower() in _URL_NAMES:
            return True
    return False


_URL_FORMATS = ("uri", "uri-reference", "iri", "iri-reference")
_URL_NAMES = ("url", "urls", "uri", "uris")
_WORD_ENDS = re.compile(r"[_.-]|(?<=[a-z0-9])(?=[A-Z])")


def declared_defaults(schema: Schema) -> dict[str, Any]:
    """Return the defaults that a schema's own `properties` declare; those of branches hold for some calls only."""
    named: dict[str, Any] = schema.raw.get("properties", {}) if is_object(schema.raw) else {}
    return {name: one["default"] for name, one in named.items() if is_object(one) and "default" in one}


def may_hold_type(schema: dict[str, Any], kind: str) -> bool:
    """Return whether a subschema allows a type, as far as its `type` and unions tell."""
    types = schema.get("type")
    if types is not None:
        return kind in ([types] if isinstance(types, str) else types)
    branches = schema.get("anyOf") or schema.get("oneOf")
    return branches is None or any(
        isinstance(one, dict) and may_hold_type(cast(dict[str, Any], one), kind) for one in branches
    )


def remove_argument(tool: str, whole: Schema, argument: str) -> dict[str, Any]:
    """Return an input schema without its key argument.

    Raises:
        ContractError: the schema does not declare it as a text, or does not take a ledger key there.
    """
    schema = cast(dict[str, Any], whole.raw)
    properties: dict[str, Any] = schema.get("properties", {})
    declared = properties.get(argument)
    if not is_object(declared):
        raise ContractError(
            f"{tool}: key_argument {argument!r} is no property of the input schema. Add it there as a string; "
            "the model will not see it."
        )
    if not may_hold_type(declared, "string"):
        raise ContractError(f"{tool}: key_argument {argument!r} must take a string, the guard fills it with one")
    for problem in whole.find_problems({argument: KEY_STAND_IN}):
        if problem.at == pointer_step(argument):
            raise ContractError(
                f"{tool}: key_argument {argument!r} takes no ledger key (64 hexadecimal digits): expected "
                f"{problem.expected}. Make it a plain string, and shorten or convert it in the handler"
            )
    return {
        **schema,
        "properties": {name: value for name, value in properties.items() if name != argument},
        **({"required": [name for name in schema["required"] if name != argument]} if "required" in schema else {}),
    }


def refuse_argument(schema: dict[str, Any], argument: str) -> dict[str, Any]:
    """Return an input schema that refuses an undeclared argument; the same object if it already does.

    A model that could send the key would make two effects out of one: the key is made from all arguments, and
    the target would drop no repetition.
    """
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        return schema
    return {**schema, "allOf": [*schema.get("allOf", ()), {"not": {"required": [argument]}}]}


def has_user_code(entry: Any) -> bool:
    """Return whether the correctors of one field run user code."""
    entries = cast(Iterable[object], entry if isinstance(entry, tuple) else (entry,))
    return any(map(callable, entries))


def is_async(handler: Callable[..., Any] | None) -> bool:
    """Return whether calling a handler gives a coroutine."""
    if handler is None:
        return False
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - an object with an async __call__


def parameters_of(function: Callable[..., Any] | None, *, follow_wrapped: bool = True) -> dict[str, bool] | None:
    """Return the parameters that take a name, and whether each is required; None if unknown or any name is taken."""
    if function is None:
        return None
    try:
        parameters = inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    named = (one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
    return {one.name: one.default is one.empty for one in named}
