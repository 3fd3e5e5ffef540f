"""Counts the verdicts on recordings: the four rates, output validity, coverage, differences.

In: what a reader returned for a file.
Out: a `Score` that can be added to others, so that several processes can share the work.
Never: a call that changes the verdict on another, or anything kept from one score to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import UNSET

from pokayoke.core.call import Finding
from pokayoke.core.json.canonical import canonical_bytes
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.recording import ReadResult, Recording, UnreadRecord
from pokayoke.replay.score.counts import EXAMPLES, MOST_UNREAD, Score, Tally, ToolTally, add_count
from pokayoke.replay.score.evaluate import CallVerdict, Judge
from pokayoke.replay.score.examples import ExampleWriter

_MOST_FIELDS: Final = 1_000
_DEEPEST: Final = 8
_DIGITS: Final = re.compile(r"[0-9]+")
_NO_TRUTH: Final = object()


class Scorer:
    """Scores recordings against one or two sets of contracts.

    Args:
        judges: one per set; with two, differences between the first and the second are counted.
    """

    def __init__(self, judges: Sequence[Judge]) -> None:
        self.judges = tuple(judges)
        self._writer = ExampleWriter(judges)
        self._declared = [
            {one.id: frozenset(declared_fields(one.input_schema)) for one in judge.contracts} for judge in judges
        ]

    def score_recordings(self, reads: Iterable[ReadResult], file: int = 0) -> Score:
        """Return the counts for some recordings.

        Args:
            reads: what a reader returned for the lines.
            file: number of the file, for examples.
        """
        score = Score(tallies=[Tally() for _ in self.judges])
        # The fields of each contract that have not occurred yet: once all have, calls are not searched any more.
        left = [dict(declared) for declared in self._declared]
        for read in reads:
            if isinstance(read, UnreadRecord):
                score.unread += 1
                if len(score.first_unread) < MOST_UNREAD:
                    score.first_unread.append((file, read.line, read.why))
                continue
            score.calls += 1
            judged = [judge.judge_call(read) for judge in self.judges]
            for tally, one, unseen in zip(score.tallies, judged, left, strict=True):
                known = tally.for_tool(self._writer.tool_name(one), is_known=one.contract is not None)
                known.calls += 1
                _count_call(known, read, one, file, self._writer)
                _count_truth(known, read, one)
                _count_output(known, read, one, file, self._writer)
                _count_fields(known, one, unseen)
            if len(judged) == 2:  # noqa: PLR2004 - a comparison is between two
                _compare_verdicts(score, read, judged, file, self._writer)
        return score


def _count_fields(tally: ToolTally, judged: CallVerdict, unseen: dict[str, frozenset[str]]) -> None:
    contract, value = judged.contract or "", judged.reading.value
    left = unseen.get(contract)
    if left and value is not None and (found := left.intersection(_present_fields(value))):
        tally.fields |= found
        unseen[contract] = left - found


def _count_call(tally: ToolTally, call: Recording, judged: CallVerdict, file: int, writer: ExampleWriter) -> None:
    tally.read += judged.readable
    tally.repaired += bool(judged.reading.repairs)
    for name in judged.reading.repairs:
        add_count(tally.changes, name)
    if judged.refusal is None:
        tally.allowed += 1
        tally.corrected += bool(judged.corrections)
        for change in judged.corrections:
            add_count(tally.changes, change.rule)
    elif judged.masked:
        tally.masked += 1
    else:
        _count_refusal(tally, call, judged, file, writer)


def _count_refusal(tally: ToolTally, call: Recording, judged: CallVerdict, file: int, writer: ExampleWriter) -> None:
    refusal = judged.refusal
    assert refusal is not None
    for code in {refusal.code, *(one.code for one in judged.also)}:
        add_count(tally.codes, code)
    add_count(tally.refusals, refusal.code)
    kind = f"refused: {refusal.code}"
    if tally.needs_example(kind):
        tally.add_example(kind, writer.build_example(call, judged, refusal, call.arguments, file=file))
    if judged.output == "failed":
        tally.refused_failed += 1
    elif judged.output != "absent":
        tally.refused_worked += 1


def _count_truth(tally: ToolTally, call: Recording, judged: CallVerdict) -> None:
    truth = _parse_truth(call.truth)
    if truth is _NO_TRUTH:
        return
    tally.truths += 1
    ran = judged.arguments
    right = ran is not None and truth is not None and canonical_bytes(ran) == canonical_bytes(truth)
    if ran is not None:
        tally.ran_right += right
        tally.ran_wrong += not right
        if judged.corrections:
            tally.fixed += 1
            tally.fixed_right += right
        return
    if judged.masked:
        return
    written = judged.reading.value if judged.reading.grade in ("exact", "lossless") else None
    wrong = truth is None or written is None or canonical_bytes(written) != canonical_bytes(truth)
    tally.refused_right += wrong
    tally.refused_wrong += not wrong


def _parse_truth(given: Any) -> Any:
    """Return the right arguments, None if there should have been no call, or the marker for an unknown truth."""
    if given is UNSET:
        return _NO_TRUTH
    if isinstance(given, str):
        try:
            given = parse(given)[0]
        except StrictError:
            return _NO_TRUTH
    return given if given is None or is_object(given) else _NO_TRUTH


def _count_output(tally: ToolTally, call: Recording, judged: CallVerdict, file: int, writer: ExampleWriter) -> None:
    verdict = judged.output
    if verdict == "absent":
        return
    tally.outputs += 1
    setattr(tally, verdict, getattr(tally, verdict) + 1)
    if verdict == "failed":
        # Without its digits a secret would not be recognised any more.
        said = _DIGITS.sub("#", writer.failure_words(call, judged)) or "(no words)"
        add_count(tally.words, said)
        tally.unseen += judged.unseen
        if tally.needs_example("failed"):
            tally.add_example(
                "failed", writer.build_example(call, judged, judged.failure or "", call.output, file=file)
            )
    elif judged.fault is not None:
        add_count(tally.faults, judged.fault.code)
        add_count(tally.codes, judged.fault.code)
        kind = f"invalid: {judged.fault.code}"
        if tally.needs_example(kind):
            tally.add_example(kind, writer.build_example(call, judged, judged.fault, call.output, file=file))
    elif judged.mentions:
        tally.mentions += 1
        if tally.needs_example("mentions an error"):
            example = writer.build_example(call, judged, "speaks of errors", call.output, file=file)
            tally.add_example("mentions an error", example)


def _compare_verdicts(
    score: Score, call: Recording, judged: Sequence[CallVerdict], file: int, writer: ExampleWriter
) -> None:
    """Count what the second set of contracts judges differently."""
    before, after = judged
    ways: list[tuple[str, Finding | None]] = []
    if (before.refusal is None) != (after.refusal is None):
        if not (before.masked or after.masked):  # the verdicts on the hidden value are unknown
            ways.append(("now refused" if after.refusal else "now runs", after.refusal or before.refusal))
    elif before.arguments is not None and after.arguments is not None and before.arguments != after.arguments:
        ways.append(("runs with other arguments", None))
    if before.output != after.output:
        ways.append((f"answer {before.output} -> {after.output}", after.fault or before.fault))
    for way, finding in ways:
        tool = writer.tool_name(before).partition("@")[0]
        add_count(score.changes.setdefault(way, {}), tool)
        kept = score.changed.setdefault(way, [])
        if len(kept) < EXAMPLES:
            shown = call.output if way.startswith("answer") else call.arguments
            kept.append(writer.build_example(call, before, tool if finding is None else finding, shown, file=file))


def declared_fields(schema: Any) -> Iterator[str]:
    """Yield the fields a schema declares, as paths: `/flights/*/date`."""
    waiting: list[tuple[str, Any, int]] = [("", schema, 0)]
    found = 0
    while waiting and found < _MOST_FIELDS:
        path, node, depth = waiting.pop()
        if not is_object(node) or depth > _DEEPEST:
            continue
        properties = node.get("properties")
        for name, inner in properties.items() if is_object(properties) else ():
            found += 1
            yield f"{path}/{name}"
            waiting.append((f"{path}/{name}", inner, depth + 1))
        if "items" in node:
            waiting.append((f"{path}/*", node["items"], depth + 1))


def _present_fields(value: Any) -> Iterator[str]:
    """Yield the fields of a value, as the same paths."""
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting:
        path, node, depth = waiting.pop()
        if depth > _DEEPEST:
            continue
        if is_object(node):
            for name, inner in node.items():
                yield f"{path}/{name}"
                waiting.append((f"{path}/{name}", inner, depth + 1))
        elif is_array(node):
            waiting += [(f"{path}/*", inner, depth + 1) for inner in node[:_MOST_FIELDS]]
