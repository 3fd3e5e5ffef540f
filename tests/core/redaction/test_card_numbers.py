"""Card numbers among other digits."""

import pytest
from redaction_cases import REDACTOR, redacted

from pokayoke.core.redaction.card_numbers import is_card
from pokayoke.core.redaction.known_secrets import HIDDEN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4111 1111 1111 1111 12/28 123", f"{HIDDEN} 12/28 123"),
        ("4111-1111-1111-1111 999", f"{HIDDEN} 999"),
        ("4111111111111111 12/28", f"{HIDDEN} 12/28"),
        ("qty 2 4111 1111 1111 1111", f"qty 2 {HIDDEN}"),
        ("zip 20500 4111111111111111-1", f"zip 20500 {HIDDEN}-1"),
        ("1234 4111 1111 1111 1111 5678", f"1234 {HIDDEN} 5678"),
        ("3782 822463 10005 1234", f"{HIDDEN} 1234"),
        ("5500005555555559 3056 930902 5904", f"{HIDDEN} {HIDDEN}"),
        ("41111111 11111111", HIDDEN),
        ("4111 1111 1111 1111 2nd", f"{HIDDEN} 2nd"),
    ],
)
def test_a_card_number_is_found_among_other_digits(text, expected):
    """Digits before or after a card number do not hide it, and stay."""
    assert REDACTOR.redact_text(text) == expected
    assert redacted({"note": text}) == {"note": expected}


def test_a_card_number_as_a_number_is_hidden():
    """A card number is secret whether it is sent as text, as an integer or as a float; other fractions stay."""
    for card in (4111111111111111, 4111111111111111.0, 378282246310005.0, 30569309025904):
        assert redacted({"a": card, "b": -3, "c": 34.567890123456}) == {"a": HIDDEN, "b": -3, "c": 34.567890123456}


def test_only_digits_make_a_card():
    """Arabic digits, letters and wrong lengths are no card numbers."""
    assert is_card("4111 1111-1111 1111")
    for text in ("٤١١١١١١١١١١١١١١١", "abc", "", "4111111111111", "411111111111111111111"):
        assert not is_card(text)
