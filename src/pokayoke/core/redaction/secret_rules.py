"""Rules that define a secret: names, shapes, card numbers and patterns.

In: names of fields, free texts.
Out: True or False, or the text with `[redacted]` in it.
Never: use a regular expression whose time is not linear in the text: user patterns run on the linear engine behind
jsonschema-rs, ours are bounded.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any, Final

import msgspec

from pokayoke.core.redaction.account_numbers import hide_accounts
from pokayoke.core.redaction.card_numbers import hide_cards
from pokayoke.core.redaction.known_secrets import HIDDEN_PATTERN, KnownSecrets, is_hidden
from pokayoke.core.redaction.prefilter import AFTER_GAP, NAMES, SHORT_NAMES, SPELLED_GAP
from pokayoke.core.text.regex import compile_pattern, linear_search
from pokayoke.errors import PolicyError

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
# Searched in "_its_words_ -as-written-", so that `apiKey`, `api-key` and `apikey` are one name.
_SECRET_NAME: Final = re.compile(
    NAMES.replace("pass~code", "(?<![a-z])pass~code")
    .replace("secret", "secret(?!ar|io)")
    .replace("token", "tokens?[_-]")
    .replace("contrase", "contrase(?:[ñÑ]|n-?)a")
    .replace("card~n(?:o|", "(?<![a-z])card~n(?:o[_-]|")
    .replace("~", "[_-]?")
    + f"|_pwd|_(?:{'|'.join(SHORT_NAMES)})_"
    # `smtpPass`, but neither `pass_rate` nor `boardingPass`; alone it may be a verdict, so more evidence is needed.
    + "|_(?:db|database|user|admin|root|login|e?mail|smtp|imap|s?ftp|ssh|mysql|pg|redis|mongo|proxy)_pass_ |^_pass_ "
)
_TO_LOWERCASE: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# Numbers under such a token name count language-model tokens; strings there are still secret.
_COUNT_NAME: Final = re.compile(
    r"tokens[_-]|_(?:max|min|total|count|limit|num|number|input|output|prompt|completion|used|usage|left"
    r"|remaining|budget|per|cached|reasoning|estimated)_.*token|token_(?:count|limit|budget|usage)_"
)
_REMEMBERED_NAMES: Final = 4_096


def fold_field_name(name: str) -> str:
    """Return a configured field name without case, `-`, `_`, `.`, spaces and its path."""
    last = re.split(r"[./]", name.strip("./ "))[-1]
    return re.sub(r"[-_\s]", "", last).lower()


# The characters that `fold_field_name` removes, as written in JSON text.
_CUSTOM_GAP: Final = rf"(?:[-_\s\x85]|{SPELLED_GAP})*"


def _in_json(char: str) -> str:
    return re.escape(msgspec.json.encode(char)[1:-1].decode())


class NameRules:
    """Decides by name whether a value is secret; caches its decisions.

    Args:
        custom: names from the configuration and from contract marks, as `fold_field_name` returns them.
    """

    __slots__ = ("_kinds", "custom")

    def __init__(self, custom: frozenset[str] = frozenset()) -> None:
        self.custom = custom - {""}
        self._kinds: dict[str, str] = {}

    def custom_prefilter(self) -> str | None:
        """Return a pattern that matches wherever a custom name may occur, or None without names."""
        if not self.custom:
            return None
        spelled = (_CUSTOM_GAP.join(_in_json(char) for char in name) for name in sorted(self.custom))
        return "(?i)" + "|".join(spelled)

    def kind_of(self, name: str) -> str:
        """Return the kind of a name.

        It is `""` (harmless), `"secret"`, `"count"` (only numbers are harmless), `"custom"`, or `"verdict"`: numbers
        are harmless, and text is secret only if the name is a member's or an equals sign follows.
        """
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._decide_kind(name)
            if len(self._kinds) < _REMEMBERED_NAMES:
                self._kinds[name] = kind
        return kind

    def _decide_kind(self, name: str) -> str:
        if self.custom and fold_field_name(name) in self.custom:
            return "custom"
        words = [word.lower() for word in _WORD.findall(name[:200])]
        written = re.sub(r"[\W_]+", "-", name[:200].translate(_TO_LOWERCASE))
        joined = f"_{'_'.join(words)}_ -{written}-"
        found = _SECRET_NAME.search(joined)
        if found is None:
            return ""
        if found[0] == "_pass_ ":
            return "verdict"
        counts = found[0].startswith("token") and _COUNT_NAME.search(joined) is not None
        return "count" if counts else "secret"

    def is_secret(self, name: str) -> bool:
        """Return whether a text under this name is secret."""
        return bool(self.kind_of(name))

    def needs_hiding(self, name: str, value: Any) -> bool:
        """Return whether this value must not be written under this name.

        Booleans, null and empty values reveal nothing under a built-in name and stay readable.
        """
        kind = self.kind_of(name)
        if kind == "custom":
            return value is not None
        if not kind or value is None or isinstance(value, bool) or value in ("", [], {}):
            return False
        return kind == "secret" or not isinstance(value, (int, float))


_PLAIN_CLASS: Final = r"\[(?:[A-Z]-[A-Z]|[a-z]-[a-z]|[0-9]-[0-9]|[A-Za-z0-9_.+@#%:;<>=!/'~&*?|(){}$,]|\\[dw.\-+/])+-?\]"
_PLAIN: Final = re.compile(rf"(?:{_PLAIN_CLASS}|\\[bdw.\-+/()\[\]{{}}$^|?*]|[A-Za-z0-9_@#%:;<>=!/'~&,+*?|(){{}}-])+")


class SecretPattern:
    """One configured pattern, in the ECMA-262 dialect of JSON Schema.

    Args:
        source: the regular expression.

    Attributes:
        prefilter: a pattern that can be searched in the JSON text instead of each string in it, or
            None if this one could match across a JSON escape (anchors, dots, quotes, negations).

    Raises:
        PolicyError: the pattern does not compile on the linear engine, or matches the empty text.
    """

    __slots__ = ("found", "prefilter")

    def __init__(self, source: str) -> None:
        try:
            self.found = linear_search(source)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise PolicyError(
                f"trace.redact_patterns: {source!r} cannot be used: {reason}. Patterns are ECMA-262 as in"
                " JSON Schema, without look-around and back-references."
            ) from None
        if self.found(""):
            raise PolicyError(f"trace.redact_patterns: {source!r} matches the empty text and would hide everything.")
        # No part of a plain pattern matches a quote, a backslash or white space. So its matches are the same
        # in the JSON text as in the string, and lie within one word.
        self.prefilter = source.replace(r"\b", "") if _PLAIN.fullmatch(source) else None

    def hide_matches(self, text: str, mask: Callable[[str], str]) -> str:
        """Hide each word that holds a match; the whole text where a match may span several words.

        Hiding whole words needs no match positions, so it stays on the linear engine.

        Args:
            text: the text.
            mask: returns what is written in place of a secret.
        """
        if self.prefilter is None:
            return mask(text)
        words = re.split(r"(\s+)", text)
        return "".join(mask(word) if self.found(word) else word for word in words)


# An escaped character in JSON, a surrogate pair as one; none that ends a string or a line once it is decoded.
_JSON_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u(?!00[01]|0022|005[cC]|[dD][89a-fA-F])[0-9a-fA-F]{4}"
)
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----[\s\S]*?"
    r"(?:-----END [A-Z0-9 ]{0,40}KEY[A-Z ]{0,10}-----|\Z)"
)
_SHAPES: Final = re.compile(
    rf"(?:(?<![A-Za-z0-9])|{AFTER_GAP})"
    r"(?:sk-[\w-]{8,}|[rs]k_(?:live|test)_\w{4,}|gh[pousr]_\w{6,}|github_pat_\w{6,}"
    r"|gl(?:pa|r|d|pt)t-[\w-]{6,}|xox(?:[a-dprs]-|e[-.])[\w%-]{6,}|SG\.[\w-]{16,}\.[\w-]{16,}|(?<!-)key-[0-9a-f]{32}\b"
    r"|A[KS]IA[0-9A-Z]{8,}|AIza[\w-]{16,}|ya29\.[\w-]{8,}|npm_\w{16,}"
    r"|(?:gsk|whsec|ntn|lin_api|dop_v1|shpat|shpss|glsa|rubygems|lsv2|dckr|sb_secret)_\w{16,}|figd_[\w-]{16,}"
    r"|pscale_(?:tkn|pw|oauth)_[\w.-]{16,}|AGE-SECRET-KEY-1[0-9A-Z]{16,}|dp\.pt\.\w{16,}|sq0csp-[\w-]{16,}"
    r"|[A-Za-z0-9]{8,20}\.atlasv1\.[\w-]{16,}|hvs\.[\w-]{16,}|dapi[0-9a-f]{32}"
    r"|(?:xai|pplx|nvapi|GOCSPX|tvly|xapp|bedrock-api-key)-[\w-]{16,}|(?:ABSK|ATATT)[\w+/=-]{16,}"
    r"|(?:(?<=[?&]sig=)|(?<=AccountKey=)|(?<=[?&;-]Signature=))[\w%+/=~-]{16,}"
    r"|(?:(?<=hooks\.slack\.com/services/)|(?<=/api/webhooks/))[\w/-]{24,}"
    r"|(?:sbp|nfp)_\w{16,}|(?:PMAK|NRAK)-[\w-]{16,}|hf_\w{16,}|pypi-[\w-]{16,}|eyJ[\w-]{8,}(?:\.[\w-]*){0,4})"
    r"|(?<!\d)\d{8,10}:AA[\w-]{30,}",  # a Telegram bot; its URLs have `bot` before it
    re.ASCII,
)
_BEARER: Final = re.compile(rf"(?i)(?:\b|{AFTER_GAP})" r"(bearer\s{1,4})[\w.~+/=-]{6,}")
# An unescaped password may hold an @: then the last one before a path or a query counts.
_USERINFO: Final = re.compile(r"(://[^\s/@:\"'\\]{0,80}:)([^\s/@\"'\\]{1,200}(?:@[^\s/@?#\"'\\]{1,200})*)@")
# `curl -u name:password`, in quotes or not; other commands mean something else by that option.
_CURL_LOGIN: Final = re.compile(
    r"(?i)(\bcurl\b(?:(?!\bcurl\b)[^\r\n]){0,400}?\s(?:-[a-z#]{0,8}u|--(?:proxy-)?user)[\s=]{0,4})"
    r"(\\{0,3}\"[^:\"\r\n]{1,80}:)?(?(2)[^\"\r\n\\]+|('[^:'\r\n]{1,80}:)?(?(3)[^'\r\n]+|([^\s:\"'\\]{1,80}:)[^\s\"'\\]+))"
)
_ASSIGNMENT: Final = re.compile(
    r"(?<![\w.-])((?:(?:api|private|access|signing|encryption|secret|card)[^\S\r\n])?[\w.-]+)"
    r"\\{0,6}[\"'`]?\]?(?:\*\*)?[ \t]{0,40}+\s{0,4}(?:={2,3}|:=|[=-]>|[:=：])(?:\*\*(?=\s))?[ \t]{0,40}+\s{0,4}"
    r"(?:[BRUFbruf]{1,2}(?=[\"']))?"  # of a literal of Python
    rf"|(?:(?<![\w.-])|{AFTER_GAP})"
    r"--(?!no-)([a-z][\w-]*)[ \t]{1,4}(?![\s-])",  # --password value
    re.IGNORECASE,
)
_MEMBER_SIGNS: Final = frozenset("=\"'")
_SIGN: Final = re.compile(r"[=:：]|->|--")
"""A sign that every match of `_ASSIGNMENT` holds."""
# The value after a secret name. An unquoted object or list extends to the end, as its end is unknown.
_VALUE: Final = re.compile(
    r"[|>][-+0-9]{0,2}[ \t]*+\r?\n([ \t]++)[^\n]*+(?:\n\1[^\n]*+|\n(?=[ \t]*+\r?\n))*"  # a block of YAML
    r"|(\"{3}|'{3})[\s\S]*?(?:\2|\Z)|\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?|`[^`]*`?|\\{1,6}\"[^\"\\]*(?:\\{1,6}\")?"
    rf"|{HIDDEN_PATTERN}"
    r"|[\[{][\s\S]*|(?i:bearer|basic|digest|token)\s+[^\s,;\"'`]+|[^\s,;&\"'`<>()\[\]{}\\]+"
)
_TO_LINE_END: Final = re.compile(
    rf"(?i)(?:\b|{AFTER_GAP})" r"((?:proxy-)?authorization|(?:set-)?cookie)(\s{0,4}[:=]\s{0,4})([^\r\n\"']+)"
)
_ELEMENT: Final = re.compile(r"(<([\w.:-]{1,80})(?:\s[^<>]{0,200})?>\s{0,4}(?:<!\[CDATA\[)?)([^<]+)(?=</)")
# An argument in tags, as models write it: from its name to the start of its value.
_ARGUMENT: Final = re.compile(
    r"(?i)<(?:[\w.-]{1,40}[:｜])?(?:parameter|param|argument)(?:\s{0,4}=|\s{1,4}name\s{0,4}=)\s{0,4}[\\\"']*+([^<>\"'\\]{1,100}+)"
    r"[^<>]{0,200}>|<arg_key>([^<>]{1,100}+)</arg_key>\s{0,40}<arg_value>"
)
_ARGUMENT_END: Final = r"(?i)</(?:[\w.-]{1,40}[:｜])?(?:parameter|param|argument|arg_value)\s*>"
# A name and its value in a list or tuple of headers.
_PAIR: Final = re.compile(
    r"((?:\(|(?<=[\[,])\s{0,4}\[)\s{0,4}b?([\"'])([\w.-]{1,80}+)\2\s{0,4},\s{0,4}b?)"
    r"(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')(?=\s{0,4}[)\]])"
)
# A setting or a form field in XML: its name in one attribute, its value in another.
_XML_SETTING: Final = re.compile(
    r"(\s(?:name|key)\s{0,4}=\s{0,4}\\?([\"'])([\w.:-]{1,80}+)\\?\2[^<>]{0,200}?\svalue\s{0,4}=\s{0,4}\\?)(\"[^\"\\]*|'[^'\\]*)"
)
_QUOTES: Final = "\"'`\\"


def unescape_json(text: str) -> str:
    r"""Return a text with JSON escapes decoded: `pass\u0077ord` is a name, too."""
    return _JSON_ESCAPE.sub(lambda hit: msgspec.json.decode(f'"{hit[0]}"'), text) if "\\u" in text else text


def hide_in_text(text: str, rules: NameRules, seen: KnownSecrets) -> str:
    """Return a text without the secrets that the built-in rules find: assignments, keys, tokens, cards, accounts.

    Args:
        text: any text: prose, a log line, damaged JSON; as `unescape_json` returns it.
        rules: the names that make an assigned value secret.
        seen: receives the hidden values.
    """
    mask = seen.mask
    text = _PEM.sub(lambda m: mask(m[0]), text)
    text = _TO_LINE_END.sub(lambda m: f"{m[1]}{m[2]}{mask(m[3])}", text)
    text = _hide_arguments(text, rules, seen)
    text = _PAIR.sub(
        lambda m: (
            f"{m[1]}{m[4][0]}{mask(m[4][1:-1])}{m[4][0]}" if _needs_hiding(rules.kind_of(m[3]), m[4][1:-1]) else m[0]
        ),
        text,
    )
    text = _XML_SETTING.sub(
        lambda m: f"{m[1]}{m[4][0]}{mask(m[4][1:])}" if _needs_hiding(rules.kind_of(m[3]), m[4][1:]) else m[0], text
    )
    text = _CURL_LOGIN.sub(
        lambda m: f"{m[1]}{m[2] or m[3] or m[4]}{mask(m[0][len(m[1] + (m[2] or m[3] or m[4])) :])}", text
    )
    text = _hide_assignments(text, rules, seen)
    text = _ELEMENT.sub(
        lambda m: m[1] + mask(m[3].strip()) if _needs_hiding(rules.kind_of(m[2]), m[3].strip()) else m[0], text
    )
    text = _BEARER.sub(lambda m: m[1] + mask(m[0][len(m[1]) :]), text)
    text = _USERINFO.sub(lambda m: f"{m[1]}{mask(m[2])}@", text)
    return hide_cards(hide_accounts(_SHAPES.sub(lambda m: _hide_shape(m[0], seen), text), mask), mask)


def _hide_shape(text: str, seen: KnownSecrets) -> str:
    """Remember a secret that its shape reveals: encoded, it has no shape."""
    seen.add(text)
    return seen.mask(text)


def _needs_hiding(kind: str, text: str) -> bool:
    """Return whether a text under a name of this kind must not be written."""
    number = kind in ("count", "verdict") and re.fullmatch(r"-?[0-9.]+", text) is not None
    return bool(kind and text) and not number and text not in ("null", "true", "false") and not is_hidden(text)


def _hide_arguments(text: str, rules: NameRules, seen: KnownSecrets) -> str:
    """Hide the value of an argument in tags, up to its end tag or to the end of a cut text."""
    parts: list[str] = []
    done = 0
    for match in _ARGUMENT.finditer(text):
        kind = "" if match.start() < done else rules.kind_of((match[1] or match[2]).strip())
        if not kind:
            continue
        end = compile_pattern(_ARGUMENT_END).search(text, match.end())
        until = len(text) if end is None else end.start()
        value = text[match.end() : until].strip()
        if _needs_hiding(kind, value):
            seen.add(value)
            parts += text[done : match.end()], seen.mask(value)
            done = until
    return "".join(parts) + text[done:]


def _kind_before(rules: NameRules, text: str, name: str, start: int) -> str:
    """Return the kind of a configured name of several words whose last word is this one."""
    before = (
        compile_pattern(_WORDS_BEFORE).search(text[max(start - _MAX_LOOKBEHIND, 0) : start]) if rules.custom else None
    )
    words = before[0].split() if before else []
    several = ("".join(words[first:]) + name for first in range(len(words)))
    return "custom" if any(fold_field_name(words) in rules.custom for words in several) else ""


_WORDS_BEFORE: Final = r"(?:[\w.-]{1,40}+\s{1,4}){1,4}\Z"
_MAX_LOOKBEHIND: Final = 160


def _find_value(text: str, named: re.Match[str]) -> tuple[int, int]:
    """Return the span of a name's value: the text after its sign, or in YAML all lines below that belong to it."""
    at = named.end()
    gap = compile_pattern(_TO_LINES_BELOW).match(text, named.start() + len(named[0].rstrip()))
    lead = text[text.rfind("\n", 0, named.start()) + 1 : named.start()] if gap else ""
    if gap and not lead.strip("- \t\"'"):
        depth = len(gap[1]) + text.startswith("- ", gap.end())
        if depth > len(lead) - len(lead.lstrip(" \t")):
            at = gap.end()
            block = None if text.startswith(_OPENERS, at) else compile_pattern(_LINES).match(text, gap.start(1))
            if block:
                return at, block.end()
    value = _VALUE.match(text, at)
    return value.span() if value else (at, at)


_TO_LINES_BELOW: Final = r"[ \t]*+(?:\r?\n([ \t]*+))+"
# All following lines with the same indentation; after an item of a list, items or deeper lines.
_LINES: Final = r"([ \t]*+)(?=(- )?)[^\n]*+(?:\n\1(?(2)[ \t-])[^\n]*+|\n[ \t]*+(?=\r?\n))*"
_OPENERS: Final = ("[", "{", '"', "'", "`")


def _hide_assignments(text: str, rules: NameRules, seen: KnownSecrets) -> str:
    """Hide the value after a secret name and an assignment sign."""
    if _SIGN.search(text) is None:
        return text
    parts: list[str] = []
    done = 0
    for match in _ASSIGNMENT.finditer(text):
        if match.start() < done:  # inside a value that is hidden as a whole
            continue
        name = match[1] or match[2]
        kind = rules.kind_of(name)
        if not kind and text.startswith("\\", max(match.start() - 1, 0)):  # its first letter may belong to an escape
            kind = rules.kind_of(name[1:])
        if kind == "verdict" and not _MEMBER_SIGNS.intersection(match[0]):
            continue
        kind = kind or _kind_before(rules, text, name, match.start())
        start, end = _find_value(text, match) if kind else (0, 0)
        value = text[start:end]
        bare = value.strip(_QUOTES)
        # A value that is a secret name itself has its own value behind it, as where the first one is empty.
        if not _needs_hiding(kind, bare) or (value.find(":") == len(value) - 1 and rules.kind_of(bare[:-1])):
            continue
        seen.add(bare)
        quote = value[: len(value) - len(value.lstrip(_QUOTES))]
        parts += text[done:start], quote, seen.mask(bare), quote
        done = end
    return "".join(parts) + text[done:]
