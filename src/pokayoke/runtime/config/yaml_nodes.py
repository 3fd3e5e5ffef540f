"""A YAML document as ruamel's tree of nodes, and the values of those by the YAML 1.2 core schema (section 10.3).

A module of its own, because `yaml_reader` imports ruamel.yaml (40 ms) only when there is a file to read.

In: the text of a document.
Out: plain values, and the line of each.
Never: a key silently overwritten, a value of a type that JSON does not have, an anchor, alias or tag, or more
    values or levels than the limits.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.events import AliasEvent, ScalarEvent

from pokayoke.core.text.regex import compile_pattern

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 50_000  # a few seconds: ruamel's scanner in C reads YAML 1.1, so values pass the one in Python

ValuePath = tuple[str | int, ...]

_INTEGER: Final = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_MOST_DIGITS: Final = 100
_FLOAT: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def read_values(text: str) -> tuple[Any, dict[ValuePath, int]] | None:
    """Return the value of the document in a text and the line of every value in it; None if there is no document.

    Raises:
        ComposerError: it holds what this reader refuses; `problem` says why and `problem_mark` where.
        YAMLError: it does not parse.
    """
    reader: Any = YAML(typ="safe", pure=True)
    reader.Composer = _StrictComposer
    root = reader.compose(text)
    if root is None:
        return None
    lines: dict[ValuePath, int] = {}
    return _read_node(root, (), root, lines), lines


def _refusal(place: Any, problem: str) -> ComposerError:
    return ComposerError(None, None, problem, place.start_mark)


class _StrictComposer(Composer):
    """Composes one document of plain values within the limits."""

    values = 0

    def get_single_node(self) -> Any:
        composer: Any = self  # ruamel's own annotations are incomplete
        if not composer.check_node():
            return None
        start = composer.parser.peek_event()
        if start.version is not None and tuple(start.version) != (1, 2):
            raise _refusal(start, "only YAML 1.2 is read. Remove the %YAML line")
        root = composer.get_node()
        if composer.check_node():
            raise _refusal(composer.parser.peek_event(), "a second document begins. One file holds one")
        return root

    def compose_node(self, parent: Any, index: Any) -> Any:
        composer: Any = self
        event = composer.parser.peek_event()
        if isinstance(event, AliasEvent):
            raise _refusal(event, "aliases (*name) are not supported. Write the value out")
        if event.anchor is not None:
            raise _refusal(event, f"anchors (&{event.anchor}) are not supported. Write the value out")
        if event.tag is not None:
            raise _refusal(event, f"the tag {str(event.tag)!r} is not supported. Plain values need none")
        is_key = parent is not None and index is None
        if is_key and not isinstance(event, ScalarEvent):
            raise _refusal(event, "a key must be a plain text, not a mapping or a list")
        if composer.depth >= MAX_DEPTH and not isinstance(event, ScalarEvent):
            raise _refusal(event, f"nested deeper than {MAX_DEPTH} levels")
        if not is_key:
            self.values += 1
            if self.values > MAX_VALUES:
                raise _refusal(event, f"more than {MAX_VALUES:,} values. Split the file; contracts may be JSON too")
        inherited: Any = super()
        return inherited.compose_node(parent, index)


def _read_node(node: Any, path: ValuePath, place: Any, lines: dict[ValuePath, int]) -> Any:
    """Return the value of a node, and add the line of everything in it.

    Args:
        node: of ruamel; it has at most `MAX_DEPTH` levels.
        path: of the value.
        place: the node whose line counts: for an entry of a mapping its key, otherwise the node itself.
        lines: takes the lines, from 1.
    """
    lines[path] = place.start_mark.line + 1
    if node.id == "scalar":
        return _join_surrogates(node) if node.style else _resolve_scalar(node)
    if node.id == "sequence":
        return [_read_node(item, (*path, index), item, lines) for index, item in enumerate(node.value)]
    value: dict[str, Any] = {}
    for key, item in node.value:
        name = _join_surrogates(key)
        if name in value:
            raise _refusal(key, f"the key {name!r} stands here and in line {lines[*path, name]}. Keep one")
        value[name] = _read_node(item, (*path, name), key, lines)
    return value


def _join_surrogates(node: Any) -> str:
    r"""Join what JSON writes as two escapes (`\ud83d\ude00`); half of such a pair is not a character."""
    text: str = node.value
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _refusal(node, "half of a surrogate pair is not a character") from None


def _resolve_scalar(node: Any) -> Any:
    """Return the value of a plain scalar by the core schema: `no` is a text, `0o10` is 8, `1.0` a float."""
    text = _join_surrogates(node)
    if text in _WORDS:
        return _WORDS[text]
    if compile_pattern(_INTEGER).fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise _refusal(node, f"an integer of {len(text)} characters, expected at most {_MOST_DIGITS}")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    is_float = compile_pattern(_FLOAT).fullmatch(text) is not None
    if is_float and math.isfinite(number := float(text)):
        return number
    if is_float or text.lower().lstrip("+-") in (".inf", ".nan"):
        raise _refusal(node, f"{text} is not a finite number")
    return text
