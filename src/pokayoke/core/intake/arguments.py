"""Reads the arguments of one call: strict JSON here, everything else in `core/intake/grading.py`.

In: the argument text as the provider sent it, or arguments that a client has parsed.
Out: a graded reading.
Never: change a value because of the schema; share an object with the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import orjson

from pokayoke.core.intake.reading import Reading, SchemaLike, refused_reading
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.json.dump import dump_exact_size
from pokayoke.core.json.serialise import undumpable_reason
from pokayoke.core.json.strict import StrictError, nesting_depth, parse

if TYPE_CHECKING:
    from pokayoke.core.intake.grading import ArgumentGrader

MAX_CHARS = 200_000
MAX_DEPTH = 64
_PLAIN_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def read_arguments(
    text: str | bytes | dict[str, Any] | None,
    *,
    schema: SchemaLike | None = None,
    stop_reason: str | None = None,
    max_chars: int = MAX_CHARS,
    max_depth: int = MAX_DEPTH,
) -> Reading:
    """Read the argument text of one tool call.

    Args:
        text: the provider's text; bytes must be UTF-8. A dict that a client has parsed is checked to be plain
            JSON and copied; None counts as the text `null`; any other type is refused.
        schema: the tool's input schema. It never changes a value; it can prove that nothing is missing.
        stop_reason: the provider's stop reason, in any provider's spelling.
        max_chars: maximum length of the text, in characters.
        max_depth: maximum nesting, at most 200.

    Returns:
        One object, never unwrapped, with its grade; or a named refusal with its position.

    Raises:
        ContractError: `schema` is not a usable JSON Schema.
    """
    if is_cut(stop_reason):
        return refused_reading("cut_message")
    if text is None:
        text = "null"
    if not isinstance(text, (str, bytes)):
        return copy_arguments(text, max_chars=max_chars, max_depth=max_depth)
    if len(text) > max_chars and (isinstance(text, str) or len(text) > 4 * max_chars):
        return refused_reading("too_long", max_chars)
    try:
        value, dump = parse(text, max_depth=max_depth, sort=True, equal_duplicates=False)
    except StrictError as error:
        return _build_grader(schema, max_chars, max_depth).grade_text(text, error)
    if isinstance(text, bytes) and len(text) > max_chars and len(text.decode()) > max_chars:
        return refused_reading("too_long", max_chars)
    if isinstance(value, dict):
        return Reading(grade="exact", value=cast(dict[str, Any], value), canonical=dump)
    if value is None or value == "null":
        return _build_grader(schema, max_chars, max_depth).read_empty("not_an_object")
    if isinstance(value, str):
        return _build_grader(schema, max_chars, max_depth).read_encoded(value)
    return refused_reading("not_an_object", 0)


def _build_grader(schema: SchemaLike | None, max_chars: int, max_depth: int) -> ArgumentGrader:
    from pokayoke.core.intake.grading import ArgumentGrader  # noqa: PLC0415 - compiles its patterns at first use

    return ArgumentGrader(schema, max_chars, max_depth)


def copy_arguments(
    value: Any,
    *,
    max_chars: int = MAX_CHARS,
    max_depth: int = MAX_DEPTH,
) -> Reading:
    """Check that parsed arguments are plain JSON, and copy them.

    Args:
        value: a dict with string keys, finite numbers and bounded nesting.
        max_chars: maximum length of the compact dump, in characters.
        max_depth: maximum nesting, at most 200.

    Returns:
        A reading graded `exact` whose value shares no object with the input, or a refusal.
    """
    if (code := undumpable_reason(value, 4 * max_chars)) is not None:
        return refused_reading(code)
    try:
        dump = _dump_sorted(value)
        copy: Any = msgspec.json.decode(dump)
        plain = bool(copy == value)  # False: NaN became null, a tuple a list, an object its text
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return refused_reading("not_json")
    if not plain:
        return refused_reading("not_json")
    if not isinstance(copy, dict):
        return refused_reading("not_an_object")
    if nesting_depth(copy) > max_depth:
        return refused_reading("too_deep")
    if len(dump) > max_chars and len(dump.decode()) > max_chars:
        return refused_reading("too_long")
    return Reading(grade="exact", value=cast(dict[str, Any], copy), canonical=dump)


def copy_arguments_fast(value: dict[str, Any], max_chars: int, max_depth: int) -> tuple[Any, bytes]:
    """Copy parsed arguments without any problem; the fast path of `copy_arguments`.

    Args:
        value: a dict.
        max_chars: maximum length of the compact dump, in bytes.
        max_depth: maximum number of lists and objects, at any nesting.

    Returns:
        The copy and its compact dump.

    Raises:
        ValueError: the slow path must decide.
        TypeError: as above.
    """
    if undumpable_reason(value, max_chars) is None:
        dump = dump_exact_size(value, _PLAIN_OPTIONS)
        copy: Any = orjson.loads(dump)
        if copy == value and len(dump) <= max_chars and dump.count(b"[") + dump.count(b"{") <= max_depth:
            return copy, dump
    raise ValueError("these arguments need a closer look")


def _dump_sorted(value: Any) -> bytes:
    """Return the sorted compact dump of a value of unknown origin."""
    try:
        return dump_exact_size(value, _PLAIN_OPTIONS)
    except TypeError as exc:
        if "nteger" not in str(exc):
            raise
        return msgspec.json.encode(value, order="sorted")
