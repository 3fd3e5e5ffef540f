"""The arguments that a tool receives: a copy, with its paths resolved and its key filled in.

In: the effective arguments.
Out: arguments that the tool may change.
Never: a change that reaches what was checked, approved, claimed or traced, or what a second attempt gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from pokayoke.core.contract.contract import Contract


def build_tool_arguments(
    contract: Contract,
    arguments: dict[str, Any],
    located: Mapping[str, Any] | None,
    key: str | None,
    *,
    is_sole_owner: bool = False,
) -> dict[str, Any]:
    """Return the arguments as a tool gets them, sharing no list or object with the ones given.

    Args:
        contract: the tool's contract.
        arguments: the effective arguments, JSON values.
        located: path arguments resolved inside their roots, or None.
        key: the ledger key, for the contract's `key_argument`.
        is_sole_owner: True if nothing else holds the arguments: then they themselves are returned.
    """
    given = arguments if is_sole_owner else _copy_arguments(arguments)
    if located:
        for name, place in located.items():
            given[name] = [*place] if type(place) is list else place
    if contract.key_argument is not None:
        given[contract.key_argument] = key
    return given


def _copy_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any]
    try:  # through its text, which is quicker than a walk, unless that would lose digits
        copy = orjson.loads(orjson.dumps(arguments))
    except TypeError:  # integers beyond 64 bits
        copy = _copy_value(arguments)
    return copy


def _copy_value(value: Any) -> Any:
    if value.__class__ is dict:
        return {name: _copy_value(item) for name, item in cast("dict[str, Any]", value).items()}
    if value.__class__ is list:
        return [_copy_value(item) for item in value]
    return value
