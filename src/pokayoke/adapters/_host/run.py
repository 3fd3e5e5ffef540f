"""A run inside a framework's own loop: what every adapter needs, and none of them says twice.

The framework asks its model, parses the reply, and calls hooks. An adapter tells `AdapterRun` what the model wrote,
before the framework can lose it, and asks it what becomes of each call. The names of the steps are the order of a
turn: `begin_request` a request, `take_reply` a reply, `take` a call, `call` the tool.
"""

from __future__ import annotations

import copy
import itertools
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from pokayoke.adapters._host.control_flow import ControlFlow, Invoke
from pokayoke.adapters._host.ordering import CallOrdering
from pokayoke.core.call import Effect, Finding, Outcome, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.gate.rules import as_principal
from pokayoke.core.ident import as_storable_id
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.reading import is_cut
from pokayoke.core.messages.replies import CallIds
from pokayoke.errors import UsageError

if TYPE_CHECKING:
    from pokayoke.runtime.guard.guard import Guard
    from pokayoke.runtime.run.run import Run

__all__ = [
    "AdapterRun",
    "AdapterRuns",
    "ReplyCall",
    "RequestShape",
    "ToolDescription",
    "build_contracts",
    "decode_call",
    "encode_unreadable_call",
    "is_encoded_call",
    "value_as_text",
]

_KEPT_RUNS = 1_000
_KEPT_IDS = 100_000
_OWN_REFERENCES = (
    2  # references to what only a run of ours holds: its own, and the argument of the function that counts them
)
_UNREAD = "unread_tool_call"
_MAX_NAME = 128

_Key = tuple[str, str]


class ReplyCall(NamedTuple):
    """One call as it stood in a reply."""

    id: str | None
    name: str
    arguments: str | dict[str, Any]


class RequestShape(NamedTuple):
    """What the next request to the model has to be like."""

    instruction: str | None
    """To be said in this request only; in the next turn it is no longer true."""
    final: bool
    """True if the model gets no tools and its calls count for nothing."""


class AdapterRun:
    """One run that a framework drives.

    Args:
        run: the run.
        through: exceptions by which the framework steers itself. By its own rules a tool that raises one has done
            nothing yet, so it is no failure; it is raised again once the claim is settled.
        taken: call ids that the framework's history holds already; no other call gets one of them.
        life: what others hold as long as the framework's run goes on, if that can be seen.

    Attributes:
        notes: what the adapter itself has to remember of this loop.
    """

    def __init__(
        self, run: Run, *, through: tuple[type[Exception], ...] = (), taken: Iterable[str] = (), life: object = None
    ) -> None:
        """Begin with nothing heard."""
        self.run, self.through = run, through
        self._life = (life,)
        self._taken = set(taken)
        self._ids = CallIds(self._taken)
        self.notes: dict[str, Any] = {}
        self._final = False
        self._turnstile = CallOrdering()

    def with_run(self, run: Run) -> Self:
        """Return the same loop, acting as another run: a call that has begun stays what it was."""
        other = copy.copy(self)
        other.run = run
        return other

    def reserve_ids(self, ids: Iterable[str]) -> None:
        """Give no other call one of these ids: the framework's history holds them already."""
        self._taken.update(ids)

    @property
    def is_alive(self) -> bool:
        """True if somebody else holds what lives as long as the run."""
        return sys.getrefcount(self._life[0]) > _OWN_REFERENCES

    # -- around a request -------------------------------------------------------------------------

    def begin_request(self) -> RequestShape:
        """Say what the next request has to be like. The calls since the last one were one round."""
        instruction = self.run.instruction
        self._final = self.run.mode in ("final_answer", "stopped")
        return RequestShape(instruction, self._final)

    @property
    def is_final(self) -> bool:
        """True if the latest request offered no tools."""
        return self._final

    def take_reply(self, asked: Iterable[ReplyCall], stop_reason: object = None) -> list[ToolCall]:
        """Take the calls of one reply, each with an id of its own by which it has to be answered.

        Args:
            asked: the calls, in order, argument texts as they came.
            stop_reason: why the provider says the message ended; of a cut message no call will run.

        Returns:
            The calls to put into the framework's history, see `encode_unreadable_call`; none after a `is_final`
            request.
        """
        if self._final:
            return []
        proof = "length" if is_cut(stop_reason) else None
        return [ToolCall(self._ids.unique_id(one.id), one.name, one.arguments, proof) for one in asked]

    def final_text(self, text: str | None) -> str:
        """Return what the user gets to read: the model's own text, or the honest fallback."""
        return self.run.answer(text).text

    # -- a tool -------------------------------------------------------------------------------------

    def call(self, call: ToolCall, invoke: Invoke | None = None) -> Outcome:
        """Take one call to its outcome. Raises what the framework steers itself by."""
        steering = None
        if self.through and invoke is not None:
            steering = ControlFlow(self.through)
            invoke = steering.wrap_invoke(invoke)
        with self._turnstile.call_slot(self._is_read(call)):
            outcome = self.run.call(call, invoke=invoke)
        if steering is not None:
            steering.raise_recorded()
        return outcome

    async def acall(self, call: ToolCall, invoke: Invoke | None = None) -> Outcome:
        """`call` for asynchronous code; `invoke` may return an awaitable."""
        steering = None
        if self.through and invoke is not None:
            steering = ControlFlow(self.through)
            invoke = steering.wrap_invoke_async(invoke)
        async with self._turnstile.call_slot(self._is_read(call)):
            outcome = await self.run.acall(call, invoke=invoke)
        if steering is not None:
            steering.raise_recorded()
        return outcome

    def _is_read(self, call: ToolCall) -> bool:
        snapshot = self.run.snapshot
        plan = snapshot.simple.get(call.name) or snapshot.find_plan(call.name)  # most names are written as they are
        return isinstance(plan, Finding) or plan.contract.effect == "read"


class AdapterRuns:
    """The runs of a guard that one adapter serves, by the framework's own id of a run.

    A thousand are kept, the latest used, beside those whose end can be seen. Of the others the store keeps what was
    written. It finds that by the run's id, so the ids of 100,000 more runs are kept that have no lasting one.

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
        """Return the run of an id on behalf of whoever calls now, opened if need be.

        Args:
            ident: the framework's id of the run.
            durable: True if a restart would know that id again, so that writes are remembered under it.
            part: tells several loops of one run apart, such as those of its sub-agents.
            taken: as in `AdapterRun`; looked at only if the run is opened now.
            life: an object that others hold as long as the framework's run goes on, and no longer. Until then the run
                is kept, so that `ident` may be this object's own.
            who: session, tenant and principal, as for `Guard.run`.

        Raises:
            UsageError: the run is in use for another tenant, or something of `who` is no id.
        """
        key = (ident, part)
        with self._lock:
            kept = self._open if life is None else self._living
            hosted = kept.get(key)
            if hosted is None:
                self._evict_runs()
                run = self.guard.run(as_storable_id(ident) if durable else self._ids.pop(key, None), **who)
                hosted = kept[key] = AdapterRun(run, through=self.through, taken=taken, life=life)
            elif (run := _run_for_caller(hosted.run, **who)) is not hosted.run:
                hosted = kept[key] = hosted.with_run(run)
            kept.move_to_end(key)
            return hosted

    def has_run(self, hosted: AdapterRun, ident: str) -> bool:
        """Return whether `of` opened this for that id and still has it, on whose behalf it did then; it is used now."""
        with self._lock:
            if kept := self._open.get((ident, "")) is hosted:
                self._open.move_to_end((ident, ""))
            return kept

    def close_run(self, ident: str) -> None:
        """Say that a run is over."""
        with self._lock:
            hosted = self._open.pop((ident, ""), None)
        if hosted is not None:
            hosted.run.close()

    def _evict_runs(self) -> None:
        """Before a run is opened, look at two that may have ended, and give up the one that was used longest ago."""
        for key in [*itertools.islice(self._living, 2)]:
            if self._living[key].is_alive:
                self._living.move_to_end(key)
            else:
                self._living.pop(key).run.close()
        if len(self._open) >= _KEPT_RUNS:
            key, old = self._open.popitem(last=False)
            old.run.close()
            if not self.guard.store.durable:  # a durable one would take the id for one that a restart knows
                self._ids[key] = old.run.id
        if len(self._ids) > _KEPT_IDS:
            self._ids.popitem(last=False)


def _run_for_caller(run: Run, session: str | None = None, tenant: str | None = None, principal: Any = None) -> Run:
    """The run on behalf of these; itself if they are those it acts for already."""
    known = run.principal
    if known is not None and type(principal) is str:
        same = known.id == principal and not known.roles  # as whoever is known, a plain id needs no second check
    else:
        same = known == as_principal(principal)
    if same and run.session == session and run.tenant == tenant:
        return run
    checked = run.guard.run(run.id, session=session, tenant=tenant, principal=principal)
    acting = copy.copy(run)
    acting.session, acting.principal = checked.session, checked.principal
    return acting


def value_as_text(outcome: Outcome) -> str:
    """Return what the user reads of a call that ended ok, where no model does: its value, or that it was not kept."""
    value = outcome.value
    if value is None and outcome.status == "replayed":
        return outcome.message
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def encode_unreadable_call(call: ToolCall, *, name: bool = False) -> dict[str, Any]:
    """Return arguments that a framework's own parser takes and keeps, in place of what the model wrote.

    A text that can be read stands there as it was meant. Any other is wrapped, and `decode_call` unwraps it: not even
    a restart of the framework from its own history loses what the model wrote, or that its message was cut.
    Arguments that look like a wrapper are wrapped, too: a model cannot pass off a call as another one.

    Args:
        call: from `AdapterRun.take_reply`.
        name: True to wrap in any case, with the name, for a framework that turns unknown names away by itself.
    """
    given = call.arguments
    if not name and not is_cut(call.stop_reason):
        meant = given if isinstance(given, dict) else _read_object(given)
        if meant is not None and _UNREAD not in meant:
            return meant
    text = given.decode(errors="replace") if isinstance(given, bytes) else given
    return {_UNREAD: {"name": call.name[:_MAX_NAME], "arguments": text, "stop_reason": call.stop_reason}}


def is_encoded_call(arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments look like what `encode_unreadable_call` wraps a text with."""
    return len(arguments) == 1 and isinstance(arguments.get(_UNREAD), dict)


def decode_call(ident: str | None, name: str, arguments: Any) -> ToolCall:
    """Return the call as the model wrote it, from what a framework's hook was handed.

    Args:
        ident: its id, if it has one.
        name: the tool that the framework has found.
        arguments: what `encode_unreadable_call` returned, as the framework kept it. What a model wrote and
            `encode_unreadable_call` has not seen must not be handed over: it could name another tool.
    """
    given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None
    if given is not None and isinstance(kept := given.get(_UNREAD), dict):
        kept = cast("dict[str, Any]", kept)
        named, stop = kept.get("name") or name, kept.get("stop_reason")
        if is_encoded_call(given):
            return ToolCall(ident or "", named, kept.get("arguments", ""), stop)
        # Somebody has put arguments beside a text that could not be read: neither is what the call would have been.
        return ToolCall(ident or "", named, given, stop, unread="not_read")
    return ToolCall(ident or "", name, given if given is not None else str(arguments or ""))


def _read_object(text: str | bytes) -> dict[str, Any] | None:
    reading = read_arguments(text)
    return reading.value if reading.grade in ("exact", "lossless") else None


class ToolDescription(NamedTuple):
    """A framework's tool, as its adapter sees it."""

    name: str
    description: str
    schema: Mapping[str, Any]


def build_contracts(
    tools: Iterable[ToolDescription],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    through: tuple[type[Exception], ...] = (),
) -> list[Contract]:
    """Build the contracts of a framework's tools. What is not declared is a write, and its output is unchecked.

    A schema that names its properties and does not say whether there may be others is closed: frameworks drop what
    a tool does not take without a word. `"additionalProperties": true` keeps it open.

    Args:
        tools: the tools.
        reads: names of those that change nothing.
        destructive: names of those whose effect cannot be undone.
        fields: further fields of the contracts, by tool name, such as `{"refund": {"identity": ("order",)}}`.
        through: exceptions by which the framework steers itself; they prove that nothing happened.

    Raises:
        UsageError: a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    known = list(tools)
    more = fields or {}
    if strangers := sorted({*reads, *destructive, *more} - {one.name for one in known}):
        raise UsageError(f"no tool is called {', '.join(strangers)}: correct reads=, destructive= or fields=")
    made: list[Contract] = []
    for one in known:
        effect: Effect = "read" if one.name in reads else "destructive" if one.name in destructive else "write"
        given: dict[str, Any] = {"description": one.description, "effect": effect, **more.get(one.name, {})}
        given["no_effect_errors"] = (*given.get("no_effect_errors", ()), *through)
        made.append(Contract.from_schema(one.name, _close_schema(one.schema), **given))
    return made


_OPENERS = frozenset({
    "additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref",
    "$dynamicRef", "dependentSchemas",
})  # fmt: skip
"""Keywords of a schema that say something of properties beside `properties`."""


def _close_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in schema or _OPENERS & schema.keys():
        return dict(schema)
    return {**schema, "additionalProperties": False}
