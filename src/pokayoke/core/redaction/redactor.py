"""Secrets out of everything that is written down: JSON payloads, trace lines, exception texts.

What enters: canonical JSON bytes, a JSON value or a text. What leaves: the same with `[redacted]`
in place of every secret. What must never happen here: an exception, a hang, or a secret that
survives because redaction failed; then the payload becomes `[redaction failed]`.

Four things make a value secret: the name it stands under (`password`, `apiKey`, a configured field,
a name marked by the tool's contract), its own shape (`sk-...`, a JWT, a PEM key, a card number), a
configured pattern, and having been seen under a secret name before (`Seen`): that last one catches the
exception text that repeats the password it was called with.

Most payloads hold nothing of this kind, so the decision falls on the bytes, without a walk: a few
dozen literals are searched at once by the SIMD engine behind jsonschema-rs, and only a hit is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from pokayoke.core.json.canonical import digest
from pokayoke.core.redaction.card_numbers import is_card
from pokayoke.core.redaction.known_secrets import HIDDEN, Seen
from pokayoke.core.redaction.prefilter import LOOKS, Look, found_by, found_card_digits, searchable
from pokayoke.core.redaction.secret_rules import NameRules, Pattern, flat, hide_in_text, spelled_out
from pokayoke.core.text.regex import matcher

FAILED: Final = "[redaction failed]"
FAILED_JSON: Final = b'"[redaction failed]"'

# Decoding and encoding with msgspec keeps integers of any size exact; orjson would make them floats.
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

# Fields of a finding or a correction that repeat the value it is about.
_ABOUT: Final = frozenset({"before", "after", "data", "message", "hint", "got"})

# How a list of settings, headers or environment variables names what stands beside it under `value`.
_LABELS: Final = frozenset({"name", "key", "field", "header", "variable"})

_PAYLOADS: Final = frozenset({"arguments", "result", "raw"})
_ASKED: Final = ("arguments", "raw")
_REMEMBERED_MARKS: Final = 4_096
_REMEMBERED_NAMES: Final = 4_096


class _Names:
    """The rules for one set of names, the search without whose hit none applies, and what was found harmless."""

    __slots__ = ("harmless", "hit", "rules")

    def __init__(self, custom: frozenset[str]) -> None:
        self.rules = NameRules(custom)
        self.harmless: set[str] = set()
        source = self.rules.prefilter()
        self.hit = matcher(source) if source else None


class Redactor:
    """Takes secrets out of payloads, trace lines and texts. Immutable and safe to share.

    Args:
        fields: names whose values are never written, beside the built-in ones. Case, `-`, `_`, `.`
            and spaces make no difference; of a path only the last segment counts.
        patterns: regular expressions (ECMA-262 as in JSON Schema, without look-around and
            back-references, so that no text can make them hang). What they match is never written.
        own: the user's redactor: takes a payload as a JSON value, and returns what may be written instead,
            which is searched like any other. One that raises costs the payload, never the call.

    Raises:
        PolicyError: a pattern does not compile, or matches the empty text.
    """

    def __init__(
        self, fields: Iterable[str] = (), patterns: Iterable[str] = (), own: Callable[[Any], Any] | None = None
    ) -> None:
        self._own = own
        self._patterns = tuple(Pattern(text) for text in patterns)
        self._fields = frozenset(flat(name) for name in fields)
        self._rules: dict[tuple[str, ...], _Names] = {(): _Names(self._fields)}
        # A pattern that could match across a JSON escape cannot be judged on the bytes: then all are walked.
        self._walk_all = any(p.prefilter is None for p in self._patterns)
        sources = [p.prefilter for p in self._patterns if p.prefilter is not None]
        self._pattern_hit = matcher("|".join(f"(?:{s})" for s in sources)) if sources else None

    def _names(self, marks: tuple[str, ...]) -> _Names:
        names = self._rules.get(marks)
        if names is None:
            names = _Names(self._fields | {flat(name) for name in marks})
            if len(self._rules) < _REMEMBERED_MARKS:
                self._rules[marks] = names
        return names

    def clean(self, data: bytes, *, marks: tuple[str, ...] = ()) -> bool:
        """True if nothing in these canonical JSON bytes can be secret (no walk is needed).

        Args:
            data: JSON as orjson or msgspec writes it: UTF-8, no needless escapes.
            marks: names that the tool's contract marks as secret.
        """
        return self._walk_of(data, marks, Seen()) is None

    def _walk_of(self, data: bytes, marks: tuple[str, ...], seen: Seen) -> _Walk | None:
        """The walk that canonical JSON bytes need, or None if they need none."""
        if self._own is not None:  # nobody knows what it returns
            return self._whole_walk(marks, seen)
        looks, names = found_by(*searchable(data)), self._names(marks)
        custom = names.hit is not None and names.hit(str(data, "utf-8").lower())
        matched = self._pattern_hit is not None and self._pattern_hit(str(data, "utf-8"))
        if looks or custom or matched or self._walk_all:
            return _Walk(names, self._patterns, looks, seen, custom=custom)
        return None

    def _whole_walk(self, marks: tuple[str, ...], seen: Seen) -> _Walk:
        """The walk for what was not looked at as bytes."""
        names = self._names(marks)
        return _Walk(names, self._patterns, LOOKS, seen, custom=bool(names.rules.custom))

    def payload(self, data: bytes, *, marks: tuple[str, ...] = (), seen: Seen | None = None) -> bytes:
        """Return the JSON bytes without secrets: the same object if there are none.

        Args:
            data: canonical JSON bytes of one value.
            marks: names that the tool's contract marks as secret.
            seen: secrets met before, those of this payload are added; None for those of this payload only.
        """
        seen = Seen() if seen is None else seen
        try:
            walk = self._walk_of(data, marks, seen)
            return _forget(data if walk is None else _encode(walk.value(self._owned(_decode(data)))), seen)
        except Exception:  # noqa: BLE001 - whatever went wrong: the payload is dropped, the call goes on
            return FAILED_JSON

    def event(self, line: bytes, *, marks: tuple[str, ...] = (), seen: Seen | None = None) -> bytes | None:
        """Return a trace line without secrets, or None if it could not be made safe.

        The names at the top of an event are ours, so they are never taken for a tool's field. `args_hash` is that
        of what the line shows where that is less than there was: by the other one, a hidden PIN could be tried out.

        Args:
            line: the event as canonical JSON, without a newline.
            marks: names that the tool's contract marks as secret.
            seen: secrets of this run; those found under a secret name are added.
        """
        seen = Seen() if seen is None else seen
        try:
            walk = self._walk_of(line, marks, seen)
            if walk is None:
                return _unlinked(line, _forget(line, seen))
            event = _decode(line)
            if slips := self._slips(event, marks):
                walk = self._walk_of(line, (*marks, *slips), seen) or walk
            return _unlinked(line, _forget(_encode(walk.members(self._payloads_owned(event))), seen))
        except Exception:  # noqa: BLE001 - as in payload()
            return None

    def value(self, value: Any, *, marks: tuple[str, ...] = (), seen: Seen | None = None) -> Any:
        """Return a JSON value without secrets; `[redaction failed]` if that was impossible."""
        seen = Seen() if seen is None else seen
        try:
            cleaned = self._whole_walk(marks, seen).value(self._owned(value))
            return _decode(_forget(_encode(cleaned), seen))
        except Exception:  # noqa: BLE001 - as in payload()
            return FAILED

    def text(self, text: str, *, marks: tuple[str, ...] = (), seen: Seen | None = None) -> str:
        """Return a free text (an exception, a raw argument text) without secrets."""
        seen = Seen() if seen is None else seen
        try:
            return seen.hide(self._whole_walk(marks, seen).text(text))
        except Exception:  # noqa: BLE001 - as in payload()
            return FAILED

    def _slips(self, event: dict[str, Any], marks: tuple[str, ...]) -> list[str]:
        """Names in an event that the schema does not know, and that were meant for that of a secret."""
        found = [(one.get("before"), one.get("after")) for one in _renamed(event.get("corrections", ()))]
        for one in event.get("findings", ()):
            found += [(one["at"].rpartition("/")[2], data["suggestion"]) for data in _renamed([one.get("data", {})])]
        rules = self._names(marks).rules
        return [written for written, meant in found if written and meant and rules.secret(meant)]

    def _owned(self, payload: Any) -> Any:
        """What the user's redactor makes of a payload."""
        if self._own is None:
            return payload
        try:
            return self._own(payload)
        except (Exception, SystemExit):  # noqa: BLE001 - it may do anything
            return FAILED

    def _payloads_owned(self, event: dict[str, Any]) -> dict[str, Any]:
        return {key: self._owned(item) if key in _PAYLOADS else item for key, item in event.items()}


class _Walk:
    """A walk through one value, text by text.

    Args:
        names: those that make a value secret.
        patterns: the configured ones.
        looks: those that may find something.
        seen: where hidden values are remembered.
        custom: True if a configured name may stand in a text.
    """

    __slots__ = ("_cards", "_custom", "_looks", "_names", "_patterns", "_seen")

    def __init__(
        self, names: _Names, patterns: tuple[Pattern, ...], looks: tuple[Look, ...], seen: Seen, *, custom: bool
    ) -> None:
        self._names, self._patterns, self._looks, self._seen = names, patterns, looks, seen
        self._custom, self._cards = custom, found_card_digits in looks

    def members(self, event: dict[str, Any]) -> dict[str, Any]:
        """An object whose own names are harmless."""
        return {key: self.value(item) for key, item in event.items()}

    def value(self, value: Any) -> Any:
        """Any JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._object(cast("dict[str, Any]", value))
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            return self._pairs(items) if items and all(map(_is_pair, items)) else [self.value(item) for item in items]
        if isinstance(value, bool) or value is None or not (self._cards or self._patterns):
            return value
        digits = str(value)
        # A column that misses a value makes floats of its numbers.
        secret = (self._cards and is_card(digits.removesuffix(".0"))) or any(p.found(digits) for p in self._patterns)
        return HIDDEN if secret else value

    def text(self, text: str) -> str:
        """A text that is a value."""
        return self._text(text, self._seen)

    def _text(self, text: str, seen: Seen) -> str:
        plain = hidden = spelled_out(text)
        if plain is not text or self._custom or self._is_suspect(text):
            hidden = hide_in_text(plain, self._names.rules, seen)
        for pattern in self._patterns:
            if pattern.found(hidden):
                hidden = pattern.hide(hidden)
        return text if hidden == plain else hidden

    def _is_suspect(self, text: str) -> bool:
        lowered = text.lower()
        for look in self._looks:  # noqa: SIM110 - a generator takes as long as the looks
            if look(text, lowered):
                return True
        return False

    def _name(self, key: str, known: Container[str]) -> str:
        """A name as it may be written; two secret ones do not become one."""
        harmless = self._names.harmless
        if key in harmless:
            return key
        name = self._text(key, Seen())
        if name == key and len(harmless) < _REMEMBERED_NAMES:
            harmless.add(key)
        while name != key and name in known:
            name += "+"
        return name

    def _pairs(self, pairs: Sequence[Any]) -> list[Any]:
        """Names and values as a list of headers holds them."""
        return [[*self._object({name: item}).popitem()] for name, item in pairs]

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        about, rules = value.get("at"), self._names.rules
        secret_place = isinstance(about, str) and any(rules.secret(part) for part in about.split("/"))
        labels = [
            item for key, item in value.items() if key.lower() in _LABELS and isinstance(item, str) and " " not in item
        ]
        result: dict[str, Any] = {}
        for key, item in value.items():
            name = self._name(key, result)
            labelled = key.lower() == "value" and any(rules.hides(label, item) for label in labels)
            if labelled or rules.hides(key, item):
                self._seen.add(item)
                result[name] = HIDDEN
            elif secret_place and key in _ABOUT and item:
                result[name] = HIDDEN  # our words around it are no secrets; it is met in the payload, too
            else:
                result[name] = self.value(item)
        return result


def _renamed(told: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What tells of a field that came under another name."""
    return [one for one in told if one.get("rule") == "field_name"]


def _is_pair(item: Any) -> bool:
    """True for a name with one value, as in a list of headers."""
    if not isinstance(item, (list, tuple)):
        return False
    pair = cast("Sequence[Any]", item)
    return len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str)  # noqa: PLR2004 - a pair


def _forget(data: bytes, seen: Seen) -> bytes:
    """Take out what was seen under a secret name earlier, wherever it stands now."""
    if not seen.within(data):
        return data
    return _encode(_hide_seen(_decode(data), seen))


def _unlinked(line: bytes, redacted: bytes) -> bytes:
    """An event without the hash of arguments that are hidden in it."""
    if line == redacted:
        return line
    before, after = _decode(line), _decode(redacted)
    asked = next((name for name in _ASKED if before.get(name) != after.get(name)), None)
    if asked is None or "args_hash" not in after:
        return redacted
    return _encode({**after, "args_hash": digest(_encode(after[asked]))})


def _hide_seen(value: Any, seen: Seen) -> Any:
    if isinstance(value, str):
        return seen.hide(value)
    if isinstance(value, dict):
        return {seen.hide(key): _hide_seen(item, seen) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_hide_seen(item, seen) for item in cast("Sequence[Any]", value)]
    return value
