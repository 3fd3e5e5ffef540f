"""Rules for URL arguments: what they may say, and how they stand in a contract."""

import msgspec
import pytest

from pokayoke import Contract, ContractError, UrlRule
from pokayoke.core.versions.contract_diff import contract_changes

SCHEMA = {
    "type": "object",
    "properties": {
        "url": {"type": "string"},
        "more": {"type": "array", "items": {"type": "string"}},
        "n": {"type": "integer"},
    },
}


def contract(**fields):
    """A contract of a read with URL arguments."""
    return Contract.from_schema("fetch", SCHEMA, effect="read", output_schema="text", **fields)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("EXAMPLE.com.", "example.com"), ("*.Example.com", "*.example.com"), ("Bücher.example", "xn--bcher-kva.example"),
        ("8.8.8.8", "8.8.8.8"), ("2606:4700::1111", "2606:4700::1111"), ("[2606:4700:0::1111]", "2606:4700::1111"),
        ("localhost", "localhost"),
    ],
)  # fmt: skip
def test_hosts_of_a_rule_have_one_form(given, stored):
    """What a programmer writes is compared in the form of a URL's host."""
    assert UrlRule(hosts=[given]).hosts == (stored,)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"hosts": "example.com"}, "hosts is a tuple"),
        ({"hosts": ("https://example.com",)}, "is no host"),
        ({"hosts": ("example.com:443",)}, "is no host"),
        ({"hosts": ("*",)}, "is no host"),
        ({"hosts": ("",)}, "is no host"),
        ({"hosts": ("*.com",)}, "is too wide"),
        ({"hosts": ("*.8.8.8.8",)}, "is too wide"),
        ({"hosts": ("a.*.com",)}, "is no host"),
        ({"hosts": ("127.1",)}, "is no host"),
        ({"hosts": ("127.0.0.1",)}, r"loopback address. Allow that by name: addresses=\('loopback',\)"),
        ({"hosts": (3,)}, "hosts holds names"),
        ({"schemes": ("ftp",)}, "Known: http, https"),
        ({"schemes": ()}, "no URL could fit"),
        ({"schemes": "https"}, "schemes is a tuple"),
        ({"ports": (0,)}, "from 1 to 65535"),
        ({"ports": (65536,)}, "from 1 to 65535"),
        ({"ports": (True,)}, "from 1 to 65535"),
        ({"ports": ("443",)}, "from 1 to 65535"),
        ({"addresses": ("locale",)}, "Known: loopback, private"),
        ({"addresses": 3}, "addresses is a tuple"),
    ],
)
def test_a_rule_that_cannot_hold_is_an_error(fields, says):
    """A misspelt protection never falls open, and the message says what to write."""
    with pytest.raises(ContractError, match=says):
        UrlRule(**fields)


def test_a_private_address_is_allowed_by_name():
    """With its kind allowed, an address may be a host of the rule."""
    assert UrlRule(hosts=("127.0.0.1", "::1"), addresses=("loopback",)).hosts == ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"urls": {"link": UrlRule()}}, "has no such property"),
        ({"urls": {"n": UrlRule()}}, "urls names 'n', which is not a string"),
        ({"urls": {"url": ["example.com"]}}, r"urls\['url'\] is a UrlRule"),
        ({"urls": ["url"]}, "urls maps argument names"),
        ({"urls": {"url": UrlRule()}, "paths": {"url": ["/srv"]}}, "paths and urls both name 'url'"),
    ],
)
def test_a_contract_refuses_a_rule_for_nothing(fields, says):
    """A rule belongs to a declared argument that holds texts."""
    if isinstance(fields["urls"], dict) and "link" in fields["urls"]:
        with pytest.raises(ContractError, match=says):
            Contract.from_schema("fetch", {**SCHEMA, "additionalProperties": False}, **fields)
    else:
        with pytest.raises(ContractError, match=says):
            contract(**fields)


def test_a_rule_goes_through_plain_data():
    """`to_mapping` writes what is not the default, and `from_mapping` reads it back."""
    made = contract(urls={"url": UrlRule(hosts=("*.Example.com",), ports=(443, 8443)), "more": UrlRule()})
    written = made.to_mapping()
    assert written["urls"] == {"url": {"hosts": ["*.example.com"], "ports": [443, 8443]}, "more": {}}
    assert Contract.from_mapping(written).urls == made.urls
    assert "urls" not in contract().to_mapping()


def test_plain_data_with_an_unknown_key_is_an_error():
    """A misspelt key of a rule in a file is refused."""
    data = {"name": "fetch", "input_schema": SCHEMA, "urls": {"url": {"host": ["example.com"]}}}
    with pytest.raises(ContractError, match=r"urls: .*unknown field `host`"):
        Contract.from_mapping(data)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"hosts": [3]}, UrlRule)


def test_a_tool_with_a_url_may_answer_with_a_page():
    """The field says what a name like `url` only suggests."""
    schema = {"type": "object", "properties": {"page": {"type": "string"}}}
    assert not Contract.from_schema("open", schema).takes_url
    assert Contract.from_schema("open", schema, urls={"page": UrlRule()}).takes_url


A = UrlRule(hosts=("a.example.com", "b.example.com"))


@pytest.mark.parametrize(
    ("old", "new", "sides"),
    [
        (None, A, ("model",)),
        (A, None, ("operators",)),
        (A, UrlRule(hosts=("a.example.com",)), ("model",)),
        (A, UrlRule(hosts=(*A.hosts, "c.example.com")), ("operators",)),
        (A, UrlRule(), ("operators",)),
        (UrlRule(), A, ("model",)),
        (UrlRule(), UrlRule(schemes=("http", "https")), ("operators",)),
        (UrlRule(addresses=("private",)), UrlRule(), ("model",)),
        (UrlRule(), UrlRule(ports=(443,)), ()),
        (UrlRule(), UrlRule(ports=(8443,)), ("operators", "model")),
        (UrlRule(ports=(80, 443)), UrlRule(), ("model",)),
        (UrlRule(hosts=("a.example.com",)), UrlRule(hosts=("b.example.com",)), ("operators", "model")),
    ],
)
def test_a_changed_rule_breaks_a_side(old, new, sides):
    """More reach is looser for operators, less reach refuses calls of the model."""
    before = contract(urls={} if old is None else {"url": old})
    after = contract(urls={} if new is None else {"url": new})
    assert [set(change.breaks) for change in contract_changes(before, after) if change.at == "urls"] == [set(sides)]
