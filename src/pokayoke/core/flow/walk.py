"""The whole path of a call: admit it, run its tool, repeat transient failures, finish it.

In: a call and its environment.
Out: the outcome. On the way it yields the steps that need I/O, which a driver performs.
Never: a second execution whose first one may have had an effect. A generator never outlives its call.

Frameworks with a hook before and a hook after a tool use `admit_call` and `finish_call` instead.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from pokayoke.core.call import Outcome, Raw, ToolCall
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.admit import admit_call, admit_retry, finish_without_run
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.failures import failed_effect
from pokayoke.core.flow.finish import finish_call
from pokayoke.core.flow.states import AdmittedCall, Attempts
from pokayoke.core.flow.steps import Invoke, Raised, Reaction, Returned, Step, Wait
from pokayoke.core.ledger.records import Admission
from pokayoke.core.output.transport import NO_EFFECT_STATUS, as_wire_response

# RFC 9110 (408, 502, 503, 504), RFC 6585 (429), RFC 8470 (425): the same request may succeed later.
_TRANSIENT_STATUS = frozenset((408, 425, 429, 502, 503, 504))
_HARMLESS_STATUS = _TRANSIENT_STATUS & NO_EFFECT_STATUS


def run_call(call: ToolCall, env: CallEnvironment) -> Generator[Step, Any, Outcome]:
    """Take a call from the model's text to its outcome."""
    admitted = yield from admit_call(call, env)
    if isinstance(admitted, Outcome):
        return admitted
    plan, count, total = admitted.plan, 0, 0.0
    prepared, arguments, contract, retry = admitted.prepared, admitted.arguments, plan.contract, plan.retry
    delay = retry.initial
    while True:
        count += 1
        reaction, seconds = yield Invoke(
            contract,
            arguments,
            admitted.located,
            plan.timeout,
            admitted.claim,
            admitted.attempt,
            prepared.is_sole_owner,
        )
        total += seconds
        transient = retry.retries > 0 and is_transient(contract, reaction)
        if not transient or count > retry.retries:
            return (yield from finish_call(admitted, env, reaction, Attempts(count, total, exhausted=transient)))
        if prepared.is_sole_owner:
            arguments = prepared.original_arguments()  # the tool may have changed the ones it got
        # Either nothing can have happened, or a second time does no harm.
        yield Wait(min(delay, retry.cap), retry.jitter)
        delay *= retry.factor
        answer = yield from admit_retry(admitted, env, reaction)
        if (answer.kind == "refuse" and answer.record is None) or _is_same_execution(answer, admitted):
            # Refused outside the ledger, or committed before the failure: the failure decides over the outcome.
            return (yield from finish_call(admitted, env, reaction, Attempts(count, total, exhausted=False)))
        if answer.kind != "execute":
            return (yield from finish_without_run(prepared, plan, env, answer, admitted.claim))
        if answer.record is not None:
            admitted = msgspec.structs.replace(admitted, attempt=answer.record.attempt)


def _is_same_execution(answer: Admission, admitted: AdmittedCall) -> bool:
    """Return whether the effect in the ledger is that of this very execution."""
    record, claim = answer.record, admitted.claim
    return answer.kind == "replay" and record is not None and claim is not None and record.claim_id == claim.claim_id


def is_transient(contract: Contract, reaction: Reaction) -> bool:
    """Return whether the same call may run again without a second effect.

    A read may be repeated after a connection error or a status that says "later", a write whose target
    drops repeats after a connection error. Any other call only after a failure that had no effect: an exception that
    says so, or a status that does. A call that passed its deadline is not repeated: a tool that hangs
    would hang again and cost one more worker.
    """
    reads = contract.effect == "read"
    if isinstance(reaction, Returned):
        if type(reaction.value) is str:
            return False
        return _is_retryable_response(reaction.value, _TRANSIENT_STATUS if reads else _HARMLESS_STATUS)
    if isinstance(reaction, Raised):
        if isinstance(reaction.error, contract.no_effect_errors):
            return not contract.transient_errors or isinstance(reaction.error, contract.transient_errors)
        repeatable = reads or contract.on_ambiguous in ("downstream_key", "rerun_safe")
        kinds = contract.transient_errors or (ConnectionError, TimeoutError)
        return (repeatable or failed_effect(reaction, contract) == "none") and isinstance(reaction.error, kinds)
    return False


def _is_retryable_response(value: Any, statuses: frozenset[int]) -> bool:
    """Return whether a result is a response with one of these statuses."""
    if type(value) is Raw and type(value.status) is int:  # its status needs no reading
        return value.status in statuses
    try:
        wire = as_wire_response(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a property of the tool's own object; the output rooms report it
        return False
    return wire is not None and wire.status in statuses
