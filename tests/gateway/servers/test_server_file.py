"""The file of servers."""

import json

import pytest

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.servers.server_file import OAuthClient, parse_servers, read_servers

STDIO = {"command": "npx", "args": ["-y", "files"], "env": {"KEY": "${KEY}"}, "icon": "unknown member"}
HTTP = {"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}


@pytest.mark.parametrize(
    "value",
    [
        {"mcpServers": {"a": STDIO, "b": HTTP}, "theme": "dark"},
        {"servers": {"a": STDIO, "b": HTTP}, "inputs": []},
        {"mcp_servers": {"a": STDIO, "b": HTTP}},
        {"a": STDIO, "b": HTTP},
    ],
    ids=["mcpServers", "servers", "mcp_servers", "bare"],
)
def test_the_servers_of_each_kind_of_file_are_found(tmp_path, value):
    """Each shape gives the same two entries, in order, with references unresolved and unknown members left alone."""
    (tmp_path / "servers.json").write_text(json.dumps(value))
    a, b = read_servers(tmp_path / "servers.json")
    assert (a.name, a.command, a.args, a.env, a.is_http) == ("a", "npx", ("-y", "files"), {"KEY": "${KEY}"}, False)
    assert (b.name, b.url, b.headers, b.is_http) == ("b", HTTP["url"], HTTP["headers"], True)


def test_a_server_that_is_switched_off_is_left_out():
    """`disabled` and `enabled` of clients are honoured."""
    found = parse_servers(
        {"mcpServers": {"a": {**STDIO, "disabled": True}, "b": {**HTTP, "enabled": False}, "c": STDIO}}, "x"
    )
    assert [one.name for one in found] == ["c"]


def test_how_to_sign_in_is_read():
    """`oauth` is true, or an object."""
    (one,) = parse_servers({"mcpServers": {"a": {**HTTP, "oauth": True}}}, "x")
    assert one.oauth == OAuthClient()
    (one,) = parse_servers({"mcpServers": {"a": {**HTTP, "oauth": {"flow": "device", "client_id": "c"}}}}, "x")
    assert one.oauth == OAuthClient(flow="device", client_id="c")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "a command"),
        ({"command": "x", "url": "http://a"}, "either"),
        ({"command": 1}, "command is a text"),
        ({"command": "x", "args": "y"}, "args is a list"),
        ({"command": "x", "env": {"A": 1}}, "env is an object"),
        ({"command": "x\x00y"}, "command is a text"),
        ({"url": "ftp://a"}, "no http"),
        ({"url": "http://"}, "no http"),
        ({"url": "http://a:99999"}, "no http"),
        ({"url": "http://a", "type": "sse"}, "not supported"),
        ({"url": "http://a", "type": "carrier pigeon"}, "type is"),
        ({"url": "http://a", "headers": {"A b": "c"}}, "no header"),
        ({"url": "http://a", "headers": {"A": "b\r\nC: d"}}, "no header"),
        ({"url": "http://a", "timeout": 0}, "timeout is"),
        ({"url": "http://a", "timeout": True}, "timeout is"),
        ({"url": "http://a", "oauth": {"flow": "carrier pigeon"}}, "oauth.flow"),
        ({"url": "http://a", "oauth": {"flow": "device"}}, "client_id"),
        ({"url": "http://a", "oauth": {"client_secret": "s"}}, "client_id"),
        ("npx", "expected an object"),
    ],
)
def test_an_entry_that_cannot_work_is_refused_by_name(entry, words):
    """The message names the file, the server and what is wrong."""
    with pytest.raises(ConfigurationError, match=words) as found:
        parse_servers({"mcpServers": {"bad": entry}}, "servers.json")
    assert str(found.value).startswith("servers.json: server 'bad'")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"mcpServers": []}',
        '{"mcpServers": {}}',
        '{"theme": "dark"}',
        '{"mcpServers": {"a": {}, "a": {}}}',
        "null",
    ],
)
def test_a_file_without_servers_is_refused(tmp_path, text):
    """What is no configuration is refused, one whose key repeats included."""
    (tmp_path / "servers.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"servers\.json"):
        read_servers(tmp_path / "servers.json")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    """The message says so, without a traceback."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_servers(tmp_path / "none.json")
