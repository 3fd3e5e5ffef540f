"""Argument text -> graded reading: strict first, then the graded reader, then the evidence of the schema."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from pokayoke.core.intake.edits import suggest
from pokayoke.core.intake.evidence import no_object_lost
from pokayoke.core.intake.patterns import Refusal
from pokayoke.core.intake.reader import Reader
from pokayoke.core.intake.reading import Reading, is_cut, refused
from pokayoke.core.intake.wrapping import find_object, unwrap_after
from pokayoke.core.schema import Schema, compile_schema
from pokayoke.core.strict import StrictError, depth_of, dump_compact, parse

SchemaLike = Schema | dict[str, Any] | bool

_MAX_CHARS = 200_000
_MAX_DEPTH = 64
_MAX_ENCODINGS = 3
"""How often an object may be written as a JSON string inside a JSON string."""

_LISTED = re.compile(r"\s*+[\[\d\"'-]|\s*+(?:true|false|null|True|False|None)\s*+\Z").match

# What may stand beside a repair that only the schema can prove: nothing that touches the value itself.
_OUTSIDE = frozenset({"byte_order_mark", "code_fence", "odd_whitespace", "prose", "tags"})


def read_arguments(
    text: str | bytes,
    *,
    schema: SchemaLike | None = None,
    stop_reason: str | None = None,
    max_chars: int = _MAX_CHARS,
    max_depth: int = _MAX_DEPTH,
) -> Reading:
    """Read the argument text of one tool call.

    Args:
        text: what the provider sent; bytes must be UTF-8.
        schema: the tool's input schema. It never changes a value; it can prove that nothing is missing.
        stop_reason: why the provider says the message ended, in any provider's spelling.
        max_chars: longest text that is looked at, in characters.
        max_depth: deepest nesting, at most 200.

    Returns:
        One object, never unwrapped, with its grade; or a named refusal with its position.

    Raises:
        ContractError: `schema` is not a usable JSON Schema.
    """
    if is_cut(stop_reason):
        return refused("cut_message")
    if len(text) > max_chars and (isinstance(text, str) or len(text) > 4 * max_chars):
        return refused("too_long", max_chars)
    try:
        value, dump = parse(text, max_depth=max_depth, sort=True, equal_duplicates=False)
    except StrictError as error:
        return _graded(text, error, schema, max_chars=max_chars, max_depth=max_depth)
    if len(text) > max_chars and len(text.decode()) > max_chars:  # type: ignore[union-attr]
        return refused("too_long", max_chars)
    if isinstance(value, dict):
        return Reading(grade="exact", value=cast(dict[str, Any], value), canonical=dump)
    if isinstance(value, str):
        return _decoded(value, schema, max_chars=max_chars, max_depth=max_depth)
    return refused("not_an_object", 0)


def from_value(
    value: Any,
    *,
    stop_reason: str | None = None,
    max_chars: int = _MAX_CHARS,
    max_depth: int = _MAX_DEPTH,
) -> Reading:
    """Prove that arguments a client has already parsed are plain JSON, and take a copy of them.

    Args:
        value: a dict with string keys, finite numbers and bounded nesting.
        stop_reason: as for `read_arguments`.
        max_chars: longest compact dump, in characters.
        max_depth: deepest nesting.

    Returns:
        A reading graded `exact` whose value shares nothing with the one given, or a refusal.
    """
    if is_cut(stop_reason):
        return refused("cut_message")
    if not isinstance(value, dict):
        return refused("not_an_object")
    try:
        dump = dump_compact(value, sort=True)
        copy: Any = msgspec.json.decode(dump)
        if copy != value:  # NaN became null, a tuple a list, an object its text
            return refused("not_json")
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        return refused("not_json")
    if depth_of(copy) > max_depth:
        return refused("too_deep")
    if len(dump) > max_chars and len(dump.decode()) > max_chars:
        return refused("too_long")
    return Reading(grade="exact", value=copy, canonical=dump)


def _graded(
    text: str | bytes, error: StrictError, schema: SchemaLike | None, *, max_chars: int, max_depth: int
) -> Reading:
    """Read a text that is no strict JSON."""
    if error.code == "too_deep":
        return refused("too_deep", error.position)
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as exc:
            return refused("invalid_utf8", exc.start)
        if len(text) > max_chars:
            return refused("too_long", max_chars)
    elif error.code == "lone_surrogate" and (found := _SURROGATE(text)):
        return refused("lone_surrogate", found.start())
    if not text.strip(" \t\r\n\ufeff"):
        return _empty(schema)
    reader = Reader(text, max_depth=max_depth)
    try:
        return _document(reader, schema, max_chars=max_chars, max_depth=max_depth)
    except Refusal as refusal:
        return suggest(text, refusal, _compiled(schema), max_depth=max_depth)
    except RecursionError:
        return refused("too_deep")


_SURROGATE = re.compile("[\ud800-\udfff]").search


def _document(reader: Reader, schema: SchemaLike | None, *, max_chars: int, max_depth: int) -> Reading:
    """Find the object, read it, and judge what stands around it."""
    text = reader.text
    start, opened = find_object(reader, schema_names(schema))
    if text[start] != "{" and not opened:
        value, end = reader.read_value(start)
        if isinstance(value, str) and not reader.unclosed and not text[end:].strip():
            return _decoded(value, schema, max_chars=max_chars, max_depth=max_depth)
        raise Refusal("not_an_object", start)
    value, end = reader.read_object(start if opened else start + 1)
    surplus = unwrap_after(reader, end)
    if reader.list_comma is not None and reader.commaless:
        raise Refusal("trailing_comma_in_list", reader.list_comma)
    if opened or surplus is not None or reader.unclosed:
        return _by_schema(reader, value, schema, opened=opened, surplus=surplus, max_depth=max_depth)
    return _lossless(value, tuple(reader.repairs))


def _by_schema(
    reader: Reader,
    value: dict[str, Any],
    schema: SchemaLike | None,
    *,
    opened: bool,
    surplus: int | None,
    max_depth: int,
) -> Reading:
    """Accept one lost or surplus outer bracket only where the schema proves that nothing else was lost."""
    if opened:
        name, reason, position = "opened_by_schema", "missing_opener", 0
    elif surplus is not None:
        name, reason, position = "extra_closer", "extra_closer", surplus
    else:
        name, reason, position = "closed_by_schema", "missing_closer", len(reader.text)
    flaws = opened + (surplus is not None) + reader.unclosed
    compiled = _compiled(schema)
    if (
        flaws == 1
        and compiled is not None
        and reader.repairs.keys() <= _OUTSIDE
        and (compiled.admits_nothing_missing(value) or (surplus is not None and no_object_lost(compiled, value)))
    ):
        return _lossless(value, (*reader.repairs, name))
    if flaws == 1:
        return suggest(reader.text, Refusal(reason, position), compiled, readings=(value,), max_depth=max_depth)
    raise Refusal(reason, position)


def _decoded(text: str, schema: SchemaLike | None, *, max_chars: int, max_depth: int) -> Reading:
    """Read the text of a JSON string that should hold an object."""
    for _ in range(_MAX_ENCODINGS):
        try:
            value, dump = parse(text, max_depth=max_depth, sort=True, equal_duplicates=False)
        except StrictError:
            break
        if isinstance(value, dict):
            return Reading(
                grade="lossless", value=cast(dict[str, Any], value), repairs=("double_encoded",), canonical=dump
            )
        if not isinstance(value, str):
            break
        text = value
    return refused("not_an_object", 0)


def _empty(schema: SchemaLike | None) -> Reading:
    """Read an empty text: an empty object if the schema is content with one."""
    compiled = _compiled(schema)
    if compiled is not None and compiled.is_valid({}):
        return _lossless({}, ("empty_text",))
    return refused("empty_arguments", 0)


def _lossless(value: dict[str, Any], repairs: tuple[str, ...]) -> Reading:
    return Reading(grade="lossless", value=value, repairs=repairs, canonical=dump_compact(value, sort=True))


def _compiled(schema: SchemaLike | None) -> Schema | None:
    return compile_schema(schema) if isinstance(schema, dict | bool) else schema


def schema_names(schema: SchemaLike | None) -> frozenset[str]:
    """Return the names a schema declares at the top, as far as they are written there."""
    raw = schema.raw if isinstance(schema, Schema) else schema
    return frozenset(cast(dict[str, Any], raw.get("properties", {}))) if isinstance(raw, dict) else frozenset()
