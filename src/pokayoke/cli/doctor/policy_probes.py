"""Probes for what a configuration itself declares: lists, approvals, limits, budgets, hidden fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from pokayoke.cli.doctor.probes import CANARY, Probe, ProbeTool, build_guard, expect_refused, relax_policy
from pokayoke.core.call import ToolCall
from pokayoke.core.policy import BudgetPolicy, LimitPolicy, Policy
from pokayoke.core.redaction.known_secrets import HIDDEN
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.runtime.guard.guard import Guard
from pokayoke.testing.clock import FrozenClock


def build_policy_probes(policy: Policy) -> list[Probe]:
    """Return the probes for a configuration's own lists, approvals, limits and budgets."""
    fields = policy.trace.redact_fields
    hidden = [Probe("redact_fields", "a field that trace.redact_fields names", _probe_redact_fields)] if fields else []
    return [
        *hidden,
        *map(_build_probe, (*_access_rows(policy), *_call_limit_rows(policy))),
        *_amount_probes(policy),
        *_budget_probes(policy),
    ]


def unreachable_limits(policy: Policy) -> list[str]:
    """Return the limits on calls that are too high for a probe to reach."""
    budgets = [(f"budgets.{name}", getattr(policy.budgets, name)) for name in ("calls", "rounds")]
    limits = [(f"limits[{number}].calls", limit.calls) for number, limit in enumerate(policy.limits)]
    return [name for name, most in (*limits, *budgets) if most is not None and most > _MOST_CALLS]


def _probe_redact_fields(policy: Policy) -> str | None:
    redactor = Redactor(policy.trace.redact_fields, policy.trace.redact_patterns)
    shown = [name for name in policy.trace.redact_fields if redactor.redact_value({name: CANARY}) != {name: HIDDEN}]
    return f"shown: {', '.join(shown)}" if shown else None


# Name, the fault, the policy, the tool, how many calls, and the tool's effect.
ProbeRow = tuple[str, str, Policy, str, int, str]


def _build_probe(row: ProbeRow) -> Probe:
    name, against, under, tool, times, effect = row
    return Probe(name, against, lambda _: _expect_nth_refused(under, tool, times, effect))


def _access_rows(policy: Policy) -> Iterator[ProbeRow]:
    access = replace(relax_policy(policy), access=policy.access)
    for tool in policy.access.deny[:1]:
        yield "access_deny", "a denied tool", access, tool, 1, "read"
    for _ in policy.access.allow[:1]:
        yield "access_allow", "a tool that is not on the list", access, "probe_not_on_the_list", 1, "read"
    for tool in list(policy.access.roles)[:1]:
        yield "roles", "a caller without the role", access, tool, 1, "read"
    approvals = replace(relax_policy(policy), approvals=policy.approvals)
    for tool in policy.approvals.tools[:1]:
        yield "approval_tools", "a call that asks first", approvals, tool, 1, "read"
    for effect in policy.approvals.effects[:1]:
        yield "approval_effects", "an effect that asks first", approvals, "probe", 1, effect


def _call_limit_rows(policy: Policy) -> Iterator[ProbeRow]:
    base = relax_policy(policy)
    for number, limit in enumerate(policy.limits):
        if limit.calls is not None and limit.calls <= _MOST_CALLS:
            tool = "probe" if limit.tool == "*" else limit.tool
            under = replace(base, limits=(replace(limit, amount=None, field=None),))  # sums have probes of their own
            yield f"limit_{number}", "more calls than the limit", under, tool, limit.calls + 1, "read"
    for name in ("calls", "rounds"):
        most = getattr(policy.budgets, name)
        if most is not None and most <= _MOST_CALLS:
            under = replace(base, budgets=BudgetPolicy(**{name: most}))
            yield f"budget_{name}", f"more {name} than the budget", under, "probe", most + 1, "read"


def _amount_probes(policy: Policy) -> Iterator[Probe]:
    for number, limit in enumerate(policy.limits):
        if limit.amount is not None and limit.field is not None:

            def fire_amount(given: Policy, limit: LimitPolicy = limit, field: str = limit.field) -> str | None:
                over = 2 * (limit.amount or 0) + 1
                schema = {"type": "object", "properties": {field: {"type": "number"}}, "required": [field]}
                tool = ProbeTool("probe" if limit.tool == "*" else limit.tool, input_schema=schema)
                under = replace(relax_policy(given), limits=(replace(limit, calls=None),))
                return _expect_last_refused(build_guard(under, tool), tool, [{field: over}])

            yield Probe(f"limit_{number}_amount", "more than the limit on an argument", fire_amount)


def _budget_probes(policy: Policy) -> Iterator[Probe]:
    """Yield probes for budgets that calls do not use up: tokens are reported, and the clock is advanced."""
    tokens, seconds = policy.budgets.tokens, policy.budgets.seconds
    if tokens is not None:

        def spend_tokens(given: Policy) -> str | None:
            tool = ProbeTool()
            guard = build_guard(replace(relax_policy(given), budgets=BudgetPolicy(tokens=tokens)), tool)
            return _expect_last_refused(guard, tool, [{"item": "a"}], tokens=tokens + 1)

        yield Probe("budget_tokens", "more tokens than the budget", spend_tokens)
    if seconds is not None:

        def spend_time(given: Policy) -> str | None:
            tool, clock = ProbeTool(), FrozenClock()
            under = replace(relax_policy(given), budgets=BudgetPolicy(seconds=seconds))
            guard = Guard([tool.contract], config=under, clock=clock)
            return _expect_last_refused(guard, tool, [{"item": "a"}], clock=clock, seconds=seconds + 1.0)

        yield Probe("budget_seconds", "more seconds than the budget", spend_time)


_MOST_CALLS: Final = 10_000


def _expect_nth_refused(policy: Policy, name: str, times: int, effect: str) -> str | None:
    """Return None if the last of these calls was refused before its tool ran."""
    tool = ProbeTool(name, effect=effect)
    return _expect_last_refused(build_guard(policy, tool), tool, [{"item": f"a{number}"} for number in range(times)])


def _expect_last_refused(
    guard: Guard,
    tool: ProbeTool,
    given: list[dict[str, Any]],
    *,
    tokens: int = 0,
    clock: FrozenClock | None = None,
    seconds: float = 0.0,
) -> str | None:
    """Return None if, after these tokens and seconds, the last call was refused before its tool ran."""
    try:
        run = guard.run("probe", principal="probe")
        run.usage(tokens)
        if clock is not None:
            clock.advance(seconds)
        outcomes = [run.call(ToolCall(f"call_{number}", tool.contract.name, one)) for number, one in enumerate(given)]
        return expect_refused(outcomes[-1], tool, runs=len(given) - 1)
    finally:
        guard.close()
