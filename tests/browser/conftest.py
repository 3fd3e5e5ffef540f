"""A real Chromium, a real server, a real store."""

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pgserver import Missing, empty_schema

import pokayoke
from pokayoke.dashboard import TokenAccess, app
from pokayoke.dashboard.serve import address_of, build_server, listen_on
from tools.browser import FOLDER, find_chromium

ARGUMENTS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run")


class Site:
    """A dashboard that is served to browsers.

    Attributes:
        url: where it is.
        tokens: the tokens of its links.
    """

    def __init__(self, url_of_store, address="127.0.0.1:0", **options) -> None:
        self._listening = listen_on(address, "--port")
        self.address = address_of(self._listening)
        self.url = f"http://{self.address}"
        self.tokens: list[str] = []
        self._ready = threading.Event()
        access = TokenAccess(cookie=f"pokayoke-{self.address.rpartition(':')[2]}", announce=self.tokens.append)
        access.offer_link()
        self._server = build_server(app(url_of_store, access=access, **options), ready=self._ready.set)
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[self._listening]), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(30)
        self._listening.close()


class Person:
    """Somebody with a browser of their own.

    Attributes:
        page: the tab.
        problems: console lines, failed scripts, reports of the policy, and requests to elsewhere.
    """

    def __init__(self, browser, site, name, **options) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1_400, "height": 900}, **options})
        self.site, self.name = site, name
        self.problems: list[str] = []
        self.page = self.open_tab()
        self.page.goto(f"{site.url}/enter?token={site.tokens[-1]}")
        self.page.fill("input[name=name]", name)
        self.page.click("button")

    def open_tab(self):
        """Open a tab that is watched."""
        page = self.context.new_page()
        page.on("console", lambda line: self.problems.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self._note_request(request.url))
        return page

    def goto(self, path):
        """Open a page of the dashboard."""
        return self.page.goto(self.site.url + path)

    def wait_live(self) -> None:
        """Wait until the page hears of changes."""
        self.page.wait_for_selector("#live-state.on")

    def _note_request(self, url) -> None:
        if not url.startswith((self.site.url, "data:")):
            self.problems.append(f"a request to {url}")


@pytest.fixture(scope="session")
def browser(need_session):
    """One Chromium for all tests; each person has a profile of their own."""
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        need_session("playwright: make browser")
    chromium = find_chromium()
    if chromium is None:
        need_session("Chromium: make browser")
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def need_session():
    """`need` for what lasts as long as the session."""

    def miss(reason):
        if os.environ.get("CI"):
            pytest.fail(f"CI has to provide this: {reason}", pytrace=False)
        pytest.skip(reason)

    return miss


@pytest.fixture(scope="session")
def axe(need_session):
    """The text of axe-core."""
    file = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        need_session("axe-core: make browser")
    return file.read_text(encoding="utf-8")


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request, tmp_path, need) -> Iterator[str]:
    """The URL of an empty store of each kind."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/ledger.db"
        if request.param == "postgres":
            try:
                url = stack.enter_context(empty_schema())
            except Missing as missing:
                need(str(missing))
        pokayoke.open_store(url, create=True).close()
        yield url


@pytest.fixture
def store(store_url):
    """The store as a program uses it."""
    opened = pokayoke.open_store(store_url)
    yield opened
    opened.close()


@pytest.fixture
def site(store_url, tmp_path):
    """A served dashboard over the store and a trace."""
    served = Site(store_url, trace=tmp_path / "trace.jsonl")
    yield served
    served.close()


@pytest.fixture
def visit(browser, site):
    """Let people in; what their browsers complained about fails the test."""
    people: list[Person] = []

    def let_in(name="Ann", **options) -> Person:
        people.append(Person(browser, site, name, **options))
        return people[-1]

    yield let_in
    for person in people:
        person.context.close()
    assert [problem for person in people for problem in person.problems] == []
