"""What a secret looks like: names, shapes, card numbers, patterns, and values seen before.

What enters: lower-cased JSON text, names of fields, free texts. What leaves: yes or no, or the text
with `[redacted]` in it. What must never happen here: a regular expression whose time is not linear in
the text (user patterns run on the linear engine behind jsonschema-rs, ours are bounded).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from pokayoke.core.matcher import matcher
from pokayoke.errors import PolicyError

HIDDEN: Final = "[redacted]"


# Literals without which no built-in rule can apply, for lower-cased text. All of them are searched at once
# first (63 at most, see `matcher`); only a hit asks the exact lists, where some are followed by more.
_NAME_LITERALS: Final = (
    "passw|passphr|passcod|pass_w|pass-w|secret|token|_key|-key|api key|apikey|atekey|esskey|ingkey|ionkey"
    '|authori|cookie|credential|bearer|cardn|card_n|card-n|auth"|auth_|pin"|otp"|cvv"|cvc"|ssn"|pwd"|pwd='
    "|kennwort|contrase|密码|密碼|密钥|密鑰|令牌|口令"
)
_SHAPE_LITERALS: Final = (
    r"-----begin|ghp_|gho_|ghu_|ghs_|ghr_|github_pat|glpat-|xoxb-|xoxp-|xoxa-|xoxr-|xoxs-|akia[0-9a-z]{4}"
    r"|asia[0-9a-z]{12}|aiza[0-9a-z_-]{8}|npm_[0-9a-z]{8}|sk_live|sk_test|rk_live|pypi-|ya29\."
)
_SHORT_SHAPES: Final = "eyj[0-9a-z_-]{6}|hf_[0-9a-z]{8}|sk-[0-9a-z_-]{6}"
_LOGIN: Final = '://[^/@" ]+@'
_SPELLED_LETTER: Final = r"\\u00[2-7]"
_CARD_DIGITS: Final = "[2-6][0-9 -]{13}"


class _Searches(NamedTuple):
    """The compiled searches."""

    literal: Callable[[str], bool]
    name: Callable[[str], bool]
    shape: Callable[[str], bool]
    short: Callable[[str], bool]
    login: Callable[[str], bool]
    spelled: Callable[[str], bool]
    card: Callable[[str], bool]


@functools.cache
def _searches() -> _Searches:
    """Compile once, and not while importing: it takes milliseconds."""
    bare_shapes = re.sub(r"\[.*?\}", "", _SHAPE_LITERALS)
    literals = f"{_NAME_LITERALS}|{bare_shapes}"
    sources = (literals, _NAME_LITERALS, _SHAPE_LITERALS, _SHORT_SHAPES, _LOGIN, _SPELLED_LETTER, _CARD_DIGITS)
    return _Searches(*map(matcher, sources))


# The searches run on ASCII five times as fast. In text of other letters these are all that they look for beside
# ASCII, by the first byte; and none of them counts characters of any kind.
_BESIDE_ASCII: Final = b"\xe4\xe5"
_FLAT: Final = bytes(0x7F if byte > 0x7F else ord(chr(byte).lower()) for byte in range(256))  # noqa: PLR2004 - ASCII


def lowered(data: bytes) -> str:
    """Return lower-case text to ask the searches about: the same, or ASCII in which they find as much.

    Args:
        data: text in UTF-8.

    Raises:
        UnicodeDecodeError: it is anything else.
    """
    if data.isascii() or _BESIDE_ASCII[0] in data or _BESIDE_ASCII[1] in data:
        return str(data.lower(), "utf-8")
    data.decode()
    return str(data.translate(_FLAT), "ascii")


def has_secret_literal(lowered: str) -> bool:
    """True if this lower-cased text holds a literal that any built-in rule needs."""
    search = _searches()
    if search.literal(lowered) and (search.name(lowered) or search.shape(lowered)):
        return True
    # Looking for one character costs next to nothing, and most texts hold neither.
    return (
        search.short(lowered)
        or ("@" in lowered and search.login(lowered))
        or ("\\" in lowered and search.spelled(lowered))
    )


def has_card_digits(text: str) -> bool:
    """True if a text holds what could be a card number: a cheap look, `is_card` decides."""
    return _searches().card(text)


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
# Searched in "_words_joined_ wordsjoined_", so that `apiKey`, `api-key` and `apikey` are one name.
_SECRET_NAME: Final = re.compile(
    r"passw(?:or)?[dt]|passphrase|(?<![a-z])passcode|_pwd|secret(?!ar|io)|api_?key|authorization|cookie"
    r"|private_?key|access_?key|signing_?key|encryption_?key|credential|(?<![a-z])card_?n(?:o_|umber)|bearer"
    r"|_(?:auth|pin|otp|cvv|cvc|ssn)_|tokens?_|kennwort|contrase(?:ñ|n)a|密码|密碼|密钥|密鑰|令牌|口令"
)
# Numbers under such a token name count language-model tokens; strings there are still secret.
_COUNT_NAME: Final = re.compile(
    r"tokens_|_(?:max|min|total|count|limit|num|number|input|output|prompt|completion|used|usage|left"
    r"|remaining|budget|per|cached|reasoning|estimated)_.*token|token_(?:count|limit|budget|usage)_"
)
_REMEMBERED_NAMES: Final = 4_096


def flat(name: str) -> str:
    """Return a configured field name without what may differ: case, `-`, `_`, `.`, spaces, its path."""
    last = re.split(r"[./]", name.strip("./ "))[-1]
    return re.sub(r"[-_\s]", "", last).lower()


class NameRules:
    """Decides by name; remembers what it decided.

    Args:
        custom: names from the configuration and from contract marks, as `flat` returns them.
    """

    __slots__ = ("_kinds", "custom")

    def __init__(self, custom: frozenset[str] = frozenset()) -> None:
        self.custom = custom - {""}
        self._kinds: dict[str, str] = {}

    def prefilter(self) -> str | None:
        """Return a pattern without which none of the custom names can occur, or None without names."""
        if not self.custom:
            return None
        spelled = (r"[-_ .]?".join(re.escape(char) for char in name) for name in sorted(self.custom))
        return "(?i)" + "|".join(spelled)

    def kind(self, name: str) -> str:
        """Return `""` (harmless), `"secret"`, `"count"` (only numbers are harmless) or `"custom"`."""
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._decided(name)
            if len(self._kinds) < _REMEMBERED_NAMES:
                self._kinds[name] = kind
        return kind

    def _decided(self, name: str) -> str:
        if self.custom and flat(name) in self.custom:
            return "custom"
        words = [word.lower() for word in _WORD.findall(name[:200])]
        joined = f"_{'_'.join(words)}_ {''.join(words)}_"
        found = _SECRET_NAME.search(joined)
        if found is None:
            return ""
        counts = found[0].startswith("token") and _COUNT_NAME.search(joined) is not None
        return "count" if counts else "secret"

    def secret(self, name: str) -> bool:
        """True if text under this name is secret."""
        return bool(self.kind(name))

    def hides(self, name: str, value: Any) -> bool:
        """True if this value, under this name, must not be written.

        Truth values, null and empty values tell nothing under a built-in name and stay readable.
        """
        kind = self.kind(name)
        if kind == "custom":
            return value is not None
        if not kind or value is None or isinstance(value, bool) or value in ("", [], {}):
            return False
        return kind == "secret" or not isinstance(value, (int, float))


_PLAIN_CLASS: Final = r"\[(?:[A-Z]-[A-Z]|[a-z]-[a-z]|[0-9]-[0-9]|[A-Za-z0-9_.+@#%:;<>=!/'~&*?|(){}$,]|\\[dw.\-+/])+-?\]"
_PLAIN: Final = re.compile(rf"(?:{_PLAIN_CLASS}|\\[bdw.\-+/()\[\]{{}}$^|?*]|[A-Za-z0-9_@#%:;<>=!/'~&,+*?|(){{}}-])+")


class Pattern:
    """One configured pattern, in the ECMA-262 dialect of JSON Schema.

    Args:
        source: the regular expression.

    Attributes:
        prefilter: a pattern that can be searched in the JSON text instead of each string in it, or
            None if this one could match across a JSON escape (anchors, dots, quotes, negations).

    Raises:
        PolicyError: it does not compile on the linear engine, or it matches the empty text.
    """

    __slots__ = ("found", "prefilter")

    def __init__(self, source: str) -> None:
        try:
            self.found = matcher(source)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise PolicyError(
                f"trace.redact_patterns: {source!r} cannot be used: {reason}. Patterns are ECMA-262 as in"
                " JSON Schema, without look-around and back-references."
            ) from None
        if self.found(""):
            raise PolicyError(f"trace.redact_patterns: {source!r} matches the empty text and would hide everything.")
        # Nothing in a plain pattern matches a quote, a backslash or white space. So its matches stand
        # in the JSON text as they stand in the string, and never reach beyond one word.
        self.prefilter = source.replace(r"\b", "") if _PLAIN.fullmatch(source) else None

    def hide(self, text: str) -> str:
        """Hide each word that holds a match; the whole text where a match may span several words.

        Hiding whole words needs no match positions, so it stays on the linear engine.
        """
        if self.prefilter is None:
            return HIDDEN
        words = re.split(r"(\s+)", text)
        return "".join(HIDDEN if self.found(word) else word for word in words)


class Seen:
    """Values that stood under a secret name in this run, and must not come back elsewhere.

    Values under 6 characters are not kept: hiding every `1234` would hide the trace itself.
    """

    __slots__ = ("_needles",)
    _SHORTEST = 6
    _MOST = 64

    def __init__(self) -> None:
        self._needles: dict[str, tuple[bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._needles)

    def add(self, value: Any) -> None:
        """Remember every text and number in a secret value, up to 64 of them."""
        if isinstance(value, dict):
            value = list(cast("dict[str, Any]", value).values())
        if isinstance(value, list):
            for item in cast("Sequence[Any]", value):
                self.add(item)
            return
        text = str(value)
        if len(text) < self._SHORTEST or len(self._needles) >= self._MOST or text == HIDDEN:
            return
        # The second form is how it stands in a JSON text that is itself a string of the event.
        once = msgspec.json.encode(text)[1:-1]
        self._needles[text] = (once, msgspec.json.encode(once.decode())[1:-1])

    def within(self, data: bytes) -> bool:
        """True if one of the remembered values stands in these JSON bytes."""
        return any(once in data or twice in data for once, twice in self._needles.values())

    def hide(self, text: str) -> str:
        """Return the text without the remembered values, longest first."""
        for secret in sorted(self._needles, key=len, reverse=True):
            text = text.replace(secret, HIDDEN).replace(self._needles[secret][0].decode(), HIDDEN)
        return text


_SPELLED: Final = re.compile(r"\\u00([2-7][0-9a-fA-F])")
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----[\s\S]*?"
    r"(?:-----END [A-Z0-9 ]{0,40}KEY[A-Z ]{0,10}-----|\Z)"
)
_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w-]{8,}|[rs]k_(?:live|test)_\w{4,}|gh[pousr]_\w{6,}|github_pat_\w{6,}"
    r"|glpat-[\w-]{6,}|xox[abprs]-[\w-]{6,}|A[KS]IA[0-9A-Z]{8,}|AIza[\w-]{16,}|ya29\.[\w-]{8,}|npm_\w{16,}"
    r"|hf_\w{16,}|pypi-[\w-]{16,}|eyJ[\w-]{8,}(?:\.[\w-]*){0,4})"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer\s{1,4})[\w.~+/=-]{6,}")
_USERINFO: Final = re.compile(r"(://[^\s/@:\"'\\]{0,80}:)([^\s/@\"'\\]{1,200})@")
_CARD: Final = re.compile(r"(?<![0-9A-Za-z.])[2-6](?:[ -]?[0-9]){13,18}(?![0-9A-Za-z])")
_NAMED: Final = re.compile(
    r"(?<![\w.-])((?:(?:api|private|access|signing|encryption|secret|card)\s)?[\w.-]+)"
    r"\\{0,6}[\"'`]?\s{0,4}(?::=|=>|[:=：])\s{0,4}",
    re.IGNORECASE,
)
# What may follow a secret name. An unquoted object or list is taken to the end: where it closes is unknown.
_VALUE: Final = re.compile(
    r"\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?|`[^`]*`?|\\{1,6}\"[^\"\\]*(?:\\{1,6}\")?|\[redacted\]"
    r"|[\[{][\s\S]*|(?i:bearer|basic|digest|token)\s+[^\s,;\"'`]+|[^\s,;&\"'`<>()\[\]{}\\]+"
)
_TO_LINE_END: Final = re.compile(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(\s{0,4}[:=]\s{0,4})([^\r\n\"']+)")
_QUOTES: Final = "\"'`\\"


def hide_in_text(text: str, rules: NameRules, seen: Seen | None) -> str:
    """Return a text without what the built-in rules know: assignments, keys, tokens, cards.

    Args:
        text: any text: prose, a log line, damaged JSON.
        rules: the names that make an assigned value secret.
        seen: where hidden values are remembered, if anywhere.
    """
    if "\\u00" in text:  # `pass\u0077ord` in an argument text spells a name that would not be found
        text = _SPELLED.sub(lambda m: chr(int(m[1], 16)), text)
    text = _PEM.sub(HIDDEN, text)
    text = _TO_LINE_END.sub(rf"\1\2{HIDDEN}", text)
    text = _unassigned(text, rules, seen)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
    text = _SHAPES.sub(HIDDEN, text)
    return _CARD.sub(lambda m: HIDDEN if is_card(m[0]) else m[0], text)


def _unassigned(text: str, rules: NameRules, seen: Seen | None) -> str:
    """Hide what stands after a secret name and a sign of assignment."""
    parts: list[str] = []
    done = 0
    for match in _NAMED.finditer(text):
        kind = rules.kind(match[1]) if match.start() >= done else ""
        value = _VALUE.match(text, match.end()) if kind else None
        if value is None:
            continue
        bare = value[0].strip(_QUOTES)
        number = kind == "count" and re.fullmatch(r"-?[0-9.]+", bare) is not None
        if not bare or number or bare in ("null", "true", "false", HIDDEN):
            continue
        if seen is not None:
            seen.add(bare)
        quote = value[0][: len(value[0]) - len(value[0].lstrip(_QUOTES))]
        parts += text[done : value.start()], quote, HIDDEN, quote
        done = value.end()
    return "".join(parts) + text[done:]


# Issuer prefixes with the lengths in use (ISO/IEC 7812; 13 digits are no longer issued).
_LONG_CARD: Final = re.compile(
    r"(?=4|5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)|35|6(?:011|4[4-9]|5|2))[0-9]{16}|62[0-9]{17}"
)
_SHORT_CARDS: Final = frozenset({(15, "34"), (15, "37"), (14, "30"), (14, "36"), (14, "38"), (14, "39")})
_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def is_card(text: str) -> bool:
    """True if these digits (spaces and dashes aside) are a payment card number with a valid check digit."""
    digits = text.replace(" ", "").replace("-", "")
    if not (digits.isascii() and digits.isdigit()):
        return False
    if (len(digits), digits[:2]) not in _SHORT_CARDS and not _LONG_CARD.fullmatch(digits):
        return False
    # Luhn: every second digit from the right counts twice, and 10 or more counts as its digit sum.
    return sum(map(int, digits[-1::-2])) % 10 == -sum(_DOUBLED[int(d)] for d in digits[-2::-2]) % 10
