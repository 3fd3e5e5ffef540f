"""All servers behind one gateway, and what they list together.

In: entries of the file.
Out: one listing of each kind, the server behind each name, and the state of every server.
Never: a server that hides another one, or an empty listing where a server could not be asked.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import anyio

from pokayoke.gateway.auth.references import References
from pokayoke.gateway.servers.server_file import UpstreamEntry
from pokayoke.gateway.servers.tool_names import public_name
from pokayoke.gateway.servers.upstream import UpstreamServer

_NAMED: Final = frozenset({"tools", "prompts"})
"""Kinds whose names are those that clients call; of the others it is the URI."""
_IDS: Final = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
_REFRESH_SECONDS: Final = 30.0


class Target(NamedTuple):
    """Where a name leads: the server, and what the server itself calls it."""

    upstream: UpstreamServer
    name: str


class ServerStatus(NamedTuple):
    """The state of one server, as people and clients are shown it.

    Attributes:
        name: its name in the file.
        state: `starting`, `ready`, `failed` or `stopped`.
        reason: why it is not ready.
        tools: how many of its tools are offered; None if it was never listed.
        left_out: tools that are not offered, with the reason.
    """

    name: str
    state: str
    reason: str
    tools: int | None
    left_out: list[tuple[str, str]]


class Upstreams:
    """The servers of one gateway; `open_upstreams` starts them.

    Args:
        entries: the servers.
        references: resolves their references.
        on_change: called when the state or a listing of one has changed.
        errlog: the text stream that takes the stderr of stdio servers.
        build_auth: returns what signs the HTTP requests of a server, or None.
    """

    def __init__(
        self,
        entries: Iterable[UpstreamEntry],
        references: References,
        *,
        on_change: Callable[[UpstreamServer], Awaitable[None]],
        errlog: Any = None,
        build_auth: Callable[[UpstreamEntry], Any] | None = None,
    ) -> None:
        self._on_change = on_change
        self.all = [
            UpstreamServer(one, references, on_change=self._merge, errlog=errlog, build_auth=build_auth)
            for one in entries
        ]
        self._merged: dict[str, list[dict[str, Any]]] = {}
        self._targets: dict[str, dict[str, Target]] = {}
        self._clashes: dict[str, list[tuple[str, str]]] = {}

    @property
    def has_prefixes(self) -> bool:
        """True if names begin with that of their server; those of a single server stay as they are."""
        return len(self.all) > 1

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return what all servers list of a kind (`tools`, `prompts`, ..), in the order of the file."""
        return self._merged.get(kind, [])

    def find(self, kind: str, name: str) -> Target | None:
        """Return where a name of a kind leads; a resource's URI may fit a template. None if nowhere."""
        found = self._targets.get(kind, {}).get(name)
        if found is None and kind == "resources":
            for template, target in self._targets.get("resourceTemplates", {}).items():
                if _fits(template, name):
                    return Target(target.upstream, name)
        return found

    def statuses(self) -> list[ServerStatus]:
        """Return the state of every server."""
        return [
            ServerStatus(
                one.name,
                one.state,
                one.reason,
                len(one.listings["tools"]) if "tools" in one.listings else None,
                [*one.dropped, *self._clashes.get(one.name, [])],
            )
            for one in self.all
        ]

    def missing(self) -> list[ServerStatus]:
        """Return the servers that were never listed, so that nothing of theirs is offered."""
        return [one for one in self.statuses() if one.tools is None and one.state != "ready"]

    async def refresh(self) -> None:
        """Read the listings again that are older than 30 seconds, of all servers at once."""
        async with anyio.create_task_group() as tasks:
            for one in self.all:
                tasks.start_soon(one.refresh, _REFRESH_SECONDS)

    async def settle(self, most: float = 20.0) -> None:
        """Wait until every server has started or failed once, so many seconds at most."""
        with anyio.move_on_after(most):
            for one in self.all:
                await one.wait_until_settled()

    def merge(self) -> None:
        """Put the listings of all servers together."""
        merged: dict[str, list[dict[str, Any]]] = {}
        targets: dict[str, dict[str, Target]] = {}
        clashes: dict[str, list[tuple[str, str]]] = {}
        for upstream in self.all:
            for kind, listed in upstream.listings.items():
                known = targets.setdefault(kind, {})
                for item in listed:
                    name = item.get(_IDS[kind])
                    if not isinstance(name, str):
                        continue
                    shown = public_name(upstream.name, name) if self.has_prefixes and kind in _NAMED else name
                    if shown in known:
                        reason = f"its name as shown, {shown}, is taken by {known[shown].upstream.name}"
                        clashes.setdefault(upstream.name, []).append((name, reason))
                        continue
                    known[shown] = Target(upstream, name)
                    merged.setdefault(kind, []).append(item if shown == name else {**item, _IDS[kind]: shown})
        self._merged, self._targets, self._clashes = merged, targets, clashes

    async def _merge(self, changed: UpstreamServer) -> None:
        self.merge()
        await self._on_change(changed)


@asynccontextmanager
async def open_upstreams(upstreams: Upstreams) -> AsyncGenerator[Upstreams]:
    """Start the servers, and stop every one at the end."""
    async with anyio.create_task_group() as tasks:
        for one in upstreams.all:
            tasks.start_soon(one.run)
        try:
            yield upstreams
        finally:
            tasks.cancel_scope.cancel()


def describe_missing(missing: Iterable[ServerStatus]) -> str:
    """Return one sentence for each server of which nothing is offered."""
    return " ".join(f"The MCP server {one.name!r} is not available: {one.reason}." for one in missing)


def as_json(status: ServerStatus) -> Mapping[str, Any]:
    """Return a state as a JSON object."""
    return {
        "name": status.name,
        "state": status.state,
        "reason": status.reason,
        "tools": status.tools,
        "leftOut": [{"name": name, "reason": reason} for name, reason in status.left_out],
    }


def _fits(template: str, uri: str) -> bool:
    """Return whether a URI can come from a template (RFC 6570): its fixed parts, in order."""
    parts = re.split(r"\{[^{}]*\}", template)
    if not uri.startswith(parts[0]) or not uri.endswith(parts[-1]):
        return False
    place = 0
    for part in parts:
        place = uri.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True
