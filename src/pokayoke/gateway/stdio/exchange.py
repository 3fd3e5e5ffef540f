"""A request of the client, from its line to its answer.

In: a request.
Out: what has to be known to answer it.
Never: a request that is answered twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pokayoke.core.json.values import is_object
from pokayoke.gateway.interceptor import PendingCall
from pokayoke.gateway.messages.json_rpc import Id, Message
from pokayoke.gateway.messages.results import Era


@dataclass(slots=True, eq=False)
class Exchange:
    """One request.

    Attributes:
        message: the request.
        line: the request as it came.
        era: the client's.
        deadline: the monotonic second at which it is answered in any case.
        seconds: from its beginning, or from the latest sign of progress, to its deadline.
        sent_at: the monotonic second at which the server got it; None before that.
        pending: the guard's part of a call.
        is_cancelled: True if the client no longer waits.
        asked: id of our question to the client's user about it.
    """

    message: Message
    line: bytes
    era: Era
    deadline: float
    seconds: float
    sent_at: float | None = None
    pending: PendingCall | None = field(default=None, repr=False)
    is_cancelled: bool = False
    asked: Id | None = None

    @property
    def id(self) -> Id:
        """The request's id."""
        assert self.message.id is not None, "a request has one"
        return self.message.id

    @property
    def plain_id(self) -> str | int | float:
        """The request's id, as it is written."""
        return self.id[1]

    @property
    def is_call(self) -> bool:
        """True for a `tools/call`."""
        return self.message.method == "tools/call"

    @property
    def progress_token(self) -> Any:
        """By which the server reports progress; None without one."""
        meta = self.message.params.get("_meta")
        return meta.get("progressToken") if is_object(meta) else None
