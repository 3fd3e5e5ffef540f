"""Kinds of IP addresses: which ones only make sense inside a network, and which are public.

In: an address as text, or parsed.
Out: the kind that keeps it from being public, or "".
Never: a kind that depends on the version of Python. The tables stand here; those of `ipaddress` change.

Sources: the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890), RFC 6598 for carrier-grade NAT,
RFC 6052 for IPv4 inside IPv6, and the documentation of cloud providers for their metadata services.
"""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, get_args

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
AddressKind = Literal["loopback", "private", "link_local", "cgnat", "multicast", "reserved", "metadata"]
"""Kinds of addresses that are not public. `cgnat` is shared address space, `metadata` the services of clouds."""
ADDRESS_KINDS: tuple[str, ...] = get_args(AddressKind)

# Services that hand out credentials. They come first: allowing link-local addresses must not open them.
_METADATA = (
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23"),  # AWS and most others
    *("100.100.100.200", "192.0.0.192", "168.63.129.16", "fd20:ce::254"),  # Alibaba, Oracle, Azure, Google
)
_NETWORKS: dict[AddressKind, tuple[str, ...]] = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    "link_local": ("169.254.0.0/16", "fe80::/10"),
    "cgnat": ("100.64.0.0/10",),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": (
        *("0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    ),
}
_UNICAST = IPv6Network("2000::/3")  # the only part of IPv6 that is given out for the public network (RFC 4291)
_MAPPED, _NAT64 = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
_EMBEDDING = tuple(
    IPv6Network(one) for one in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)
_IPV4_BITS = 0xFFFFFFFF


@cache
def _build_table() -> tuple[tuple[Network, AddressKind], ...]:
    return tuple((ip_network(text), kind) for kind, texts in _NETWORKS.items() for text in texts)


@cache
def _metadata_addresses() -> frozenset[Address]:
    return frozenset(map(ip_address, _METADATA))


def read_address(text: str) -> Address | None:
    """Read an address as a resolver returns it, with or without a zone; None if it is none."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def address_kind(address: Address) -> AddressKind | None:
    """Return why an address is not public; None if it is.

    An IPv4 address inside an IPv6 one (mapped, or of a NAT64) has the kind of the IPv4 address.
    """
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in _NAT64):
        address = IPv4Address(int(address) & _IPV4_BITS)
    if address in _metadata_addresses():
        return "metadata"
    for network, kind in _build_table():
        if address.version == network.version and address in network:
            return kind
    return "reserved" if isinstance(address, IPv6Address) and address not in _UNICAST else None


def is_embedding(address: Address) -> bool:
    """Return whether an IPv6 address is, or may be, another spelling of an IPv4 address.

    The loopback address `::1` and the unspecified `::` lie in that range and are no spellings of another one.
    """
    return isinstance(address, IPv6Address) and int(address) > 1 and any(address in one for one in _EMBEDDING)
