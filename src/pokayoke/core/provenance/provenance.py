"""Where each value of a call comes from, and whether the call may run by itself.

The model may be steered by any text it has read, so nothing here looks at what it says: only at where the values of a
call stand. The rules hold also when the model obeys an attacker completely.

In: the user's words, the outputs of a run, a call.
Out: a judgement: allow, or ask with the reasons.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
import orjson

from pokayoke.core.hash_set import HashSet
from pokayoke.core.provenance.forms import find_contacts, fold, normal_form
from pokayoke.core.provenance.labels import ArgumentKind, ToolLabels, name_words
from pokayoke.core.provenance.outputs import AUTHORED, DIRECTORY, Origin, Outputs
from pokayoke.core.provenance.private_values import PrivateValues
from pokayoke.core.provenance.records import OutputRecord, RecordField, walk_values
from pokayoke.core.provenance.user_words import UserWords, find_words, is_bound
from pokayoke.core.provenance.vocabulary import GATE_ORDER, PRIVATE_NAMES, Act

Tier = Literal["prompt", "own", "trusted", "anchored", "leaf", "none"]
Level = Literal["strict", "careful", "balanced"]
_MOST_WAITING: Final = 12_582_912  # bytes of outputs; of the oldest beyond them no value is known
_MOST_WAITING_CALLS: Final = 20_000  # as above
_MOST_CALLS: Final = 4_096  # of which a later output is known to replace an earlier one
_MOST_READ: Final = 67_108_864  # bytes of arguments and outputs in a run; of later ones no value is known
_VOUCHED: Final[frozenset[Tier]] = frozenset({"prompt", "own", "trusted"})


class Reason(msgspec.Struct, frozen=True):
    """Why a call is asked about.

    Args:
        rule: what was not met: `act`, `value`, `amount`, `when`, `contact`, `private`, `host`, `unread` (the
            outputs could not be searched in time); "" for a source.
        argument: the argument, "" for the call as a whole.
        value: the value.
        tier: where it stands.
        step: the step of the record it stands in, or None.
        place: the tool and the place in its output, "" if it stands in none.
        is_stale: True if it stands only in outputs of which a later one of the same call exists.
    """

    rule: str
    argument: str
    value: str
    tier: Tier = "none"
    step: int | None = None
    place: str = ""
    is_stale: bool = False


class _Value(msgspec.Struct, frozen=True):
    """One scalar of a call: the argument it belongs to, what that is, and where the value stands."""

    argument: str
    kind: ArgumentKind
    value: Any
    tier: Tier

    @property
    def is_target(self) -> bool:
        return self.kind in ("who", "thing")


class _Taken(msgspec.Struct, frozen=True, gc=False):
    """A call that ran, as it was taken in."""

    labels: ToolLabels
    arguments: bytes
    output: bytes | str
    step: int
    is_approved: bool


class Judgement(msgspec.Struct, frozen=True):
    """What provenance says of a call: the reasons to ask, none if it may run; and where each value came from.

    Args:
        reasons: why a person has to decide.
        sources: where each target and amount of the call stands.
        knows_words: False if nobody has said what the user wrote: then only values of trusted sources count.
    """

    reasons: tuple[Reason, ...] = ()
    sources: tuple[Reason, ...] = ()
    knows_words: bool = True

    @property
    def asks(self) -> bool:
        """True if a person has to decide."""
        return bool(self.reasons)


class Provenance:
    """The words, records and values of one run.

    Args:
        level: how far a record that the user's words single out may be trusted for whom a call reaches.
        is_tainted: True if the run has read untrusted content of which nothing is known any more.
    """

    def __init__(self, level: Level = "careful", *, is_tainted: bool = False) -> None:
        """Begin with nothing said and nothing read."""
        self.level: Level = level
        self.words = UserWords("")
        self.is_tainted = is_tainted
        self._latest: dict[int, int] = {}  # the step of the latest output of a call, by a hash of the call
        self._superseded: set[int] = set()
        self._outputs = Outputs()
        self._own = HashSet()
        self._trusted = HashSet()
        self._burned = HashSet()
        self._private = PrivateValues()
        self._private_size = 0  # bytes of the outputs whose private values are not known
        self._asks_private = False  # from the first text on that may leave
        self._waiting: deque[_Taken] = deque()
        self._waiting_size = self._read_size = 0

    # -- what comes in ---------------------------------------------------------------------------------

    def set_words(self, text: str) -> None:
        """Take in all that the user has said so far; what it singles out is judged anew."""
        if text == self.words.text:
            return
        before, self.words = self.words, UserWords(text)
        self._outputs.judge_again(before, self.words, self._burned)

    def add_call(
        self,
        labels: ToolLabels,
        arguments: bytes,
        output: bytes | str,
        *,
        step: int,
        is_approved: bool = False,
    ) -> None:
        """Note a call that ran, and its output. They are read when a call is to be judged: many runs only read.

        Args:
            labels: of the tool.
            arguments: as they ran, a JSON object.
            output: what the tool returned: JSON as bytes, or a text.
            step: the step of the run.
            is_approved: True if a person said yes to it: its values are the run's own from now on.
        """
        self.is_tainted = self.is_tainted or not labels.trusted
        call = hash((labels.name, arguments))
        if labels.effect == "read" and (before := self._latest.get(call)) is not None:
            self._superseded.add(before)
            if len(self._superseded) > _MOST_CALLS:
                self._superseded = set(sorted(self._superseded)[-_MOST_CALLS // 2 :])
        self._latest[call] = step
        if len(self._latest) > _MOST_CALLS:
            self._latest.pop(next(iter(self._latest)))
        self._waiting.append(_Taken(labels, arguments, output, step, is_approved))
        self._waiting_size += len(output)
        while len(self._waiting) > (_MOST_WAITING_CALLS if self._waiting_size <= _MOST_WAITING else 1):
            self._waiting_size -= len(self._waiting.popleft().output)

    def waiting_size(self, labels: ToolLabels) -> int:
        """Return the characters and bytes of outputs that the judgement of such a call has to read first."""
        return self._waiting_size + (self._private_size if labels.open_world and not labels.reads else 0)

    def _read_waiting(self) -> None:
        while self._waiting:
            taken = self._waiting.popleft()
            self._waiting_size -= len(taken.output)
            self._read_size += len(taken.arguments) + len(taken.output)
            if self._read_size < _MOST_READ:
                self._read_call(taken)

    def _read_call(self, taken: _Taken) -> None:
        labels, output, step = taken.labels, taken.output, taken.step
        arguments: dict[str, Any] = orjson.loads(taken.arguments)
        is_vouched = self._note_arguments(labels, arguments, is_approved=taken.is_approved)
        data = output if isinstance(output, bytes) else _json_of(output)
        if data is None:
            if labels.trusted and (form := normal_form(output)) is not None:
                self._trusted.add(form)
            return
        origin = Origin(
            labels.name,
            step,
            own=labels.makes,
            directory=labels.directory,
            keyed=not labels.makes and is_vouched and bool(arguments),
            listed=labels.directory and (is_vouched or not arguments),
            private=labels.private,
            vouched=is_vouched,
            phrases=tuple(
                fold(value) for _, value in walk_values(arguments) if isinstance(value, str) and self.words.has(value)
            ),
        )
        for record in self._outputs.add(origin, data, self.words, self._burned):
            if self._asks_private:
                self._note_private(record, origin)
            if labels.trusted:
                self._trusted.update([field.form for field in record.fields])
            if labels.makes:
                self._own.update([field.form for field in record.fields if field.form not in self._burned])
        if not self._asks_private:
            self._private_size += len(data)

    def _read_private(self) -> None:
        """Find the values that are not for outsiders; only a text that leaves asks for them."""
        if not self._asks_private:
            for origin, record in self._outputs.read_again():
                self._note_private(record, origin)
            self._asks_private, self._private_size = True, 0

    def _note_private(self, record: OutputRecord, origin: Origin) -> None:
        for field in record.fields:
            if _is_private(field, origin):
                self._private.add(field.form, field.key)

    # -- what is asked ---------------------------------------------------------------------------------

    def judge(self, labels: ToolLabels, arguments: Mapping[str, Any]) -> Judgement:
        """Return whether a call may run by itself, and where its values come from."""
        if labels.reads and (not labels.hosts or not self.is_tainted):
            return Judgement()
        self._read_waiting()
        if labels.reads:
            contacted = tuple(self._host_reasons(labels, arguments))
            return Judgement(contacted, knows_words=bool(self.words.text))
        values = [
            _Value(name, labels.kinds.get(name, "thing"), value, self._find_tier(value, name, labels))
            for name, argument in arguments.items()
            for _, value in walk_values(argument, name)
        ]
        sources = tuple(
            self._source(one.argument, one.value, one.tier, rule="")
            for one in values
            if one.is_target or one.kind == "amount"
        )
        knows_words = bool(self.words.text)
        if not self.is_tainted:
            return Judgement(sources=sources, knows_words=knows_words)
        reasons = [*self._act_reasons(labels)]
        for value in values:
            reasons.extend(self._value_reasons(labels, value, values))
        return Judgement(tuple(dict.fromkeys(reasons)), sources, knows_words)

    def tier_of(self, value: Any, argument: str = "", labels: ToolLabels | None = None) -> Tier:
        """Return where a value stands: in the user's words, in values of the run's own, in a record, or nowhere."""
        self._read_waiting()
        return self._find_tier(value, argument, labels)

    def _find_tier(self, value: Any, argument: str = "", labels: ToolLabels | None = None) -> Tier:
        form = normal_form(value)
        if isinstance(value, bool):
            return "prompt"
        if self.words.text:
            cues = (*name_words(argument), *(labels.words if labels else ()))
            if self.words.has(value, cues=cues):
                return "prompt"
        if form is None:
            return "none"
        if form in self._own:
            return "own"
        if form in self._trusted:
            return "trusted"
        found = self._outputs.find(form)
        if form not in self._burned and any(map(self._outputs.is_anchored, found)):
            return "anchored"
        return "leaf" if found else "none"

    # -- rules -----------------------------------------------------------------------------------------

    def _host_reasons(self, labels: ToolLabels, arguments: Mapping[str, Any]) -> Iterable[Reason]:
        """A read that contacts a host which a text named could carry out what the run has read."""
        for name in labels.hosts & arguments.keys():
            for _, value in walk_values(arguments[name], name):
                tier = self._find_tier(value, name, labels)
                if tier not in _VOUCHED:
                    yield self._source(name, value, tier, rule="host")

    def _act_reasons(self, labels: ToolLabels) -> Iterable[Reason]:
        """A kind of act that the user's words do not ask for."""
        if labels.verb and self.words.has_word(labels.verb):
            return
        for act in sorted(labels.acts):
            if not any(self.words.asks_for(kind) for kind in GATE_ORDER[act]):
                yield Reason("act", "", act)

    def _value_reasons(self, labels: ToolLabels, one: _Value, values: list[_Value]) -> Iterable[Reason]:
        if one.is_target:
            if not self._is_vouched(labels, one):
                yield self._source(one.argument, one.value, one.tier)
        elif one.kind == "amount":
            if not self._is_bounded(one, values):
                yield self._source(one.argument, one.value, one.tier, rule="amount")
        elif one.kind == "when":
            if not any(other.is_target for other in values) and not self._has_day(one):
                yield self._source(one.argument, one.value, one.tier, rule="when")
        elif isinstance(one.value, str):
            yield from self._text_reasons(labels, one, values)

    def _is_vouched(self, labels: ToolLabels, one: _Value) -> bool:
        if one.tier == "prompt":
            asked: set[Act] = {other for act in labels.acts for other in GATE_ORDER[act]}
            return one.kind != "who" or is_bound(self.words, one.value, asked, labels.verb)
        if one.tier in ("own", "trusted"):
            return True
        if one.tier != "anchored" or self.level == "strict":
            return False
        if one.kind == "thing" or self.level == "balanced":
            return True
        return any(
            self._outputs.flags[number] & DIRECTORY
            or (self._outputs.is_anchored(number) and not self._outputs.flags[number] & AUTHORED)
            for number in self._outputs.find(normal_form(one.value) or "")
        )

    def _is_bounded(self, one: _Value, values: list[_Value]) -> bool:
        """Whether an amount is said, or no larger than a number in a record of a thing that the call is about."""
        if one.tier in ("own", "trusted") or self.words.has(one.value, is_identity=False):
            return True
        if not isinstance(one.value, (int, float)):
            return False
        amount = abs(one.value)
        named = [
            (normal_form(other.value) or "", other.tier)
            for other in values
            if other.is_target and other.tier in _VOUCHED | {"anchored"}
        ]
        outputs = self._outputs
        for form, where in named:
            for number in outputs.find(form):
                if (where == "prompt" or outputs.is_anchored(number)) and amount <= outputs.largest_number(number):
                    return True
        # A name may also be one word of a field ("Spotify" of "Spotify Premium").
        marks = {
            mark
            for form, where in named
            if form and not any(sign.isdigit() for sign in form)
            for mark in ((form, f"~{form}") if where == "prompt" else (form,))
        }
        return any(amount <= outputs.largest_number(number) for number in outputs.find_marked(marks))

    def _text_reasons(self, labels: ToolLabels, one: _Value, values: list[_Value]) -> Iterable[Reason]:
        for contact in find_contacts(one.value):
            tier = self._find_tier(contact)
            if tier in _VOUCHED or tier == "anchored" or (tier == "leaf" and not labels.open_world):
                continue
            yield self._source(one.argument, contact, tier, rule="contact")
        if not labels.open_world:
            return
        self._read_private()
        for value, key in self._private.find_in(one.value):
            if not self.words.has(value) and not self._names_field(key):
                yield self._source(one.argument, value, "leaf", rule="private")
                return
        if any(other.is_target and other.tier == "anchored" for other in values):
            yield from self._stray_identifiers(one.argument, one.value)

    def _stray_identifiers(self, name: str, text: str) -> Iterable[Reason]:
        """An identifier of a record that the user did not single out, on its way to one whom a record names."""
        for word in dict.fromkeys(find_words(fold(text))):
            form = normal_form(word) or ""
            if any(sign.isdigit() for sign in form) and not self.words.has_form(form, is_identity=False):
                found = self._outputs.find_identified(form)
                if found and not any(map(self._outputs.is_anchored, found)):
                    yield self._source(name, form, "leaf", rule="private")
                    return

    def _has_day(self, one: _Value) -> bool:
        """Whether the user or a record vouches for a moment, or at least the user named its day."""
        day = re.match(r"(\d{4})-(\d\d)-(\d\d)", normal_form(one.value) or "")
        return (
            day is None
            or one.tier in _VOUCHED | {"anchored"}
            or self.words.has_day(int(day[1]), int(day[2]), int(day[3]))
        )

    def _names_field(self, key: str) -> bool:
        return any(len(word) > 2 and self.words.has_word(word) for word in name_words(key))  # noqa: PLR2004 - "id"

    # -- parts -----------------------------------------------------------------------------------------

    def _note_arguments(self, labels: ToolLabels, arguments: Mapping[str, Any], *, is_approved: bool) -> bool:
        """Note the values of a call; returns whether the user or a record vouches for those of a read."""
        vouched = True
        for name, argument in arguments.items():
            for _, value in walk_values(argument, name):
                form = normal_form(value)
                if form is None:
                    continue
                tier = self._find_tier(value, name, labels)
                if is_approved:
                    self._own.add(form)
                elif tier == "none":
                    self._burned.add(form)
                if tier in ("leaf", "none") and labels.kinds.get(name) in ("who", "thing", "text", None):
                    vouched = False
        return vouched

    def _source(self, name: str, value: Any, tier: Tier, *, rule: str = "value") -> Reason:
        found = self._outputs.find(normal_form(value) or "")
        number = next((one for one in found if self._outputs.is_anchored(one)), found[0] if found else None)
        step, place = (None, "") if number is None else self._outputs.describe(number)
        is_stale = tier in ("anchored", "leaf") and self._superseded.issuperset(
            self._outputs.describe(one)[0] for one in found
        )
        return Reason(rule, name, str(value), tier, step, place, is_stale)


def _is_private(field: RecordField, origin: Origin) -> bool:
    if origin.private or _is_private_key(field.key):
        return True
    # A secret is one token. An address in words is what people ask for.
    return not origin.vouched and " " not in field.form and any(map(str.isdigit, field.form))


@lru_cache(4_096)
def _is_private_key(key: str) -> bool:
    return not PRIVATE_NAMES.isdisjoint(name_words(key))


def _json_of(text: str) -> bytes | None:
    """Return a text that is a JSON array or object as bytes, else None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        data = text.encode()
        orjson.loads(data)
    except (UnicodeEncodeError, orjson.JSONDecodeError):
        return None
    return data
