"""What is kept of a finished call, for shadow comparison and the replay sample.

In: a call and what its tool returned.
Out: values that no later change by the host can reach.
Never: a call that fails because its result cannot be kept.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pokayoke.core.call import Finding, Raw, ToolCall
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.steps import Reaction, Returned
from pokayoke.core.json.serialise import serialise
from pokayoke.core.output.transport import as_wire_response

_IMMUTABLE_TYPES: Final = frozenset((str, bytes, int, float, bool, type(None), Raw))


class CompletedCall(msgspec.Struct, frozen=True):
    """A finished call.

    Args:
        call: as the model wrote it.
        env: the environment in which it ran.
        tool: the resolved name.
        raw: what the tool returned, protected from later changes; UNSET if it did not run, raised, or
            returned something that cannot be copied.
        raised: True if it raised.
        refused: True if it did not start.
    """

    call: ToolCall
    env: CallEnvironment
    tool: str
    raw: Any | UnsetType
    raised: bool
    refused: bool


def freeze_reaction(reaction: Reaction, limit: int) -> Any | UnsetType:
    """Return a copy of a tool's return value that no later change reaches; UNSET if there is none.

    Args:
        reaction: of the tool.
        limit: most bytes of JSON to copy.
    """
    if not isinstance(reaction, Returned):
        return UNSET
    value = reaction.value
    if type(value) in _IMMUTABLE_TYPES:
        return value
    try:
        wire = None if isinstance(value, dict) else as_wire_response(value)
        if wire is not None and wire.body is not None:
            return Raw(wire.body, wire.content_type, wire.status)
        done = serialise(value, max_bytes=limit)
    except Exception:  # noqa: BLE001 - a tool's own object, whose error the call itself reports
        return UNSET
    return UNSET if isinstance(done, Finding) or done.decimals else done.value
