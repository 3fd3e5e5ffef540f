"""Resolves path arguments inside their roots, and puts URL arguments under their rules.

In: the text that a model wrote.
Out: confined paths and URLs, or the finding of the first one that is malformed, escapes or is refused.
Never: a path that was not proven to lie inside its roots, or a URL that its rule does not allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.gate.paths import check_path
from pokayoke.core.gate.rules import malformed_path_finding, refused_url_finding
from pokayoke.core.gate.urls import check_url
from pokayoke.core.json.values import is_array
from pokayoke.core.schema.facts import facts_at
from pokayoke.errors import PathEscape
from pokayoke.runtime.files.workspace import ConfinedPath, confine
from pokayoke.runtime.network.confined_url import confine_url


def confine_arguments(contract: Contract, arguments: dict[str, Any]) -> dict[str, Any] | Finding:
    """Resolve every path argument, and put every URL argument under its rule.

    Returns:
        argument name to what the tool gets in its place, or the first finding.
    """
    found = resolve_path_arguments(contract, arguments) if contract.paths else {}
    if isinstance(found, Finding) or not contract.urls:
        return found
    refused = refused_url_finding(contract.urls, arguments)
    return {**found, **_confine_urls(contract, arguments)} if refused is None else refused


def _confine_urls(contract: Contract, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the URLs of arguments whose texts were checked, and the declared defaults of absent ones."""
    found: dict[str, Any] = {}
    for name, rule in contract.urls.items():
        value = arguments[name] if name in arguments else _default_value(contract, name, _url_check(rule))
        if value is not None:
            found[name] = [confine_url(one, rule) for one in value] if is_array(value) else confine_url(value, rule)
    return found


def _url_check(rule: UrlRule) -> Callable[[Any], Finding | None]:
    return lambda url: check_url(url, rule)


def _path_check(roots: tuple[str, ...]) -> Callable[[Any], Finding | None]:
    return lambda path: check_path(path, roots)


def resolve_path_arguments(contract: Contract, arguments: dict[str, Any]) -> dict[str, Any] | Finding:
    """Resolve every path argument that is present and not null, and the declared default of one that is absent.

    Returns:
        argument name to `ConfinedPath` (or a list of them), or the finding of the first that is no text or escapes.
    """
    found: dict[str, Any] = {}
    for name, roots in contract.paths.items():
        value = arguments[name] if name in arguments else _default_value(contract, name, _path_check(roots))
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


def _default_value(contract: Contract, name: str, check: Callable[[Any], Finding | None]) -> Any:
    """Return what a tool uses where the model sends nothing. A default that the check refuses is its own affair."""
    for default in facts_at(contract.input, (name,)).defaults:
        if all(check(one) is None for one in (default if is_array(default) else (default,))):
            return default
    return None
