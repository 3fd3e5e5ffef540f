"""What a failed execution is called."""

import pytest

from pokayoke.core.flow.failures import execution_finding, store_error_text
from pokayoke.core.flow.steps import Raised
from pokayoke.errors import StoreError


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
