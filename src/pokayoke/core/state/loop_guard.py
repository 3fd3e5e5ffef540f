"""The loop guard: a model that makes no progress loses its tools and has to answer.

In: how the calls of a round ended.
Out: the count to keep, and whether the run goes on.
Never: a count that anything but progress clears; nothing clears the total of a turn. One mechanism serves every kind
of bad round: after the first the model may repair itself, the next switches to a final answer. An answer that
changed is progress, like an answer to a new question.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, cast, get_args

import msgspec

from pokayoke.core.call import SUCCESSFUL, Effect, Finding, Outcome, Status, StopReason
from pokayoke.core.finding_codes import FINDING_CODES, codes_counted_as
from pokayoke.core.json.values import is_object
from pokayoke.core.policy import LoopPolicy
from pokayoke.core.state.run_state import LoopCount, Repeats
from pokayoke.errors import PolicyError, UsageError


class Kind(msgspec.Struct, frozen=True):
    """One way in which a call brings a run no further.

    Args:
        name: its name, such as `unknown_tool`; by it the kind is switched off or reworded.
        what: what happened, for the instruction to the model: "asked for tools that do not exist".
        codes: codes of the first finding that belong to it.
        statuses: statuses of outcomes that belong to it; with codes, both have to fit.
        blames: who is to blame in the first finding; empty means anybody.
        reason: why the run stops if it stops for this kind alone.
        by_tool: False if the failures of all tools count together, because the name says nothing.
        streak: False if it is only counted against the turn's total.

    Raises:
        UsageError: the reason is none, or nothing says what belongs to it.
    """

    name: str
    what: str
    codes: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    blames: tuple[str, ...] = ()
    reason: StopReason = "loop_detected"
    by_tool: bool = True
    streak: bool = True

    def __post_init__(self) -> None:
        """Refuse a kind that nothing could belong to, or that would stop a run for an unknown reason."""
        if self.reason not in get_args(StopReason):
            raise UsageError(f"{self.reason!r} is no stop reason. They are: {', '.join(get_args(StopReason))}")
        if not (self.codes or self.statuses):
            raise UsageError(f"kind {self.name!r} needs codes or statuses: nothing else says what belongs to it")


KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        "unknown_tool",
        "asked for tools that do not exist",
        codes=codes_counted_as("unknown_tool"),
        reason="unknown_tool",
        by_tool=False,
    ),
    Kind(
        "repeated_call",
        "repeated a call that brings nothing new",
        codes=codes_counted_as("repeated_call"),
    ),
    Kind(
        "tool_failure",
        "called tools that failed",
        statuses=("failed", "in_doubt"),
        blames=("tool",),
        reason="tool_failure",
    ),
    Kind(
        "invalid_output",
        "called tools whose answers cannot be used",
        statuses=("invalid_output", "degraded"),
        reason="invalid_tool_output",
    ),
    Kind(
        "invalid_arguments",
        "sent arguments that do not fit",
        statuses=("refused", "failed"),  # the second by a framework's own rules, before the tool began
        blames=("model",),
        reason="invalid_arguments",
    ),
    Kind(
        "held_back",
        "tried to write although writes are off",
        codes=codes_counted_as("held_back"),
        streak=False,  # it follows from an invalid output, which was counted, and goes when a valid one comes
    ),
    Kind("refusal", "asked for what is not permitted now", statuses=("refused", "failed"), blames=("policy", "tool")),
)
"""The kinds every guard knows, the first that fits counts. What is the host's or another caller's doing fits none."""

_REPEATED_CALL: Final = "repeated_call"
_UNKNOWN_BUCKET: Final = "*"


class RoundEntry(msgspec.Struct, frozen=True, gc=False):
    """How one call of a round ended.

    Args:
        tool: the tool's name, as resolved or as the model wrote it.
        kind: name of the kind of failure, or "" if it was none.
        progress: True if it brought the run further.
        detail: what went wrong, for the instruction.
    """

    tool: str
    kind: str = ""
    progress: bool = False
    detail: str = ""


def failure_kind(outcome: Outcome, kinds: Iterable[Kind], off: Container[str] = ()) -> Kind | None:
    """Return the kind of failure an outcome is; None if it is none, nobody's fault here, or of a kind in `off`."""
    if outcome.ok or outcome.status == "pending" or not outcome.findings:
        return None
    status, code, blame = outcome.status, outcome.findings[0].code, outcome.findings[0].blame
    for kind in kinds:
        if (
            (not kind.codes or code in kind.codes)
            and (not kind.statuses or status in kind.statuses)
            and (not kind.blames or blame in kind.blames)
        ):
            # What is switched off must not count as the next kind that would fit.
            return None if kind.name in off or "*" in off else kind
    return None


def kinds_for(policy: LoopPolicy, own: Iterable[Kind] = ()) -> tuple[Kind, ...]:
    """Return all kinds there are: the host's own first, then the built-in ones.

    Raises:
        PolicyError: the policy names a kind that is none of them.
    """
    kinds = (*own, *KINDS)
    for _, wrong in unknown_kinds(policy, kinds):
        raise PolicyError(wrong)
    return kinds


def unknown_kinds(policy: LoopPolicy, own: Iterable[Kind] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each place of a policy that names a kind of failure there is none of, and what is wrong there."""
    names = {kind.name for kind in (*own, *KINDS)}
    places: list[tuple[str, str | int, str]] = [
        ("off", number, name) for number, name in enumerate(policy.off) if name != "*"
    ]
    places += [("instructions", name, name) for name in policy.instructions if name != "*"]
    for option, key, name in places:
        if name not in names:
            wrong = f"names {name!r}, and no kind of failure is called so; use {', '.join(sorted(names))}"
            yield ("loop", option, key), f"loop.{option} {wrong}"


def without_own_kinds(policy: LoopPolicy) -> LoopPolicy:
    """Return a policy that names only the kinds every guard knows, for a guard that has none of its own."""
    names = {kind.name for kind in KINDS}
    said = {name: text for name, text in policy.instructions.items() if name in names or name == "*"}
    off = policy.off if "*" in policy.off else tuple(name for name in policy.off if name in names)
    return msgspec.structs.replace(policy, off=off, instructions=said)


class TurnHistory:
    """What a turn has seen: which calls failed, which reads are old, how the calls of this round ended.

    Safe to share between threads: everything is one step on a list or a dictionary.

    Args:
        size: calls that are remembered; the oldest is forgotten first.

    Attributes:
        repeats: equal calls that fail in a row.
    """

    def __init__(self, size: int = 256) -> None:
        """Begin with nothing seen."""
        self.repeats = Repeats(size)
        self._size = size
        self._endings: deque[RoundEntry] = deque(maxlen=size)
        self._freed: set[str] = set()
        self._writes = 0  # that took effect; each makes what was read before it old
        self._known: OrderedDict[tuple[str, str], tuple[_ResultMark | None, int, float]] = OrderedDict()
        self._invalid: OrderedDict[tuple[str, str], None] = OrderedDict()  # of the whole run

    def count_outcome(
        self,
        outcome: Outcome,
        signature: str,
        effect: Effect | None,
        kinds: tuple[Kind, ...],
        policy: LoopPolicy,
        *,
        result: bytes | None = None,
        at: float = 0.0,
        pause: float | None = None,
    ) -> None:
        """Note how a call ended.

        Args:
            outcome: its outcome.
            signature: digest of its arguments.
            effect: what its tool does; None if there is no such tool.
            kinds: all kinds there are.
            policy: which of them are off, and when an equal call counts as a repetition.
            result: the outcome's value as compact JSON, if the caller has it.
            at: wall-clock second at which the call began.
            pause: seconds after which an equal call of a tool that polls is no repetition; None if it does not poll.
        """
        tool = outcome.tool
        if outcome.status not in SUCCESSFUL:
            self._count_failure(outcome, signature, kinds, policy)
            return
        if self.repeats.counts:
            self.repeats.forget_tool(tool)
        known, key = self._known, (tool, signature)
        # What the model reads, but for the id of the call, which is another one each time. Only its hash is kept:
        # with what was there before it, since a write may have changed what a read shows, and the same is then news.
        mark = hash(outcome.text.replace(outcome.call_id, "") if result is None else result)
        if outcome.content:  # of pictures and files the text only says how many there are
            mark = hash((mark, _content_hash(outcome.content)))
        seen = (mark, self._writes if effect == "read" else 0)
        before, times, last = known.pop(key, _NO_RESULT)
        repeats, polls = before == seen, pause is not None and at - last >= pause
        times = times + (not polls) if repeats else 1
        known[key] = (seen, times, at)
        if len(known) > self._size:
            known.popitem(last=False)
        wrote = effect != "read" and outcome.status == "ok"
        if wrote:
            self._writes += 1
        if times > policy.identical_results and not wrote and not {_REPEATED_CALL, "*"} & set(policy.off):
            self._endings.append(RoundEntry(tool, _REPEATED_CALL, detail=f"{times} times the same"))
        else:
            self._endings.append(RoundEntry(tool, progress=wrote or (not repeats and outcome.status == "ok")))

    def is_first_invalid(self, tool: str, signature: str) -> bool:
        """Note a call with an invalid output. Returns whether it is the first one of this run with these arguments."""
        key = (tool, signature)
        if key in self._invalid:
            return False
        self._invalid[key] = None
        if len(self._invalid) > self._size:
            self._invalid.popitem(last=False)
        return True

    def end_round(self) -> tuple[RoundEntry, ...]:
        """End the round: return how its calls ended, in the order in which they did."""
        if not self._endings:
            return ()
        endings, self._endings = self._endings, deque(maxlen=self._size)
        return tuple(endings)

    def clear(self) -> None:
        """Forget everything: a new turn began."""
        self.repeats.clear()
        self._freed.clear()
        self._known.clear()
        self._endings.clear()

    def _count_failure(self, outcome: Outcome, signature: str, kinds: tuple[Kind, ...], policy: LoopPolicy) -> None:
        """Note a call that did not end well."""
        first = outcome.findings[0] if outcome.findings else None
        if first is not None and FINDING_CODES[first.code].is_free_once and first.code not in self._freed:
            self._freed.add(first.code)
            return
        if first is not None and _is_own_failure(outcome, first):
            self.repeats.add_failure(outcome.tool, signature)
        kind = failure_kind(outcome, kinds, policy.off)
        if kind is not None:
            tool = outcome.tool[:_MAX_STORED_NAME]  # a model may write any name, and the count is kept in the store
            self._endings.append(RoundEntry(tool, kind.name, detail=outcome.findings[0].code))


_ResultMark = tuple[int, int]
"""A hash of what a call brought, and how many writes there were before it."""

_NO_RESULT: Final[tuple[_ResultMark | None, int, float]] = (None, 0, 0.0)


def _content_hash(block: Any, depth: int = 5) -> int:
    """A hash of what is no text, as it came: dicts, lists and a framework's objects, without a copy of any bytes."""
    if depth and is_object(block):
        return hash(tuple((name, _content_hash(one, depth - 1)) for name, one in block.items()))
    if depth and isinstance(block, (list, tuple)):
        return hash(tuple(_content_hash(one, depth - 1) for one in cast("Iterable[Any]", block)))
    try:
        return hash(block)
    except Exception:  # noqa: BLE001 - a tool's own object; what can be told by its fields is, all else is new each time
        return _content_hash(vars(block), depth - 1) if depth and hasattr(block, "__dict__") else id(block)


def _is_own_failure(outcome: Outcome, first: Finding) -> bool:
    """Whether a call failed by itself, so that sending it again would fail again.

    What is not run again after failures has not failed once more, and a refusal for which a tool is to blame is
    about another call: this one waits for a valid output.
    """
    if first.blame == "tool":
        return outcome.status != "refused"
    return first.blame == "model" and first.code != "repeated_failure"


def is_clean(count: LoopCount, endings: Iterable[RoundEntry]) -> bool:
    """Whether nothing has gone wrong, neither in a round nor before it, so that there is nothing to count or to end."""
    if count.streak or count.failing or count.seen:
        return False
    return not any(ending.kind for ending in endings)


def count_round(count: LoopCount, endings: tuple[RoundEntry, ...], kinds: Mapping[str, Kind]) -> LoopCount:
    """Return the count after a round.

    A round is bad if a call failed. It adds to the streak unless another call of it brought progress;
    a round with progress and without failure ends the streak. Progress of a tool ends that tool's own.
    """
    if is_clean(count, endings):
        return count
    bad = [ending for ending in endings if ending.kind]
    failing = dict(count.failing)
    for ending in endings:
        if ending.progress:
            failing.pop(ending.tool, None)
    progress = any(ending.progress for ending in endings)
    if not bad:
        if not progress:
            return count
        return msgspec.structs.replace(count, streak=0, failing=tuple(failing.items()), seen=())
    in_streak = [ending for ending in bad if ending.kind not in kinds or kinds[ending.kind].streak]
    for bucket in {_failure_bucket(ending, kinds): None for ending in in_streak}:
        failing[bucket] = failing.get(bucket, 0) + 1
    seen = (*count.seen, *((ending.kind, ending.tool, ending.detail) for ending in bad))[-_MAX_ENTRIES:]
    streak = count.streak if progress or not in_streak else count.streak + 1
    return msgspec.structs.replace(
        count, streak=streak, bad=count.bad + 1, failing=tuple(failing.items())[-_MAX_BUCKETS:], seen=seen
    )


_MAX_ENTRIES: Final = 12
_MAX_BUCKETS: Final = 64
_MAX_STORED_NAME: Final = 128  # characters; no tool can be registered under a longer name


def _failure_bucket(ending: RoundEntry, kinds: Mapping[str, Kind]) -> str:
    kind = kinds.get(ending.kind)
    return ending.tool if kind is None or kind.by_tool else f"{_UNKNOWN_BUCKET}{ending.kind}"


def tools_off_reason(count: LoopCount, policy: LoopPolicy, kinds: Mapping[str, Kind]) -> StopReason | None:
    """Say why the tools have to go, or None if the run may go on."""
    stuck = max((times for _, times in count.failing), default=0)
    if count.streak <= policy.self_repair and stuck <= policy.tool_failures and count.bad < policy.bad_rounds:
        return None
    reasons: set[StopReason] = {kinds[kind].reason for kind, _, _ in count.seen if kind in kinds and kinds[kind].streak}
    return reasons.pop() if len(reasons) == 1 else "loop_detected"


def tools_off_instruction(count: LoopCount, policy: LoopPolicy, kinds: Mapping[str, Kind], tools: Iterable[str]) -> str:
    """Return what the model is told when its tools are taken away.

    Args:
        count: what went wrong.
        policy: the host's own texts; that of the last kind wins, then that for `*`.
        kinds: the kinds in force, by name.
        tools: names of the tools there are, for a model that asked for others.
    """
    last = count.seen[-1][0] if count.seen else ""
    own = policy.instructions.get(last) or policy.instructions.get("*")
    if own and own.strip():
        return own
    told: list[str] = []
    for name in dict.fromkeys(kind for kind, _, _ in count.seen):
        who = sorted({tool for kind, tool, _ in count.seen if kind == name})
        what = kinds[name].what if name in kinds else name
        told.append(f"{what} ({_join_names(who)})")
        if name == "unknown_tool":
            told.append(f"there are only {_join_names(sorted(tools)) or 'no tools'}")
    return (
        f"{_bad_rounds_phrase(count, policy)} you {'; '.join(told)}. "
        "Tools are off for the rest of this turn. Answer the user now, in your own words: "
        "what you know, what was done, and what could not be done. Do not claim anything that no tool has confirmed."
    )


def _bad_rounds_phrase(count: LoopCount, policy: LoopPolicy) -> str:
    """The rounds that cost the tools: those in a row, or those of the turn, of which only the latest are told."""
    if count.streak > policy.self_repair:
        return f"In the last {count.streak} rounds" if count.streak > 1 else "In the last round"
    return f"{count.bad} rounds of this turn went wrong; in the latest of them"


def _join_names(names: list[str]) -> str:
    """Some names, as data: a model may have written anything into them, and a catalogue may be long."""
    shown = [repr(name[:_MAX_NAME_CHARS]) for name in names[:_MAX_NAMES]]
    return ", ".join(shown) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


_MAX_NAME_CHARS: Final = 64
_MAX_NAMES: Final = 20
