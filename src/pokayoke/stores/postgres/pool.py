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
import contextlib
import math
import os
import queue
import select
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import psycopg
from psycopg import pq, waiting

from pokayoke.errors import StoreError
from pokayoke.stores.postgres.url import PostgresLocation
from pokayoke.stores.sql.dialect import Statement

RV = TypeVar("RV")
ConnectionT = TypeVar("ConnectionT", "Connection", "AsyncConnection")
Row = tuple[Any, ...]

PIPELINE: Final = psycopg.Pipeline.is_supported()
"""Whether libpq (14 or later) sends several statements in one round trip."""

_CHECK_INTERVAL: Final = 0.1
"""Seconds between two checks of the deadline."""


class DeadlineExceeded(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


class ConnectionUnavailable(psycopg.OperationalError):
    """No connection was available."""


class _ConnectionBase:
    """The part that both kinds of connections share."""

    pgconn: pq.abc.PGconn
    deadline: float = math.inf

    def enforce_deadline(self, steps: Generator[Any, Any, RV]) -> Generator[Any, Any, RV]:
        """Pass on what psycopg waits for, until the deadline. A server that trickles its answer gets no longer."""
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                wanted = steps.send(ready)
                if time.monotonic() >= self.deadline:
                    self.pgconn.finish()
                    raise DeadlineExceeded("the server did not answer in time")
        except StopIteration as end:
            return cast("RV", end.value)

    @property
    def is_usable(self) -> bool:
        """True if it is open and in no transaction, and the server has sent nothing (such as a shutdown) since."""
        if self.pgconn.status != pq.ConnStatus.OK or self.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)


class Connection(_ConnectionBase, psycopg.Connection[Row]):
    """A connection on which no wait outlasts its deadline, a `time.monotonic()` second."""

    slot: _PoolSlot | None = None
    _leave: contextlib.ExitStack | None = None
    _line: psycopg.Pipeline | None = None

    def wait(self, gen: Generator[Any, Any, RV], interval: float = _CHECK_INTERVAL, timeout: float | None = None) -> RV:  # noqa: ARG002 - the deadline counts
        """See `psycopg.Connection.wait`."""
        try:
            # Not the parent's method: when interrupted, it asks the server to cancel, and waits for a stalled server.
            return waiting.wait(self.enforce_deadline(gen), self.pgconn.socket, interval)
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()  # the state of the protocol is unknown
            raise

    def execute_batch(self, statements: Sequence[Statement], *, more: bool = False) -> list[list[Row]]:
        """Run statements in one round trip; the first failure ends them and the connection.

        Args:
            statements: in order.
            more: True if the transaction goes on.

        Returns:
            The rows of each statement.

        Raises:
            psycopg.Error: the first failure.
        """
        leave, self._leave = self._leave, None
        try:
            if leave is None:
                leave = contextlib.ExitStack()
                self._line = leave.enter_context(self.pipeline()) if PIPELINE else None
            cursors = [self.execute(sql.encode(), values) for sql, values in statements]
            if not more:
                leave.close()
            elif self._line is not None:
                # The pipeline stays open: leaving it sends a message that ends the server's idle timeout.
                self._line.sync()
        except BaseException as error:  # noqa: BLE001 - raised below; outstanding answers are not waited for
            self.pgconn.finish()
            if leave is not None:
                with contextlib.suppress(psycopg.Error):
                    leave.close()
            self._line = None
            raise _first_error(error) from None
        self._leave = leave if more else None
        if not more:
            self._line = None  # it refers to its connection, which should be collected once unused
        return [cursor.fetchall() if _has_rows(cursor.pgresult) else [] for cursor in cursors]


class AsyncConnection(_ConnectionBase, psycopg.AsyncConnection[Row]):
    """`Connection` for asynchronous callers."""

    _leave: contextlib.AsyncExitStack | None = None
    _line: psycopg.AsyncPipeline | None = None

    async def wait(
        self,
        gen: Generator[Any, Any, RV],
        interval: float = _CHECK_INTERVAL,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - the parent's parameters
    ) -> RV:
        """See `psycopg.AsyncConnection.wait`."""
        try:
            return await waiting.wait_async(self.enforce_deadline(gen), self.pgconn.socket, interval)
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()  # as above
            raise

    async def execute_batch(self, statements: Sequence[Statement], *, more: bool = False) -> list[list[Row]]:
        """See `Connection.execute_batch`."""
        leave, self._leave = self._leave, None
        try:
            if leave is None:
                leave = contextlib.AsyncExitStack()
                self._line = await leave.enter_async_context(self.pipeline()) if PIPELINE else None
            cursors = [await self.execute(sql.encode(), values) for sql, values in statements]
            if not more:
                await leave.aclose()
            elif self._line is not None:
                await self._line.sync()  # the pipeline stays open, as above
        except BaseException as error:  # noqa: BLE001 - raised below; outstanding answers are not waited for
            self.pgconn.finish()
            if leave is not None:
                with contextlib.suppress(psycopg.Error):
                    await leave.aclose()
            self._line = None
            raise _first_error(error) from None
        self._leave = leave if more else None
        if not more:
            self._line = None  # it refers to its connection, which should be collected once unused
        return [await cursor.fetchall() if _has_rows(cursor.pgresult) else [] for cursor in cursors]


def _has_rows(result: pq.abc.PGresult | None) -> bool:
    # Not `cursor.description`, which describes every column again.
    return result is not None and result.status == pq.ExecStatus.TUPLES_OK


def _first_error(error: BaseException) -> BaseException:
    """Return the first failure: later ones only say that the pipeline was aborted."""
    while isinstance(error, psycopg.errors.PipelineAborted) and error.__context__ is not None:
        error = error.__context__
    return error


class _PoolBase(Generic[ConnectionT]):
    """The free connections of one process or event loop, and the parameters of new ones."""

    def __init__(self, at: PostgresLocation) -> None:
        self.at = at
        self.free: list[ConnectionT] = []
        self.closed = False

    def connect_parameters(self, until: float) -> dict[str, Any]:
        """Return the parameters of a new connection that may take until a `time.monotonic()` second."""
        patience = min(self.at.act_timeout, until - time.monotonic())
        return {
            "conninfo": self.at.conninfo,
            "autocommit": True,  # BEGIN and COMMIT travel with the statements
            "prepare_threshold": 5 if self.at.prepare else None,
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

    def push_free(self, link: ConnectionT) -> None:
        """Keep a usable connection for the next caller."""
        if self.closed or not link.is_usable:
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
        link.deadline, link.slot = until, slot
        return link

    def release_connection(self, link: Connection) -> None:
        """Return a connection to the pool."""
        slot, link.slot = link.slot, None
        self.push_free(link)
        if slot is not None:
            slot.release()


class AsyncConnectionPool(_PoolBase[AsyncConnection]):
    """The pool for the tasks of one event loop."""

    def __init__(self, at: PostgresLocation) -> None:
        """Start empty."""
        super().__init__(at)
        self._slots = asyncio.Semaphore(at.pool_size)

    async def acquire_connection(self, until: float) -> AsyncConnection:
        """See `ConnectionPool.acquire_connection`."""
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self._slots.acquire()
        except TimeoutError:
            raise self.exhausted_error() from None
        try:
            link = self.pop_free() or await AsyncConnection.connect(**self.connect_parameters(until))
        except BaseException as error:
            self._slots.release()
            if isinstance(error, psycopg.Error):
                raise ConnectionUnavailable(str(error)) from error
            raise
        link.deadline = until
        return link

    def release_connection(self, link: AsyncConnection) -> None:
        """Return a connection to the pool."""
        self.push_free(link)
        self._slots.release()


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
