"""Options that several commands share: the store, times, shares, ids.

In: texts from the command line.
Out: values.
Never: a guess about an ambiguous text.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import typer

from pokayoke.cli.output import escape_text
from pokayoke.errors import ConfigurationError, PokayokeError, StoreError
from pokayoke.stores import open_store
from pokayoke.stores.base import Store

if TYPE_CHECKING:
    from pokayoke.runtime.versions.approved_listings import ApprovedFile

StoreOption = Annotated[
    str | None,
    typer.Option("--store", envvar="POKAYOKE_STORE", show_envvar=True, help="The store the program uses, as a URL."),
]
ModeOption = Annotated[
    Literal["monitor", "enforce"] | None, typer.Option("--mode", help="monitor: only say what would be refused.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one line per thing.")]
ByOption = Annotated[str, typer.Option("--by", help="Who decides this; kept in the audit.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why, or how you know; kept in the audit.")]
ApprovedOption = Annotated[
    Path | None,
    typer.Option("--approved", help="Approved listings, such as a saved tools/list answer: no other tool runs."),
]
OnOption = Annotated[
    str | None,
    typer.Option("--on", help="Work on a cluster: ray, ray://HOST:PORT, dask://HOST:PORT or tls://HOST:PORT (Dask)."),
]

_MIN_DIGITS: Final = 6
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])", re.ASCII)
_DRIVERS: Final = ("apsw", "psycopg", "sqlite3")
_PROGRESS_STEP: Final = 5_000


@contextmanager
def open_store_option(url: str | None, *, create: bool = False) -> Generator[Store]:
    """Open the store of a command; a driver's error becomes a `StoreError`.

    Args:
        url: from `--store` or POKAYOKE_STORE.
        create: True to create the store if it is missing.

    Raises:
        ConfigurationError: no store is named, or one in memory.
        StoreError: the store cannot be opened or used.
    """
    if not url:
        raise ConfigurationError("no store is named: give --store URL, or set POKAYOKE_STORE")
    if url == "memory://":
        raise ConfigurationError("memory:// ends with its process, so another process cannot read it")
    try:
        store = open_store(url, create=create)
        try:
            yield store
        finally:
            store.close()
    except (PokayokeError, OSError, typer.Exit):
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _DRIVERS:
            raise
        raise StoreError(f"the store cannot be used: {type(error).__name__}: {error}") from error


def require_id_digits(given: str, found: str) -> None:
    """Refuse a decision about an id of which so little was given that a typing error names another one.

    Args:
        given: the id or its beginning, as the user wrote it.
        found: the id it stands for.

    Raises:
        ConfigurationError: it was too short.
    """
    start = given.strip().lower()
    if start != found and len(start.removeprefix(found.rpartition("-")[0] + "-")) < _MIN_DIGITS:
        raise ConfigurationError(f"ID {given!r} is too short to decide by: give at least {_MIN_DIGITS} digits")


def parse_duration(text: str, option: str) -> float:
    """Return a duration such as `90s`, `2h` or `30d` in seconds.

    Raises:
        ConfigurationError: it is not a duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{option} {text!r}: expected a number and s, m, h, d or w, such as 2h or 90d")
    return float(found[1]) * _UNITS[found[2]]


def parse_share(text: str) -> float:
    """Return the share in a text such as `0.1` or `10%`.

    Raises:
        ConfigurationError: it is not a share.
    """
    bare = text.strip()
    try:
        return float(bare.removesuffix("%")) / 100 if bare.endswith("%") else float(bare)
    except ValueError:
        raise ConfigurationError(f"--share {text!r}: expected a part such as 0.1, or 10%") from None


def parse_time(text: str | None, option: str, now: float) -> float | None:
    """Return a wall-clock second from a duration before now or an ISO 8601 date and time (UTC without a zone).

    Raises:
        ConfigurationError: it is neither.
    """
    if text is None:
        return None
    if _DURATION.fullmatch(text.strip()):
        return now - parse_duration(text, option)
    try:
        found = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{option} {text!r}: expected how long ago, such as 2h, or when, such as 2026-11-21T08:00"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()


def format_time(second: Any, *, timespec: str = "seconds") -> str:
    """Return a wall-clock second in ISO format, in UTC; `-` for anything else."""
    try:
        moment = dt.datetime.fromtimestamp(second, dt.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return "-"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def format_age(second: float, now: float) -> str:
    """Return how long ago a wall-clock second was, or how far ahead it is (`in 5m`), in one unit."""
    gone = abs(now - second)
    unit = next((u for u in ("w", "d", "h", "m") if gone >= _UNITS[u]), "s")
    text = f"{gone / _UNITS[unit]:.0f}{unit}"
    return f"in {text}" if second > now else text


def struct_to_dict(value: Any) -> dict[str, Any]:
    """Return a struct as JSON values."""
    found: Any = msgspec.to_builtins(value)
    return dict(found)


def current_time() -> float:
    """Return the current wall-clock second."""
    return time.time()


@contextmanager
def progress_counter(what: str) -> Generator[Callable[[int], None]]:
    """Yield `count(more)`, which counts on stderr if that is a terminal and there is much to count."""
    if not sys.stderr.isatty():
        yield lambda more: None  # noqa: ARG005 - the signature of a counter
        return
    from rich.console import Console  # noqa: PLC0415 - loaded where a counter is shown

    console = Console(stderr=True)
    total = 0
    with console.status("") as status:

        def count_more(more: int) -> None:
            nonlocal total
            before, total = total, total + more
            if total // _PROGRESS_STEP != before // _PROGRESS_STEP:
                status.update(f"{escape_text(what)}: {total:,}")

        yield count_more


def read_guard_config(path: Path | None, mode: str | None) -> Any:
    """Return what `Guard(config=...)` takes: a file, or the policy of one; `--mode` wins over the file.

    Args:
        path: of a pokayoke.yaml; None for the defaults.
        mode: from `--mode`; None leaves it to the file.
    """
    if path is None:
        return None if mode is None else {"mode": mode}
    if mode is None:
        return path
    from pokayoke.runtime.config.config import load_policy  # noqa: PLC0415 - for this pair of options only

    return msgspec.structs.replace(load_policy(path), mode=mode)


def open_approved(path: Path | None) -> ApprovedFile | None:
    """Return the file of `--approved`; None if none is named."""
    if path is None:
        return None
    from pokayoke.runtime.versions.approved_listings import ApprovedFile  # noqa: PLC0415 - for who has such a file

    return ApprovedFile(path)
