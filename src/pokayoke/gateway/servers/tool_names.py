"""Names of the tools of several servers, as clients see them.

In: a server's name and its tool's name.
Out: one name that every model provider takes, always the same for the same two.
Never: one name for two tools, or a name that depends on which other servers there are.

Providers take up to 64 letters, digits, `_` and `-`. The plain form is `SERVER__TOOL`. Where that does not fit, or
could be read in two ways, the name ends in a hash of both.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

SEPARATOR: Final = "__"
"""Between the server and the tool."""
MAX_LENGTH: Final = 64
"""The longest name that every provider takes."""

_HASH_DIGITS: Final = 12
_SERVER: Final = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*", re.ASCII)
_TOOL: Final = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_-]*", re.ASCII)
_HASHED: Final = re.compile(rf".*-[0-9a-f]{{{_HASH_DIGITS}}}", re.ASCII | re.DOTALL)
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_SERVER: Final = 20


def public_name(server: str, tool: str) -> str:
    """Return the name under which clients see a server's tool.

    The plain form is unambiguous: its server holds no separator and ends in no `_`, and its tool does not begin with
    one, so the first separator divides them. It never ends like a hashed form, and of hashed forms two are equal only
    if 48 bits of SHA-256 are.

    Args:
        server: its name in the file.
        tool: its name in the server's listing.
    """
    plain = f"{server}{SEPARATOR}{tool}"
    if (
        len(plain) <= MAX_LENGTH
        and _SERVER.fullmatch(server)
        and _TOOL.fullmatch(tool)
        and not _HASHED.fullmatch(plain)
    ):
        return plain
    digest = hashlib.sha256(f"{len(server)}\x00{server}{tool}".encode(errors="surrogatepass")).hexdigest()
    ending = f"-{digest[:_HASH_DIGITS]}"
    shown = f"{_FOREIGN.sub('_', server)[:_MAX_SERVER]}{SEPARATOR}{_FOREIGN.sub('_', tool)}"
    return shown[: MAX_LENGTH - len(ending)] + ending
