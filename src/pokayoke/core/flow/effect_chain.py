"""The equal effects of a call, one after the other: which of them does the call mean?

In: a call, and what the ledger answers for one effect after the other, from the first one on.
Out: the answer that counts, or the wish for the next effect.
Never: a next effect while one of them is under way or in doubt, or while the caller has not seen the latest answer.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.plan import CallPlan, Snapshot
from pokayoke.core.flow.repetition import FIRST, Repetition, Sighting, decide_repetition, sight_answer
from pokayoke.core.flow.seen_history import AnsweredCall
from pokayoke.core.flow.states import PreparedCall, hash_identity, identity_hash
from pokayoke.core.flow.steps import ListEffects, ReadRecord, Step
from pokayoke.core.ledger.findings import failed_before_finding
from pokayoke.core.ledger.key import ledger_key
from pokayoke.core.ledger.records import OPEN, UNASKED, Admission, Claim, Record


class EffectWish(NamedTuple):
    """The effect that a call asks for.

    Attributes:
        claim: the claim; None for a read.
        number: how many equal effects come before it.
        earlier: the one that it would repeat, or None.
        asks: True if a person has to say yes to the repetition.
        resumes: True if that person must have been asked before.
    """

    claim: Claim | None
    number: int = 0
    earlier: Record | None = None
    asks: bool = False
    resumes: bool = False


def effect_key(prepared: PreparedCall, plan: CallPlan, scope: tuple[str, str], number: int) -> str:
    """Return the key of an effect of this call: 0 for the first, 1, 2, ... for its repetitions."""
    contract = plan.contract
    identity = identity_hash(prepared, contract)
    return ledger_key(scope, contract.name, identity, occurrence=number, epoch=contract.key_epoch)


class EffectChain:
    """Follows the equal effects of one call.

    Args:
        prepared: the call.
        plan: how calls of its contract are treated.
        env: its environment.
        scope: its ledger scope.
        claim: its claim of the first effect, or of the one that the host names.

    Attributes:
        wish: the effect to ask for.
        repetition: how the call stands to the effects before it.
    """

    def __init__(
        self, prepared: PreparedCall, plan: CallPlan, env: CallEnvironment, scope: tuple[str, str], claim: Claim
    ) -> None:
        """Begin with the latest effect that the caller is known to have gone on from."""
        self._prepared, self._plan, self._env, self._scope, self._claim = prepared, plan, env, scope, claim
        self.repetition, self.wish = FIRST, EffectWish(claim, prepared.call.occurrence)
        self._marks: tuple[str, ...] = ()
        self._place = 0
        if self.wish.number:  # the host has said which one it means
            self.repetition = Repetition(is_new=True)
            return
        memory, caller = env.caller.memory, env.caller
        if plan.contract.repeat_rule == "each":
            self._place = memory.find_place(claim.key, prepared.call.id, caller.message)
        if known := memory.known_chain(claim.key):
            self._marks = known[:-1]
            self._wish_for(len(self._marks))

    def follow(self, answer: Admission) -> Generator[Step, Any, Admission | None]:
        """Return the answer that counts; None if another effect is wished for now."""
        record, earlier = answer.record, self.wish.earlier
        if answer is UNASKED and earlier is not None:
            self.repetition = self.repetition._replace(is_new=False)
            return _answer_from(earlier)
        if record is None or answer.kind == "execute":
            return answer
        if self._prepared.call.occurrence:
            self.repetition = FIRST
            return answer
        is_settled = answer.kind in ("replay", "failed")
        if not is_settled and not (self._place and record.state in OPEN):
            return answer
        self._marks = (*self._marks, record.mark)
        sighting = self._sight(record) if is_settled else "unseen"
        if sighting in ("unseen", "unknown"):
            if len(self._marks) > 1 and earlier is None:  # the caller is not as far as others of this opening were
                self._marks = ()
                self._wish_for(0)
                return None
            if (ahead := (yield from self._find_seen())) is not None:
                record, sighting = ahead
                answer = _answer_from(record)
            elif self._place:  # that effect is the one of an equal call before this one, in the same message
                self._place -= 1
                self.repetition = Repetition(is_new=True, earlier=record)
                self._wish_for(len(self._marks), record)
                return None
        return (yield from self._decide(answer, record, sighting))

    def _decide(self, answer: Admission, record: Record, sighting: Sighting) -> Generator[Step, Any, Admission | None]:
        rule, caller = self._plan.contract.repeat_rule, self._env.caller
        since: tuple[str, ...] = yield ListEffects(record)
        decided = decide_repetition(rule, sighting, caller, record, has_later_effect=bool(since))
        is_new = sighting not in ("unseen", "unknown")
        self.repetition = Repetition(is_new, record, since, len(self._marks) - 1)
        # A question that waits, or was answered, is about this very effect: whoever sends the call again may use it.
        resumes = sighting == "unknown" and caller.may_ask and (rule == "once" or not caller.knows_turns)
        if decided == "replay" and not resumes and not (is_new and (yield from self._has_next())):
            return answer
        if is_new:
            caller.memory.keep_chain(self._claim.key, self._marks)
        self._wish_for(len(self._marks), record, asks=decided == "ask" or resumes, resumes=resumes)
        return None

    def _wish_for(
        self, number: int, earlier: Record | None = None, *, asks: bool = False, resumes: bool = False
    ) -> None:
        claim = self._claim
        if number:
            key = effect_key(self._prepared, self._plan, self._scope, number)
            claim = msgspec.structs.replace(claim, key=key)
        self.wish = EffectWish(claim, number, earlier, asks, resumes)

    def _find_seen(self) -> Generator[Step, Any, tuple[Record, Sighting] | None]:
        """Return a later effect whose answer the caller has seen: a shortened history has lost the answers before."""
        marks, tool = self._marks, self._plan.contract.name
        while True:
            key = effect_key(self._prepared, self._plan, self._scope, len(self._marks))
            record: Record | Finding | None = yield ReadRecord(key, tool)
            if not isinstance(record, Record) or record.state in OPEN:
                self._marks = marks
                return None
            self._marks = (*self._marks, record.mark)
            sighting = self._sight(record)
            if sighting not in ("unseen", "unknown"):
                return record, sighting

    def _has_next(self) -> Generator[Step, Any, bool]:
        """Return whether there is a later effect: the latest one counts."""
        key = effect_key(self._prepared, self._plan, self._scope, len(self._marks))
        return isinstance((yield ReadRecord(key, self._plan.contract.name)), Record)

    def _sight(self, record: Record) -> Sighting:
        return sight_answer(record, self._marks, self._env.caller, self._prepared.call.id, self._is_equal)

    def _is_equal(self, one: AnsweredCall) -> bool:
        contract, call = self._plan.contract, self._prepared.call
        if (one.name, one.arguments) == (call.name, call.arguments):
            return True
        return means_effect(one, identity_hash(self._prepared, contract), contract, self._env.snapshot)


def means_effect(one: AnsweredCall, identity: str, contract: Contract, snapshot: Snapshot) -> bool:
    """Return whether a call of a history means the effect of this identity, see `hash_identity`."""
    if one.name != contract.name:
        found = snapshot.find_plan(one.name)
        if isinstance(found, Finding) or found.contract.name != contract.name:
            return False
    try:
        given: Any = one.arguments
        sent: Any = msgspec.json.decode(given or "{}") if isinstance(given, (str, bytes)) else given or {}
        return hash_identity(sent, contract) == identity
    except (TypeError, ValueError, RecursionError):  # no object of JSON values: it was corrected, or refused
        return False


def _answer_from(record: Record) -> Admission:
    """Return what the ledger answers an equal call of a settled effect."""
    if record.state == "completed":
        return Admission("replay", None, record)
    return Admission("failed", failed_before_finding(record.tool, record.failure), record)
