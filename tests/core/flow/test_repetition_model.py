"""Every history of a few branches of one conversation, over the shipped chain, admission and settlement.

A branch sends the same call again and again. Its answers stand in its history or are lost, its user speaks, its
process dies in the tool, and another branch may go on from its history or from none. The wrong rules stand beside the
right one: a checker that does not find their second effect would prove nothing.
"""

from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from ledger_model import way_to

from pokayoke.core.call import ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow import effect_chain
from pokayoke.core.flow.effect_chain import EffectChain, effect_key
from pokayoke.core.flow.plan import build_snapshot
from pokayoke.core.flow.repetition import REPLAY_WORDS, CallerView, settled_time
from pokayoke.core.flow.seen_history import AnsweredCall, SeenHistory
from pokayoke.core.flow.states import PreparedCall
from pokayoke.core.flow.steps import Admit, Invoke, ListEffects, ReadRecord, Settle
from pokayoke.core.ledger import transitions
from pokayoke.core.ledger.admission import AdmissionRequest, StoredState, admit
from pokayoke.core.ledger.records import Claim, Record, Settlement, call_mark
from pokayoke.core.policy import Policy
from pokayoke.core.state.run_state import RunState

pytestmark = pytest.mark.timeout(600)
SCOPE, LEASE = ("run", "r"), 5.0


class Setting(NamedTuple):
    """The contract's rule, whether all calls share one id, and how often each thing may happen."""

    rule: str = "turn"
    same_id: bool = False
    branches: int = 2
    calls: int = 4
    losses: int = 1
    turns: int = 2
    forks: int = 1
    crashes: int = 1


class Branch(NamedTuple):
    """`seen` are the calls of its history, each with the number of the effect whose answer it got, or None."""

    seen: tuple[tuple[AnsweredCall, int | None], ...] = ()
    turn: int = 1
    call: str = ""
    said: tuple[Any, ...] = ()
    begun: float = 0.0
    claim: str = ""


class World(NamedTuple):
    """Everything there is at one moment; `acted` are the numbers of the effects that happened."""

    now: float
    records: tuple[Record, ...]
    acted: tuple[int, ...]
    branches: tuple[Branch, ...]
    left: tuple[int, int, int, int, int]


class ViolationError(AssertionError):
    """An invariant does not hold; the message tells the shortest way there."""


class Memory:
    """A branch remembers nothing but its history."""

    def handed_answers(self, key):
        return ()

    def known_chain(self, base):
        return ()

    def keep_chain(self, base, marks):
        pass

    def find_place(self, base, call_id, message):
        return 0


class Model:
    """Every history of a setting."""

    def __init__(self, setting):
        self.setting, self.seen = setting, 0
        contract = Contract.from_schema("add", {"type": "object"}, output_schema={}, repeats=setting.rule)
        self.plan = build_snapshot([contract], Policy()).plans["add@1"]
        self.keys = {effect_key(self._prepared("x"), self.plan, SCOPE, number): number for number in range(9)}

    def _prepared(self, ident):
        call = ToolCall(ident, "add", "{}")
        return PreparedCall(call, self.plan, {}, "h", b"{}")

    def program(self, branch):
        """One call, as `core/flow/admit.py` walks it."""
        history = SeenHistory(tuple(one for one, _ in branch.seen), branch.turn)
        prepared, view = self._prepared(branch.call), CallerView(Memory(), history=lambda: history, is_exact=True)
        claim = Claim(
            self._key(0), "h", branch.claim + call_mark(branch.call), "add", "add@1", "r", branch.begun, LEASE
        )
        chain = EffectChain(prepared, self.plan, SimpleNamespace(caller=view, snapshot=None), SCOPE, claim)
        while True:
            answer = yield Admit(AdmissionRequest("r", "add", "write", None, branch.begun, chain.wish.claim))
            final = yield from chain.follow(answer)
            if final is not None:
                break
        if final.kind != "execute":
            return final.kind, final.record
        claim = chain.wish.claim
        yield Invoke(self.plan.contract, {}, None, None, claim, 1)
        yield Settle(Settlement(claim.key, claim.claim_id, "completed", branch.begun, b"1"), "add")
        return "ok", claim.key

    def _key(self, number):
        return effect_key(self._prepared("x"), self.plan, SCOPE, number)

    def check(self):
        """Walk through all worlds, nearest first."""
        setting = self.setting
        left = (setting.calls, setting.losses, setting.turns, setting.forks, setting.crashes)
        start = World(1.0, (), (), (Branch(),) * setting.branches, left)
        before, queue = {start: None}, deque([start])
        while queue:
            world = queue.popleft()
            for what, after in self.moves(world):
                if isinstance(after, str):
                    raise ViolationError("\n".join((after, *way_to(before, world), what)))
                if after not in before:
                    before[after] = (world, what)
                    queue.append(after)
        self.seen = len(before)
        return self

    def moves(self, world):
        """Yield every move: what it is called, and the world after it, or what is wrong with it."""
        calls, losses, turns, forks, crashes = world.left
        for number, branch in enumerate(world.branches):
            name = f"b{number}"
            if branch.call:
                yield from self._steps(world, number, branch)
                continue
            if calls:
                ident = "c" if self.setting.same_id else f"c{calls}"
                begun = branch._replace(call=ident, begun=world.now, claim=f"b{number}-{calls}")
                yield f"{name} sends {ident}", self._with(world, number, begun, (calls - 1, *world.left[1:]))
            if turns:
                spoken = branch._replace(turn=branch.turn + 1)
                yield (
                    f"the user of {name} speaks",
                    self._with(world, number, spoken, (calls, losses, turns - 1, forks, crashes)),
                )
            if forks:
                fewer = (calls, losses, turns, forks - 1, crashes)
                for other in range(len(world.branches)):
                    seen, turn = world.branches[other].seen, world.branches[other].turn
                    if other != number:
                        yield f"{name} goes on as b{other}", self._with(world, number, Branch(seen, turn), fewer)
                yield f"{name} goes back to the beginning", self._with(world, number, Branch(), fewer)

    def _steps(self, world, number, branch):
        walk, name = self.program(branch), f"b{number}"
        try:
            step = next(walk)
            for answer in branch.said:
                step = walk.send(answer)
        except StopIteration as end:
            yield from self._ends(world, number, branch, end.value)
            return
        if isinstance(step, Admit):
            claim = msgspec.structs.replace(step.request.claim, now=world.now)
            held = StoredState(RunState("r"), self._record(world, claim.key))
            kept = admit(msgspec.structs.replace(step.request, claim=claim), held)
            answer = msgspec.structs.replace(kept.answer, finding=None)
            after = world if kept.record is None else self._with_record(world, kept.record)
            yield (
                f"{name} asks for effect {self.keys[claim.key]}: {answer.kind}",
                self._said(after, number, branch, answer),
            )
        elif isinstance(step, ReadRecord):
            yield f"{name} reads", self._said(world, number, branch, self._record(world, step.key))
        elif isinstance(step, ListEffects):
            for since in ((), ("other",)):
                yield f"{name} hears of {len(since)} later effects", self._said(world, number, branch, since)
        elif isinstance(step, Invoke):
            effect = self.keys[step.claim.key]
            wrong = self._wrong(world, branch, effect)
            yield (
                f"{name} acts: {effect}",
                wrong or self._said(world._replace(acted=(*world.acted, effect)), number, branch, None),
            )
            *others, crashes = world.left
            if crashes:  # in the tool, after the effect; the lease of its claim lapses
                dead = world._replace(acted=(*world.acted, effect), now=world.now + LEASE)
                yield (
                    f"{name} dies in effect {effect}",
                    wrong or self._with(dead, number, branch._replace(call="", said=()), (*others, crashes - 1)),
                )
        else:
            report = msgspec.structs.replace(step.settlement, now=world.now + 1)
            record, _ = transitions.settle(self._record(world, report.key), report)
            after = self._with_record(world._replace(now=world.now + 1), record)
            yield f"{name} settles", self._said(after, number, branch, None)

    def _wrong(self, world, branch, effect):
        if effect in world.acted:
            return "R1: one effect happens twice"
        if effect and not any(seen is not None and seen >= effect - 1 for _, seen in branch.seen):
            return "R2: a repetition whose caller has not seen the answer"
        open_still = [one for one in world.records if self.keys[one.key] < effect and one.state != "completed"]
        return "R3: a repetition while an equal effect is open" if open_still else None

    def _ends(self, world, number, branch, end):
        kind, about = end
        effect, text = None, "It is not known whether add took effect."
        if kind == "ok":
            effect, text = self.keys[about], f'<tool_output tool="add" call="{branch.call}" trust="checked">\n1'
        elif kind == "replay":
            effect, text = self.keys[about.key], f"{REPLAY_WORDS}: add already ran at {settled_time(about)}; result"
            earlier = any(seen == effect and one.turn < branch.turn for one, seen in branch.seen)
            if earlier and self.setting.rule != "once":
                yield f"b{number} is told of {effect} again", "R4: a wish of a later turn is dropped"
        answered = AnsweredCall(branch.call, "add", "{}", text, branch.turn)
        told = branch._replace(call="", said=(), seen=(*branch.seen, (answered, effect)))
        yield f"b{number} is told: {kind}", self._with(world, number, told, world.left)
        calls, losses, *others = world.left
        if losses:
            lost = branch._replace(call="", said=())
            yield f"the answer of b{number} is lost", self._with(world, number, lost, (calls, losses - 1, *others))
            # Whoever mends the history says that no result is known.
            mended = lost._replace(seen=(*branch.seen, (answered._replace(text="no result is known"), None)))
            yield f"the answer of b{number} is made up", self._with(world, number, mended, (calls, losses - 1, *others))

    # -- parts ------------------------------------------------------------------------------------------

    def _record(self, world, key):
        return next((one for one in world.records if one.key == key), None)

    def _with_record(self, world, record):
        others = [one for one in world.records if one.key != record.key]
        return world._replace(records=tuple(sorted((*others, record), key=lambda one: self.keys[one.key])))

    def _with(self, world, number, branch, left):
        branches = list(world.branches)
        branches[number] = branch
        return world._replace(branches=tuple(branches), left=left)

    def _said(self, world, number, branch, answer):
        return self._with(world, number, branch._replace(said=(*branch.said, answer)), world.left)


@pytest.mark.parametrize("same_id", [False, True])
@pytest.mark.parametrize("rule", ["once", "turn", "each"])
def test_no_effect_is_doubled_and_no_wish_dropped(rule, same_id, full):
    """At most one effect per number, each by a caller that has seen the one before; a later turn's wish comes true."""
    setting = Setting(rule, same_id) if full else Setting(rule, same_id, calls=3, turns=1, forks=int(same_id))
    assert Model(setting).check().seen > 500


def found(setting):
    """What the checker finds, and how many moves lead there."""
    with pytest.raises(ViolationError) as caught:
        Model(setting).check()
    return str(caught.value).splitlines()[0]


def test_the_order_of_writes_is_no_licence(monkeypatch):
    """Without a look at the history, a node that runs again after another write has a second effect."""
    monkeypatch.setattr(effect_chain, "sight_answer", lambda *_: "earlier_turn")
    assert found(Setting(crashes=0)).startswith("R2")


def test_an_id_in_the_history_is_no_answer(monkeypatch):
    """A text that was made up for a lost answer carries the id of its call."""

    def by_id(record, marks, caller, call_id, is_equal):
        known = [one for one in caller.history().calls if call_mark(one.id) == record.mark]
        return "earlier_turn" if known else "unseen"

    monkeypatch.setattr(effect_chain, "sight_answer", by_id)
    assert found(Setting()).startswith("R2")


def test_one_answer_does_not_stand_for_two_effects(monkeypatch):
    """With one id for all calls, the answer of the first effect would pass for that of the second."""
    right = effect_chain.sight_answer
    monkeypatch.setattr(effect_chain, "sight_answer", lambda record, marks, *rest: right(record, marks[-1:], *rest))
    assert found(Setting(same_id=True, branches=1, crashes=0)).startswith("R2")


def test_nothing_is_new_beside_a_doubt(monkeypatch):
    """A chain that passes an open effect repeats what may have happened."""
    right = EffectChain.follow

    def passing(self, answer):
        if answer.record is not None and answer.kind not in ("execute", "replay"):
            self._marks = (*self._marks, answer.record.mark)
            self._wish_for(len(self._marks), answer.record)
            return None
            yield
        return (yield from right(self, answer))

    monkeypatch.setattr(EffectChain, "follow", passing)
    assert found(Setting())[:2] in {"R2", "R3"}
