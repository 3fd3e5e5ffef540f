"""SHOW: the web pages of operators, and the HTTP endpoint of machines; needs the extra `dashboard`.

    application = pokayoke.dashboard.app("sqlite:///ledger.db", access=...)

In: a store, trace files, a configuration.
Out: an ASGI application.
Never: state of its own but an index that can be deleted; a decision that the commands could not make.
"""

from __future__ import annotations

from pokayoke.errors import MissingExtraError

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ImportError as missing:
    raise MissingExtraError("jinja2" if "jinja2" in str(missing) else "starlette", "dashboard") from missing

from pokayoke.dashboard.access import HeaderAccess, TokenAccess
from pokayoke.dashboard.application import app

__all__ = ["HeaderAccess", "TokenAccess", "app"]

del _jinja2, _starlette
