"""Values in one spelling: what a user wrote, what a record holds and what a call names can then be compared.

In: texts and JSON scalars.
Out: normal forms.
Never: case folding beyond lower case. `ß` and `ss` are different names in a domain.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from pokayoke.core.provenance.vocabulary import MONTHS
from pokayoke.core.text.regex import compile_pattern

LONGEST_FIELD: Final = 160
"""Characters of the longest text that is a value; a longer one is prose."""

_NUMBER: Final = r"[+-]?\d+(?:[.,' \u00a0\u202f]\d{3})*(?:[.,]\d+)?"
_IBAN: Final = r"[a-z]{2}\d{2}(?:[ -]?[a-z0-9]{1,4}){3,8}"
_PHONE: Final = r"(?:\+|00)?\d[\d ()/.-]{5,20}\d"
_EMAIL: Final = r"[^\W_][\w.+-]*@[\w-]+(?:\.[\w-]+)+"
_URL: Final = r"(?:https?://|www\.)[^\s'\"<>)\],]+"
_HOST: Final = r"(?<![\w@.-])(?:[a-z0-9-]+\.)+[a-z]{2,}(?:/[^\s'\"<>)\],]*)?"
_DAY: Final = r"(\d{4})-(\d\d)-(\d\d)(?:[t ](\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?"
_GAPS: Final = r"[\s\-./()]+"


def fold(text: str) -> str:
    """Return a text in compatibility form, lower case, with single blanks."""
    # Of ASCII the compatibility form is the text itself.
    return " ".join((text if text.isascii() else unicodedata.normalize("NFKC", text)).lower().split())


def read_numbers(text: str) -> Iterator[str]:
    """Yield every number that a spelling may mean: `1.000,5` is 1000.5, and `1,000` is 1000 or 1."""
    bare = re.sub(r"[ '\u00a0\u202f]", "", text)
    for groups, point in ((",", "."), (".", ",")):
        shape = rf"[+-]?(?:\d{{1,3}}(?:\{groups}\d{{3}})+|\d+)(?:\{point}\d+)?"
        if re.fullmatch(shape, bare):
            plain = bare.replace(groups, "").replace(point, ".")
            yield number_form(float(plain) if "." in plain else int(plain))


def number_form(number: float) -> str:
    """Return a number in one spelling: 312.50 is `312.5`, and 850.0 is `850`."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:  # noqa: PLR2004 - exact below
        number = int(number)
    return str(number)


def close_up(text: str) -> str:
    """Return a folded text without the signs that group digits and letters."""
    return compile_pattern(_GAPS).sub("", text)


def normal_form(value: Any) -> str | None:
    """Return the one spelling of a scalar, or None if it is no value to go by: a boolean, null, prose, nothing."""
    if not isinstance(value, str):
        return number_form(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return _text_form(value) if value and len(value) <= LONGEST_FIELD else None


@lru_cache(8_192)
def _text_form(value: str) -> str | None:
    # Kept: the values of records are states, names and identifiers that stand in many of them.
    text = fold(value)
    if not text:
        return None
    if text[0].isdigit() or text[0] in "+(":
        if found := compile_pattern(_DAY).fullmatch(text):
            return f"{found[1]}-{found[2]}-{found[3]}" + (f" {found[4]}" if found[4] else "")
        is_number = compile_pattern(_NUMBER).fullmatch(text) and not (text[0] == "0" and text.isdigit())
        if is_number and text[0] != "+":
            return next(read_numbers(text), text)
        if compile_pattern(_PHONE).fullmatch(text) and (phone := close_contact(_PHONE, text)):
            return phone
        return text
    if text[2:4].isdigit() and compile_pattern(_IBAN).fullmatch(text):
        return close_up(text)
    return strip_url(text) if text[0] in "hw" or text[-1] == "/" else text


def strip_url(text: str) -> str:
    """Return an address without scheme, `www.` and final slash."""
    return re.sub(r"^(?:https?://)?(?:www\.)?", "", text).rstrip("/") or text


def is_grouped(form: str) -> bool:
    """Return whether a normal form is an IBAN, a phone or a card number, which people write in groups."""
    return (
        len(form) >= 8  # noqa: PLR2004 - shorter ones are ordinary numbers
        and form.isalnum() | (form[:1] == "+" and form[1:].isdigit())
        and sum(c.isdigit() for c in form) >= 6  # noqa: PLR2004 - as above
    )


def find_contacts(text: str) -> Iterator[str]:
    """Yield the addresses in a text: e-mail, URL, host name, IBAN, phone, also where they are written out.

    `name at host dot com` and grouped digits are what only a reader would put together.
    """
    folded = fold(text)
    spelled = re.sub(r"\s+(?:dot|punkt|point)\s+", ".", re.sub(r"\s+(?:at|\(at\)|\[at\])\s+", "@", folded))
    seen: set[str] = set()
    for version in (folded, spelled):
        for pattern in (_EMAIL, _URL, _HOST, _IBAN, _PHONE):
            for hit in compile_pattern(pattern).finditer(version):
                form = (
                    strip_url(hit[0].rstrip(".,;:!?")) if pattern in (_URL, _HOST) else close_contact(pattern, hit[0])
                )
                if form and form not in seen:
                    seen.add(form)
                    yield form


def close_contact(pattern: str, text: str) -> str:
    """Return an address that a pattern found in its normal form, or "" if it is an ordinary number or word."""
    if pattern == _EMAIL:
        return text.rstrip(".")
    form = close_up(text)
    digits = sum(c.isdigit() for c in form)
    if pattern == _PHONE:
        return form if digits >= 9 or (text[0] == "+" and digits >= 7) else ""  # noqa: PLR2004 - shorter ones are dates and ids
    return form if digits >= 8 else ""  # noqa: PLR2004 - the shortest IBAN has more


def read_days(folded: str) -> Iterator[tuple[int | None, int, int]]:
    """Yield year (None if not written), month and day of every date in a folded text."""
    for hit in re.finditer(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)", folded):
        yield int(hit[1]), int(hit[2]), int(hit[3])
    names = "|".join(sorted(MONTHS, key=len, reverse=True))
    for hit in re.finditer(
        rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th|er|\.|º)?(?: of| de)? ({names})\b\.?(?:,? (?:de )?(\d{{4}}))?", folded
    ):
        yield int(hit[3]) if hit[3] else None, MONTHS[hit[2]], int(hit[1])
    for hit in re.finditer(rf"\b({names})\.? (\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,? (\d{{4}}))?", folded):
        yield int(hit[3]) if hit[3] else None, MONTHS[hit[1]], int(hit[2])
    for hit in re.finditer(r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.(\d{4})?(?!\d)", folded):
        yield int(hit[3]) if hit[3] else None, int(hit[2]), int(hit[1])
    for hit in re.finditer(r"(?:(\d{4})年)?(\d{1,2})月(\d{1,2})日", folded):
        yield int(hit[1]) if hit[1] else None, int(hit[2]), int(hit[3])


def read_times(folded: str) -> Iterator[str]:
    """Yield the times of day in a folded text as `hh:mm`."""
    for hit in re.finditer(r"(?<!\d)(\d{1,2})[:h.](\d\d)(?!\d)(?: ?(am|pm))?", folded):
        yield _clock(int(hit[1]), int(hit[2]), hit[3])
    for hit in re.finditer(r"(?<![\d:.])(\d{1,2}) ?(am|pm|uhr|h)\b", folded):
        yield _clock(int(hit[1]), 0, hit[2])


def _clock(hour: int, minute: int, half: str | None) -> str:
    if half == "pm" and hour < 12:  # noqa: PLR2004 - noon
        hour += 12
    return f"{hour:02d}:{minute:02d}"
