"""Context: a history that exceeds its window -> a shorter one that the provider still accepts."""

from pokayoke.core.context.compact import compacted
from pokayoke.core.context.history import History
from pokayoke.core.context.values import (
    Compacted,
    CompletedWrite,
    Facts,
    HistoryFormat,
    HistoryKeywords,
    Identity,
    OpenEffect,
    Refusal,
    Summariser,
)

__all__ = [
    "Compacted",
    "CompletedWrite",
    "Facts",
    "History",
    "HistoryFormat",
    "HistoryKeywords",
    "Identity",
    "OpenEffect",
    "Refusal",
    "Summariser",
    "compacted",
]
