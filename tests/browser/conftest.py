"""A real Chromium, a real server, a real store."""

import importlib
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from browser_site import Person, Site
from pgserver import Missing, empty_schema

import pokayoke
from tools.browser import FOLDER, find_chromium

ARGUMENTS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run")


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
