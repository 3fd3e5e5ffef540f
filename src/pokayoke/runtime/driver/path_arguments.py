"""Resolves path arguments inside their roots.

In: the text that a model wrote.
Out: confined paths, or the finding of the first one that is malformed or escapes.
Never: a path that was not proven to lie inside its roots.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.gate.paths import check_path
from pokayoke.core.gate.rules import malformed_path_finding
from pokayoke.core.json.values import is_array
from pokayoke.core.schema.facts import facts_at
from pokayoke.errors import PathEscape
from pokayoke.runtime.files.workspace import ConfinedPath, confine


def resolve_path_arguments(contract: Contract, arguments: dict[str, Any]) -> dict[str, Any] | Finding:
    """Resolve every path argument that is present and not null, and the declared default of one that is absent.

    Returns:
        argument name to `ConfinedPath` (or a list of them), or the finding of the first that is no text or escapes.
    """
    found: dict[str, Any] = {}
    for name, roots in contract.paths.items():
        value = arguments[name] if name in arguments else _default_path(contract, name, roots)
        if value is None:
            continue
        place = name
        try:
            if isinstance(value, list):
                found[name] = several = list[ConfinedPath]()
                for number, item in enumerate(cast("list[object]", value)):
                    place = f"{name}/{number}"
                    several.append(confine(item, roots))
            else:
                found[name] = confine(value, roots)
        except PathEscape as escape:
            # What any path says by its text comes before what the disk says of one.
            if (malformed := malformed_path_finding(contract.paths, arguments)) is not None:
                return malformed
            return msgspec.structs.replace(cast("Finding", escape.finding), at=f"/{place}")
    return found


def _default_path(contract: Contract, name: str, roots: tuple[str, ...]) -> Any:
    """Return the path or paths a tool uses where the model sends none. What is outside the roots is its own affair."""
    for default in facts_at(contract.input, (name,)).defaults:
        if all(check_path(one, roots) is None for one in (default if is_array(default) else (default,))):
            return default
    return None
