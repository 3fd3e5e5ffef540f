"""Files of contracts and tool definitions: ours, and those of OpenAI, Anthropic and MCP.

In: a file that people or programs wrote.
Out: the fields of each definition, with its place in the file.
Never: a definition of an undocumented shape accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from pokayoke.core.contract import importers as sources
from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_array, is_object
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.config.yaml_reader import read_document
from pokayoke.runtime.files.atomic_file import read_followed

_WRAPPER_KEYS: Final = ("result", "tools", "contracts")
_DEFINITION_KEYS: Final = ("name", "function")
DEFINING_KEYS: Final = frozenset((*_WRAPPER_KEYS, *_DEFINITION_KEYS))
"""Keys of which a file of definitions has one."""


class Definition(msgspec.Struct, frozen=True):
    """One contract as a file declares it.

    Args:
        fields: the declared fields, and nothing else.
        contract: the contract that these fields make.
    """

    fields: dict[str, Any]
    contract: Contract


def read_contracts(path: Path, *, name: str | None = None) -> list[Definition]:
    """Return every contract of a file.

    Args:
        path: of the file; YAML by its suffix, JSON otherwise.
        name: of the file in messages; the path if None.

    Raises:
        ConfigurationError: it cannot be read, or holds no definitions.
        ContractError: a definition is invalid.
    """
    found: list[Definition] = []
    for place, definition in read_definitions(path, name=name, how=read_followed):
        try:
            fields = parse_definition(definition)
            found.append(Definition(fields, Contract(**fields)))
        except ContractError as error:
            raise ContractError(f"{place}: {error}") from None
    return found


def read_definitions(
    path: Path, *, name: str | None = None, how: Callable[[Path], bytes] = Path.read_bytes
) -> Iterator[tuple[str, Any]]:
    """Yield the definitions of a file unchanged, each with its place; `how` returns a file's content.

    Raises:
        ConfigurationError: it cannot be read, or holds none.
    """
    name = name or str(path)
    try:
        data = how(path)
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot be read: {error.strerror}") from None
    if path.suffix in (".yaml", ".yml"):
        value = read_document(data, name=name).value
    else:
        try:
            value = parse(data)[0]
        except StrictError as error:
            raise ConfigurationError(f"{name}: not JSON: {error}{_module_hint(path)}") from None
    listed = unwrap_definitions(value)
    if not listed:
        raise ConfigurationError(f"{name} holds no tool definitions in the shape of OpenAI, Anthropic or MCP")
    for index, definition in enumerate(listed):
        inner = definition.get("function", definition) if is_object(definition) else None
        label = inner.get("name", index) if is_object(inner) else index
        yield f"{name}: {label}", definition


def _module_hint(path: Path) -> str:
    """Return a hint for a path that names a Python file."""
    return f". Of a Python file, name what holds the tools: {path.stem}:guard" if path.suffix == ".py" else ""


def parse_definition(definition: Any, *, trust_hints: bool = False) -> dict[str, Any]:
    """Return the fields of a contract that one definition declares.

    Args:
        definition: of any known shape.
        trust_hints: whether to believe the annotations of an MCP listing.

    Raises:
        ContractError: it is of no known shape.
    """
    if not is_object(definition):
        raise ContractError(f"a tool definition is an object, got {type(definition).__name__}")
    if "inputSchema" in definition:
        return sources.read_mcp(definition, trusted_hints=trust_hints)
    if "function" in definition or "parameters" in definition or definition.get("type") == "function":
        return sources.read_openai(definition)
    if definition.keys() <= {"name", "description", "input_schema", "type", "cache_control"}:
        return sources.read_anthropic(definition)
    return sources.read_mapping(definition)


def unwrap_definitions(value: Any) -> list[Any]:
    """Return the list of definitions in a list, an MCP answer, a file of contracts, or one definition."""
    if is_array(value):
        return value
    if not is_object(value):
        return []
    for key in _WRAPPER_KEYS:
        if key in value:
            return unwrap_definitions(value[key])
    return [value] if any(key in value for key in _DEFINITION_KEYS) else []
