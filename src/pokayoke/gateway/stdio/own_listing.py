"""Calls of tools that nobody has listed: the gateway asks the server itself before it lets one through.

In: calls, and news about the server's list.
Out: calls that may go on.
Never: a call that is held to a contract which its server has changed since, as far as the server says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from pokayoke.core.json.values import is_object
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.messages.json_rpc import Message
from pokayoke.gateway.runs import Caller
from pokayoke.gateway.stdio.exchange import Exchange

AskServer = Callable[[str, dict[str, Any], Callable[[Message], None]], bool]
_PROTOCOL: str = "io.modelcontextprotocol/"


class OwnListing:
    """What is known of one server's list of tools; thread-safe.

    Args:
        interceptor: the guard.
        ask: sends a request of our own; False if the server cannot be reached.
        go_on: takes a call that may go on.
    """

    def __init__(self, interceptor: Interceptor, ask: AskServer, go_on: Callable[[Exchange], None]) -> None:
        self._guard, self._ask, self._go_on = interceptor, ask, go_on
        self._lock = threading.Lock()
        self._waiting: list[Exchange] = []
        self._is_listed = self._is_asking = self._has_asked = False

    def take_call(self, exchange: Exchange, caller: Caller) -> None:
        """Let a call go on once its tool is listed, or the whole list is known."""
        known = self._guard.knows_tool(exchange.message.params.get("name"))
        with self._lock:
            is_ready = self._has_asked or (known and self._is_listed)
            starts = not is_ready and not self._is_asking
            if not is_ready:
                self._waiting.append(exchange)
                self._is_asking = True
        if is_ready:
            self._go_on(exchange)
        elif starts:
            self._ask_page(exchange, caller, None)

    def note_listed(self) -> None:
        """Take it that the client has just seen the whole list."""
        with self._lock:
            self._is_listed = True

    def note_change(self) -> list[Exchange]:
        """Take it that the list may have changed, or its server. Return the calls that waited for the old one."""
        with self._lock:
            self._is_listed = self._is_asking = self._has_asked = False
            waiting, self._waiting = self._waiting, []
        return waiting

    def drop(self, over: Collection[Exchange]) -> None:
        """Forget calls that were answered; the next one asks again, as this list does not come."""
        with self._lock:
            if any(one in over for one in self._waiting):
                self._waiting = [one for one in self._waiting if one not in over]
                self._is_asking = False

    def _ask_page(self, exchange: Exchange, caller: Caller, cursor: str | None) -> None:
        meta = exchange.message.params.get("_meta")
        about = {key: meta[key] for key in meta if key.startswith(_PROTOCOL)} if is_object(meta) else {}
        params: dict[str, Any] = {"_meta": about} if about else {}
        if cursor is not None:
            params["cursor"] = cursor

        def take_page(message: Message) -> None:
            result = message.value.get("result")
            following = result.get("nextCursor") if is_object(result) else None
            if is_object(result):
                self._guard.take_listing(result, caller, exchange.era)
            if isinstance(following, str) and following and following != cursor:
                self._ask_page(exchange, caller, following)
            else:
                self._end(known=True)

        if not self._ask("tools/list", params, take_page):
            self._end(known=False)

    def _end(self, *, known: bool) -> None:
        with self._lock:
            self._is_asking = False
            self._is_listed, self._has_asked = self._is_listed or known, self._has_asked or known
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._go_on(one)
