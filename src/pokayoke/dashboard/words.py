"""How values look on a page: texts of any origin, times, ages, JSON.

In: values.
Out: texts for a template, which escapes them as HTML.
Never: markup, or an invisible character that is left as it is.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final

import msgspec

from pokayoke.core.text.visible import make_visible

CLIPPED: Final = 2_000
"""Characters of a payload on a page; a link leads to all of it."""
_UNITS: Final = (("w", 604_800.0), ("d", 86_400.0), ("h", 3_600.0), ("m", 60.0))
_MOST_COUNTED: Final = 10_000


def show_text(value: object, limit: int = 200) -> str:
    """Return a text on one line, with every character visible, cut behind `limit` characters."""
    text = str(value)
    return make_visible(text if len(text) <= limit else f"{text[:limit]}…")


def show_lines(value: object, limit: int = CLIPPED) -> str:
    """Return a text of several lines, with every character visible, cut behind `limit` characters."""
    text = str(value)
    return make_visible(text if len(text) <= limit else f"{text[:limit]}…", lines=True)


def show_json(value: Any, limit: int = 400) -> str:
    """Return a value as JSON on one line, cut behind `limit` characters."""
    return show_text(dump_shown(value), limit)


def dump_shown(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON in which letters of every script stay as they are."""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent, default=str)


def show_age(second: float | None, now: float) -> str:
    """Return how long ago a wall-clock second was, or how far ahead it is (`in 5 m`), in one unit."""
    if second is None:
        return "–"
    gone = abs(now - second)
    unit, size = next(((unit, size) for unit, size in _UNITS if gone >= size), ("s", 1.0))
    text = f"{gone / size:.0f} {unit}"
    return f"in {text}" if second > now else text


def show_time(second: Any) -> str:
    """Return a wall-clock second in the time zone of this server."""
    moment = _as_moment(second)
    return "–" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def show_utc(second: Any) -> str:
    """Return a wall-clock second in UTC, in ISO format."""
    moment = _as_moment(second)
    return "–" if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def show_count(number: int) -> str:
    """Return a count, or that there are more than are counted."""
    return f"more than {_MOST_COUNTED:,}" if number > _MOST_COUNTED else f"{number:,}"


def show_share(share: float | None) -> str:
    """Return a share in percent, or a dash."""
    return "–" if share is None else f"{share * 100:.0f} %"


def show_microseconds(number: Any) -> str:
    """Return a duration in its best unit."""
    if not isinstance(number, int | float):
        return "–"
    if number < 1_000:  # noqa: PLR2004 - to milliseconds
        return f"{number:.0f} µs"
    return f"{number / 1_000:.1f} ms" if number < 1_000_000 else f"{number / 1_000_000:.1f} s"  # noqa: PLR2004 - to seconds


def _as_moment(second: Any) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(second, dt.UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
