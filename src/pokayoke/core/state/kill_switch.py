"""The kill switch: while the outputs of a tool are unusable, no run writes from them.

In: the latest outputs of a tool, and a new one.
Out: the new state of the switch.
Never: a switch that stays open because a probe died. Every run and process that shares a store shares its switches;
reads go on in every mode, so the next reads are the probes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from pokayoke.core.call import Effect, Finding

AUTOMATIC_ACTOR = "pokayoke"
"""Who flips a switch that no person flips."""
WINDOW_OUTPUTS = 50
"""Outputs a rate looks at."""
WINDOW_SECONDS = 900.0
"""How long an output is looked at."""
MIN_OUTPUTS = 10
"""Outputs below which a share says nothing."""
TRIP_SHARE = 0.3
"""Share of invalid outputs at which a tool's switch trips."""
TRIP_STREAK = 3
"""Invalid outputs one after the other at which it trips, however old the first is."""
_MIN_OUTPUTS_ALL_TOOLS, _TRIP_SHARE_ALL_TOOLS = 20, 0.2
_MIN_INVALID, _MIN_INVALID_ALL_TOOLS = 6, 8
"""So many have to be invalid for a share to count: of the few outputs of a quiet hour, three may be chance."""
_FIRST_PAUSE, _HOUR = 60.0, 3_600.0
"""Seconds before the first probe, doubled by each trip of the last hour."""
_TRIPS_PER_HOUR = 3
PROBES_TO_CLOSE = 5
"""Valid reads in a row that close a switch which is half open."""

ALL_TOOLS = "*"
"""The scope of the switch for all tools: while it is open, nothing is written."""

SwitchMode = Literal["closed", "open", "half_open"]


class Switch(msgspec.Struct, frozen=True, gc=False):
    """The switch of one scope. A scope without one is closed, in epoch 0.

    Args:
        scope: a tool's name, or `*` for everything.
        mode: closed, or open (writes refused). After a while an open one is half open: see `mode_at`.
        epoch: raised by each flip of any switch; a claim carries the epoch it was admitted in.
        since: wall-clock second of the last flip.
        valid: valid outputs in a row while half open.
        manual: True if only a person closes it.
        opened: wall-clock seconds of the trips of the last hour, oldest first.
        reason: why it was flipped.
        by: who flipped it; `pokayoke` if it tripped by itself.
    """

    scope: str
    mode: Literal["closed", "open"] = "closed"
    epoch: int = 0
    since: float = 0.0
    valid: int = 0
    manual: bool = False
    opened: tuple[float, ...] = ()
    reason: str = ""
    by: str = ""


class OutputRate(msgspec.Struct, frozen=True, gc=False):
    """The latest outputs of one tool.

    Args:
        tool: the tool's name.
        recent: wall-clock second and validity of each, oldest first.
        streak: invalid ones in a row.
    """

    tool: str
    recent: tuple[tuple[float, bool], ...] = ()
    streak: int = 0


class OutputObservation(msgspec.Struct, frozen=True, gc=False):
    """One output that reached the validator.

    Args:
        tool: the tool's name.
        valid: whether it kept its contract.
        at: wall-clock second at which its call began. One from before the last flip of its switch is not
            counted: it says nothing about what came after (as long as that flip does not lie ahead of now).
        read: True if the tool only reads; only reads are probes.
        run_id: the run it came in, if it matters.
    """

    tool: str
    valid: bool
    at: float
    read: bool = True
    run_id: str | None = None


class SwitchState(msgspec.Struct, frozen=True, gc=False):
    """All switches and rates, read while nobody else can change them.

    Args:
        rates: by tool.
        switches: by scope.
        doubtful: tools with an effect in doubt; their switches are closed by a person only.
    """

    rates: Mapping[str, OutputRate] = {}
    switches: Mapping[str, Switch] = {}
    doubtful: frozenset[str] = frozenset()

    @property
    def epoch(self) -> int:
        """How often any switch has flipped."""
        return max((switch.epoch for switch in self.switches.values()), default=0)


def count_outputs(board: SwitchState, seen: Iterable[OutputObservation], now: float) -> SwitchState:
    """Return the rates and switches that change because of these outputs, in the order they came."""
    rates: dict[str, OutputRate] = {}
    switches: dict[str, Switch] = {}
    valid: dict[str, int] = {}
    """By tool, the outputs that only add to its rate, which is done for all of them at once: nearly all are such."""
    for one in seen:
        switch = switches.get(one.tool) or board.switches.get(one.tool) or Switch(one.tool)
        # A flip whose time lies ahead, by a clock that was wrong, says nothing about what comes now.
        if one.at < switch.since <= now:
            continue
        if one.valid and switch.mode == "closed":
            valid[one.tool] = valid.get(one.tool, 0) + 1
            continue
        _add_valid(rates, board, valid, now)
        rate = rates[one.tool] = _add_outputs(_current_rate(rates, board, one.tool, now), one.valid, now)
        merged = SwitchState({**board.rates, **rates}, {**board.switches, **switches}, board.doubtful)
        after = _next_switch(merged, switch, rate, one, now)
        if after is not switch:
            switches[one.tool] = after
        if after.mode != switch.mode:
            rates[one.tool] = OutputRate(one.tool)
        everything = merged.switches.get(ALL_TOOLS, Switch(ALL_TOOLS))
        if not one.valid and everything.mode == "closed":
            why = _all_tools_reason(merged.rates, now)
            if why:
                epoch = max(merged.epoch, after.epoch)
                switches[ALL_TOOLS] = _build_tripped_switch(everything, why, now, epoch, manual=True)
    _add_valid(rates, board, valid, now)
    return SwitchState(rates, switches)


def flip_switch(
    board: SwitchState, scope: str, mode: Literal["open", "closed"], *, by: str, reason: str, now: float
) -> SwitchState:
    """Return the switch that a person has flipped, and the rates it looked at, which begin anew.

    They begin by being forgotten and not by the second of the flip: who flips may have another clock than who counts.
    """
    switch = Switch(scope, mode, board.epoch + 1, now, manual=mode == "open", reason=reason, by=by)
    rates = {tool: OutputRate(tool) for tool in board.rates if scope in (ALL_TOOLS, tool)}
    return SwitchState(rates, {scope: switch})


def first_probe_at(switch: Switch) -> float | None:
    """The wall-clock second from which on valid reads close a switch; None if it is closed, or a person has to."""
    if switch.mode == "closed" or switch.manual:
        return None
    return switch.since + min(_FIRST_PAUSE * float(2 ** (len(switch.opened) - 1)), _HOUR)


def mode_at(switch: Switch, at: float) -> SwitchMode:
    """The mode at a wall-clock second: an open switch that may close by itself is half open after its pause."""
    second = first_probe_at(switch)
    return switch.mode if second is None or at < second else "half_open"


def _drop_old_outputs(rate: OutputRate, now: float) -> OutputRate:
    """The rate without what is too old to count."""
    young = tuple(entry for entry in rate.recent if entry[0] > now - WINDOW_SECONDS)
    return rate if len(young) == len(rate.recent) else OutputRate(rate.tool, young, rate.streak)


def _current_rate(rates: Mapping[str, OutputRate], board: SwitchState, tool: str, now: float) -> OutputRate:
    """The rate as it is now. What was counted just now holds nothing old."""
    return rates.get(tool) or _drop_old_outputs(board.rates.get(tool, OutputRate(tool)), now)


def _add_outputs(rate: OutputRate, valid: bool, now: float, times: int = 1) -> OutputRate:
    """The rate with so many more outputs of a kind."""
    recent = (*rate.recent, *((now, valid),) * min(times, WINDOW_OUTPUTS))[-WINDOW_OUTPUTS:]
    return OutputRate(rate.tool, recent, 0 if valid else rate.streak + times)


def _add_valid(rates: dict[str, OutputRate], board: SwitchState, valid: dict[str, int], now: float) -> None:
    """Add the valid outputs that wait to the rates of their tools."""
    for tool, times in valid.items():
        rates[tool] = _add_outputs(_current_rate(rates, board, tool, now), True, now, times)
    valid.clear()


def _next_switch(board: SwitchState, switch: Switch, rate: OutputRate, one: OutputObservation, now: float) -> Switch:
    """The switch of the tool after one more output."""
    if switch.mode == "closed":
        why = _unusable_reason(rate)  # of an invalid output: valid ones of a closed switch are counted together
        return switch if why is None else _trip_tool_switch(board, switch, why, now, one)
    if mode_at(switch, one.at) != "half_open" or not one.read:
        return switch
    if not one.valid:
        return _trip_tool_switch(board, switch, "a probe was invalid", now, one)
    if switch.valid + 1 < PROBES_TO_CLOSE:
        return msgspec.structs.replace(switch, valid=switch.valid + 1)
    return msgspec.structs.replace(
        switch,
        mode="closed",
        epoch=board.epoch + 1,
        since=now,
        valid=0,
        reason=f"{PROBES_TO_CLOSE} valid outputs in a row",
        by=AUTOMATIC_ACTOR,
    )


def _trip_tool_switch(board: SwitchState, switch: Switch, why: str, now: float, one: OutputObservation) -> Switch:
    # A tool that writes is not called while its switch is open, so no probe could ever close it.
    return _build_tripped_switch(switch, why, now, board.epoch, manual=switch.scope in board.doubtful or not one.read)


def _build_tripped_switch(switch: Switch, why: str, now: float, epoch: int, *, manual: bool) -> Switch:
    opened = (*(at for at in switch.opened if at > now - _HOUR), now)
    return Switch(
        switch.scope,
        "open",
        epoch + 1,
        now,
        manual=manual or len(opened) >= _TRIPS_PER_HOUR,
        opened=opened,
        reason=why,
        by=AUTOMATIC_ACTOR,
    )


def _unusable_reason(rate: OutputRate) -> str | None:
    bad, total = sum(not valid for _, valid in rate.recent), len(rate.recent)
    if rate.streak >= TRIP_STREAK:
        return f"{rate.streak} invalid outputs in a row"
    if total >= MIN_OUTPUTS and bad >= max(_MIN_INVALID, TRIP_SHARE * total):
        return f"{bad} of the last {total} outputs invalid"
    return None


def _all_tools_reason(rates: Mapping[str, OutputRate], now: float) -> str | None:
    start = now - WINDOW_SECONDS
    entries = sorted((at, valid, rate.tool) for rate in rates.values() for at, valid in rate.recent if at > start)
    latest = entries[-WINDOW_OUTPUTS:]
    bad = [tool for _, valid, tool in latest if not valid]
    enough = len(bad) >= max(_MIN_INVALID_ALL_TOOLS, _TRIP_SHARE_ALL_TOOLS * len(latest))
    if len(latest) >= _MIN_OUTPUTS_ALL_TOOLS and enough and len(set(bad)) > 1:
        return f"{len(bad)} of the last {len(latest)} outputs of {len(set(bad))} tools invalid"
    return None


def open_switch_finding(
    switches: tuple[Switch, ...], tool: str, effect: Effect, sources: tuple[str, ...] | None
) -> Finding | None:
    """Say which open switch stops a call, or None if none does. Reads go on.

    Of several, the one for everything is named, then the tool's own, then the first by name.

    Args:
        switches: in any order; closed ones stop nothing.
        tool: the tool's name.
        effect: what it does.
        sources: tools whose output a write declares to build on; None means all.
    """
    if effect == "read":
        return None
    found = [switch for switch in switches if switch.mode != "closed" and _is_relevant(switch.scope, tool, sources)]
    if not found:
        return None
    return _switch_finding(min(found, key=lambda one: (one.scope != ALL_TOOLS, one.scope != tool, one.scope)), tool)


def _is_relevant(scope: str, tool: str, sources: tuple[str, ...] | None) -> bool:
    return sources is None or scope in (ALL_TOOLS, tool) or scope in sources


def _switch_finding(switch: Switch, tool: str) -> Finding:
    what = "all writes are off" if switch.scope == ALL_TOOLS else f"the outputs of {switch.scope} are unusable"
    return Finding(
        code="kill_switch",
        blame="policy",
        message=f"{tool} was not started: the kill switch of {switch.scope!r} is open ({switch.reason})",
        hint=f"Nothing was written: {what} at the moment. You may still read; tell the user what was not written.",
        data={"scope": switch.scope, "since": switch.since},
    )
