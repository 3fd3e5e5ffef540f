"""Who may look and who may decide: a link from the terminal, or the user header of a proxy.

In: the headers and the address of a request.
Out: a visitor, or nobody.
Never: a token that works twice, a header believed from an unknown address, or a name for nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

import msgspec

from pokayoke.errors import ConfigurationError

Role = Literal["look", "decide"]
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
_SESSION_SECONDS: Final = 12 * 3_600.0
_MOST_SESSIONS: Final = 1_000
_LONGEST_NAME: Final = 100


class Visitor(msgspec.Struct, frozen=True):
    """Somebody who was let in.

    Args:
        name: recorded with every decision.
        role: whether decisions are offered and accepted.
        csrf: the token that every form of this visitor carries.
    """

    name: str
    role: Role
    csrf: str

    @property
    def may_decide(self) -> bool:
        """Whether this visitor may decide."""
        return self.role == "decide"


class Access(ABC):
    """Who is let in.

    Args:
        hosts: values of `Host` that are meant for this application, without a port. Anything else is a page whose
            name was bound to this address (DNS rebinding).
    """

    has_links = False

    def __init__(self, hosts: Collection[str]) -> None:
        if not hosts:
            raise ConfigurationError("no host name is served: name those under which people open the dashboard")
        self.hosts = frozenset(host.lower() for host in hosts)
        self._secret = secrets.token_bytes(32)

    @abstractmethod
    def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str], address: str) -> Visitor | None:
        """Return who sends a request, or None.

        Args:
            headers: of the request, by name in small letters.
            cookies: of the request.
            address: of the peer.
        """

    def may_scrape(self, address: str) -> bool:
        """Return whether a peer may read metrics without a session: programs of this machine may.

        Args:
            address: of the peer.
        """
        try:
            return ipaddress.ip_address(address).is_loopback
        except ValueError:
            return False

    def sign_csrf(self, session: str) -> str:
        """Return the token that the forms of a session carry."""
        return hmac.new(self._secret, session.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


class TokenAccess(Access):
    """Lets in whoever opens a link that is printed where only the operator reads; each link works once.

    Args:
        hosts: as for `Access`; those of this machine by default.
        role: what visitors may do.
        cookie: name of the cookie; cookies do not tell ports apart, so a port belongs into it.
        announce: called with the token of the next link, at once and after each use.
        now: returns the time in seconds.
    """

    has_links = True

    def __init__(
        self,
        hosts: Collection[str] = LOOPBACK_HOSTS,
        *,
        role: Role = "decide",
        cookie: str = "pokayoke",
        announce: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(hosts)
        self.cookie = cookie
        self._role: Role = role
        self._announce, self._now = announce, now
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._token = ""

    def offer_link(self) -> str:
        """Make the next token, announce it and return it. The one before it works no more."""
        with self._lock:
            self._token = token = secrets.token_urlsafe(32)
        self._announce(token)
        return token

    def is_open(self, token: str) -> bool:
        """Return whether a token would let somebody in."""
        with self._lock:
            return bool(self._token) and hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode())

    def begin_session(self, token: str, name: str) -> str | None:
        """Use a token. Returns the value of the cookie, or None if the token was used or is none.

        Args:
            token: of the link.
            name: of the visitor; recorded with every decision.
        """
        session = secrets.token_urlsafe(32)
        with self._lock:
            given, known = token.encode("utf-8", "replace"), self._token.encode()
            if not known or not name.strip() or not hmac.compare_digest(given, known):
                return None
            self._token = ""
            self._sessions[_digest(session)] = (name.strip()[:_LONGEST_NAME], self._now() + _SESSION_SECONDS)
            if len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)
        self.offer_link()
        return session

    def end_session(self, cookies: Mapping[str, str]) -> None:
        """Forget the session of a request."""
        with self._lock:
            self._sessions.pop(_digest(cookies.get(self.cookie, "")), None)

    def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str], address: str) -> Visitor | None:  # noqa: ARG002 - the signature of the base class
        """Return whose cookie a request carries, or None."""
        session = cookies.get(self.cookie, "")
        with self._lock:
            name, until = self._sessions.get(_digest(session), ("", 0.0))
        return Visitor(name, self._role, self.sign_csrf(session)) if self._now() < until else None


class HeaderAccess(Access):
    """Lets in whom a reverse proxy names in a header that it has verified and overwrites.

    Args:
        header: such as `X-Forwarded-User`.
        proxies: addresses of the proxies; the header of anybody else is not believed.
        hosts: as for `Access`.
        decide: names that may decide, or a function that says so of a name; the others may look.

    Raises:
        ConfigurationError: no proxy or no host is named.
    """

    def __init__(
        self,
        header: str,
        *,
        proxies: Collection[str],
        hosts: Collection[str],
        decide: Collection[str] | Callable[[str], bool] = (),
    ) -> None:
        super().__init__(hosts)
        if not proxies or not header.strip():
            raise ConfigurationError("a user header is believed from named addresses only: name the proxies")
        self._header, self._proxies = header.lower(), frozenset(proxies)
        self._may_decide = decide if callable(decide) else frozenset(decide).__contains__

    def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str], address: str) -> Visitor | None:  # noqa: ARG002 - the signature of the base class
        """Return whom the proxy names, or None."""
        name = headers.get(self._header, "").strip()[:_LONGEST_NAME]
        if not name or address not in self._proxies:
            return None
        role: Role = "decide" if self._may_decide(name) else "look"
        return Visitor(name, role, self.sign_csrf(name))


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
