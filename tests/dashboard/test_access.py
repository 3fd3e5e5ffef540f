"""Who is let in, who may decide, and whose forms count."""

import pytest
from dashboard_site import HOST, Dashboard, Visit, ask, claim
from starlette.applications import Starlette
from starlette.routing import Mount

from pokayoke.dashboard import HeaderAccess, TokenAccess, app
from pokayoke.errors import ConfigurationError

PAGES = (
    "/",
    "/questions",
    "/ledger",
    "/audit",
    "/runs",
    "/tools",
    "/replay",
    "/setup",
    "/switches",
    "/events",
)


@pytest.mark.parametrize("path", [*PAGES, "/ledger.csv", "/ledger/abcdef", "/nothing"])
async def test_nobody_sees_anything_without_a_session(dashboard, path):
    """Every page but the sign-in answers 401, and says where the link is."""
    answer = await Visit(dashboard.app).get(path)
    assert answer.status_code == 401
    assert "pokayoke dashboard" in answer.text


async def test_a_link_works_once_and_looking_at_it_does_not_use_it(dashboard):
    """The form may be opened by a program first; the second sign-in is refused, and the next link is announced."""
    first = dashboard.tokens[-1]
    for _ in range(3):
        assert (await Visit(dashboard.app).get(f"/enter?token={first}")).status_code == 200
    await dashboard.sign_in()
    again = await Visit(dashboard.app).post("/enter", {"token": first, "name": "eve"})
    assert (again.status_code, again.headers.get("set-cookie")) == (403, None)
    assert len(dashboard.tokens) == 2
    assert dashboard.tokens[-1] != first


async def test_the_cookie_is_for_this_server_alone(dashboard):
    """HttpOnly and SameSite=Strict, and the session ends where somebody signs out or after twelve hours."""
    visit = Visit(dashboard.app)
    answer = await visit.post("/enter", {"token": dashboard.tokens[-1], "name": "ann"})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert (await visit.get("/")).status_code == 200


async def test_a_session_ends(dashboard, clock, ann):
    """After twelve hours the page asks to sign in again."""
    clock.advance(12 * 3_600.0 + 1.0)
    assert (await ann.get("/")).status_code == 401


async def test_nobody_signs_in_without_a_name(dashboard):
    """The audit needs a name, and the link is not used up by the attempt."""
    answer = await Visit(dashboard.app).post("/enter", {"token": dashboard.tokens[-1], "name": "  "})
    assert answer.status_code == 422
    await dashboard.sign_in()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8788", "127.0.0.1.evil.example", "", "[::1", "127.0.0.1@evil.example"]
)
async def test_another_host_name_is_not_served(dashboard, ann, host):
    """A name that was bound to this address (DNS rebinding) gets 421, also with a session, also for the sign-in."""
    for path in ("/", "/healthz", f"/enter?token={dashboard.tokens[-1]}"):
        assert (await ann.get(path, host=host)).status_code == 421


FORGED = {
    "another origin": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "another origin, an old browser": {"origin": "https://evil.example", "sec-fetch-site": None},
    "a sandboxed page": {"origin": "null", "sec-fetch-site": "cross-site"},
    "a page of another port": {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"},
    "no origin at all": {"origin": None, "sec-fetch-site": None},
    "an origin of null alone": {"origin": "null", "sec-fetch-site": None},
    "the right site and a wrong origin": {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-origin"},
}


@pytest.mark.parametrize("how", FORGED)
async def test_a_form_of_another_page_decides_nothing(store, ann, how):
    """Whatever token it holds: 403, and the question still waits."""
    ident = ask(store)
    fields = {"csrf": await ann.csrf(f"/questions/{ident}"), "decision": "approve", "reason": "x"}
    assert (await ann.post(f"/questions/{ident}", fields, **FORGED[how])).status_code == 403
    assert store.approval(ident).status == "waiting"


@pytest.mark.parametrize("token", ["", "0" * 64, "another"])
async def test_a_form_without_its_token_decides_nothing(dashboard, store, ann, token):
    """No token, a made-up one, or that of somebody else's session: 403."""
    key = claim(store, "ab" * 32)
    if token == "another":
        token = await (await dashboard.sign_in("eve")).csrf(f"/ledger/{key}")
    answer = await ann.post(f"/ledger/{key}", {"csrf": token, "decision": "not_happened", "reason": "x"})
    assert answer.status_code == 403
    assert store.record(key).state == "in_doubt"


async def test_who_may_look_may_not_decide(store, clock):
    """Pages offer no form to a looker, and a form made by hand is refused."""
    ident = ask(store)
    eve = await Dashboard(store, clock, role="look").sign_in("eve")
    page = await eve.get(f"/questions/{ident}")
    assert "You may look here, not decide." in page.text
    assert '<form method="post"' not in page.text
    visitor_token = await eve.csrf("/questions")
    answer = await eve.post(f"/questions/{ident}", {"csrf": visitor_token, "decision": "approve", "reason": "x"})
    assert answer.status_code == 403
    assert store.approval(ident).status == "waiting"


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"x" * 70_000, "application/x-www-form-urlencoded", 413),
        (b"csrf=1", "multipart/form-data; boundary=x", 415),
        (b"csrf=1", "text/plain", 415),
        (b"\xff\xfe=1", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"a%d=1" % n for n in range(400)), "application/x-www-form-urlencoded", 400),
    ],
)
async def test_a_form_has_its_form(ann, content, kind, status):
    """Too long, of another type, no ASCII, too many fields: refused before any page sees it."""
    headers = {"content-type": kind, "sec-fetch-site": "same-origin", "origin": f"http://{HOST}"}
    assert (await ann.http.post("/switches", content=content, headers=headers)).status_code == status


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused(ann, method):
    """Pages take GET and POST."""
    assert (await ann.http.request(method, "/")).status_code == 405


# -- behind a login of one's own -------------------------------------------------------------------


@pytest.fixture
def proxied(store, clock):
    """A dashboard that believes the user header of one proxy."""
    access = HeaderAccess("X-Forwarded-User", proxies=("10.0.0.5",), hosts=("ops.example",), decide=("ann",))
    return app(store, access=access, clock=clock)


async def test_the_header_counts_from_the_proxy_alone(store, proxied):
    """The same header from any other address lets nobody in."""
    for address, status in (("10.0.0.5", 200), ("10.0.0.6", 401), ("127.0.0.1", 401)):
        visit = Visit(proxied, address, host="ops.example", **{"X-Forwarded-User": "ann"})
        assert (await visit.get("/")).status_code == status
    assert (await Visit(proxied, "10.0.0.5", host="ops.example").get("/")).status_code == 401


async def test_the_name_of_the_proxy_is_recorded_and_has_its_role(store, proxied):
    """Ann decides and is in the audit; Bob may look."""
    key = claim(store, "ab" * 32)
    ann, bob = (Visit(proxied, "10.0.0.5", host="ops.example", **{"X-Forwarded-User": name}) for name in ("ann", "bob"))
    assert "You may look here" in (await bob.get(f"/ledger/{key}")).text
    answer = await ann.submit(f"/ledger/{key}", decision="happened", reference="PO-7", reason="seen in the shop")
    assert answer.status_code == 303
    assert store.audit()[-1].by == "ann"


def test_access_that_would_let_everybody_in_is_refused():
    """No proxy, no header, no host: a mistake of whoever mounts it, said while building."""
    for make in (
        lambda: HeaderAccess("X-User", proxies=(), hosts=("ops.example",)),
        lambda: HeaderAccess(" ", proxies=("10.0.0.5",), hosts=("ops.example",)),
        lambda: HeaderAccess("X-User", proxies=("10.0.0.5",), hosts=()),
        lambda: TokenAccess(hosts=()),
    ):
        with pytest.raises(ConfigurationError):
            make()


async def test_links_lead_below_the_place_where_it_is_mounted(store, clock):
    """Mounted at /ops, every link, form and asset of a page begins with /ops."""
    inner = Dashboard(store, clock)
    visit = Visit(Starlette(routes=[Mount("/ops", inner.app)]))
    answer = await visit.post("/ops/enter", {"token": inner.tokens[-1], "name": "ann"})
    assert answer.headers["location"] == "/ops/"
    page = (await visit.get("/ops/questions")).text
    for attribute in ('href="/', 'src="/', 'action="/'):
        assert all(part.startswith("ops/") for part in page.split(attribute)[1:])
    assert (await visit.get("/ops/static/dashboard.css")).status_code == 200


async def test_health_needs_nobody_and_says_whether_the_store_answers(store, dashboard):
    """200 while it does, 503 when it does not, without a word of what is in it."""
    visit = Visit(dashboard.app)
    assert (await visit.get("/healthz")).json() == {"status": "ok"}
    store.close()
    answer = await visit.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")


async def test_programs_of_this_machine_read_metrics(store, dashboard):
    """Without a session, from this machine alone; from elsewhere it takes one."""
    claim(store, "ab" * 32)
    answer = await Visit(dashboard.app).get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "pokayoke_" in answer.text
    assert (await Visit(dashboard.app, "10.1.2.3").get("/metrics")).status_code == 401
    assert (await Visit(dashboard.app).get("/metrics", host="evil.example")).status_code == 421
