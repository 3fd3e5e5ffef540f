"""Signing in to a hosted server: the browser, the device code, kept tokens and their refresh."""

import base64
import contextlib
import hashlib
import json
import secrets
import threading
from urllib.parse import parse_qs, urlencode

import httpx
import pytest
from gateway_http import ask, demo_server, make_setup, modern, serve_app, serve_gateway
from mcp.client.auth import OAuthFlowError

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.auth.references import References
from pokayoke.gateway.auth.sign_in import build_auth, known_client, sign_in
from pokayoke.gateway.auth.token_store import TokenStore
from pokayoke.gateway.servers.server_file import parse_servers
from pokayoke.stores.encryption import Seal


class Issuer:
    """An authorization server and the server it protects, in one application.

    Attributes:
        valid: access tokens that are accepted.
        grants: the grant of each token request.
        approved: whether the person has entered the device code.
    """

    def __init__(self, app):
        self.app, self.base = app, ""
        self.valid, self.grants, self.codes = set(), [], {}
        self.approved, self.lifetime = False, 3_600

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] != "/mcp":
            await self.issue(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        if (
            scope["type"] == "http"
            and headers.get(b"authorization", b"").decode().removeprefix("Bearer ") not in self.valid
        ):
            challenge = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'.encode()
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", challenge)]})
            await send({"type": "http.response.body", "body": b""})
            return
        await self.app(scope, receive, send)

    async def issue(self, scope, receive, send):
        body = (await receive()).get("body", b"")
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()} if scope["method"] == "POST" else {}
        query = {key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()}
        status, answer, headers = self.answer(scope["path"], form, query, body)
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"application/json"), *headers],
            }
        )
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def answer(self, path, form, query, body):
        base = self.base
        if path.startswith("/.well-known/oauth-protected-resource"):
            return 200, {"resource": f"{base}/mcp", "authorization_servers": [base], "scopes_supported": ["call"]}, []
        if path.startswith("/.well-known/"):
            return 200, {
                "issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token",
                "registration_endpoint": f"{base}/register", "device_authorization_endpoint": f"{base}/device",
                "code_challenge_methods_supported": ["S256"],
            }, []  # fmt: skip
        if path == "/register":
            return 201, {**json.loads(body), "client_id": "registered", "token_endpoint_auth_method": "none"}, []
        if path == "/authorize":
            code = secrets.token_hex(8)
            self.codes[code] = query["code_challenge"]
            place = f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
            return 302, {}, [(b"location", place.encode())]
        if path == "/device":
            given = {
                "device_code": "d-1",
                "user_code": "ABCD-EFGH",
                "verification_uri": f"{base}/enter",
                "interval": 0.05,
            }
            return 200, given, []
        return self.grant(form)

    def grant(self, form):
        self.grants.append(form["grant_type"])
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert self.codes.pop(form["code"]) == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        elif form["grant_type"].endswith("device_code") and not self.approved:
            self.approved = True  # the person enters the code between two questions
            return 400, {"error": "authorization_pending"}, []
        elif form["grant_type"] == "refresh_token" and form["refresh_token"] != "refresh-me":
            return 400, {"error": "invalid_grant"}, []
        token = f"access-{secrets.token_hex(8)}"
        self.valid.add(token)
        answer = {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "refresh_token": "refresh-me",
        }
        return 200, answer, []


@contextlib.asynccontextmanager
async def hosted(**oauth):
    """Serve a protected server; yield its issuer, its entry and its address."""
    issuer = Issuer(demo_server().streamable_http_app())
    async with serve_app(issuer) as port:
        issuer.base = f"http://127.0.0.1:{port}"
        (entry,) = parse_servers({"mcpServers": {"crm": {"url": f"{issuer.base}/mcp", "oauth": oauth or True}}}, "x")
        yield issuer, entry, entry.url


def make_store(folder, address, key=b"k" * 32, client=None):
    """Return a store of tokens."""
    return TokenStore(folder, address, Seal([key]), client)


def visit(lines):
    """Return a `tell` that visits the page it is told, as a browser does."""

    def tell(line):
        lines.append(line)
        if (place := line.rpartition(" ")[2]).startswith("http"):
            threading.Thread(target=lambda: httpx.get(place, follow_redirects=True, timeout=10)).start()

    return tell


async def listed(entry, store, lines):
    """Return the names that a gateway lists with the tokens of a store, and an error if it lists none."""
    setup = make_setup({"crm": {"url": entry.url, "oauth": True}, "gone": {"command": "/nowhere"}}, lines=lines)
    setup.build_auth = lambda one: build_auth(one, one.url, store) if one.oauth else None
    async with serve_gateway(setup) as url:
        answer = (await ask(url, modern("tools/list"))).json()
    return [one["name"] for one in answer.get("result", {}).get("tools", ())], answer


async def test_a_person_signs_in_with_the_browser(tmp_path):
    """The page returns to this machine; the tokens are sealed, and the gateway calls with them."""
    async with hosted() as (issuer, entry, address):
        lines = []
        await sign_in(entry, address, make_store(tmp_path, address), visit(lines), opens=False)
        assert issuer.grants == ["authorization_code"]
        (file,) = tmp_path.iterdir()
        (token,) = issuer.valid
        assert token.encode() not in file.read_bytes()
        assert b"refresh-me" not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0
        assert not any(token in line for line in lines)
        names, _ = await listed(entry, make_store(tmp_path, address), lines)
        assert names == ["crm__echo", "crm__add_note", "crm__wait"]
        assert issuer.grants == ["authorization_code"]


async def test_a_person_signs_in_with_a_code(tmp_path):
    """The device flow polls until the code was entered."""
    async with hosted(flow="device", client_id="known") as (issuer, entry, address):
        lines = []
        client = known_client(entry, References({}))
        await sign_in(entry, address, make_store(tmp_path, address, client=client), lines.append)
        assert lines == [f"Open {issuer.base}/enter and enter the code ABCD-EFGH"]
        assert issuer.grants == ["urn:ietf:params:oauth:grant-type:device_code"] * 2
        names, _ = await listed(entry, make_store(tmp_path, address, client=client), lines)
        assert names


async def test_an_expired_token_is_refreshed_without_a_person(tmp_path):
    """After a restart, a token that has expired is exchanged for a new one."""
    async with hosted() as (issuer, entry, address):
        issuer.lifetime = 1
        await sign_in(entry, address, make_store(tmp_path, address), visit([]), opens=False)
        issuer.valid.clear()
        issuer.lifetime = 3_600
        names, _ = await listed(entry, make_store(tmp_path, address), [])
        assert names
        assert issuer.grants == ["authorization_code", "refresh_token"]


async def test_a_relayed_server_is_called_with_its_tokens(tmp_path):
    """In front of one server, the relay signs what it passes on; without a sign-in it says how to get one."""
    async with hosted() as (issuer, entry, address):
        setup = make_setup({"crm": {"url": address, "oauth": True}})
        setup.build_auth = lambda one: build_auth(one, one.url, make_store(tmp_path, address))
        async with serve_gateway(setup) as url:
            answer = (await ask(url, modern("tools/list"))).json()
            assert "--sign-in crm" in answer["error"]["message"]
        await sign_in(entry, address, make_store(tmp_path, address), visit([]), opens=False)
        setup = make_setup({"crm": {"url": address, "oauth": True}})
        setup.build_auth = lambda one: build_auth(one, one.url, make_store(tmp_path, address))
        async with serve_gateway(setup) as url:
            answer = (await ask(url, modern("tools/list"))).json()
            assert [one["name"] for one in answer["result"]["tools"]] == ["echo", "add_note", "wait"]
        assert issuer.grants == ["authorization_code"]


async def test_a_server_that_nobody_has_signed_in_to_says_how(tmp_path):
    """The state names the command, no page is opened, and nothing hangs."""
    async with hosted() as (issuer, entry, address):
        names, answer = await listed(entry, make_store(tmp_path, address), [])
        assert names == []
        assert "--sign-in crm" in answer["error"]["message"]
        assert issuer.grants == []


async def test_tokens_open_with_their_key_and_for_their_server_only(tmp_path):
    """Another key, another server's file, or an altered file is refused with what to do."""
    async with hosted() as (_, entry, address):
        await sign_in(entry, address, make_store(tmp_path, address), visit([]), opens=False)
    (file,) = tmp_path.iterdir()
    with pytest.raises(ConfigurationError, match="sign in again"):
        await make_store(tmp_path, address, key=b"x" * 32).get_tokens()
    other = make_store(tmp_path, "https://other.example/mcp")
    assert await other.get_tokens() is None
    other._file.write_bytes(file.read_bytes())
    with pytest.raises(ConfigurationError, match="sign in again"):
        await other.get_tokens()


async def test_a_server_that_needs_no_token_says_so(tmp_path):
    """`oauth` in front of an open server is named as the mistake it is."""
    async with serve_app(demo_server().streamable_http_app()) as port:
        (entry,) = parse_servers({"a": {"url": f"http://127.0.0.1:{port}/mcp", "oauth": True}}, "x")
        with pytest.raises(OAuthFlowError, match="take oauth out"):
            await sign_in(entry, entry.url, make_store(tmp_path, entry.url), visit([]), opens=False)
