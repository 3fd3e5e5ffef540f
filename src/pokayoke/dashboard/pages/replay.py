"""Replay: the HTML reports of `pokayoke replay`, kept in a folder.

In: a folder.
Out: a list, two reports side by side, one report in a page that can do nothing.
Never: a file outside of that folder, or a script of a report.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pokayoke.dashboard.desk import PageDesk

_MOST: Final = 200
_MOST_BYTES: Final = 20_000_000
_POLICY: Final = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"


class KeptReport(msgspec.Struct, frozen=True):
    """One report.

    Args:
        name: of its file.
        at: wall-clock second of its last change.
        size: bytes.
    """

    name: str
    at: float
    size: int


def list_reports(desk: PageDesk, request: Request) -> Response:
    """Show the reports, the latest first; `left` and `right` show two of them side by side."""
    reports = _find_reports(desk.sources.reports)
    names = {one.name for one in reports}
    chosen = [request.query_params.get(side, "") for side in ("left", "right")]
    return desk.render(
        request,
        "replay",
        title="Replay",
        pulse=desk.read_pulse(),
        folder=desk.sources.reports,
        reports=reports,
        chosen=[one for one in chosen if one in names],
        has_frames=True,
    )


def show_report(desk: PageDesk, request: Request) -> Response:
    """Return one report as it is, in a page without scripts, forms and links to elsewhere."""
    name = request.path_params["name"]
    found = next((one for one in _find_reports(desk.sources.reports) if one.name == name), None)
    if found is None or desk.sources.reports is None or found.size > _MOST_BYTES:
        why = "too large to be shown here" if found else "not in the folder of reports"
        return desk.render(
            request, "problem", status=404, title="Replay", pulse=desk.read_pulse(), message=f"This report is {why}."
        )
    html = (desk.sources.reports / found.name).read_bytes()
    return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY, "X-Frame-Options": "SAMEORIGIN"})


def _find_reports(folder: Path | None) -> list[KeptReport]:
    if folder is None or not folder.is_dir():
        return []
    found = [(path.name, path.lstat()) for path in folder.glob("*.html")]
    kept = [KeptReport(name, seen.st_mtime, seen.st_size) for name, seen in found if stat.S_ISREG(seen.st_mode)]
    return sorted(kept, key=lambda one: (-one.at, one.name))[:_MOST]
