"""URLs that a rule allows, as a tool gets them.

In: URLs as a model sends them.
Out: a text with the URL in one form, which opens a client that stays under its rule; or a `UrlRefused`.
Never: a claim about the address behind a host. Only the client that connects checks that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.gate.urls import parse_url
from pokayoke.errors import UrlRefused

if TYPE_CHECKING:
    import httpx2


class ConfinedUrl(str):
    """A URL that its rule allows, in one form, with clients that stay under the rule.

    It is a `str` and works wherever a URL does; only its own clients check the address behind the host, and every
    redirect.

    Attributes:
        rule: what may be reached.
        scheme: `http` or `https`.
        host: the host in ASCII; an IPv6 address has no brackets.
        port: the port, also where the text does not name it.
    """

    __slots__ = ("host", "port", "rule", "scheme")
    rule: UrlRule
    scheme: str
    host: str
    port: int

    def __new__(cls, url: str, rule: UrlRule) -> Self:
        """Check a URL and bring it into its one form.

        Raises:
            UrlRefused: its text is malformed, or leads where the rule does not allow.
        """
        parts = parse_url(url, rule)
        if isinstance(parts, Finding):
            raise UrlRefused(parts.message, parts)
        made = str.__new__(cls, parts.text)
        made.rule, made.scheme, made.host, made.port = rule, parts.scheme, parts.host.text, parts.port
        return made

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Describe the type to pydantic: a text for the model, a confined URL for the tool."""
        from pydantic_core import core_schema  # noqa: PLC0415 - needed by pydantic only

        def keep_confined(value: Any, text: Any) -> Any:
            return value if isinstance(value, cls) else text(value)

        text = core_schema.str_schema()
        return core_schema.no_info_wrap_validator_function(keep_confined, text, json_schema_input_schema=text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_url, (str(self), msgspec.structs.asdict(self.rule))

    def open_client(self, **options: Any) -> httpx2.Client:
        """Return an HTTP client under this URL's rule; see `pokayoke.urls.open_client`."""
        from pokayoke.runtime.network.client import open_client  # noqa: PLC0415 - needs the extra

        return open_client(self.rule, **options)

    def open_async_client(self, **options: Any) -> httpx2.AsyncClient:
        """Return an asynchronous HTTP client under this URL's rule; see `pokayoke.urls.open_async_client`."""
        from pokayoke.runtime.network.client import open_async_client  # noqa: PLC0415 - needs the extra

        return open_async_client(self.rule, **options)


def _restore_url(url: str, rule: dict[str, Any]) -> ConfinedUrl:
    """Return a URL that was pickled. Its rule is written as plain values, which no version of a library explains."""
    return ConfinedUrl(url, UrlRule(**rule))


def confine_url(url: Any, rule: UrlRule) -> ConfinedUrl:
    """Return a URL under a rule.

    Raises:
        UrlRefused: its text is malformed, or leads where the rule does not allow; `.finding` says what is wrong.
    """
    return url if type(url) is ConfinedUrl and url.rule == rule else ConfinedUrl(url, rule)
