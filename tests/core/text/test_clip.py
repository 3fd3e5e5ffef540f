"""Cut texts: at a character, or between words."""

import pytest

from pokayoke.core.flow.failures import declared_failure_finding, execution_finding
from pokayoke.core.flow.steps import Raised
from pokayoke.core.redaction.known_secrets import KnownSecrets
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.core.text.clip import clip, clip_at_word

PASSWORD = "correct-horse-battery-staple-42"
LOGIN = "postgres://bob:hunter2secretpw@db:5432/x"


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("one two", 7, "one two"),
        ("one two three", 9, "one two…"),
        ("one two three", 8, "one two…"),
        ("one two three", 7, "one…"),
        ("one\n\n  two", 8, "one…"),
        ("onetwothree", 5, "…"),
        ('{"a":"x,y","b":"hunter2"}', 20, '{"a":"x,y",…'),
        ("库存服务没有响应，请稍后再试。", 12, "库存服务没有响应，…"),
        ("", 0, ""),
    ],
)
def test_a_text_is_cut_between_words(text, most, cut):
    """The text ends with the last word that fits, and the mark of the cut fits too."""
    assert clip_at_word(text, most) == cut
    assert len(cut) <= most


def test_a_text_is_cut_at_a_character():
    """clip() cuts anywhere."""
    assert (clip("onetwothree", 5), clip("one", 3)) == ("onet…", "one")


@pytest.mark.parametrize("secret", [PASSWORD, LOGIN])
def test_no_cut_leaves_half_a_secret(secret):
    """Wherever a secret stands in a long failure, the trace holds neither the secret nor its beginning."""
    seen = KnownSecrets()
    seen.add(PASSWORD)
    start = secret[: secret.index("horse") if "horse" in secret else secret.index("secret")]
    for pad in range(220, 320):
        said = f"{'x' * pad} the login {secret} was rejected"
        failed = execution_finding(Raised(ValueError(said)), "login", "write", became="none", exhausted=False)
        for finding in (failed, declared_failure_finding("login", said, "write", "none")):
            assert start not in Redactor().redact_text(finding.message, seen=seen)
