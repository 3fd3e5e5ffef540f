"""Connections to PostgreSQL: waits that end, and a shelf of connections that are free.

A connection is opened by whoever needs one, not by a thread in the background: so an unreachable
server is told at once and with its reason, a forked process inherits no thread that is missing, and
every event loop has its own. Only this module and its siblings import psycopg.
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
"""Seconds between two looks at the deadline."""


class DeadlineExceeded(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


class ConnectionUnavailable(psycopg.OperationalError):
    """No connection could be had."""


class _ConnectionBase:
    """What both kinds of connections share."""

    pgconn: pq.abc.PGconn
    deadline: float = math.inf

    def enforce_deadline(self, steps: Generator[Any, Any, RV]) -> Generator[Any, Any, RV]:
        """Pass on what psycopg waits for, until the deadline. A server that trickles gets no longer."""
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
        """True if it is open, in no transaction, and the server has said nothing since (a shutdown it would tell)."""
        if self.pgconn.status != pq.ConnStatus.OK or self.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)


class Connection(_ConnectionBase, psycopg.Connection[Row]):
    """A connection on which no wait is longer than until its deadline, a `time.monotonic()` second."""

    slot: _PoolSlot | None = None
    _leave: contextlib.ExitStack | None = None
    _line: psycopg.Pipeline | None = None

    def wait(self, gen: Generator[Any, Any, RV], interval: float = _CHECK_INTERVAL, timeout: float | None = None) -> RV:  # noqa: ARG002 - the deadline counts
        """See `psycopg.Connection.wait`."""
        try:
            # Not the parent's: interrupted, it asks the server to cancel, and a stalled one lets nobody go.
            return waiting.wait(self.enforce_deadline(gen), self.pgconn.socket, interval)
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()  # nobody knows what still comes
            raise

    def execute_batch(self, statements: Sequence[Statement], *, more: bool = False) -> list[list[Row]]:
        """Carry out statements in one round trip; the first failure ends them and the connection.

        Args:
            statements: in order.
            more: True if the transaction goes on.

        Returns:
            The rows of each.

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
                # Not left in between: psycopg then sends a message that stops the server's watch for idle clients.
                self._line.sync()
        except BaseException as error:  # noqa: BLE001 - raised below; what still comes is not waited for
            self.pgconn.finish()
            if leave is not None:
                with contextlib.suppress(psycopg.Error):
                    leave.close()
            self._line = None
            raise _first_error(error) from None
        self._leave = leave if more else None
        if not more:
            self._line = None  # it knows its connection, which is to go when nobody has it any more
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
                await self._line.sync()  # not left in between, as above
        except BaseException as error:  # noqa: BLE001 - raised below; what still comes is not waited for
            self.pgconn.finish()
            if leave is not None:
                with contextlib.suppress(psycopg.Error):
                    await leave.aclose()
            self._line = None
            raise _first_error(error) from None
        self._leave = leave if more else None
        if not more:
            self._line = None  # it knows its connection, which is to go when nobody has it any more
        return [await cursor.fetchall() if _has_rows(cursor.pgresult) else [] for cursor in cursors]


def _has_rows(result: pq.abc.PGresult | None) -> bool:
    # Not `cursor.description`: that describes every column anew.
    return result is not None and result.status == pq.ExecStatus.TUPLES_OK


def _first_error(error: BaseException) -> BaseException:
    """What failed first: what comes after it only says that the pipeline was aborted."""
    while isinstance(error, psycopg.errors.PipelineAborted) and error.__context__ is not None:
        error = error.__context__
    return error


class _PoolBase(Generic[ConnectionT]):
    """The connections of one process, or of one event loop: those that are free, and what a new one is told."""

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
        """Return the free connection that was used last, if there is one; those that are not fit any more go."""
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
        """Keep a connection for the next one who needs it, if it is fit."""
        if self.closed or not link.is_usable:
            link.pgconn.finish()
        else:
            self.free.append(link)

    def close(self) -> None:
        """Close the free connections; those in use are closed when they come back."""
        self.closed = True
        while self.free:
            link = self.free.pop()  # named, or it would be collected before it is closed
            link.pgconn.finish()

    def exhausted_error(self) -> ConnectionUnavailable:
        """Say that all connections are in use."""
        return ConnectionUnavailable(
            f"all {self.at.pool_size} connections were in use for {self.at.act_timeout:g} s (pool_size)"
        )


class _PoolSlot(list[None]):
    """The right to one connection, once it has been waited for. It comes back by itself if an interrupt loses it.

    Args:
        slots: holds one item for each connection that may be opened.
    """

    def __init__(self, slots: queue.SimpleQueue[None]) -> None:
        super().__init__()
        self._slots = slots

    def acquire(self, seconds: float) -> None:
        """Wait for one that is free.

        Raises:
            queue.Empty: there is none for so long.
        """
        # One step of the interpreter: no interrupt comes between what is taken out there and what is put in here.
        self.extend(map(self._slots.get, (True,), (seconds,)))

    def release(self) -> None:
        """Let somebody else have it. Giving back twice does no harm."""
        while self:
            self._slots.put(self.pop())

    __del__ = release


class ConnectionPool(_PoolBase[Connection]):
    """For threads. No lock of Python's own is taken: an interrupt can leave those locked for ever."""

    def __init__(self, at: PostgresLocation) -> None:
        """Begin empty."""
        super().__init__(at)
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(at.pool_size):
            self._slots.put(None)

    def acquire_connection(self, until: float) -> Connection:
        """Return a connection for one act; opened now if none is free.

        Raises:
            Unreachable: there is none until that `time.monotonic()` second, or the server refuses.
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
        """Take a connection back."""
        slot, link.slot = link.slot, None
        self.push_free(link)
        if slot is not None:
            slot.release()


class AsyncConnectionPool(_PoolBase[AsyncConnection]):
    """For the tasks of one event loop."""

    def __init__(self, at: PostgresLocation) -> None:
        """Begin empty."""
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
        """Take a connection back."""
        self.push_free(link)
        self._slots.release()


_INHERITED_POOLS: list[object] = []
"""What a forked process inherited. It is not touched and not collected: the sockets are its parent's."""


class ProcessPools:
    """All connections of this process to one database: one shelf for threads, one for each event loop."""

    def __init__(self, at: PostgresLocation) -> None:
        """Begin empty."""
        self.at = at
        self._create_pools()

    def _create_pools(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._shelf = ConnectionPool(self.at)
        self._loops: dict[asyncio.AbstractEventLoop, AsyncConnectionPool] = {}

    def pool_for_threads(self) -> ConnectionPool:
        """Return the shelf for threads."""
        self._check_process()
        return self._shelf

    def pool_for_loop(self) -> AsyncConnectionPool:
        """Return the shelf of the event loop that runs now; what closed loops have left is closed."""
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
        """Close what is free now, and what is in use when it comes back."""
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
