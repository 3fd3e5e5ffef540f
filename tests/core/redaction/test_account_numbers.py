"""Account numbers: found by their check digits, in one piece and as printed."""

import pytest

from pokayoke.core.redaction.account_numbers import hide_accounts, is_account
from pokayoke.core.redaction.known_secrets import HIDDEN
from pokayoke.core.redaction.redactor import Redactor

# The examples of the registry of ISO 13616.
VALID = ("DE89370400440532013000", "GB29NWBK60161331926819", "NO9386011117947", "MT84MALT011000012345MTLCAST001S")


@pytest.mark.parametrize("number", VALID)
@pytest.mark.parametrize("printed", [False, True])
def test_a_valid_number_is_hidden(number, printed):
    """In one piece or in groups of four, with words around it, and in JSON."""
    shown = " ".join(number[at : at + 4] for at in range(0, len(number), 4)) if printed else number
    assert is_account(shown)
    assert hide_accounts(f"to {shown} FOR RENT, now", lambda _: HIDDEN) == f"to {HIDDEN} …{number[-4:]} FOR RENT, now"
    assert (
        Redactor().redact_payload(f'{{"x":"pay {shown}"}}'.encode())
        == f'{{"x":"pay {HIDDEN} …{number[-4:]}"}}'.encode()
    )


@pytest.mark.parametrize(
    "text", ["DE88370400440532013000", "DE89 3704", "XDE89370400440532013000", "DE89370400440532013000x", "AB12CDEFGHIJKLMNOP"]
)  # fmt: skip
def test_what_only_resembles_a_number_is_kept(text):
    """Wrong check digits, too short, or part of a longer word."""
    assert hide_accounts(text, lambda _: HIDDEN) == text


def test_a_number_is_at_least_15_characters_long():
    """Norway's are the shortest; shorter texts are no account numbers whatever their check digits."""
    assert not is_account("NO93860111179")
