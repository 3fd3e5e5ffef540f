"""A dashboard that is served to real browsers, and the people who use it."""

import threading

from pokayoke.dashboard import TokenAccess, app
from pokayoke.dashboard.serve import address_of, build_server, listen_on


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
        # A browser logs each answer that is an error; those are answers of the page, which the test reads.
        page.on(
            "console", lambda line: "409 (Conflict)" in line.text or self.problems.append(f"{line.type}: {line.text}")
        )
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
