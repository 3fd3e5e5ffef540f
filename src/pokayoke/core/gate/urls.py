"""Checks the text of a URL argument, before any name is resolved.

In: the text that the model sent, and the rule of the argument.
Out: the URL in one form, or a finding.
Never: a guess. Clients differ in how they read white space, backslashes, user names, numbers and international names; a
URL that leads two of them to two places is refused. Where a name leads needs the network:
`pokayoke.runtime.network` checks that, and a URL that passes here alone proves nothing about its addresses.

Sources: RFC 3986 for the parts of a URL, and the URL standard (WHATWG) for what browsers make of the rest.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.url_rule import DEFAULT_PORTS, MAX_PORT, UrlRule
from pokayoke.core.network.addresses import address_kind
from pokayoke.core.network.hosts import HostName, is_inside_name, normalise_host

MAX_URL_CHARS = 8_000
"""Longest URL in characters: what RFC 9110 asks every server to take, in octets."""

_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(.*))?", re.DOTALL)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_KEPT = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'(*+),;=%"
)  # RFC 3986, reserved and unreserved
_MAX_DISPLAY_CHARS = 160

_ELSEWHERE = "Do not try another spelling of it. Send a URL of another site, or tell the user that it is out of reach."
_WRITE_PLAINLY = "Send the URL as https://, the name of the host, and the path."
# rule -> (code, what is wrong, for operators; what to send, for the model)
_RULES: dict[str, tuple[str, str, str]] = {
    "type": ("bad_url", "is not text", "Send the URL as a string."),
    "empty": ("bad_url", "is empty", "Send a whole URL, with its scheme and host."),
    "too_long": ("bad_url", f"is longer than {MAX_URL_CHARS} characters", "Send a shorter URL."),
    "surrogate": ("bad_url", "holds half of a character (a lone surrogate)", "Send the URL in valid Unicode."),
    "space": (
        "bad_url",
        "holds white space, a control character or an invisible one",
        "Send the URL without line breaks and control characters, and write a space as %20.",
    ),
    "backslash": ("bad_url", "holds a backslash", "Write / between the parts of the URL, or %5C for a backslash."),
    "relative": ("bad_url", "is not an absolute URL", "Send a whole URL, with its scheme, :// and its host."),
    "percent": ("bad_url", "holds a % that encodes nothing", "Write % itself as %25."),
    "host": ("bad_url", "has no valid host", f"The host is missing or misspelt. {_WRITE_PLAINLY}"),
    "port": ("bad_url", "has no valid port", "Leave the port out, or write it as a decimal number."),
    "encoded_host": ("bad_url", "has a percent-encoded host", _WRITE_PLAINLY),
    "zone": ("url_refused", "names a zone of this machine's network", _ELSEWHERE),
    "odd_address": ("url_refused", "spells an IP address in a way that programs read differently", _ELSEWHERE),
    "two_meanings": (
        "bad_url",
        "has a host name that programs read differently",
        "Send the host's name as its owner writes it, in ordinary letters, or in its ASCII form (xn--).",
    ),
    "user": ("url_refused", "holds a user name or password", "Send the URL without anything before an @."),
    "scheme": ("url_refused", "has a scheme that its rule does not allow", ""),
    "outside": ("url_refused", "has a host that its rule does not allow", _ELSEWHERE),
    "inside_name": ("url_refused", "names a host of a private network", _ELSEWHERE),
    "address": ("url_refused", "names an address that is not public", _ELSEWHERE),
    "port_outside": ("url_refused", "has a port that its rule does not allow", ""),
}


class UrlParts(msgspec.Struct, frozen=True, gc=False):
    """A URL that a rule allows, in one form.

    Attributes:
        scheme: `http` or `https`.
        host: the host.
        port: the port, also where it is that of the scheme.
        target: path and query in ASCII, as they stand in a request.
        fragment: with its #, or "".
    """

    scheme: str
    host: HostName
    port: int
    target: str
    fragment: str = ""

    @property
    def text(self) -> str:
        """The URL as text: ASCII, without the port of its scheme."""
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host.url_text}{port}{self.target}{self.fragment}"


def display_url(url: str) -> str:
    """Return a URL as an operator may read it: one ASCII line without user and query, cut after 160 characters."""
    text = re.split(r"[?#]", url[: 2 * _MAX_DISPLAY_CHARS], maxsplit=1)[0]
    if "@" in text:
        text = f"...@{text.rpartition('@')[2]}"
    return ascii(text[:_MAX_DISPLAY_CHARS] + ("..." if len(text) < len(url) or len(text) > _MAX_DISPLAY_CHARS else ""))


def url_finding(rule: str, url: Any, at: str = "", limits: UrlRule | None = None) -> Finding:
    """Build the finding for a URL.

    Args:
        rule: name of the rule that was broken.
        url: the URL as it was sent.
        at: JSON pointer of the argument.
        limits: what the argument may reach, where the hint names the schemes or ports that remain.

    Returns:
        a `bad_url` or `url_refused` finding; `data["rule"]` names the rule.
    """
    code, wrong, hint = _RULES[rule]
    if limits is not None and rule == "scheme":
        hint = f"Send a URL that begins with {' or '.join(f'{one}://' for one in limits.schemes)}."
    if limits is not None and rule == "port_outside":
        hint = "Leave the port out." if not limits.ports else f"Use port {' or '.join(map(str, limits.ports))}."
    text = display_url(url) if isinstance(url, str) else type(url).__name__
    return Finding(code, at, "model", f"URL {text} {wrong}", hint, {"rule": rule})


def check_url(url: Any, rule: UrlRule, *, at: str = "") -> Finding | None:
    """Check the text of a URL.

    Args:
        url: the URL as the model sent it.
        rule: what it may reach.
        at: JSON pointer of the argument, for the finding.

    Returns:
        None if its host may be resolved, else a finding with code `bad_url` or `url_refused`.
    """
    parts = parse_url(url, rule, at=at)
    return parts if isinstance(parts, Finding) else None


def parse_url(url: Any, rule: UrlRule, *, at: str = "") -> UrlParts | Finding:
    """Split a URL that a rule allows into its parts, each in one form.

    Args:
        url: the URL as the model sent it.
        rule: what it may reach.
        at: JSON pointer of the argument, for the finding.

    Returns:
        the parts; or a finding with code `bad_url` or `url_refused`.
    """
    if not isinstance(url, str):
        return url_finding("type", url, at)
    broken = _examine_url(str(url), rule) if len(url) <= MAX_URL_CHARS else "too_long"
    return url_finding(broken, url, at, rule) if isinstance(broken, str) else broken


@functools.lru_cache(maxsize=256)
def _examine_url(url: str, rule: UrlRule) -> UrlParts | str:
    """Return the parts, or the name of the broken rule. Remembered: the gate and the client ask in turn."""
    if broken := _broken_text_rule(url):
        return broken
    split = _PARTS.fullmatch(url)
    if split is None or not split[2]:
        return "relative"
    scheme, authority = split[1].lower(), split[2]
    if scheme not in rule.schemes:
        return "scheme"
    if "@" in authority:
        return "user"
    place = _read_authority(authority, scheme)
    if isinstance(place, str):
        return place
    host, port = place
    if broken := _broken_host_rule(host, rule):
        return broken
    if not rule.allows_port(scheme, port):
        return "port_outside"
    target = _encode_text(f"{split[3] or '/'}{split[4] or ''}")
    return UrlParts(scheme, host, port, target, _encode_text(split[5] or ""))


def _read_authority(authority: str, scheme: str) -> tuple[HostName, int] | str:
    """Return host and port, or the name of the broken rule."""
    split = _AUTHORITY.fullmatch(authority)
    if split is None:
        return "host"
    host, port = normalise_host(split[1]), split[2]
    if isinstance(host, str):
        return host
    if port is None:
        return host, DEFAULT_PORTS[scheme]
    return (host, int(port)) if _PORT.fullmatch(port) and int(port) <= MAX_PORT else "port"


def _broken_text_rule(url: str) -> str:
    """Return the rule that the characters break, or ""."""
    if not url or url.isspace():
        return "empty"
    if any("\ud800" <= char <= "\udfff" for char in url):
        return "surrogate"
    if not (url.isascii() and url.isprintable() and " " not in url) and any(
        unicodedata.category(char) in _INVISIBLE for char in url
    ):
        return "space"
    if "\\" in url:
        return "backslash"
    # In the host, every % is refused, and named as what it is.
    return "percent" if _BAD_PERCENT.search(re.sub(r"(://)[^/?#]*", r"\1", url, count=1)) else ""


def _broken_host_rule(host: HostName, rule: UrlRule) -> str:
    """Return the rule that a host in its one form breaks, or ""."""
    if not rule.allows_host(host):
        return "outside"
    if host.address is not None:
        kind = address_kind(host.address)
        return "" if kind is None or kind in rule.addresses else "address"
    return "inside_name" if not rule.hosts and is_inside_name(host.text) else ""


def _encode_text(text: str) -> str:
    """Return path, query or fragment with every byte percent-encoded that RFC 3986 does not have there."""
    return "".join(chr(byte) if byte in _KEPT else f"%{byte:02X}" for byte in text.encode())
