"""Connections to PostgreSQL: waits with a deadline, and pools of free connections.

A connection is opened by the caller that needs one, not by a background thread: so an unreachable server is
reported at once and with its reason, a forked process inherits no missing thread, and every event loop has
connections of its own. Only this package imports psycopg.

In: a location, and deadlines as `time.monotonic()` seconds.
Out: usable connections.
Never: a wait beyond its deadline, or a socket shared with a parent process.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import psycopg
from psycopg import pq, waiting

from pokayoke.errors import StoreError
from pokayoke.stores.postgres.exchange import Exchanger, Row
from pokayoke.stores.postgres.expected_rows import MOST_BYTES, count_bytes
from pokayoke.stores.postgres.url import PostgresLocation
from pokayoke.stores.sql.dialect import Statement
from pokayoke.system import has_input

ConnectionT = TypeVar("ConnectionT", "Connection", "AsyncConnection")

_CHECK_INTERVAL: Final = 0.1
"""Seconds between two checks of the deadline."""
_MOST_FLIGHTS: Final = 2
"""Transactions of several tasks at a time: while one is at the server, or is stalled, the other one gathers."""


class ConnectionUnavailable(psycopg.OperationalError):
    """No connection was available."""


class _ConnectionBase(Exchanger):
    """The part that both kinds of connections share."""

    @property
    def is_idle(self) -> bool:
        """True if it is open and in no transaction."""
        pgconn = self.pgconn
        return pgconn.status == pq.ConnStatus.OK and pgconn.transaction_status == pq.TransactionStatus.IDLE

    @property
    def is_usable(self) -> bool:
        """True if it is idle, and the server has sent nothing (such as a shutdown) since."""
        if not self.is_idle:
            return False
        return not has_input(self.pgconn.socket)


class Connection(_ConnectionBase, psycopg.Connection[Row]):
    """A connection on which no wait outlasts its deadline, a `time.monotonic()` second."""

    slot: _PoolSlot | None = None

    def execute_batch(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements in one round trip and return the rows of each; a failure ends the connection.

        Raises:
            psycopg.Error: the first failure.
        """
        try:
            return waiting.wait(self.exchange(statements), self.pgconn.socket, _CHECK_INTERVAL)
        except BaseException:
            self.pgconn.finish()  # outstanding answers are not waited for
            raise


class AsyncConnection(_ConnectionBase, psycopg.AsyncConnection[Row]):
    """`Connection` for asynchronous callers."""

    async def execute_batch(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """See `Connection.execute_batch`."""
        try:
            return await waiting.wait_async(self.exchange(statements), self.pgconn.socket, _CHECK_INTERVAL)
        except BaseException:
            self.pgconn.finish()  # as above
            raise


class ServerFacts:
    """What operations have found out about the server, for the next ones.

    Attributes:
        clock: the server's wall clock minus `time.monotonic()`, or a little less; None until an operation has asked.
        is_pooled: True if a pooler stands between.
    """

    clock: float | None = None
    is_pooled: bool = False


class _PoolBase(Generic[ConnectionT]):
    """The free connections of one process or event loop, and the parameters of new ones."""

    def __init__(self, at: PostgresLocation) -> None:
        self.at = at
        self.server = ServerFacts()
        self.free: list[ConnectionT] = []
        self.closed = False

    def connect_parameters(self, until: float) -> dict[str, Any]:
        """Return the parameters of a new connection that may take until a `time.monotonic()` second."""
        patience = min(self.at.act_timeout, until - time.monotonic())
        return {
            "conninfo": self.at.conninfo,
            "autocommit": True,  # BEGIN and COMMIT travel with the statements
            "connect_timeout": self.at.connect_timeout(patience),
        }

    def pop_free(self) -> ConnectionT | None:
        """Return the free connection that was used last, or None; close those that are no longer usable."""
        if self.closed:
            raise StoreError("this store is closed")
        while self.free:
            try:
                link = self.free.pop()
            except IndexError:  # another thread was faster
                return None
            if link.is_usable:
                return link
            link.pgconn.finish()
        return None

    def as_acquired(self, link: ConnectionT, until: float) -> ConnectionT:
        """Return a connection with its deadline. It prepares statements where no pooler stands between."""
        link.deadline = until
        if not self.at.prepare or self.server.is_pooled:
            link.prepared = None
        elif link.prepared is None:
            link.prepared = {}
        return link

    def push_free(self, link: ConnectionT) -> None:
        """Keep an idle connection for the next caller, who looks whether the server has ended it."""
        if self.closed or not link.is_idle:
            link.pgconn.finish()
        else:
            self.free.append(link)

    def close(self) -> None:
        """Close the free connections; those in use are closed when they are released."""
        self.closed = True
        while self.free:
            link = self.free.pop()  # keep a reference, or it would be collected before it is closed
            link.pgconn.finish()

    def exhausted_error(self) -> ConnectionUnavailable:
        """Return the error for a pool without free connections."""
        return ConnectionUnavailable(
            f"all {self.at.pool_size} connections were in use for {self.at.act_timeout:g} s (pool_size)"
        )


class _PoolSlot(list[None]):
    """The right to one connection. It is returned by itself if an interrupt loses it.

    Args:
        slots: holds one item per connection that may be opened.
    """

    def __init__(self, slots: queue.SimpleQueue[None]) -> None:
        super().__init__()
        self._slots = slots

    def acquire(self, seconds: float) -> None:
        """Wait for a free slot.

        Raises:
            queue.Empty: none became free in time.
        """
        # One bytecode step: no interrupt comes between taking the item out there and putting it in here.
        self.extend(map(self._slots.get, (True,), (seconds,)))

    def release(self) -> None:
        """Return the slot. Returning it twice does no harm."""
        while self:
            self._slots.put(self.pop())

    __del__ = release


class ConnectionPool(_PoolBase[Connection]):
    """The pool for threads. It takes no Python lock: an interrupt can leave those locked for good."""

    def __init__(self, at: PostgresLocation) -> None:
        """Start empty."""
        super().__init__(at)
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(at.pool_size):
            self._slots.put(None)

    def acquire_connection(self, until: float) -> Connection:
        """Return a connection for one operation; it is opened now if none is free.

        Raises:
            ConnectionUnavailable: none was available until that `time.monotonic()` second, or the server refuses.
            StoreError: the store is closed.
        """
        slot = _PoolSlot(self._slots)
        try:
            slot.acquire(max(0.0, until - time.monotonic()))
            link = self.pop_free() or Connection.connect(**self.connect_parameters(until))
        except BaseException as error:
            slot.release()
            if isinstance(error, queue.Empty):
                raise self.exhausted_error() from None
            if isinstance(error, psycopg.Error):
                raise ConnectionUnavailable(str(error)) from error
            raise
        link.slot = slot
        return self.as_acquired(link, until)

    def release_connection(self, link: Connection) -> None:
        """Return a connection to the pool."""
        slot, link.slot = link.slot, None
        self.push_free(link)
        if slot is not None:
            slot.release()


class _GroupMember(NamedTuple):
    """A task's two statements, the `time.monotonic()` second of its deadline, and where it waits for the rows."""

    batch: tuple[Statement, Statement]
    until: float
    answer: asyncio.Future[list[Row]]

    def deliver_rows(self, rows: list[Row]) -> None:
        """Answer the task, unless it is gone."""
        if not self.answer.done():
            self.answer.set_result(rows)

    def deliver_error(self, error: Exception) -> None:
        """Let the task raise an error, unless it is gone."""
        if not self.answer.done():
            self.answer.set_exception(error)


class AsyncConnectionPool(_PoolBase[AsyncConnection]):
    """The pool for the tasks of one event loop."""

    def __init__(self, at: PostgresLocation) -> None:
        """Start empty."""
        super().__init__(at)
        self._slots = asyncio.Semaphore(at.pool_size)
        self._waiting: list[_GroupMember] = []
        self._flights = 0
        self._groups: set[asyncio.Task[None]] = set()

    async def acquire_connection(self, until: float) -> AsyncConnection:
        """See `ConnectionPool.acquire_connection`."""
        if self._slots.locked():
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await self._slots.acquire()
            except TimeoutError:
                raise self.exhausted_error() from None
        else:
            await self._slots.acquire()  # does not wait
        try:
            link = self.pop_free() or await AsyncConnection.connect(**self.connect_parameters(until))
        except BaseException as error:
            self._slots.release()
            if isinstance(error, psycopg.Error):
                raise ConnectionUnavailable(str(error)) from error
            raise
        return self.as_acquired(link, until)

    def release_connection(self, link: AsyncConnection) -> None:
        """Return a connection to the pool."""
        self.push_free(link)
        self._slots.release()

    # -- one transaction for all tasks that write at the same time -------------------------------

    async def write_at_once(self, batch: tuple[Statement, Statement], until: float) -> list[Row]:
        """Run two statements in one round trip and return the rows of the second one.

        Who finds nobody writing does not wait for others. Else all who come while others write are one transaction: the
        statements wait for no lock, so nobody waits for the wish of somebody else.

        Raises:
            psycopg.Error: a statement failed, of this task or another one, and nothing was committed; or the connection
                was lost.
        """
        if not self._flights:
            self._flights += 1
            try:
                return (await self._execute_batch(batch, until))[-1]
            finally:
                self._flights -= 1
                self._begin_group()
        answer: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_GroupMember(batch, until, answer))
        self._begin_group()
        return await answer

    def _begin_group(self) -> None:
        """Let a task write for all that wait. When it begins, those that are ready now have come to their writes."""
        now = time.monotonic()
        for member in self._waiting:
            if member.until <= now:
                member.deliver_error(psycopg.InterfaceError())  # nothing was sent
        self._waiting = [member for member in self._waiting if not member.answer.done()]
        if self._waiting and self._flights < _MOST_FLIGHTS:
            self._flights += 1
            task = asyncio.create_task(self._write_group())
            self._groups.add(task)
            task.add_done_callback(self._end_group)

    def _end_group(self, task: asyncio.Task[None]) -> None:
        self._groups.discard(task)
        self._flights -= 1
        self._begin_group()

    async def _write_group(self) -> None:
        group = self._take_group()
        batch = [statement for member in group for statement in member.batch]
        try:
            rows = await self._execute_batch(batch, min(member.until for member in group))
        except BaseException as error:
            # What was wrong with the values of one task is not the failure of the others: all try again, each alone.
            failure = error if isinstance(error, (psycopg.Error, StoreError)) else psycopg.InterfaceError()
            for member in group:
                member.deliver_error(failure)
            if not isinstance(error, Exception):
                raise
        else:
            for number, member in enumerate(group):
                member.deliver_rows(rows[2 * number + 1])

    def _take_group(self) -> list[_GroupMember]:
        """Return those who have waited longest, as many as one exchange can hold."""
        size, count = 0, 0
        for member in self._waiting:
            size += sum(count_bytes(values) for _, values in member.batch)
            if count and size > MOST_BYTES:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _execute_batch(self, batch: Sequence[Statement], until: float) -> list[list[Row]]:
        link = await self.acquire_connection(until)
        try:
            return await link.execute_batch(batch)
        finally:
            self.release_connection(link)


_INHERITED_POOLS: list[object] = []
"""What a forked process inherited. It is neither touched nor collected: the sockets belong to the parent."""


class ProcessPools:
    """All connections of this process to one database: one pool for threads, one per event loop."""

    def __init__(self, at: PostgresLocation) -> None:
        """Start empty."""
        self.at = at
        self._create_pools()

    def _create_pools(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._shelf = ConnectionPool(self.at)
        self._loops: dict[asyncio.AbstractEventLoop, AsyncConnectionPool] = {}

    def pool_for_threads(self) -> ConnectionPool:
        """Return the pool for threads."""
        self._check_process()
        return self._shelf

    def pool_for_loop(self) -> AsyncConnectionPool:
        """Return the pool of the running event loop; pools of closed loops are closed."""
        self._check_process()
        loop = asyncio.get_running_loop()
        shelf = self._loops.get(loop)
        if shelf is None:
            with self._lock:
                for other in [other for other in self._loops if other.is_closed()]:
                    self._loops.pop(other).close()
                shelf = self._loops[loop] = AsyncConnectionPool(self.at)
                shelf.closed = self._shelf.closed
        return shelf

    def close(self) -> None:
        """Close free connections now, and those in use when they are released."""
        self._check_process()
        self._shelf.close()
        with self._lock:
            for shelf in self._loops.values():
                shelf.close()

    def _check_process(self) -> None:
        if self._pid == os.getpid():
            return
        _INHERITED_POOLS.append((self._shelf, self._loops))
        self._create_pools()
