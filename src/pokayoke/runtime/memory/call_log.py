"""What became of a run's calls: done, not done, open, and refused for good.

In: outcomes, and what the ledger knows of the run from before.
Out: what a final answer and a shortened history may say of the run.
Never: a doubt that is dropped before it is settled.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from pokayoke.core.call import SUCCESSFUL, Outcome, StopReason, ToolCall
from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.hash_set import HashSet
from pokayoke.core.ledger.compensation import COMPENSATION_RUN_ID, compensation_finding
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import OPEN, Claim, Record
from pokayoke.core.state.final_answer import UNUSABLE, Answer, add_not_done, final_answer, forget_not_done
from pokayoke.core.state.words import WORDS
from pokayoke.stores.base import Store
from pokayoke.stores.values import RecordQuery

_KEPT_REFUSALS: Final = 20
_KEPT_EFFECTS: Final = 1_000  # with their tools, in order
_KEPT_KEYS: Final = 100_000  # of older ones: only that they were
_ALL: Final = 2**31 - 1
_effect_numbers: Final = itertools.count(1)


class OpenCall(NamedTuple):
    """A call that is not over, or would be refused again.

    Args:
        tool: its tool.
        reason: what keeps it open, or the code of the finding.
        arguments: as the model sent them; None if nobody knows any more.
    """

    tool: str
    reason: str
    arguments: Any = None


class CallLog:
    """What is known of the calls of one run.

    Args:
        store: where the run's writes are recorded.
        run_id: the run.
        named: True if the host chose its id: only then it may have been open before.
        was_open: True if it was.

    Attributes:
        not_done: what did not end well, with reasons, in order; see `add_not_done`.
        unmet: writes that did not end well, as the tool's name and the reason (see `final_answer`).
        unrepeated: tool and arguments of this turn's calls that meant a second effect and got the answer of the first.
        open: calls in doubt or under way, and those that wait for a person, by key (a read: by tool).
        refused: calls that would be refused again.
    """

    def __init__(self, store: Store, run_id: str, *, named: bool, was_open: bool = False) -> None:
        self.not_done: dict[tuple[str, str], None] = {}
        self.unmet: dict[str, tuple[str, str]] = {}
        self.unrepeated: dict[tuple[str, str], None] = {}
        self.open: dict[str, OpenCall] = {}
        self.refused: OrderedDict[tuple[str, str], OpenCall] = OrderedDict()
        self._done: OrderedDict[str, str] = OrderedDict()
        self._order: OrderedDict[str, tuple[str, float]] = OrderedDict()  # writes as they ended: tool, and when
        self._long_done: Counter[str] = Counter()  # effects before those of `_done`, by tool
        self._old_keys = HashSet()  # their keys
        self._unknown: dict[str, str] = {}  # tools of writes that failed and may have taken effect, by key
        self._unusable: dict[str, str] = {}  # tools of writes that ran, and whose answers were unusable, by key
        self._effects = next(_effect_numbers) if was_open else 0
        self._here: set[str] = set()  # keys that were claimed in this process, until the ledger has been read
        self._under_way: set[str] = set()  # keys whose calls have not come back
        self._store, self._run_id = store, run_id
        self._recalled, self._new_turn, self._recalling = not named, False, 0
        # Re-entrant: a text of users' arguments is made under it, and a finalizer may call a tool meanwhile.
        self._lock = threading.RLock()

    def reset_after_fork(self) -> None:
        """Begin anew in a child process, whose parent may have held the lock."""
        self._lock, self._recalling = threading.RLock(), 0

    @property
    def effects(self) -> int:
        """A number that each claim changes, and that no two openings share.

        It is 0 in a new run before its first write, and -1 while a write is under way or in doubt.
        """
        return -1 if self.open and self.doubtful_tools else self._effects

    @property
    def done_tools(self) -> list[str]:
        """Names of the tools whose effect happened, one for each effect, in order; of the oldest of many, by tool."""
        with self._lock:
            return [*self._long_done.elements(), *self._done.values()]

    @property
    def doubtful_tools(self) -> dict[str, None]:
        """Names of the tools of which a write is in doubt, each once."""
        return self._find_doubtful()

    def _find_doubtful(self, under_way: Collection[str] = ()) -> dict[str, None]:
        found = [one for key, one in tuple(self.open.items()) if key not in under_way]
        return {matter.tool: None for matter in found if matter.reason == "in_doubt"}

    @property
    def open_reason(self) -> StopReason | None:
        """What keeps the run from being a success: a write in doubt, or one that waits for a person."""
        return "in_doubt" if self.doubtful_tools else "awaiting_approval" if self.open else None

    def begin_turn(self) -> None:
        """Begin the user's next turn: what was not done in the last one is no longer its business."""
        self.unmet.clear()
        self.unrepeated.clear()
        self._new_turn = True
        self.recheck_doubts()

    def recheck_doubts(self) -> None:
        """Read the ledger again before anything is said of a doubt: a person may have settled it since."""
        if self.open and self.doubtful_tools:
            self._recalled = False

    def begin_claim(self, claim: Claim) -> OpenCall:
        """Count a write as in doubt from its claim on: whoever waits for it may be cancelled or interrupted."""
        if not self._recalled:
            self._here.add(claim.key)
        self._under_way.add(claim.key)
        self._effects = next(_effect_numbers)
        self._set_unmet(claim.key, claim.tool, "in_doubt")
        matter = self.open[claim.key] = OpenCall(claim.tool, "in_doubt")
        return matter

    def apply_settlement(self, record: Record) -> None:
        """Take note of what the ledger has made of a report, whether or not anybody still waits for the call."""
        if record.state in OPEN:
            return
        self._count_ending(record)
        with self._lock:
            self._add_to_order(record)
        self.forget_key(record.key)
        with self._lock:
            if not self._recalling:  # what is being read may still say that it is open
                self._here.discard(record.key)

    def effects_since(self, record: Record) -> tuple[str, ...]:
        """Return the tools whose effects the run had after this one, in order, as far as `read_ledger` has seen."""
        with self._lock:
            order = list(self._order.items())
        places = [place for place, (key, _) in enumerate(order) if key == record.key]
        if places:
            later = order[places[0] + 1 :]
        else:  # another run's, or what another process did since the ledger was read
            ended = record.settled_at or record.claimed_at
            later = [one for one in order if one[1][1] > ended]
        return tuple(tool for _, (tool, _) in later if tool)

    def _add_to_order(self, record: Record) -> None:
        """Keep when a write ended. One that failed is only a place in the order: nobody says that it had an effect."""
        tool = record.tool if record.state == "completed" else ""
        self._order[record.key] = (tool, record.settled_at or record.claimed_at)
        if len(self._order) > _KEPT_EFFECTS:
            self._order.popitem(last=False)

    def forget_key(self, key: str) -> None:
        """Nothing is open under this key any more, or nothing has happened."""
        self._under_way.discard(key)
        self.unmet.pop(key, None)
        self.open.pop(key, None)

    def record_outcome(self, outcome: Outcome, call: ToolCall, *, writes: bool = False) -> None:
        """Remember what became of a call. `writes` tells whether its tool is one that does."""
        key, tool = outcome.key or "", outcome.tool
        self._under_way.discard(key)
        if outcome.status == "invalid_output" and outcome.effect == "done":
            self.forget_key(key)
            self._done.pop(key, None)
            self._set_unmet(key, tool, UNUSABLE)
            _keep_tool(self._unusable, key, tool)
            return
        if outcome.status == "in_doubt" or (outcome.status not in SUCCESSFUL and outcome.effect != "done"):
            if not self._is_repeat(outcome, key):
                self._record_unfinished(outcome, call, key, writes=writes)
            return
        if self.open or self.unmet:
            self.forget_key(key)
            self.forget_key(tool)
        if self.not_done:
            forget_not_done(self.not_done, tool)
        if self.refused:
            self.refused.pop((tool, str(call.arguments)), None)
        self._unknown.pop(key, None)
        may_add = len(self.unrepeated) < _KEPT_EFFECTS
        if may_add and outcome.status == "replayed" and outcome.findings[0].data.get("new"):
            self.unrepeated[tool, str(call.arguments)] = None
        elif outcome.repeated:
            self.unrepeated.pop((tool, str(call.arguments)), None)
        if outcome.effect == "done":
            self._unusable.pop(key, None)
            self._count_effect(key, tool, again=outcome.status == "replayed")

    @property
    def has_read_ledger(self) -> bool:
        """True if the ledger has nothing more to tell of what this run did before."""
        return self._recalled

    def read_ledger(self) -> bool:
        """Learn from the ledger what this run did, here or elsewhere. Returns False if it cannot be read."""
        if self._recalled:
            return True
        with self._lock:
            self._recalling += 1
        try:
            found = self._store.records(RecordQuery(run_id=self._run_id, limit=_ALL))
            undone = self._find_undone_keys([record for record in found if record.state == "completed"])
            self._merge_records(sorted(found, key=lambda record: record.claimed_at), undone)
        except Exception:  # noqa: BLE001 - a store may raise anything; then it is said that nobody knows
            return False
        finally:
            with self._lock:
                self._recalling -= 1
        return True

    def _merge_records(self, known: list[Record], undone: set[str]) -> None:
        with self._lock:
            if self._recalled:  # another thread was faster
                return
            here, self._done = self._done, OrderedDict()
            self._long_done.clear()  # those are in the ledger
            self._old_keys.clear()
            for record in known:
                if record.key not in undone:
                    self._count_ending(record)
            for key, tool in here.items():
                self._count_effect(key, tool)
            after, self._order = self._order, OrderedDict()
            for record in sorted(known, key=lambda record: record.settled_at or record.claimed_at):
                if record.state not in OPEN and record.key not in after:
                    self._add_to_order(record)
            self._order |= after
            for record in known:
                self._end_doubt(record)
                if self._new_turn or record.key in self._here:  # how that ended is known here, or will be
                    continue
                if record.state in OPEN:
                    self.unmet.setdefault(record.key, (record.tool, "in_doubt"))
                    self.open.setdefault(record.key, OpenCall(record.tool, "in_doubt"))
            self._recalled = True
            self._here.clear()

    def _end_doubt(self, record: Record) -> None:
        """End a doubt that somebody has settled in the ledger, unless its call is still on its way."""
        key, matter = record.key, self.open.get(record.key)
        if matter is None or matter.reason != "in_doubt" or key in self._under_way:
            return
        if record.state in ("completed", "failed_retriable"):
            was_unmet = key in self.unmet
            self.forget_key(key)
            if was_unmet and record.state == "failed_retriable":
                self._set_unmet(key, record.tool, "tool_failure")

    def ending_reason(self, *, well: bool) -> StopReason | None:
        """Why a run that nothing stopped is over; `well` if no exception ended it. None if nobody can say."""
        certain = self.read_ledger()
        return self.open_reason or ("success" if certain and well else None)

    def check_answer(
        self,
        text: str | None,
        reason: StopReason | None,
        fallback: str | None,
        under_way: Collection[str] = (),
        words: Mapping[str, str] = WORDS,
    ) -> Answer:
        """Check the model's last answer against what is known.

        Args:
            text: what the model wrote.
            reason: why the run ended, if it has.
            fallback: stands in for an answer that says nothing.
            under_way: keys of the writes inside of which a model answers, as that of an agent that a tool asks.
            words: the host's own sentences.
        """
        certain = self.read_ledger()
        unmet = tuple(one for key, one in tuple(self.unmet.items()) if key not in under_way)
        doubts = self._find_doubtful(under_way) | dict.fromkeys(tool for tool, why in unmet if why == "in_doubt")
        return final_answer(
            text,
            self.done_tools,
            self.not_done,
            reason,
            unmet=unmet,
            unrepeated=[tool for tool, _ in tuple(self.unrepeated)],
            fallback=fallback,
            certain=certain,
            doubts=doubts | dict.fromkeys(self._unknown.values()),
            unusable=dict.fromkeys(self._unusable.values()),
            words=words,
        )

    def _is_repeat(self, outcome: Outcome, key: str) -> bool:
        """Whether a call was refused whose effect stands: nothing of it is left undone."""
        code = outcome.findings[0].code if outcome.findings else ""
        row = FINDING_CODES.get(code)
        known = key in self._done or key in self._unusable or key in self._old_keys
        stands = known and not (row is not None and row.is_other_call)
        return outcome.status == "refused" and stands

    def _record_unfinished(self, outcome: Outcome, call: ToolCall, key: str, *, writes: bool) -> None:
        tool, reason = outcome.tool, outcome.stop_reason or outcome.status
        # A question about a write that may have happened already does not end that doubt, whatever its answer.
        asked = outcome.approval is not None and outcome.effect == "unknown"
        in_doubt = outcome.status == "in_doubt" or asked
        waits = in_doubt or outcome.status == "pending"
        is_open = in_doubt or outcome.effect == "unknown"
        if outcome.effect == "none" and not in_doubt:
            add_not_done(self.not_done, outcome)
        elif not waits:
            _keep_tool(self._unknown, key or tool, tool)
        if writes:
            # A mistake is put right by another call of the tool; a doubt, or a person's no, only by that very one.
            mark = key if waits or is_open or reason == "approval_denied" else ""
            if outcome.status != "refused":  # it began, and this is how it ended
                self.unmet.pop(key, None)
            self._set_unmet(mark or tool, tool, "in_doubt" if is_open else reason)
        if waits:
            self.open[key or tool] = OpenCall(tool, "in_doubt" if in_doubt else "awaiting_approval", call.arguments)
        elif outcome.status != "refused" or reason == "approval_denied":
            self.open.pop(key or tool, None)  # whatever it waited for is decided
        if in_doubt and key in self._done:  # it came to its end just now, and has been settled as done
            self.forget_key(key)
        if outcome.findings and (row := FINDING_CODES.get(outcome.findings[0].code)) and row.is_lasting:
            self._remember_refusal(OpenCall(tool, outcome.findings[0].code, call.arguments))

    def _set_unmet(self, key: str, tool: str, reason: str) -> None:
        """Keep how a write did not end well; of the oldest of many, once for its tool and reason."""
        self.unmet[key] = (tool, reason)
        if len(self.unmet) > _KEPT_EFFECTS:
            oldest = self.unmet.pop(next(iter(self.unmet)))
            self.unmet["\x1f".join(oldest)] = oldest

    def _remember_refusal(self, matter: OpenCall) -> None:
        with self._lock:
            self.refused[matter.tool, str(matter.arguments)] = matter
            if len(self.refused) > _KEPT_REFUSALS:
                self.refused.popitem(last=False)

    def _count_ending(self, record: Record) -> None:
        """Count what the ledger knows of a write: an effect, by whether its answer was usable, or a failure."""
        if record.state == "failed_final":
            _keep_tool(self._unknown, record.key, record.tool)
        elif record.state == "completed":
            self._unknown.pop(record.key, None)
            if record.output_ok:
                self._count_effect(record.key, record.tool)
            else:
                _keep_tool(self._unusable, record.key, record.tool)

    def _count_effect(self, key: str, tool: str, *, again: bool = False) -> None:
        """Count an effect once. A replay is the same effect, also where there were too many to know its key."""
        with self._lock:
            is_full = len(self._old_keys) >= _KEPT_KEYS
            if key in self._done or key in self._old_keys or (again and is_full):
                return
            self._done[key] = tool
            if len(self._done) > _KEPT_EFFECTS:
                oldest, its_tool = self._done.popitem(last=False)
                self._long_done[its_tool] += 1
                if not is_full:
                    self._old_keys.add(oldest)

    def _find_undone_keys(self, done: list[Record]) -> set[str]:
        """Keys of the effects that were undone, or may have been; one question, however many there are."""
        since = min((record.claimed_at for record in done), default=None)
        if since is None:
            return set()
        found = self._store.records(RecordQuery(run_id=COMPENSATION_RUN_ID, since=since, limit=_ALL))
        undoings = {undoing.key: undoing for undoing in found}
        undone: set[str] = set()
        for record in done:
            undoing = undoings.get(compensation_key(record.key))
            if undoing is not None and compensation_finding(record, undoing) is not None:
                undone.add(record.key)
        return undone


def _keep_tool(tools: dict[str, str], key: str, tool: str) -> None:
    """Keep the tool of a call by its key; of many, that of the oldest by its own name."""
    tools[key] = tool
    if len(tools) > _KEPT_EFFECTS:
        oldest = tools.pop(next(iter(tools)))
        tools[oldest] = oldest
