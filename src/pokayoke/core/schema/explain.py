"""Why a value breaks its schema: everything at once, in linear time.

The validator decides whether a value is valid; this module says why it is not. It walks schema and
value side by side itself, because the validator's own error list copies the value into every error
and follows every branch of a union again and again (14 levels of a two-way recursive union take it
seconds). Here every pair of subschema and place is looked at once, and the work is bounded. Single
keywords are asked of the validator, so both agree on what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.schema.index import Field, Known, Part, SchemaMap
from pokayoke.core.schema.problems import (
    BOUNDS,
    MAX_PROBLEMS,
    Problem,
    escape,
    nothing_beside,
    problem_of,
    short,
    wording,
)

_MAX_STEPS = 50_000
_MAX_LEVELS = 200
_MAX_ASKED = 12
"""Levels down to which a subschema is asked as a whole: below, the same values would be checked too often."""


class Effort:
    """How much was explained so far, for whoever asks again and again.

    Attributes:
        steps: pairs of a subschema and a place that were looked at.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.steps = 0


def describe(value: Any, schema_map: SchemaMap, known: Known, effort: Effort | None = None) -> tuple[Problem, ...]:
    """Return what is wrong with a value that the validator refused; at least one problem.

    Args:
        value: a value that `unusable` has nothing against.
        schema_map: the schema it breaks.
        known: kept by the caller as long as the schema lives.
        effort: what this takes is added to it.
    """
    explainer = Explainer(schema_map, known)
    try:
        found = explainer.explain(schema_map.root, value, "", 0)
    except RecursionError:  # the caller's stack may be nearly full already
        found = []
    if effort is not None:
        effort.steps += _MAX_STEPS - explainer.steps
    # Nothing is found where it is too deep, or where a keyword this module does not follow stands at the top.
    return tuple(found) or (_unexplained("", value, schema_map.root),)


def _unexplained(at: str, value: Any, node: Any) -> Problem:
    return problem_of(at, "schema", "a value the schema allows", value, {}, node)


class Explainer:
    """One explanation. Every pair of subschema and place is explained once."""

    def __init__(self, schema_map: SchemaMap, known: Known) -> None:
        """Take the schema, and what is known of it so far."""
        self.map, self.known = schema_map, known
        self.steps = _MAX_STEPS
        self.memo: dict[tuple[int, str], list[Problem]] = {}

    def explain(self, schema: Any, value: Any, at: str, level: int, *, asked: bool = False) -> list[Problem]:
        """Return the problems of a value (`asked`: known not to fit) with a subschema; empty if there are none."""
        if not is_object(schema):
            return [problem_of(at, "false", "nothing here", value, {}, False)] if schema is False else []
        node, ident = schema, id(schema)
        key = (ident, at)
        found = self.memo.get(key)
        if found is not None:
            return found
        self.steps -= 1
        if self.steps < 0 or level > _MAX_LEVELS:
            return []
        if not asked and 0 < level <= _MAX_ASKED and self.known.question(node)(value):
            return []
        found = self.memo[key] = []
        for keyword, argument, rule, fits in self.known.parts.get(ident) or self.taken_apart(node):
            if rule is None:
                if fits(value):
                    continue
                found.append(problem_of(at, keyword, argument[0], value, argument[1], node))
            else:
                place = _Place(node, keyword, argument, value, at, level + 1)
                found.extend(islice(rule(self, place), MAX_PROBLEMS - len(found)))
            if len(found) >= MAX_PROBLEMS:
                break
        if not found and 0 < level <= _MAX_ASKED and self.known.refuses(node, value):
            # By a keyword that this module does not follow.
            found.append(_unexplained(at, value, node))
        return found

    def taken_apart(self, node: dict[str, Any]) -> list[Part]:
        """Return what a subschema asks for, as it is explained; see `Part`."""
        parts: list[Part] = []
        target = self.map.targets.get(id(node))
        if target is not None:
            parts.append(("$ref", target, _reference, None))
        for keyword, argument in node.items() if target is None or id(node) not in self.map.alone else ():
            since, until, rule = _RULES.get(keyword, _NO_RULE)
            if not since <= self.known.version <= until:
                continue
            if rule is None:
                fits = self.known.lone(node, keyword, argument)
                parts.append((keyword, wording(keyword, argument, node), None, fits))
            elif rule is _properties:
                fields = [Field(name, schema, escape(name)) for name, schema in argument.items()]
                parts.append((keyword, fields, rule, None))
            else:
                parts.append((keyword, argument, rule, None))
        self.known.parts[id(node)] = parts  # whole, because other threads look here
        return parts


class _Place(msgspec.Struct, frozen=True, gc=False):
    """A keyword of a subschema, held against a value."""

    node: dict[str, Any]
    keyword: str
    argument: Any
    value: Any
    at: str
    level: int

    def problem(self, expected: str, got: Any = None, **data: Any) -> Problem:
        value = self.value if got is None else got
        return problem_of(self.at, self.keyword, expected, value, data, self.node)


Found = Iterable[Problem]
Rule = Callable[[Explainer, _Place], Found]


def _reference(run: Explainer, place: _Place) -> Found:
    return run.explain(place.argument, place.value, place.at, place.level)


def _required(_run: Explainer, place: _Place) -> Found:
    if not is_object(place.value):
        return ()
    value = place.value
    absent = [name for name in place.argument if name not in value]
    return [_missing(place, name) for name in absent[:MAX_PROBLEMS]]


def _missing(place: _Place, name: str) -> Problem:
    return problem_of(
        place.at,
        "required",
        f"the property {short(name)}",
        list(place.value),
        {"missing": name, "allowed": list(place.node.get("properties", {}))},
        place.node,
    )


def _properties(run: Explainer, place: _Place) -> Found:
    if is_object(place.value):
        value, level = place.value, place.level
        for field in place.argument:
            name = field.name
            if name in value:
                item = value[name]
                fits = field.fits
                if fits is None:
                    fits = field.fits = run.known.question(field.schema)
                if level > _MAX_ASKED or not fits(item):
                    yield from run.explain(field.schema, item, place.at + field.step, level, asked=True)


def _pattern_properties(run: Explainer, place: _Place) -> Found:
    if is_object(place.value):
        for pattern, schema in place.argument.items():
            for name, item in place.value.items():
                if run.known.speaks(place.node, pattern, name):
                    yield from run.explain(schema, item, place.at + escape(name), place.level)


def _extra_names(run: Explainer, place: _Place) -> list[str]:
    """Return the names that neither properties nor patternProperties beside this keyword speak of."""
    named: dict[str, Any] = place.node.get("properties", {})
    patterns: dict[str, Any] = place.node.get("patternProperties", {})
    extra = [name for name in place.value if name not in named]
    if not patterns:
        return extra
    return [name for name in extra if not any(run.known.speaks(place.node, pattern, name) for pattern in patterns)]


def _additional_properties(run: Explainer, place: _Place) -> Found:
    if is_object(place.value) and place.argument is not True:
        return _leftover_names(run, place, _extra_names(run, place))
    return ()


def _leftover_names(run: Explainer, place: _Place, names: list[str]) -> Found:
    """Hold the schema of the remaining properties against them."""
    if place.argument is not False:
        return _leftover_values(run, place, names)
    if not names:
        return ()
    allowed = tuple(place.node.get("properties", {}))
    return (place.problem(nothing_beside(allowed), names, unexpected=names, allowed=list(allowed)),)


def _leftover_values(run: Explainer, place: _Place, names: list[str]) -> Found:
    for name in names:
        yield from run.explain(place.argument, place.value[name], place.at + escape(name), place.level)


def _unevaluated_properties(run: Explainer, place: _Place) -> Found:
    if is_object(place.value) and place.argument is not True:
        seen = _seen(run, place.node, place.value, place.at, place.level, top=True)
        return _leftover_names(run, place, [name for name in place.value if name not in seen])
    return ()


def _seen(run: Explainer, schema: Any, value: dict[str, Any], at: str, level: int, *, top: bool = False) -> set[str]:
    """Return the property names that a subschema and what it applies in place have evaluated."""
    if not is_object(schema) or level > _MAX_LEVELS:
        return set()
    node = schema
    seen = {name for name in node.get("properties", {}) if name in value}
    place = _Place(node, "", None, value, at, level)
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
        holds = not run.explain(node["if"], value, at, level)
        inside += [node["if"], node.get("then", True)] if holds else [node.get("else", True)]
    for branch in inside:
        if not run.explain(branch, value, at, level):
            seen |= _seen(run, branch, value, at, level + 1)
    return seen


def _property_names(run: Explainer, place: _Place) -> Found:
    if is_object(place.value):
        for name in place.value:
            wrong = run.explain(place.argument, name, f"{place.at}{escape(name)}/ name", place.level)
            if wrong:
                yield place.problem(f"property names that are {wrong[0].expected}", name, unexpected=[name])


def _items(run: Explainer, place: _Place) -> Found:
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
        yield from run.explain(schema, item, f"{place.at}/{index}", place.level)


def _contains(run: Explainer, place: _Place) -> Found:
    if not is_array(place.value):
        return
    values = place.value
    fitting = sum(
        not run.explain(place.argument, item, f"{place.at}/{i}", place.level) for i, item in enumerate(values)
    )
    least, most = place.node.get("minContains", 1), place.node.get("maxContains", len(values))
    if fitting < least:
        yield place.problem(f"at least {least} items of the wanted kind", limit=least)
    elif fitting > most:
        yield place.problem(f"at most {most} items of the wanted kind", limit=most)


def _dependent(run: Explainer, place: _Place) -> Found:
    """Cover dependentRequired, dependentSchemas and the older dependencies, which mixed both."""
    if not is_object(place.value):
        return
    for name, wanted in place.argument.items():
        if name not in place.value:
            continue
        if is_array(wanted):
            yield from (_missing(place, other) for other in wanted if other not in place.value)
        else:
            yield from run.explain(wanted, place.value, place.at, place.level)


def _all_of(run: Explainer, place: _Place) -> Found:
    for schema in place.argument:
        yield from run.explain(schema, place.value, place.at, place.level)


def _not(run: Explainer, place: _Place) -> Found:
    if not run.explain(place.argument, place.value, place.at, place.level):
        yield place.problem(f"a value that does not fit {short(place.argument, 80)}")


def _condition(run: Explainer, place: _Place) -> Found:
    holds = not run.explain(place.argument, place.value, place.at, place.level)
    yield from run.explain(place.node.get("then" if holds else "else", True), place.value, place.at, place.level)


def _union(run: Explainer, place: _Place) -> Found:
    """Explain anyOf and oneOf by the branch that comes closest."""
    branches = [run.explain(schema, place.value, place.at, place.level) for schema in place.argument]
    fitting = [index for index, found in enumerate(branches) if not found]
    if len(fitting) == 1 or (fitting and place.keyword == "anyOf"):
        return
    if fitting:
        yield place.problem(
            f"a value that fits exactly one of {len(branches)} variants, not {len(fitting)}", matching=fitting
        )
        return
    distances = [_distance(found, place.at) for found in branches]
    best = min(range(len(branches)), key=distances.__getitem__)
    if distances[best][0]:
        yield _none_fits(place, [problem for found in branches for problem in found if problem.at == place.at])
        return
    tied = distances.count(distances[best]) > 1
    for problem in branches[best]:
        data = {"variant": best, "variants": len(branches), **problem.data}
        data["tied"] = tied or bool(problem.data.get("tied"))
        yield msgspec.structs.replace(problem, data=data)


def _distance(found: list[Problem], at: str) -> tuple[int, int, int]:
    """Return how far a branch is from fitting: another kind of value, another variant, or slips in it."""
    kinds = sum(problem.at == at and problem.keyword in ("type", "enum", "const", "false") for problem in found)
    below = at.count("/") + 1
    tags = sum(problem.keyword in ("enum", "const") and problem.at.count("/") == below for problem in found)
    return kinds, tags, len(found)


def _none_fits(place: _Place, problems: list[Problem]) -> Problem:
    """Return one problem for a value that is of no branch's kind."""
    expected = list(dict.fromkeys(problem.expected for problem in problems if problem.keyword != "false"))
    data: dict[str, Any] = {"variants": len(place.argument)}
    for name in ("types", "allowed"):
        merged = [item for problem in problems for item in problem.data.get(name, ())]
        if merged:
            data[name] = [item for index, item in enumerate(merged) if item not in merged[:index]]
    return place.problem(" or ".join(expected[:6]) or "another value", **data)


_ANY = (4, 9)
_RULES: dict[str, tuple[int, int, Rule | None]] = {
    **dict.fromkeys(("type", "enum", "pattern", "format", "uniqueItems"), (*_ANY, None)),
    **{keyword: (*_ANY, None) for keyword in BOUNDS if not keyword.startswith("exclusive")},
    "const": (6, 9, None),
    "exclusiveMinimum": (6, 9, None),
    "exclusiveMaximum": (6, 9, None),
    "required": (*_ANY, _required),
    "properties": (*_ANY, _properties),
    "patternProperties": (*_ANY, _pattern_properties),
    "additionalProperties": (*_ANY, _additional_properties),
    "propertyNames": (6, 9, _property_names),
    "unevaluatedProperties": (8, 9, _unevaluated_properties),
    "items": (*_ANY, _items),
    "additionalItems": (4, 8, _items),
    "prefixItems": (9, 9, _items),
    "contains": (6, 9, _contains),
    "dependencies": (4, 7, _dependent),
    "dependentRequired": (8, 9, _dependent),
    "dependentSchemas": (8, 9, _dependent),
    "allOf": (*_ANY, _all_of),
    "anyOf": (*_ANY, _union),
    "oneOf": (*_ANY, _union),
    "not": (*_ANY, _not),
    "if": (7, 9, _condition),
}


_NO_RULE: tuple[int, int, None] = (9, 0, None)  # in force in no dialect
