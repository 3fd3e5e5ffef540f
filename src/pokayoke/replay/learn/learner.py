"""Learns contracts from recorded calls.

Calls whose tool reported a failure are counted and teach nothing: their arguments may have been wrong.

In: recordings.
Out: drafts of contracts, with a note for every statement.
Never: memory that grows with the number of calls.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from pokayoke.core.call import Effect
from pokayoke.core.intake import read_arguments
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.output.content_blocks import as_blocks
from pokayoke.core.output.html_pages import is_page
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.replay.learn.effect_guess import guess_effect
from pokayoke.replay.learn.evidence import Evidence, OccurrenceCount
from pokayoke.replay.learn.infer import InferredSchema, SchemaPath, describe_count, infer_schema
from pokayoke.replay.learn.stated_failures import stated_failure
from pokayoke.replay.recording import ReadResult, Recording, UnreadRecord

DEADLINE: Final = 30
DEADLINE_NOTE: Final = "seconds; nothing was measured, this is the usual deadline"
_MOST_TOOLS: Final = 2_000
_MOST_UNREAD: Final = 10
_SLACK: Final = 4
_LATENCY_SLACK: Final = 3  # times the slowest of a hundred calls
_LATENCY_STEPS: Final = 8  # counted times per doubling: each is kept to 9 %
_SMALLEST_CAP: Final = 1_000
_SCALARS_FROM: Final = 5
_DATA_PER_CUT: Final = 10
_SLOTS: Final = ("error", "errors")
_NAME: Final = re.compile(r"[\w.:/@ -]{1,256}")
_redactor: Final = Redactor()


class Draft(msgspec.Struct):
    """A learnt contract.

    Attributes:
        mapping: the argument for `Contract.from_mapping`.
        notes: path of keys in it to the evidence of the statement there.
    """

    mapping: dict[str, Any]
    notes: dict[SchemaPath, str]


class SkippedTool(msgspec.Struct, frozen=True):
    """A tool without a draft, and why."""

    tool: str
    why: str


class ToolEvidence:
    """The evidence about one tool."""

    def __init__(self) -> None:
        self.calls = OccurrenceCount()
        self.good = OccurrenceCount()
        self.failed = 0
        self.refused = 0
        self.invalid = 0
        self.unreadable = 0
        self.arguments = Evidence()
        self.data = Evidence()
        self.text = Evidence()
        self.outputs = OccurrenceCount()
        self.broken = 0
        self.cut = 0
        self.pages = 0
        self.longest = 0
        self.values = 0  # answers that were not texts
        self.slots: dict[str, int] = {}
        self.effects: Counter[str] = Counter()  # of calls whose recording says so
        self.times: Counter[int] = Counter()  # calls by the logarithm of their seconds
        self.filled: set[str] = set()  # error slots that were filled in good answers too

    def add(self, call: Recording, run: str) -> None:
        """Add one call."""
        self.calls.add(run)
        if not call.ran:
            self.refused += 1
            return
        if call.effect is not None:
            self.effects[call.effect] += 1
        if call.seconds is not None:
            self.times[math.ceil(math.log2(max(call.seconds, 1e-6)) * _LATENCY_STEPS)] += 1
        said = None if call.output is UNSET and not call.is_error else stated_failure(call.output, call.is_error)
        if said is not None:
            self.failed += 1
            if (slot := _error_slot(call.output)) is not None:
                self.slots[slot] = self.slots.get(slot, 0) + 1
            return
        if call.fault is not None:
            self.invalid += 1
            return
        given = call.arguments if call.used is None else call.used
        reading = read_arguments(given)
        if reading.value is None:
            self.unreadable += 1
            return
        self.good.add(run)
        self.arguments.add(reading.value, run)
        if call.output is not UNSET:
            self._add_output(call.output, run)

    def merge(self, other: ToolEvidence) -> None:
        """Add the evidence of another instance."""
        for mine, theirs in (
            (self.calls, other.calls),
            (self.good, other.good),
            (self.outputs, other.outputs),
        ):
            mine.merge(theirs)
        for known, more in (
            (self.arguments, other.arguments),
            (self.data, other.data),
            (self.text, other.text),
        ):
            known.merge(more)
        self.effects += other.effects
        self.times += other.times
        self.failed += other.failed
        self.refused += other.refused
        self.invalid += other.invalid
        self.unreadable += other.unreadable
        self.broken += other.broken
        self.cut += other.cut
        self.pages += other.pages
        self.longest = max(self.longest, other.longest)
        self.values += other.values
        self.filled |= other.filled
        for slot, count in other.slots.items():
            self.slots[slot] = self.slots.get(slot, 0) + count

    def _add_output(self, output: Any, run: str) -> None:
        self.outputs.add(run)
        blocks = as_blocks(output) if is_object(output) else None
        if blocks is not None:
            output = blocks.text if blocks.structured is None else blocks.structured
        if isinstance(output, str):
            self.longest = max(self.longest, len(output))
            self._add_text(output, run)
        else:
            self.values += 1
            self.longest = max(self.longest, len(msgspec.json.encode(output)))
            self._add_data(output, run)

    def _add_text(self, text: str, run: str) -> None:
        """Add a text: as data if it is JSON other than a string; each kind has evidence of its own."""
        value: Any = text
        if text[:1] in "{[0123456789-tfn \n" and text.strip():
            try:
                value = parse(text)[0]
            except StrictError:
                value = text
        if isinstance(value, str):
            self._count_damaged(text)
            self.text.add(text, run)
        else:
            self._add_data(value, run)

    def _add_data(self, value: Any, run: str) -> None:
        self.data.add(value, run)
        if (slot := _error_slot(value)) is not None:
            self.filled.add(slot)

    def _count_damaged(self, text: str) -> None:
        """Count a text that is no complete answer: truncated or damaged data, or a page."""
        if text.lstrip()[:1] in ("{", "["):
            self.broken += 1
            self.cut += _is_cut(text)
        else:
            self.pages += is_page(text)


class Learner:
    """Learns contracts from recordings. Memory depends on the number of tools, not of calls.

    Args:
        version: version of the contracts, after the name: `name@version`.
        run_prefix: what names of calls without a run begin with, so that they differ from another learner's.
    """

    def __init__(self, version: str = "1", *, run_prefix: str = "") -> None:
        self._version = version
        self._run_prefix = run_prefix
        self._tools: dict[str, ToolEvidence] = {}
        self._nameless = 0
        self.calls = 0
        self.unread = 0
        self.first_unread: list[UnreadRecord] = []

    def add_recordings(self, reads: Iterable[ReadResult]) -> None:
        """Add what a reader returned."""
        for read in reads:
            if isinstance(read, UnreadRecord):
                self.unread += 1
                if len(self.first_unread) < _MOST_UNREAD:
                    self.first_unread.append(read)
                continue
            self.calls += 1
            known = self._tools.get(read.tool)
            if known is None:
                if len(self._tools) >= _MOST_TOOLS:
                    self._nameless += 1
                    continue
                known = self._tools[read.tool] = ToolEvidence()
            known.add(read, read.run or f"{self._run_prefix}call {self.calls}")

    def merge(self, other: Learner) -> None:
        """Add what another one learnt from later calls."""
        self.calls += other.calls
        self.unread += other.unread
        self.first_unread = [*self.first_unread, *other.first_unread][:_MOST_UNREAD]
        self._nameless += other._nameless
        for name, evidence in other._tools.items():
            if name in self._tools or len(self._tools) < _MOST_TOOLS:
                self._tools.setdefault(name, ToolEvidence()).merge(evidence)
            else:
                self._nameless += evidence.calls.samples

    def number_lines(self, shift: int) -> None:
        """Add a number to those of all lines: a part of a file does not know how many lines are before it."""
        self.first_unread = [msgspec.structs.replace(one, line=one.line + shift) for one in self.first_unread]

    def build_drafts(self) -> tuple[list[Draft], list[SkippedTool]]:
        """Return a draft per tool, by name, and the tools of which nothing was learnt."""
        drafts: list[Draft] = []
        skipped: list[SkippedTool] = []
        for name, watched in sorted(self._tools.items()):
            if (shown := _redactor.redact_text(name)) != name:
                skipped.append(SkippedTool(shown, "its name looks like a secret"))
            elif not watched.good.samples:
                skipped.append(SkippedTool(name, _skip_reason(watched)))
            elif not _NAME.fullmatch(name):
                skipped.append(SkippedTool(name, "the name holds characters that a tool's name cannot have"))
            else:
                drafts.append(build_draft(name, watched, self._version))
        if self._nameless:
            skipped.append(
                SkippedTool("(others)", f"{self._nameless:,} calls of tools beyond the first {_MOST_TOOLS:,}")
            )
        return drafts, skipped


def build_draft(name: str, watched: ToolEvidence, version: str = "1") -> Draft:
    """Return the contract that a tool's evidence supports."""
    effect, why = _find_effect(name, watched)
    deadline, measured = _find_deadline(watched)
    arguments = infer_schema(watched.arguments, arguments=True)
    mapping: dict[str, Any] = {"name": name, "version": version, "effect": effect, "timeout": deadline}
    notes: dict[SchemaPath, str] = {
        ("name",): _describe_calls(watched),
        ("effect",): f"{why}; check it",
        ("timeout",): measured,
    }
    _put_schema(mapping, notes, "input_schema", arguments)
    _put_output(watched, mapping, notes)
    if watched.outputs.samples:
        mapping["max_chars"] = _round_cap(watched.longest)
        notes[("max_chars",)] = f"the longest of {watched.outputs.samples:,} answers had {watched.longest:,}"
    return Draft(mapping, notes)


def _find_effect(name: str, watched: ToolEvidence) -> tuple[Effect, str]:
    """Return the effect that the recording tells, else the one that the name suggests, and why."""
    guessed, why = guess_effect(name)
    reads, writes = watched.effects["read"], watched.effects["write"]
    if writes and guessed != "destructive":
        return "write", f"{writes:,} of {reads + writes:,} calls claimed an effect"
    if reads and not writes:
        return "read", f"none of {reads:,} calls claimed an effect"
    return guessed, why


def _find_deadline(watched: ToolEvidence) -> tuple[int, str]:
    """Return a deadline in seconds, and what it rests on: three times what all but one in a hundred calls took."""
    total, counted = watched.times.total(), 0
    for step in sorted(watched.times):
        counted += watched.times[step]
        if counted >= total * 0.99:
            slow = 2.0 ** (step / _LATENCY_STEPS)
            note = f"seconds; 99 of 100 of {total:,} calls took up to {slow:.2g} s, times {_LATENCY_SLACK}"
            return max(1, math.ceil(slow * _LATENCY_SLACK)), note
    return DEADLINE, DEADLINE_NOTE


def _describe_calls(watched: ToolEvidence) -> str:
    parts = [describe_count(watched.good, "calls")]
    if watched.failed:
        parts.append(f"{watched.failed:,} more failed and taught nothing")
    if watched.refused:
        parts.append(f"{watched.refused:,} were refused and taught nothing")
    if watched.invalid:
        parts.append(f"{watched.invalid:,} had an invalid answer and taught nothing")
    if watched.unreadable:
        parts.append(f"{watched.unreadable:,} had arguments that are no JSON object")
    return "; ".join(parts)


def _skip_reason(watched: ToolEvidence) -> str:
    if watched.failed:
        return "its only call failed" if watched.failed == 1 else f"all {watched.failed:,} calls failed"
    if watched.refused:
        return f"{watched.refused:,} calls, and none of them ran"
    if watched.invalid:
        return f"{watched.invalid:,} calls, and no valid answer"
    return f"none of {watched.calls.samples:,} calls has arguments that are a JSON object"


def _put_schema(mapping: dict[str, Any], notes: dict[SchemaPath, str], key: str, drawn: InferredSchema) -> None:
    mapping[key] = drawn.schema
    notes.update({(key, *place): note for place, note in drawn.notes.items()})


def _put_output(watched: ToolEvidence, mapping: dict[str, Any], notes: dict[SchemaPath, str]) -> None:
    """Add the output contract: data, texts of one shape, texts, or none."""
    total, texts, data = watched.outputs.samples, watched.text.all.samples, watched.data.all.samples
    if not total:
        notes[("input_schema",)] = "no answer was recorded, so nothing is promised about the output"
        return
    if texts == _count_incomplete(watched) and _is_data(watched):
        _put_schema(mapping, notes, "output_schema", infer_schema(watched.data))
        others = {"broken off": watched.broken, "a page of HTML": watched.pages}
        left = ", ".join(f"{count:,} {what}" for what, count in others.items() if count)
        note = f"{describe_count(watched.outputs, 'answers')}, " + (
            f"{left}: learnt from the others" if left else "all JSON"
        )
    elif texts and data == 0:
        drawn = infer_schema(watched.text)
        if len(drawn.schema) > 1:
            _put_schema(mapping, notes, "output_schema", drawn)
        else:
            mapping["output_schema"] = "text"
        note = f"{describe_count(watched.outputs, 'answers')}, all free text"
    elif watched.values:
        few = f"{watched.values:,} of {total:,} answers were data and the others text" if texts else "too few answers"
        notes[("input_schema",)] = f"{few}, so nothing is promised about the output"
        return
    else:
        mapping["output_schema"] = "text"
        note = f"{texts:,} of {total:,} answers were no JSON"
    notes[("output_schema",)] = note
    slots = watched.slots.keys() - watched.filled
    if slots and is_object(mapping["output_schema"]):
        slot = max(sorted(slots), key=lambda name: watched.slots[name])
        mapping["envelope"] = {"error": f"/{slot}"}
        notes[("envelope",)] = f"{watched.slots[slot]:,} failures were told this way"


def _error_slot(output: Any) -> str | None:
    """Return the field under which an answer reports an error, or None."""
    if isinstance(output, str) and output.lstrip().startswith("{"):
        try:
            output = parse(output)[0]
        except StrictError:
            return None
    return next((slot for slot in _SLOTS if is_object(output) and output.get(slot)), None)


def _is_cut(text: str) -> bool:
    """True if a text is valid JSON up to a missing end."""
    try:
        parse(text)
    except StrictError as error:
        return error.position == len(text.encode("utf-8", "replace"))
    return False


def _count_incomplete(watched: ToolEvidence) -> int:
    """Return how many texts are no answers: truncated or pages, among more data; or a few that begin as JSON."""
    data, proven = watched.data.all.samples, watched.cut + watched.pages
    few = data >= _DATA_PER_CUT * (watched.broken + watched.pages)
    most = watched.cut == watched.broken and data > proven
    return watched.broken + watched.pages if few or most else 0


def _is_data(watched: ToolEvidence) -> bool:
    """True if the answers are data: objects and arrays are; bare numbers and words only if there are enough."""
    return {"object", "array"} >= set(watched.data.kinds) or watched.data.all.samples >= _SCALARS_FROM


def _round_cap(longest: int) -> int:
    """Return a round number well above the longest answer."""
    wanted = max(_SMALLEST_CAP, _SLACK * longest)
    scale = int(10 ** (len(str(wanted)) - 1))
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= wanted)
