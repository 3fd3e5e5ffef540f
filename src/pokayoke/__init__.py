"""pokayoke: mistake-proofing for AI agent tool calls.

    guard = pokayoke.Guard([create_order])
    with guard.run() as run:
        outcome = run.call(pokayoke.ToolCall("call_1", "create_order", '{"sku": "S1"}'))

Importing does nothing else: no file is read, no thread started, no logger configured.
"""

from pokayoke.core.call import Correction, Finding, Outcome, Raw, ToolCall, Verdict
from pokayoke.core.context import Compacted, CompletedWrite, Facts, History, OpenEffect, Refusal, compacted
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Compare, Envelope, Equal, Format, Range
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.flow.resolve import NOT_FOUND, UNKNOWN, Found
from pokayoke.core.gate.rules import Principal
from pokayoke.core.intake import Calls, ReadCall, Reading, read_arguments, read_calls
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.ledger.compensation import Compensation
from pokayoke.core.ledger.records import Resolution
from pokayoke.core.policy import LimitPolicy, Policy, RetryPolicy
from pokayoke.core.provenance.labels import Labels
from pokayoke.core.state.final_answer import Answer
from pokayoke.core.state.invalid_output_spike import Alert
from pokayoke.core.state.loop_guard import Kind
from pokayoke.errors import (
    ArchiveRefused,
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
    UnknownAdapterError,
    UrlRefused,
    UsageError,
)
from pokayoke.runtime.driver.effect import Effect, this_effect
from pokayoke.runtime.files.archive_members import ArchiveLimits
from pokayoke.runtime.files.archives import extract_archive
from pokayoke.runtime.files.workspace import ConfinedPath, open_beneath
from pokayoke.runtime.guard.guard import Guard
from pokayoke.runtime.network.confined_url import ConfinedUrl
from pokayoke.runtime.run.compaction import RunHistory, compact
from pokayoke.runtime.run.run import Run
from pokayoke.runtime.run.ticket import Ticket
from pokayoke.runtime.tools.function import tool
from pokayoke.stores import open_store

__version__ = "0.1.0"

__all__ = [
    "NOT_FOUND",
    "UNKNOWN",
    "Alert",
    "Answer",
    "Approval",
    "ArchiveLimits",
    "ArchiveRefused",
    "CallRefused",
    "Calls",
    "Compacted",
    "Compare",
    "Compensation",
    "CompletedWrite",
    "ConfigurationError",
    "ConfinedPath",
    "ConfinedUrl",
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
    "Labels",
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
    "ReadCall",
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
    "UnknownAdapterError",
    "UrlRefused",
    "UrlRule",
    "UsageError",
    "Verdict",
    "compact",
    "compacted",
    "extract_archive",
    "open_beneath",
    "open_store",
    "read_arguments",
    "read_calls",
    "this_effect",
    "tool",
]
