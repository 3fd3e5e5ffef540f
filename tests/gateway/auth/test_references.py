"""References to secrets."""

import keyring
import keyring.backend
import pytest

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.auth.references import References

ENVIRONMENT = {"TOKEN": "s3cret-value", "EMPTY": "", "BROKEN": "a\r\nX-Other: b"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", "plain"),
        ("Bearer ${TOKEN}", "Bearer s3cret-value"),
        ("${env:TOKEN}", "s3cret-value"),
        ("${NONE:-standby}", "standby"),
        ("${EMPTY:-standby}", "standby"),
        ("${NONE:-}", ""),
        ("$TOKEN", "$TOKEN"),
    ],
)
def test_a_reference_is_replaced(text, found):
    """Each form stands for the value of its variable."""
    assert References(ENVIRONMENT).resolve(text) == found


@pytest.mark.parametrize("text", ["${NONE}", "${}", "${a b}", "${keyring:}", "${keyring:user}", "${BROKEN}"])
def test_a_reference_that_cannot_be_resolved_is_refused_without_the_value(text):
    """The message says what to do, and holds no value."""
    with pytest.raises(ConfigurationError) as found:
        References(ENVIRONMENT).resolve(text)
    assert not any(value and value in str(found.value) for value in ENVIRONMENT.values())


def test_what_was_resolved_is_hidden_afterwards():
    """A secret stands in no later text, in a URL's spelling neither."""
    references = References({"KEY": "a/b+c=secret"})
    references.resolve("${KEY}")
    told = references.hide("GET https://x?key=a%2Fb%2Bc%3Dsecret failed for a/b+c=secret")
    assert "secret" not in told


class OneEntry(keyring.backend.KeyringBackend):
    """A keyring with one entry."""

    priority = 1

    def get_password(self, service, username):
        return "from-the-keyring" if (service, username) == ("crm", "agent") else None

    def set_password(self, service, username, password):
        raise AssertionError

    def delete_password(self, service, username):
        raise AssertionError


def test_a_keyring_is_read():
    """`${keyring:SERVICE/USER}` is the entry of the keyring; one that is not there is named."""
    before = keyring.get_keyring()
    keyring.set_keyring(OneEntry())
    try:
        assert References({}).resolve("Bearer ${keyring:crm/agent}") == "Bearer from-the-keyring"
        with pytest.raises(ConfigurationError, match="no entry crm/other"):
            References({}).resolve("${keyring:crm/other}")
    finally:
        keyring.set_keyring(before)
