"""Context: a history that outgrows its window -> a shorter one that is still valid."""

from pokayoke.core.context.compact import compacted
from pokayoke.core.context.history import History
from pokayoke.core.context.values import Compacted, Facts, HistoryFormat, Identity, OpenEffect, Refusal, Summariser

__all__ = [
    "Compacted",
    "Facts",
    "History",
    "HistoryFormat",
    "Identity",
    "OpenEffect",
    "Refusal",
    "Summariser",
    "compacted",
]
