"""The text of URL arguments: what is refused, what is left alone, and the one form of the rest."""

from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pokayoke.core.call import Finding
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.finding_codes import CODES_BY_ROOM
from pokayoke.core.gate.urls import _RULES, check_url, display_url, parse_url

ANY = UrlRule()
SITE = UrlRule(hosts=("example.com", "*.example.com", "8.8.8.8"))
WIDE = UrlRule(schemes=("http", "https"), ports=(80, 443, 8080))
INSIDE = UrlRule(schemes=("http",), ports=(8000,), addresses=("loopback", "private"))

GOOD = [
    (ANY, "https://example.com", "https://example.com/"),
    (ANY, "HTTPS://Example.COM/A", "https://example.com/A"),
    (ANY, "https://example.com:443/a", "https://example.com/a"),
    (ANY, "https://example.com./a", "https://example.com/a"),
    (ANY, "https://example.com?q=1", "https://example.com/?q=1"),
    (ANY, "https://example.com#part", "https://example.com/#part"),
    (ANY, "https://example.com/a/../b?x=[1]#f", "https://example.com/a/../b?x=[1]#f"),
    (ANY, "https://example.com/a@b:c?to=http://10.0.0.1/", "https://example.com/a@b:c?to=http://10.0.0.1/"),
    (ANY, "https://example.com/%E4%BD%A0?a=%41", "https://example.com/%E4%BD%A0?a=%41"),
    (ANY, "https://example.com/你?q=é", "https://example.com/%E4%BD%A0?q=%C3%A9"),
    (ANY, 'https://example.com/a"<>`{|}^', "https://example.com/a%22%3C%3E%60%7B%7C%7D%5E"),
    (ANY, "https://bücher.example/", "https://xn--bcher-kva.example/"),
    (ANY, "https://8.8.8.8/", "https://8.8.8.8/"),
    (ANY, "https://[2606:4700:4700:0::1111]/", "https://[2606:4700:4700::1111]/"),
    (SITE, "https://docs.example.com/a", "https://docs.example.com/a"),
    (SITE, "https://a.b.example.com/", "https://a.b.example.com/"),
    (SITE, "https://8.8.8.8/", "https://8.8.8.8/"),
    (WIDE, "http://example.com:8080/", "http://example.com:8080/"),
    (WIDE, "http://example.com:443/", "http://example.com:443/"),
    (INSIDE, "http://127.0.0.1:8000/", "http://127.0.0.1:8000/"),
    (INSIDE, "http://[::1]:8000/", "http://[::1]:8000/"),
    (INSIDE, "http://192.168.0.10:8000/", "http://192.168.0.10:8000/"),
    (UrlRule(hosts=("localhost",), schemes=("http",)), "http://LOCALHOST/", "http://localhost/"),
    (UrlRule(hosts=("*.corp.internal",)), "https://wiki.corp.internal/", "https://wiki.corp.internal/"),
]

BAD = [
    ("type", ANY, 3),
    ("type", ANY, None),
    ("type", ANY, b"https://example.com"),
    ("empty", ANY, ""),
    ("empty", ANY, " "),
    ("empty", ANY, "\n"),
    ("too_long", ANY, "https://example.com/" + "a" * 8_000),
    ("surrogate", ANY, "https://example.com/\ud800"),
    ("space", ANY, " https://example.com"),
    ("space", ANY, "https://example.com "),
    ("space", ANY, "https://exam\tple.com"),
    ("space", ANY, "https://exam\nple.com"),
    ("space", ANY, "https://example.com/\r\nHost: 127.0.0.1"),
    ("space", ANY, "https://example.com/a b"),
    ("space", ANY, "https://example.com/\x00"),
    ("space", ANY, "https://example.com/\x7f"),
    ("space", ANY, "https://example.com/\u00a0"),
    ("space", ANY, "https://exa\u00admple.com/"),
    ("space", ANY, "https://example.com/\u202e"),
    ("space", ANY, "https://example.com/\u2028"),
    ("space", ANY, "https://exa\u200bmple.com/"),
    ("backslash", ANY, "https://example.com\\@127.0.0.1/"),
    ("backslash", ANY, "https:\\\\example.com"),
    ("backslash", ANY, "https://example.com/\\..\\"),
    ("backslash", ANY, "\\\\example.com\\a"),
    ("relative", ANY, "example.com"),
    ("relative", ANY, "//example.com/"),
    ("relative", ANY, "/etc/passwd"),
    ("relative", ANY, "https:example.com"),
    ("relative", ANY, "https:/example.com"),
    ("relative", ANY, "https:///example.com"),
    ("relative", ANY, "https://"),
    ("relative", ANY, "https://?q"),
    ("relative", ANY, "javascript:alert(1)"),
    ("relative", ANY, "data:text/html,x"),
    ("relative", ANY, "1https://example.com"),
    ("relative", ANY, "ｈttps://example.com"),
    ("percent", ANY, "https://example.com/100%"),
    ("percent", ANY, "https://example.com/%zz"),
    ("percent", ANY, "https://example.com/?a=%u0041"),
    ("scheme", ANY, "http://example.com/"),
    ("scheme", ANY, "ftp://example.com/"),
    ("scheme", ANY, "gopher://127.0.0.1:6379/_x"),
    ("scheme", ANY, "file://localhost/etc/passwd"),
    ("relative", ANY, "jar:https://example.com"),
    ("scheme", WIDE, "dict://example.com:11211/"),
    ("scheme", INSIDE, "https://127.0.0.1:8000/"),
    ("user", ANY, "https://user@example.com/"),
    ("user", ANY, "https://user:pass@example.com/"),
    ("user", SITE, "https://example.com@evil.test/"),
    ("user", SITE, "https://example.com:443@evil.test/"),
    ("user", SITE, "https://evil.test:80@example.com/"),
    ("user", ANY, "https://@example.com/"),
    ("user", ANY, "https://a@b@example.com/"),
    ("host", ANY, "https://:443/"),
    ("host", ANY, "https://exa$mple.com/"),
    ("host", ANY, "https://a..b/"),
    ("host", ANY, "https://[::1/"),
    ("host", ANY, "https://::1/"),
    ("host", ANY, "https://[::1]a/"),
    ("host", ANY, "https://a[::1]/"),
    ("host", SITE, "https://example.com,evil.test/"),
    ("host", SITE, "https://example.com;evil.test/"),
    ("host", SITE, "https://example.com&evil.test/"),
    ("port", ANY, "https://example.com:/"),
    ("port", ANY, "https://example.com:0/"),
    ("port", ANY, "https://example.com:0443/"),
    ("port", ANY, "https://example.com:65536/"),
    ("port", ANY, "https://example.com:443443/"),
    ("port", ANY, "https://example.com:4 43/".replace(" ", "+")),
    ("port", ANY, "https://example.com:４４３/"),
    ("port", ANY, "https://example.com:443:80/"),
    ("port", SITE, "https://example.com:evil.test/"),
    ("port_outside", ANY, "https://example.com:22/"),
    ("port_outside", WIDE, "http://example.com:6379/"),
    ("port_outside", INSIDE, "http://127.0.0.1/"),
    ("encoded_host", ANY, "https://%65xample.com/"),
    ("encoded_host", ANY, "https://127.0.0.1%2f@example.com/".replace("@", ".")),
    ("encoded_host", ANY, "https://example.com%/"),
    ("zone", INSIDE, "http://[fe80::1%25lo]:8000/"),
    ("odd_address", INSIDE, "http://2130706433:8000/"),
    ("odd_address", INSIDE, "http://0x7f.1:8000/"),
    ("odd_address", INSIDE, "http://[::ffff:127.0.0.1]:8000/"),
    ("two_meanings", ANY, "https://127。0。0。1/"),
    ("two_meanings", ANY, "https://ⓛocalhost/"),
    ("outside", SITE, "https://evil.test/"),
    ("outside", SITE, "https://example.com.evil.test/"),
    ("outside", SITE, "https://evilexample.com/"),
    ("outside", SITE, "https://evil.test/https://example.com/"),
    ("outside", SITE, "https://evil.test#example.com"),
    ("outside", SITE, "https://evil.test?example.com"),
    ("outside", SITE, "https://еxample.com/"),
    ("outside", SITE, "https://exаmple.com/"),
    ("outside", SITE, "https://8.8.4.4/"),
    ("outside", SITE, "https://127.0.0.1/"),
    ("outside", UrlRule(hosts=("*.example.com",)), "https://example.com/"),
    ("inside_name", ANY, "https://localhost/"),
    ("inside_name", ANY, "https://localhost./"),
    ("inside_name", ANY, "https://LOCALHOST:443/"),
    ("inside_name", ANY, "https://metadata.google.internal/computeMetadata/v1/"),
    ("inside_name", ANY, "https://intranet/"),
    ("inside_name", INSIDE, "http://printer.local:8000/"),
    ("address", ANY, "https://127.0.0.1/"),
    ("address", ANY, "https://10.0.0.1/"),
    ("address", ANY, "https://169.254.169.254/latest/meta-data/"),
    ("address", ANY, "https://[::1]/"),
    ("address", ANY, "https://[fd00:ec2::254]/"),
    ("address", ANY, "https://0.0.0.0/"),
    ("address", ANY, "https://255.255.255.255/"),
    ("address", ANY, "https://100.64.0.1/"),
    ("address", INSIDE, "http://169.254.169.254:8000/"),
    ("address", UrlRule(addresses=("link_local",)), "https://169.254.169.254/"),
]


@pytest.mark.parametrize(("rule", "url", "text"), GOOD)
def test_an_allowed_url_has_one_form(rule, url, text):
    """Case, default port, trailing dot and international letters lead to one text, which is its own form."""
    parts = parse_url(url, rule)
    assert not isinstance(parts, Finding)
    assert parts.text == text
    assert parse_url(text, rule) == parts


@pytest.mark.parametrize(("broken", "rule", "url"), BAD)
def test_a_hostile_url_is_refused(broken, rule, url):
    """The finding names the broken rule and its place."""
    finding = check_url(url, rule, at="/url")
    assert finding is not None
    assert (finding.data["rule"], finding.at, finding.blame) == (broken, "/url", "model")
    assert finding.code in CODES_BY_ROOM["gate"]
    assert finding.hint
    assert finding.message.isprintable()


def test_every_rule_is_tested():
    """The table has a row for each rule there is."""
    assert {broken for broken, _, _ in BAD} == _RULES.keys()


@pytest.mark.parametrize(("broken", "rule", "url"), BAD)
def test_no_hint_names_what_is_refused(broken, rule, url):
    """A hint holds neither the host nor an address, so the model is not sent back to it."""
    finding = check_url(url, rule)
    assert "127" not in finding.hint.replace("%", "")
    assert "evil" not in finding.hint
    assert "localhost" not in finding.hint
    if broken == "scheme":
        assert all(f"{scheme}://" in finding.hint for scheme in rule.schemes)


def test_the_hint_for_a_port_names_the_ports_that_remain():
    """Where a rule lists ports, the model learns them; where it does not, it leaves the port out."""
    assert check_url("http://example.com:6379/", WIDE).hint == "Use port 80 or 443 or 8080."
    assert check_url("https://example.com:22/", ANY).hint == "Leave the port out."


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@example.com/a?token=secret#secret", "'...@example.com/a...'"),
        ("https://a\n\u202eb", "'https://a\\n\\u202eb'"),
        ("https://example.com/" + "a" * 300, repr("https://example.com/" + "a" * 140 + "...")),
        ("https://example.com/", "'https://example.com/'"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url, shown):
    """No user name, password or query reaches a message, and nothing that acts on a terminal."""
    assert display_url(url) == shown


PIECES = st.sampled_from(
    [
        *(
            "https://",
            "http://",
            "HTTPS://",
            "//",
            ":",
            "@",
            "/",
            "\\",
            "?",
            "#",
            ".",
            "[",
            "]",
            "%",
            "%2e",
            "%00",
            " ",
            "\t",
        ),
        *(
            "example.com",
            "EXAMPLE.com",
            "evil.test",
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "::1",
            "localhost",
            "xn--a",
            "é",
        ),
        *("。", "ａ", "ß", "а", "\u200d", "443", "8080", "user", ":443", "*.example.com", "a"),
    ]
)
URLS = st.lists(PIECES, max_size=8).map("".join) | st.builds(
    "https://{}example.com{}/{}".format, *[st.lists(PIECES, max_size=2).map("".join)] * 3
)


@given(url=URLS)
@example("https://example.com?@evil.test")
@example("https://example.com#@evil.test/")
@example("https://example.com/@evil.test")
@example("https://а.example.com/")
def test_no_spelling_leads_out_of_the_rule(url):
    """Whatever the spelling, the host of an accepted URL is one of the rule's for every parser, before and after."""
    parts = parse_url(url, SITE)
    if isinstance(parts, Finding):
        return
    for text in (url, parts.text):
        for host in (urlsplit(text).hostname, httpx2.URL(text).raw_host.decode()):
            low = (host or "").lower().removesuffix(".")
            assert low in ("example.com", "8.8.8.8") or low.endswith(".example.com")
    split, client = urlsplit(parts.text), httpx2.URL(parts.text)
    assert (split.hostname, client.raw_host.decode()) == (parts.host.text, parts.host.text)
    assert (split.scheme, client.scheme, split.port, client.port) == ("https", "https", None, None)
    assert (split.username, client.userinfo) == (None, b"")


@given(url=URLS | st.text(max_size=40))
def test_any_text_is_refused_or_has_one_form(url):
    """No text crashes the check, and the one form of an accepted URL is plain ASCII that is accepted unchanged."""
    parts = parse_url(url, ANY)
    if not isinstance(parts, Finding):
        assert parts.text.isascii()
        assert parts.text.isprintable()
        assert parse_url(parts.text, ANY).text == parts.text
