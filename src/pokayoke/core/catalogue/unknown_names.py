"""Names in a policy or contract that match no tool or argument.

In: a policy, and the tools of a guard or a command.
Out: the place of each such name, and the nearest known name.
Never: an error: a guard refuses to be built, a command reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pokayoke.core.contract.arguments import declared_arguments
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.importers import did_you_mean
from pokayoke.core.contract.limits import amount_problem
from pokayoke.core.policy import LimitPolicy, Policy
from pokayoke.core.schema.facts import facts_at

Place = tuple[str | int, ...]


def unknown_names(
    policy: Policy, contracts: Sequence[Contract], also: Iterable[str] = ()
) -> Iterator[tuple[Place, str]]:
    """Yield each place of a policy that names no tool, or an argument that its tool does not have.

    Args:
        policy: the policy.
        contracts: every version of every tool it is for.
        also: names of tools that the guard itself adds.

    Yields:
        Keys and indexes of the place, and its problem.
    """
    names = {contract.name for contract in contracts}
    known = names | set(also)
    for place, name in named_tools(policy):
        if name not in known:
            yield place, f"names {name!r}, which matches no tool, so it has no effect. {did_you_mean([name], names)}"
    for number, one in enumerate(policy.approvals.amounts):
        meant = [contract for contract in contracts if contract.name == one.tool]
        asked = LimitPolicy(tool=one.tool, field=one.field, amount=one.above)
        if (
            meant
            and (wrong := _limit_field_problem(asked, one.field, meant, "a person would be asked about every call"))
            is not None
        ):
            yield ("approvals", "amounts", number, "field"), wrong
    for number, limit in enumerate(policy.limits):
        limited = [contract for contract in contracts if limit.tool in ("*", contract.name)]
        wrong = _limit_field_problem(limit, limit.field, limited) if limit.field is not None and limited else None
        if wrong is not None:
            yield ("limits", number, "field"), wrong
        if limit.tool == "*" and limit.field is not None and limit.amount is not None:
            for contract in contracts:  # limits on one tool are validated earlier
                if facts_at(contract.input, (limit.field,)).nodes and (why := amount_problem(contract, limit.field)):
                    yield ("limits", number, "field"), f"counts {limit.field!r} of {contract.id}, {why}"


def unknown_sources(contracts: Sequence[Contract], also: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the id of each contract whose `sources` name no tool, and the problem.

    Args:
        contracts: every version of every tool.
        also: names of tools that the guard itself adds.
    """
    names = {contract.name for contract in contracts}
    known = names | set(also)
    for contract in contracts:
        for name in contract.sources or ():
            if name not in known:
                wrong = f"sources names {name!r}, which matches no tool, so no invalid output of it stops this one."
                yield contract.id, f"{wrong} {did_you_mean([name], names)}"


def named_tools(policy: Policy) -> Iterator[tuple[Place, str]]:
    """Yield each place of a policy that names a tool, and the name."""
    access = policy.access
    for key, names in (("allow", access.allow), ("deny", access.deny)):
        yield from ((("access", key, number), name) for number, name in enumerate(names))
    yield from ((("access", "roles", name), name) for name in access.roles)
    yield from ((("approvals", "tools", number), name) for number, name in enumerate(policy.approvals.tools))
    yield from ((("untrusted", "tools", name), name) for name in policy.untrusted.tools)
    approvals = policy.approvals
    yield from ((("approvals", "amounts", number, "tool"), one.tool) for number, one in enumerate(approvals.amounts))
    yield from (
        (("approvals", "second_approver", number), name) for number, name in enumerate(approvals.second_approver)
    )
    limits = enumerate(policy.limits)
    yield from ((("limits", number, "tool"), limit.tool) for number, limit in limits if limit.tool != "*")


def _limit_field_problem(
    limit: LimitPolicy, field: str, limited: Sequence[Contract], follows: str = "it limits nothing"
) -> str | None:
    """Return the problem of a limit's field if none of the limited tools has that argument."""
    known: set[str] = set()
    for contract in limited:
        arguments, complete = declared_arguments(contract.input)
        anything = not arguments and contract.input_schema.get("additionalProperties") is not False
        if field in arguments or anything or not complete:
            return None
        known.update(arguments)
    whose = "no tool has" if limit.tool == "*" else f"{limit.tool} does not have"
    return f"counts {field!r}, which {whose}: {follows}. {did_you_mean([field], known)}"
