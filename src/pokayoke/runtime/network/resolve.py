"""Host names to the addresses that may be connected to.

In: a host name, a rule, and a function that resolves names.
Out: the addresses, each checked; or a `UrlRefused`.
Never: some of the addresses of a name. Whoever owns a name may answer with a public address and a private one; a
name that leads to one address that is refused is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from pokayoke.core.call import Finding
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.network.addresses import address_kind, read_address
from pokayoke.errors import UrlRefused

Resolver = Callable[[str, int], Iterable[str]]
"""Takes a host name and a port and returns its addresses as text; raises OSError if there are none."""

MOST_ADDRESSES = 64
"""A name with more addresses than this is refused."""
_HINT = (
    "That site leads to an address that may not be reached from here. Do not try another spelling of it. Send a URL of "
    "another site, or tell the user that it is out of reach."
)


def resolve_name(host: str, port: int) -> list[str]:
    """Resolve a name as the operating system does.

    Raises:
        OSError: the name has no address, or nobody answered.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def check_addresses(host: str, found: Iterable[str], rule: UrlRule) -> tuple[str, ...]:
    """Return the addresses of a host, all of which the rule allows.

    Args:
        host: its name, for the finding.
        found: its addresses as text.
        rule: what may be reached.

    Raises:
        UrlRefused: with code `address_refused`: one of them is not public and not allowed, or is no address.
        OSError: there is none.
    """
    addresses = tuple(found)
    if not addresses:
        raise OSError(f"{host} has no address")
    for text in addresses[: MOST_ADDRESSES + 1]:
        address = read_address(text)
        kind = "unreadable" if address is None else address_kind(address)
        if len(addresses) > MOST_ADDRESSES:
            raise _build_refusal(host, f"more than {MOST_ADDRESSES} addresses", "many")
        if kind is not None and kind not in rule.addresses:
            raise _build_refusal(host, f"{text[:60]!a}, which is {kind.replace('_', '-')}", kind)
    return addresses


def _build_refusal(host: str, what: str, rule: str) -> UrlRefused:
    message = f"host {host[:255]!a} has {what}"
    return UrlRefused(message, Finding("address_refused", "", "model", message, _HINT, {"rule": rule}))
