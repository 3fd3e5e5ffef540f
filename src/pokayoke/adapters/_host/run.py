"""A run inside a framework's own loop: what every adapter needs.

In: requests, replies and calls, as the framework gets to them. Out: what the next request has to be like, calls with
ids of their own, and outcomes. Never: two calls of a run with one id, or a write that overtakes another call.

The framework asks its model, parses the reply and calls hooks. An adapter calls the methods of `AdapterRun` in the
order of a turn: `begin_request` before a request, `take_reply` with a reply, `call` or `acall` for each call.
"""

from __future__ import annotations

import copy
import itertools
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from msgspec import structs

from pokayoke.adapters._host.calls import ReplyCall
from pokayoke.adapters._host.control_flow import ControlFlow, Invoke
from pokayoke.adapters._host.ordering import CallOrdering
from pokayoke.core.call import Finding, Outcome, ToolCall
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.gate.rules import as_principal
from pokayoke.core.host_input import as_storable_id
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.core.messages.replies import CallIds
from pokayoke.core.state.final_answer import call_note
from pokayoke.core.state.words import say
from pokayoke.runtime.guard.guard import Guard
from pokayoke.runtime.run.run import Run

_KEPT_RUNS = 1_000
_KEPT_IDS = 100_000
# To the object that only a run of ours holds: the run's own reference, and the argument of `sys.getrefcount`.
_OWN_REFERENCES = 2

_Key = tuple[str, str]


class RequestShape(NamedTuple):
    """What the next request to the model has to be like.

    Attributes:
        instruction: text for this request only; in the next turn it is no longer true.
        final: True if the request offers no tools, and calls of its reply are dropped.
    """

    instruction: str | None
    final: bool


class PendingCall(NamedTuple):
    """A call between the model's reply and its tool.

    Attributes:
        adapter_run: the run it belongs to.
        call: as the model wrote it.
        arguments: those that the framework was given for it; None if they could not be read.
    """

    adapter_run: AdapterRun
    call: ToolCall
    arguments: Any

    def with_arguments(self, arguments: Any) -> ToolCall:
        """Return the call; with these arguments if they are others than the framework was given."""
        return self.call if arguments == self.arguments else structs.replace(self.call, arguments=arguments)


class AdapterRun:
    """One run that a framework drives.

    Args:
        run: the run.
        through: exceptions by which the framework steers itself. By its own rules a tool that raises one has done
            nothing yet, so it is no failure; it is raised again once the claim is settled.
        taken: call ids that the framework's history holds already; no other call gets one of them.
        life: an object that the framework holds as long as its run goes on, if there is one.

    Attributes:
        notes: state that the adapter itself keeps of this loop.
    """

    def __init__(
        self, run: Run, *, through: tuple[type[Exception], ...] = (), taken: Iterable[str] = (), life: object = None
    ) -> None:
        """Begin before the first request."""
        self.run, self.through = run, through
        self._life = (life,)
        self._taken = set(taken)
        self._ids = CallIds(self._taken)
        self.notes: dict[str, Any] = {}
        self._final = False
        self._ordering = CallOrdering()
        self._current: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def with_run(self, run: Run) -> Self:
        """Return the same loop for another run; calls that have begun stay with the old one."""
        other = copy.copy(self)
        other.run = run
        return other

    def reserve_ids(self, ids: Iterable[str]) -> None:
        """Give no other call one of these ids, which the framework's history holds already."""
        self._taken.update(ids)

    @property
    def is_alive(self) -> bool:
        """True if the framework still holds the object that lives as long as its run."""
        return sys.getrefcount(self._life[0]) > _OWN_REFERENCES

    # -- around a request -------------------------------------------------------------------------

    def begin_request(self) -> RequestShape:
        """Return what the next request has to be like, and end the round of the calls since the last one."""
        instruction = self.run.instruction
        self._final = self.run.mode in ("final_answer", "stopped")
        return RequestShape(instruction, self._final)

    @property
    def is_final(self) -> bool:
        """True if the latest request offered no tools."""
        return self._final

    def take_reply(self, asked: Iterable[ReplyCall], stop_reason: object = None) -> list[ToolCall]:
        """Take the calls of one reply, and give each an id of its own by which it has to be answered.

        Args:
            asked: the calls, in order, argument texts as they came.
            stop_reason: why the provider says the message ended; of a cut message no call will run.

        Returns:
            As many calls, for the framework's history, see `encode_unreadable_call`; none after a final request.
        """
        if self._final:
            return []
        self.run.seen.begin_message()
        proof = "length" if is_cut(stop_reason) else None
        calls = [ToolCall(self._ids.unique_id(one.id), one.name, one.arguments, proof) for one in asked]
        self._current = frozenset(one.id for one in calls)
        return calls

    def is_current(self, ident: str) -> bool:
        """Return whether a call is one of the latest reply."""
        return ident in self._current

    def recall_reply(self, ids: Iterable[str], history: Iterable[Any]) -> None:
        """Take up a reply of a history again, whose calls a framework runs: after a restart, or from a checkpoint.

        Args:
            ids: the ids of its calls.
            history: what its request carried, see `Run.set_history`.
        """
        wanted: frozenset[str] = frozenset(ids)
        with self._lock:
            if not self._current.issuperset(wanted):
                self.run.set_history(history)
                self._current = wanted

    def final_text(self, text: str | None) -> str:
        """Return the text for the user: the model's own and what has to be added, or a fallback if it is empty."""
        return self.run.answer(text).text

    # -- a tool -------------------------------------------------------------------------------------

    def call(self, call: ToolCall, invoke: Invoke | None = None) -> Outcome:
        """Take one call to its outcome; raises the exceptions by which the framework steers itself."""
        steering = ControlFlow(self.through)
        with self._ordering.call_slot(self.is_read(call)):
            outcome = self.run.call(call, invoke=steering.wrap_invoke(invoke))
        steering.raise_recorded()
        return outcome

    async def acall(self, call: ToolCall, invoke: Invoke | None = None) -> Outcome:
        """`call` for asynchronous code; `invoke` may return an awaitable."""
        steering = ControlFlow(self.through)
        async with self._ordering.call_slot(self.is_read(call)):
            outcome = await self.run.acall(call, invoke=steering.wrap_invoke_async(invoke))
        steering.raise_recorded()
        return outcome

    def is_read(self, call: ToolCall) -> bool:
        """Return whether a call changes nothing; one of an unknown tool counts as a read."""
        snapshot = self.run.snapshot
        plan = snapshot.simple.get(call.name) or snapshot.find_plan(call.name)  # most names are written as they are
        return isinstance(plan, Finding) or plan.contract.effect == "read"


class AdapterRuns:
    """The open runs of one adapter, by the framework's own id of a run.

    The 1,000 most recently used runs stay open, and all runs with a `life` until that ends. The store finds the
    writes of a closed run by its run id, so the ids of 100,000 more runs that are not durable are kept as well.

    Args:
        guard: the guard.
        through: as in `AdapterRun`.
    """

    def __init__(self, guard: Guard, *, through: tuple[type[Exception], ...] = ()) -> None:
        """Begin with none."""
        self.guard, self.through = guard, through
        self._open: OrderedDict[_Key, AdapterRun] = OrderedDict()
        self._living: OrderedDict[_Key, AdapterRun] = OrderedDict()
        self._ids: OrderedDict[_Key, str] = OrderedDict()
        self._lock = threading.Lock()

    def run_for(
        self,
        ident: str,
        *,
        durable: bool = True,
        part: str = "",
        taken: Iterable[str] = (),
        life: object = None,
        **who: Any,
    ) -> AdapterRun:
        """Return the run of an id, for the caller of now; open it if it is not open.

        Args:
            ident: the framework's id of the run.
            durable: True if a restart would know that id again, so that writes are found under it.
            part: tells several loops of one run apart, such as those of its sub-agents.
            taken: as in `AdapterRun`; used only if the run is opened now.
            life: an object that the framework holds as long as its run goes on, and no longer. The run stays open
                until then, so `ident` may be made from this object's `id()`.
            who: session, tenant and principal, as for `Guard.run`.

        Raises:
            UsageError: the run is in use for another tenant, or a value of `who` is no id.
        """
        key = (ident, part)
        with self._lock:
            kept = self._open if life is None else self._living
            adapter_run = kept.get(key)
            if adapter_run is None:
                self._evict_runs()
                run = self.guard.run(as_storable_id(ident) if durable else self._ids.pop(key, None), **who)
                adapter_run = kept[key] = AdapterRun(run, through=self.through, taken=taken, life=life)
            elif (run := _run_for_caller(self.guard, adapter_run.run, **who)) is not adapter_run.run:
                adapter_run = kept[key] = adapter_run.with_run(run)
            kept.move_to_end(key)
            return adapter_run

    def has_run(self, adapter_run: AdapterRun, ident: str) -> bool:
        """Return whether `run_for` would return this very run for an id and the same caller; counts as a use of it."""
        with self._lock:
            if kept := self._open.get((ident, "")) is adapter_run:
                self._open.move_to_end((ident, ""))
            return kept

    def close_run(self, ident: str) -> None:
        """Close a run that is over."""
        with self._lock:
            adapter_run = self._open.pop((ident, ""), None)
        if adapter_run is not None:
            adapter_run.run.close()

    def _evict_runs(self) -> None:
        """Make room for one more run: close two whose life has ended, and the one that was used longest ago."""
        for key in [*itertools.islice(self._living, 2)]:
            if self._living[key].is_alive:
                self._living.move_to_end(key)
            else:
                self._living.pop(key).run.close()
        if len(self._open) >= _KEPT_RUNS:
            key, old = self._open.popitem(last=False)
            old.run.close()
            if not self.guard.store.durable:  # a durable store would treat the id as one that a restart knows
                self._ids[key] = old.run.id
        if len(self._ids) > _KEPT_IDS:
            self._ids.popitem(last=False)


def _run_for_caller(
    guard: Guard, run: Run, session: str | None = None, tenant: str | None = None, principal: Any = None
) -> Run:
    """Return the run for this caller; the same object if it already acts for that caller."""
    known = run.principal
    if known is not None and type(principal) is str:
        same = known.id == principal and not known.roles  # an id that was checked before
    else:
        same = known == as_principal(principal)
    if same and run.session == session and run.tenant == tenant:
        return run
    checked = guard.run(run.id, session=session, tenant=tenant, principal=principal)
    acting = copy.copy(run)
    acting.session, acting.principal = checked.session, checked.principal
    return acting


def text_for_user(snapshot: Snapshot, outcome: Outcome) -> str:
    """Return what the user reads of a call whose result goes past the model: its value, and what it must not hide."""
    words = snapshot.policy.words
    note, value = call_note(outcome, words), outcome.value
    if not outcome.ok or (note and value is None):
        return note
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"{text}\n\n{say(words, 'note', note=note)}" if note else text
