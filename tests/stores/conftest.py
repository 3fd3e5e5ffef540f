"""Every store, empty, behind one fixture."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pgserver import Missing, empty_schema

from pokayoke.stores import MemoryStore, Store, open_store


class Site:
    """A place where a store lies, and every store that was opened there.

    Attributes:
        kind: name of the kind of store.
        url: what opens it, or None for memory.
    """

    def __init__(self, kind: str, url: str | None = None) -> None:
        self.kind, self.url = kind, url
        self._memory = MemoryStore() if url is None else None
        self._opened: list[Store] = []

    def open(self, *, create: bool = True) -> Store:
        """Open one more store on the same data."""
        if self._memory is not None:
            return self._memory
        self._opened.append(open_store(self.url, create=create))
        return self._opened[-1]

    def close(self) -> None:
        """Close what was opened."""
        for store in self._opened:
            store.close()


def _memory(_: Path, __: ExitStack, ___: Callable) -> Site:
    return Site("memory")


def _sqlite(folder: Path, _: ExitStack, __: Callable) -> Site:
    return Site("sqlite", f"sqlite:///{folder}/ledger.db")


def _sqlite3(folder: Path, _: ExitStack, __: Callable) -> Site:
    return Site("sqlite3", f"sqlite:///{folder}/ledger.db?library=sqlite3")


def _postgres(_: Path, stack: ExitStack, need: Callable) -> Site:
    try:
        return Site("postgres", stack.enter_context(empty_schema()))
    except Missing as missing:
        need(str(missing))


# Each takes a folder, what ends with the test, and the function to call where this machine lacks something.
MAKERS: dict[str, Callable[[Path, ExitStack, Callable], Site]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "sqlite3": _sqlite3,
    "postgres": _postgres,
}


# One server for all: its advisory locks do not know of schemas, so tests that use it run one after the other.
KINDS = [
    pytest.param(kind, marks=pytest.mark.xdist_group("postgres")) if kind == "postgres" else kind for kind in MAKERS
]


def _made(request, folder, need) -> Iterator[Site]:
    with ExitStack() as stack:
        site = MAKERS[request.param](folder, stack, need)
        stack.callback(site.close)
        yield site


@pytest.fixture(params=KINDS)
def site(request, tmp_path, need) -> Iterator[Site]:
    """Each kind of store."""
    yield from _made(request, tmp_path, need)


@pytest.fixture(params=KINDS[1:])
def durable(request, tmp_path, need) -> Iterator[Site]:
    """Each kind of store that survives its process."""
    yield from _made(request, tmp_path, need)


@pytest.fixture
def store(site) -> Store:
    """A new store of each kind."""
    return site.open()
