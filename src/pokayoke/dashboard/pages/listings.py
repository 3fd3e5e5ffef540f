"""Listings that wait: how a server lists a tool by now beside what is approved, and the approval of it.

In: the file of approved listings, and a form.
Out: the whole difference, who approved the tool before, one more approval.
Never: an approval of a difference that the page has not shown whole.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pokayoke.core.versions.listing_changes import list_changes
from pokayoke.dashboard import words
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.versions.approved_listings import (
    ListingApproval,
    WaitingListing,
    approve_listing,
    read_approved,
    read_waiting,
)

_MOST_BYTES: Final = 40_000
_LATEST: Final = 20


class ListingView(msgspec.Struct, frozen=True):
    """What a page shows of a tool's listing.

    Args:
        waiting: what its server lists otherwise than approved; None for nothing.
        changes: place, text before and text now; empty if they are too long for a page.
        history: approvals of the tool, the latest first.
        problem: why the file cannot be read.
    """

    waiting: WaitingListing | None = None
    changes: tuple[tuple[str, str, str], ...] = ()
    history: tuple[ListingApproval, ...] = ()
    problem: str = ""


def list_waiting_tools(file: Path | None) -> tuple[list[str], str]:
    """Return the tools that wait for an approval, and why the file cannot be read."""
    try:
        return ([one.tool for one in read_waiting(file)] if file is not None else []), ""
    except ConfigurationError as error:
        return [], str(error)


def view_listing(file: Path | None, tool: str) -> ListingView:
    """Return what the page of a tool shows of its listing."""
    if file is None:
        return ListingView()
    try:
        waiting = next((one for one in read_waiting(file) if one.tool == tool), None)
        history = tuple(one for one in reversed(read_approved(file).history) if one.tool == tool)[:_LATEST]
    except ConfigurationError as error:
        return ListingView(problem=str(error))
    changes = list_changes(waiting.approved or {}, waiting.entry) if waiting is not None else []
    shown = tuple((one["at"], one["before"], one["after"]) for one in changes)
    size = sum(len(html.escape(words.show_lines(part, len(part))).encode()) for one in shown for part in one)
    return ListingView(waiting, shown if size <= _MOST_BYTES else (), history)


def approve_shown(file: Path | None, tool: str, form: Mapping[str, str], *, by: str, now: float) -> str:
    """Approve the listing that a form has shown; return what is in force by now.

    Raises:
        ConfigurationError: there is no file, its entry is another one by now, or the reason is missing.
    """
    if file is None:
        raise ConfigurationError("no file of approved listings is shown here")
    done = approve_listing(file, tool, seen=form.get("hash", ""), by=by, reason=form.get("reason", ""), now=now)
    return f"{done.tool} is approved as it is listed now. A gateway that runs takes it over by itself."
