"""Intake: the text a model wrote -> arguments and calls, graded by what can be proven."""

from pokayoke.core.intake.arguments import copy_arguments, copy_arguments_fast, read_arguments
from pokayoke.core.intake.calls import CallForm, read_calls
from pokayoke.core.intake.reading import (
    REFUSALS,
    REPAIRS,
    Calls,
    Grade,
    ReadCall,
    Reading,
    reading_finding,
    refused_reading,
)
from pokayoke.core.intake.stop_reasons import is_cut

__all__ = [
    "REFUSALS",
    "REPAIRS",
    "CallForm",
    "Calls",
    "Grade",
    "ReadCall",
    "Reading",
    "copy_arguments",
    "copy_arguments_fast",
    "is_cut",
    "read_arguments",
    "read_calls",
    "reading_finding",
    "refused_reading",
]
