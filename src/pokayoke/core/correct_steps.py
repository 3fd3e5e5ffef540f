"""The bounded loop of corrections: one issue, its proposals, the proof, the next issue.

Every step is proved on the whole value, so a proposal may be generous: unions, conditions and counts
that a rule does not understand are judged by the validator alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from pokayoke.core.call import Correction, CorrectionKind, Finding
from pokayoke.core.check import Issue, describe_issue, issues_of
from pokayoke.core.correct_names import nearest_field
from pokayoke.core.correct_rules import Proposal, proposals, read_object
from pokayoke.core.correctors import Correctors
from pokayoke.core.places import Path, facts_at, join, look_up, renamed, replaced, same, spoken, without
from pokayoke.core.schema import Schema

MAX_CORRECTIONS = 128
"""Most corrections of one value."""
MAX_ROUNDS = 8
"""Most passes over the issues; each correction may lay open what lies inside."""
MAX_TRIALS = 1_000
"""Most validations of one value, proposals included."""

_ORDER: tuple[CorrectionKind, ...] = ("equivalent", "declared", "likely")
_SPELLED = frozenset({"wrong_type", "not_in_enum", "bad_format", "schema_mismatch"})
_ENVELOPES = frozenset({"arguments", "args", "input", "parameters", "params", "kwargs", "tool_input"})
_ROOT = "arguments"
_MAX_SHOWN = 120
_NAMES = frozenset({"name", "tool", "function", "tool_name"})


class Step(msgspec.Struct, frozen=True):
    """One possible change of the whole value.

    Attributes:
        value: the whole value after it.
        path: the place that has to be in order afterwards.
        corrections: what the trace says; a renamed field may have needed another spelling too.
        kind: the class of the least certain of them.
        meant: a sentence that suggests it to the model.
    """

    value: Any
    path: Path
    corrections: tuple[Correction, ...]
    kind: CorrectionKind
    meant: str


class Work:
    """One value on its way to fit a schema.

    Attributes:
        value: the value as it is now.
        corrections: what was changed so far.
        issues: what is still wrong.
    """

    def __init__(
        self, value: Any, schema: Schema, *, name: str, kinds: tuple[CorrectionKind, ...], correctors: Correctors
    ) -> None:
        """Look at a value for the first time."""
        self.value = value
        self.corrections: list[Correction] = []
        self.issues = issues_of(value, schema)
        self._schema = schema
        self._name = name
        self._kinds = kinds
        self._correctors = correctors
        self._trials = MAX_TRIALS
        self._held: dict[tuple[Path, str], Step] = {}
        self._failed: dict[tuple[str, str], Finding] = {}

    def run(self) -> None:
        """Correct until nothing is wrong, nothing moves, or a bound is reached."""
        self._unwrap()
        for _ in range(MAX_ROUNDS):
            before = len(self.corrections)
            for issue in self.issues:
                if len(self.corrections) < MAX_CORRECTIONS and self._still(issue):
                    self._settle(issue)
            if not self.issues or len(self.corrections) == before:
                return

    def findings(self) -> Iterator[Finding]:
        """Yield what is still wrong, with what may not be done alone as a hint, and failed user code."""
        yield from self._failed.values()
        for issue in self.issues:
            held = self._held.get(issue.key)
            finding = describe_issue(issue, self._schema, suggestion=held.meant if held else "")
            if held:
                change = held.corrections[-1]
                extra = {"suggestion": change.after, "rule": change.rule, "class": change.kind}
                finding = msgspec.structs.replace(finding, data={**finding.data, **extra})
            yield finding

    def _still(self, issue: Issue) -> bool:
        return any(issue.key == other.key for other in self.issues)

    def _unwrap(self) -> None:
        """Open an envelope that holds exactly the arguments, and nothing else that could matter."""
        if not self.issues or not isinstance(self.value, dict):
            return
        whole = cast(dict[str, Any], self.value)
        known = facts_at(self._schema, ()).properties
        names = [key for key in whole if key in _NAMES and whole[key] == self._name]
        inner = [key for key in whole if key in _ENVELOPES]
        if len(inner) != 1 or len(names) + 1 != len(whole) or any(key in known for key in whole):
            return
        held = read_object(whole[inner[0]])
        if held is None or not (any(key in known for key in held) or self._schema.accepts(held)):
            return
        if "equivalent" in self._kinds:
            self.corrections.append(Correction("", "envelope", whole, held))
            self.value, self.issues = held, issues_of(held, self._schema)

    def _settle(self, issue: Issue) -> None:
        """Take the one step that settles an issue, hold it if its class is not allowed, or leave it."""
        steps = list(self._steps(issue))
        for kind in _ORDER:
            found = self._declared(issue) if kind == "declared" else [step for step in steps if step.kind == kind]
            accepted = self._accepted(issue, found)
            if len(accepted) == 1:
                step, left = accepted[0]
                if kind in self._kinds:
                    self.value, self.issues = step.value, left
                    self.corrections.extend(step.corrections)
                else:
                    self._held[issue.key] = step
            if accepted:
                return

    def _accepted(self, issue: Issue, steps: Iterable[Step]) -> list[tuple[Step, tuple[Issue, ...]]]:
        """Return the steps that settle an issue, different results only, with what each leaves open."""
        accepted: list[tuple[Step, tuple[Issue, ...]]] = []
        for step in steps:
            if not any(same(step.value, other.value) for other, _ in accepted):
                left = self._proof(issue, step)
                if left is not None:
                    accepted.append((step, left))
        return accepted

    def _proof(self, issue: Issue, step: Step) -> tuple[Issue, ...] | None:
        """Return what is left after a step, or None if it does not settle its place or harms another.

        What lies inside the changed place may still need a step of its own; everything else may not
        get worse.
        """
        if self._trials <= 0:
            return None
        self._trials -= 1
        left = issues_of(step.value, self._schema)
        known = {other.key for other in self.issues}
        depth = len(step.path)
        for other in left:
            inside = len(other.path) > depth and other.path[:depth] == step.path
            if other.key == issue.key or other.path == step.path or not (inside or other.key in known):
                return None
        return left

    def _steps(self, issue: Issue) -> Iterator[Step]:
        """Yield what the rules propose for an issue."""
        if issue.code in ("missing_field", "unknown_field"):
            yield from self._renames(issue)
            return
        value = look_up(self.value, issue.path)
        if value is None and issue.path:
            yield from self._absent(issue.path)
        if issue.code in _SPELLED:
            yield from self._spellings(self.value, issue.path)

    def _declared(self, issue: Issue) -> Iterator[Step]:
        """Yield what the contract's own correctors make of a value; those that fail are noted."""
        if issue.code in ("missing_field", "unknown_field", "not_json"):
            return
        value = look_up(self.value, issue.path)
        answers, failures = self._correctors.answers(issue.path, value)
        self._failed.update({(finding.at, finding.message): finding for finding in failures})
        for rule, after in answers:
            yield _replacement(self.value, issue.path, value, Proposal(rule, "declared", after))

    def _spellings(self, whole: Any, path: Path) -> Iterator[Step]:
        value = look_up(whole, path)
        for proposal in proposals(value, facts_at(self._schema, path), self._schema):
            yield _replacement(whole, path, value, proposal)

    def _absent(self, path: Path) -> Iterator[Step]:
        """Leave out an optional property that is null where the schema allows no null."""
        parent = facts_at(self._schema, path[:-1])
        holder = look_up(self.value, path[:-1])
        if isinstance(holder, dict) and path[-1] in parent.properties and path[-1] not in parent.required:
            correction = Correction(join(path), "absent_from_null", None, None)
            meant = f"Leave `{spoken(path, _ROOT)}` out if it has no value."
            yield Step(without(self.value, path), path, (correction,), "equivalent", meant)

    def _renames(self, issue: Issue) -> Iterator[Step]:
        """Give a field the name it was meant to have: one wrong name, one field, both ways."""
        parent = issue.path[:-1]
        holder = look_up(self.value, parent)
        if not isinstance(holder, dict):
            return
        entries = cast(dict[str, Any], holder)
        fields = facts_at(self._schema, parent).properties
        meant = {key: nearest_field(key, fields, entries) for key in entries if key not in fields}
        for key, found in meant.items():
            if found is None or issue.path[-1] not in (key, found[0]):
                continue
            if sum(its is not None and its[0] == found[0] for its in meant.values()) == 1:
                yield from self._renaming((*parent, key), *found)

    def _renaming(self, path: Path, name: str, kind: CorrectionKind) -> Iterator[Step]:
        """Yield the renamed field, as it is or, where it does not fit yet, in another spelling."""
        target = (*path[:-1], name)
        whole = renamed(self.value, path, name)
        correction = Correction(join(target), "field_name", path[-1], name, kind)
        meant = f"Did you mean `{spoken(target, _ROOT)}`? Send it under that name."
        yield Step(whole, target, (correction,), kind, meant)
        if any(other.path == target for other in issues_of(whole, self._schema)):
            for step in self._spellings(whole, target):
                worst = _ORDER[max(_ORDER.index(kind), _ORDER.index(step.kind))]
                yield Step(step.value, target, (correction, *step.corrections), worst, meant)


def _replacement(whole: Any, path: Path, value: Any, proposal: Proposal) -> Step:
    correction = Correction(join(path), proposal.rule, value, proposal.after, proposal.kind)
    shown = msgspec.json.encode(proposal.after).decode()
    shown = shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 1] + "…"
    meant = f"Send `{spoken(path, _ROOT)}` as {shown} if that is what you mean."
    return Step(replaced(whole, path, proposal.after), path, (correction,), proposal.kind, meant)
