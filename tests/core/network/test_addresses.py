"""Kinds of addresses: what is public, and what only makes sense inside a network."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.network.addresses import ADDRESS_KINDS, address_kind, is_embedding, read_address

KINDS = [
    ("93.184.216.34", None),
    ("8.8.8.8", None),
    ("192.31.196.1", None),
    ("100.63.255.255", None),
    ("172.32.0.1", None),
    ("2606:4700:4700::1111", None),
    ("2001:4860:4860::8888", None),
    ("::ffff:8.8.8.8", None),
    ("64:ff9b::808:808", None),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("::1", "loopback"),
    ("::ffff:127.0.0.1", "loopback"),
    ("64:ff9b::7f00:1", "loopback"),
    ("10.0.0.1", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.168.1.1", "private"),
    ("::ffff:10.0.0.1", "private"),
    ("fc00::1", "private"),
    ("fdff::1", "private"),
    ("fec0::1", "private"),
    ("169.254.0.1", "link_local"),
    ("fe80::1", "link_local"),
    ("fe80::1%eth0", "link_local"),
    ("100.64.0.1", "cgnat"),
    ("100.127.255.255", "cgnat"),
    ("224.0.0.1", "multicast"),
    ("ff02::1", "multicast"),
    ("0.0.0.0", "reserved"),
    ("0.1.2.3", "reserved"),
    ("192.0.0.8", "reserved"),
    ("192.0.2.1", "reserved"),
    ("198.18.0.1", "reserved"),
    ("198.51.100.1", "reserved"),
    ("203.0.113.1", "reserved"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "reserved"),
    ("::", "reserved"),
    ("::7f00:1", "reserved"),
    ("2001::1", "reserved"),
    ("2001:db8::1", "reserved"),
    ("2002:7f00:1::", "reserved"),
    ("3fff::1", "reserved"),
    ("64:ff9b:1::1", "reserved"),
    ("5f00::1", "reserved"),
    ("4000::1", "reserved"),
    ("169.254.169.254", "metadata"),
    ("169.254.170.2", "metadata"),
    ("::ffff:169.254.169.254", "metadata"),
    ("64:ff9b::a9fe:a9fe", "metadata"),
    ("fd00:ec2::254", "metadata"),
    ("100.100.100.200", "metadata"),
    ("192.0.0.192", "metadata"),
    ("168.63.129.16", "metadata"),
]


@pytest.mark.parametrize(("text", "kind"), KINDS)
def test_an_address_has_its_kind(text, kind):
    """The registries of IANA decide, and an address inside another counts as what it is."""
    address = read_address(text)
    assert address is not None
    assert address_kind(address) == kind


@pytest.mark.parametrize(
    "text", ["", "localhost", "1.2.3", "01.2.3.4", "0x7f.0.0.1", "2130706433", "::g", "1.2.3.4:80"]
)
def test_what_is_no_address_is_none(text):
    """Only the full decimal and the colon form are addresses."""
    assert read_address(text) is None


@given(number=st.integers(0, 2**32 - 1))
def test_what_the_standard_library_calls_not_global_is_not_public(number):
    """No IPv4 address that `ipaddress` knows as private, loopback, link-local, multicast or reserved is public here."""
    address = ipaddress.IPv4Address(number)
    known = address.is_private or address.is_multicast or address.is_reserved or not address.is_global
    if known:
        # Two addresses of 192.0.0.0/24 are global; that network is refused as a whole.
        assert address_kind(address) in ADDRESS_KINDS


@given(number=st.integers(0, 2**128 - 1))
def test_an_ipv6_address_that_is_not_global_is_not_public(number):
    """The same for IPv6, whose public part is 2000::/3 alone."""
    address = ipaddress.IPv6Address(number)
    if address.ipv4_mapped is None and not address.is_global:
        assert address_kind(address) in ADDRESS_KINDS or is_embedding(address)
    if address_kind(address) is None and not is_embedding(address):
        assert address in ipaddress.IPv6Network("2000::/3")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("::ffff:1.2.3.4", True), ("::102:304", True), ("64:ff9b::1", True), ("64:ff9b:1::1", True),
        ("2001:0:1::1", True), ("2002:102:304::", True), ("::1", False), ("::", False), ("2606::1", False),
        ("1.2.3.4", False),
    ],
)  # fmt: skip
def test_an_ipv6_address_may_spell_an_ipv4_address(text, is_one):
    """Mapped, compatible, translated and tunnelled addresses are other spellings."""
    assert is_embedding(ipaddress.ip_address(text)) is is_one
