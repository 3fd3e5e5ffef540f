"""Path arguments: from the text a model wrote to a place that is proven to lie inside its roots."""

from __future__ import annotations

from typing import Any, cast

from pokayoke.core.call import Finding
from pokayoke.core.contract import Contract
from pokayoke.errors import PathEscape
from pokayoke.runtime.workspace import ConfinedPath, confine


def locate(contract: Contract, arguments: dict[str, Any]) -> dict[str, Any] | Finding:
    """Resolve every path argument that is present.

    Returns:
        argument name to `ConfinedPath` (or a list of them), or the finding of the first that escapes.
    """
    found: dict[str, Any] = {}
    for name, roots in contract.paths.items():
        value = arguments.get(name)
        try:
            if isinstance(value, str):
                found[name] = confine(value, roots, at=f"/{name}")
            elif isinstance(value, list):
                items = enumerate(cast("list[object]", value))
                found[name] = [_confined(item, roots, f"/{name}/{place}") for place, item in items]
        except PathEscape as escape:
            return cast("Finding", escape.finding)
    return found


def _confined(item: object, roots: tuple[str, ...], at: str) -> ConfinedPath | object:
    return confine(item, roots, at=at) if isinstance(item, str) else item
