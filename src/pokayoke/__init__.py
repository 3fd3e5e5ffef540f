"""pokayoke: mistake-proofing for AI agent tool calls.

    guard = pokayoke.Guard([create_order])
    with guard.run() as run:
        outcome = run.call(pokayoke.ToolCall("call_1", "create_order", '{"sku": "S1"}'))

Importing does nothing else: no file is read, no thread started, no logger configured.
"""

from pokayoke.core.admission import Approval
from pokayoke.core.alert import Alert
from pokayoke.core.answer import Answer
from pokayoke.core.call import Correction, Finding, Outcome, Raw, ToolCall, Verdict
from pokayoke.core.context import Compacted, Facts, History, OpenEffect, Refusal, compacted
from pokayoke.core.contract import Contract
from pokayoke.core.gate import Principal
from pokayoke.core.intake import Calls, Reading, read_arguments, read_calls
from pokayoke.core.ledger import Resolution
from pokayoke.core.loop import Kind
from pokayoke.core.policy import LimitPolicy, Policy, RetryPolicy
from pokayoke.core.reconcile import Compensation
from pokayoke.core.resolve import NOT_FOUND, UNKNOWN, Found
from pokayoke.core.terms import Compare, Envelope, Equal, Format, Range
from pokayoke.errors import (
    CallRefused,
    ConfigurationError,
    ContractError,
    MissingExtraError,
    OutcomeError,
    PathEscape,
    PokayokeError,
    PolicyError,
    StoreError,
    ToolError,
    ToolFailed,
    ToolOutputInvalid,
    UsageError,
)
from pokayoke.runtime.compaction import RunHistory, compact
from pokayoke.runtime.effect import Effect, this_effect
from pokayoke.runtime.guard import Guard
from pokayoke.runtime.run import Run
from pokayoke.runtime.ticket import Ticket
from pokayoke.runtime.tool import tool
from pokayoke.runtime.workspace import ConfinedPath, open_beneath
from pokayoke.stores import open_store

__version__ = "0.1.0"

__all__ = [
    "NOT_FOUND",
    "UNKNOWN",
    "Alert",
    "Answer",
    "Approval",
    "CallRefused",
    "Calls",
    "Compacted",
    "Compare",
    "Compensation",
    "ConfigurationError",
    "ConfinedPath",
    "Contract",
    "ContractError",
    "Correction",
    "Effect",
    "Envelope",
    "Equal",
    "Facts",
    "Finding",
    "Format",
    "Found",
    "Guard",
    "History",
    "Kind",
    "LimitPolicy",
    "MissingExtraError",
    "OpenEffect",
    "Outcome",
    "OutcomeError",
    "PathEscape",
    "PokayokeError",
    "Policy",
    "PolicyError",
    "Principal",
    "Range",
    "Raw",
    "Reading",
    "Refusal",
    "Resolution",
    "RetryPolicy",
    "Run",
    "RunHistory",
    "StoreError",
    "Ticket",
    "ToolCall",
    "ToolError",
    "ToolFailed",
    "ToolOutputInvalid",
    "UsageError",
    "Verdict",
    "compact",
    "compacted",
    "open_beneath",
    "open_store",
    "read_arguments",
    "read_calls",
    "this_effect",
    "tool",
]
