"""Finds international bank account numbers in a text.

In: texts.
Out: True or False, or the text with `[redacted]` in place of each number, and its last signs, by which a person who is
asked about a payment knows the account.
Never: a list of countries and lengths: the check digits decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pokayoke.core.redaction.prefilter import AFTER_GAP

# In one piece, or as printed: in groups of four (ISO 13616).
_RUN: Final = re.compile(
    rf"(?:(?<![0-9A-Za-z])|{AFTER_GAP})"
    r"[A-Z]{2}[0-9]{2}(?:[0-9A-Z]{11,30}|(?: [0-9A-Z]{4}){2,7}(?: [0-9A-Z]{1,3})?)(?![0-9A-Za-z])"
)
_SHORTEST: Final = 15
_SHOWN: Final = 4


def hide_accounts(text: str, mask: Callable[[str], str]) -> str:
    """Return a text with what `mask` returns in place of each account number; words may follow one in groups."""

    def hide_start(run: re.Match[str]) -> str:
        groups = run[0].split(" ")
        for end in range(len(groups), 0, -1):
            number = " ".join(groups[:end])
            if is_account(number):
                return f"{mask(number)} …{number.replace(' ', '')[-_SHOWN:]}{run[0][len(number) :]}"
        return run[0]

    return _RUN.sub(hide_start, text)


def is_account(text: str) -> bool:
    """Return whether a text in the form of an account number has valid check digits (ISO 7064, MOD 97-10)."""
    number = text.replace(" ", "")
    if len(number) < _SHORTEST:
        return False
    return int("".join(str(int(char, 36)) for char in number[4:] + number[:4])) % 97 == 1
