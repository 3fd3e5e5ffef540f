"""What a guard is given to work with: refused while building, if it could not work later."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, cast

from pokayoke.core.contract.contract import Contract
from pokayoke.core.state.loop_guard import Kind
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.threads.clock import Clock, SystemClock
from pokayoke.stores import open_store
from pokayoke.stores.base import Store


def as_tools(tools: Iterable[Contract | Callable[..., Any]]) -> tuple[Contract | Callable[..., Any], ...]:
    """Return the tools that a guard was given.

    Raises:
        ConfigurationError: they are no list.
    """
    if isinstance(tools, str) or not isinstance(cast(object, tools), Iterable):
        raise ConfigurationError(f"tools is a list of contracts, such as [pay, find], not {tools!r}")
    return tuple(tools)


def as_failure_kinds(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Return the kinds of failure that a guard was given.

    Raises:
        ConfigurationError: they are no list of kinds.
    """
    given = tuple(kinds) if isinstance(cast(object, kinds), Iterable) else (kinds,)
    for kind in given:
        if not isinstance(kind, Kind):
            raise ConfigurationError(f"loop_kinds is a list of Kind(name, what, ...), not of {kind!r}")
    return cast("tuple[Kind, ...]", given)


def as_store(store: str | Store | None) -> Store:
    """Return the store that a guard was given, opened if it is named by its URL.

    Raises:
        ConfigurationError: it is neither a URL nor a store.
        StoreError: it cannot be opened.
    """
    if store is None or isinstance(store, str):
        return open_store(store)
    if not callable(getattr(cast(object, store), "admit", None)):
        raise ConfigurationError(f"store is a URL such as sqlite:///ledger.db, a store or None; not {store!r}")
    return store


_users: dict[int, weakref.WeakSet[Any]] = {}
"""The guards of a store, which keep it alive, by its `id`: a host's own may equal another, or have no hash."""


def share_store(store: Store, user: object) -> Callable[[], None]:
    """Say that a guard uses a store. What is returned lets go of it: the last one that does closes it."""
    users = _users.setdefault(id(store), weakref.WeakSet())
    users.add(user)
    mine = weakref.ref(user)  # or the guard would live as long as what it is let go with

    def release_store() -> None:
        if (user := mine()) is not None:
            users.discard(user)
        if not users:
            _users.pop(id(store), None)
            store.close()

    return release_store


def as_clock(clock: Clock | None) -> Clock:
    """Return the clock that a guard was given, or the machine's.

    Raises:
        ConfigurationError: it is no clock.
    """
    if clock is None:
        return SystemClock()
    lacking = [name for name in ("now", "monotonic", "sleep", "asleep") if not callable(getattr(clock, name, None))]
    if lacking:
        raise ConfigurationError(f"clock has no {', '.join(lacking)}(); see pokayoke.testing.FrozenClock for one")
    return clock
