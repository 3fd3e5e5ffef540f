"""Intake: the text a model wrote -> arguments and calls, graded by what can be proven."""

from pokayoke.core.intake.arguments import copied, from_value, read_arguments
from pokayoke.core.intake.calls import read_calls
from pokayoke.core.intake.reading import (
    CODES,
    REFUSALS,
    REPAIRS,
    Calls,
    Grade,
    ReadCall,
    Reading,
    finding_for,
    is_cut,
    refused,
)

__all__ = [
    "CODES",
    "REFUSALS",
    "REPAIRS",
    "Calls",
    "Grade",
    "ReadCall",
    "Reading",
    "copied",
    "finding_for",
    "from_value",
    "is_cut",
    "read_arguments",
    "read_calls",
    "refused",
]
