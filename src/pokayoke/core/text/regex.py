"""Searches that no text can make hang: the linear engine behind jsonschema-rs, used as a "does it occur" test."""

from __future__ import annotations

from collections.abc import Callable


def linear_search(source: str) -> Callable[[str], bool]:
    """Return a linear-time "does it occur in this text" test (the engine of jsonschema-rs).

    Raises:
        ValueError: the pattern does not compile, or needs look-around or back-references.
    """
    from jsonschema_rs import Draft202012Validator, RegexOptions  # noqa: PLC0415 - 10 ms of import, for who searches

    # The engine searches up to 64 literals at once with SIMD instructions (0.15 us per KB), if each has
    # at least four bytes and few occur; beyond that it looks at one byte at a time (1.7 us per KB).
    return Draft202012Validator({"pattern": source}, pattern_options=RegexOptions()).is_valid
