"""What a failed execution is called."""

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.failures import execution_finding, failed_effect, store_error_text
from pokayoke.core.flow.steps import NotStarted, Raised, Returned, TimedOut, ToolNotStarted
from pokayoke.core.text.clip import end_sentence
from pokayoke.errors import StoreError, ToolError


class WordlessError(Exception):
    """An error whose own text raises something."""

    def __init__(self, inside):
        self.inside = inside

    def __str__(self):
        raise self.inside


def test_an_error_that_cannot_tell_its_text_is_told_without_it():
    """The tool's own code does not end the call."""
    found = execution_finding(Raised(WordlessError(SystemExit())), "pay", "write", became="none", exhausted=False)
    assert "without a readable text" in found.message


def test_an_interrupt_while_an_error_tells_its_text_is_no_text():
    """A person who presses Ctrl-C is heard, wherever the program is."""
    with pytest.raises(KeyboardInterrupt):
        execution_finding(Raised(WordlessError(KeyboardInterrupt())), "pay", "write", became="none", exhausted=False)


@pytest.mark.parametrize("exhausted", [True, False])
def test_the_model_hears_that_a_tool_was_tried_more_than_once_only_where_it_was(exhausted):
    """Who is told of several tries need not ask for another; of one that was not repeated nobody says so."""
    found = execution_finding(Raised(OSError("down")), "look", "read", became="none", exhausted=exhausted)
    assert ("several tries" in found.hint) is exhausted


def test_a_store_says_what_to_do_and_a_driver_only_what_it_was():
    """The store's own text is written for operators; that of a driver may hold values."""
    assert store_error_text(StoreError("the disk is full; free some space")) == "the disk is full; free some space"
    assert store_error_text(OSError("card 4111")) == "OSError"


def test_what_is_known_of_an_effect_by_how_its_tool_failed():
    """Only what says so had none; a text of a framework, a deadline and any other exception leave a doubt."""
    tool = Contract.from_schema("pay", {"type": "object"}, no_effect_errors=(WordlessError,))
    told = ToolError("no")
    for reaction, effect in (
        (NotStarted("no thread"), "none"),
        (Raised(ToolNotStarted("elsewhere")), "none"),
        (Raised(WordlessError(OSError())), "none"),
        (Raised(told), "none"),
        (Raised(told, is_text=True), "doubt"),
        (Raised(ToolError("no", effect="unknown")), "unknown"),
        (Raised(OSError("lost")), "doubt"),
        (TimedOut(3.0), "doubt"),
        (Returned({}), "doubt"),
    ):
        assert failed_effect(reaction, tool) == effect


@pytest.mark.parametrize(
    ("said", "ended"),
    [("No.", "No."), ("No", "No."), ("Why?", "Why?"), ("无法取消。", "无法取消。"), ("so… ", "so…"), ("", ".")],
)
def test_a_sentence_ends_once(said, ended):
    """A mark of any script ends a sentence; a second full stop is none."""
    assert end_sentence(said) == ended


def test_secrets_of_an_exception_are_taken_out_of_message_and_hint():
    """The finding is made from the redacted text alone."""
    found = execution_finding(
        Raised(ToolError("key abc")), "pay", "write", became="none", exhausted=False, redact=lambda _: "hidden"
    )
    assert (found.message, found.hint.startswith("pay failed: hidden. ")) == ("pay raised ToolError: hidden", True)
