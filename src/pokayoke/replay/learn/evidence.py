"""Evidence: what the values of one place had in common, counted in bounded memory.

A value seen in one run only is one piece of evidence, however often that run repeated it: so everything is
counted in samples and in runs. Evidence of two halves can be merged.

In: JSON values and the names of their runs.
Out: counts, ranges, shapes and a bounded number of values.
Never: memory that grows with the number of values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final, cast

from pokayoke.core.json.values import kind_of
from pokayoke.core.redaction.known_secrets import is_hidden
from pokayoke.replay.learn.string_shapes import ShapePiece, common_shape, formats_of, shape_of

MOST_FIELDS: Final = 128
MOST_VALUES: Final = 100
_LONGEST_VALUE: Final = 60
_DEEPEST: Final = 12
_MOST_NODES: Final = 4_000
_NAMED_RUNS: Final = 16

_KINDS: Final[dict[type[Any], str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class OccurrenceCount:
    """How often something occurred, and in how many runs.

    The first few runs are known by name; beyond them only bounds of their number are known.

    Attributes:
        samples: how often.
        most_runs: in how many runs at most; runs that alternate count more than once.
    """

    __slots__ = ("_first", "_last", "most_runs", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self.most_runs = 0
        self._first: tuple[str, ...] = ()
        self._last: str | None = None

    @property
    def least_runs(self) -> int:
        """In how many runs at least; exact up to 16."""
        return len(self._first)

    def add(self, run: str) -> None:
        """Count one sample."""
        self.samples += 1
        if run != self._last and run not in self._first:
            self.most_runs += 1
            if len(self._first) < _NAMED_RUNS:
                self._first = (*self._first, run)
        self._last = run

    def merge(self, other: OccurrenceCount) -> None:
        """Add the counts of another instance."""
        self.samples += other.samples
        self.most_runs += other.most_runs - len(set(self._first) & set(other._first))
        self._first = tuple(dict.fromkeys((*self._first, *other._first)))[:_NAMED_RUNS]
        self._last = other._last


class TextEvidence:
    """The evidence about the texts of one place.

    Attributes:
        values: the first distinct texts, if they are short.
        untold: hashes of distinct texts beyond them, up to a limit.
        formats: the formats that all of them have; None before the first.
        shape: the shape they have in common; mixed: the same with letters and digits as one kind.
    """

    __slots__ = ("formats", "mixed", "shape", "untold", "values")

    def __init__(self) -> None:
        self.values: dict[str, OccurrenceCount] = {}
        self.untold: set[bytes] = set()
        self.formats: frozenset[str] | None = None
        self.shape: tuple[ShapePiece, ...] | None = None
        self.mixed: tuple[ShapePiece, ...] | None = None

    def add(self, text: str, run: str) -> None:
        """Add one text."""
        known = self.values.get(text)
        if known is not None:
            known.add(run)
            return
        first = self.formats is None
        self.formats = formats_of(text) if self.formats is None else self.formats and self.formats & formats_of(text)
        fine, mixed = shape_of(text), shape_of(text, mixed=True)
        self.shape = fine if first else common_shape(self.shape, fine)
        self.mixed = mixed if first else common_shape(self.mixed, mixed)
        if len(self.values) < MOST_VALUES and len(text) <= _LONGEST_VALUE:
            self.values[text] = OccurrenceCount()
            self.values[text].add(run)
        else:
            self._count_unkept(text)

    def merge(self, other: TextEvidence) -> None:
        """Add the evidence of another instance."""
        if other.formats is None:
            return
        first = self.formats is None
        self.formats = other.formats if self.formats is None else self.formats & other.formats
        self.shape = other.shape if first else common_shape(self.shape, other.shape)
        self.mixed = other.mixed if first else common_shape(self.mixed, other.mixed)
        self.untold = set(sorted(self.untold | other.untold)[:MOST_VALUES])
        for text, tally in other.values.items():
            if text in self.values or len(self.values) < MOST_VALUES:
                self.values.setdefault(text, OccurrenceCount()).merge(tally)
            else:
                self._count_unkept(text)

    def _count_unkept(self, text: str) -> None:
        """Count a text that is not kept, once however often it occurs."""
        if len(self.untold) < MOST_VALUES:
            self.untold.add(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())

    @property
    def distinct_count(self) -> int:
        """How many distinct texts there were, at least."""
        return len(self.values) + len(self.untold)


class Budget:
    """How many more places of one tool are watched; places beyond that are not examined."""

    __slots__ = ("left",)

    def __init__(self, nodes: int = _MOST_NODES) -> None:
        self.left = nodes

    def take_node(self) -> bool:
        """Take one; False if none is left."""
        self.left -= 1
        return self.left >= 0


class Evidence:
    """The evidence about the values of one place.

    Attributes:
        all: how often there was a value here.
        kinds: per JSON type, how often.
        low: smallest number; high: the largest.
        texts: of its strings.
        items: of the items of its arrays.
        fields: of the members of its objects, by name.
        anything: of all members together, once there were too many names to count separately.
        unwatched: True if something below was not examined (too deep, too much).
    """

    __slots__ = ("_budget", "all", "anything", "fields", "high", "items", "kinds", "low", "texts", "unwatched")

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self.all = OccurrenceCount()
        self.kinds: dict[str, OccurrenceCount] = {}
        self.low: float | None = None
        self.high: float | None = None
        self.texts = TextEvidence()
        self.items: Evidence | None = None
        self.fields: dict[str, Evidence] = {}
        self.anything: Evidence | None = None
        self.unwatched = False

    def add(self, value: Any, run: str, depth: int = 0) -> None:
        """Add one value.

        Args:
            value: a JSON value.
            run: name of its run.
            depth: its depth.
        """
        self.all.add(run)
        if is_hidden(value):
            return  # it was there, but the recording hides its value
        kind = _KINDS.get(kind_of(value), "null")
        self.kinds.setdefault(kind, OccurrenceCount()).add(run)
        if kind == "string":
            self.texts.add(value, run)
        elif kind in ("integer", "number"):
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)
        elif kind in ("array", "object"):
            if depth >= _DEEPEST:
                self.unwatched = True
            elif kind == "array":
                self._add_items(cast("list[Any]", value), run, depth)
            else:
                self._add_members(cast("dict[str, Any]", value), run, depth)

    def _add_items(self, items: list[Any], run: str, depth: int) -> None:
        for item in items:
            if self.items is None:
                if not self._budget.take_node():
                    self.unwatched = True
                    return
                self.items = Evidence(self._budget)
            self.items.add(item, run, depth + 1)

    def _add_members(self, members: dict[str, Any], run: str, depth: int) -> None:
        for name, value in members.items():
            if self.anything is not None:
                self.anything.add(value, run, depth + 1)
                continue
            known = self.fields.get(name)
            if known is None:
                if not self._budget.take_node():
                    self.unwatched = True
                    continue
                known = self.fields[name] = Evidence(self._budget)
            known.add(value, run, depth + 1)
        if len(self.fields) > MOST_FIELDS:
            self.anything = self.combine_members()
            self._budget.left += len(self.fields)
            self.fields = {}

    def combine_members(self) -> Evidence:
        """Return the evidence of all members, as if they had one name."""
        if self.anything is not None:
            return self.anything
        whole = Evidence(Budget())
        for member in self.fields.values():
            whole.merge(member)
        return whole

    def merge(self, other: Evidence) -> None:
        """Add the evidence of another instance."""
        self.all.merge(other.all)
        for kind, tally in other.kinds.items():
            self.kinds.setdefault(kind, OccurrenceCount()).merge(tally)
        for bound in (other.low, other.high):
            if bound is not None:
                self.low = bound if self.low is None else min(self.low, bound)
                self.high = bound if self.high is None else max(self.high, bound)
        self.texts.merge(other.texts)
        self.unwatched = self.unwatched or other.unwatched
        if other.items is not None:
            self.items = self.items or Evidence(self._budget)
            self.items.merge(other.items)
        self._merge_members(other)

    def _merge_members(self, other: Evidence) -> None:
        if self.anything is not None or other.anything is not None:
            whole = self.combine_members()
            whole.merge(other.combine_members())
            self.anything, self.fields = whole, {}
            return
        for name, member in other.fields.items():
            self.fields.setdefault(name, Evidence(self._budget)).merge(member)

    def object_count(self) -> int:
        """Return how many objects there were."""
        found = self.kinds.get("object")
        return 0 if found is None else found.samples

    def __iter__(self) -> Iterator[tuple[str, Evidence]]:
        """Iterate over its members by name."""
        return iter(self.fields.items())
