"""The host of a URL in one ASCII form.

In: a host as it stands in a URL.
Out: the form in which hosts are compared, or the name of the rule that the host breaks.
Never: a host that two programs read differently. Clients differ in IDNA 2003 and 2008, in the numbers that they take
for IPv4 addresses, and in the characters they fold; what depends on that is refused.
"""

from __future__ import annotations

import re
import unicodedata
from ipaddress import IPv4Address, IPv6Address

import msgspec

from pokayoke.core.network.addresses import Address, is_embedding

MAX_HOST_CHARS = 253
"""Longest host in characters: the limit of the domain name system (RFC 1035)."""
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # as the URL standard's "ends in a number"
_BRACKETED = re.compile(r"\[([0-9a-f:.]+)\]", re.ASCII)
_MAPPED = frozenset("\u00df\u03c2\u1e9e")  # IDNA 2003 makes other letters of these, IDNA 2008 keeps them
_SIGNS = frozenset("-_.\u00b7\u30fb")  # what a name may hold beside letters, marks and numbers (RFC 5892)
# Names that never stand in the public domain name system (RFC 6761, 6762 with its appendix G, 8375; ICANN).
_INSIDE = ("localhost", "localdomain", "local", "internal", "intranet", "private", "corp", "home", "lan", "home.arpa")


class HostName(msgspec.Struct, frozen=True, gc=False):
    """A host in its one form.

    Attributes:
        text: lower case ASCII, without a trailing dot; an IPv6 address has no brackets.
        address: the address that it is, if it is one.
    """

    text: str
    address: Address | None = None

    @property
    def url_text(self) -> str:
        """The host as it stands in a URL: an IPv6 address in brackets."""
        return f"[{self.text}]" if ":" in self.text else self.text


def normalise_host(host: str) -> HostName | str:
    """Return a host in its one form, or the name of the rule it breaks.

    Args:
        host: as it stands in a URL, IPv6 addresses in brackets. It holds no white space and no control characters.

    Returns:
        the host; or `host` (no host name), `encoded_host`, `zone`, `odd_address` (a spelling of an IP address that
        programs read differently), `two_meanings` (a name that they read differently).
    """
    low = host.lower()
    if "%" in low:
        return "zone" if low.startswith("[") else "encoded_host"
    if low.startswith("["):
        return _read_ipv6(low)
    if not low.isascii():
        encoded = _encode_idna(low)
        if encoded is None:
            return "two_meanings"
        low = encoded
    low = low.removesuffix(".")
    labels = low.split(".")
    if len(low) > MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        return "host"
    if _NUMBER.fullmatch(labels[-1]):
        return _read_ipv4(low)
    if any(label.startswith("xn--") and not _is_stable_label(label) for label in labels):
        return "two_meanings"
    return HostName(low)


def is_inside_name(name: str) -> bool:
    """Return whether a host name can only belong to a private network: it has no dot, or a reserved ending."""
    return "." not in name or any(name == one or name.endswith(f".{one}") for one in _INSIDE)


def _read_ipv6(host: str) -> HostName | str:
    found = _BRACKETED.fullmatch(host)
    try:
        address = IPv6Address(found[1] if found else "")
    except ValueError:
        return "host"
    if "." in host or is_embedding(address):
        return "odd_address"
    return HostName(address.compressed, address)


def _read_ipv4(host: str) -> HostName | str:
    """Read four decimal numbers; every other spelling means another address, or none, to some program."""
    try:
        address = IPv4Address(host)  # refuses leading zeros, hexadecimal and missing parts
    except ValueError:
        return "odd_address"
    return HostName(host, address)


def _encode_idna(host: str) -> str | None:
    """Return the ASCII form of an international name; None if IDNA 2003 and 2008 may disagree on it."""
    if not _MAPPED.isdisjoint(host) or not _has_name_letters(host):
        return None
    try:
        encoded = host.encode("idna").decode("ascii")
        return encoded if encoded.encode("ascii").decode("idna") == host else None
    except UnicodeError:
        return None


def _is_stable_label(label: str) -> bool:
    """Return whether an encoded label decodes to letters that are encoded in the same way again.

    What IDNA 2003 would map is fine here: in its ASCII form a name has one meaning.
    """
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        same = decoded.encode("punycode").decode("ascii") == label[4:]
    except UnicodeError:
        return False
    return same and not decoded.isascii() and decoded.lower() == decoded and _has_name_letters(decoded)


def _has_name_letters(text: str) -> bool:
    """Return whether a text holds only letters, marks and numbers that stay what they are (NFKC), and a few signs."""
    known = all(char in _SIGNS or unicodedata.category(char)[0] in "LMN" for char in text)
    return known and unicodedata.normalize("NFKC", text) == text
