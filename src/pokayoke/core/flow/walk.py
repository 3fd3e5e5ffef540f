"""Which failures may go away by themselves, and may be tried again because nothing has happened."""

from __future__ import annotations

from typing import Any

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.steps import Raised, Reaction, Returned
from pokayoke.core.output.transport import as_wire_response

# RFC 9110 (408, 502, 503, 504), RFC 6585 (429), RFC 8470 (425): the same request may succeed later.
_TRANSIENT_STATUS = frozenset((408, 425, 429, 502, 503, 504))


def is_transient(contract: Contract, reaction: Reaction) -> bool:
    """True if the same call may be made again without being a second effect.

    A read may always be repeated after a connection error or a status that says "later"; a write whose
    target drops repeats, after a connection error. Anything else has to raise an exception that its
    contract declares to have had no effect. A deadline that passed is not repeated: a tool that hangs
    would hang again, with one more worker lost.
    """
    reads = contract.effect == "read"
    if isinstance(reaction, Returned):
        return reads and type(reaction.value) is not str and _is_retryable_response(reaction.value)
    if isinstance(reaction, Raised):
        if isinstance(reaction.error, contract.no_effect_errors):
            return not contract.transient_errors or isinstance(reaction.error, contract.transient_errors)
        repeatable = reads or contract.on_ambiguous in ("downstream_key", "rerun_safe")
        kinds = contract.transient_errors or (ConnectionError, TimeoutError)
        return repeatable and isinstance(reaction.error, kinds)
    return False


def _is_retryable_response(value: Any) -> bool:
    """True if a result is a response whose status says that the same request may succeed later."""
    try:
        wire = as_wire_response(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a property of the tool's own object; the output rooms will name it
        return False
    return wire is not None and wire.status in _TRANSIENT_STATUS
