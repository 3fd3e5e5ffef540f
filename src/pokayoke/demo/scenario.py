"""What a scenario is, and how its two runs are judged.

A scenario is a script of the model, a state of the world, and the effects the user wanted. Nothing
in it says what happens: both runs are really executed and then the databases and files are asked.
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
    """Leave the world as it is."""


def _no_harm(_: RunLog) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that goes wrong (or goes right), played against both loops.

    Attributes:
        name: short name, for `--only`.
        kind: the kind of failure, in a few words.
        prompt: what the user asks.
        turns: makes the script for a world; the same function serves both runs.
        wanted: the effects the user asked for, as `World.facts` spells them.
        prepare: brings the world into its state before the run.
        harm: names damage that is no effect in the world, from the log: an invented fact that was
            read, a run that stood still.
        window: tokens the model can see; None is no limit.
        good: True for calls that are right and must pass.
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


@dataclass(frozen=True, slots=True)
class Side:
    """What one of the two runs came to.

    Attributes:
        kept: wanted effects that happened.
        wrong: effects nobody wanted, and harm.
        lost: wanted effects that did not happen.
        calls: one entry per call: tool, status, what the model read, and for guarded calls the
            stop reason and the codes of the findings.
        answer: the last text, or None if there was none.
        stop_reason: what the run says about its end; None where nothing says anything.
        requests: how often the model was asked.
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
        """True if everything wanted happened and nothing else."""
        return not self.wrong and not self.lost


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A scenario and its two runs."""

    scenario: Scenario
    unguarded: Side
    guarded: Side


def judge_side(scenario: Scenario, happened: Counter[str], log: RunLog, *, requests: int, seconds: float) -> Side:
    """Compare what happened with what was wanted."""
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
    """Return the texts of the tools since the model last spoke: what it reads now."""
    latest = takewhile(lambda message: message.get("role") == "tool", reversed(messages))
    return "\n".join(reversed([str(message.get("content") or "") for message in latest]))


def retry_unless(evidence: str, turn: Any) -> Callable[[Sequence[Message]], Any]:
    """A model that looks whether it worked: it says so if it reads the evidence, else `turn` is next."""
    return lambda messages: "Done." if evidence in read_tool_texts(messages) else turn


def find_word(text: str, name: str) -> str | None:
    """A model that takes the word after a name out of whatever it reads."""
    found = re.search(rf"{name}\W+(\w+)", text)
    return found.group(1) if found else None


def find_number(text: str, names: str) -> float | None:
    """A model that takes the number after one of the names (separated by `|`) out of whatever it reads."""
    found = re.search(rf"(?:{names})\W+(\d+(?:\.\d+)?)", text)
    return float(found.group(1)) if found else None
