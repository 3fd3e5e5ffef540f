"""The bounded search for corrections: one issue, its proposals, the proof, the next issue.

In: a value with issues, and the allowed classes of correction.
Out: the corrected value with its corrections, and the issues that are left.
Never: a step without a proof on the whole value. Proposals may therefore be generous: the validator alone decides about
unions, conditions and counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, islice
from typing import Any

import msgspec

from pokayoke.core.call import Correction, CorrectionKind, Finding
from pokayoke.core.check.findings import Issue, describe_issue, find_issues
from pokayoke.core.contract.correctors import Correctors
from pokayoke.core.correct.field_names import MAX_UNKNOWN, NEAR_KEYWORD, misspelt_fields, nearest_field
from pokayoke.core.correct.proposals import LIST_RULE, Proposal, is_word_for_nothing, propose_values, read_object
from pokayoke.core.json.pointer import (
    Path,
    get_at,
    parse_pointer,
    to_field_path,
    to_pointer,
    with_renamed_field,
    with_value_at,
    without_field,
)
from pokayoke.core.json.values import equal_json, is_object
from pokayoke.core.schema.explain import Effort
from pokayoke.core.schema.facts import facts_at
from pokayoke.core.schema.problems import MAX_PROBLEMS
from pokayoke.core.schema.schema import Schema
from pokayoke.core.text.clip import clip

MAX_CORRECTIONS = 256
"""Most corrections of one value."""
MAX_ROUNDS = 8
"""Most passes over the issues; a correction may reveal issues inside."""
MAX_TRIALS = 1_000
"""Most validations of one value, proposals included."""
MIN_TRIALS = 16
MAX_WORK = 1_000_000
"""Most bytes validated for one value: a large value gets fewer trials, but at least `MIN_TRIALS`."""
MAX_STEPS = 100_000
"""Most steps of explanation for one value, so that a schema of many variants ends in time too."""

_ORDER: tuple[CorrectionKind, ...] = ("equivalent", "declared", "likely")
_NAME_CODES = frozenset({"missing_field", "unknown_field"})
_VALUE_CODES = frozenset({"wrong_type", "not_in_enum", "bad_format", "schema_mismatch"})
_TEXT_CODES = frozenset({"bad_pattern", "too_short"})
"""Codes of texts that nothing corrects, but that may be a word for nothing."""
_ENVELOPES = frozenset({"arguments", "args", "input", "parameters", "params", "kwargs", "tool_input"})
_ROOT = "arguments"
_MAX_SHOWN = 120
_MAX_SWAPPED = 6
"""Most issues whose pairs are checked for swapped values."""
_NAMES = frozenset({"name", "tool", "function", "tool_name"})


FieldMatch = tuple[str, CorrectionKind] | None


class CorrectionStep(msgspec.Struct, frozen=True, gc=False):
    """One possible change of the whole value.

    Attributes:
        value: the whole value after the step.
        path: the place that must be valid afterwards.
        corrections: the corrections of the step for the trace; a renamed field may need another spelling too.
        kind: the class of the least certain correction.
        suggestion: a sentence that suggests the step to the model.
    """

    value: Any
    path: Path
    corrections: tuple[Correction, ...]
    kind: CorrectionKind
    suggestion: str


class CorrectionRun:
    """The state of correcting one value.

    Attributes:
        value: the current value.
        corrections: the changes so far.
        issues: the issues that are left.
    """

    def __init__(
        self,
        value: Any,
        schema: Schema,
        *,
        name: str,
        is_open: bool,
        kinds: tuple[CorrectionKind, ...],
        correctors: Correctors | None,
        canonical: bytes | None,
    ) -> None:
        """Find the issues of a value. `canonical` is its dump if the strict parser made it."""
        self.value: Any = value
        self.corrections: list[Correction] = []
        self._effort = Effort()
        self._schema = schema
        self._is_open = is_open
        self.issues = self._find_issues(value, parsed=canonical is not None)
        self._name = name
        self._kinds = kinds
        self._correctors = correctors
        self._trials = max(MIN_TRIALS, min(MAX_TRIALS, MAX_WORK // _json_size(value, canonical)))
        self._not_allowed: dict[tuple[Path, str], CorrectionStep] = {}
        self._failed: dict[tuple[str, str], Finding] = {}
        self._named: tuple[object, dict[str, FieldMatch]] | None = None

    def run(self) -> None:
        """Correct until no issue is left, a pass changes nothing, or a bound is reached."""
        self._unwrap_envelope()
        swapped = self._find_swapped()
        for _ in range(MAX_ROUNDS):
            before = len(self.corrections)
            for group in self._group_alike():
                self._settle_group(group)
            found = self.issues
            for issue in found:
                if swapped and issue.key in swapped:
                    continue
                if len(self.corrections) < MAX_CORRECTIONS and (self.issues is found or self._is_left(issue)):
                    self._settle_issue(issue)
            if not self.issues or len(self.corrections) == before:
                return

    def remaining_findings(self) -> list[Finding]:
        """Return the findings that are left, with corrections of other classes as hints, and failed user code."""
        found = list(self._failed.values())
        for issue in self.issues:
            step = self._not_allowed.get(issue.key) if self._not_allowed else None
            if step is None:
                found.append(describe_issue(issue, self._schema))
                continue
            finding = describe_issue(issue, self._schema, suggestion=step.suggestion)
            change = step.corrections[-1]
            extra = {"suggestion": change.after, "rule": change.rule, "class": change.kind}
            found.append(msgspec.structs.replace(finding, data={**finding.data, **extra}))
        return found

    def _is_left(self, issue: Issue) -> bool:
        return any(issue.key == other.key for other in self.issues)

    def _unwrap_envelope(self) -> None:
        """Replace an envelope by its arguments if it holds nothing else with a meaning."""
        whole = self.value
        if not self.issues or not is_object(whole) or _ENVELOPES.isdisjoint(whole):
            return
        inner = [key for key in whole if key in _ENVELOPES]
        names = [key for key in whole if key in _NAMES and whole[key] == self._name]
        if len(inner) != 1 or len(names) + 1 != len(whole):
            return
        known = facts_at(self._schema, ()).properties
        if any(key in known for key in whole):
            return
        inner_value = read_object(whole[inner[0]])
        if inner_value is None or not (any(key in known for key in inner_value) or self._schema.accepts(inner_value)):
            return
        if "equivalent" in self._kinds:
            self.corrections.append(Correction("", "envelope", whole, inner_value))
            self.value, self.issues = inner_value, self._find_issues(inner_value)

    def _find_swapped(self) -> set[tuple[Path, str]]:
        """Return the issues of field pairs that would be valid with swapped values; which is right is unknown."""
        alone = [issue for issue in self.issues if issue.code in _VALUE_CODES and issue.path]
        found: set[tuple[Path, str]] = set()
        for one, other in combinations(alone[:_MAX_SWAPPED], 2):
            if one.path[:-1] == other.path[:-1] and one.path != other.path:
                first, second = get_at(self.value, one.path), get_at(self.value, other.path)
                left = self._remaining_issues(
                    with_value_at(with_value_at(self.value, one.path, second), other.path, first)
                )
                if left is not None and not {one.path, other.path} & {issue.path for issue in left}:
                    found |= {one.key, other.key}
        return found

    def _settle_issue(self, issue: Issue) -> None:
        """Take the only step that settles an issue, or hold it for the hint if its class is not allowed."""
        steps = self._propose_steps(issue)
        if not steps and self._correctors is None:
            return
        for kind in _ORDER:
            found = self._declared_steps(issue) if kind == "declared" else [step for step in steps if step.kind == kind]
            accepted = self._accepted_steps(issue, found)
            if len(accepted) == 1:
                step, left = accepted[0]
                if self._is_list_in_list(step.path, step.corrections[-1].rule):
                    return
                if kind in self._kinds and not (kind == "likely" and issue.problem.keyword == NEAR_KEYWORD):
                    self.value, self.issues = step.value, left
                    self.corrections.extend(step.corrections)
                else:
                    self._not_allowed[issue.key] = step
            if accepted:
                return

    def _accepted_steps(
        self, issue: Issue, steps: Iterable[CorrectionStep]
    ) -> list[tuple[CorrectionStep, tuple[Issue, ...]]]:
        """Return the steps with different results that settle an issue, with the issues that each leaves."""
        accepted: list[tuple[CorrectionStep, tuple[Issue, ...]]] = []
        for step in steps:
            if not any(equal_json(step.value, other.value) for other, _ in accepted):
                left = self._prove_step(issue, step)
                if left is not None:
                    accepted.append((step, left))
        return accepted

    def _group_alike(self) -> list[list[Issue]]:
        """Return groups of issues that items of one list have in common: one slip of the model, repeated."""
        groups: dict[tuple[Path, str], list[Issue]] = {}
        for issue in self.issues:
            if issue.code in _VALUE_CODES and any(map(str.isdecimal, issue.path)):
                pattern = tuple("*" if step.isdecimal() else step for step in issue.path)
                groups.setdefault((pattern, issue.code), []).append(issue)
        return [group for group in groups.values() if len(group) > 1]

    def _settle_group(self, group: list[Issue]) -> None:
        """Settle alike issues with one proof; those with several proposals are settled one by one later."""
        whole = self.value
        taken: list[Correction] = []
        kinds = self._kinds if self._correctors is None else ("equivalent",)  # declared corrections come before guesses
        for issue in group[: MAX_CORRECTIONS - len(self.corrections)]:
            value = get_at(self.value, issue.path)
            found = list(propose_values(value, facts_at(self._schema, issue.path), self._schema))
            if not found or found[0].kind not in kinds or self._is_list_in_list(issue.path, found[0].rule):
                continue
            if all(equal_json(found[0].after, other.after) for other in found):
                whole = with_value_at(whole, issue.path, found[0].after)
                taken.append(Correction(to_pointer(issue.path), found[0].rule, value, found[0].after, found[0].kind))
        left = self._remaining_issues(whole) if taken else None
        if left is not None and self._is_no_worse(left, [parse_pointer(item.at) for item in taken]):
            self.value, self.issues = whole, left
            self.corrections.extend(taken)

    def _prove_step(self, issue: Issue, step: CorrectionStep) -> tuple[Issue, ...] | None:
        """Return the issues left after a step, or None if it does not settle its place or harms another."""
        left = self._remaining_issues(step.value)
        if left is None or any(other.key == issue.key for other in left):
            return None
        return left if self._is_no_worse(left, [step.path]) else None

    def _remaining_issues(self, value: Any) -> tuple[Issue, ...] | None:
        """Return the issues of a value, or None if the trials or the steps are used up."""
        self._trials -= 1
        if self._trials < 0 or self._effort.steps > MAX_STEPS:
            return None
        return self._find_issues(value)

    def _find_issues(self, value: Any, *, parsed: bool = False) -> tuple[Issue, ...]:
        """Return what breaks the schema, and the names in open objects that are near a declared one."""
        found = find_issues(value, self._schema, parsed=parsed, effort=self._effort)
        if not self._is_open or any(issue.code == "not_json" for issue in found):
            return found
        known = {issue.key for issue in found}
        near = islice(misspelt_fields(value, self._schema), MAX_PROBLEMS)
        return (*found, *[issue for issue in near if issue.key not in known])

    def _is_no_worse(self, left: tuple[Issue, ...], changed: list[Path]) -> bool:
        """Return whether the changed places are valid and no other place got worse.

        Parts inside a changed place may still need a step of their own. A truncated list of issues shows new ones when
        others are gone; then only the end result counts.
        """
        known = {other.key for other in self.issues}
        places = set(changed)
        cut = len(self.issues) >= MAX_PROBLEMS
        for other in left:
            inside = any(other.path[:depth] in places for depth in range(len(other.path)))
            if other.path in places or not (inside or cut or other.key in known):
                return False
        return True

    def _propose_steps(self, issue: Issue) -> list[CorrectionStep]:
        """Return the steps that the rules propose for an issue."""
        if issue.code in _NAME_CODES:
            return list(self._rename_steps(issue))
        if issue.code not in _VALUE_CODES and issue.code not in _TEXT_CODES:
            return []
        value = get_at(self.value, issue.path)
        steps = list(self._omit_nothing(issue.path, value)) if issue.path and is_word_for_nothing(value) else []
        if issue.code in _VALUE_CODES:
            steps.extend(self._spelling_steps(self.value, issue.path, value))
        return steps

    def _declared_steps(self, issue: Issue) -> Iterator[CorrectionStep]:
        """Yield the steps of the contract's own correctors; the failures are recorded."""
        if self._correctors is None or issue.code in _NAME_CODES or issue.code == "not_json":
            return
        value = get_at(self.value, issue.path)
        answers, failures = self._correctors.correct_value(issue.path, value)
        self._failed.update({(finding.at, finding.message): finding for finding in failures})
        for rule, after in answers:
            yield _replacement_step(self.value, issue.path, value, Proposal(rule, "declared", after))

    def _spelling_steps(self, whole: Any, path: Path, value: Any) -> Iterator[CorrectionStep]:
        for proposal in propose_values(value, facts_at(self._schema, path), self._schema):
            yield _replacement_step(whole, path, value, proposal)

    def _is_list_in_list(self, path: Path, rule: str) -> bool:
        """Return whether a rule would wrap an item of a list into a list: its list may lack another level instead."""
        return rule == LIST_RULE and isinstance(get_at(self.value, path[:-1]), list)

    def _omit_nothing(self, path: Path, value: Any) -> Iterator[CorrectionStep]:
        """Yield the step that leaves out an optional property whose value says that there is none.

        That is null, or a word for it; a word is *likely*, because the model may have meant it as a text.
        """
        parent = facts_at(self._schema, path[:-1])
        holder = get_at(self.value, path[:-1])
        if isinstance(holder, dict) and path[-1] in parent.properties and path[-1] not in parent.required:
            kind: CorrectionKind = "equivalent" if value is None else "likely"
            correction = Correction(to_pointer(path), "absent_from_null", value, None, kind)
            suggestion = f"Leave `{to_field_path(path, _ROOT)}` out if it has no value."
            yield CorrectionStep(without_field(self.value, path), path, (correction,), kind, suggestion)

    def _rename_steps(self, issue: Issue) -> Iterator[CorrectionStep]:
        """Yield the steps that rename a field, if one wrong name matches one field and no other does."""
        parent = issue.path[:-1]
        entries: dict[str, Any] = get_at(self.value, parent)
        fields = facts_at(self._schema, parent).properties
        matches = self._match_unknown_names(entries, fields)
        for key, found in matches.items():
            if found is None or issue.path[-1] not in (key, found[0]):
                continue
            if sum(its is not None and its[0] == found[0] for its in matches.values()) == 1:
                yield from self._steps_after_rename((*parent, key), *found)

    def _match_unknown_names(self, entries: dict[str, Any], fields: tuple[str, ...]) -> dict[str, FieldMatch]:
        """Return what each unknown name of an object can mean, cached; {} if there are too many."""
        if self._named is None or self._named[0] is not entries:
            unknown = [key for key in entries if key not in fields]
            found = {key: nearest_field(key, fields, entries) for key in unknown} if len(unknown) <= MAX_UNKNOWN else {}
            self._named = (entries, found)
        return self._named[1]

    def _steps_after_rename(self, path: Path, name: str, kind: CorrectionKind) -> Iterator[CorrectionStep]:
        """Yield the step with the renamed field, and, if its value does not fit, steps with other spellings of it."""
        target = (*path[:-1], name)
        whole = with_renamed_field(self.value, path, name)
        correction = Correction(to_pointer(target), "field_name", path[-1], name, kind)
        suggestion = f"Did you mean `{to_field_path(target, _ROOT)}`? Send it under that name."
        yield CorrectionStep(whole, target, (correction,), kind, suggestion)
        if any(other.path == target for other in self._remaining_issues(whole) or ()):
            for step in self._spelling_steps(whole, target, get_at(whole, target)):
                worst = _ORDER[max(_ORDER.index(kind), _ORDER.index(step.kind))]
                yield CorrectionStep(step.value, target, (correction, *step.corrections), worst, suggestion)


def _replacement_step(whole: Any, path: Path, value: Any, proposal: Proposal) -> CorrectionStep:
    correction = Correction(to_pointer(path), proposal.rule, value, proposal.after, proposal.kind)
    shown = clip(msgspec.json.encode(proposal.after).decode(), _MAX_SHOWN)
    suggestion = f"Send `{to_field_path(path, _ROOT)}` as {shown} if that is what you mean."
    return CorrectionStep(with_value_at(whole, path, proposal.after), path, (correction,), proposal.kind, suggestion)


def _json_size(value: Any, canonical: bytes | None) -> int:
    """Return the size of a value in bytes; a value without a dump counts as too large."""
    if canonical is not None:
        return len(canonical)
    try:
        return len(msgspec.json.encode(value))
    except Exception:  # noqa: BLE001 - no JSON value, so nothing will be corrected
        return MAX_WORK
