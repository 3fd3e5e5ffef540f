"""The built documentation site in a real Chromium: from the disk and from a server, narrow and wide, searched offline."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

HTML = Path(__file__).resolve().parents[2] / "build" / "site" / "html"
KINDS = ("index", "tutorial", "guides/ledger", "reference/findings", "reference/config", "api/guards")
WORD = "reconciliation"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, *args):
        pass


@pytest.fixture(params=["disk", "server"])
def address(request, need):
    """Where the site is opened."""
    if not (HTML / "index.html").exists():
        need("the documentation site: make site")
    if request.param == "disk":
        yield HTML.as_uri()
        return
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(HTML)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("width", [400, 1_400])
def test_pages_fit_the_window_and_ask_nobody_else(browser, address, width):
    """No page is wider than the window, writes a console line or asks another address for anything."""
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=address.startswith("file:"))
    page, problems = context.new_page(), []
    page.on("console", lambda line: problems.append(f"{page.url}: {line.type}: {line.text}"))
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("request", lambda sent: sent.url.startswith((address, "data:", "blob:")) or problems.append(sent.url))
    for path in [*KINDS, *find_code_pages()[:2]]:
        page.goto(f"{address}/{path}.html")
        page.wait_for_load_state("networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            problems.append(f"{path}: {wide} pixels wider than the window")
    context.close()
    assert problems == []


def test_the_search_answers(browser, address):
    """What is typed letter by letter stays in the field, and a result leads to a page that has it, also offline."""
    context = browser.new_context(viewport={"width": 1_400, "height": 900}, offline=address.startswith("file:"))
    page = context.new_page()
    page.goto(f"{address}/index.html")
    page.click("button.md-search__button")
    field = page.locator("input[aria-label=Search]")
    for letter in WORD:
        page.keyboard.press(letter)
        page.wait_for_timeout(150)  # as somebody types: an answer comes between two letters
    assert field.input_value() == WORD
    page.locator(f"a[href*='.html']:has-text('{WORD}')").first.click()
    page.wait_for_url(lambda url: "index.html" not in url)
    assert WORD in page.inner_text("article").lower()
    context.close()


def find_code_pages():
    """The pages of finding codes, as paths without their ending."""
    return sorted(path.relative_to(HTML).with_suffix("").as_posix() for path in HTML.glob("reference/findings/*.html"))
