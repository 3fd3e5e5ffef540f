"""Limits that a contract or a configuration declares: whether they limit anything, and whose calls they count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from pokayoke.core.policy import LimitPolicy

if TYPE_CHECKING:
    from pokayoke.core.contract.contract import Contract


def limit_problems(limit: LimitPolicy) -> Iterator[str]:
    """Yield why a limit cannot be kept, without its name in front."""
    if limit.calls is None and limit.amount is None:
        yield "limits nothing. Give it `calls`, or `amount` with `field`."
    if (limit.amount is None) != (limit.field is None):
        yield "needs `amount` and `field` together: the sum, and of which argument."


def option_problems(contract: Contract) -> Iterator[str]:
    """Yield what is wrong with the options that a contract brings along: nobody has read them from a file."""
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
    """Return the limits of a contract; what they count is counted for this tool and no other."""
    return tuple(msgspec.structs.replace(limit, tool=contract.name) for limit in contract.quota)
