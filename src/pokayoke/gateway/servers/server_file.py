"""The file that names the servers: an ordinary `mcpServers` object, as clients have it.

In: a JSON file.
Out: one entry for each server, with its references to secrets unresolved.
Never: a secret in an entry, or a key that is misread because it is unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.errors import ConfigurationError

_MAX_BYTES: Final = 1_048_576
_MAX_NAME: Final = 64
_SECTIONS: Final = ("mcpServers", "servers", "mcp_servers")
"""The member that holds the servers: of most clients, of VS Code, and of Codex."""
_HTTP: Final = frozenset({"http", "streamable-http", "streamable_http", "streamableHttp"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)  # RFC 9110, 5.6.2
_BROKEN_VALUE: Final = re.compile(r"[\x00\r\n]")


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True):
    """How the gateway signs in to a hosted server (OAuth 2.1).

    Attributes:
        flow: `browser` opens a page of the authorization server; `device` prints a code to enter there (RFC 8628).
        scope: the scopes to ask for; "" for those that the server names.
        client_id: the id of a client that is registered already; "" to register one (RFC 7591).
        client_secret: the secret of that client, which may be a reference such as `${VAR}`.
        port: the port on this machine to which the browser returns; 0 for any that is free.
    """

    flow: str = "browser"
    scope: str = ""
    client_id: str = ""
    client_secret: str = ""
    port: int = 0


class UpstreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the file. A text may hold references such as `${VAR}`, see `auth/references.py`.

    Attributes:
        name: its key in the file.
        command: the program of a stdio server; "" for a server that is reached over HTTP.
        args: the arguments of the program.
        env: environment variables beside the few that every server gets.
        cwd: the folder it starts in; "" for the current one.
        url: the address of a server that is reached over HTTP; "" for a stdio server.
        headers: headers of each HTTP request.
        oauth: how to sign in to it, or None.
        timeout: the most seconds a request may take.
        start_timeout: the most seconds until it has answered with its tools.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    oauth: OAuthClient | None = None
    timeout: float = 120.0
    start_timeout: float = 60.0

    @property
    def is_http(self) -> bool:
        """True if it is reached over HTTP."""
        return bool(self.url)


def read_servers(path: str | os.PathLike[str]) -> list[UpstreamEntry]:
    """Return the servers of a file, in its order, without those that it disables.

    Args:
        path: of the file. Its servers are the members of `mcpServers`, `servers` or `mcp_servers`, or of the file
            itself. Unknown members are left alone, as clients have their own.

    Raises:
        ConfigurationError: the file cannot be read or is no such file, an entry cannot work, or there is none.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        value, _ = parse(data, max_bytes=_MAX_BYTES, equal_duplicates=False)
    except StrictError as error:
        raise ConfigurationError(f"{name} is not JSON: {error}. Correct it there.") from None
    return parse_servers(value, name)


def parse_servers(value: Any, where: str) -> list[UpstreamEntry]:
    """Return the servers of a configuration that is read already, as `read_servers` does.

    Args:
        value: the JSON value.
        where: what messages call it.

    Raises:
        ConfigurationError: it is no such configuration, an entry cannot work, or there is none.
    """
    if not is_object(value):
        raise ConfigurationError(f'{where}: expected an object with "mcpServers"')
    section = next((one for one in _SECTIONS if one in value), None)
    servers = value if section is None else value[section]
    if not is_object(servers) or (section is None and not all(map(_looks_like_entry, servers.values()))):
        raise ConfigurationError(f'{where}: expected "mcpServers" to be an object with a member for each server')
    entries = [
        _parse_entry(key, entry, f"{where}: server {key!r}")
        for key, entry in servers.items()
        if not (is_object(entry) and (entry.get("disabled") is True or entry.get("enabled") is False))
    ]
    if not entries:
        raise ConfigurationError(f"{where} names no server: add one to {section or 'it'}")
    return entries


def _looks_like_entry(entry: Any) -> bool:
    return is_object(entry) and ("command" in entry or "url" in entry)


def _parse_entry(name: str, entry: Any, where: str) -> UpstreamEntry:
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise ConfigurationError(f"{where}: a name has 1 to {_MAX_NAME} printable characters")
    if not is_object(entry):
        raise ConfigurationError(f"{where}: expected an object with a command or a url")
    kind = entry.get("type", entry.get("transport"))
    if kind == "sse":
        raise ConfigurationError(
            f"{where}: the transport sse is not supported. Give the server's streamable HTTP address and "
            '"type": "http".'
        )
    if kind is not None and kind != "stdio" and kind not in _HTTP:
        raise ConfigurationError(f'{where}: type is "stdio" or "http", not {kind!r}')
    command, url = _read_text(entry, "command", where), _read_text(entry, "url", where)
    if bool(command) == bool(url) or (url and kind == "stdio") or (command and kind in _HTTP):
        raise ConfigurationError(f"{where}: give either a command (a stdio server) or a url (an HTTP server)")
    if url:
        _require_http_url(url, where)
    return UpstreamEntry(
        name=name,
        command=command,
        args=_read_list(entry, "args", where),
        env=_read_map(entry, "env", where),
        cwd=_read_text(entry, "cwd", where),
        url=url,
        headers=_read_headers(entry, where),
        oauth=_parse_oauth(entry["oauth"], where) if entry.get("oauth") else None,
        timeout=_read_seconds(entry, "timeout", 120.0, where),
        start_timeout=_read_seconds(entry, "start_timeout", 60.0, where),
    )


def _require_http_url(url: str, where: str) -> None:
    """Refuse an address that no request can be sent to; one with references is checked again once they are known."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        fits = "${" in url
    if (not fits and "${" not in url) or _BROKEN_VALUE.search(url):
        raise ConfigurationError(f"{where}: url {url!r} is no http or https address")


def _read_headers(entry: Mapping[str, Any], where: str) -> dict[str, str]:
    headers = _read_map(entry, "headers", where)
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or _BROKEN_VALUE.search(value):
            raise ConfigurationError(f"{where}: {name!r} is no header, or its value holds a line break")
    return headers


def _parse_oauth(value: Any, where: str) -> OAuthClient:
    if value is True:
        return OAuthClient()
    if not is_object(value):
        raise ConfigurationError(f'{where}: oauth is true, or an object such as {{"flow": "device"}}')
    flow = value.get("flow", "browser")
    if flow not in ("browser", "device"):
        raise ConfigurationError(f'{where}: oauth.flow is "browser" or "device", not {flow!r}')
    port = value.get("port", 0)
    if type(port) is not int or not 0 <= port <= 65_535:  # noqa: PLR2004 - the largest port
        raise ConfigurationError(f"{where}: oauth.port is a port number, not {port!r}")
    texts = {key: _read_text(value, key, f"{where}: oauth") for key in ("scope", "client_id", "client_secret")}
    if texts["client_secret"] and not texts["client_id"]:
        raise ConfigurationError(f"{where}: oauth.client_secret belongs to a client_id, which is missing")
    if flow == "device" and not texts["client_id"]:
        raise ConfigurationError(f"{where}: the device flow needs oauth.client_id, as no client is registered for it")
    return OAuthClient(flow=flow, port=port, **texts)


def _read_text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str) or "\x00" in value:
        raise ConfigurationError(f"{where}: {key} is a text, not {value!r}")
    return value


def _read_list(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and "\x00" not in one for one in value):  # pyright: ignore[reportUnknownVariableType]
        raise ConfigurationError(f"{where}: {key} is a list of texts")
    return tuple(cast("list[str]", value))


def _read_map(entry: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    value = entry.get(key, {})
    if not is_object(value) or not all(isinstance(one, str) and "\x00" not in one for one in value.values()):
        raise ConfigurationError(f"{where}: {key} is an object of texts")
    return cast("dict[str, str]", value)


def _read_seconds(entry: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = entry.get(key, default)
    if type(value) not in (int, float) or not 0 < value <= 86_400:  # noqa: PLR2004 - one day
        raise ConfigurationError(f"{where}: {key} is a number of seconds up to 86400, not {value!r}")
    return float(value)
