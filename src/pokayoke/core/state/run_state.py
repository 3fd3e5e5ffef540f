"""The state of a run: one ladder (normal, safe_mode, final_answer, stopped), and the latch beside it.

In: a state and an event.
Out: a new state. It survives a restart and is written when it worsens.
Never: a ladder that rises by itself. The latch holds a taint per tool and identity arguments whose last output must
not be used; the effective mode is the lowest of both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from pokayoke.core.call import Effect, Finding, Mode, StopReason
from pokayoke.core.json.canonical import sha256_hex

_LADDER: Final[tuple[Mode, ...]] = ("normal", "safe_mode", "final_answer", "stopped")
_MOST_MESSAGE_IDS: Final = 50
_RANK: Final[dict[Mode, int]] = {mode: rank for rank, mode in enumerate(_LADDER)}


ANY_IDENTITY: Final = ""
"""The identity of a taint that ends with any good output of its tool, whatever its arguments."""
EVERY_IDENTITY: Final = "*"
"""The identity of a taint for more unusable outputs of a tool than are told apart: no single good output ends it."""
MOST_TAINTS: Final = 64
"""Taints that are told apart for one tool: a run must not become slower with every unusable output it has seen."""


class Taint(msgspec.Struct, frozen=True, omit_defaults=True):
    """An output that must not be used.

    Args:
        tool: the tool it came from.
        identity: digest of that tool's identity arguments, `ANY_IDENTITY` or `EVERY_IDENTITY`.
        step: the step of the run in which it came.
        reason: what was wrong with it.
        writes: True if the tool writes: then only a person ends the taint.
        may_repeat: True if the guard would let the same call of a read run again.
    """

    tool: str
    identity: str
    step: int
    reason: str
    writes: bool = False
    may_repeat: bool = True


class LoopCount(msgspec.Struct, frozen=True):
    """What the loop guard must not forget, also across a restart.

    Args:
        streak: bad rounds in a row, counted over all kinds.
        bad: bad rounds of this turn; nothing clears them but the next turn.
        failing: by tool (or kind), the bad rounds since it last brought anything.
        seen: what went wrong in the streak: kind, tool and detail, the latest last.
        why: the instruction for the model, once its tools were taken away; else "".
    """

    streak: int = 0
    bad: int = 0
    failing: tuple[tuple[str, int], ...] = ()
    seen: tuple[tuple[str, str, str], ...] = ()
    why: str = ""


class RunState(msgspec.Struct, frozen=True):
    """What a run must not forget, also across a restart.

    Args:
        run_id: the run.
        mode: its place on the ladder.
        stop_reason: why it left `normal`.
        taints: the latch; empty means that it is open.
        step: the last step that was counted.
        turn: number of turns begun.
        rounds: rounds (batches) so far.
        calls: tool calls so far.
        tokens: tokens so far.
        started: wall-clock time of the run's first opening, seconds since the epoch.
        version: number of changes so far; of two copies, the higher one is the later.
        loop: what the loop guard has counted.
        versions: tool and version, for each tool of which the run was given one of several; it keeps them.
        tenant: whose run it is, if there are several tenants.
        asked: digest of the user's text that began the turn; "" if no user has spoken.
        answered: True once the turn has its answer.
        message_ids: digests of the host's ids of the users' latest messages.
        has_read: True if it has read untrusted content, where some tool asks for that.
    """

    run_id: str
    mode: Mode = "normal"
    stop_reason: StopReason | None = None
    taints: tuple[Taint, ...] = ()
    step: int = 0
    turn: int = 0
    rounds: int = 0
    calls: int = 0
    tokens: int = 0
    started: float = 0.0
    version: int = 0
    loop: LoopCount = LoopCount()
    versions: tuple[tuple[str, str], ...] = ()
    tenant: str | None = None
    asked: str = ""
    answered: bool = False
    message_ids: tuple[str, ...] = ()
    has_read: bool = False

    @property
    def effective_mode(self) -> Mode:
        """The lowest of the ladder and the latch."""
        if self.taints and self.mode == "normal":
            return "safe_mode"
        return self.mode


def step_down_to(state: RunState, mode: Mode, reason: StopReason) -> RunState:
    """Step down the ladder. A mode at or above the present one changes nothing."""
    if _RANK[mode] <= _RANK[state.mode]:
        return state
    return msgspec.structs.replace(state, mode=mode, stop_reason=reason)


def text_digest(text: str) -> str:
    """Return the digest by which a user's text, or the host's id of a message, is known again."""
    return sha256_hex(text.encode(errors="surrogatepass"))


def is_same_turn(state: RunState, asked: str, message_id: str | None) -> bool:
    """Return whether a user's message belongs to the present turn: it is known, or says again what has no answer yet.

    Args:
        state: the run's state.
        asked: digest of its text.
        message_id: digest of the host's id of the message, or None.
    """
    if message_id is not None:
        return message_id in state.message_ids
    return asked == state.asked and not state.answered and state.mode != "final_answer"


def begin_turn(state: RunState, asked: str = "", message_id: str | None = None) -> RunState:
    """Begin the user's next turn: `final_answer` and the loop's count end; taints, totals and `stopped` stay."""
    ids = state.message_ids if message_id is None else (*state.message_ids[1 - _MOST_MESSAGE_IDS :], message_id)
    state = msgspec.structs.replace(
        state, turn=state.turn + 1, loop=LoopCount(), asked=asked, answered=False, message_ids=ids
    )
    if state.mode == "final_answer":
        return msgspec.structs.replace(state, mode="normal", stop_reason=None)
    return state


def note_reading(state: RunState) -> RunState:
    """Note that the run has read untrusted content."""
    return state if state.has_read else msgspec.structs.replace(state, has_read=True)


def latch(state: RunState, taint: Taint) -> RunState:
    """Close the latch for one tool and its identity arguments; of two taints the newer one counts.

    A tool with more than `MOST_TAINTS` of them has one instead, which only a person ends.
    """
    own = [one for one in state.taints if one.tool == taint.tool]
    if own and own[0].identity == EVERY_IDENTITY:
        taint = msgspec.structs.replace(taint, identity=EVERY_IDENTITY)
    known = _find_taint(state, taint)
    if known is not None and known.step > taint.step:
        return state
    replaced = [] if known is None else [known]
    if known is None and len(own) == MOST_TAINTS:
        replaced, taint = own, msgspec.structs.replace(taint, identity=EVERY_IDENTITY)
    return msgspec.structs.replace(state, taints=(*(one for one in state.taints if one not in replaced), taint))


def is_latched(state: RunState, taint: Taint) -> bool:
    """Return whether the latch is closed for the tool and identity of this taint."""
    return _find_taint(state, taint) is not None


def _find_taint(state: RunState, like: Taint) -> Taint | None:
    return next((one for one in state.taints if (one.tool, one.identity) == (like.tool, like.identity)), None)


def latch_and_stop(state: RunState, taint: Taint, *, stops: bool) -> RunState:
    """`latch`; where an invalid output stops its run, stop it too."""
    state = latch(state, taint)
    return step_down_to(state, "stopped", "invalid_tool_output") if stops else state


def unlatch(state: RunState, tool: str, identity: str | None = None, *, step: int | None = None) -> RunState:
    """Open the latch for one tool (and one identity), because a person said so.

    Args:
        state: the run's state.
        tool: the tool whose output the person takes responsibility for.
        identity: digest of its identity arguments; None opens for all of them.
        step: the step of the call that the person was asked about. That says nothing about an output that was asked
            for later; None is about everything so far.
    """
    return _without_taints(
        state, lambda one: one.tool == tool and identity in (None, one.identity) and (step is None or step >= one.step)
    )


def unlatch_by_output(state: RunState, tool: str, identity: str, step: int) -> RunState:
    """Open the latch of a read that answered well.

    Args:
        state: the run's state.
        tool: the tool whose output is good again.
        identity: digest of its identity arguments.
        step: the step of the call with the good output; it says nothing about an output that was asked for later.
    """
    return _without_taints(
        state,
        lambda one: (
            one.tool == tool and not one.writes and one.identity in (ANY_IDENTITY, identity) and step >= one.step
        ),
    )


def _without_taints(state: RunState, ends: Callable[[Taint], bool]) -> RunState:
    kept = tuple(taint for taint in state.taints if not ends(taint))
    return state if len(kept) == len(state.taints) else msgspec.structs.replace(state, taints=kept)


def block_finding(state: RunState, effect: Effect, sources: tuple[str, ...] | None) -> Finding | None:
    """Say why a call of this effect may not run now, or None if it may.

    Args:
        state: the run's state.
        effect: what the tool does.
        sources: tools whose output a write declares to build on; None means all.
    """
    if state.mode == "normal" and not state.taints:
        return None
    if state.mode == "stopped":
        return Finding(
            code="run_stopped",
            blame="policy",
            message=f"the run has stopped ({state.stop_reason}); no tool runs any more",
            hint="This run has stopped. Do not call tools; tell the user what was and was not done.",
        )
    if state.mode == "final_answer":
        return Finding(
            code="tools_off",
            blame="policy",
            message=f"only a final answer is allowed ({state.stop_reason})",
            hint="Tools are off for this turn. Answer the user directly and say what could not be done.",
        )
    if effect == "read":
        return None
    return _write_block_finding(state, sources)


def _write_block_finding(state: RunState, sources: tuple[str, ...] | None) -> Finding | None:
    if state.mode == "safe_mode":
        return Finding(
            code="writes_off",
            blame="policy",
            message=f"safe mode ({state.stop_reason}): writes are refused",
            hint="Writes are off in this run. You may still read; tell the user what was not written.",
        )
    relevant = [t for t in state.taints if sources is None or t.tool in sources]
    if not relevant:
        return None
    taint = next((one for one in relevant if one.writes), relevant[0])
    return Finding(
        code="latched",
        blame="tool",
        message=f"{taint.tool} answered with unusable output in step {taint.step} ({taint.reason})",
        hint=_latch_hint(taint),
        data={"tool": taint.tool, "step": taint.step},
    )


def _latch_hint(taint: Taint) -> str:
    """Return what a model may do about a closed latch: never a call that the guard would refuse, or a second effect."""
    if taint.writes:
        return (
            f"This write was not started. The last answer of {taint.tool} was unusable: do not do it again, in this or "
            "any other way. Only a person can allow writes again in this run; tell the user."
        )
    if taint.identity == EVERY_IDENTITY:
        return (
            f"Nothing was written: too many outputs of {taint.tool} were unusable. Only a person can allow writes "
            "again in this run; tell the user."
        )
    if taint.identity == ANY_IDENTITY:
        return (
            f"Nothing was written: the last output of {taint.tool} was too large to be used. "
            f"Call {taint.tool} for less; writes are possible after an output that can be used."
        )
    again = "Tell the user what was not written, and why."
    if taint.may_repeat:
        again = f"Call {taint.tool} again with the same arguments; writes are possible after a valid output."
    return f"Nothing was written: the last output of {taint.tool} was unusable. {again}"


class Repeats:
    """Counts equal calls that fail in a row. Bounded: the oldest tool, and its oldest signature, is forgotten first."""

    def __init__(self, size: int = 256) -> None:
        """Keep at most `size` tools, and of each as many signatures."""
        self._size = size
        self.counts: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()
        """By tool and signature, how often a call failed since it (or its tool) last succeeded; empty: none fails."""

    def failure_count(self, tool: str, signature: str) -> int:
        """How often this very call failed since it (or its tool) last succeeded."""
        failed = self.counts.get(tool)
        return 0 if failed is None else failed.get(signature, 0)

    def add_failure(self, tool: str, signature: str) -> None:
        """Note a failure that was the model's or the tool's doing."""
        failed = self.counts.setdefault(tool, OrderedDict())
        failed[signature] = failed.pop(signature, 0) + 1
        for kept in (failed, self.counts):
            if len(kept) > self._size:
                kept.popitem(last=False)

    def forget_tool(self, tool: str) -> None:
        """Forget the failures of a tool that just did its work."""
        self.counts.pop(tool, None)

    def clear(self) -> None:
        """Forget everything: a new turn began."""
        self.counts = OrderedDict()  # whoever counts a failure meanwhile keeps the old one


def repeated_finding(tool: str, count: int) -> Finding:
    """The finding for a call that has failed `failure_count` times in a row without a change."""
    return Finding(
        code="repeated_failure",
        message=f"{tool} was called {count} times in a row with the same arguments and failed each time",
        hint=(
            f"This exact call of {tool} has failed {count} times. Do not send it again: change the arguments, "
            "use another tool, or tell the user what is missing."
        ),
        data={"count": count},
    )


def budget_finding(kind: str, used: float, allowed: float) -> Finding:
    """The finding for a budget that is used up."""
    return Finding(
        code="budget_exhausted",
        blame="policy",
        message=f"the run's budget of {allowed:g} {kind} is used up ({used:g} used)",
        hint="The budget of this run is used up. Answer the user now and say what was not done.",
        data={"budget": kind, "used": used, "allowed": allowed},
    )
