"""What is known of a contract under a policy before the first call.

In: contracts and a policy.
Out: one `CallPlan` for each contract, and the snapshot that holds them.
Never: anything that depends on a call.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pokayoke.core.call import UNDECLARED, CorrectionKind, Finding
from pokayoke.core.catalogue.catalogue import Catalogue
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.limits import contract_limits, default_amounts
from pokayoke.core.gate.approval_rule import ApprovalRule
from pokayoke.core.gate.rules import Principal, Rule, access_finding, access_rule, rules_for
from pokayoke.core.output.last_known_good import keeps_last_good
from pokayoke.core.policy import (
    AccessPolicy,
    ApprovalPolicy,
    BudgetPolicy,
    IntakePolicy,
    LimitPolicy,
    Policy,
    RetryPolicy,
    ToolOutputPolicy,
    UntrustedMode,
)
from pokayoke.core.provenance.labels import Labels, ToolLabels, derive_labels, withdraw_trust
from pokayoke.core.state.loop_guard import KINDS, Kind, kinds_for
from pokayoke.core.versions.rollout import withdrawn_finding

_NO_RETRY = RetryPolicy(retries=0)


class CallPlan(msgspec.Struct, frozen=True):
    """How calls of one contract are treated.

    Attributes:
        contract: the contract.
        kinds: the classes of correction that may run.
        access: the rule that says who may call it; None if every caller may.
        rules: the other gate rules that can object.
        rules_if_certain: the rules that can object to a call without repairs and corrections, `access` first.
            Not those of its paths, which `ResolvePaths` refuses in the next step (except in monitor mode).
        limits: the limits that count its calls.
        default_amounts: what counts for the limited arguments that a call leaves out.
        asks: True if a person must approve each call.
        approval_rule: which calls need approval, and of how many people.
        trust: what the label of its output says: `checked` against a contract, or `unchecked`.
        keeps: True if a valid output may stand in for a later one that is not.
        labels: what the tool is to provenance.
        untrusted: what happens if its values do not come from the user or a trusted source.
        is_untrusted_declared: True if the operator chose that, and it does not follow from what the tool is.
        judges_sources: True if it is looked up where the values of its calls come from.
        needs_no_admission: True if only the run's own state and budgets can stop a prepared call: a read
            without limits and approval.
        retry: how transient failures are repeated.
        intake: how long and deep its arguments may be.
        output: what its output has to fulfil.
        timeout: the declared deadline in seconds, or None.
        lease: seconds a claim is believed to be alive.
    """

    contract: Contract
    kinds: tuple[CorrectionKind, ...]
    access: Rule | None
    rules: tuple[Rule, ...]
    rules_if_certain: tuple[Rule, ...]
    limits: tuple[LimitPolicy, ...]
    default_amounts: Mapping[str, Any]
    asks: bool
    approval_rule: ApprovalRule
    trust: str
    keeps: bool
    labels: ToolLabels
    untrusted: UntrustedMode
    is_untrusted_declared: bool
    judges_sources: bool
    needs_no_admission: bool
    retry: RetryPolicy
    intake: IntakePolicy
    output: ToolOutputPolicy
    timeout: float | None
    lease: float


class Snapshot(msgspec.Struct, frozen=True):
    """The contracts and the policy in force. A call sees exactly one snapshot."""

    policy: Policy
    catalogue: Catalogue
    plans: Mapping[str, CallPlan]
    """Every plan by its contract's id."""
    follows_sources: bool = False
    """True if it is followed where the values of calls come from."""
    keeps_taint: bool = False
    """True if a restart must not forget that a run has read untrusted content."""
    simple: Mapping[str, CallPlan] = {}
    """Plans by tool name, of contracts whose arguments only a schema checks: no user code runs."""
    budgeted: bool = False
    """True if any budget limits the runs."""
    kinds: tuple[Kind, ...] = KINDS
    """The kinds of failure the loop guard knows."""
    shadows: Mapping[str, Snapshot] = {}
    """By tool name, a snapshot of the candidate version, which judges the same calls for comparison."""

    def find_plan(self, name: str, offered: Callable[[], Sequence[str]] | None = None) -> CallPlan | Finding:
        """Return the plan for the name a model wrote, or the finding that no tool of this run has it.

        Args:
            name: the name.
            offered: gives the tools that the finding may speak of; None is all of them.
        """
        found = self.catalogue.resolve_name(name, offered)
        if isinstance(found, Finding):
            return found
        plan = self.plans.get(found.id)
        return plan if plan is not None else withdrawn_finding(found.name, found.version)

    def find_contract(self, name: str) -> Contract | None:
        """Return the contract in force that a name means; None if it means none."""
        found = self.catalogue.find_contract(name)
        return found if found is not None and found.id in self.plans else None

    def has_effect(self, contract_id: str | None) -> bool:
        """Say whether the contract of this id has an effect; False if there is none."""
        plan = self.plans.get(contract_id or "")
        return plan is not None and plan.contract.effect != "read"

    def offered_tools(self, principal: Principal | None) -> list[Contract]:
        """Return the tools that a caller may use; in monitor mode, where every call of them runs, all."""
        return [plan.contract for plan in self.plans.values() if self._may_call(plan, principal)]

    def is_offered(self, name: str, principal: Principal | None) -> bool | None:
        """Say whether a caller is offered the tool that a name means; None if it means none."""
        found = self.catalogue.find_contract(name)
        if found is None:
            return None
        plan = self.plans.get(found.id)
        return plan is not None and self._may_call(plan, principal)

    def _may_call(self, plan: CallPlan, principal: Principal | None) -> bool:
        return self.policy.mode == "monitor" or access_finding(plan.access, plan.contract, principal) is None


def build_snapshot(
    contracts: Iterable[Contract],
    policy: Policy,
    kinds: Iterable[Kind] = (),
    *,
    own: Iterable[Contract] = (),
    withdrawn: Container[str] = (),
    shadows: Iterable[Contract] = (),
) -> Snapshot:
    """Build the snapshot of these contracts under this policy.

    Args:
        contracts: one version per tool.
        policy: what is allowed.
        kinds: the host's own, for the loop guard.
        own: contracts of the guard's own tools, which need no entry in an allow-list.
        withdrawn: ids of contracts whose calls are all refused.
        shadows: candidate versions for comparison, one per tool.

    Raises:
        ContractError: two contracts claim one name, a name cannot be told from another, or a limit counts
            an unknown amount.
        PolicyError: the policy of the loop guard names an unknown kind of failure.
    """
    kept, ours = tuple(contracts), tuple(own)
    labels = withdraw_trust({contract.name: contract_labels(contract) for contract in (*kept, *ours)})
    plans = {
        contract.id: _build_plan(contract, policy, policy.access, labels[contract.name])
        for contract in kept
        if contract.id not in withdrawn
    }
    if ours:
        open_to_all = msgspec.structs.replace(policy.access, allow=())
        plans |= {contract.id: _build_plan(contract, policy, open_to_all, labels[contract.name]) for contract in ours}
    catalogue = Catalogue((*kept, *ours), prefixes=policy.validation.intake.prefixes)
    simple = {plan.contract.name: plan for plan in plans.values() if not plan.contract.input_hooks}
    budgeted = policy.budgets != BudgetPolicy()
    follows = any(plan.judges_sources for plan in plans.values())
    taints = any(plan.judges_sources and plan.untrusted in ("ask", "refuse") for plan in plans.values())
    beside = {contract.name: build_snapshot((contract,), policy, kinds) for contract in shadows}
    return Snapshot(policy, catalogue, plans, follows, taints, simple, budgeted, kinds_for(policy.loop, kinds), beside)


def contract_labels(contract: Contract) -> ToolLabels:
    """Return what a tool is to provenance: what its contract says, else what its name and schema do.

    Where nobody has declared an effect, a name that reads and does nothing else counts as a read here.
    """
    written = contract.labels or Labels()
    declared = None if contract.effect is UNDECLARED else contract.effect
    written = msgspec.structs.replace(
        written,
        effect=written.effect or declared,
        open_world=contract.open_world if written.open_world is None else written.open_world,
    )
    return derive_labels(contract.name, contract.description, contract.model_schema, written)


def untrusted_mode(contract: Contract, labels: ToolLabels, policy: Policy) -> tuple[UntrustedMode, bool]:
    """Return the mode of a tool, and whether the operator chose it."""
    chosen = policy.untrusted.tools.get(contract.name) or policy.untrusted.mode
    if chosen is not None:
        return chosen, True
    declared = contract.effect == "destructive" or contract.open_world is True
    if declared and not labels.reads:
        return "ask", False
    return "note", False


def _approval_rule(contract: Contract, approvals: ApprovalPolicy, *, asks: bool) -> ApprovalRule:
    """Return which calls of a contract need approval.

    Raises:
        ContractError: an amount cannot be measured, or nobody knows what it is where a call leaves it out.
    """
    amounts = tuple(one for one in approvals.amounts if one.tool == contract.name)
    measured = tuple(LimitPolicy(tool=one.tool, field=one.field, amount=one.above) for one in amounts)
    return ApprovalRule(asks, amounts, default_amounts(contract, measured), contract.name in approvals.second_approver)


def _build_plan(contract: Contract, policy: Policy, who: AccessPolicy, labels: ToolLabels) -> CallPlan:
    reads = contract.effect == "read"
    approvals = policy.approvals
    # Monitor mode lets every readable call run; only the ledger stays, against second effects.
    enforced = policy.mode == "enforce"
    asks = contract.approval or contract.name in approvals.tools or contract.effect in approvals.effects
    rule = _approval_rule(contract, approvals, asks=asks) if enforced else ApprovalRule()
    limits = (
        (*contract_limits(contract), *(x for x in policy.limits if x.tool in ("*", contract.name))) if enforced else ()
    )
    access = access_rule(contract, who)
    untrusted, is_declared = untrusted_mode(contract, labels, policy)
    judges = untrusted != "off" and (not labels.reads or bool(labels.hosts))
    return CallPlan(
        contract=contract,
        kinds=policy.corrections.read if reads else policy.corrections.write,
        access=access,
        rules=rules_for(contract, policy),
        rules_if_certain=(*(() if access is None else (access,)), *rules_for(contract, policy, certain=True)),
        limits=limits,
        default_amounts=default_amounts(contract, limits),
        asks=rule.always,
        approval_rule=rule,
        trust="unchecked" if contract.unchecked else "checked",
        keeps=keeps_last_good(contract),
        labels=labels,
        untrusted=untrusted,
        is_untrusted_declared=is_declared,
        judges_sources=judges,
        needs_no_admission=reads and not limits and not rule.may_ask,
        retry=contract.retry or (policy.retry if reads else _NO_RETRY),
        intake=policy.validation.intake,
        output=policy.validation.tool_output,
        timeout=contract.timeout,
        lease=(contract.timeout or policy.execution.timeout) + policy.execution.lease_margin_seconds,
    )
