"""The HTTP client for one server: failures become answers that say whether the request can have been executed.

In: requests of the SDK's transport.
Out: responses; where there is none, one whose JSON-RPC error says why.
Never: a failure of one request that ends all others of the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError

NOT_EXECUTED: Final = "pokayoke.not_executed"
"""A member of an error's data: True if the server cannot have executed the request, False if it may have."""

_MAX_CONNECTIONS: Final = 256
_CONNECT_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 5.0
_NO_ANSWER: Final = -32000
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404


class ServerHttpClient(httpx2.AsyncClient):
    """Sends the requests of one connection.

    Proxies and credentials of the environment are not used: a request goes where the file says.

    Args:
        headers: of each request, resolved.
        auth: signs the requests, or None.
        timeout: the most seconds a request of the gateway may take; the client itself waits a little longer.
        ended: set when the server has forgotten the session.
    """

    def __init__(self, headers: Mapping[str, str], auth: Any, timeout: float, ended: anyio.Event) -> None:
        super().__init__(
            headers=dict(headers),
            auth=auth,
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=timeout + _GRACE_SECONDS, pool=timeout),
            limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
            trust_env=False,
        )
        self._ended = ended

    async def send(self, request: Any, **options: Any) -> Any:
        """Send a request; one that gets no usable answer is answered with an error instead."""
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error_response(request, f"it cannot be reached: {error or type(error).__name__}", executed=False)
        except httpx2.HTTPError as error:
            return _error_response(request, f"the connection broke: {error or type(error).__name__}", executed=True)
        except OAuthFlowError as error:
            return _error_response(request, f"signing in failed: {error}", executed=False)
        if response.status_code in (_UNAUTHORIZED, _FORBIDDEN):
            await response.aclose()
            words = f"it refuses the gateway's credentials (HTTP {response.status_code})"
            return _error_response(request, words, executed=False)
        if response.status_code == _NOT_FOUND and "mcp-session-id" in request.headers:
            await response.aclose()
            self._ended.set()
            return _error_response(request, "it has ended the session", executed=False)
        return response


def _error_response(request: Any, message: str, *, executed: bool) -> Any:
    error = {"code": _NO_ANSWER, "message": message, "data": {NOT_EXECUTED: not executed}}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)
