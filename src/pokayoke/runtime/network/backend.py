"""Connections to checked addresses only.

In: the host, port and deadline of a request.
Out: a connection to an address that was checked, or an error.
Never: a second resolution. The address that was checked is the address that is connected to, so a name that answers
otherwise a moment later leads nowhere else. TLS still names and verifies the host.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Any, cast

import anyio
import anyio.to_thread
import httpcore2

from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.network.addresses import read_address
from pokayoke.errors import UrlRefused
from pokayoke.runtime.network.limits import Deadline
from pokayoke.runtime.network.resolve import Resolver, check_addresses
from pokayoke.runtime.threads.worker_pool import start_thread

_WRITTEN_AT_ONCE = 4_096  # bytes between two looks at the clock


class CheckedBackend(httpcore2.NetworkBackend):
    """Connects to addresses that a rule allows.

    Args:
        rule: what may be reached.
        resolve: resolves names.
        deadline: of the request.
    """

    def __init__(self, rule: UrlRule, resolve: Resolver, deadline: Deadline) -> None:
        self._rule, self._resolve, self._deadline = rule, resolve, deadline
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Resolve a host, check each of its addresses, and connect to the first that answers."""
        problem: Exception = httpcore2.ConnectError(f"{host} has no address")
        addresses = self._find_addresses(host, port, self._deadline.cut(timeout, httpcore2.ConnectTimeout))
        for number, address in enumerate(addresses):
            # An address that does not answer takes its share, so that the next one is tried too.
            left = self._deadline.cut(timeout, httpcore2.ConnectTimeout) / (len(addresses) - number)
            try:
                stream = self._inner.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
            else:
                return DeadlineStream(stream, self._deadline)
        raise problem

    def _find_addresses(self, host: str, port: int, timeout: float) -> tuple[str, ...]:
        """Resolve in a thread, because the system's resolver knows no deadline."""
        answers: SimpleQueue[tuple[str, ...] | Exception] = SimpleQueue()

        def resolve() -> None:
            try:
                answers.put(_resolve_checked(host, port, self._rule, self._resolve))
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
                answers.put(error)

        if start_thread("pokayoke-resolve", resolve) is None:
            raise httpcore2.ConnectError("the system has no thread left to resolve a name in")
        try:
            answer = answers.get(timeout=timeout)
        except Empty:
            raise httpcore2.ConnectTimeout(f"{host} was not resolved in time") from None
        if isinstance(answer, Exception):
            raise _connect_error(host, answer)
        return answer


class DeadlineStream(httpcore2.NetworkStream):
    """A connection whose every step ends by a deadline."""

    def __init__(self, inner: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes."""
        return self._inner.read(max_bytes, self._deadline.cut(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write bytes, piece by piece: a peer that takes them slowly must not stretch the time."""
        for start in range(0, len(buffer), _WRITTEN_AT_ONCE):
            left = self._deadline.cut(timeout, httpcore2.WriteTimeout)
            self._inner.write(buffer[start : start + _WRITTEN_AT_ONCE], left)

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        """Begin TLS with the name of the host, not with the address."""
        left = self._deadline.cut(timeout, httpcore2.ConnectTimeout)
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return what the connection says about itself."""
        return self._inner.get_extra_info(info)


class AsyncCheckedBackend(httpcore2.AsyncNetworkBackend):
    """`CheckedBackend` for asyncio."""

    def __init__(self, rule: UrlRule, resolve: Resolver, deadline: Deadline) -> None:
        self._rule, self._resolve, self._deadline = rule, resolve, deadline
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve a host, check each of its addresses, and connect to the first that answers."""
        problem: Exception = httpcore2.ConnectError(f"{host} has no address")
        addresses = await self._find_addresses(host, port, self._deadline.cut(timeout, httpcore2.ConnectTimeout))
        for number, address in enumerate(addresses):
            left = self._deadline.cut(timeout, httpcore2.ConnectTimeout) / (len(addresses) - number)  # its share
            try:
                stream = await self._inner.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
            else:
                return AsyncDeadlineStream(stream, self._deadline)
        raise problem

    async def _find_addresses(self, host: str, port: int, timeout: float) -> tuple[str, ...]:
        def resolve() -> tuple[str, ...]:
            return _resolve_checked(host, port, self._rule, self._resolve)

        try:
            with anyio.fail_after(timeout):
                return await anyio.to_thread.run_sync(resolve, abandon_on_cancel=True)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise _connect_error(host, error) from None


class AsyncDeadlineStream(httpcore2.AsyncNetworkStream):
    """`DeadlineStream` for asyncio."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes."""
        return await self._inner.read(max_bytes, self._deadline.cut(timeout, httpcore2.ReadTimeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write bytes."""
        await self._inner.write(buffer, self._deadline.cut(timeout, httpcore2.WriteTimeout))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Begin TLS with the name of the host, not with the address."""
        left = self._deadline.cut(timeout, httpcore2.ConnectTimeout)
        stream = await self._inner.start_tls(ssl_context, server_hostname, left)
        return AsyncDeadlineStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return what the connection says about itself."""
        return self._inner.get_extra_info(info)


def _resolve_checked(host: str, port: int, rule: UrlRule, resolve: Resolver) -> tuple[str, ...]:
    """Return the addresses of a host; an address is its own."""
    found = (host,) if read_address(host) is not None else resolve(host, port)
    return check_addresses(host, found, rule)


def _connect_error(host: str, error: Exception) -> Exception:
    """Return the error for a host that has no address; everything else stays what it is."""
    is_unresolved = isinstance(error, OSError | UnicodeError) and not isinstance(error, UrlRefused)
    return httpcore2.ConnectError(f"{host} cannot be resolved: {error}") if is_unresolved else error
