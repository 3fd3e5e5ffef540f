"""Fields of a contract, read from tool definitions of providers and from plain data.

In: one definition (OpenAI, Anthropic, MCP), or a mapping such as an entry of a YAML file.
Out: the fields; the class methods of `Contract` build from them.
Never: a guess. A definition of an undocumented shape is a ContractError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pokayoke.core.contract.arguments import has_user_code
from pokayoke.core.contract.terms import DeclaredInvariant, Envelope, Polls
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.policy import LimitPolicy, RetryPolicy
from pokayoke.core.provenance.labels import Labels
from pokayoke.errors import ContractError

if TYPE_CHECKING:
    from pokayoke.core.contract.contract import Contract

# Fields that data can hold; callables and exception classes are passed separately.
_STRUCTURED_FIELDS: dict[str, Any] = {
    "retry": RetryPolicy,
    "envelope": Envelope,
    "labels": Labels,
    "polls": Polls | bool,
    "quota": tuple[LimitPolicy, ...],
    "invariants": tuple[DeclaredInvariant, ...],
    "urls": dict[str, UrlRule],
}
_PLAIN_FIELDS: dict[str, Any] = {
    "name": str,
    "version": str,
    "description": str,
    "input_schema": dict[str, Any],
    "output_schema": dict[str, Any] | bool | str | None,
    "effect": str,
    "open_world": bool | None,
    "idempotent": bool,
    "identity": tuple[str, ...] | None,
    "scope": str,
    "sources": tuple[str, ...] | None,
    "timeout": float | None,
    "thread": str | None,
    "on_ambiguous": str,
    "lookup_safe": str | None,
    "settle_after": float | None,
    "forwards_key": bool,
    "key_epoch": int,
    "volatile": tuple[str, ...],
    "repeats": str | None,
    "max_chars": int | None,
    "content_type": str | None,
    "correctors": dict[str, Any],
    "output_checks": str,
    "on_invalid_output": str | None,
    "paths": dict[str, tuple[str, ...]],
    "roles": tuple[str, ...],
    "approval": bool,
    "literal": tuple[str, ...],
    "key_argument": str | None,
    "secret": bool,
    "redact": tuple[str, ...],
    "schemas": dict[str, Any] | None,
}


_EMPTY_BY_DEFAULT = ("correctors", "paths", "urls")
_VERBATIM_FIELDS = ("input_schema", "output_schema", "schemas")


def read_openai(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Read a function definition: chat completions, responses, or the bare function object."""
    definition = _require_mapping(definition)
    kind = definition.get("type", "function")
    if kind != "function":
        raise ContractError(f"{kind!r} is a tool that the provider runs; only functions have a contract")
    inner = definition.get("function", definition)
    if not isinstance(inner, Mapping):
        raise ContractError("a function definition is an object with name, description and parameters")
    function = cast(Mapping[str, Any], inner)
    _refuse_other_kinds(function, "parameters")
    return {
        "name": _read_name(function),
        "description": _read_description(function),
        # By the API's documentation, a function without parameters has an empty parameter list.
        "input_schema": _read_schema(function, "parameters", absent=_NO_ARGUMENTS),
    }


def read_anthropic(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Read a tool definition of the messages API."""
    definition = _require_mapping(definition)
    _refuse_other_kinds(definition, "input_schema")
    if "input_schema" not in definition:
        raise ContractError(
            f"{definition.get('name')!r} has no input_schema: it is a tool that the provider runs or defines"
        )
    return {
        "name": _read_name(definition),
        "description": _read_description(definition),
        "input_schema": _read_schema(definition, "input_schema"),
    }


def read_mcp(entry: Mapping[str, Any], *, trusted_hints: bool) -> dict[str, Any]:
    """Read one entry of a `tools/list` answer.

    The specification calls annotations hints that a client must not rely on unless it trusts the server.
    """
    entry = _require_mapping(entry)
    _refuse_other_kinds(entry, "inputSchema")
    fields: dict[str, Any] = {
        "name": _read_name(entry),
        "description": _read_description(entry) or str(entry.get("title") or ""),
        "input_schema": _read_schema(entry, "inputSchema"),
    }
    if entry.get("outputSchema") is not None:
        fields["output_schema"] = _read_schema(entry, "outputSchema")
    hints = entry.get("annotations")
    if trusted_hints and isinstance(hints, Mapping):
        known = cast(Mapping[str, Any], hints)
        if known.get("readOnlyHint") is True:
            fields["effect"] = "read"
        elif known.get("destructiveHint") is True:
            fields["effect"] = "destructive"
        fields["idempotent"] = known.get("idempotentHint") is True
        if isinstance(outside := known.get("openWorldHint"), bool):
            fields["open_world"] = outside
    return fields


def read_mapping(data: Mapping[str, Any]) -> dict[str, Any]:
    """Read plain data whose keys are the names of contract fields."""
    name = data.get("name")
    unknown = data.keys() - _PLAIN_FIELDS.keys() - _STRUCTURED_FIELDS.keys()
    if unknown:
        named = ", ".join(map(repr, sorted(unknown)))
        raise ContractError(
            f"contract {name!r}: unknown key {named}. {did_you_mean(unknown, _PLAIN_FIELDS | _STRUCTURED_FIELDS)}"
        )
    if "name" not in data:
        raise ContractError("a contract needs a name")
    fields: dict[str, Any] = {}
    for key, value in data.items():
        kind = _STRUCTURED_FIELDS.get(key) or _PLAIN_FIELDS[key]
        try:
            fields[key] = msgspec.convert(value, kind)
        except msgspec.ValidationError as exc:
            raise ContractError(f"contract {name!r}: {key}: {exc}") from None
    return fields


def did_you_mean(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return a sentence with the known names nearest to unknown ones; if none is near, with all of them."""
    import difflib  # noqa: PLC0415 - only for a wrong name

    if gone := [_REPLACED[name] for name in sorted(unknown) if name in _REPLACED]:
        return " ".join(gone)
    there = {name.lower(): name for name in sorted(known)}
    near = [there[low] for name in sorted(unknown) for low in difflib.get_close_matches(name.lower(), there, n=1)]
    if near:
        return f"Did you mean {' and '.join(map(repr, near))}?"
    more = f" and {len(there) - _MOST_LISTED} more" if len(there) > _MOST_LISTED else ""
    return f"Known: {', '.join([*there.values()][:_MOST_LISTED])}{more}" if there else "There are none."


def to_mapping(contract: Contract) -> dict[str, Any]:
    """Return the fields of a contract that are data and differ from the defaults."""
    found: dict[str, Any] = {"name": contract.name, "version": contract.version}
    described = type(contract).__dataclass_fields__
    for key in (*_PLAIN_FIELDS, *_STRUCTURED_FIELDS):
        value: Any = getattr(contract, key)
        if key == "invariants":
            value = tuple(rule for rule in value if isinstance(rule, msgspec.Struct))
        if key == "correctors":
            value = {name: entry for name, entry in value.items() if not has_user_code(entry)}
        if key == "paths":  # as declared: the resolved folder differs on each machine
            value = {name: getattr(roots, "declared", roots) for name, roots in value.items()}
        default: Any = {} if key in _EMPTY_BY_DEFAULT else described[key].default
        if value is not None and value != default:
            found[key] = value if key in _VERBATIM_FIELDS else msgspec.json.decode(msgspec.json.encode(value))
    return found


_MOST_LISTED = 60
_REPLACED = {"on_duplicate": "Write repeats instead: once (a person is asked), turn or each."}
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def _require_mapping(definition: object) -> Mapping[str, Any]:
    if not isinstance(definition, Mapping):
        raise ContractError(f"a tool definition is an object, not {type(definition).__name__}: read one at a time")
    return cast(Mapping[str, Any], definition)


_READERS = {
    "parameters": "from_openai",
    "function": "from_openai",
    "input_schema": "from_anthropic",
    "inputSchema": "from_mcp",
}


def _refuse_other_kinds(definition: Mapping[str, Any], key: str) -> None:
    """Refuse another provider's definition, which has its schema under another key, and name its reader."""
    if key not in definition:
        for other, reader in _READERS.items():
            if other in definition:
                inner = definition[other] if other == "function" else definition
                name = cast(Mapping[str, Any], inner).get("name") if isinstance(inner, Mapping) else None
                raise ContractError(f"{name!r} is another kind of definition. Read it with Contract.{reader}")


def _read_name(definition: Mapping[str, Any]) -> str:
    name = definition.get("name")
    if not isinstance(name, str):
        raise ContractError(f"a tool definition needs a name, got {name!r}")
    return name


def _read_description(definition: Mapping[str, Any]) -> str:
    return str(definition.get("description") or "")


def _read_schema(definition: Mapping[str, Any], key: str, absent: dict[str, Any] | None = None) -> dict[str, Any]:
    schema = absent if definition.get(key) is None else definition[key]
    if not isinstance(schema, Mapping):
        raise ContractError(f"{definition.get('name')!r}: {key} must be a JSON Schema object, got {schema!r}")
    return dict(cast(Mapping[str, Any], schema))
