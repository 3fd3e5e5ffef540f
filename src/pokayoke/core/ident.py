"""What a host says of a run: ids, reasons and counts that a store can keep, and find again."""

from __future__ import annotations

import hashlib
import operator
import re
from typing import Any, get_args

from pokayoke.core.call import StopReason
from pokayoke.errors import UsageError

_MOST_CHARS = 500  # PostgreSQL indexes up to 2,704 bytes
# What databases do not take, and what parts a tenant from an id.
_FORBIDDEN_CHARACTERS = re.compile("[\x00\x1f\ud800-\udfff]")


def as_text_id(value: object, what: str, *, empty: bool = False) -> str:
    """Return an id that the host gave, if every store can keep it.

    Args:
        value: what the host gave.
        what: the name of the argument.
        empty: whether the empty text may be one: as a scope it would be everybody's.

    Raises:
        UsageError: it is no text, empty, longer than 500 characters, or holds NUL, U+001F or a lone surrogate.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} is a text, got {type(value).__name__}: pass str() of it")
    text = str.__str__(value)
    if not text and not empty:
        raise UsageError(f"{what} is empty, so it would be the same for all: pass None if there is none")
    if len(text) > _MOST_CHARS:
        raise UsageError(f"{what} has at most {_MOST_CHARS} characters, got {len(text):,}: pass a hash of it")
    if _FORBIDDEN_CHARACTERS.search(text):
        raise UsageError(f"{what} {text[:40]!a} holds NUL, U+001F or a lone surrogate: pass another id")
    return text


def as_stop_reason(given: StopReason) -> StopReason:
    """Return a host's reason to stop.

    Raises:
        UsageError: it is none of those there are.
    """
    if given not in get_args(StopReason):
        raise UsageError(f"{given!a:.40} is no stop reason: take one of {', '.join(get_args(StopReason))}")
    return given


def as_token_count(given: Any) -> int:
    """Return a number of tokens that a host reports.

    Raises:
        UsageError: it is no whole number.
    """
    whole: Any = int(given) if isinstance(given, float) and given.is_integer() else given
    try:
        return operator.index(whole)
    except TypeError:
        raise UsageError(f"a number of tokens is a whole number, got {given!a:.40}") from None


def as_storable_id(given: object) -> str:
    """Return an id of a framework, or of a client behind it, as every store can keep it: an odd one as its hash.

    Nobody who could change such an id hears of it, so it is no error.
    """
    ident = str(given)
    if len(ident) <= _MOST_CHARS and not _FORBIDDEN_CHARACTERS.search(ident):
        return ident
    return f"sha256:{hashlib.sha256(ident.encode(errors='surrogatepass')).hexdigest()}"
