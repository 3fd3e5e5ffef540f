"""The call of a tool: the arguments it receives, and its answer as a reaction.

In: the effective arguments, and a function that runs the tool.
Out: arguments that the tool may change; what it returned or raised.
Never: a change by the tool that reaches what was checked, approved, claimed or traced, or a second attempt.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

import orjson

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.steps import Raised, Reaction, Returned
from pokayoke.core.json.values import kind_of

PLAIN_TYPES = frozenset((str, dict, list, bytes, int, float, bool, type(None)))
"""Types that are neither awaitable nor lazy. The lookup is cheaper than a failing `hasattr`."""


def build_tool_arguments(
    contract: Contract,
    arguments: dict[str, Any],
    located: Mapping[str, Any] | None,
    key: str | None,
    *,
    is_sole_owner: bool = False,
) -> dict[str, Any]:
    """Return the arguments for a tool: a copy, with confined paths and URLs, and the key filled in.

    Args:
        contract: the tool's contract.
        arguments: the effective arguments, JSON values.
        located: path and URL arguments as the tool gets them, or None.
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
    try:  # a round trip through JSON is quicker than a walk
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


def is_awaitable_result(reaction: Reaction) -> TypeGuard[Returned]:
    """Return whether a tool returned an awaitable, so that it has not done anything yet."""
    if type(reaction) is not Returned:
        return False
    kind = kind_of(reaction.value)
    return kind not in PLAIN_TYPES and hasattr(kind, "__await__")


def close_coroutine(pending: Any) -> None:
    """Close an unawaited coroutine so that Python does not warn about ours."""
    if inspect.iscoroutine(pending):
        pending.close()


def capture_result(function: Callable[[], Any]) -> Reaction:
    """Call a user's function. Whatever it raises becomes a reaction; only Ctrl-C goes through."""
    try:
        return Returned(function())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit in a tool must not end the host
        return Raised(error)
