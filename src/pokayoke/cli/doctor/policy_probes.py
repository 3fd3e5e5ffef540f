"""Probes for what a configuration itself declares: lists, approvals, limits, budgets, hidden fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from pokayoke.cli.doctor.probes import CANARY, Probe, Tool, guarded, plain, refused
from pokayoke.core.call import ToolCall
from pokayoke.core.policy import BudgetPolicy, LimitPolicy, Policy
from pokayoke.core.redaction.known_secrets import HIDDEN
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.runtime.guard.guard import Guard
from pokayoke.testing.clock import FrozenClock


def configured(policy: Policy) -> list[Probe]:
    """Probes for what the configuration itself declares: lists, approvals, limits, budgets."""
    fields = policy.trace.redact_fields
    hidden = [Probe("redact_fields", "a field that trace.redact_fields names", _redact_fields)] if fields else []
    return [*hidden, *map(_probe_of, (*_lists(policy), *_counts(policy))), *_amounts(policy), *_spent(policy)]


def unfired(policy: Policy) -> list[str]:
    """Limits on calls that are too high to be reached by a probe."""
    budgets = [(f"budgets.{name}", getattr(policy.budgets, name)) for name in ("calls", "rounds")]
    limits = [(f"limits[{number}].calls", limit.calls) for number, limit in enumerate(policy.limits)]
    return [name for name, most in (*limits, *budgets) if most is not None and most > _MOST_CALLS]


def _redact_fields(policy: Policy) -> str | None:
    redactor = Redactor(policy.trace.redact_fields, policy.trace.redact_patterns)
    shown = [name for name in policy.trace.redact_fields if redactor.value({name: CANARY}) != {name: HIDDEN}]
    return f"shown: {', '.join(shown)}" if shown else None


# Name, what it is against, the policy, the tool, how many calls, and the tool's effect.
Row = tuple[str, str, Policy, str, int, str]


def _probe_of(row: Row) -> Probe:
    name, against, under, tool, times, effect = row
    return Probe(name, against, lambda _: _nth_refused(under, tool, times, effect))


def _lists(policy: Policy) -> Iterator[Row]:
    access = replace(plain(policy), access=policy.access)
    for tool in policy.access.deny[:1]:
        yield "access_deny", "a denied tool", access, tool, 1, "read"
    for _ in policy.access.allow[:1]:
        yield "access_allow", "a tool that is not on the list", access, "probe_not_on_the_list", 1, "read"
    for tool in list(policy.access.roles)[:1]:
        yield "roles", "a caller without the role", access, tool, 1, "read"
    approvals = replace(plain(policy), approvals=policy.approvals)
    for tool in policy.approvals.tools[:1]:
        yield "approval_tools", "a call that asks first", approvals, tool, 1, "read"
    for effect in policy.approvals.effects[:1]:
        yield "approval_effects", "an effect that asks first", approvals, "probe", 1, effect


def _counts(policy: Policy) -> Iterator[Row]:
    base = plain(policy)
    for number, limit in enumerate(policy.limits):
        if limit.calls is not None and limit.calls <= _MOST_CALLS:
            tool = "probe" if limit.tool == "*" else limit.tool
            under = replace(base, limits=(replace(limit, amount=None, field=None),))  # sums have a probe of their own
            yield f"limit_{number}", "more calls than the limit", under, tool, limit.calls + 1, "read"
    for name in ("calls", "rounds"):
        most = getattr(policy.budgets, name)
        if most is not None and most <= _MOST_CALLS:
            under = replace(base, budgets=BudgetPolicy(**{name: most}))
            yield f"budget_{name}", f"more {name} than the budget", under, "probe", most + 1, "read"


def _amounts(policy: Policy) -> Iterator[Probe]:
    for number, limit in enumerate(policy.limits):
        if limit.amount is not None and limit.field is not None:

            def fire(given: Policy, limit: LimitPolicy = limit, field: str = limit.field) -> str | None:
                over = 2 * (limit.amount or 0) + 1
                schema = {"type": "object", "properties": {field: {"type": "number"}}, "required": [field]}
                tool = Tool("probe" if limit.tool == "*" else limit.tool, input_schema=schema)
                under = replace(plain(given), limits=(replace(limit, calls=None),))
                return _last_refused(guarded(under, tool), tool, [{field: over}])

            yield Probe(f"limit_{number}_amount", "more than the limit on an argument", fire)


def _spent(policy: Policy) -> Iterator[Probe]:
    """Budgets that no number of calls uses up: tokens are reported, and time is let pass."""
    tokens, seconds = policy.budgets.tokens, policy.budgets.seconds
    if tokens is not None:

        def report(given: Policy) -> str | None:
            tool = Tool()
            guard = guarded(replace(plain(given), budgets=BudgetPolicy(tokens=tokens)), tool)
            return _last_refused(guard, tool, [{"item": "a"}], tokens=tokens + 1)

        yield Probe("budget_tokens", "more tokens than the budget", report)
    if seconds is not None:

        def wait(given: Policy) -> str | None:
            tool, clock = Tool(), FrozenClock()
            under = replace(plain(given), budgets=BudgetPolicy(seconds=seconds))
            guard = Guard([tool.contract], config=under, clock=clock)
            return _last_refused(guard, tool, [{"item": "a"}], clock=clock, seconds=seconds + 1.0)

        yield Probe("budget_seconds", "more seconds than the budget", wait)


_MOST_CALLS: Final = 10_000


def _nth_refused(policy: Policy, name: str, times: int, effect: str) -> str | None:
    """None if the last of these calls was refused before its tool ran."""
    tool = Tool(name, effect=effect)
    return _last_refused(guarded(policy, tool), tool, [{"item": f"a{number}"} for number in range(times)])


def _last_refused(
    guard: Guard,
    tool: Tool,
    given: list[dict[str, Any]],
    *,
    tokens: int = 0,
    clock: FrozenClock | None = None,
    seconds: float = 0.0,
) -> str | None:
    """None if, after so many tokens and seconds, the last of the calls was refused before its tool ran."""
    try:
        run = guard.run("probe", principal="probe")
        run.usage(tokens)
        if clock is not None:
            clock.advance(seconds)
        outcomes = [run.call(ToolCall(f"call_{number}", tool.contract.name, one)) for number, one in enumerate(given)]
        return refused(outcomes[-1], tool, runs=len(given) - 1)
    finally:
        guard.close()
