"""Limits that a contract or a policy declares: whether they limit anything, and what amounts they count."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from pokayoke.core.ledger.admission import amount_size
from pokayoke.core.policy import LimitPolicy
from pokayoke.core.schema.facts import facts_at
from pokayoke.errors import ContractError

if TYPE_CHECKING:
    from pokayoke.core.contract.contract import Contract


def limit_problems(limit: LimitPolicy) -> Iterator[str]:
    """Yield the problems of a limit, without its name in front."""
    if limit.calls is None and limit.amount is None:
        yield "limits nothing. Give it `calls`, or `amount` with `field`."
    if (limit.amount is None) != (limit.field is None):
        yield "needs `amount` and `field` together: the sum, and of which argument."


def option_problems(contract: Contract) -> Iterator[str]:
    """Yield the problems of a contract's options, which no reader of a file has validated."""
    written = [("quota", limit) for limit in contract.quota]
    for name, options in written if contract.retry is None else [("retry", contract.retry), *written]:
        try:
            msgspec.convert(msgspec.to_builtins(options), type(options))
        except (TypeError, ValueError) as error:
            yield f"{name} holds what no file could say: {error}"
    for limit in contract.quota:
        if limit.tool not in ("*", contract.name):
            yield f"quota names {limit.tool!r}, and a contract limits its own tool: leave `tool` out"
        yield from (f"quota {problem}" for problem in limit_problems(limit))


def contract_limits(contract: Contract) -> tuple[LimitPolicy, ...]:
    """Return the limits of a contract, restricted to its own tool."""
    return tuple(msgspec.structs.replace(limit, tool=contract.name) for limit in contract.quota)


def default_amounts(contract: Contract, limits: tuple[LimitPolicy, ...]) -> dict[str, Any]:
    """Return the amounts of the limited arguments that a call leaves out: their declared defaults, or null.

    Null stands for an argument that the tool has and whose default is unknown. It cannot be measured, so such a call
    exceeds every limit. A tool without the argument spends nothing of it.

    Raises:
        ContractError: a limit for this very tool counts such an argument, or one that is no number: every call
            without it, or with it, would be refused.
    """
    found: dict[str, Any] = {}
    required = facts_at(contract.input, ()).required if limits else frozenset[str]()
    for limit in limits:
        name = limit.field
        if name is None or limit.amount is None:
            continue
        facts = facts_at(contract.input, (name,))
        defaults = [default for default in facts.defaults if default is not None]
        if not facts.nodes:
            continue
        if limit.tool == contract.name and (wrong := amount_problem(contract, name)) is not None:
            raise ContractError(f"{contract.name}: a limit counts {name!r}, {wrong}")
        found[name] = max(defaults, key=amount_size) if defaults else None
        if not defaults and name not in required and limit.tool == contract.name:
            raise ContractError(
                f"{contract.name}: a limit counts {name!r}, which a call may leave out, and nobody knows what it is "
                "then. Make it required, or declare a default in the input schema (0 if it stands for nothing)"
            )
    return found


def amount_problem(contract: Contract, name: str) -> str | None:
    """Return why the amount of an argument cannot be summed, and what to do; None if it may be a number.

    A text may be a number if the schema describes its texts: by a pattern, by an unknown format (`decimal`), or by
    choices or a default that are numbers.
    """
    facts = facts_at(contract.input, (name,))
    if not facts.types or facts.types & {"number", "integer", "boolean"}:
        return None
    described = any("pattern" in node for node in facts.nodes) or facts.formats & {*contract.input.unknown_formats}
    known = [*facts.choices, *facts.defaults]
    if (described and "string" in facts.types) or any(amount_size(value) != math.inf for value in known):
        return None
    kinds = " or ".join(sorted(facts.types))
    return (
        f"which is declared as {kinds}, not as a number: it cannot be summed up, so every call with it would be "
        "refused. Count an argument that is a number, declare this one as a number (or, for amounts written as text, "
        "with a pattern), or limit `calls`"
    )
