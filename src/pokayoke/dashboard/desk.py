"""What the pages read and decide with, and how a page is made of it.

In: a store, trace files, reports, a configuration.
Out: HTML.
Never: a value that a template writes without escaping it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pokayoke.code_pages import find_code_page
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.dashboard import trend, words
from pokayoke.dashboard.gate import RequestState, request_state
from pokayoke.dashboard.shared_reads import SharedReads
from pokayoke.dashboard.trace_index import TraceIndex
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.threads.clock import Clock
from pokayoke.stores.base import Store
from pokayoke.stores.lists import Pulse

NAVIGATION: Final = (
    ("", "Now"),
    ("questions", "Questions"),
    ("ledger", "Ledger"),
    ("runs", "Runs"),
    ("tools", "Tools"),
    ("replay", "Replay"),
    ("setup", "Set-up"),
)
_PULSE_SECONDS: Final = 1.0
_LONGEST_LINK: Final = 600


class SetupReport(msgspec.Struct, frozen=True):
    """What an examination of the set-up has found.

    Args:
        at: wall-clock second.
        probes: name, fault and whether the guard fired, of every probe.
        problems: code, place and message of what has to be changed.
        notes: where less is guaranteed than the documentation says.
    """

    at: float
    probes: tuple[tuple[str, str, bool], ...] = ()
    problems: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()


class VersionChange(msgspec.Struct, frozen=True):
    """One difference of two versions: its place, what changes, breaking/unknown/safe, and whom it breaks."""

    at: str
    what: str
    kind: str
    breaks: str


class RecordedEffect(msgspec.Struct, frozen=True):
    """What another version would do to recorded calls.

    Args:
        calls: recorded calls of the tool.
        broken: those that would be refused, or whose answer would be invalid.
        mended: those that were, and would not be.
        ways: each way in which calls differ, and how many do.
    """

    calls: int
    broken: int
    mended: int
    ways: tuple[tuple[str, int], ...]


class VersionComparison(msgspec.Struct, frozen=True):
    """Two versions of a tool beside each other; `recorded` is None if no calls were judged."""

    old: str
    new: str
    changes: tuple[VersionChange, ...]
    recorded: RecordedEffect | None = None


class ContractSteps(Protocol):
    """Compares versions of a lock and takes its steps, as the commands do."""

    def compare(self, tool: str, *, scored: bool) -> VersionComparison | None:
        """Return what the candidate changes, or what the stable version has changed; None if there is one version."""
        ...

    def find_writers(self, source: str) -> tuple[str, ...]:
        """Return the writes in force that build on a tool, or that do not say on what they build."""
        ...

    def take(self, tool: str, step: str, share: str, *, by: str, reason: str) -> str:
        """Take a step; return what is in force by now."""
        ...


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pages find what is not in the store; None is said to be missing, with the command that makes it.

    Args:
        store_name: how pages name the store; never with a password.
        trace: reads the trace files.
        reports: the folder with the HTML reports of `pokayoke replay`.
        lock: the lock of contracts.
        steps: compares its versions and takes its steps.
        approved: the file of approved listings with which gateways run.
        config: the configuration file.
        examine: fires every guard and returns what it has found.
        list_clients: returns client, server, state and detail of the MCP servers that are configured here.
    """

    store_name: str = "the store"
    trace: TraceIndex | None = None
    reports: Path | None = None
    lock: Path | None = None
    steps: ContractSteps | None = None
    approved: Path | None = None
    config: Path | None = None
    examine: Callable[[], SetupReport] | None = None
    list_clients: Callable[[], list[tuple[str, str, str, str]]] | None = None


class PageDesk:
    """The store and the sources behind all pages.

    Args:
        store: holds effects, questions, switches and runs.
        sources: everything else.
        redactor: removes secrets from what is shown.
        clock: gives the time.
        mode: of the configuration: enforce or monitor.

    Attributes:
        reads: the store's lists, shared by open pages. Decisions use the store itself.
        report: the latest examination that was asked for here; None before the first.
    """

    def __init__(self, store: Store, sources: Sources, redactor: Redactor, clock: Clock, mode: str = "enforce") -> None:
        self.mode = mode
        self.store, self.sources, self.redactor, self.clock = store, sources, redactor, clock
        self.approvals = Approvals(store, clock)
        self.reads = SharedReads(store)
        self.report: SetupReport | None = None
        self._lock = threading.Lock()
        self._pulse: tuple[float, Pulse] | None = None
        loader = jinja2.PackageLoader("pokayoke.dashboard")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        self._templates.trim_blocks = self._templates.lstrip_blocks = True
        filters: dict[str, Any] = {
            "text": words.show_text,
            "lines": words.show_lines,
            "json": words.show_json,
            "time": words.show_time,
            "utc": words.show_utc,
            "count": words.show_count,
            "share": words.show_share,
            "us": words.show_microseconds,
            "code_page": find_code_page,
        }
        self._templates.filters.update(filters)
        shared: dict[str, Any] = {"trend": trend, "navigation": NAVIGATION}
        self._templates.globals.update(shared)

    def now(self) -> float:
        """Return the wall-clock second."""
        return self.clock.now()

    def read_pulse(self) -> Pulse:
        """Return the counts that stand beside the navigation; at most a second old, for all pages together."""
        with self._lock:
            at = self.clock.monotonic()
            if self._pulse is None or at - self._pulse[0] >= _PULSE_SECONDS:
                self._pulse = (at, self.store.pulse(self.now()))
            return self._pulse[1]

    def note_pulse(self) -> Pulse:
        """Read the pulse now, and let pages use it for a second."""
        found = self.store.pulse(self.now())
        with self._lock:
            known, self._pulse = self._pulse, (self.clock.monotonic(), found)
        if known is None or known[1] != found:
            self.reads.forget()
        return found

    def render(
        self,
        request: Request,
        name: str,
        *,
        status: int = 200,
        pulse: Pulse | None = None,
        has_frames: bool = False,
        **context: Any,
    ) -> Response:
        """Return a page.

        Args:
            request: that it answers.
            name: of the template, without its ending.
            status: of the answer.
            pulse: the counts for the navigation; None for none.
            has_frames: True if the page shows reports of this server in frames.
            context: what the template shows.
        """
        nonce, state = secrets.token_urlsafe(16), page_state(request)
        root = request.scope.get("root_path", "").rstrip("/")
        now = self.now()
        html = self._templates.get_template(f"{name}.html").render(
            nonce=nonce,
            root=root,
            visitor=state.visitor,
            pulse=pulse,
            now=now,
            here=_below(request.url.path, root),
            address=quote(_below(request.url.path, root), safe="/~:@-._", errors="replace")
            + (f"?{request.url.query}" if request.url.query else ""),
            age=partial(words.show_age, now=now),
            link=build_link,
            **context,
        )
        return HTMLResponse(html, status, {"Content-Security-Policy": page_policy(nonce, has_frames=has_frames)})

    def redirect(self, request: Request, path: str) -> Response:
        """Return the answer to a form that was accepted: the page to look at next."""
        self._pulse = None
        self.reads.forget()
        return RedirectResponse(request.scope.get("root_path", "").rstrip("/") + path, 303)


def page_state(request: Request) -> RequestState:
    """Return what the gate knows of a request."""
    return request_state(request.scope)


def page_policy(nonce: str, *, has_frames: bool = False) -> str:
    """Return the content security policy of a page."""
    frames = "frame-src 'self'; " if has_frames else ""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        f"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; {frames}require-trusted-types-for 'script'; "
        "trusted-types htmx"
    )


def build_link(path: str, fields: Mapping[str, Any] | None = None, **more: Any) -> str:
    """Return a path with a query of the fields that hold something; `/too-long` if it would not fit a page."""
    pairs = [(name, str(value)) for name, value in {**(fields or {}), **more}.items() if value not in (None, "")]
    quoted = quote(path, safe="/~:@-._", errors="replace")
    link = f"{quoted}?{urlencode(pairs, errors='replace')}" if pairs else quoted
    return link if len(link) <= _LONGEST_LINK else "/too-long"


def _below(path: str, root: str) -> str:
    return path[len(root) :] if root and path.startswith(root) else path
