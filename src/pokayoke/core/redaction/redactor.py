"""Removes secrets from JSON payloads, trace lines and texts.

In: canonical JSON bytes, a JSON value or a text.
Out: the same with `[redacted]` in place of every secret.
Never: raise; hang; leave a secret because redaction failed: then the payload becomes `[redaction failed]`.

A value is secret because of its name (`password`, `apiKey`, a configured field, a name marked by the tool's
contract), its shape (`sk-...`, a JWT, a PEM key, a card number), a configured pattern, or because it occurred under
a secret name before (`KnownSecrets`): the last rule catches an exception text that repeats the password of its call.

Most payloads hold no secret, so the bytes are searched first, without a walk: the SIMD engine behind jsonschema-rs
searches a few dozen literals at once, and only a hit is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.redaction.card_numbers import is_card
from pokayoke.core.redaction.known_secrets import KnownSecrets
from pokayoke.core.redaction.prefilter import (
    PREFILTERS,
    Prefilter,
    has_account_number,
    matching_prefilters,
    search_text,
)
from pokayoke.core.redaction.secret_rules import NameRules, SecretPattern, fold_field_name, hide_in_text, unescape_json
from pokayoke.core.text.regex import linear_search

REDACTION_FAILED: Final = "[redaction failed]"
REDACTION_FAILED_JSON: Final = b'"[redaction failed]"'

# Decoding and encoding with msgspec keeps integers of any size exact; orjson would make them floats.
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

# Fields of a finding or a correction that repeat the value.
_VALUE_FIELDS: Final = frozenset({"before", "after", "data", "message", "hint", "got"})

# Fields that name the value in a list of settings, headers or environment variables.
_LABELS: Final = frozenset({"name", "key", "field", "header", "variable"})

_PAYLOADS: Final = frozenset({"arguments", "result", "raw"})
_ARGUMENT_FIELDS: Final = ("arguments", "raw")
_REMEMBERED_MARKS: Final = 4_096
_REMEMBERED_NAMES: Final = 4_096


class _NameSet:
    """The rules for one set of names, their prefilter, and a cache of harmless names."""

    __slots__ = ("harmless", "hit", "rules")

    def __init__(self, custom: frozenset[str]) -> None:
        self.rules = NameRules(custom)
        self.harmless: set[str] = set()
        source = self.rules.custom_prefilter()
        self.hit = linear_search(source) if source else None


class Redactor:
    """Removes secrets from payloads, trace lines and texts. Immutable and safe to share.

    Args:
        fields: names whose values are never written, in addition to the built-in ones. Case, `-`, `_`, `.`
            and spaces are ignored; of a path only the last segment counts.
        patterns: regular expressions (ECMA-262 as in JSON Schema, without look-around and
            back-references, so that no text makes them hang). Their matches are never written.
        own: the user's redactor: takes a payload as a JSON value and returns the value to write, which is then
            searched like any other. If it raises, the payload is lost, never the call.
        key: at least 32 random bytes: each replacement then ends in a tag that is equal for equal values
            (`[redacted#0123456789abcdef]`). None for no tags.

    Raises:
        PolicyError: a pattern does not compile, or matches the empty text.
    """

    def __init__(
        self,
        fields: Iterable[str] = (),
        patterns: Iterable[str] = (),
        own: Callable[[Any], Any] | None = None,
        *,
        key: bytes | None = None,
    ) -> None:
        self._own, self.key = own, key
        self._patterns = tuple(SecretPattern(text) for text in patterns)
        self._fields = frozenset(fold_field_name(name) for name in fields)
        self._rules: dict[tuple[str, ...], _NameSet] = {(): _NameSet(self._fields)}
        # A pattern that may match across a JSON escape cannot be searched in the bytes: then every payload is walked.
        self._walk_all = any(p.prefilter is None for p in self._patterns)
        sources = [p.prefilter for p in self._patterns if p.prefilter is not None]
        self._pattern_hit = linear_search("|".join(f"(?:{s})" for s in sources)) if sources else None

    def _name_set(self, marks: tuple[str, ...]) -> _NameSet:
        names = self._rules.get(marks)
        if names is None:
            names = _NameSet(self._fields | {fold_field_name(name) for name in marks})
            if len(self._rules) < _REMEMBERED_MARKS:
                self._rules[marks] = names
        return names

    def _with_key(self, seen: KnownSecrets | None) -> KnownSecrets:
        """Return the secrets of the run, which are tagged with the present key."""
        seen = KnownSecrets() if seen is None else seen
        seen.key = self.key
        return seen

    def is_clean(self, data: bytes, *, marks: tuple[str, ...] = ()) -> bool:
        """Return whether these canonical JSON bytes hold no possible secret, so that no walk is needed.

        Args:
            data: JSON as orjson or msgspec writes it: UTF-8, no needless escapes.
            marks: names that the tool's contract marks as secret.
        """
        return self._walk_of(data, marks, KnownSecrets()) is None

    def _walk_of(self, data: bytes, marks: tuple[str, ...], seen: KnownSecrets) -> _RedactionWalk | None:
        """Return the walk that canonical JSON bytes need, or None."""
        if self._own is not None:  # its result may be anything
            return self._whole_walk(marks, seen)
        looks, names = matching_prefilters(*search_text(data)), self._name_set(marks)
        custom = names.hit is not None and names.hit(str(data, "utf-8").lower())
        matched = self._pattern_hit is not None and self._pattern_hit(str(data, "utf-8"))
        if looks or custom or matched or self._walk_all:
            return _RedactionWalk(names, self._patterns, looks, seen, custom=custom)
        return None

    def _whole_walk(self, marks: tuple[str, ...], seen: KnownSecrets) -> _RedactionWalk:
        """Return the walk for a value that was not searched as bytes."""
        names = self._name_set(marks)
        return _RedactionWalk(names, self._patterns, PREFILTERS, seen, custom=bool(names.rules.custom))

    def redact_payload(self, data: bytes, *, marks: tuple[str, ...] = (), seen: KnownSecrets | None = None) -> bytes:
        """Return the JSON bytes without secrets: the same object if there are none.

        Args:
            data: canonical JSON bytes of one value.
            marks: names that the tool's contract marks as secret.
            seen: secrets of the run, to which those of this payload are added; None for those of this payload only.
        """
        seen = self._with_key(seen)
        try:
            walk = self._walk_of(data, marks, seen)
            return _hide_known(
                data if walk is None else _encode(walk.walk_value(self._apply_own_redactor(_decode(data)))), seen
            )
        except Exception:  # noqa: BLE001 - whatever went wrong: the payload is dropped, the call goes on
            return REDACTION_FAILED_JSON

    def redact_event(
        self, line: bytes, *, marks: tuple[str, ...] = (), seen: KnownSecrets | None = None
    ) -> bytes | None:
        """Return a trace line without secrets, or None if redaction failed.

        The top-level names of an event are ours and never count as a tool's fields. Where arguments are hidden,
        `args_hash` is the hash of the visible ones: with the other hash a hidden PIN could be guessed.

        Args:
            line: the event as canonical JSON, without a newline.
            marks: names that the tool's contract marks as secret.
            seen: secrets of this run; those found under a secret name are added.
        """
        seen = self._with_key(seen)
        try:
            walk = self._walk_of(line, marks, seen)
            if walk is None:
                return _rehash_arguments(line, _hide_known(line, seen), seen)
            event = _decode(line)
            if slips := self._misspelled_names(event, marks):
                walk = self._walk_of(line, (*marks, *slips), seen) or walk
            return _rehash_arguments(
                line, _hide_known(_encode(walk.walk_members(self._apply_to_payloads(event))), seen), seen
            )
        except Exception:  # noqa: BLE001 - as in payload()
            return None

    def redact_value(self, value: Any, *, marks: tuple[str, ...] = (), seen: KnownSecrets | None = None) -> Any:
        """Return a JSON value without secrets, or `[redaction failed]`."""
        seen = self._with_key(seen)
        try:
            cleaned = self._whole_walk(marks, seen).walk_value(self._apply_own_redactor(value))
            return _decode(_hide_known(_encode(cleaned), seen))
        except Exception:  # noqa: BLE001 - as in payload()
            return REDACTION_FAILED

    def redact_text(self, text: str, *, marks: tuple[str, ...] = (), seen: KnownSecrets | None = None) -> str:
        """Return a free text (an exception, a raw argument text) without secrets."""
        seen = self._with_key(seen)
        try:
            return seen.hide_values(self._whole_walk(marks, seen).walk_text(text))
        except Exception:  # noqa: BLE001 - as in payload()
            return REDACTION_FAILED

    def _misspelled_names(self, event: dict[str, Any], marks: tuple[str, ...]) -> list[str]:
        """Return the misspelled names of secret fields in an event."""
        found = [(one.get("before"), one.get("after")) for one in _field_renames(event.get("corrections", ()))]
        for one in event.get("findings", ()):
            found += [
                (one["at"].rpartition("/")[2], data["suggestion"]) for data in _field_renames([one.get("data", {})])
            ]
        rules = self._name_set(marks).rules
        return [written for written, meant in found if written and meant and rules.is_secret(meant)]

    def _apply_own_redactor(self, payload: Any) -> Any:
        """Return the result of the user's redactor for a payload."""
        if self._own is None:
            return payload
        try:
            return self._own(payload)
        except (Exception, SystemExit):  # noqa: BLE001 - it may do anything
            return REDACTION_FAILED

    def _apply_to_payloads(self, event: dict[str, Any]) -> dict[str, Any]:
        return {key: self._apply_own_redactor(item) if key in _PAYLOADS else item for key, item in event.items()}


class _RedactionWalk:
    """A walk through one value, text by text.

    Args:
        names: rules for names that make a value secret.
        patterns: the configured patterns.
        looks: the prefilters that matched.
        seen: receives the hidden values.
        custom: True if a text may hold a configured name.
    """

    __slots__ = ("_cards", "_custom", "_looks", "_names", "_patterns", "_seen")

    def __init__(
        self,
        names: _NameSet,
        patterns: tuple[SecretPattern, ...],
        looks: tuple[Prefilter, ...],
        seen: KnownSecrets,
        *,
        custom: bool,
    ) -> None:
        self._names, self._patterns, self._looks, self._seen = names, patterns, looks, seen
        self._custom, self._cards = custom, has_account_number in looks

    def walk_members(self, event: dict[str, Any]) -> dict[str, Any]:
        """Walk an object whose own names are harmless."""
        return {key: self.walk_value(item) for key, item in event.items()}

    def walk_value(self, value: Any) -> Any:
        """Walk any JSON value."""
        if isinstance(value, str):
            return self.walk_text(value)
        if isinstance(value, dict):
            return self._walk_object(cast("dict[str, Any]", value))
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            return (
                self._walk_pairs(items)
                if items and all(map(_is_pair, items))
                else [self.walk_value(item) for item in items]
            )
        if isinstance(value, bool) or value is None or not (self._cards or self._patterns):
            return value
        digits = str(value)
        # A column with a missing value turns its numbers into floats.
        secret = (self._cards and is_card(digits.removesuffix(".0"))) or any(p.found(digits) for p in self._patterns)
        return self._seen.mask(value) if secret else value

    def walk_text(self, text: str) -> str:
        """Redact a text that is a value."""
        return self._hide_secrets(text, self._seen)

    def _hide_secrets(self, text: str, seen: KnownSecrets) -> str:
        plain = hidden = unescape_json(text)
        if plain is not text or self._custom or self._is_suspect(text):
            hidden = hide_in_text(plain, self._names.rules, seen)
        for pattern in self._patterns:
            if pattern.found(hidden):
                hidden = pattern.hide_matches(hidden, seen.mask)
        return text if hidden == plain else hidden

    def _is_suspect(self, text: str) -> bool:
        lowered = text.lower()
        for look in self._looks:  # noqa: SIM110 - a generator takes as long as the looks
            if look(text, lowered):
                return True
        return False

    def _safe_name(self, key: str, known: Container[str]) -> str:
        """Return a name as it may be written; two secret names stay different."""
        harmless = self._names.harmless
        if key in harmless:
            return key
        name = self._hide_secrets(key, KnownSecrets(self._seen.key))
        if name == key and len(harmless) < _REMEMBERED_NAMES:
            harmless.add(key)
        while name != key and name in known:
            name += "+"
        return name

    def _walk_pairs(self, pairs: Sequence[Any]) -> list[Any]:
        """Redact names and values in the form of a list of headers."""
        return [[*self._walk_object({name: item}).popitem()] for name, item in pairs]

    def _walk_object(self, value: dict[str, Any]) -> dict[str, Any]:
        about, rules = value.get("at"), self._names.rules
        secret_place = isinstance(about, str) and any(rules.is_secret(part) for part in about.split("/"))
        labels = [
            item for key, item in value.items() if key.lower() in _LABELS and isinstance(item, str) and " " not in item
        ]
        result: dict[str, Any] = {}
        for key, item in value.items():
            name = self._safe_name(key, result)
            labelled = key.lower() == "value" and any(rules.needs_hiding(label, item) for label in labels)
            if labelled or rules.needs_hiding(key, item):
                self._seen.add(item)
                result[name] = self._seen.mask(item)
            elif secret_place and key in _VALUE_FIELDS and item:
                result[name] = self._seen.mask(
                    item
                )  # our own words are not secret; the value also occurs in the payload
            else:
                result[name] = self.walk_value(item)
        return result


def _field_renames(told: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Redact the report about a field that came under another name."""
    return [one for one in told if one.get("rule") == "field_name"]


def _is_pair(item: Any) -> bool:
    """Return whether this is a name with one value, as in a list of headers."""
    if not isinstance(item, (list, tuple)):
        return False
    pair = cast("Sequence[Any]", item)
    return len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str)  # noqa: PLR2004 - a pair


def _hide_known(data: bytes, seen: KnownSecrets) -> bytes:
    """Hide earlier values of secret names, wherever they occur now."""
    if not seen.is_within(data):
        return data
    return _encode(_hide_in_value(_decode(data), seen))


def _rehash_arguments(line: bytes, redacted: bytes, seen: KnownSecrets) -> bytes:
    """Return an event without the hash of its hidden arguments, or of those of an earlier event."""
    if line == redacted and not seen.hashes:
        return line
    before, after = _decode(line), _decode(redacted)
    digest = before.get("args_hash")
    if digest is None:
        return redacted
    asked = next((name for name in _ARGUMENT_FIELDS if before.get(name) != after.get(name)), None)
    if asked is not None:
        seen.add_hash(digest, sha256_hex(_encode(after[asked])))
    if digest not in seen.hashes:
        return redacted
    return _encode({**after, "args_hash": seen.hashes[digest]})


def _hide_in_value(value: Any, seen: KnownSecrets) -> Any:
    if isinstance(value, str):
        return seen.hide_values(value)
    if isinstance(value, dict):
        return {
            seen.hide_values(key): _hide_in_value(item, seen) for key, item in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [_hide_in_value(item, seen) for item in cast("Sequence[Any]", value)]
    return value
