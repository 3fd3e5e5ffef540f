"""Why a value breaks its schema: all problems at once, in linear time.

In: a value that the validator refused, and its schema.
Out: its problems, at least one.
Never: unbounded work.

The validator decides whether a value is valid; this module explains why it is not. It walks schema and value itself,
because the validator's own error list copies the value into every error and follows every branch of a union again and
again (14 levels of a two-way recursive union take it seconds). Here every pair of subschema and place is visited once.
The validator checks single keywords, so both agree on their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from pokayoke.core.json.pointer import get_at, parse_pointer, pointer_step
from pokayoke.core.json.values import equal_json, is_array, is_object
from pokayoke.core.schema.index import ExplanationCache, Field, Part, SchemaMap
from pokayoke.core.schema.problems import (
    BOUNDS,
    MAX_PROBLEMS,
    SchemaProblem,
    build_problem,
    describe_allowed_properties,
    describe_assertion,
    short_json,
)

_MAX_STEPS = 50_000
_MAX_LEVELS = 200
_MAX_ASKED = 12
"""Levels down to which a subschema is checked as a whole: below, the same values would be checked too often."""


class Effort:
    """The work of several explanations, so that a caller can bound it.

    Attributes:
        steps: pairs of a subschema and a place that were visited.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.steps = 0


def explain_problems(
    value: Any, schema_map: SchemaMap, known: ExplanationCache, effort: Effort | None = None
) -> tuple[SchemaProblem, ...]:
    """Return the problems of a value that the validator refused; at least one.

    Args:
        value: a value without an `unusable_problem`.
        schema_map: the schema it breaks.
        known: the cache of the schema, kept by the caller.
        effort: counts the steps.
    """
    explainer = Explainer(schema_map, known)
    try:
        found = explainer.explain_value(schema_map.root, value, "", 0)
    except RecursionError:  # the caller's stack may be nearly full already
        found = []
    if effort is not None:
        effort.steps += _MAX_STEPS - explainer.steps
    # There are none if the value is too deep, or breaks a keyword at the top that this module does not follow.
    return tuple(found) or (_unexplained_problem("", value, schema_map.root),)


def _unexplained_problem(at: str, value: Any, node: Any) -> SchemaProblem:
    return build_problem(at, "schema", "a value the schema allows", value, {}, node)


class Explainer:
    """One explanation. Every pair of subschema and place is explained once."""

    def __init__(self, schema_map: SchemaMap, known: ExplanationCache) -> None:
        """Start with a schema and its cache."""
        self.map, self.known = schema_map, known
        self.steps = _MAX_STEPS
        self.memo: dict[tuple[int, str], list[SchemaProblem]] = {}

    def explain_value(
        self, schema: Any, value: Any, at: str, level: int, *, asked: bool = False
    ) -> list[SchemaProblem]:
        """Return the problems of a value with a subschema; `asked` says that it is known not to fit."""
        if not is_object(schema):
            return [build_problem(at, "false", "nothing here", value, {}, False)] if schema is False else []
        node, ident = schema, id(schema)
        key = (ident, at)
        found = self.memo.get(key)
        if found is not None:
            return found
        self.steps -= 1
        if self.steps < 0 or level > _MAX_LEVELS:
            return []
        if not asked and 0 < level <= _MAX_ASKED and self.known.validator_for(node)(value):
            return []
        found = self.memo[key] = []
        for keyword, argument, rule, fits in self.known.parts.get(ident) or self.list_parts(node):
            if rule is None:
                if fits(value):
                    continue
                found.append(build_problem(at, keyword, argument[0], value, argument[1], node))
            else:
                place = _KeywordCheck(node, keyword, argument, value, at, level + 1)
                found.extend(islice(rule(self, place), MAX_PROBLEMS - len(found)))
            if len(found) >= MAX_PROBLEMS:
                break
        if not found and 0 < level <= _MAX_ASKED and self.known.is_refused(node, value):
            # The value breaks a keyword that this module does not follow.
            found.append(_unexplained_problem(at, value, node))
        return found

    def list_parts(self, node: dict[str, Any]) -> list[Part]:
        """Return the parts of a subschema, cached; see `Part`."""
        parts: list[Part] = []
        target = self.map.targets.get(id(node))
        if target is not None:
            parts.append(("$ref", target, _explain_ref, None))
        for keyword, argument in node.items() if target is None or id(node) not in self.map.overriding_refs else ():
            since, until, rule = _RULES.get(keyword, _NO_RULE)
            if not since <= self.known.version <= until:
                continue
            if rule is None:
                fits = self.known.keyword_validator(node, keyword, argument)
                parts.append((keyword, describe_assertion(keyword, argument, node), None, fits))
            elif rule is _explain_properties:
                fields = [Field(name, schema, pointer_step(name)) for name, schema in argument.items()]
                parts.append((keyword, fields, rule, None))
            else:
                parts.append((keyword, argument, rule, None))
        self.known.parts[id(node)] = parts  # set when complete, because other threads read it
        return parts


class _KeywordCheck(msgspec.Struct, frozen=True, gc=False):
    """A keyword of a subschema, applied to a value."""

    node: dict[str, Any]
    keyword: str
    argument: Any
    value: Any
    at: str
    level: int

    def problem_here(self, expected: str, got: Any = None, **data: Any) -> SchemaProblem:
        value = self.value if got is None else got
        return build_problem(self.at, self.keyword, expected, value, data, self.node)


Problems = Iterable[SchemaProblem]
KeywordRule = Callable[[Explainer, _KeywordCheck], Problems]


def _explain_ref(run: Explainer, place: _KeywordCheck) -> Problems:
    return run.explain_value(place.argument, place.value, place.at, place.level)


def _explain_required(_run: Explainer, place: _KeywordCheck) -> Problems:
    if not is_object(place.value):
        return ()
    value = place.value
    absent = [name for name in place.argument if name not in value]
    return [_missing_problem(place, name) for name in absent[:MAX_PROBLEMS]]


def _missing_problem(place: _KeywordCheck, name: str) -> SchemaProblem:
    return build_problem(
        place.at,
        "required",
        f"the property {short_json(name)}",
        list(place.value),
        {"missing": name, "allowed": list(place.node.get("properties", {})), "sent": list(place.value)[:MAX_PROBLEMS]},
        place.node,
    )


def _explain_properties(run: Explainer, place: _KeywordCheck) -> Problems:
    if is_object(place.value):
        value, level = place.value, place.level
        for field in place.argument:
            name = field.name
            if name in value:
                item = value[name]
                fits = field.fits
                if fits is None:
                    fits = field.fits = run.known.validator_for(field.schema)
                if level > _MAX_ASKED or not fits(item):
                    yield from run.explain_value(field.schema, item, place.at + field.step, level, asked=True)


def _explain_pattern_properties(run: Explainer, place: _KeywordCheck) -> Problems:
    if is_object(place.value):
        for pattern, schema in place.argument.items():
            for name, item in place.value.items():
                if run.known.is_pattern_match(place.node, pattern, name):
                    yield from run.explain_value(schema, item, place.at + pointer_step(name), place.level)


def _extra_names(run: Explainer, place: _KeywordCheck) -> list[str]:
    """Return the names that neither `properties` nor `patternProperties` of this subschema cover."""
    named: dict[str, Any] = place.node.get("properties", {})
    patterns: dict[str, Any] = place.node.get("patternProperties", {})
    extra = [name for name in place.value if name not in named]
    if not patterns:
        return extra
    return [
        name for name in extra if not any(run.known.is_pattern_match(place.node, pattern, name) for pattern in patterns)
    ]


def _explain_additional_properties(run: Explainer, place: _KeywordCheck) -> Problems:
    if is_object(place.value) and place.argument is not True:
        return _explain_leftover_names(run, place, _extra_names(run, place))
    return ()


def _explain_leftover_names(run: Explainer, place: _KeywordCheck, names: list[str]) -> Problems:
    """Yield the problems of the remaining properties with their schema."""
    if place.argument is not False:
        return _explain_leftover_values(run, place, names)
    if not names:
        return ()
    allowed = tuple(place.node.get("properties", {}))
    return (place.problem_here(describe_allowed_properties(allowed), names, unexpected=names, allowed=list(allowed)),)


def _explain_leftover_values(run: Explainer, place: _KeywordCheck, names: list[str]) -> Problems:
    for name in names:
        yield from run.explain_value(place.argument, place.value[name], place.at + pointer_step(name), place.level)


def _explain_unevaluated_properties(run: Explainer, place: _KeywordCheck) -> Problems:
    if is_object(place.value) and place.argument is not True:
        seen = _evaluated_names(run, place.node, place.value, place.at, place.level, top=True)
        return _explain_leftover_names(run, place, [name for name in place.value if name not in seen])
    return ()


def _evaluated_names(
    run: Explainer, schema: Any, value: dict[str, Any], at: str, level: int, *, top: bool = False
) -> set[str]:
    """Return the property names that a subschema and its in-place branches have evaluated."""
    if not is_object(schema) or level > _MAX_LEVELS:
        return set()
    node = schema
    seen = {name for name in node.get("properties", {}) if name in value}
    place = _KeywordCheck(node, "", None, value, at, level)
    if "patternProperties" in node or "additionalProperties" in node:
        extra = _extra_names(run, place)
        seen |= set(value) if "additionalProperties" in node else set(value) - set(extra)
    if "unevaluatedProperties" in node and not top:
        seen |= set(value)
    inside = [*node.get("allOf", ()), *node.get("anyOf", ()), *node.get("oneOf", ())]
    inside += [schema for name, schema in node.get("dependentSchemas", {}).items() if name in value]
    if id(node) in run.map.targets:
        inside.append(run.map.targets[id(node)])
    if "if" in node:
        holds = not run.explain_value(node["if"], value, at, level)
        inside += [node["if"], node.get("then", True)] if holds else [node.get("else", True)]
    for branch in inside:
        if not run.explain_value(branch, value, at, level):
            seen |= _evaluated_names(run, branch, value, at, level + 1)
    return seen


def _explain_property_names(run: Explainer, place: _KeywordCheck) -> Problems:
    if is_object(place.value):
        for name in place.value:
            wrong = run.explain_value(place.argument, name, f"{place.at}{pointer_step(name)}/ name", place.level)
            if wrong:
                yield place.problem_here(f"property names that are {wrong[0].expected}", name, unexpected=[name])


def _explain_items(run: Explainer, place: _KeywordCheck) -> Problems:
    if not is_array(place.value):
        return
    values = place.value
    if is_array(place.argument):  # prefixItems, and items up to 2019-09
        schemas, start = place.argument, 0
    else:
        if place.keyword == "additionalItems" and not isinstance(place.node.get("items"), list):
            return
        before = place.node.get("items" if place.keyword == "additionalItems" else "prefixItems", ())
        start = len(before)
        schemas = [place.argument] * (len(values) - start)
    for index, (schema, item) in enumerate(zip(schemas, values[start:], strict=False), start):
        yield from run.explain_value(schema, item, f"{place.at}/{index}", place.level)


def _explain_contains(run: Explainer, place: _KeywordCheck) -> Problems:
    if not is_array(place.value):
        return
    values = place.value
    fitting = sum(
        not run.explain_value(place.argument, item, f"{place.at}/{i}", place.level) for i, item in enumerate(values)
    )
    least, most = place.node.get("minContains", 1), place.node.get("maxContains", len(values))
    if fitting < least:
        yield place.problem_here(f"at least {least} items of the wanted kind", limit=least)
    elif fitting > most:
        yield place.problem_here(f"at most {most} items of the wanted kind", limit=most)


def _explain_dependent(run: Explainer, place: _KeywordCheck) -> Problems:
    """Yield problems of dependentRequired, dependentSchemas and the older dependencies, which mix both."""
    if not is_object(place.value):
        return
    for name, dependent in place.argument.items():
        if name not in place.value:
            continue
        if is_array(dependent):
            yield from (_missing_problem(place, other) for other in dependent if other not in place.value)
        else:
            yield from run.explain_value(dependent, place.value, place.at, place.level)


def _explain_all_of(run: Explainer, place: _KeywordCheck) -> Problems:
    for schema in place.argument:
        yield from run.explain_value(schema, place.value, place.at, place.level)


def _explain_not(run: Explainer, place: _KeywordCheck) -> Problems:
    if not run.explain_value(place.argument, place.value, place.at, place.level):
        yield place.problem_here(f"a value that does not fit {short_json(place.argument, 80)}")


def _explain_condition(run: Explainer, place: _KeywordCheck) -> Problems:
    holds = not run.explain_value(place.argument, place.value, place.at, place.level)
    yield from run.explain_value(place.node.get("then" if holds else "else", True), place.value, place.at, place.level)


def _explain_union(run: Explainer, place: _KeywordCheck) -> Problems:
    """Yield the problems of the branch of an anyOf or oneOf that comes closest."""
    branches = [run.explain_value(schema, place.value, place.at, place.level) for schema in place.argument]
    fitting = [index for index, found in enumerate(branches) if not found]
    if len(fitting) == 1 or (fitting and place.keyword == "anyOf"):
        return
    if fitting:
        yield place.problem_here(
            f"a value that fits exactly one of {len(branches)} variants, not {len(fitting)}", matching=fitting
        )
        return
    distances = [_branch_distance(found, place.at) for found in branches]
    best = min(range(len(branches)), key=distances.__getitem__)
    if distances[best][0]:
        yield _no_branch_problem(place, [problem for found in branches for problem in found if problem.at == place.at])
        return
    tags = {problem.at: problem for problem in branches[best] if _is_tag(problem, place.at)}
    rivals = {
        at: [one for found in branches for one in found if one.at == at and _is_tag(one, place.at)] for at in tags
    }
    tied = distances.count(distances[best]) > 1 or any(len(alike) > 1 for alike in rivals.values())
    for problem in branches[best]:
        data = {"variant": best, "variants": len(branches), **problem.data}
        data["tied"] = tied or bool(problem.data.get("tied"))
        alike = rivals.get(problem.at, ())
        yield msgspec.structs.replace(problem, data=data) if len(alike) < 2 else _tag_problem(place, alike, data)  # noqa: PLR2004 - one more than the own


def _is_tag(problem: SchemaProblem, at: str) -> bool:
    """Return whether a property of the value at a place is none of the choices of its branch."""
    return problem.keyword in ("enum", "const") and problem.at.count("/") == at.count("/") + 1


def _tag_problem(place: _KeywordCheck, alike: Sequence[SchemaProblem], data: dict[str, Any]) -> SchemaProblem:
    """Return the problem of a property that chooses the branch, with the choices of all branches.

    Its subschema is the whole union: no branch alone says what is allowed.
    """
    allowed: list[Any] = []
    for choice in (choice for problem in alike for choice in problem.data["allowed"]):
        if not any(equal_json(choice, other) for other in allowed):
            allowed.append(choice)
    at = alike[0].at
    value = get_at(place.value, parse_pointer(at[len(place.at) :]))
    expected, more = describe_assertion("enum", allowed, {})
    return build_problem(at, "enum", expected, value, {**data, **more, "tied": False}, place.node)


def _branch_distance(found: list[SchemaProblem], at: str) -> tuple[int, int, int]:
    """Return how far a branch is from fitting: another kind of value, another variant, or small errors."""
    kinds = sum(problem.at == at and problem.keyword in ("type", "enum", "const", "false") for problem in found)
    return kinds, sum(_is_tag(problem, at) for problem in found), len(found)


def _no_branch_problem(place: _KeywordCheck, problems: list[SchemaProblem]) -> SchemaProblem:
    """Return one problem for a value whose kind fits no branch."""
    expected = list(dict.fromkeys(problem.expected for problem in problems if problem.keyword != "false"))
    data: dict[str, Any] = {"variants": len(place.argument)}
    for name in ("types", "allowed"):
        merged = [item for problem in problems for item in problem.data.get(name, ())]
        if merged:
            data[name] = [item for index, item in enumerate(merged) if item not in merged[:index]]
    return place.problem_here(" or ".join(expected[:6]) or "another value", **data)


_ANY = (4, 9)
_RULES: dict[str, tuple[int, int, KeywordRule | None]] = {
    **dict.fromkeys(("type", "enum", "pattern", "format", "uniqueItems"), (*_ANY, None)),
    **{keyword: (*_ANY, None) for keyword in BOUNDS if not keyword.startswith("exclusive")},
    "const": (6, 9, None),
    "exclusiveMinimum": (6, 9, None),
    "exclusiveMaximum": (6, 9, None),
    "required": (*_ANY, _explain_required),
    "properties": (*_ANY, _explain_properties),
    "patternProperties": (*_ANY, _explain_pattern_properties),
    "additionalProperties": (*_ANY, _explain_additional_properties),
    "propertyNames": (6, 9, _explain_property_names),
    "unevaluatedProperties": (8, 9, _explain_unevaluated_properties),
    "items": (*_ANY, _explain_items),
    "additionalItems": (4, 8, _explain_items),
    "prefixItems": (9, 9, _explain_items),
    "contains": (6, 9, _explain_contains),
    "dependencies": (4, 7, _explain_dependent),
    "dependentRequired": (8, 9, _explain_dependent),
    "dependentSchemas": (8, 9, _explain_dependent),
    "allOf": (*_ANY, _explain_all_of),
    "anyOf": (*_ANY, _explain_union),
    "oneOf": (*_ANY, _explain_union),
    "not": (*_ANY, _explain_not),
    "if": (7, 9, _explain_condition),
}


_NO_RULE: tuple[int, int, None] = (9, 0, None)  # in force in no dialect
