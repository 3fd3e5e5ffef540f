"""A dashboard as a test builds it, its visitors, what it shows, and what must hold of each page."""

import html.parser
import re

import httpx

from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.dashboard import TokenAccess, app

NOW = 1_900_000_000.0
HOST = "127.0.0.1:8788"


class Visit:
    """A browser that follows no redirect, keeps cookies and sends what browsers send."""

    def __init__(self, application, address="127.0.0.1", **headers) -> None:
        transport = httpx.ASGITransport(application, client=(address, 50_000), raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers)

    async def get(self, path, **headers) -> httpx.Response:
        """Open a page."""
        return await self.http.get(path, headers=headers)

    async def post(self, path, fields, **headers) -> httpx.Response:
        """Send a form as a page of this server does."""
        sent = {"origin": "null", "sec-fetch-site": "same-origin", **headers}
        return await self.http.post(path, data=fields, headers={k: v for k, v in sent.items() if v is not None})

    async def csrf(self, path) -> str:
        """The token of the forms of a page."""
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', (await self.get(path)).text)
        return found[1] if found else ""

    async def submit(self, path, page=None, **fields) -> httpx.Response:
        """Send a form with the token of its page."""
        return await self.post(path, {"csrf": await self.csrf(page or path), **fields})


class Dashboard:
    """A dashboard over a store.

    Attributes:
        tokens: the tokens of the links it has printed.
    """

    def __init__(self, store, clock, role="decide", **options) -> None:
        self.tokens: list[str] = []
        self.access = TokenAccess(role=role, announce=self.tokens.append, now=clock.now)
        self.app = app(store, access=self.access, clock=clock, **options)
        self.access.offer_link()

    async def sign_in(self, name="ann") -> Visit:
        """Use the present link."""
        visit = Visit(self.app)
        answer = await visit.post("/enter", {"token": self.tokens[-1], "name": name})
        assert answer.status_code == 303, answer.text
        return visit


def claim(store, key, state="in_doubt", *, tool="pay", run="order-1", at=NOW - 60.0):
    """An effect in a state."""
    wish = Claim(key, "h", "c1", tool, f"{tool}@1", run, at, 1_000.0)
    store.admit(AdmissionRequest(run, tool, "write", (), at, wish))
    if state != "executing":
        failure = "the answer was lost" if state == "in_doubt" else ""
        store.settle(
            Settlement(key, "c1", state, at + 1.0, failure=failure, output=b"1" if state == "completed" else None)
        )
    return key


def ask(
    store, number=1, *, arguments=None, tool="close_account", why=(), expires=NOW + 3_600.0, run="order-1", approvers=1
):
    """A question that waits."""
    mark = f"{number:064x}"
    given = {"customer": f"C-{number}", "password": "hunter2hunter2"} if arguments is None else arguments
    store.propose(
        Approval(
            f"ap-{number:024x}", mark, tool, f"{tool}@1", given, run, NOW - 30.0, expires, why=why, approvers=approvers
        )
    )
    return f"ap-{number:024x}"


def make_invalid(store, tool="look_up", times=3):
    """Invalid outputs, which flip the switch of a tool."""
    store.observe(
        [OutputObservation(tool, False, NOW - 10.0 + number, run_id=str(number)) for number in range(times)], NOW
    )


class PageCheck(html.parser.HTMLParser):
    """What must hold of the HTML of every page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.problems: list[str] = []
        self._form: dict | None = None
        self._script: str | None = None

    def handle_starttag(self, tag, attrs):
        """Look at one element."""
        given = dict(attrs)
        if "style" in given or any(name.startswith("on") for name in given):
            self.problems.append(f"inline: {tag} {given}")
        if tag == "script" and not (given.get("nonce") and given.get("src")):
            self.problems.append(f"inline script: {given}")
        if tag == "style":
            self.problems.append("inline style")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "form":
            self._form = {"method": given.get("method"), "fields": set(), "action": given.get("action")}
        if tag == "input" and self._form is not None:
            self._form["fields"].add(given.get("name"))
        if any(name.startswith("hx-") for name in given) and not given.get("hx-nonce"):
            self.problems.append(f"htmx without a nonce: {given}")

    def handle_endtag(self, tag):
        """Look at a whole form."""
        if tag == "form" and self._form is not None:
            wanted = "token" if self._form["action"].endswith("/enter") else "csrf"
            if self._form["method"] == "post" and wanted not in self._form["fields"]:
                self.problems.append(f"a form without a token: {self._form}")
            self._form = None


def check_page(answer) -> PageCheck:
    """Check a page; returns its links."""
    assert len(answer.content) <= 100_000
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    check = PageCheck()
    check.feed(answer.text)
    assert check.problems == []
    return check
