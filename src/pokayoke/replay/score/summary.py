"""A score as one plain value, which the terminal, `--json` and the page show.

In: a score.
Out: JSON values.
Never: formatting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.replay.score.counts import Counts, Example, Score, Tally, ToolTally, compute_rates
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.scorer import declared_fields

_MOST_WORDS: Final = 50
_SHOWN_NUMBERS: Final = (
    "calls",
    "allowed",
    "refused",
    "corrected",
    "repaired",
    "masked",
    "truths",
    "ran_right",
    "ran_wrong",
    "refused_right",
    "refused_wrong",
    "refused_failed",
    "refused_worked",
    "outputs",
    "valid",
    "invalid",
    "failed",
    "unchecked",
    "unseen",
    "mentions",
)


class ContractSet(msgspec.Struct, frozen=True):
    """One set of contracts.

    Attributes:
        label: its name in reports.
        judge: decides by them.
        modules: the `module:attribute` names they come from, for workers that have to import them.
    """

    label: str
    judge: Judge
    modules: tuple[str, ...] = ()


def build_summary(score: Score, files: Sequence[str], sets: Sequence[ContractSet]) -> dict[str, Any]:
    """Return everything a report shows, as JSON values.

    Args:
        score: the counts.
        files: names of the recordings, in the order they were added.
        sets: the sets of contracts, in the order of the tallies.
    """
    shown = [_set_summary(tally, one, files) for tally, one in zip(score.tallies, sets, strict=True)]
    return {
        "recordings": list(files),
        "calls": score.calls,
        "unread": score.unread,
        "first_unread": [
            {"at": _line_reference(file, line, files), "why": why} for file, line, why in score.first_unread
        ],
        "contracts": shown,
        "changes": sorted(
            (_change_summary(way, score, files) for way in score.changes),
            key=lambda one: (-int(one["count"]), str(one["way"])),
        ),
    }


def _change_summary(way: str, score: Score, files: Sequence[str]) -> dict[str, Any]:
    tools = score.changes[way]
    examples = _example_dicts(score.changed.get(way, []), files)
    return {"way": way, "count": sum(tools.values()), "tools": _sort_by_count(tools), "examples": examples}


def is_clean(shown: dict[str, Any]) -> bool:
    """Return whether a person has nothing to check: all was read, nothing refused, invalid or judged differently."""
    sets: list[dict[str, Any]] = shown["contracts"]
    return not shown["unread"] and not shown["changes"] and not any(one["refused"] or one["invalid"] for one in sets)


def _set_summary(tally: Tally, given: ContractSet, files: Sequence[str]) -> dict[str, Any]:
    whole = tally.sum_tools()
    contracts = {one.id: one for one in given.judge.contracts}
    tools = [_tool_summary(name, found, contracts.get(name), files) for name, found in sorted(tally.tools.items())]
    declared = {name: set(declared_fields(one.input_schema)) for name, one in contracts.items()}
    seen = sum(len(found.fields) for found in tally.tools.values())
    never = sorted(name for name in contracts if name not in tally.tools)
    return {
        "label": given.label,
        **_tally_numbers(whole),
        "rates": {rate.name: rate.as_dict() for rate in compute_rates(whole)},
        "refusals": _sort_by_count(whole.refusals),
        "faults": _sort_by_count(whole.faults),
        "changes": _sort_by_count(whole.changes),
        "coverage": {
            "tools": {"seen": len(contracts) - len(never), "of": len(contracts), "never": never},
            "fields": {"seen": seen, "of": sum(map(len, declared.values()))},
            "codes": _sort_by_count(whole.codes),
        },
        "tools": tools,
    }


def _tool_summary(name: str, found: ToolTally, contract: Contract | None, files: Sequence[str]) -> dict[str, Any]:
    declared = set[str]() if contract is None else set(declared_fields(contract.input_schema))
    return {
        "tool": name,
        "known": contract is not None,
        "effect": None if contract is None else contract.effect,
        **_tally_numbers(found),
        "rates": {rate.name: rate.as_dict() for rate in compute_rates(found)},
        "refusals": _sort_by_count(found.refusals),
        "faults": _sort_by_count(found.faults),
        "errors": _sort_by_count(found.words, _MOST_WORDS),
        "fields": {"seen": len(found.fields), "of": len(declared), "never": sorted(declared - found.fields)},
        "examples": {kind: _example_dicts(some, files) for kind, some in sorted(found.examples.items())},
    }


def _tally_numbers(tally: ToolTally) -> dict[str, int]:
    return {name: getattr(tally, name) for name in _SHOWN_NUMBERS}


def _sort_by_count(counts: Counts, most: int | None = None) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most])


def _example_dicts(found: Sequence[Example], files: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"where": _line_reference(one.file, one.line, files), "at": one.at, "message": one.message, "shown": one.shown}
        for one in found
    ]


def _line_reference(file: int, line: int, files: Sequence[str]) -> str:
    return f"{files[file]}:{line}"
