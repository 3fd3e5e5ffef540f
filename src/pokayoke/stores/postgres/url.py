"""Where a PostgreSQL database is and how patient its users are, as a URL says it."""

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
"""What a URL may say beside libpq's own parameters, and what holds if it does not."""


class PostgresLocation(msgspec.Struct, frozen=True, gc=False):
    """Where the database is, and how long its users are patient.

    Args:
        conninfo: what libpq is told.
        name: how people are told which database is meant; without a password.
        act_timeout: seconds one act may take, waiting for others included.
        pool_size: connections of one process (or event loop) at most.
        prepare: False never prepares statements, as some poolers need it.
        hosts: how many servers are tried, one after the other.
        attempt: seconds that the URL gives to each attempt at most.
    """

    conninfo: str
    name: str
    act_timeout: float
    pool_size: int
    prepare: bool
    hosts: int = 1
    attempt: float = math.inf

    def connect_timeout(self, patience: float) -> int:
        """Return the seconds for each attempt, so that one server that is silent leaves time for the others."""
        seconds = math.ceil(patience) if self.hosts == 1 else math.floor(patience / (self.hosts + 1))
        return max(2, int(min(seconds, self.attempt)))  # libpq knows nothing shorter


def parse_url(url: str) -> PostgresLocation:
    """Read a URL.

    Args:
        url: `postgresql://user@host:5432/database`, with libpq's parameters after `?`, and three of our own:
            `act_timeout` (seconds, 10, at most a day), `pool_size` (10), `prepare` (`on`, or `off` behind a pooler
            that does not know prepared statements).

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
        # Whatever the session prefers: a text that it could not encode would fail after its claim.
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
