"""Signing in with the link of the terminal, and out again.

In: a token, and the name under which decisions are recorded.
Out: a cookie.
Never: a token that is used up by looking at it: programs open links before people do.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pokayoke.dashboard.access import Access, TokenAccess
from pokayoke.dashboard.desk import PageDesk, page_state


def entry_routes(desk: PageDesk, access: Access) -> list[Route]:
    """Return the routes for signing in; none where a proxy signs people in."""
    if not isinstance(access, TokenAccess):
        return []

    def endpoint(view: Callable[[PageDesk, TokenAccess, Request], Response]) -> Callable[[Request], Response]:
        return lambda request: view(desk, access, request)

    return [
        Route("/enter", endpoint(_show_form), methods=["GET"]),
        Route("/enter", endpoint(_begin_session), methods=["POST"]),
        Route("/leave", endpoint(_end_session), methods=["POST"]),
    ]


def _show_form(desk: PageDesk, access: TokenAccess, request: Request) -> Response:
    token = request.query_params.get("token", "")
    if not access.is_open(token):
        return desk.render(request, "closed", status=403, title="Sign in", used=bool(token), has_links=True)
    return desk.render(request, "enter", title="Sign in", token=token, problem="")


def _begin_session(desk: PageDesk, access: TokenAccess, request: Request) -> Response:
    form = page_state(request).form
    token, name = form.get("token", ""), form.get("name", "")
    if access.is_open(token) and not name.strip():
        return desk.render(request, "enter", status=422, title="Sign in", token=token, problem="Say who you are.")
    session = access.begin_session(token, name)
    if session is None:
        return desk.render(request, "closed", status=403, title="Sign in", used=True, has_links=True)
    answer = desk.redirect(request, "/")
    answer.set_cookie(
        access.cookie,
        session,
        path=request.scope.get("root_path", "") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _end_session(desk: PageDesk, access: TokenAccess, request: Request) -> Response:
    access.end_session(page_state(request).cookies)
    answer = desk.redirect(request, "/enter")
    answer.delete_cookie(
        access.cookie, path=request.scope.get("root_path", "") or "/", httponly=True, samesite="strict"
    )
    return answer
