"""A model of callers, a ledger and a target, walked through exhaustively over the real pure functions.

A caller runs the real generators of `core/flow/resolve.py`; what it has been answered so far is its whole
state, so a step is taken by running it again with one more answer. The ledger is the real `admit`,
`settle` and `decide`. Everything else may happen at any time: a crash, a lease that lapses, a tool
that acts after its deadline, a lookup that cannot tell, a lost reply, a switch that opens.
"""

from collections import deque
from typing import Any, NamedTuple

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow import resolve
from pokayoke.core.flow.admit import admit_with_proof
from pokayoke.core.flow.resolve import NOT_FOUND, UNKNOWN, Found
from pokayoke.core.flow.steps import Admit, CheckOwner, Invoke, LookUp, Raised, Returned, Settle, TimedOut
from pokayoke.core.ledger import admission
from pokayoke.core.ledger import transitions as ledger
from pokayoke.core.ledger.admission import AdmissionRequest, StoredState
from pokayoke.core.ledger.records import Admission, Claim, Record, Resolution, Settlement
from pokayoke.core.state.kill_switch import Switch
from pokayoke.core.state.run_state import RunState, Taint, latch

LEASE = 10.0
ERROR = ConnectionError("the answer was lost")
REFUSED = PermissionError("declared to have had no effect")
UNAVAILABLE = Admission("refuse")
LOST = "the report was lost"


def way_to(before, world):
    """Yield the moves that lead to a world, from the beginning on."""
    way = []
    while before[world] is not None:
        world, what = before[world]
        way.append(what)
    return reversed(way)


class Bounds(NamedTuple):
    """How often each misfortune may strike in one history."""

    crashes: int = 1
    lapses: int = 2
    faults: int = 0
    decisions: int = 0
    flips: int = 0
    taints: int = 0


NOTHING_HAPPENS = Bounds(0, 0)


class Setting(NamedTuple):
    """What the contract declares and what the target can do.

    `remote`: an execution may act after its process has died, for at most `settle_after` seconds.
    `dedupes`: the target drops repeats of our key. `early`: the tool completes in its own transaction.
    `fence`: the tool looks whether it still holds the claim before it acts. `callers` hold the hash of
    each caller's arguments. `careless`: a person may say "no" although an executor is still alive.
    """

    callers: tuple[str, ...] = ("h", "h")
    on_ambiguous: str = "human"
    lookup_safe: str | None = None
    settle_after: float | None = None
    remote: bool = False
    dedupes: bool = False
    early: bool = False
    fence: bool = False
    harmless: bool = False
    careless: bool = False


class Caller(NamedTuple):
    """`said` is every answer so far; `ended` what the caller was told in the end: a kind and an output."""

    said: tuple[Any, ...] = ()
    begun: float | None = None
    dead: float | None = None
    ended: tuple[str, bytes | None] | None = None


class Tool(NamedTuple):
    """One execution: its caller, its attempt, and where it stands.

    `running`, `checked` (its fence), `acted` (and not heard), `over` (acted and heard), `gone` (it never acts).
    """

    caller: int
    attempt: int
    where: str = "running"
    heard: bool = True


class World(NamedTuple):
    """Everything there is at one moment."""

    now: float
    record: Record | None
    callers: tuple[Caller, ...]
    tools: tuple[Tool, ...]
    effects: int
    left: Bounds
    switch: tuple[bool, int] = (False, 0)
    tainted: bool = False
    vouched: bool = False
    misled: bool = False


class ViolationError(AssertionError):
    """An invariant does not hold; the message tells the shortest way there."""


def contract_of(setting):
    """The contract a setting stands for."""
    fields = {}
    if setting.on_ambiguous == "lookup":
        fields = {"lookup": lambda key, arguments: UNKNOWN, "lookup_safe": setting.lookup_safe}
    if setting.settle_after is not None:
        fields["settle_after"] = setting.settle_after
    return Contract.from_schema(
        "pay", {"type": "object"}, on_ambiguous=setting.on_ambiguous, forwards_key=True, idempotent=True, **fields
    )


def program(setting, contract, number, begun):
    """One call, as `core/flow/admit.py` walks it: admission, resolution, execution, settlement."""
    claim = Claim(
        "k", setting.callers[number], f"c{number}", "pay", "pay@1", "r", begun, LEASE,
        reruns=setting.on_ambiguous in ("downstream_key", "rerun_safe"), resolves=setting.on_ambiguous == "lookup",
    )  # fmt: skip
    request = AdmissionRequest("r", "pay", "write", None, begun, claim)
    answer = yield from admit_with_proof(request)
    if answer.kind == "resolve":
        answer, found = yield from resolve.resolve_doubt(request, contract, {}, answer, 1.0)
        if found is not None:
            yield Settle(Settlement("k", claim.claim_id, "completed", begun, found.output), "pay")
            answer = yield Admit(request)
    if answer.kind != "execute":
        kind = "in_doubt" if answer.kind == "resolve" else answer.kind
        return kind, answer.record.output if kind == "replay" else None
    reaction = yield Invoke(contract, {}, None, None, claim, answer.record.attempt)
    if isinstance(reaction, Returned):
        lost = yield Settle(Settlement("k", claim.claim_id, "completed", begun, reaction.value), "pay")
        if isinstance(lost, Record):
            return ("replay", lost.output) if lost.is_final else ("in_doubt", None)
        return ("unrecorded", None) if lost else ("ok", reaction.value)
    harmless = isinstance(reaction, Raised) and reaction.error is REFUSED
    known = yield Settle(Settlement("k", claim.claim_id, "failed_retriable" if harmless else "in_doubt", begun), "pay")
    if isinstance(known, Record):
        return "replay", known.output
    return ("failed" if harmless else "in_doubt"), None


class Model:
    """Every history of a setting within bounds.

    Attributes:
        seen: number of worlds that were looked at.
    """

    def __init__(self, setting, bounds):
        self.setting, self.bounds = setting, bounds
        self.contract = contract_of(setting)
        self._steps: dict[Any, Any] = {}
        self.seen = 0

    def check(self):
        """Walk through all worlds, nearest first; raises `ViolationError` for the first that must not be."""
        start = World(0.0, None, tuple(Caller() for _ in self.setting.callers), (), 0, self.bounds)
        before: dict[World, tuple[World, str] | None] = {start: None}
        queue = deque([start])
        while queue:
            world = queue.popleft()
            for what, after in self.moves(world):
                problem = self.wrong(world, after)
                if problem:
                    raise ViolationError("\n".join((problem, *way_to(before, world), what)))
                if after not in before:
                    before[after] = (world, what)
                    queue.append(after)
        self.seen = len(before)
        stuck = {(world.record, world.effects): world for world in before if world.record is not None}
        for world in stuck.values():
            if not self.settles(world):
                raise ViolationError("\n".join(("I11: nobody will ever settle this", *way_to(before, world))))
        return self

    # -- what may happen next -----------------------------------------------------------------------

    def moves(self, world):
        """Yield every move: what it is called, and the world after it."""
        left = world.left
        for number, caller in enumerate(world.callers):
            if caller.dead is not None or caller.ended is not None or self._could_be_another(world, number):
                continue
            yield from self._steps_of(world, number, caller)
        for number, caller in enumerate(world.callers):
            # A process may die at any time, also long after its call has ended: a hanging tool dies with it.
            busy = caller.ended is None or any(
                t.caller == number and t.where in ("running", "checked") for t in world.tools
            )
            if left.crashes and caller.dead is None and caller.begun is not None and busy:
                yield f"c{number} is killed", self._killed(world, number)
        yield from self._tools(world)
        if left.lapses and world.record is not None:
            yield "the lease lapses", self._later(world)
        if left.decisions and world.record is not None:
            yield from self._decisions(world)
        if left.flips:
            opened, epoch = world.switch
            flipped = world._replace(switch=(not opened, epoch + 1), left=left._replace(flips=left.flips - 1))
            yield ("the switch closes" if opened else "the switch opens"), flipped
        if left.taints and not world.tainted:
            yield "the run is tainted", world._replace(tainted=True, left=left._replace(taints=left.taints - 1))

    def _could_be_another(self, world, number):
        """Equal callers begin in the order of their numbers: every other history is one of these, renamed."""
        same = self.setting.callers[number]
        return any(
            self.setting.callers[earlier] == same and world.callers[earlier].begun is None for earlier in range(number)
        )

    def _steps_of(self, world, number, caller):
        if caller.begun is None:
            caller = caller._replace(begun=world.now)
        step = self._step(number, caller)
        name = f"c{number}"
        if isinstance(step, Admit):
            yield from self._admissions(world, number, caller, step)
        elif isinstance(step, CheckOwner):
            dead = world.callers[int(step.owner[1:])].dead
            yield (
                f"{name} asks for proof of death",
                self._told(world, number, caller, None if dead is None else world.now),
            )
        elif isinstance(step, LookUp):
            true = Found(b"found") if world.effects else NOT_FOUND
            for said in (true, UNKNOWN):
                vouched = world.vouched or isinstance(said, Found)
                after = self._told(world, number, caller, Returned(said))._replace(vouched=vouched)
                yield f"{name} looks: {said}", after
        elif isinstance(step, Settle):
            yield from self._settlements(world, number, caller, step)
        else:
            assert isinstance(step, Invoke)
            if not any(tool.caller == number for tool in world.tools):
                started = world._replace(tools=(*world.tools, Tool(number, step.attempt)))
                yield f"{name} starts the tool", started

    def _admissions(self, world, number, caller, step):
        now = world.now
        claim = msgspec.structs.replace(step.request.claim, now=now, owner=f"p{number}")
        request = msgspec.structs.replace(step.request, now=now, claim=claim)
        opened, epoch = world.switch
        run = latch(RunState("r"), Taint("crm", "i", 1, "html")) if world.tainted else RunState("r")
        switches = (Switch("crm", "open" if opened else "closed", epoch),) if epoch else ()
        kept = admission.admit(request, StoredState(run, world.record, switches=switches, epoch=epoch))
        after = world if kept.record is None else world._replace(record=kept.record)
        answer = msgspec.structs.replace(kept.answer, finding=None)
        what = f"c{number} asks for admission: {answer.kind}"
        yield what, self._told(after, number, caller, answer)
        if world.left.faults:
            fewer = world.left._replace(faults=world.left.faults - 1)
            yield (
                f"c{number} cannot reach the ledger",
                self._told(world, number, caller, UNAVAILABLE)._replace(left=fewer),
            )
            yield f"{what}, its reply is lost", self._told(after, number, caller, UNAVAILABLE)._replace(left=fewer)

    def _settlements(self, world, number, caller, step):
        report = msgspec.structs.replace(step.settlement, now=world.now)
        after, accepted = self._reported(world, report)
        answer = self._reply(after, report, accepted)
        what = f"c{number} reports {report.state}: {'accepted' if accepted else 'refused'}"
        yield what, self._told(after, number, caller, answer)
        if world.left.faults:
            fewer = world.left._replace(faults=world.left.faults - 1)
            lost = None if report.state == "in_doubt" else LOST
            yield (
                f"c{number} cannot report {report.state}",
                self._told(world, number, caller, lost)._replace(left=fewer),
            )
            # A report whose reply was lost is sent again, and the second reply counts.
            again, accepted = self._reported(after, report)
            answer = self._reply(again, report, accepted)
            yield f"{what}, twice", self._told(again, number, caller, answer)._replace(left=fewer)

    def _reply(self, world, report, accepted):
        """What the driver makes of it: the record if the claim was lost, or if a failed effect is known to be done."""
        if accepted or (report.state != "completed" and not world.record.is_final):
            return None
        return world.record

    def _reported(self, world, report):
        record, accepted = ledger.settle(world.record, report)
        return (world if record is None else world._replace(record=record)), accepted

    def _tools(self, world):
        """What executions do by themselves: act, come back, outlive their deadline, report late."""
        for place, tool in enumerate(world.tools):
            caller = world.callers[tool.caller]
            name = f"the tool of c{tool.caller}"
            alive = caller.dead is None or self.setting.remote
            if alive and tool.where == "running" and self.setting.fence:
                holds = world.record.claim_id == f"c{tool.caller}" and world.record.state == "executing"
                yield f"{name} looks at its fence", self._tool(world, place, where="checked" if holds else "gone")
            elif alive and tool.where in ("running", "checked"):
                yield from self._acting(world, place, tool, name)
            if caller.dead is not None:
                continue
            if tool.heard:
                value = b"from c%d" % tool.caller
                if tool.where == "acted":
                    over = self._tool(world, place, where="over")
                    yield f"{name} comes back", self._heard(over, place, Returned(value))
                    yield f"{name} raises after it has acted", self._heard(over, place, Raised(ERROR))
                elif tool.where == "gone":
                    yield f"{name} gives up", self._heard(world, place, Raised(ERROR))
                yield f"{name} passes its deadline", self._heard(world, place, TimedOut(1.0))
                if tool.where == "running" and self.setting.harmless:
                    gone = self._tool(world, place, where="gone")
                    yield f"{name} fails before it acts", self._heard(gone, place, Raised(REFUSED))
            elif tool.where == "acted":
                report = Settlement("k", f"c{tool.caller}", "completed", world.now)
                after, _ = self._reported(self._tool(world, place, where="over"), report)
                yield f"{name} reports late", after

    def _acting(self, world, place, tool, name):
        if self.setting.early:
            report = Settlement("k", f"c{tool.caller}", "completed", world.now, early=True)
            after, accepted = self._reported(world, report)
            if accepted:
                yield f"{name} commits", self._tool(after, place, where="acted")._replace(effects=world.effects + 1)
            else:
                yield f"{name} rolls back", self._tool(world, place, where="gone")
            return
        effects = 1 if self.setting.dedupes else world.effects + 1
        yield f"{name} acts", self._tool(world, place, where="acted")._replace(effects=effects)

    def _decisions(self, world):
        acting = any(self._may_act(world, tool) for tool in world.tools) or any(
            self._about_to_start(number, caller) for number, caller in enumerate(world.callers)
        )
        for happened in (True, False):
            true = bool(world.effects) is happened and (happened or not acting)
            if not true and not self.setting.careless:
                continue
            record = ledger.resolve_by_person(world.record, Resolution("k", happened, "ann", "asked", world.now))
            if record is not None:
                left = world.left._replace(decisions=world.left.decisions - 1)
                after = world._replace(record=record, left=left, vouched=world.vouched or happened)
                yield f"a person says {'yes' if happened else 'no'}", after._replace(misled=world.misled or not true)

    # -- parts --------------------------------------------------------------------------------------------

    def _step(self, number, caller):
        """The step that answers so far lead to, or the caller's end."""
        place = (number, caller.begun, caller.said)
        if place not in self._steps:
            walk = program(self.setting, self.contract, number, caller.begun)
            try:
                step = next(walk)
                for answer in caller.said:
                    step = walk.send(answer)
            except StopIteration as end:
                step = end.value
            self._steps[place] = step
        return self._steps[place]

    def _told(self, world, number, caller, answer):
        caller = caller._replace(said=(*caller.said, answer))
        step = self._step(number, caller)
        if isinstance(step, tuple):
            caller = caller._replace(said=(), ended=step)
        callers = list(world.callers)
        callers[number] = caller
        return world._replace(callers=tuple(callers))

    def _heard(self, world, place, reaction):
        number = world.tools[place].caller
        return self._told(self._tool(world, place, heard=False), number, world.callers[number], reaction)

    def _tool(self, world, place, **changes):
        tools = list(world.tools)
        tools[place] = tools[place]._replace(**changes)
        return world._replace(tools=tuple(tools))

    def _killed(self, world, number):
        callers = list(world.callers)
        callers[number] = callers[number]._replace(dead=world.now, said=())
        tools = tuple(
            tool._replace(where="gone")
            if tool.caller == number and not self.setting.remote and tool.where != "acted"
            else tool
            for tool in world.tools
        )
        left = world.left._replace(crashes=world.left.crashes - 1)
        return world._replace(callers=tuple(callers), tools=tools, left=left)

    def _later(self, world):
        now = world.now + LEASE
        after = world._replace(now=now, left=world.left._replace(lapses=world.left.lapses - 1))
        settled = self.setting.settle_after
        if settled is None:
            return after
        # Beyond its longest processing time the target does nothing any more for a dead caller.
        return after._replace(
            tools=tuple(
                tool._replace(where="gone")
                if tool.where in ("running", "checked") and self._dead_by(world, tool, now - settled)
                else tool
                for tool in world.tools
            )
        )

    def _dead_by(self, world, tool, moment):
        dead = world.callers[tool.caller].dead
        return dead is not None and dead < moment

    def _about_to_start(self, number, caller):
        walks = caller.begun is not None and caller.dead is None and caller.ended is None
        return walks and isinstance(self._step(number, caller), Invoke)

    def _may_act(self, world, tool):
        alive = world.callers[tool.caller].dead is None or self.setting.remote
        return alive and tool.where in ("running", "checked")

    # -- what must hold -------------------------------------------------------------------------------------

    def wrong(self, before, after):
        """The invariant that a move has broken, or None."""
        record, known = after.record, before.record
        if after.effects > 1 and not after.misled:
            return "I1: a second effect"
        if known is not None and known.state == "completed" and known.settled_at is not None and record != known:
            return "I3: a completed record has changed"
        if known is not None and known.state == "completed" and record.state != "completed":
            return "I3: a completed record is not completed any more"
        if known is not None and record.args_hash != known.args_hash:
            return "I5: other arguments have changed the record"
        if any(self.setting.callers[tool.caller] != record.args_hash for tool in after.tools):
            return "I5: other arguments were executed"
        single = not (self.setting.dedupes or self.setting.early or self.setting.on_ambiguous == "rerun_safe")
        if single and not after.misled and sum(self._may_act(after, tool) for tool in after.tools) > 1:
            return "I6: two executions are alive"
        attempts = [tool.attempt for tool in after.tools]
        if len(set(attempts)) < len(attempts) or (known is not None and record.attempt < known.attempt):
            return "I7: an attempt has not grown"
        if after.effects and record is None:
            return "I8: an effect without a record"
        if record is not None and record.state == "completed" and not after.effects and not after.vouched:
            return "I9: completed, and nothing has happened"
        if record is not None and record.state.startswith("failed") and after.effects and not after.misled:
            return "I9: failed, and it has happened"
        return self._answers(after) or self._switched(before, after)

    def _answers(self, world):
        outputs = set()
        for number, caller in enumerate(world.callers):
            if caller.ended is None:
                continue
            kind, output = caller.ended
            if kind in ("ok", "replay"):
                if world.record is None or world.record.state != "completed":
                    return f"I2: c{number} was told of a success that is not in the record"
                outputs.add(output)
            if kind in ("refuse", "failed") and any(
                t.caller == number and t.where in ("acted", "over") for t in world.tools
            ):
                return f"I10: c{number} was told that nothing was done, and it has acted"
        if outputs and outputs != {world.record.output}:
            return f"I4: callers were told {outputs}, the record says {world.record.output}"
        return None

    def _switched(self, before, after):
        stopped = before.switch[0] or before.tainted
        executes = after.record is not None and after.record.state == "executing"
        if stopped and executes and (before.record is None or before.record.attempt != after.record.attempt):
            return "I13: a claim was admitted while the switch was open or the run tainted"
        return None

    def settles(self, world):
        """I11: one more caller, when every lease has lapsed, finds or leaves a final state or a doubt."""
        last = len(world.callers)
        setting = self.setting._replace(callers=(*self.setting.callers, world.record.args_hash))
        model = Model(setting, NOTHING_HAPPENS)
        later = world._replace(
            now=world.now + 1_000.0, left=NOTHING_HAPPENS, callers=(*world.callers, Caller()),
            switch=(False, world.switch[1]), tainted=False,
        )  # fmt: skip
        while later.callers[last].ended is None:
            later = next(after for what, after in model.moves(later) if f"c{last}" in what)
        return later.record.state in ("completed", "failed_final", "failed_retriable", "in_doubt")
