"""Why a value breaks its schema: everything at once, in linear time.

The validator decides whether a value is valid; this module says why it is not. It walks schema and
value side by side itself, because the validator's own error list copies the value into every error
and follows every branch of a union again and again (14 levels of a two-way recursive union take it
seconds). Here every pair of subschema and place is looked at once, and the work is bounded. Single
keywords are asked of the validator, so both agree on what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from pokayoke.core.schema_map import Draft, Known, Part, SchemaMap, stands_alone
from pokayoke.core.schema_problems import (
    BOUNDS,
    MAX_PROBLEMS,
    Problem,
    escape,
    nothing_beside,
    problem_of,
    short,
    wording,
)
from pokayoke.core.shapes import is_array, is_object

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_STEPS = 50_000
_MAX_LEVELS = 200
_MAX_ASKED = 12
"""Levels down to which a subschema is asked as a whole: below, the same values would be checked too often."""
_VERSIONS: dict[Draft, int] = {"draft4": 4, "draft6": 6, "draft7": 7, "2019-09": 8, "2020-12": 9}

Check = Callable[[dict[str, Any]], "jsonschema_rs.Validator"]


def describe(value: Any, schema_map: SchemaMap, check: Check, known: Known) -> tuple[Problem, ...]:
    """Return what is wrong with a value that the validator refused; at least one problem.

    Args:
        value: a value that `unusable` has nothing against.
        schema_map: the schema it breaks.
        check: compiles a schema of one keyword in the dialect of the whole.
        known: kept by the caller as long as the schema lives.
    """
    try:
        found = Explainer(schema_map, check, known).explain(schema_map.root, value, "", 0)
    except RecursionError:  # the caller's stack may be nearly full already
        found = []
    if not found:  # too deep, or a keyword this module does not follow, such as $dynamicRef
        return (problem_of("", "schema", "a value the schema allows", value, {}, schema_map.root),)
    return tuple(found)


class Explainer:
    """One explanation. Every pair of subschema and place is explained once."""

    def __init__(self, schema_map: SchemaMap, check: Check, known: Known) -> None:
        """Take the schema, the compiler for single keywords, and what is known so far."""
        self.map = schema_map
        self.check = check
        self.version = _VERSIONS[schema_map.draft]
        self.steps = _MAX_STEPS
        self.memo: dict[tuple[int, str], list[Problem]] = {}
        self.checks, self.words, self.parts = known.checks, known.words, known.parts

    def explain(self, schema: Any, value: Any, at: str, level: int, *, asked: bool = False) -> list[Problem]:
        """Return the problems of a value (`asked`: known not to fit) with a subschema; empty if there are none."""
        if schema is False:
            return [problem_of(at, "false", "nothing here", value, {}, False)]
        if not is_object(schema):
            return []
        node = schema
        key = (id(node), at)
        known = self.memo.get(key)
        if known is not None:
            return known
        self.steps -= 1
        if self.steps < 0 or level > _MAX_LEVELS:
            return []
        found: list[Problem] = []
        if not asked and 0 < level <= _MAX_ASKED and self.fits(node, value):
            return found
        self.memo[key] = found
        if id(node) in self.map.targets:
            found.extend(self.explain(self.map.targets[id(node)], value, at, level + 1))
            if id(node) in self.map.alone:
                return found
        found.extend(islice(self._by_keyword(node, value, at, level), MAX_PROBLEMS - len(found)))
        return found

    def _by_keyword(self, node: dict[str, Any], value: Any, at: str, level: int) -> Found:
        for keyword, argument, rule, lone in self.parts.get(id(node)) or self.taken_apart(node):
            if lone is None or not lone.is_valid(value):
                yield from rule(self, _Place(node, keyword, argument, value, at, level + 1))

    def taken_apart(self, node: dict[str, Any]) -> list[Part]:
        """Return the keywords of a subschema as they are asked; see `Known.parts`."""
        parts: list[Part] = []
        for keyword, argument in node.items():
            since, until, rule = _RULES.get(keyword, _NO_RULE)
            if since <= self.version <= until:
                lone = self.lone(node, keyword, argument) if rule is _assertion else None
                parts.append((keyword, argument, rule, lone))
        self.parts[id(node)] = parts  # whole, because other threads look here
        return parts

    def fits(self, node: dict[str, Any], value: Any) -> bool:
        """Return whether the validator has nothing against a value, asked for a subschema as a whole.

        One question for what is in order, so that the walk goes only where something is wrong. False
        for a subschema that cannot be asked alone: then the walk decides.
        """
        key = (id(node), "")
        if key not in self.checks:
            self.checks[key] = self.check(node) if stands_alone(node) else None
        validator = self.checks[key]
        return validator is not None and validator.is_valid(value)

    def lone(self, node: dict[str, Any], keyword: str, argument: Any) -> jsonschema_rs.Validator:
        """Return one keyword of a subschema, compiled alone."""
        alone = {keyword: argument}
        if self.version == 4 and keyword in ("minimum", "maximum"):  # noqa: PLR2004 - draft 4
            flag = "exclusiveM" + keyword[1:]
            alone[flag] = node.get(flag, False)
        return self.check(alone)

    def named_by(self, node: dict[str, Any], pattern: str, name: str) -> bool:
        """Return whether one of the `patternProperties` of a subschema speaks of a name."""
        key = (id(node), f"pattern {pattern}")
        validator = self.checks.get(key)
        if validator is None:
            validator = self.checks[key] = self.lone(node, "pattern", pattern)
        return validator.is_valid(name)


class _Place(msgspec.Struct, frozen=True):
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


Found = Iterator[Problem]
Rule = Callable[[Explainer, _Place], Found]


def _assertion(run: Explainer, place: _Place) -> Found:
    """One keyword that looks at the value alone, and has failed."""
    key = (id(place.node), place.keyword)
    if key not in run.words:
        run.words[key] = wording(place.keyword, place.argument, place.node)
    expected, data = run.words[key]
    yield problem_of(place.at, place.keyword, expected, place.value, data, place.node)


def _required(_run: Explainer, place: _Place) -> Found:
    if is_object(place.value):
        for name in place.argument:
            if name not in place.value:
                yield _missing(place, name)


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
        for name, schema in place.argument.items():
            asked = name in value and level <= _MAX_ASKED and is_object(schema)
            if name in value and not (asked and run.fits(schema, value[name])):
                yield from run.explain(schema, value[name], place.at + escape(name), level, asked=asked)


def _pattern_properties(run: Explainer, place: _Place) -> Found:
    if is_object(place.value):
        for pattern, schema in place.argument.items():
            for name, item in place.value.items():
                if run.named_by(place.node, pattern, name):
                    yield from run.explain(schema, item, place.at + escape(name), place.level)


def _extra_names(run: Explainer, place: _Place) -> list[str]:
    """Return the names that neither properties nor patternProperties beside this keyword speak of."""
    named: dict[str, Any] = place.node.get("properties", {})
    patterns: dict[str, Any] = place.node.get("patternProperties", {})
    return [
        name
        for name in place.value
        if name not in named and not any(run.named_by(place.node, pattern, name) for pattern in patterns)
    ]


def _additional_properties(run: Explainer, place: _Place) -> Found:
    if is_object(place.value) and place.argument is not True:
        yield from _leftover_names(run, place, _extra_names(run, place))


def _leftover_names(run: Explainer, place: _Place, names: list[str]) -> Found:
    """Hold the schema of the remaining properties against them."""
    if place.argument is not False:
        for name in names:
            yield from run.explain(place.argument, place.value[name], place.at + escape(name), place.level)
    elif names:
        allowed = tuple(place.node.get("properties", {}))
        yield place.problem(nothing_beside(allowed), names, unexpected=names, allowed=list(allowed))


def _unevaluated_properties(run: Explainer, place: _Place) -> Found:
    if is_object(place.value) and place.argument is not True:
        seen = _seen(run, place.node, place.value, place.at, place.level, top=True)
        yield from _leftover_names(run, place, [name for name in place.value if name not in seen])


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
_RULES: dict[str, tuple[int, int, Rule]] = {
    **dict.fromkeys(("type", "enum", "pattern", "format", "uniqueItems"), (*_ANY, _assertion)),
    **{keyword: (*_ANY, _assertion) for keyword in BOUNDS if not keyword.startswith("exclusive")},
    "const": (6, 9, _assertion),
    "exclusiveMinimum": (6, 9, _assertion),
    "exclusiveMaximum": (6, 9, _assertion),
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


_NO_RULE: tuple[int, int, Rule] = (9, 0, _assertion)  # in force in no dialect
