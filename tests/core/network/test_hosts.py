"""The host of a URL in one ASCII form."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pokayoke.core.network.hosts import HostName, is_inside_name, normalise_host

GOOD = [
    ("example.com", "example.com"),
    ("EXAMPLE.Com", "example.com"),
    ("example.com.", "example.com"),
    ("a_b.example.com", "a_b.example.com"),
    ("r3---sn-4g5e.example.com", "r3---sn-4g5e.example.com"),
    ("1e100.net", "1e100.net"),
    ("4chan.example", "4chan.example"),
    ("bücher.example", "xn--bcher-kva.example"),
    ("BÜCHER.example", "xn--bcher-kva.example"),
    ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ("xn--fa-hia.de", "xn--fa-hia.de"),
    ("пример.рф", "xn--e1afmkfd.xn--p1ai"),
    ("例え.jp", "xn--r8jz45g.jp"),
    ("раураl.com", "xn--l-7sba6dbr.com"),
    ("8.8.8.8", "8.8.8.8"),
    ("8.8.8.8.", "8.8.8.8"),
    ("[2606:4700:4700:0::1111]", "2606:4700:4700::1111"),
    ("[::1]", "::1"),
    ("localhost", "localhost"),
]

BAD = [
    ("host", ""),
    ("host", "."),
    ("host", ".."),
    ("host", ".example.com"),
    ("host", "example..com"),
    ("host", "example.com.."),
    ("host", "-a.example.com"),
    ("host", "a-.example.com"),
    ("host", "exa$mple.com"),
    ("host", "a,b.com"),
    ("host", "a;b.com"),
    ("host", "a" * 64 + ".com"),
    ("host", "a." * 127 + "com"),
    ("host", "[]"),
    ("host", "[::1"),
    ("host", "[1.2.3.4]"),
    ("host", "[v1.fe80::a]"),
    ("host", "[::g]"),
    ("odd_address", "[::ffff:127.0.0.1]"),
    ("odd_address", "[::ffff:7f00:1]"),
    ("odd_address", "[::127.0.0.1]"),
    ("odd_address", "[0:0:0:0:0:ffff:169.254.169.254]"),
    ("odd_address", "[64:ff9b::7f00:1]"),
    ("odd_address", "[2002:7f00:1::]"),
    ("odd_address", "[2606:4700::1.2.3.4]"),
    ("zone", "[fe80::1%25eth0]"),
    ("zone", "[fe80::1%eth0]"),
    ("encoded_host", "%31%32%37.0.0.1"),
    ("encoded_host", "example%2ecom"),
    ("encoded_host", "example.com%00.evil.com"),
    ("odd_address", "2130706433"),
    ("odd_address", "017700000001"),
    ("odd_address", "0x7f000001"),
    ("odd_address", "0x7F.0.0.1"),
    ("odd_address", "0177.0.0.1"),
    ("odd_address", "127.0.0.01"),
    ("odd_address", "127.1"),
    ("odd_address", "127.0.1"),
    ("odd_address", "0"),
    ("odd_address", "0x"),
    ("odd_address", "1.2.3.4.5"),
    ("odd_address", "256.256.256.256"),
    ("odd_address", "425.510.425.510"),
    ("odd_address", "example.0x1"),
    ("odd_address", "169.254.43518"),
    ("two_meanings", "ｅｘａｍｐｌｅ.com"),
    ("two_meanings", "①②⑦.⓪.⓪.①"),
    ("two_meanings", "１２７.0.0.1"),
    ("two_meanings", "127。0。0。1"),
    ("two_meanings", "example．com"),
    ("two_meanings", "example｡com"),
    ("two_meanings", "ⓔxample.com"),
    ("two_meanings", "faß.de"),
    ("two_meanings", "ὀδυσσεύς.example"),
    ("two_meanings", "a\u200db.example"),
    ("two_meanings", "exa\u00admple.com"),
    ("two_meanings", "℀.example"),
    ("two_meanings", "e\u0301.example"),
    ("two_meanings", "xn--a"),
    ("host", "xn--example-.com"),
    ("two_meanings", "xn--bcher-kva8.com"),
    ("host", "xn--.com"),
    ("two_meanings", "xn--ab-r13a.com"),
    ("two_meanings", "😀.com"),
    ("two_meanings", "xn--e28h.com"),
    ("two_meanings", "a∕b.com"),
    ("two_meanings", "xn--BCHER-kva.com".replace("kva", "kvaé")),
    ("two_meanings", "xn--0.pt"),
    ("two_meanings", "ü" * 70 + ".com"),
]


@pytest.mark.parametrize(("host", "text"), GOOD)
def test_a_host_has_one_form(host, text):
    """Case, a trailing dot and international letters lead to one ASCII form."""
    found = normalise_host(host)
    assert isinstance(found, HostName)
    assert found.text == text
    assert (found.address is not None) is (text[0] in "8:2")


@pytest.mark.parametrize(("rule", "host"), BAD)
def test_a_host_that_programs_read_differently_is_none(rule, host):
    """Each rule is named for the host that breaks it."""
    assert normalise_host(host) == rule


HOSTS = st.text(st.sampled_from("ab01x.-_[]:%ÉßВａ。①\u200d"), max_size=12) | st.text(max_size=12)


@given(host=HOSTS)
@example("xn--fa-hia.de")
def test_the_one_form_is_its_own_form(host):
    """Normalising twice equals normalising once, and the form is ASCII without signs of a URL."""
    found = normalise_host(host)
    if isinstance(found, HostName):
        assert normalise_host(found.url_text) == found
        assert found.text.isascii()
        assert not set(found.text) & set("/\\@?#[]% ")


@pytest.mark.parametrize(
    "name", ["localhost", "a.localhost", "intranet", "printer.local", "x.internal", "nas.home.arpa", "a.lan"]
)
def test_a_name_of_a_private_network_is_known(name):
    """Names without a dot and with a reserved ending belong inside."""
    assert is_inside_name(name)


@pytest.mark.parametrize("name", ["example.com", "local.example.com", "mylocal.net", "home.arpa.com"])
def test_a_public_name_is_no_inside_name(name):
    """Only the ending counts."""
    assert not is_inside_name(name)
