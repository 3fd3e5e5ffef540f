"""A value against its schema: everything that is wrong with it at once, in words a model can act on.

A finding's `at` is the place that has to change: for a missing field the place where it belongs, for
an unknown one the field itself. `hint` says what to send instead and is made of the schema only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.clip import clip
from pokayoke.core.placeholders import find_placeholders, lost_backslash
from pokayoke.core.places import Facts, Node, Path, facts_at, item_facts, join, remembered, split, spoken
from pokayoke.core.schema import Schema
from pokayoke.core.schema_problems import SPELLING, Problem, escape

if TYPE_CHECKING:
    from pokayoke.core.schema_explain import Effort

CODES: dict[str, str] = {
    "missing_field": "a required field is absent",
    "unknown_field": "a field the schema does not know",
    "wrong_type": "the value has another JSON type than the schema asks for",
    "not_in_enum": "the value is not one of the allowed ones",
    "out_of_range": "the number is outside its bounds or no multiple of its step",
    "bad_format": "the text is not in the asserted format",
    "bad_pattern": "the text does not fit its pattern",
    "too_short": "the text is shorter than allowed",
    "too_long": "the text is longer than allowed",
    "too_few_items": "the list has fewer items than allowed",
    "too_many_items": "the list has more items than allowed",
    "duplicate_items": "the list has equal items where all must differ",
    "too_few_fields": "the object has fewer fields than allowed",
    "too_many_fields": "the object has more fields than allowed",
    "not_json": "the value is no JSON value (or is nested too deeply)",
    "schema_mismatch": "the value breaks the schema in another way, such as fitting no branch of a union",
    "lost_backslash": "a control character stands in a text where a backslash was meant, such as in \\\\frac",
    "placeholder": "a text stands where a value should be, such as <user_id> or TODO",
}

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
"""What the whole value is called in hints, where it is no output."""
_MAX_HINT = 590
_MAX_NAMES = 20
_MAX_CHOICES = 12
_ARTICLES = {
    "integer": "an integer",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class Issue(msgspec.Struct, frozen=True, gc=False):
    """One problem, brought to the place that has to change.

    Attributes:
        path: where it has to change.
        at: the same as a JSON pointer.
        code: a code of this module.
        problem: what the schema said.
    """

    path: Path
    at: str
    code: str
    problem: Problem

    @property
    def key(self) -> tuple[Path, str]:
        """What makes two issues the same one."""
        return (self.path, self.code)


def check(value: Any, schema: Schema, *, root: str = _ROOT) -> tuple[Finding, ...]:
    """Return everything that is wrong with a value, in the order of the schema; () if it is valid.

    Args:
        value: any Python value; what is no JSON value is a finding too.
        schema: the schema it has to fulfil.
        root: what the whole value is called in hints.
    """
    return tuple(describe_issue(issue, schema, root=root) for issue in issues_of(value, schema))


def placeholders(value: Any, schema: Schema | None = None) -> tuple[Finding, ...]:
    """Return a finding for every text that only stands where a value should be, or lost a backslash.

    See `core/placeholders.py`.

    Args:
        value: a JSON value.
        schema: texts the schema itself names (enum, const, default, examples) are values there.
    """
    return tuple(_placeholder(path, text) for path, text in find_placeholders(value, schema))


def _placeholder(path: Path, text: str) -> Finding:
    name, shown = spoken(path, _ROOT), _json(text)
    if lost_backslash(text):
        code, seen, wanted_there = "lost_backslash", "holds a control character", "a backslash"
        hint = f"`{name}` is {shown}: a backslash was read as part of an escape. Write each backslash twice (\\\\)."
    else:
        code, seen, wanted_there = "placeholder", "is a placeholder", "a value"
        hint = (
            f"`{name}` is {shown}, which only stands for a value. Send the value itself; "
            "if you do not know it, look it up or ask the user."
        )
    message = f"{join(path) or _ROOT}: {shown} {seen}, expected {wanted_there}"
    return Finding(code=code, at=join(path), message=message, hint=_clip(hint), data={"got": text})


def issues_of(value: Any, schema: Schema, *, parsed: bool = False, effort: Effort | None = None) -> tuple[Issue, ...]:
    """Return the problems of a value, each at the place that has to change, none twice.

    Args:
        value: any Python value.
        schema: the schema it has to fulfil.
        parsed: True if the value came out of the strict parser.
        effort: what the explanation takes is added to it.
    """
    found: dict[tuple[Path, str], Issue] = {}
    for problem in schema.problems(value, parsed=parsed, effort=effort):
        keyword, at = problem.keyword, problem.at
        path, code = split(at), _KEYWORDS.get(keyword, "schema_mismatch")
        names: Sequence[Any] = ()
        if code == "missing_field":
            names = (problem.data.get("missing"),)
        elif code == "unknown_field":
            names = problem.data.get("unexpected", ())
        elif keyword == "false" and path and not path[-1].isdecimal():
            code = "unknown_field"
        places = [((*path, name), at + escape(name)) for name in names if isinstance(name, str)] or [(path, at)]
        for place, pointer in places:
            found.setdefault((place, code), Issue(place, pointer, code, problem))
    return tuple(found.values())


def describe_issue(issue: Issue, schema: Schema, *, root: str = _ROOT, suggestion: str = "") -> Finding:
    """Return the finding for an issue.

    Args:
        issue: what is wrong.
        schema: the schema that says so.
        root: what the whole value is called in hints.
        suggestion: a sentence with what was probably meant; it comes first in the hint.
    """
    code, at, problem = issue.code, issue.at, issue.problem
    message = problem.message
    if code == "unknown_field":  # no place of the schema: there is nothing to remember
        message = f"{_clip(at)}: the schema does not know this field"
        hint = _clip(_advice(issue, schema, root))
    else:
        asked = ("advice", code, problem.expected, root)
        hint = remembered(schema, (asked, issue.path), lambda: _clip(_advice(issue, schema, root)))
        if code == "missing_field":
            message = f"{at}: required, but absent"
    tied = problem.data.get("tied")
    if suggestion or tied:
        other = " Or fit another variant that is allowed there." if tied else ""
        hint = _clip(f"{suggestion} {hint}{other}".lstrip())
    data: dict[str, Any] = {"keyword": problem.keyword, "expected": problem.expected, "got": problem.got}
    return Finding(code=code, at=at, message=message, hint=hint, data=data)


def clarification(schema: Schema) -> str:
    """Return the question that settles an uncertain call: its required fields (else all), with ranges and choices."""
    facts = facts_at(schema, ())
    paths = [(name,) for name in facts.properties if name in facts.required] or [(name,) for name in facts.properties]
    opening = "This call is too uncertain to run. Ask the user, or state it again with certain values"
    asked = _listed(paths, schema, _MAX_HINT - 60 - len(opening))
    return _clip(f"{opening}: {asked}." if asked else f"{opening}.")


def needs(schema: Schema, *, room: int) -> str:
    """Return a sentence with what no call can do without, of about `room` characters at most; "" if that is nothing."""
    facts = facts_at(schema, ())
    listed = _listed([(name,) for name in facts.properties if name in facts.required], schema, room)
    return f"It needs {listed}." if listed else ""


def _listed(paths: Sequence[Path], schema: Schema, room: int) -> str:
    parts: list[str] = []
    for path in paths:
        part = f"`{spoken(path, _ROOT)}` ({wanted_at(schema, path)})"
        if len(part) > room:  # its name is better than nothing
            part = f"`{spoken(path, _ROOT)}`"
        if sum(map(len, parts)) + len(part) > room:
            parts.append(f"and {len(paths) - len(parts)} more")
            break
        parts.append(part)
    return ", ".join(parts)


def wanted_at(schema: Schema, path: Path) -> str:
    """Return in words what the schema wants at the place a path leads to."""
    return remembered(schema, ("wanted", path), lambda: wanted(facts_at(schema, path), schema))


def wanted(facts: Facts, schema: Schema, *, depth: int = 0) -> str:
    """Return in words what the schema wants at a place, such as `an integer from 1 to 100`."""
    if facts.choices:
        shown = ", ".join(_json(item) for item in facts.choices[:_MAX_CHOICES])
        more = len(facts.choices) - _MAX_CHOICES
        return f"one of {shown}" + (f" and {more} more" if more > 0 else "")
    words = [_kind(name, facts, schema, depth) for name in _ARTICLES if name in facts.types]
    if "number" in facts.types and "integer" in facts.types:
        words.remove(_kind("integer", facts, schema, depth))
    return " or ".join(words) or "a value"


def _kind(name: str, facts: Facts, schema: Schema, depth: int) -> str:
    if name in ("integer", "number"):
        return _ARTICLES[name] + _range(facts.nodes)
    if name == "string":
        return _text(facts)
    if name == "array" and depth == 0:
        inner = wanted(item_facts(schema, facts), schema, depth=1)
        return f"a list{_size(facts.nodes, 'minItems', 'maxItems', 'items')}, each {inner}"
    if name == "object" and facts.properties:
        names = [*(key for key in facts.properties if key in facts.required)] or list(facts.properties)
        return f"an object with {', '.join(names[:6])}"
    return _ARTICLES[name]


def _text(facts: Facts) -> str:
    if facts.formats:
        return "a text in the format " + ", or ".join(f"{one}{SPELLING.get(one, '')}" for one in sorted(facts.formats))
    text = "a text" + _size(facts.nodes, "minLength", "maxLength", "characters")
    pattern = next((node["pattern"] for node in facts.nodes if isinstance(node.get("pattern"), str)), None)
    return f"{text} that fits {pattern[:80]}" if pattern else text


def _bound(nodes: Iterable[Node], *keywords: str) -> tuple[str, Any] | None:
    for node in nodes:
        for keyword in keywords:
            if isinstance(node.get(keyword), int | float):
                return keyword, node[keyword]
    return None


def _range(nodes: Sequence[Node]) -> str:
    low = _bound(nodes, "minimum", "exclusiveMinimum")
    high = _bound(nodes, "maximum", "exclusiveMaximum")
    step = _bound(nodes, "multipleOf")
    text = f", a multiple of {step[1]}" if step else ""
    above = "above" if low and low[0] != "minimum" else "from"
    below = "below" if high and high[0] != "maximum" else "to"
    if low and high:
        return f" {above} {low[1]} {below} {high[1]}{text}"
    if low:
        return f" {'above' if above == 'above' else 'of at least'} {low[1]}{text}"
    return f" {'below' if below == 'below' else 'of at most'} {high[1]}{text}" if high else text


def _size(nodes: Sequence[Node], low_name: str, high_name: str, unit: str) -> str:
    low, high = _bound(nodes, low_name), _bound(nodes, high_name)
    if low and high:
        return f" of {low[1]} to {high[1]} {unit}"
    if low:
        return f" of at least {low[1]} {unit}"
    return f" of at most {high[1]} {unit}" if high else ""


def _advice(issue: Issue, schema: Schema, root: str) -> str:
    name = spoken(issue.path, root)
    if issue.code == "unknown_field":
        shown = remembered(schema, ("fields", issue.path[:-1]), lambda: _fields(schema, issue.path[:-1]))
        return f"`{name}` is not a field here. Fields: {shown}."
    if issue.code == "not_json":
        return f"`{name}` cannot be used: send {issue.problem.expected}."
    want = wanted_at(schema, issue.path)
    if issue.code in _MEASURED and not _is_one_rule(facts_at(schema, issue.path)):
        return f"`{name}` has to be {issue.problem.expected}."
    if issue.code == "missing_field":
        return f"Add `{name}`: {want}. If you do not know it, ask the user; do not make it up."
    if issue.code == "out_of_range":
        return f"`{name}` has to be {want}. If the user did not name such a number, ask."
    if issue.code == "duplicate_items":
        return f"Send every item of `{name}` once."
    if issue.code in ("schema_mismatch", "too_few_fields", "too_many_fields") or want == "a value":
        return f"`{name}` has to be {issue.problem.expected}."
    return f"Send `{name}` as {want}."


_MEASURED = frozenset({"out_of_range", "bad_pattern", "too_short", "too_long"})
_RULES = (
    ("minimum", "exclusiveMinimum"),
    ("maximum", "exclusiveMaximum"),
    ("multipleOf",),
    ("format", "pattern", "minLength"),
    ("format", "pattern", "maxLength"),
)


def _is_one_rule(facts: Facts) -> bool:
    """Return whether the words for a place say all its rules: several of a kind may contradict the one that failed."""
    return bool(facts.types) and all(sum(word in node for node in facts.nodes for word in rule) < 2 for rule in _RULES)  # noqa: PLR2004 - one of them


def _fields(schema: Schema, path: Path) -> str:
    names = facts_at(schema, path).properties[:_MAX_NAMES]
    return ", ".join(f"`{name[:60]}`" for name in names) or "none"


def _json(value: Any) -> str:
    return clip(msgspec.json.encode(value).decode(), 60)


def _clip(text: str) -> str:
    return clip(text, _MAX_HINT)
