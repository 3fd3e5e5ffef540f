"""The ASGI application: its pages, its live events, its health and its figures.

In: a store, or its URL, and whom to let in.
Out: an application for any ASGI server.
Never: a page that opens a trace file or a store that it was not given.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from pokayoke.core.policy import Policy
from pokayoke.dashboard.access import Access
from pokayoke.dashboard.desk import PageDesk, Sources
from pokayoke.dashboard.gate import AsgiApp, DashboardGate, EntryRefused, Scope
from pokayoke.dashboard.live import Watcher
from pokayoke.dashboard.machine import SignedApprovals
from pokayoke.dashboard.pages import entry, ledger, now, questions, replay, runs, setup, switches, tools
from pokayoke.dashboard.trace_index import TraceIndex
from pokayoke.errors import StoreError
from pokayoke.runtime.config.config import load_policy
from pokayoke.runtime.metrics.store import render_store_metrics
from pokayoke.runtime.threads.clock import Clock, SystemClock
from pokayoke.runtime.trace.redaction import build_redactor
from pokayoke.stores import open_store
from pokayoke.stores.base import Store

_STATIC: Final = Path(__file__).parent / "static"
_DRIVERS: Final = ("apsw", "psycopg", "sqlite3")


def app(
    store: Store | str,
    *,
    access: Access,
    trace: str | Path | None = None,
    approved: str | Path | None = None,
    config: str | Path | None = None,
    sources: Sources | None = None,
    secrets: Sequence[bytes] = (),
    clock: Clock | None = None,
) -> AsgiApp:
    """Return the dashboard as an ASGI application.

    Args:
        store: a store, or the URL of one; it has to exist.
        access: whom to let in: `TokenAccess` for links of your own, `HeaderAccess` behind a login.
        trace: a trace file, of which runs and calls are shown.
        approved: the file of approved listings with which gateways run; the page of a tool approves what is listed
            otherwise.
        config: a configuration file; its redaction rules apply to what is shown.
        sources: more to show; see `Sources`. Its trace is used if `trace` is None, and its approved listings likewise.
        secrets: of programs that list and answer questions below `/approvals`, see
            `runtime.approvals.signature.secrets_from_environment`; without any, there is no such endpoint.
        clock: gives the time.

    Raises:
        StoreError: the store cannot be opened.
        PolicyError: the configuration is invalid.
    """
    opened = open_store(store) if isinstance(store, str) else store
    found = sources or Sources()
    clock = clock or SystemClock()
    policy: Policy = load_policy(None if config is None else str(config))
    index = found.trace or (TraceIndex(Path(trace)) if trace is not None else None)
    file = Path(approved) if approved is not None else found.approved
    used = msgspec.structs.replace(found, trace=index, approved=file)
    desk = PageDesk(opened, used, build_redactor(policy.trace), clock, policy.mode)
    machine = SignedApprovals(desk.approvals, secrets, desk.redactor, clock=clock) if secrets else None
    return _build_gate(desk, access, machine=machine)


def _build_gate(desk: PageDesk, access: Access, *, machine: AsgiApp | None) -> AsgiApp:
    files = desk.sources.trace
    watcher = Watcher(desk.note_pulse, files.stamp if files is not None else lambda: None, desk.reads.take_count)
    desk.reads.is_shared = lambda: watcher.pages > 1

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        desk.store.close()

    pages = Starlette(
        routes=_routes(desk, access, watcher),
        lifespan=lifespan,
        exception_handlers={404: _page_for(desk), 405: _page_for(desk), Exception: _page_for(desk)},
    )
    return DashboardGate(pages, access, machine, lambda scope, why: _answer_refused(desk, access, scope, why))


def _routes(desk: PageDesk, access: Access, watcher: Watcher) -> list[BaseRoute]:
    def page(path: str, view: Callable[[PageDesk, Request], Response], *methods: str) -> Route:
        def endpoint(request: Request) -> Response:
            try:
                return view(desk, request)
            except Exception as error:
                if not _is_store_failure(error):
                    raise
                message = f"The store cannot be used now: {error}. Nothing was changed by this request."
                return desk.render(request, "problem", status=503, title="", message=message)

        return Route(path, endpoint, methods=list(methods or ("GET",)))

    return [
        page("/", now.show_now),
        page("/switches", switches.show_switch),
        page("/switches", switches.turn_switch, "POST"),
        page("/questions", questions.list_questions),
        page("/questions/{ident}", questions.show_question),
        page("/questions/{ident}/arguments", questions.show_arguments),
        page("/questions/{ident}", questions.answer_question, "POST"),
        page("/ledger", ledger.list_effects),
        page("/ledger.{kind:str}", ledger.export_effects),
        page("/ledger/{key}", ledger.show_effect),
        page("/ledger/{key}", ledger.settle_effect, "POST"),
        page("/audit", ledger.list_audit),
        page("/runs", runs.list_runs),
        page("/runs/{run_id:path}/calls/{offset:int}", runs.show_event),
        page("/runs/{run_id:path}", runs.show_run),
        page("/tools", tools.list_tools),
        page("/tools/{tool:path}", tools.show_tool),
        page("/tools/{tool:path}", tools.take_step, "POST"),
        page("/replay", replay.list_reports),
        page("/replay/{name}", replay.show_report),
        page("/setup", setup.show_setup),
        page("/setup", setup.examine_setup, "POST"),
        page("/metrics", _show_metrics),
        *entry.entry_routes(desk, access),
        *_program_routes(desk, watcher),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]


def _program_routes(desk: PageDesk, watcher: Watcher) -> list[Route]:
    async def events(_: Request) -> Response:
        return StreamingResponse(watcher.stream(), media_type="text/event-stream")

    def health(_: Request) -> Response:
        try:
            desk.store.pulse(desk.now())
        except Exception as error:  # noqa: BLE001 - a store may raise anything; this says that it does
            return JSONResponse({"status": "unavailable", "store": type(error).__name__}, 503)
        return JSONResponse({"status": "ok"})

    return [Route("/events", events), Route("/healthz", health)]


def _show_metrics(desk: PageDesk, _: Request) -> Response:
    text = render_store_metrics(desk.store, desk.now())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _page_for(desk: PageDesk) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        words = {404: "There is nothing here.", 405: "This page takes no such request."}
        message = words.get(status, f"The page could not be made ({type(error).__name__}). Nothing was changed by it.")
        return desk.render(request, "problem", status=status, title="", message=message)

    return answer


def _answer_refused(desk: PageDesk, access: Access, scope: Scope, why: EntryRefused) -> AsgiApp:
    request = Request(scope)
    if why.status == 401:  # noqa: PLR2004 - nobody has signed in
        return desk.render(request, "closed", status=401, title="Sign in", used=False, has_links=access.has_links)
    return desk.render(request, "problem", status=why.status, title="", message=why.message)


def _is_store_failure(error: Exception) -> bool:
    return isinstance(error, StoreError | OSError) or type(error).__module__.partition(".")[0] in _DRIVERS
