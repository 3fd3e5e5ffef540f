"""The host's own ids: what a store can keep, and find again."""

from __future__ import annotations

import re

from pokayoke.errors import UsageError

_MOST_CHARS = 500  # PostgreSQL indexes up to 2,704 bytes
# What databases do not take, and what parts a tenant from an id.
_UNKEPT = re.compile("[\x00\x1f\ud800-\udfff]")


def text_id(value: object, what: str) -> str:
    """Return an id that the host gave, if every store can keep it.

    Args:
        value: what the host gave.
        what: the name of the argument.

    Raises:
        UsageError: it is no text, longer than 500 characters, or holds NUL, U+001F or a lone surrogate.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} is a text, got {type(value).__name__}: pass str() of it")
    text = str.__str__(value)
    if len(text) > _MOST_CHARS:
        raise UsageError(f"{what} has at most {_MOST_CHARS} characters, got {len(text):,}: pass a hash of it")
    if _UNKEPT.search(text):
        raise UsageError(f"{what} {text[:40]!a} holds NUL, U+001F or a lone surrogate: pass another id")
    return text
