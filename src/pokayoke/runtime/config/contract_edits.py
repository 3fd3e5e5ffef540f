"""Changes a file of contracts where a program has something better to say, and leaves the rest of it as it is.

In: a file, and for each definition the places in its argument schema that change.
Out: the file's new bytes.
Never: a comment of a YAML file that is lost, or a change of another definition.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import msgspec

from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.pointer import parse_pointer
from pokayoke.core.json.strict import parse
from pokayoke.core.json.values import is_array, is_object
from pokayoke.runtime.config.contract_files import read_definitions, unwrap_definitions
from pokayoke.runtime.files.atomic_file import read_followed

_SCHEMA_KEYS: Final = ("input_schema", "inputSchema", "parameters")
_WIDE: Final = 1_000_000  # characters: a line is never broken


class DefinitionEdit(msgspec.Struct, frozen=True):
    """What changes of one definition.

    Attributes:
        number: of the definition in its file, from 0.
        places: JSON pointers in its argument schema, each with its new value.
        version: its new version; None to leave it.
    """

    number: int
    places: list[tuple[str, Any]]
    version: str | None = None


def edit_definitions(path: Path, edits: list[DefinitionEdit]) -> bytes:
    """Return the file with the changes.

    Args:
        path: of the file; YAML by its suffix, JSON otherwise.
        edits: the changes.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    list(read_definitions(path))  # the strict reader has the say, and knows no anchors that could share a place
    text = read_followed(path).decode()
    if path.suffix in (".yaml", ".yml"):
        return _edit_yaml(text, edits)
    value = parse(text)[0]
    _apply_edits(unwrap_definitions(value), edits)
    indented = "\n" in text.strip()
    return (msgspec.json.format(dump_compact(value), indent=2) if indented else dump_compact(value)) + b"\n"


def _edit_yaml(text: str, edits: list[DefinitionEdit]) -> bytes:
    from ruamel.yaml import YAML, util  # noqa: PLC0415 - 40 ms of import, needed only with a file

    tools: Any = util  # ruamel's own annotations are incomplete
    _, sequence, offset = tools.load_yaml_guess_indent(text)
    yaml: Any = YAML()
    yaml.preserve_quotes, yaml.width = True, _WIDE
    yaml.indent(mapping=2, sequence=sequence or 2, offset=offset or 0)
    document: Any = yaml.load(text)
    _apply_edits(unwrap_definitions(document), edits)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue().encode()


def _apply_edits(definitions: list[Any], edits: list[DefinitionEdit]) -> None:
    for edit in edits:
        definition = definitions[edit.number]
        inner = definition.get("function", definition)
        schema = inner[next(key for key in _SCHEMA_KEYS if key in inner)]
        for pointer, value in edit.places:
            node, (*path, last) = schema, parse_pointer(pointer)
            for step in path:
                node = node.setdefault(step, {}) if is_object(node) else node[int(step)]
            _set_value(node, last, value)
        if edit.version is not None:
            definition["version"] = edit.version


def _set_value(node: Any, key: str, value: Any) -> None:
    """Set a value; a list that got longer or shorter keeps its style and the comments at what stays."""
    known = node.get(key)
    if is_array(known) and is_array(value):
        for gone in [one for one in known if one not in value]:
            known.remove(gone)
        known.extend(one for one in value if one not in known)
    else:
        node[key] = value
