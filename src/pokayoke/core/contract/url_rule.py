"""Where a URL argument may lead.

In: schemes, hosts, ports and kinds of addresses, as a programmer writes them.
Out: a rule whose hosts stand in the form in which they are compared.
Never: a rule that a misspelling makes wider. What cannot hold is a ContractError.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Any, cast

import msgspec

from pokayoke.core.network.addresses import ADDRESS_KINDS, address_kind, read_address
from pokayoke.core.network.hosts import HostName, normalise_host
from pokayoke.errors import ContractError

DEFAULT_PORTS = {"http": 80, "https": 443}
"""The schemes that a rule may allow, and the port of each that needs no name."""
MAX_PORT = 65535


class UrlRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the URLs of an argument may lead. Without options: every public host over https, at port 443.

    Args:
        schemes: `https`, `http` or both.
        hosts: host names, `*.example.com` for every name below that one (not for itself), and IP addresses. Empty
            means every public host.
        ports: the ports; empty means the port of the scheme.
        addresses: kinds of addresses beside public ones that a host may have: `loopback`, `private`, `link_local`,
            `cgnat`, `multicast`, `reserved`, `metadata` (the services of clouds that hand out credentials; no
            other kind includes them).

    Raises:
        ContractError: a value is unknown, no host, or cannot be reached under the rule.
    """

    schemes: tuple[str, ...] = ("https",)
    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Bring the hosts into their one form, and refuse what cannot hold."""
        for name in ("schemes", "hosts", "ports", "addresses"):
            value: Any = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
                raise ContractError(f"UrlRule: {name} is a tuple such as (a, b), not {value!r}")
            _seal(self, name, tuple(cast("list[Any]", value)))
        _require_choices("schemes", self.schemes, tuple(DEFAULT_PORTS))
        _require_choices("addresses", self.addresses, ADDRESS_KINDS)
        if not self.schemes:
            raise ContractError("UrlRule: schemes is empty, so that no URL could fit. Leave it out for https")
        for port in self.ports:
            if type(cast("object", port)) is not int or not 0 < port <= MAX_PORT:
                raise ContractError(f"UrlRule: a port is a whole number from 1 to {MAX_PORT}, not {port!r}")
        _seal(self, "hosts", tuple(_read_host(one, self.addresses) for one in self.hosts))

    def allows_host(self, host: HostName) -> bool:
        """Return whether the rule names a host, or names none."""
        if not self.hosts or host.text in self.hosts:
            return True
        below = () if host.address is not None else tuple(one[1:] for one in self.hosts if one.startswith("*"))
        return host.text.endswith(below)

    def allows_port(self, scheme: str, port: int) -> bool:
        """Return whether a port may be used with a scheme."""
        return port in (self.ports or (DEFAULT_PORTS[scheme],))


_seal = msgspec.structs.force_setattr


def _require_choices(name: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for one in given:
        if one not in known:
            raise ContractError(f"UrlRule: {name} holds {one!r}. Known: {', '.join(known)}")


def _read_host(given: object, addresses: tuple[str, ...]) -> str:
    """Return one host of a rule in the form in which hosts are compared."""
    if not isinstance(given, str):
        raise ContractError(f"UrlRule: hosts holds names, not {given!r}")
    wild = given.startswith("*.")
    name = given[2:] if wild else given
    address = read_address(name)
    host = normalise_host(f"[{name}]" if isinstance(address, IPv6Address) else name)
    if isinstance(host, str):
        raise ContractError(
            f"UrlRule: {given!r} is no host. Write a name such as docs.example.com, *.example.com for every name "
            "below it, or an IP address; no scheme, port or path"
        )
    if wild and (host.address is not None or "." not in host.text):
        raise ContractError(f"UrlRule: {given!r} is too wide. Name a domain, such as *.example.com")
    kind = None if host.address is None else address_kind(host.address)
    if kind is not None and kind not in addresses:
        raise ContractError(f"UrlRule: {given!r} is a {kind} address. Allow that by name: addresses=({kind!r},)")
    return f"*.{host.text}" if wild else host.text
