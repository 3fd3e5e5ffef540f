"""Infers a schema from evidence, with a note on the evidence of each statement.

Every statement predicts the next call, so each needs its own evidence: a required field was always there; a closed
object showed no name in one run only; an enum's values all came back. Where evidence is short, the schema says
less. The thresholds stand here, in one place, and depend on no data file.

In: evidence.
Out: a JSON Schema with notes.
Never: a value under a secret's name (only its type is learnt), or a number that could identify a person.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from pokayoke.core.redaction.redactor import Redactor
from pokayoke.core.redaction.secret_rules import NameRules
from pokayoke.replay.learn.evidence import MOST_VALUES, Evidence, OccurrenceCount
from pokayoke.replay.learn.string_shapes import DECIMALS, ID_LIKE, SMALL, pattern_of

SchemaPath = tuple[str, ...]

ENUM_SAMPLES: Final = 30
ENUM_PER_VALUE: Final = 10
ENUM_RAREST: Final = 5
ENUM_MOST: Final = 12
FORMAT_DISTINCT: Final = 3
PATTERN_SAMPLES: Final = 20
PATTERN_DISTINCT: Final = 10
INTEGER_SAMPLES: Final = 10
CLOSED_SAMPLES: Final = 20
CLOSED_RUNS: Final = 2
REQUIRED_SAMPLES: Final = 3
MAP_FIELDS: Final = 4
_ORDER: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z _./+-]{0,38}[0-9]{0,2}")
_name_rules: Final = NameRules()
_redactor: Final = Redactor()


class InferredSchema(msgspec.Struct):
    """A schema, with notes for some of its places.

    Attributes:
        schema: the JSON Schema.
        notes: path of keys inside the schema to the evidence of the statement there; () is the whole schema.
    """

    schema: dict[str, Any]
    notes: dict[SchemaPath, str]


def infer_schema(evidence: Evidence, *, arguments: bool = False) -> InferredSchema:
    """Return the schema that evidence supports.

    Args:
        evidence: of the values of one place.
        arguments: True for a tool's arguments: an object that is closed, whose fields are required if every call
            had them. Elsewhere both need more evidence: a contract that refuses a good answer costs more than one
            that accepts a new field.
    """
    drawn = InferredSchema({}, {})
    _infer_place(evidence, drawn, (), drawn.schema, arguments=arguments)
    return drawn


def describe_count(tally: OccurrenceCount, what: str, whole: OccurrenceCount | None = None) -> str:
    """Return a count in words, such as `517 of 520 calls in 16 to 61 runs`: 61 if no two of them alternated."""
    share = f"{tally.samples:,}" if whole is None else f"{tally.samples:,} of {whole.samples:,}"
    if tally.most_runs == tally.samples:
        return f"{share} {what}"  # each from a run of its own, or runs are unknown
    runs = (
        f"{tally.least_runs:,}"
        if tally.least_runs == tally.most_runs
        else f"{tally.least_runs:,} to {tally.most_runs:,}"
    )
    return f"{share} {what} in {runs} run{'' if tally.most_runs == 1 else 's'}"


def _infer_place(
    evidence: Evidence,
    drawn: InferredSchema,
    at: SchemaPath,
    node: dict[str, Any],
    *,
    arguments: bool = False,
    secret: bool = False,
) -> None:
    kinds = _json_types(evidence)
    if not kinds:
        return
    if evidence.unwatched:
        drawn.notes[at] = "not all looked into: nested too deep, or too many places; left open"
    node["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "string" in kinds:
        _infer_string(evidence, drawn, at, node, alone=set(kinds) <= {"string", "null"}, secret=secret)
    if evidence.low is not None and evidence.high is not None and not secret:
        drawn.notes[(*at, "type")] = _describe_range(evidence.low, evidence.high)
    if "array" in kinds and evidence.items is not None:
        inner: dict[str, Any] = {}
        node["items"] = inner
        _infer_place(evidence.items, drawn, (*at, "items"), inner, secret=secret)
    if "object" in kinds:
        _infer_object(evidence, drawn, at, node, arguments=arguments, secret=secret)


def _describe_range(low: float, high: float) -> str:
    """Return the range in words, as far as it identifies no person."""
    if max(abs(low), abs(high)) >= SMALL:
        return f"up to {len(str(int(max(abs(low), abs(high)))))} digits seen"
    low = low if round(low, DECIMALS) == low else math.floor(low)
    high = high if round(high, DECIMALS) == high else math.ceil(high)
    return f"{low:,} to {high:,} seen"


def _json_types(evidence: Evidence) -> list[str]:
    """Return the JSON types of a place. Whole numbers are integers only if there were enough of them."""
    found = set(evidence.kinds)
    if "integer" in found and ("number" in found or evidence.kinds["integer"].samples < INTEGER_SAMPLES):
        found = found - {"integer"} | {"number"}
    return [kind for kind in _ORDER if kind in found]


def _infer_string(
    evidence: Evidence, drawn: InferredSchema, at: SchemaPath, node: dict[str, Any], *, alone: bool, secret: bool
) -> None:
    texts, seen = evidence.texts, evidence.kinds["string"]
    if secret:
        return
    if alone and _is_enum(evidence):
        values: list[Any] = sorted(texts.values)
        node["enum"] = [*values, None] if "null" in evidence.kinds else values
        rarest = min(tally.samples for tally in texts.values.values())
        drawn.notes[(*at, "enum")] = f"{describe_count(seen, 'values')}, the rarest {rarest} times"
        return
    many = texts.distinct_count
    distinct = f"{many}{'+' if len(texts.untold) >= MOST_VALUES else ''} different texts, all like this"
    if texts.formats and many >= FORMAT_DISTINCT:
        node["format"] = min(texts.formats)
        drawn.notes[(*at, "format")] = distinct
    elif seen.samples >= PATTERN_SAMPLES and many >= PATTERN_DISTINCT:
        pattern = pattern_of(texts.shape, texts.values) or pattern_of(texts.mixed, texts.values)
        if pattern is not None:
            node["pattern"] = pattern
            drawn.notes[(*at, "pattern")] = distinct


def _is_enum(evidence: Evidence) -> bool:
    """True for few values, all words, each of them often and in several runs: no other value is to be expected."""
    texts, seen = evidence.texts, evidence.kinds["string"]
    return (
        not texts.untold
        and 1 < texts.distinct_count <= ENUM_MOST
        and seen.samples >= max(ENUM_SAMPLES, ENUM_PER_VALUE * texts.distinct_count)
        and all(_WORD.fullmatch(text) and _redactor.redact_text(text) == text for text in texts.values)
        and all(min(tally.samples, tally.least_runs) >= ENUM_RAREST for tally in texts.values.values())
    )


def _infer_object(
    evidence: Evidence, drawn: InferredSchema, at: SchemaPath, node: dict[str, Any], *, arguments: bool, secret: bool
) -> None:
    if evidence.anything is not None or (not arguments and is_map(evidence)):
        names = "too many names to list" if evidence.anything is not None else f"{len(evidence.fields)} names"
        drawn.notes[(*at, "additionalProperties")] = f"a map: {names}, none in every object"
        inner: dict[str, Any] = {}
        node["additionalProperties"] = inner
        secret = secret or any(map(_name_rules.is_secret, evidence.fields))
        _infer_place(evidence.combine_members(), drawn, (*at, "additionalProperties"), inner, secret=secret)
        return
    whole = evidence.kinds["object"]
    properties: dict[str, dict[str, Any]] = {}
    node["properties"] = properties
    fields = [(name, member) for name, member in evidence if not _is_data(name)]
    for name, member in fields:
        properties[name] = {}
        place = (*at, "properties", name)
        drawn.notes[place] = describe_count(member.all, "calls" if arguments else "objects", whole)
        _infer_place(member, drawn, place, properties[name], secret=secret or _name_rules.is_secret(name))
    always = [name for name, member in fields if member.all.samples == whole.samples]
    if always and (arguments or whole.samples >= REQUIRED_SAMPLES):
        node["required"] = always
    if evidence.unwatched or len(fields) < len(evidence.fields):
        return  # a member that was not examined or not listed may occur again
    if arguments:
        node["additionalProperties"] = False
    elif is_closed(evidence):
        node["additionalProperties"] = False
        drawn.notes[(*at, "additionalProperties")] = f"{describe_count(whole, 'objects')}, no name in one run only"


def _is_data(name: str) -> bool:
    """True if a member's name is an address or a secret, whatever the other names are."""
    return "@" in name[1:] or _redactor.redact_text(name) != name


def is_map(evidence: Evidence) -> bool:
    """True if the names of an object's members are data: ids, or never the same names with values of one kind."""
    if evidence.anything is not None:
        return True
    names = list(evidence.fields)
    if not names:
        return False
    if sum(1 for name in names if ID_LIKE.search(name)) * 2 > len(names):
        return True
    objects = evidence.object_count()
    shared = any(member.all.samples == objects for member in evidence.fields.values())
    kinds = {kind for member in evidence.fields.values() for kind in member.kinds}
    return len(names) >= MAP_FIELDS and not shared and len(kinds - {"null"}) == 1


def is_closed(evidence: Evidence) -> bool:
    """True if no new name is to be expected: there were many objects, and every name occurred in several runs.

    The share of names that occurred only once estimates the unseen share (Good and Turing).
    """
    return (
        evidence.object_count() >= CLOSED_SAMPLES
        and evidence.kinds["object"].least_runs >= CLOSED_RUNS
        and all(min(member.all.least_runs, member.all.samples) >= CLOSED_RUNS for member in evidence.fields.values())
    )
