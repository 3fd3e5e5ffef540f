"""HTTP for tools that get a URL from a model: every request stays under a rule.

    @pokayoke.tool(effect="read", output="text", urls={"url": pokayoke.UrlRule(hosts=("docs.example.com",))})
    def fetch(url: pokayoke.ConfinedUrl) -> str:
        with url.open_client() as http:
            return http.get(url).text

In: a rule, and URLs that a model, a tool or a server names.
Out: clients and transports of httpx2, or a `UrlRefused`.
Never: a request to an address that the rule does not allow, after a redirect or a second resolution either.
"""

from pokayoke.runtime.network.client import AsyncCheckedTransport, CheckedTransport, open_async_client, open_client
from pokayoke.runtime.network.confined_url import confine_url
from pokayoke.runtime.network.limits import HttpLimits
from pokayoke.runtime.network.resolve import resolve_name

__all__ = [
    "AsyncCheckedTransport",
    "CheckedTransport",
    "HttpLimits",
    "confine_url",
    "open_async_client",
    "open_client",
    "resolve_name",
]
