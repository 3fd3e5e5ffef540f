"""Scenarios, and the judgement on their two runs.

A scenario is a script of the model, a state of the world, and the effects the user wanted. Its outcome is measured:
both runs are executed, and then the databases and files are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pokayoke.demo.endpoint import Message, RunLog
from pokayoke.demo.world import World

Turns = Callable[[World], Sequence[Any]]


def _leave_world(_: World) -> None:
    """Change nothing."""


def _no_harm(_: RunLog) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that goes wrong (or right), run against both loops.

    Attributes:
        name: short name, for `--only`.
        kind: the kind of failure, in a few words.
        prompt: what the user asks.
        turns: returns the script for a world; the same function serves both runs.
        wanted: the effects the user asked for, as `World.read_facts` spells them.
        prepare: brings the world into its state before the run.
        harm: returns damage that is no effect in the world, from the log: an invented fact that was
            read, a run that hung.
        window: tokens the model can see; None is no limit.
        good: True for correct calls, which must pass.
        untrusted: the guard's `untrusted.mode`; None leaves the default.
    """

    name: str
    kind: str
    prompt: str
    turns: Turns
    wanted: tuple[str, ...] = ()
    prepare: Callable[[World], None] = _leave_world
    harm: Callable[[RunLog], list[str]] = _no_harm
    window: int | None = None
    good: bool = False
    untrusted: str | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """The result of one of the two runs.

    Attributes:
        kept: wanted effects that happened.
        wrong: unwanted effects, and harm.
        lost: wanted effects that did not happen.
        calls: one entry per call: tool, status, what the model read, and for guarded calls the
            stop reason and the codes of the findings.
        answer: the last text, or None if there was none.
        stop_reason: the run's reason for its end; None without one.
        requests: number of requests to the model.
        seconds: how long it took.
    """

    kept: tuple[str, ...]
    wrong: tuple[str, ...]
    lost: tuple[str, ...]
    calls: tuple[Mapping[str, Any], ...] = ()
    answer: str | None = None
    stop_reason: str | None = None
    requests: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """True if exactly what was wanted happened."""
        return not self.wrong and not self.lost


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A scenario and its two runs."""

    scenario: Scenario
    unguarded: Side
    guarded: Side


def judge_side(scenario: Scenario, happened: Counter[str], log: RunLog, *, requests: int, seconds: float) -> Side:
    """Return what happened, compared with what was wanted."""
    wanted = Counter(scenario.wanted)
    harm = [*scenario.harm(log)]
    if log.crash:
        harm.append(f"the agent's process ended: {log.crash}")
    elif log.answer is None:
        harm.append(f"no answer after {requests} requests to the model")
    return Side(
        kept=_effect_lines(happened & wanted),
        wrong=(*_effect_lines(happened - wanted), *harm),
        lost=_effect_lines(wanted - happened),
        calls=tuple(log.calls),
        answer=log.answer,
        stop_reason=log.stop_reason,
        requests=requests,
        seconds=seconds,
    )


def _effect_lines(effects: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(effects.elements()))


def read_tool_texts(messages: Sequence[Message]) -> str:
    """Return the texts of tools since the model's last message: what it reads now."""
    latest = takewhile(lambda message: message.get("role") == "tool", reversed(messages))
    return "\n".join(reversed([str(message.get("content") or "") for message in latest]))


def retry_unless(evidence: str, turn: Any) -> Callable[[Sequence[Message]], Any]:
    """Return a turn of a model that checks for success: it reports it if it reads the evidence, else `turn` is next."""
    return lambda messages: "Done." if evidence in read_tool_texts(messages) else turn


def find_word(text: str, name: str) -> str | None:
    """Return the word after a name in a text, as a model would pick it."""
    found = re.search(rf"{name}\W+(\w+)", text)
    return found.group(1) if found else None


def find_number(text: str, names: str) -> float | None:
    """Return the number after one of the names (separated by `|`) in a text, as a model would pick it."""
    found = re.search(rf"(?:{names})\W+(\d+(?:\.\d+)?)", text)
    return float(found.group(1)) if found else None
