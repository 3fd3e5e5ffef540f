"""`pokayoke gateway`: many MCP servers behind one guard.

In: a file of servers, and who may call.
Out: a gateway that runs until it is stopped, over streamable HTTP or stdio.
Never: a secret on a terminal, but a new token once to whom asks for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pokayoke.cli.options import (
    ApprovedOption,
    JsonOption,
    ModeOption,
    StoreOption,
    open_approved,
    read_guard_config,
)
from pokayoke.cli.output import escape_text, print_data, print_message
from pokayoke.core.json.dump import dump_compact
from pokayoke.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from pokayoke.gateway.auth.references import References
    from pokayoke.gateway.http.serve import GatewaySetup

_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")

FileArgument = Annotated[
    Path | None, typer.Argument(help="The servers: a JSON file with `mcpServers`.", show_default=False)
]
StdioOption = Annotated[bool, typer.Option("--stdio", help="Serve one client over stdin and stdout instead of HTTP.")]
HostOption = Annotated[str, typer.Option("--host", help="The address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0 for any that is free.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The policy of the guard.")]
RunOption = Annotated[str, typer.Option("--run", help="The run of calls that name none and have no token or session.")]
HintsOption = Annotated[bool, typer.Option("--trust-hints", help="Believe the servers which tools only read.")]
ReadsOption = Annotated[
    list[str], typer.Option("--read", help="A tool that only reads, as clients see it; repeatable.")
]
TokensOption = Annotated[Path | None, typer.Option("--tokens", help="A file with hashes of the tokens that may call.")]
NewTokenOption = Annotated[str, typer.Option("--new-token", help="Print a new token for this subject, and its line.")]
IssuerOption = Annotated[str, typer.Option("--jwt-issuer", help="The authorization server whose tokens may call.")]
AudienceOption = Annotated[str, typer.Option("--jwt-audience", help="Whom its tokens are for; default: --public-url.")]
KeysOption = Annotated[str, typer.Option("--jwt-keys", help="Its public keys: a file or an https address (JWKS).")]
AlgorithmsOption = Annotated[list[str], typer.Option("--jwt-algorithm", help="An algorithm of its tokens; repeatable.")]
ScopesOption = Annotated[list[str], typer.Option("--scope", help="A scope that a token must have; repeatable.")]
HostsOption = Annotated[list[str], typer.Option("--allow-host", help="A host name that clients use; repeatable.")]
OriginsOption = Annotated[list[str], typer.Option("--allow-origin", help="A web page that may call; repeatable.")]
UrlOption = Annotated[str, typer.Option("--public-url", help="The address that clients use, if it is another one.")]
SignInOption = Annotated[str, typer.Option("--sign-in", help="Sign in to this server of the file (OAuth), and end.")]
TokenFolderOption = Annotated[Path | None, typer.Option("--token-folder", help="Where tokens of servers are kept.")]
NoAuthOption = Annotated[bool, typer.Option("--no-auth", help="Let other machines call without a token.")]


def gateway(
    servers: FileArgument = None,
    stdio: StdioOption = False,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8_765,
    store: StoreOption = None,
    config: ConfigOption = None,
    mode: ModeOption = None,
    run: RunOption = "",
    trust_hints: HintsOption = False,
    read: ReadsOption = [],  # noqa: B006 - typer copies it
    approved: ApprovedOption = None,
    tokens: TokensOption = None,
    new_token: NewTokenOption = "",
    jwt_issuer: IssuerOption = "",
    jwt_audience: AudienceOption = "",
    jwt_keys: KeysOption = "",
    jwt_algorithm: AlgorithmsOption = [],  # noqa: B006 - as above
    scope: ScopesOption = [],  # noqa: B006 - as above
    allow_host: HostsOption = [],  # noqa: B006 - as above
    allow_origin: OriginsOption = [],  # noqa: B006 - as above
    public_url: UrlOption = "",
    no_auth: NoAuthOption = False,
    sign_in: SignInOption = "",
    token_folder: TokenFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Guard the MCP servers of a file, and serve them as one."""
    if new_token:
        _print_new_token(new_token, as_json)
        return
    listing = {"trust_hints": trust_hints, "approved": open_approved(approved)}
    made = _build_gateway(servers, listing, store, read_guard_config(config, mode), run=run, reads=read)
    if _sign_in(made, token_folder, sign_in):
        return
    from pokayoke.gateway.http.gate import Door, require_door  # noqa: PLC0415 - needs the extra
    from pokayoke.gateway.http.serve import serve_http, serve_stdio  # noqa: PLC0415 - as above

    if stdio:
        asyncio.run(serve_stdio(made))
        return
    door = Door(
        hosts=(*_LOCAL, *allow_host, *_host_of(public_url)),
        origins=tuple(allow_origin),
        verifiers=_build_verifiers(tokens, jwt_issuer, jwt_audience or public_url, jwt_keys, jwt_algorithm),
        scopes=tuple(scope),
        public_url=public_url,
        issuers=(jwt_issuer,) if jwt_issuer else (),
    )
    require_door(door, host, anybody=no_auth)
    asyncio.run(serve_http(made, door, host, port, ready=lambda found: _announce(public_url, host, found, as_json)))


def _announce(public_url: str, host: str, port: int, as_json: bool) -> None:
    url = public_url or f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    print_data(dump_compact({"url": url}).decode() if as_json else f"listening on {url}")
    sys.stdout.flush()


def _require_extra() -> None:
    """Refuse to begin without the libraries of the extra, and name the command that installs them."""
    for module, package in (("mcp", "mcp"), ("jwt", "PyJWT"), ("uvicorn", "uvicorn")):
        if find_spec(module) is None:
            raise MissingExtraError(package, "gateway")


def _build_gateway(
    servers: Path | None, listing: dict[str, Any], store: str | None, config: Any, *, run: str, reads: list[str]
) -> GatewaySetup:
    _require_extra()
    if servers is None:
        raise ConfigurationError("name the file of servers: pokayoke gateway servers.json")
    from pokayoke.gateway.auth.references import References  # noqa: PLC0415 - needs the extra
    from pokayoke.gateway.http.serve import GatewaySetup  # noqa: PLC0415 - as above
    from pokayoke.gateway.interceptor import Interceptor  # noqa: PLC0415 - as above
    from pokayoke.gateway.listing import ListingSettings, read_fields  # noqa: PLC0415 - as above
    from pokayoke.gateway.servers.server_file import read_servers  # noqa: PLC0415 - as above
    from pokayoke.runtime.guard.guard import Guard  # noqa: PLC0415 - as above

    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)  # what it logs may hold what servers and issuers wrote
    entries = read_servers(servers)
    guard = Guard([], store=store, config=config)
    references: References = References()
    settings = ListingSettings(fields=read_fields({"read": reads}), **listing)
    return GatewaySetup(
        entries=entries,
        references=references,
        interceptor=Interceptor(guard, listing=settings, scope=run or None),
        report=lambda line: print_message(escape_text(line)),
        errlog=sys.stderr if sys.stderr.isatty() else open(os.devnull, "w", encoding="utf-8"),  # noqa: PTH123 - for the life of the process
    )


def _build_verifiers(tokens: Path | None, issuer: str, audience: str, keys: str, algorithms: list[str]) -> Any:
    from pokayoke.gateway.auth.jwt_tokens import ALGORITHMS, JwtTokens  # noqa: PLC0415 - needs the extra
    from pokayoke.gateway.auth.tokens import StaticTokens, Verifier  # noqa: PLC0415 - as above

    found: list[Verifier] = [] if tokens is None else [StaticTokens(tokens)]
    if issuer or keys:
        if not issuer or not keys:
            raise ConfigurationError("--jwt-issuer and --jwt-keys belong together: give both")
        if not audience:
            raise ConfigurationError("--jwt-issuer needs --jwt-audience or --public-url: a token is for one gateway")
        found.append(JwtTokens(issuer=issuer, audience=audience, keys=keys, algorithms=algorithms or ALGORITHMS))
    return tuple(found)


def _sign_in(made: GatewaySetup, folder: Path | None, name: str) -> bool:
    """Have the requests to servers signed that ask for it; return whether a person was to sign in to one instead."""
    if not name and not any(one.oauth for one in made.entries):
        return False
    from pokayoke.gateway.auth import sign_in as signing  # noqa: PLC0415 - needs the extra
    from pokayoke.gateway.auth.token_store import TokenStore, open_seal  # noqa: PLC0415 - as above
    from pokayoke.gateway.servers.server_file import UpstreamEntry  # noqa: PLC0415 - as above

    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    place, seal, references = folder or Path(base) / "pokayoke" / "tokens", open_seal(), made.references

    def open_store(entry: UpstreamEntry) -> tuple[str, TokenStore]:
        address = references.resolve(entry.url)
        return address, TokenStore(place, address, seal, signing.known_client(entry, references))

    made.build_auth = lambda one: None if one.oauth is None else signing.build_auth(one, *open_store(one))
    if not name:
        return False
    entry = next((one for one in made.entries if one.name == name and one.oauth), None)
    if entry is None:
        raise ConfigurationError(f"the file has no server {name!r} with oauth: add it there")
    try:
        asyncio.run(signing.sign_in(entry, *open_store(entry), lambda line: print_message(escape_text(line))))
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("mcp", "httpx2"):
            raise
        raise ConfigurationError(f"{name}: {references.hide(str(error))}") from None
    print_message(f"signed in to {escape_text(name)}")
    return True


def _print_new_token(subject: str, as_json: bool) -> None:
    from pokayoke.gateway.auth.tokens import create_token  # noqa: PLC0415 - a file of its own room

    token, line = create_token(subject)
    if as_json:
        print_data(dump_compact({"token": token, "line": line}).decode())
        return
    print_message("The token, shown this once; give it to the client:")
    print_data(token)
    print_message("Its line, for the file of --tokens:")
    print_data(line)


def _host_of(url: str) -> tuple[str, ...]:
    from urllib.parse import urlsplit  # noqa: PLC0415 - only here

    return (host,) if url and (host := urlsplit(url).hostname) else ()
