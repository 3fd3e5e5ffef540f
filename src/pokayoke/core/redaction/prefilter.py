"""Fast searches that decide which of the exact secret rules a text needs.

In: JSON as bytes, or a text, as written and in lower case.
Out: the prefilters that match.
Never: miss a secret that an exact rule would find.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from pokayoke.core.text.regex import linear_search

# Names of secrets; `~` is where a separator may stand between the parts of a name.
_CARD: Final = "card~n(?:o|umber)|(?:functions|subscription)~key|connection~string"
NAMES: Final = (
    r"pass~w(?:or)?[dt]|pass~phrase|pass~code|secret|token|cookie|credential|bearer|authorization|kennwort|contrase"
    rf"|(?:api|private|access|signing|encryption)~key|{_CARD}|密码|密碼|密钥|密鑰|令牌|口令"
)
# Short names, which count only as a separate word: `pinCode` and `PIN_2`, but neither `spin` nor `PING`.
SHORT_NAMES: Final = ("auth", "pin", "otp", "cvv", "cvc", "ssn")
# In JSON text, a control character that separates parts is written with letters.
SPELLED_GAP: Final = r"\\[bfnrt]|\\u00[01][0-9a-f]"
AFTER_GAP: Final = r"(?<=\\[bfnrt])|(?<=\\u00[01][0-9a-f])"
"""Directly after such a character: its letter does not belong to the word that follows."""
_GAP: Final = f"(?:[^0-9a-z]|{SPELLED_GAP})*"
_NAME: Final = NAMES.replace("~", _GAP) + "|pass(?:[^0-9a-z]|$)"
# Searched separately: many texts hold the letters they begin with, and would be searched for all names.
_CARD_NAME: Final = _CARD.replace("~", _GAP)
# Every name and shape holds one of these literals, in lower-cased text. All are searched at once (63 at most, see
# `linear_search`); only a hit leads to the exact rules.
_NAME_LITERALS: Final = (
    "pass|secret|token|cookie|credential|bearer|authorization|kennwort|contrase"
    "|private|access|signing|encryption|密码|密碼|密钥|密鑰|令牌|口令"
)
_SHAPE_LITERALS: Final = (
    r"-----begin|ghp_|gho_|ghu_|ghs_|ghr_|github_pat|glpat-|glrt-|sbp_[0-9a-z]{8}|nfp_[0-9a-z]{8}|akia[0-9a-z]{4}"
    r"|asia[0-9a-z]{8}|aiza[0-9a-z_-]{8}|npm_[0-9a-z]{8}|sk_live|sk_test|rk_live|rk_test|pypi-|ya29\."
    r"|gsk_[0-9a-z]{8}|xai-[0-9a-z]{8}|pplx-|nvapi-|gocspx-|absk[0-9a-z]{8}|bedrock-api-key-|lsv2_|tvly-|dapi[0-9a-f]{8}"
    r"|xapp-|whsec_|dckr_|dop_v1_|hvs\.[0-9a-z]{8}|ntn_[0-9a-z]{8}|lin_api_|shpat_|atatt[0-9a-z]{8}|sig=|accountkey="
    r"|pmak-|nrak-"
)
# Searched in the text as written: case separates `pinCode` from `pincushion`.
_SHORT_SHAPES: Final = (
    r"eyJ[0-9A-Za-z_-]{6}|hf_[0-9A-Za-z]{8}|sk-[0-9A-Za-z_-]{6}|SG\.[0-9A-Za-z_-]{6}|:AA[0-9A-Za-z_-]{6}|xox[a-eprs][-.]"
    r"|gl(?:dt|ptt)-|shpss_|figd_|glsa_|dp\.pt\.|rubygems_|pscale_|sq0csp-|\.atlasv1\."
    r"|[?&;-]Signature=|key-[0-9a-f]{8}|hooks\.slack\.com/|/webhooks/[0-9]{8}"
)
_WORDS: Final = tuple(
    f"(?:{case('|'.join(SHORT_NAMES))})(?:{end}|$)|{case('pwd')}"
    for case, end in ((str.lower, "[^a-z]"), (str.title, "[^a-z]"), (str.upper, "[^A-Za-z]|[A-Z][a-z]"))
)
_WHOLE_WORDS: Final = f"(?:^|[^A-Za-z]|{SPELLED_GAP})(?:{_WORDS[0]})|{_WORDS[1]}|(?:^|[^A-Z])(?:{_WORDS[2]})"
_API_KEY: Final = "[aA][pP][iI](?:[kK]|[^A-Za-z])"
_LOGIN: Final = '://[^/@" ]+@'
_SPELLED_LETTER: Final = r"\\u(?:00[2-9a-f]|0[1-9a-f]|[1-9a-f])"
_ACCOUNT: Final = "[2-6][0-9 -]{13}|[A-Z]{2}[0-9]{2}[0-9A-Z ]{11}"


class _Searches(NamedTuple):
    """The compiled searches."""

    literal: Callable[[str], bool]
    card_name: Callable[[str], bool]
    name: Callable[[str], bool]
    shape: Callable[[str], bool]
    short: Callable[[str], bool]
    short_shape: Callable[[str], bool]
    word: Callable[[str], bool]
    login: Callable[[str], bool]
    spelled: Callable[[str], bool]
    card: Callable[[str], bool]


@functools.cache
def _compile_searches() -> _Searches:
    """Compile the searches once, at first use: it takes milliseconds."""
    bare_shapes = re.sub(r"\[.*?\}", "", _SHAPE_LITERALS)
    literals = f"{_NAME_LITERALS}|{bare_shapes}"
    short = "|".join((_SHORT_SHAPES, *_WORDS, _API_KEY))
    exact = (_CARD_NAME, _NAME, _SHAPE_LITERALS, short, _SHORT_SHAPES, _WHOLE_WORDS)
    return _Searches(*map(linear_search, (literals, *exact, _LOGIN, _SPELLED_LETTER, _ACCOUNT)))


# The searches are five times as fast on ASCII. These are the first bytes of all non-ASCII characters they look for,
# and none of the searches counts characters of any kind.
_NON_ASCII_LEADS: Final = b"\xe4\xe5"


def search_text(data: bytes) -> tuple[str, str]:
    """Return the text to search, as written and in lower case: the same text, or ASCII with the same matches.

    Args:
        data: text in UTF-8.

    Raises:
        UnicodeDecodeError: the data is not UTF-8.
    """
    if data.isascii():
        text = str(data, "ascii")
        return text, text.lower()
    text = data.decode()
    if _NON_ASCII_LEADS[0] in data or _NON_ASCII_LEADS[1] in data:
        return text, str(data.lower(), "utf-8")
    text = str(text.encode("ascii", "replace"), "ascii")
    return text, text.lower()


def _has_secret_name(_: str, lowered: str) -> bool:
    search = _compile_searches()
    return search.card_name(lowered) or (search.literal(lowered) and (search.name(lowered) or search.shape(lowered)))


def _has_short_secret(text: str, lowered: str) -> bool:
    search = _compile_searches()
    return search.short(text) and (search.short_shape(text) or search.word(text) or search.name(lowered))


# A search for one character costs almost nothing, and most texts hold neither.
def _has_login(_: str, lowered: str) -> bool:
    return "curl" in lowered or ("@" in lowered and _compile_searches().login(lowered))


def _has_escaped_letter(_: str, lowered: str) -> bool:
    return "\\" in lowered and _compile_searches().spelled(lowered)


def has_account_number(text: str, _: str) -> bool:
    """Return whether a text may hold the number of a card or an account; `is_card` and `is_account` decide."""
    return _compile_searches().card(text)


Prefilter = Callable[[str, str], bool]
PREFILTERS: Final[tuple[Prefilter, ...]] = (
    _has_secret_name,
    _has_short_secret,
    _has_login,
    _has_escaped_letter,
    has_account_number,
)
"""The prefilters, one per kind of built-in rule. Each takes a text as written and in lower case. One that finds nothing
in the JSON text of a value finds nothing in any text inside the value."""


def matching_prefilters(text: str, lowered: str) -> tuple[Prefilter, ...]:
    """Return the prefilters that match a text."""
    search = _compile_searches()
    if not (
        search.literal(lowered)
        or search.card_name(lowered)
        or search.short(text)
        or search.card(text)
        or _has_login(text, lowered)
        or _has_escaped_letter(text, lowered)
    ):
        return ()  # true of most texts: none of the prefilters can match
    return tuple([look for look in PREFILTERS if look(text, lowered)])
