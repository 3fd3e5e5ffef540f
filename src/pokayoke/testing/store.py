"""A store that fails on demand."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

FailOn = str | Iterable[str] | Mapping[str, Iterable[int]] | Callable[[str, int], bool]


class FailingStore:
    """Wraps a store; calls of its methods fail where told, the rest goes through.

    Args:
        store: the real one.
        fail_on: which calls fail: the name of a method (every call of it), several names, a mapping
            of a name to the numbers of its calls (1 for the first), or a function
            `(name, number) -> bool`.
        after: True lets the store do it first and loses only the answer, as a cut connection does.
        error: makes the exception that is raised.

    Attributes:
        calls: name of every method that was called, in order.
        failed: name of every call that was made to fail, in order.
    """

    def __init__(
        self,
        store: Any,
        fail_on: FailOn = (),
        *,
        after: bool = False,
        error: Callable[[], BaseException] = lambda: OSError("the store cannot be reached"),
    ) -> None:
        self.calls: list[str] = []
        self.failed: list[str] = []
        self._store = store
        self._fails = _rule(fail_on)
        self._after = after
        self._error = error
        self._lock = threading.Lock()

    def fail_on(self, rule: FailOn) -> None:
        """Change which calls fail from now on; `()` heals the store. Numbers go on counting."""
        self._fails = _rule(rule)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if name.startswith("_") or not callable(value):
            return value
        return self._awaited(name, value) if inspect.iscoroutinefunction(value) else self._called(name, value)

    def _called(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._due(name):
                return method(*args, **kwargs)
            if self._after:
                method(*args, **kwargs)
            raise self._error()

        return call

    def _awaited(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            if not self._due(name):
                return await method(*args, **kwargs)
            if self._after:
                await method(*args, **kwargs)
            raise self._error()

        return call

    def _due(self, name: str) -> bool:
        with self._lock:
            self.calls.append(name)
            due = self._fails(name, self.calls.count(name))
            if due:
                self.failed.append(name)
            return due


def _rule(rule: FailOn) -> Callable[[str, int], bool]:
    if callable(rule):
        return rule
    if isinstance(rule, str):
        return lambda name, _: name == rule
    if isinstance(rule, Mapping):
        numbers = {name: frozenset(which) for name, which in cast("Mapping[str, Iterable[int]]", rule).items()}
        return lambda name, number: number in numbers.get(name, ())
    names = frozenset(rule)
    return lambda name, _: name in names
