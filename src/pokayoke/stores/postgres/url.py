"""Parses a PostgreSQL URL into a location with its timeouts.

In: a URL with libpq's parameters and three of our own.
Out: a `PostgresLocation`.
Never: a password in a message.
"""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import unquote

import msgspec
import psycopg
from psycopg import conninfo

from pokayoke.errors import StoreError

_DAY = 86_400.0  # seconds; the server and the driver count milliseconds in 32 bits
_OWN_OPTIONS = {"act_timeout": "10", "pool_size": "10", "prepare": "on"}
"""Parameters that a URL may have in addition to libpq's, with their defaults."""


class PostgresLocation(msgspec.Struct, frozen=True, gc=False):
    """A database, and the timeouts for its users.

    Args:
        conninfo: connection string for libpq.
        name: name of the database in messages; without a password.
        act_timeout: seconds for one operation, waiting for others included.
        pool_size: most connections of one process (or event loop).
        prepare: False never prepares statements, as some poolers need it.
        hosts: number of servers that are tried, one after the other.
        attempt: most seconds for each attempt.
    """

    conninfo: str
    name: str
    act_timeout: float
    pool_size: int
    prepare: bool
    hosts: int = 1
    attempt: float = math.inf

    def connect_timeout(self, patience: float) -> int:
        """Return the seconds for each attempt, so that a silent server leaves time for the others."""
        seconds = math.ceil(patience) if self.hosts == 1 else math.floor(patience / (self.hosts + 1))
        return max(2, int(min(seconds, self.attempt)))  # libpq's minimum


def parse_url(url: str) -> PostgresLocation:
    """Return the location that a URL names.

    Args:
        url: `postgresql://user@host:5432/database`, with libpq's parameters after `?`, and three of our own:
            `act_timeout` (seconds, 10, at most a day), `pool_size` (10), `prepare` (`on`, or `off` behind a pooler
            without support for prepared statements).

    Raises:
        StoreError: it cannot be read. The message never holds the URL, which may hold a password.
    """
    head, _, query = url.partition("?")
    head = re.sub(r"^(postgres(?:ql)?)\+\w+:", r"\1:", head)  # as SQLAlchemy writes it
    own = dict(_OWN_OPTIONS)
    rest: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name in own:
            own[name] = unquote(value)
        else:
            rest.append(part)
    try:
        if head.count("@") > 1:  # the rest of such a password would be read as host and database, and shown
            raise psycopg.ProgrammingError
        found = conninfo.conninfo_to_dict(head + ("?" + "&".join(rest) if rest else ""))
    except psycopg.Error:
        raise StoreError(
            "this PostgreSQL URL cannot be read: write postgresql://USER@HOST:PORT/DATABASE, "
            "with special characters of a password in percent notation"
        ) from None
    patience = _parse_number("act_timeout", own["act_timeout"], 0.1, _DAY)
    defaults: dict[str, Any] = {
        "keepalives_idle": max(1, math.ceil(patience)),
        "keepalives_interval": max(1, math.ceil(patience / 4)),
        "keepalives_count": 3,
        "tcp_user_timeout": math.ceil(patience * 1_000),
        "target_session_attrs": "read-write",
        "application_name": "pokayoke",
    }
    shown = f"{found.get('host') or 'the local socket'}:{found.get('port') or '5432'}/{found.get('dbname') or ''}"
    if own["prepare"] not in ("on", "off"):
        raise StoreError(f"prepare={own['prepare']!r} in the PostgreSQL URL is neither on nor off")
    attempt = _parse_number("connect_timeout", str(found.pop("connect_timeout", 0)), 0, _DAY)
    return PostgresLocation(
        # UTF-8 whatever the session prefers: a text that it cannot encode would fail after its claim.
        conninfo.make_conninfo("", **{**defaults, **found, "client_encoding": "UTF8"}),
        shown,
        patience,
        int(_parse_number("pool_size", own["pool_size"], 1, 10_000)),
        own["prepare"] == "on",
        str(found.get("host") or found.get("hostaddr") or "").count(",") + 1,
        attempt if attempt > 0 else math.inf,
    )


def _parse_number(name: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise StoreError(f"{name}={text!r} in the PostgreSQL URL has to be a number from {least:g} to {most:g}")
    return value
