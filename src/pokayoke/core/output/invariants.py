"""Evaluates the contract's invariants: rules of an output that a schema cannot state.

In: a valid JSON value and the effective arguments.
Out: findings.
Never: let a user's callable raise, exit or change its input with an effect outside (only `KeyboardInterrupt` passes).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from typing import Any, cast

from pokayoke.core.call import Finding
from pokayoke.core.contract.terms import Compare, DeclaredInvariant, Equal, Format, Range
from pokayoke.core.json.pointer import parse_pointer, pointer_step
from pokayoke.core.json.values import equal_json, is_array, is_object, kind_with_article
from pokayoke.core.schema.formats import format_check
from pokayoke.core.text.clip import clip_at_word

Rule = Callable[[Any, dict[str, Any]], Any] | DeclaredInvariant

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">=": operator.ge,
    ">": operator.gt,
}


def check_invariants(rules: Iterable[Rule], output: Any, arguments: dict[str, Any]) -> tuple[Finding, ...]:
    """Evaluate every rule and return findings for those that do not hold.

    Args:
        rules: the contract's invariants. In the pointers of declared ones, `*` matches every
            item of an array: `/items/*/price`.
        output: the output as a JSON value that fits its schema.
        arguments: the arguments of the call.
    """
    return tuple(finding for rule in rules for finding in _apply_rule(rule, output, arguments))


def _apply_rule(rule: Rule, output: Any, arguments: dict[str, Any]) -> Iterator[Finding]:
    if isinstance(rule, Range):
        yield from _check_range(rule, output)
    elif isinstance(rule, Format):
        yield from _check_format(rule, output)
    elif isinstance(rule, Equal):
        yield from _check_equal(rule, output, arguments)
    elif isinstance(rule, Compare):
        yield from _check_comparison(rule, output)
    else:
        yield from _call_rule(rule, output, arguments)


def _rule_finding(at: str, message: str, rule: str) -> Finding:
    return Finding(
        code="invariant_failed",
        at=at,
        blame="tool",
        message=f"output at {at or '/'}: {message}",
        data={"rule": rule, "reason": f"invariant_failed:{rule}"},
    )


def _check_range(rule: Range, output: Any) -> Iterator[Finding]:
    for at, value in resolve_pointer(output, rule.at):
        if value is None:
            continue  # the schema decides whether null is allowed here
        if not _is_number(value):
            yield _rule_finding(at, f"got {kind_with_article(value)}, expected a number", f"range {rule.at}")
        elif (rule.min is not None and value < rule.min) or (rule.max is not None and value > rule.max):
            low, high = ("-inf" if rule.min is None else rule.min), ("inf" if rule.max is None else rule.max)
            yield _rule_finding(at, f"{value} is outside {low} to {high}", f"range {rule.at}")


def _check_format(rule: Format, output: Any) -> Iterator[Finding]:
    accepts = format_check(rule.name)
    for at, value in resolve_pointer(output, rule.at):
        if value is not None and not (isinstance(value, str) and accepts is not None and accepts(value)):
            yield _rule_finding(
                at, f"got {kind_with_article(value)}, expected the format {rule.name}", f"format {rule.at}"
            )


def _check_equal(rule: Equal, output: Any, arguments: dict[str, Any]) -> Iterator[Finding]:
    wanted = [value for _, value in resolve_pointer(arguments, rule.argument)]
    if not wanted:
        return  # an optional argument is absent: no comparison
    for at, value in resolve_pointer(output, rule.output):
        if not any(equal_json(value, one) for one in wanted):
            yield _rule_finding(
                at, f"differs from the argument {rule.argument}", f"equal {rule.output} {rule.argument}"
            )


def _check_comparison(rule: Compare, output: Any) -> Iterator[Finding]:
    name = f"compare {rule.a} {rule.op} {rule.b}"
    rights = [value for _, value in resolve_pointer(output, rule.b) if value is not None]
    for at, left in resolve_pointer(output, rule.a):
        if left is None:
            continue
        for right in rights:
            holds = _compare_values(left, rule.op, right)
            if holds is None:
                yield _rule_finding(at, f"{kind_with_article(left)} and {kind_with_article(right)} have no order", name)
            elif not holds:
                yield _rule_finding(at, f"{rule.a} {rule.op} {rule.b} does not hold", name)


def _compare_values(left: Any, op: str, right: Any) -> bool | None:
    """Compare two values, dates and times by their value; None if they have no order."""
    if op in ("==", "!="):
        return equal_json(left, right) is (op == "==")
    if _is_number(left) and _is_number(right):
        return _COMPARISONS[op](left, right)
    if isinstance(left, str) and isinstance(right, str):
        for read in (date.fromisoformat, datetime.fromisoformat, time.fromisoformat):
            try:
                return _COMPARISONS[op](read(left), read(right))
            except (ValueError, TypeError):  # TypeError: only one of them has a time zone
                continue
    return None


def resolve_pointer(value: Any, pointer: str) -> list[tuple[str, Any]]:
    """Return every (pointer, value) that a pointer reaches; `*` matches every item of an array.

    `*` is no index in RFC 6901, so the wildcard excludes no valid pointer. Absent places are left out.
    """
    found = [("", value)]
    for step in parse_pointer(pointer):
        found = [(at + pointer_step(key), child) for at, item in found for key, child in _children_at(item, step)]
    return found


def _children_at(item: Any, step: str) -> list[tuple[str | int, Any]]:
    if is_object(item):
        return [(step, item[step])] if step in item else []
    if is_array(item):
        if step == "*":
            return list(enumerate(item))
        if step.isdecimal() and int(step) < len(item):
            return [(step, item[int(step)])]
    return []


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _call_rule(rule: Callable[[Any, dict[str, Any]], Any], output: Any, arguments: dict[str, Any]) -> Iterator[Finding]:
    name = str(getattr(rule, "__name__", type(rule).__name__))[:80]
    try:
        said = _read_complaints(rule(output, arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001 - sys.exit() in a rule must not end the host
        yield Finding(
            code="invariant_raised",
            blame="tool",
            message=f"the invariant {name} raised {type(exc).__name__}: {clip_at_word(str(exc), 200)}",
            data={"rule": name, "reason": f"invariant_raised:{type(exc).__name__}"},
        )
        return
    for message in said:
        yield _rule_finding("", message, name)


def _read_complaints(result: Any) -> list[str]:
    """Return the complaints in a callable's result; empty if the rule holds.

    None and True hold; False (and any other false value) does not; a sentence or a list of sentences are
    complaints. A coroutine is a complaint: nothing would await it.
    """
    if result is None or result is True:
        return []
    if inspect.isawaitable(result) or inspect.isgenerator(result):
        close: Callable[[], None] = getattr(result, "close", lambda: None)
        close()  # no warning that it never ran: the finding says so
        raise TypeError("an invariant has to be a plain function, not a coroutine or generator function")
    if isinstance(result, str):
        return [clip_at_word(result, 300) or "does not hold"]
    if isinstance(result, (list, tuple)):
        return [clip_at_word(str(one), 300) for one in cast(Sequence[Any], result)]
    return [] if result else ["does not hold"]
