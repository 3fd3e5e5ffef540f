"""Findings about a value that breaks its schema, all at once.

In: a value and its schema.
Out: one finding per problem. `at` is the place that has to change: where a missing field belongs, or the unknown field
itself. `hint` says what to send instead and is derived from the schema only.
Never: a hint that suggests a refused value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.check.argument_checks import ArgumentChecks, StandIn
from pokayoke.core.check.expected import describe_expected, expected_at, json_text
from pokayoke.core.json.pointer import Path, parse_pointer, pointer_step, to_field_path, to_pointer
from pokayoke.core.json.values import is_object
from pokayoke.core.schema.facts import (
    SchemaFacts,
    cached_per_schema,
    facts_at,
    facts_of_branch,
    facts_of_child_in,
    may_exist,
)
from pokayoke.core.schema.problems import SchemaProblem
from pokayoke.core.schema.schema import Schema
from pokayoke.core.text.clip import clip

if TYPE_CHECKING:
    from pokayoke.core.schema.explain import Effort

_KEYWORDS: dict[str, str] = {
    "required": "missing_field",
    "dependentRequired": "missing_field",
    "additionalProperties": "unknown_field",
    "unevaluatedProperties": "unknown_field",
    "propertyNames": "unknown_field",
    "type": "wrong_type",
    "enum": "not_in_enum",
    "const": "not_in_enum",
    "minimum": "out_of_range",
    "maximum": "out_of_range",
    "exclusiveMinimum": "out_of_range",
    "exclusiveMaximum": "out_of_range",
    "multipleOf": "out_of_range",
    "format": "bad_format",
    "pattern": "bad_pattern",
    "minLength": "too_short",
    "maxLength": "too_long",
    "minItems": "too_few_items",
    "maxItems": "too_many_items",
    "additionalItems": "too_many_items",
    "unevaluatedItems": "too_many_items",
    "uniqueItems": "duplicate_items",
    "minProperties": "too_few_fields",
    "maxProperties": "too_many_fields",
    "json": "not_json",
}

_ROOT = "arguments"
"""The name of the whole value in hints, unless it is an output."""
_MAX_HINT = 590
_MAX_NAMES = 20
_MAX_MISTAKEN = 3


class Issue(msgspec.Struct, frozen=True, gc=False):
    """One problem, at the place that has to change.

    Attributes:
        path: the place that has to change.
        at: the same place as a JSON pointer.
        code: a code of this module.
        problem: the problem of the schema.
    """

    path: Path
    at: str
    code: str
    problem: SchemaProblem

    @property
    def key(self) -> tuple[Path, str]:
        """The identity of the issue: two issues with equal keys are the same."""
        return (self.path, self.code)


def check_value(value: Any, schema: Schema, *, root: str = _ROOT) -> tuple[Finding, ...]:
    """Return the findings about a value, in the order of the schema; () if it is valid.

    Args:
        value: any Python value; a value that is no JSON is a finding too.
        schema: the schema it must fit.
        root: the name of the whole value in hints.
    """
    return tuple(describe_issue(issue, schema, root=root) for issue in find_issues(value, schema))


_STAND_INS: dict[StandIn, tuple[str, str, str]] = {
    "lost_backslash": (
        "holds a control character",
        "a backslash",
        ": a backslash was read as part of an escape. Write each backslash twice (\\\\).",
    ),
    "leaked_markup": (
        "holds markup of a call",
        "a value",
        ", with markup that belongs around a value. Send the value alone.",
    ),
    "placeholder": (
        "is a placeholder",
        "a value",
        ", which only stands for a value. Send the value itself; if you do not know it, look it up or ask the user.",
    ),
    "unseen_text": (
        "shows nothing",
        "a text that can be seen",
        ", of which nothing can be seen. Send the text itself; if you do not know it, ask the user.",
    ),
}
"""What is wrong with a text that stands for no value, what belongs there, and what to do."""


def stand_in_findings(value: Any, checks: ArgumentChecks, refused: Collection[Path] = ()) -> tuple[Finding, ...]:
    """Return a finding for every text that stands for no value; see `ArgumentChecks.find_stand_ins`."""
    return tuple(_stand_in_finding(*found) for found in checks.find_stand_ins(value, refused))


def _stand_in_finding(path: Path, text: str, kind: StandIn) -> Finding:
    name, shown = to_field_path(path, _ROOT), json_text(text)
    seen, expected, advice = _STAND_INS[kind]
    message = f"{to_pointer(path) or _ROOT}: {shown} {seen}, expected {expected}"
    hint = _clip_hint(f"`{name}` is {shown}{advice}")
    return Finding(code=kind, at=to_pointer(path), message=message, hint=hint, data={"got": text})


def find_issues(value: Any, schema: Schema, *, parsed: bool = False, effort: Effort | None = None) -> tuple[Issue, ...]:
    """Return the problems of a value, each once and at the place that has to change.

    Args:
        value: any Python value.
        schema: the schema it must fit.
        parsed: True if the strict parser made the value.
        effort: counts the steps of the explanation.
    """
    found: dict[tuple[Path, str], Issue] = {}
    for problem in schema.find_problems(value, parsed=parsed, effort=effort):
        keyword, at = problem.keyword, problem.at
        path, code = parse_pointer(at), _KEYWORDS.get(keyword, "schema_mismatch")
        names: Sequence[Any] = ()
        if code == "missing_field":
            names = (problem.data.get("missing"),)
        elif code == "unknown_field":
            names = problem.data.get("unexpected", ())
        elif keyword == "false" and path and not path[-1].isdecimal():
            code = "unknown_field"
        places = [((*path, name), at + pointer_step(name)) for name in names if isinstance(name, str)] or [(path, at)]
        for place, pointer in places:
            found.setdefault((place, code), Issue(place, pointer, code, problem))
    return tuple(found.values())


def describe_issue(issue: Issue, schema: Schema, *, root: str = _ROOT, suggestion: str = "") -> Finding:
    """Return the finding for an issue.

    Args:
        issue: the problem.
        schema: the schema that the value breaks.
        root: the name of the whole value in hints.
        suggestion: a sentence with the probable meaning; it comes first in the hint.
    """
    code, at, problem = issue.code, issue.at, issue.problem
    message = problem.message
    if code == "unknown_field":  # such names are many, so their hints are not cached
        message = f"{_clip_hint(at)}: the schema does not know this field"
        hint = _clip_hint(_advise_change(issue, schema, root))
    else:
        asked = ("advice", code, problem.expected, root, id(problem.schema))
        hint = cached_per_schema(schema, (asked, issue.path), lambda: _clip_hint(_advise_change(issue, schema, root)))
        if code == "missing_field":
            message = f"{at}: required, but absent"
    tied = problem.data.get("tied")
    other = " Or fit another variant that is allowed there." if tied else ""
    if code == "missing_field" and not suggestion:
        other = f"{_mistaken_names_text(issue, schema, root)}{other}"
    if code == "missing_field" and suggestion:  # it is there under another name: to add it would be to send it twice
        hint = ""
    if suggestion or other:
        hint = _clip_hint(f"{suggestion} {hint}{other}".strip())
    data: dict[str, Any] = {"keyword": problem.keyword, "expected": problem.expected, "got": problem.got}
    return Finding(code=code, at=at, message=message, hint=hint, data=data)


def _mistaken_names_text(issue: Issue, schema: Schema, root: str) -> str:
    """Return which unknown fields the model may have sent in the place of a missing one, as a sentence."""
    known = facts_at(schema, issue.path[:-1]).properties
    unknown = [name for name in issue.problem.data.get("sent", ()) if name not in known]
    if not 0 < len(unknown) <= _MAX_MISTAKEN:
        return ""
    verb = "is no field" if len(unknown) == 1 else "are no fields"
    name = to_field_path(issue.path, root)
    return f" {_quote_names(unknown)} {verb} here: if you meant `{name}`, send that value under its name."


def clarification_question(schema: Schema, doubtful: Sequence[Path] = ()) -> str:
    """Return the question that clarifies an uncertain call, with ranges and choices.

    Args:
        schema: the schema of the arguments.
        doubtful: the places that had to be corrected; without any, the question is about the required fields, or all.
    """
    facts = facts_at(schema, ())
    known = [(name,) for name in facts.properties]
    paths = [*dict.fromkeys(doubtful)] or [path for path in known if path[0] in facts.required] or known
    opening = "This call is too uncertain to run. Ask the user, or state it again with certain values"
    asked = _list_fields(paths, schema, _MAX_HINT - 60 - len(opening))
    return _clip_hint(f"{opening}: {asked}." if asked else f"{opening}.")


def required_fields_sentence(schema: Schema, *, budget: int) -> str:
    """Return a sentence with the required fields, of at most about `budget` characters; "" if there are none."""
    facts = facts_at(schema, ())
    listed = _list_fields([(name,) for name in facts.properties if name in facts.required], schema, budget)
    return f"It needs {listed}." if listed else ""


def _list_fields(paths: Sequence[Path], schema: Schema, budget: int) -> str:
    parts: list[str] = []
    for path in paths:
        part = f"`{to_field_path(path, _ROOT)}` ({expected_at(schema, path)})"
        if len(part) > budget:  # its name is better than nothing
            part = f"`{to_field_path(path, _ROOT)}`"
        if sum(map(len, parts)) + len(part) > budget:
            parts.append(f"and {len(paths) - len(parts)} more")
            break
        parts.append(part)
    return ", ".join(parts)


def _advise_change(issue: Issue, schema: Schema, root: str) -> str:
    name, problem = to_field_path(issue.path, root), issue.problem
    if issue.code == "unknown_field":
        return f"`{name}` is not a field here. Fields: {_allowed_fields_text(issue, schema)}."
    if issue.code == "not_json":
        return f"`{name}` cannot be used: send {problem.expected}."
    if unwanted := _unwanted_name(issue, root):
        return f"Leave `{unwanted}` out."
    facts = _issue_facts(issue, schema)
    want = describe_expected(facts, schema)
    if issue.code in _MEASURED_CODES and not _is_one_rule(facts):
        return f"`{name}` has to be {problem.expected}."
    if issue.code == "missing_field":
        return f"Add `{name}`: {want}. If you do not know it, ask the user; do not make it up."
    if issue.code == "out_of_range":
        return f"`{name}` has to be {want}. If the user did not name such a number, ask."
    if issue.code == "duplicate_items":
        return f"Send every item of `{name}` once."
    if issue.code == "too_few_fields" and facts.properties:
        return f"`{name}` has to have {problem.expected}, such as {_quote_names(facts.properties)}."
    if issue.code in ("schema_mismatch", "too_few_fields", "too_many_fields") or want == "a value":
        return f"`{name}` has to be {problem.expected}."
    return f"Send `{name}` as {want}."


def _unwanted_name(issue: Issue, root: str) -> str:
    """Return the name of the field to leave out if that solves the issue, else ""."""
    keyword, broken = issue.problem.keyword, issue.problem.schema
    if keyword == "false":
        return to_field_path(issue.path, root)
    refused: Any = broken.get("not") if keyword == "not" and is_object(broken) else None
    if is_object(refused) and refused.keys() == {"required"} and len(refused["required"]) == 1:
        return to_field_path((*issue.path, *refused["required"]), root)
    return ""


def _issue_facts(issue: Issue, schema: Schema) -> SchemaFacts:
    """Return what the failed branch says about a place; other branches may say the opposite."""
    broken = issue.problem.schema
    if issue.code == "missing_field":
        return facts_of_child_in(schema, broken, issue.path[-1]) or facts_at(schema, issue.path)
    return facts_of_branch(schema, issue.path, broken)


_MEASURED_CODES = frozenset({"out_of_range", "bad_pattern", "too_short", "too_long"})
_RULES = (
    ("minimum", "exclusiveMinimum"),
    ("maximum", "exclusiveMaximum"),
    ("multipleOf",),
    ("format", "pattern", "minLength"),
    ("format", "pattern", "maxLength"),
)


def _is_one_rule(facts: SchemaFacts) -> bool:
    """Return whether the words for a place cover all its rules; a second one of a kind may contradict it."""
    return bool(facts.types) and all(sum(word in node for node in facts.nodes for word in rule) < 2 for rule in _RULES)  # noqa: PLR2004 - one of them


def _allowed_fields_text(issue: Issue, schema: Schema) -> str:
    """Return the fields that an object may have instead of a refused one, as text."""
    problem, (*parent, name) = issue.problem, issue.path
    asked = ("fields", problem.keyword, id(problem.schema))
    fields, shown = cached_per_schema(schema, (asked, tuple(parent)), lambda: _find_allowed_fields(issue, schema))
    if name in fields:  # in a branch that is not the value's own
        refused = {name, *problem.data.get("unexpected", ())[:_MAX_NAMES]}
        shown = _quote_names([field for field in fields if field not in refused])
    return shown or "none"


def _find_allowed_fields(issue: Issue, schema: Schema) -> tuple[dict[str, None], str]:
    """Return the fields that the refusing subschema allows, and the same as text."""
    broken, path = issue.problem.schema, issue.path[:-1]
    if issue.problem.keyword == "propertyNames":
        return {}, issue.problem.expected
    facts = facts_of_branch(schema, path, broken)
    own = broken if is_object(broken) and issue.problem.keyword == "additionalProperties" else None
    names = facts.properties if own is None else tuple(own.get("properties", ()))
    fields = [name for name in names if may_exist(facts, name)]
    given: dict[str, Any] = {} if own is None else own.get("patternProperties", {})
    patterns = [f"names that fit {pattern[:80]}" for pattern in given]
    return dict.fromkeys(fields), ", ".join([*([_quote_names(fields)] if fields else []), *patterns])


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name[:60]}`" for name in names[:_MAX_NAMES])


def _clip_hint(text: str) -> str:
    return clip(text, _MAX_HINT)
