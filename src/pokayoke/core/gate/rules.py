"""Decides by small rules whether a call may run; the cheap ones come first.

In: a call whose arguments are read and fit.
Out: the first reason to refuse it, or None.
Never: a decision about what other callers do at the same moment (mode, limits, approvals, claims); that is the
admission's, `core/ledger/admission.py`. The rules of a tool are chosen once, when the guard is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding, StopReason
from pokayoke.core.check.findings import clarification_question
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.gate.paths import check_path, normalise_path_fast
from pokayoke.core.gate.urls import check_url
from pokayoke.core.host_input import as_text_id, expect
from pokayoke.core.json.pointer import parse_pointer
from pokayoke.core.policy import AccessPolicy, Policy
from pokayoke.errors import UsageError


class Principal(msgspec.Struct, frozen=True, gc=False):
    """On whose behalf a run acts.

    Args:
        id: the user or service.
        roles: what it may do.
    """

    id: str
    roles: tuple[str, ...] = ()


def as_principal(who: str | dict[str, Any] | Principal | None) -> Principal | None:
    """Return a principal, out of an id or `{"id": ..., "roles": [...]}`.

    Raises:
        UsageError: it is anything else, has another key, or its id or a role is no text that a store can keep.
    """
    if who is None:
        return None
    if isinstance(who, dict):
        if strange := sorted(map(str, who.keys() - {"id", "roles"})):
            raise UsageError(f"a principal is {{'id': ..., 'roles': [...]}}, and has no {', '.join(strange)}")
        ident: Any = who.get("id", "")  # often the whole number of a row
        who = Principal(str(ident) if type(ident) is int else ident, who.get("roles", ()))
    elif not isinstance(who, Principal):
        who = Principal(who)
    roles = expect(who.roles, (tuple, list, set, frozenset), "the roles of a principal are a list of texts")
    known = [as_text_id(role, "a principal's role", empty=True) for role in roles]
    return Principal(as_text_id(who.id, "principal"), tuple(known))


class RuleInput(msgspec.Struct, frozen=True, gc=False):
    """What the rules look at."""

    contract: Contract
    arguments: Mapping[str, Any]
    confidence: float
    principal: Principal | None
    corrected: tuple[str, ...] = ()  # JSON pointers of what was put right


Rule = Callable[[RuleInput], Finding | None]


def rules_for(contract: Contract, policy: Policy, *, certain: bool = False) -> tuple[Rule, ...]:
    """Choose the rules that can ever object to a call of `contract`, whoever makes it; for whom see `access_rule`.

    Args:
        contract: the tool's contract.
        policy: what is allowed.
        certain: leave those out that never object to a call whose confidence is 1, and what `ResolvePaths` asks next.
    """
    rules: list[Rule] = []
    if not certain:
        rules.append(_confidence_rule(policy.confidence.threshold))
    # `ResolvePaths` refuses what is wrong with a path or URL. Only monitor mode asks first as well: its objections
    # leave a note.
    if not (certain and policy.mode == "enforce"):
        if contract.paths:
            rules.append(_paths_rule(contract.paths))
        if contract.urls:
            rules.append(_urls_rule(contract.urls))
    return tuple(rules)


def first_finding(rules: tuple[Rule, ...], asked: RuleInput) -> Finding | None:
    """Return the first finding, or None if the call may go on."""
    for rule in rules:
        if finding := rule(asked):
            return finding
    return None


def access_finding(rule: Rule | None, contract: Contract, principal: Principal | None) -> Finding | None:
    """Return why an access rule keeps a caller from a tool, whatever the arguments; None if it does not."""
    return None if rule is None else rule(RuleInput(contract, {}, 1.0, principal))


def stop_reason_for(finding: Finding) -> StopReason:
    """Return the stop reason a refusing finding stands for."""
    row = FINDING_CODES.get(finding.code)
    return "invalid_arguments" if row is None else row.stop_reason


def access_rule(contract: Contract, access: AccessPolicy) -> Rule | None:
    """Return the rule that says who may call a tool; None if anybody may.

    It comes before all others, so that who may not call a tool is told nothing about it.
    """
    name = contract.name
    if name in access.deny or (access.allow and name not in access.allow):
        return lambda _: _denied_finding(name, "it is not allowed by the configuration")
    # One role of each list: what operators add narrows what the contract's author demanded, never widens it.
    needed = tuple(frozenset(roles) for roles in (contract.roles, access.roles.get(name, ())) if roles)
    if not needed:
        return None

    def check_role(asked: RuleInput) -> Finding | None:
        held = asked.principal.roles if asked.principal else ()
        missing = any(roles.isdisjoint(held) for roles in needed)
        return _denied_finding(name, "the caller holds none of the roles it needs") if missing else None

    return check_role


def _denied_finding(name: str, why: str) -> Finding:
    return Finding(
        code="permission_denied",
        blame="policy",
        message=f"{name} may not be called: {why}",
        hint=f"{name} may not be used here. Do not call it again; tell the user that it is not permitted.",
    )


def _confidence_rule(threshold: float) -> Rule:
    def check_confidence(asked: RuleInput) -> Finding | None:
        if asked.confidence >= threshold:
            return None
        return Finding(
            code="low_confidence",
            message=f"confidence {asked.confidence:.2f} is below {threshold:.2f}",
            hint=clarification_question(asked.contract.input, [parse_pointer(at) for at in asked.corrected]),
            data={"confidence": asked.confidence, "threshold": threshold},
        )

    return check_confidence


def malformed_path_finding(paths: Mapping[str, tuple[str, ...]], arguments: Mapping[str, Any]) -> Finding | None:
    """Return the first finding about the text of a path argument, or None.

    Args:
        paths: the roots of each path argument, by its name.
        arguments: the arguments. A path that is null or absent is none.
    """
    for name, roots in paths.items():
        value = arguments.get(name)
        if value is None or (type(value) is str and normalise_path_fast(value, roots)):
            continue
        for path, at in _listed_values(name, value):
            if finding := check_path(path, roots, at=at):
                return finding
    return None


def refused_url_finding(urls: Mapping[str, UrlRule], arguments: Mapping[str, Any]) -> Finding | None:
    """Return the first finding about the text of a URL argument, or None.

    Args:
        urls: the rule of each URL argument, by its name.
        arguments: the arguments. A URL that is null or absent is none.
    """
    for name, rule in urls.items():
        value = arguments.get(name)
        for url, at in () if value is None else _listed_values(name, value):
            if finding := check_url(url, rule, at=at):
                return finding
    return None


def _listed_values(name: str, value: object) -> Iterator[tuple[object, str]]:
    """Yield the values of an argument that holds one or a list of them, with the place of each.

    What is neither a text nor a list of texts is yielded too: it is no path and no URL, and nobody could confine what
    is in it.
    """
    if isinstance(value, list):
        yield from ((item, f"/{name}/{place}") for place, item in enumerate(cast("list[object]", value)))
    else:
        yield value, f"/{name}"


def _paths_rule(paths: Mapping[str, tuple[str, ...]]) -> Rule:
    return lambda asked: malformed_path_finding(paths, asked.arguments)


def _urls_rule(urls: Mapping[str, UrlRule]) -> Rule:
    return lambda asked: refused_url_finding(urls, asked.arguments)
