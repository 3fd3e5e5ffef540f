"""The runs of a gateway: which calls belong together.

In: the `_meta` of a call, and on whose behalf it is made.
Out: its run.
Never: the run of another subject, or a connection that is taken for a conversation.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pokayoke.core.host_input import as_storable_id
from pokayoke.core.json.values import is_object
from pokayoke.gateway.messages.results import RUN_KEY
from pokayoke.runtime.guard.guard import Guard
from pokayoke.runtime.run.run import Run

_KEPT: Final = 1_000
_LONGEST_KEY: Final = 200


class Caller(NamedTuple):
    """On whose behalf a call is made.

    Attributes:
        subject: the verified subject of its token; "" without one.
        roles: the scopes of that token.
        session: id of its session or connection, in the era with a handshake; "" without one.
        can_ask: True if the client can put a question to a person.
    """

    subject: str = ""
    roles: tuple[str, ...] = ()
    session: str = ""
    can_ask: bool = False


class GatewayRuns:
    """The open runs, of which the 1,000 most recently used stay open.

    Args:
        guard: the guard.
        scope: id of the run of calls that name none and have neither subject nor session, as a restart knows it again;
            None for a run of its own for each of them.
    """

    def __init__(self, guard: Guard, *, scope: str | None = None) -> None:
        self._guard, self._scope = guard, scope
        self._open: OrderedDict[tuple[str, Caller], Run] = OrderedDict()
        self._lock = threading.Lock()

    def find_run(self, params: Mapping[str, Any], caller: Caller) -> Run:
        """Return the run of a call: by its own key, else the verified subject, the session, or the scope.

        Args:
            params: of the request.
            caller: who calls.
        """
        ident = self._name_run(params, caller)
        if ident is None:
            return self._prepare(self._guard.run(f"call/{uuid.uuid4()}"), caller)
        with self._lock:
            key = (ident, caller)
            run = self._open.get(key)
            if run is None:
                if len(self._open) >= _KEPT:
                    self._open.popitem(last=False)[1].close()
                who = {"id": caller.subject, "roles": caller.roles} if caller.subject else None
                run = self._open[key] = self._prepare(self._guard.run(as_storable_id(ident), principal=who), caller)
            self._open.move_to_end(key)
            return run

    def peek_run(self, params: Mapping[str, Any], caller: Caller) -> Run | None:
        """Return the run that `find_run` would return, if it is open."""
        ident = self._name_run(params, caller)
        return None if ident is None else self._open.get((ident, caller))

    def close(self) -> None:
        """Close every run: the client is gone."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def _name_run(self, params: Mapping[str, Any], caller: Caller) -> str | None:
        owner = quote(caller.subject, safe="")
        meta = params.get("_meta")
        key = meta.get(RUN_KEY) if is_object(meta) else None
        if isinstance(key, str) and 0 < len(key) <= _LONGEST_KEY:
            return f"key/{owner}/{quote(key, safe='')}"
        if caller.subject:
            return f"subject/{owner}"
        if caller.session:
            return f"session/{caller.session}"
        return self._scope

    @staticmethod
    def _prepare(run: Run, caller: Caller) -> Run:
        run.seen.knows_turns = False  # no user's turn is known behind the protocol
        run.can_ask = run.can_ask or caller.can_ask
        return run
