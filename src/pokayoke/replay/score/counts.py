"""Counts that can be merged: per tool and version the outcomes of its calls and answers, with examples.

In: verdicts.
Out: sums and rates, the same in whatever order and in however many parts they were added.
Never: unbounded memory: of too many names the first in alphabetical order are kept, the others counted together.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

OTHERS: Final = "(others)"
MOST_TOOLS: Final = 2_000
MOST_NAMES: Final = 200
EXAMPLES: Final = 3
MOST_UNREAD: Final = 10

Counts = dict[str, int]


class Example(msgspec.Struct, frozen=True):
    """One call for a person to check.

    Attributes:
        file: number of its recording, from 0.
        line: its line, from 1.
        at: JSON pointer to the place in question.
        message: one sentence: what, where, got, expected.
        shown: the arguments or the answer, shortened and without secrets.
    """

    file: int
    line: int
    at: str
    message: str
    shown: str


class ToolTally(msgspec.Struct):
    """The outcomes of the calls of one tool under one contract.

    Attributes:
        known: True if a contract has the name.
        calls: all of them.
        read: those whose arguments could be read and may run as read.
        allowed: those that would have run.
        corrected: those that fit after a correction.
        repaired: those whose text was repaired.
        masked: refused because of values that the recording hides; not counted as refused.
        truths: calls whose right arguments are known.
        ran_right: ran with the right arguments; ran_wrong: with others, or should not have run.
        refused_right: refused, and the call was wrong; refused_wrong: refused although it was right.
        fixed: corrected calls whose right arguments are known; fixed_right: those with the right result.
        refused_failed: refused, and the recorded answer reports a failure.
        refused_worked: refused, and the recorded tool answered: perhaps too strict.
        outputs: recorded answers.
        valid, invalid, failed, unchecked: their verdicts.
        unseen: failures that would have passed as data.
        mentions: good answers that mention errors.
        refusals: refused calls by code of the first finding.
        faults: invalid answers by code.
        codes: every finding code, in addition to repairs and corrections.
        changes: repairs and correction rules that were used.
        words: failures by the tool's words, without digits.
        fields: declared argument fields that occurred.
        examples: a few calls for each kind of problem.
    """

    known: bool = False
    calls: int = 0
    read: int = 0
    allowed: int = 0
    corrected: int = 0
    repaired: int = 0
    masked: int = 0
    truths: int = 0
    ran_right: int = 0
    ran_wrong: int = 0
    refused_right: int = 0
    refused_wrong: int = 0
    fixed: int = 0
    fixed_right: int = 0
    refused_failed: int = 0
    refused_worked: int = 0
    outputs: int = 0
    valid: int = 0
    invalid: int = 0
    failed: int = 0
    unchecked: int = 0
    unseen: int = 0
    mentions: int = 0
    refusals: Counts = {}
    faults: Counts = {}
    codes: Counts = {}
    changes: Counts = {}
    words: Counts = {}
    fields: set[str] = set()
    examples: dict[str, list[Example]] = {}

    @property
    def refused(self) -> int:
        """Calls that would not have run."""
        return self.calls - self.allowed - self.masked

    def merge(self, other: ToolTally) -> None:
        """Add the counts of another instance."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _COUNTS:
            mine: Counts = getattr(self, name)
            theirs: Counts = getattr(other, name)
            for key, number in theirs.items():
                add_count(mine, key, number)
        self.fields |= other.fields
        for kind, found in other.examples.items():
            self.examples[kind] = merge_examples(self.examples.get(kind, []), found)

    def add_example(self, kind: str, example: Example) -> None:
        """Keep an example unless there are enough of its kind."""
        if self.needs_example(kind):
            self.examples.setdefault(kind, []).append(example)

    def needs_example(self, kind: str) -> bool:
        """True if an example of this kind would be kept."""
        return len(self.examples.get(kind, ())) < EXAMPLES


_COUNTS: Final = ("refusals", "faults", "codes", "changes", "words")
NUMBERS: Final = tuple(
    field.name
    for field in msgspec.structs.fields(ToolTally)
    if field.name not in (*_COUNTS, "known", "fields", "examples")
)


def add_count(counts: Counts, key: str, number: int = 1) -> None:
    """Add to a count. Of more than 200 names the first 200 in alphabetical order are kept.

    The names seen first would depend on where a recording is cut into parts; the first by their letters do not.
    """
    counts[key] = counts.get(key, 0) + number
    if len(counts) > MOST_NAMES and len(counts) - (OTHERS in counts) > MOST_NAMES:
        last = max(name for name in counts if name != OTHERS)
        counts[OTHERS] = counts.get(OTHERS, 0) + counts.pop(last)


def merge_examples(mine: list[Example], theirs: list[Example]) -> list[Example]:
    """Return the first few of both by file and line; those of one line stay in their order."""
    return sorted([*mine, *theirs], key=lambda one: (one.file, one.line))[:EXAMPLES]


class Tally(msgspec.Struct):
    """The outcomes of all calls under one set of contracts: per `name@version`, or the written name if none has it."""

    tools: dict[str, ToolTally] = {}

    def for_tool(self, name: str, *, is_known: bool = False) -> ToolTally:
        """Return the counts of one tool, created on first use; of too many unknown names as `add_count` does it."""
        if name in self.tools:
            return self.tools[name]
        if not is_known and name != OTHERS:
            unknown = [one for one, tally in self.tools.items() if not tally.known and one != OTHERS]
            if len(unknown) >= MOST_TOOLS:
                last = max(unknown)
                if name > last:
                    return self.tools.setdefault(OTHERS, ToolTally())
                self.tools.setdefault(OTHERS, ToolTally()).merge(self.tools.pop(last))
        return self.tools.setdefault(name, ToolTally(known=is_known))

    def merge(self, other: Tally) -> None:
        """Add the counts of another instance."""
        for name, tally in other.tools.items():
            self.for_tool(name, is_known=tally.known).merge(tally)

    def sum_tools(self) -> ToolTally:
        """Return the sum of all tools, without examples and fields."""
        total = ToolTally()
        for tally in self.tools.values():
            total.merge(msgspec.structs.replace(tally, fields=set(), examples={}))
        return total


class Score(msgspec.Struct):
    """Everything that was counted.

    Attributes:
        calls: recorded calls that were read.
        unread: lines, and calls on them, that could not be read.
        first_unread: the first few of them: file, line, why.
        tallies: one per set of contracts, in the order they were given.
        changes: with two sets: way -> tool -> count.
        changed: examples of them, by way.
    """

    calls: int = 0
    unread: int = 0
    first_unread: list[tuple[int, int, str]] = []
    tallies: list[Tally] = []
    changes: dict[str, Counts] = {}
    changed: dict[str, list[Example]] = {}

    def merge(self, other: Score) -> None:
        """Add the counts of another instance."""
        self.calls += other.calls
        self.unread += other.unread
        self.first_unread = sorted([*self.first_unread, *other.first_unread], key=lambda one: one[:2])[:MOST_UNREAD]
        for mine, theirs in zip(self.tallies, other.tallies, strict=True):
            mine.merge(theirs)
        for way, counts in other.changes.items():
            for tool, number in counts.items():
                add_count(self.changes.setdefault(way, {}), tool, number)
        for way, found in other.changed.items():
            self.changed[way] = merge_examples(self.changed.get(way, []), found)

    def number_lines(self, shift: int) -> None:
        """Add a number to those of all lines: a part of a file does not know how many lines are before it."""

        def move(found: dict[str, list[Example]]) -> dict[str, list[Example]]:
            return {
                kind: [msgspec.structs.replace(one, line=one.line + shift) for one in some]
                for kind, some in found.items()
            }

        self.first_unread = [(file, line + shift, why) for file, line, why in self.first_unread]
        self.changed = move(self.changed)
        for tally in self.tallies:
            for tool in tally.tools.values():
                tool.examples = move(tool.examples)


class ScoreRate(msgspec.Struct, frozen=True):
    """One rate: how many of how many; None of 0 is not a rate.

    Attributes:
        name: what it is.
        hits: how many.
        of: of how many.
        truth: True if it needs a truth, so that it can be missing.
    """

    name: str
    hits: int
    of: int
    truth: bool = False

    @property
    def share(self) -> float | None:
        """Hits divided by all, or None without any."""
        return self.hits / self.of if self.of else None

    def as_dict(self) -> dict[str, Any]:
        """Return the rate as JSON values."""
        return {"rate": self.share, "hits": self.hits, "of": self.of, "needs_truth": self.truth}


def compute_rates(tally: ToolTally) -> tuple[ScoreRate, ...]:
    """Return the four rates, with recall and output validity next to them."""
    wrong = tally.refused_right + tally.ran_wrong
    return (
        ScoreRate("parse success", tally.read, tally.calls),
        ScoreRate("correction success", tally.fixed_right, tally.fixed, truth=True),
        ScoreRate("refusal accuracy", tally.refused_right, tally.refused_right + tally.refused_wrong, truth=True),
        ScoreRate("refusal recall", tally.refused_right, wrong, truth=True),
        ScoreRate("wrong-call rate", tally.ran_wrong, tally.truths, truth=True),
        ScoreRate("output validity", tally.valid, tally.valid + tally.invalid),
    )
