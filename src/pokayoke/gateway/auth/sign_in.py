"""Signing in to hosted servers (OAuth 2.1), by the SDK's own client flow.

In: what the file says of a server, and a person at a browser.
Out: what signs the requests to that server.
Never: a page that is opened while the gateway serves: a person signs in by a command of its own.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from anyio.abc import SocketStream
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

from pokayoke.gateway.auth.references import References
from pokayoke.gateway.auth.token_store import TokenStore
from pokayoke.gateway.servers.server_file import OAuthClient, UpstreamEntry

Tell = Callable[[str], None]

_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_PERSON_SECONDS: Final = 600.0
_REQUEST_SECONDS: Final = 30.0
_MAX_LINE: Final = 16_384
_PAGE: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"You are signed in. This page can be closed.\n"
)


def known_client(entry: UpstreamEntry, references: References) -> OAuthClientInformationFull | None:
    """Return the client that the file says is registered already; None to have one registered."""
    oauth = _require_oauth(entry)
    if not oauth.client_id:
        return None
    secret = references.resolve(oauth.client_secret) or None
    return OAuthClientInformationFull(
        client_id=oauth.client_id,
        client_secret=secret,
        redirect_uris=None,
        token_endpoint_auth_method="client_secret_post" if secret else "none",
    )


def build_auth(entry: UpstreamEntry, address: str, store: TokenStore) -> OAuthClientProvider:
    """Return what signs requests with kept tokens and refreshes them; without any it says how to sign in.

    Args:
        entry: the server.
        address: its address, with references resolved.
        store: its tokens.
    """

    async def refuse(_: str) -> None:
        raise OAuthFlowError(f"nobody is signed in: run `pokayoke gateway SERVERS.json --sign-in {entry.name}`")

    async def never() -> AuthorizationCodeResult:
        raise OAuthFlowError("nobody is signed in")

    return OAuthClientProvider(address, _metadata(_require_oauth(entry), 0), store, refuse, never)


async def sign_in(entry: UpstreamEntry, address: str, store: TokenStore, tell: Tell, *, opens: bool = True) -> None:
    """Have a person sign in to a server, and keep the tokens.

    Args:
        entry: the server.
        address: its address, with references resolved.
        store: keeps the tokens.
        tell: shows a line to the person.
        opens: False to show the address of the page only.

    Raises:
        OAuthFlowError: it failed, or took longer than ten minutes.
        httpx2.HTTPError: the server or its authorization server cannot be reached.
    """
    oauth = _require_oauth(entry)
    with anyio.move_on_after(_PERSON_SECONDS):
        if oauth.flow == "device":
            await _request_once(address, DeviceProvider(address, oauth, store, tell))
            return
        async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=oauth.port) as listener:
            port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - no query of a database

            async def show(page: str) -> None:
                tell(f"Sign in to {entry.name} in the browser: {page}")
                if opens:
                    await anyio.to_thread.run_sync(webbrowser.open, page)

            async def wait() -> AuthorizationCodeResult:
                return await _receive_code(listener)

            await _request_once(address, OAuthClientProvider(address, _metadata(oauth, port), store, show, wait))
            return
    raise OAuthFlowError("nobody has signed in within ten minutes")


class DeviceProvider(OAuthClientProvider):
    """The SDK's flow, with the device grant (RFC 8628) in place of the page that returns to this machine.

    Args:
        address: of the server.
        oauth: how to sign in.
        store: keeps the tokens.
        tell: shows a line to the person.
    """

    def __init__(self, address: str, oauth: OAuthClient, store: TokenStore, tell: Tell) -> None:
        super().__init__(address, _metadata(oauth, 0), store)
        self._tell = tell
        self._answer: httpx2.Response | None = None

    async def _perform_authorization(self) -> httpx2.Request:
        """Have a person enter the code elsewhere; the flow goes on with a request whose answer does not matter."""
        async with httpx2.AsyncClient(timeout=_REQUEST_SECONDS, trust_env=False) as client:
            metadata, page = await self._find_endpoints(client)
            self._answer = await self._poll(client, metadata)
        return httpx2.Request("GET", page)

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        del response
        assert self._answer is not None  # set before the request that this answers
        await super()._handle_token_response(self._answer)

    async def _find_endpoints(self, client: httpx2.AsyncClient) -> tuple[dict[str, Any], str]:
        urls = build_oauth_authorization_server_metadata_discovery_urls(
            self.context.auth_server_url, self.context.server_url
        )
        for url in urls:
            response = await client.get(url)
            found: Any = response.json() if response.status_code == 200 else None  # noqa: PLR2004 - HTTP
            if isinstance(found, dict) and isinstance(found.get("device_authorization_endpoint"), str):
                return found, url
        raise OAuthFlowError('its authorization server offers no device flow: use "flow": "browser"')

    async def _poll(self, client: httpx2.AsyncClient, metadata: dict[str, Any]) -> httpx2.Response:
        info = self.context.client_info
        assert info is not None  # the file has to name a client for this flow
        data: dict[str, str] = {"client_id": str(info.client_id)}
        if self.context.client_metadata.scope:
            data["scope"] = self.context.client_metadata.scope
        begun = await client.post(metadata["device_authorization_endpoint"], data=data)
        given: Any = begun.json() if begun.status_code == 200 else {}  # noqa: PLR2004 - HTTP
        if not all(isinstance(given.get(key), str) for key in ("device_code", "user_code", "verification_uri")):
            raise OAuthFlowError(f"its authorization server gave no code (HTTP {begun.status_code})")
        self._tell(f"Open {given['verification_uri']} and enter the code {given['user_code']}")
        pause = float(given.get("interval") or 5)
        asked = {"grant_type": _DEVICE_GRANT, "device_code": given["device_code"], "client_id": data["client_id"]}
        asked["resource"] = self.context.get_resource_url()
        sent, headers = self.context.prepare_token_auth(asked)
        while True:
            await anyio.sleep(pause)
            response = await client.post(metadata["token_endpoint"], data=sent, headers=headers)
            if response.status_code == 200:  # noqa: PLR2004 - HTTP
                return response
            said: Any = (
                response.json() if response.headers.get("content-type", "").startswith("application/json") else {}
            )
            error = said.get("error")
            if error == "slow_down":
                pause += 5
            elif error != "authorization_pending":
                raise OAuthFlowError(f"the person did not let it in: {error or response.status_code}")


def _metadata(oauth: OAuthClient, port: int) -> OAuthClientMetadata:
    return OAuthClientMetadata.model_validate(
        {
            "client_name": "pokayoke gateway",
            "redirect_uris": [f"http://127.0.0.1:{port or oauth.port}/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "scope": oauth.scope or None,
        }
    )


def _require_oauth(entry: UpstreamEntry) -> OAuthClient:
    assert entry.oauth is not None  # asked for servers only that say how to sign in
    return entry.oauth


async def _request_once(address: str, auth: OAuthClientProvider) -> None:
    """Send one request, which the server refuses until somebody is signed in."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    async with httpx2.AsyncClient(auth=auth, timeout=_REQUEST_SECONDS, trust_env=False) as client:
        response = await client.post(address, json=body, headers=headers)
    if response.status_code in (401, 403):
        raise OAuthFlowError(f"the server refuses the new token (HTTP {response.status_code})")
    if auth.context.current_tokens is None:
        raise OAuthFlowError("the server answers without a token: take oauth out of its entry")


async def _receive_code(listener: Any) -> AuthorizationCodeResult:
    """Return what the browser brings back; requests to other paths are answered and forgotten."""
    found: list[AuthorizationCodeResult] = []
    failed: list[str] = []

    async with anyio.create_task_group() as tasks:

        async def answer(stream: SocketStream) -> None:
            async with stream:
                with anyio.move_on_after(_REQUEST_SECONDS):
                    line = (await stream.receive(_MAX_LINE)).split(b"\r\n", 1)[0].decode("latin-1")
                    await stream.send(_PAGE)
                    parts = urlsplit(line.split(" ")[1]) if line.count(" ") > 1 else None
                    if parts is None or parts.path != "/callback":
                        return
                    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                    if "code" in query:
                        found.append(AuthorizationCodeResult.model_validate(query))
                    else:
                        failed.append(query.get("error", "the browser brought no code back"))
                    tasks.cancel_scope.cancel()

        await listener.serve(answer, task_group=tasks)
    if not found:
        raise OAuthFlowError(f"signing in failed: {failed[0] if failed else 'interrupted'}")
    return found[0]
