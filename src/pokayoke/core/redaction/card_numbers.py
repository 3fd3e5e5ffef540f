"""Finds payment card numbers in a text.

In: texts.
Out: True or False, or the text with `[redacted]` in place of each card number.
Never: miss a card number next to other digits, such as an expiry date or an amount.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from pokayoke.core.redaction.prefilter import AFTER_GAP

_DIGITS: Final = re.compile(rf"(?:(?<![0-9A-Za-z.])|{AFTER_GAP})[0-9](?:[ -]?[0-9]){{13,}}(?![0-9A-Za-z])")
_GROUP: Final = re.compile(r"[0-9]+")
# Layouts of a card number among other digits (an expiry, a CVV, an amount), by the size of the first group: as
# printed, or in one piece.
_LAYOUTS: Final = {4: ((4, 4, 4, 4, 3), (4, 4, 4, 4), (4, 6, 5), (4, 6, 4)), 6: ((6, 13),)}
_IBAN_START: Final = re.compile(r"[A-Z]{2}[0-9]{2}[ -]\Z")


def hide_cards(text: str, mask: Callable[[str], str]) -> str:
    """Return a text with what `mask` returns in place of each card number."""
    return _DIGITS.sub(lambda run: mask(run[0]) if is_card(run[0]) else "".join(_without_cards(run, mask)), text)


def _without_cards(found: re.Match[str], mask: Callable[[str], str]) -> Iterator[str]:
    """Yield the pieces of one run of digits, spaces and dashes, card numbers hidden."""
    run, done = found[0], 0
    groups = [group.span() for group in _GROUP.finditer(run)]
    sizes = [end - start for start, end in groups]
    if _IBAN_START.search(found.string, max(0, found.start() - 5), found.start()):
        groups = []  # an account number in groups of four
    for first, (start, end) in enumerate(groups):
        for layout in _LAYOUTS.get(end - start, ((end - start,),)):
            until = first + len(layout)
            if start >= done and tuple(sizes[first:until]) == layout and is_card(run[start : groups[until - 1][1]]):
                until_digit = groups[until - 1][1]
                yield run[done:start] + mask(run[start:until_digit])
                done = until_digit
    yield run[done:]


# Issuer prefixes with the lengths in use (ISO/IEC 7812; 13 digits are no longer issued).
_CARD: Final = re.compile(
    r"(?=4|5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)|35|6(?:011|4[4-9]|5|2))[0-9]{16}|62[0-9]{17}"
    r"|3[47][0-9]{13}|3[0689][0-9]{12}"
)
_LUHN_DOUBLES: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def is_card(text: str) -> bool:
    """Return whether these digits (ignoring spaces and dashes) are a payment card number with a valid check digit."""
    digits = text.replace(" ", "").replace("-", "")
    if not _CARD.fullmatch(digits):
        return False
    # Luhn: every second digit from the right counts twice, and 10 or more counts as its digit sum.
    return sum(map(int, digits[-1::-2])) % 10 == -sum(_LUHN_DOUBLES[int(d)] for d in digits[-2::-2]) % 10
