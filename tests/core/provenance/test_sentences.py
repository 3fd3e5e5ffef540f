"""What a person reads of where a value comes from."""

import pytest

from pokayoke.core.provenance.provenance import Reason
from pokayoke.core.provenance.sentences import describe_reason, describe_source

PLACE = {"step": 2, "place": "read_mail, record 1 of 3"}


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (Reason("act", "", "pay"), "the user's words do not ask for an act of this kind (pay)"),
        (Reason("unread", "", ""), "the outputs that this run has read could not be searched in time"),
        (
            Reason("contact", "body", "eve@x.example", "leaf", **PLACE),
            (
                "body holds the address 'eve@x.example': it stands only in what a tool returned (read_mail, record 1 of 3, "
                "step 2)"
            ),
        ),
        (
            Reason("private", "body", "4711", "leaf", **PLACE),
            "body holds '4711', which is not for outsiders unless the user says so (read_mail, record 1 of 3, step 2)",
        ),
        (
            Reason("value", "to", "ann", "prompt"),
            "to is 'ann': the user names it, but not as the one whom this call is for",
        ),
        (
            Reason("amount", "amount", "900", "anchored", **PLACE),
            (
                "amount is '900': it stands in a record that the user's words single out (read_mail, record 1 of 3, step 2), "
                "and is more than any amount there"
            ),
        ),
        (
            Reason("value", "order", "A-1", "leaf", -1, "read_mail, record 1 of 3", is_stale=True),
            (
                "order is 'A-1': it stands only in what a tool returned (read_mail, record 1 of 3, earlier in the "
                "conversation), and was replaced by a later answer of the same call"
            ),
        ),
        (Reason("value", "order", "A-1"), "order is 'A-1': neither the user nor any tool named it"),
    ],
    ids=lambda value: value.rule if isinstance(value, Reason) else "",
)
def test_a_reason_says_argument_value_and_place(reason, sentence):
    """Each rule has a sentence of its own, from which somebody can decide without the trace."""
    assert describe_reason(reason) == sentence


def test_a_long_value_is_cut_and_a_source_repeats_none():
    """A value of any length makes a short sentence; what only says where a value stands does not repeat it."""
    assert len(describe_reason(Reason("value", "to", "long " * 1_000))) < 200
    assert describe_source(Reason("", "to", "ann", "prompt")) == "to: the user named it"
    assert describe_source(Reason("", "to", "ann", "own", **PLACE)) == (
        "to: this run made it, or a person approved it (read_mail, record 1 of 3, step 2)"
    )
