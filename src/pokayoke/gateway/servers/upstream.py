"""One server behind the gateway: started, watched, started again.

In: requests.
Out: results, or which of three things happened: not executed, no answer, or the server's own error.
Never: a request sent twice that may have been executed, or a start that is repeated without a pause.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from pokayoke.gateway.auth.references import References
from pokayoke.gateway.servers.connection import ConnectionHandlers, Progress, ServerConnection, open_connection
from pokayoke.gateway.servers.http_client import NOT_EXECUTED
from pokayoke.gateway.servers.server_file import UpstreamEntry

State = Literal["starting", "ready", "failed", "stopped"]

_FIRST_PAUSE: Final = 0.5
_SHORT_PAUSE: Final = 1.0
"""A start that is due within this many seconds is waited for by requests."""
_LONGEST_PAUSE: Final = 30.0
_STABLE_SECONDS: Final = 10.0
"""A connection that lasted this long resets the pause before the next start."""
_LIST_SECONDS: Final = 20.0
_SIGN_SECONDS: Final = 5.0
_MAX_REASON: Final = 500


class ServerUnavailable(Exception):  # noqa: N818 - what happened, as `ToolNotStarted`
    """A request was not executed: it did not reach the server, or was turned away unread."""


class AnswerLost(Exception):  # noqa: N818 - what happened
    """A request may have been executed, and its answer will not come."""


class UpstreamServer:
    """One server.

    Args:
        entry: what the file says of it.
        references: resolves its references, and hides what they stood for.
        on_change: called when its state or its listing has changed.
        errlog: the text stream that takes the stderr of a stdio server.
        build_auth: returns what signs its HTTP requests, or None.

    Attributes:
        state: `starting`, `ready`, `failed` (a later start is planned) or `stopped`.
        reason: why it is not ready, without secrets; "" if it is.
        listings: its latest listing of each kind (`tools`, `prompts`, ..); it outlives the connection.
        dropped: tools of the latest listing that clients must leave out, with the reason.
        auth: what signs its HTTP requests, or None.
    """

    def __init__(
        self,
        entry: UpstreamEntry,
        references: References,
        *,
        on_change: Callable[[UpstreamServer], Awaitable[None]],
        errlog: Any = None,
        build_auth: Callable[[UpstreamEntry], Any] | None = None,
    ) -> None:
        self.entry, self._references, self._on_change = entry, references, on_change
        self._errlog, self._build_auth = errlog, build_auth
        self.state: State = "starting"
        self.reason = "it is starting"
        self.listings: dict[str, list[dict[str, Any]]] = {}
        self.dropped: list[tuple[str, str]] = []
        self.listed_at = 0.0
        self.auth: Any = None
        self._connection: ServerConnection | None = None
        self._settled = anyio.Event()
        self._changed = anyio.Event()
        self._retries_soon = False
        self._doubt = anyio.Event()
        self._listing = anyio.Lock()

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self.entry.name

    @property
    def instructions(self) -> str:
        """What it tells models about itself, while it is connected."""
        return "" if self._connection is None else self._connection.instructions

    @property
    def is_modern(self) -> bool:
        """True if it is connected and speaks revision 2026-07-28 or later."""
        return self._connection is not None and self._connection.is_modern

    async def run(self) -> None:
        """Keep it connected until cancelled."""
        pause = _FIRST_PAUSE
        try:
            while True:
                began = time.monotonic()
                await self._change("starting", "it is starting")
                problem = await self._connect_once()
                if time.monotonic() - began > _STABLE_SECONDS:
                    pause = _FIRST_PAUSE
                self._retries_soon = pause <= _SHORT_PAUSE
                await self._change("failed", problem)
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            self._connection, self._retries_soon = None, False
            self.state, self.reason = "stopped", "the gateway has stopped it"
            self._settled.set()
            self._changed.set()

    async def send_request(
        self, method: str, params: Mapping[str, Any] | None = None, *, on_progress: Progress | None = None
    ) -> dict[str, Any]:
        """Send a request and return the server's result.

        A request that an ended session turned away unread is sent once more after the reconnection.

        Raises:
            ServerUnavailable: it was not executed.
            AnswerLost: it may have been, and there is no answer.
            MCPError: the server answered with this error.
        """
        for attempt in (1, 2):
            connection = await self._wait_for_connection()
            try:
                return await connection.send_request(
                    method, params, timeout=self.entry.timeout, on_progress=on_progress
                )
            except MCPError as error:
                failure = self._as_failure(error)
                if not isinstance(failure, ServerUnavailable) or attempt == 2 or self._connection is connection:  # noqa: PLR2004 - the second
                    raise failure from None
        raise AssertionError("unreachable")

    async def refresh(self, older_than: float = 0.0) -> None:
        """Read its listings again, if they are older than that many seconds; one that fails leaves the old one.

        The state then says that the server cannot be listed.
        """
        async with self._listing:
            connection = self._connection
            if connection is None or time.monotonic() - self.listed_at < older_than:
                return
            before = self.listings
            try:
                await self._read_listings(connection)
            except (MCPError, ValueError) as error:
                await self._change("failed", f"it cannot be listed: {self._describe(error)}")
            else:
                if self.state != "ready" or self.listings != before:
                    await self._change("ready", "")

    def mark_stale(self) -> None:
        """Have the next `refresh` read the listings again, whatever their age."""
        self.listed_at = 0.0

    async def wait_until_settled(self) -> None:
        """Wait until its first start has succeeded or failed."""
        await self._settled.wait()

    async def _connect_once(self) -> str:
        """Connect and stay so until the connection ends; return why it did."""
        ended = anyio.Event()
        handlers = ConnectionHandlers(self._on_message, self._errlog, ended)
        try:
            # Made anew each time, so that tokens are found of which somebody has signed in meanwhile.
            self.auth = None if self._build_auth is None else self._build_auth(self.entry)
            async with open_connection(self.entry, self._references, handlers, self.auth) as connection:
                self._connection = connection
                with anyio.fail_after(self.entry.start_timeout):
                    await self._read_listings(connection)
                await self._change("ready", "")
                problem = await self._watch(connection, ended)
                self._connection = None
        except Exception as error:  # noqa: BLE001 - whatever a transport raises, the other servers go on
            return self._describe(error)
        else:
            return problem
        finally:
            self._connection = None

    async def _watch(self, connection: ServerConnection, ended: anyio.Event) -> str:
        """Wait until the connection is of no use any more; return why.

        A server that left a request unanswered is asked for a sign of life. A process that gives none is started
        anew; over HTTP each request stands for itself.
        """
        while not ended.is_set():
            self._doubt = anyio.Event()
            async with anyio.create_task_group() as tasks:
                for event in (ended, self._doubt):
                    tasks.start_soon(_wait_and_cancel, event, tasks.cancel_scope)
            if self._doubt.is_set() and not ended.is_set() and not self.entry.is_http:
                try:
                    method = "server/discover" if connection.is_modern else "ping"
                    await connection.send_request(method, timeout=_SIGN_SECONDS)
                except MCPError as error:
                    if error.error.code in (REQUEST_TIMEOUT, CONNECTION_CLOSED):
                        return "it does not answer any more"
        return "its connection has ended"

    async def _read_listings(self, connection: ServerConnection) -> None:
        capabilities = connection.capabilities
        listings: dict[str, list[dict[str, Any]]] = {}
        dropped: list[tuple[str, str]] = []
        for method, member, capability in _LISTINGS:
            if capability not in capabilities:
                continue
            try:
                found = await connection.list_all(method, member, timeout=min(_LIST_SECONDS, self.entry.start_timeout))
            except MCPError as error:
                if error.error.code == METHOD_NOT_FOUND and member != "tools":
                    continue  # one capability stands for several listings, and a server may serve only some
                raise
            listings[member] = found.items
            dropped += found.dropped
        self.listings, self.dropped, self.listed_at = listings, dropped, time.monotonic()

    async def _on_message(self, message: Any) -> None:
        """Note that a listing has changed."""
        if str(getattr(message, "method", "")).endswith("/list_changed"):
            self.mark_stale()
            await self._on_change(self)

    async def _wait_for_connection(self) -> ServerConnection:
        """Return the connection; wait for one that is being made, or will be in a moment."""
        with anyio.move_on_after(self.entry.start_timeout):
            while self._connection is None and (self.state == "starting" or self._retries_soon):
                await self._changed.wait()
        if self._connection is None:
            raise ServerUnavailable(self.reason)
        return self._connection

    def _as_failure(self, error: Any) -> Exception:
        code, data = error.error.code, error.error.data
        if isinstance(data, dict) and NOT_EXECUTED in data:
            words = self._describe(error)
            return ServerUnavailable(words) if data[NOT_EXECUTED] else AnswerLost(words)
        if code == CONNECTION_CLOSED:
            return AnswerLost("its connection has ended before it answered")
        if code == REQUEST_TIMEOUT:
            self._doubt.set()
            return AnswerLost(f"it did not answer within {self.entry.timeout:g} s")
        return error  # type: ignore[no-any-return]  # the SDK is Any here

    def _describe(self, error: BaseException) -> str:
        """Return what went wrong, in one line and without secrets."""
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return f"it did not answer within {self.entry.start_timeout:g} s"
        text = str(error) or type(error).__name__
        return " ".join(self._references.hide(text).split())[:_MAX_REASON]

    async def _change(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        if state != "starting":
            self._settled.set()
        self._changed.set()
        self._changed = anyio.Event()
        await self._on_change(self)


async def _wait_and_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


_LISTINGS: Final = (
    ("tools/list", "tools", "tools"),
    ("prompts/list", "prompts", "prompts"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
)
