"""Secrets met once in a run, hidden wherever they return."""

import json
from urllib.parse import quote, urlencode

import pytest
from redaction_cases import REDACTOR, dumped, redacted

from pokayoke.core.redaction.known_secrets import HIDDEN, KnownSecrets


class TestSeen:
    """A secret met once is a secret everywhere in the run."""

    def test_a_value_under_a_secret_name_is_hidden_wherever_it_returns(self):
        """The password of the arguments is hidden in a later output, in a name and in an exception text."""
        seen = KnownSecrets()
        redacted({"password": "CANARY-1", "pin": 123456789, "secrets": [{"a": "CANARY-2"}]}, seen=seen)
        assert redacted({"echo": "it was CANARY-1", "CANARY-2": 123456789}, seen=seen) == {
            "echo": f"it was {HIDDEN}",
            HIDDEN: 123456789,
        }
        assert (
            REDACTOR.redact_text("bad CANARY-1, CANARY-2, 123456789", seen=seen) == f"bad {HIDDEN}, {HIDDEN}, {HIDDEN}"
        )
        assert REDACTOR.redact_value(["CANARY-1"], seen=seen) == [HIDDEN]

    def test_a_payload_or_text_of_its_own_repeats_none_of_its_secrets(self):
        """Where nothing was met before, what stands under a secret name is hidden beside it as well."""
        value, hidden = [{"n": v, "password": v} for v in ("CANARY-1", HIDDEN)]
        assert redacted(value) == REDACTOR.redact_value(value) == hidden
        assert REDACTOR.redact_text("CANARY-1: password=CANARY-1") == f"{HIDDEN}: password={HIDDEN}"

    def test_within_one_event_order_makes_no_difference(self):
        """A reason that stands before the arguments is cleaned of what the arguments reveal."""
        line = dumped({"event": "e", "reason": "no CANARY-1", "arguments": {"password": "CANARY-1"}})
        assert b"CANARY-1" not in REDACTOR.redact_event(line, seen=KnownSecrets())

    def test_secrets_out_of_damaged_text_count_too(self):
        """A secret in an argument text that does not parse is remembered as well."""
        seen = KnownSecrets()
        REDACTOR.redact_text('{"password": "CANARY-1", "x": ', seen=seen)
        assert REDACTOR.redact_text("CANARY-1", seen=seen) == HIDDEN
        REDACTOR.redact_text("<parameter=password>\nCANARY-2\n</parameter>", seen=seen)
        assert REDACTOR.redact_text("CANARY-2", seen=seen) == HIDDEN

    def test_a_secret_with_quotes_is_found_in_its_escaped_forms(self):
        """As JSON, and as JSON within a JSON string, it is the same secret."""
        seen = KnownSecrets()
        secret = 'a"b\nCANARY'
        seen.add({"x": [secret]})
        inner = json.dumps({"y": secret})
        for value in (secret, {"z": inner}):
            assert "CANARY" not in json.dumps(redacted(value, seen=seen))

    @pytest.mark.parametrize(
        "secret",
        ["geheimß9wort", "pa'ss\"wo\\rd9", "a b+c/d@e&f=g", "tab\there9999", "密码是九九九九", "smile😀pass12"],
    )
    def test_a_secret_is_found_however_another_program_writes_it(self, secret):
        """As JSON in ASCII, as JSON within JSON, in a URL, and as Python shows a text or bytes, it is the same secret."""
        seen = KnownSecrets()
        seen.add(secret)
        for write in (
            lambda text: json.dumps({"y": text}),
            lambda text: json.dumps({"x": json.dumps({"y": text})}),
            lambda text: urlencode({"p": text}),
            quote,
            lambda text: repr({"p": text}),
            lambda text: repr(text.encode()),
        ):
            text, expected = write(secret), write("CANARY").replace("CANARY", HIDDEN)
            assert REDACTOR.redact_text(text, seen=seen) == expected
            assert redacted({"echo": text}, seen=seen) == {"echo": expected}

    def test_short_values_and_markers_are_not_remembered(self):
        """A PIN of four digits does not blank out every 1234 of the trace."""
        seen = KnownSecrets()
        seen.add("1234")
        seen.add(HIDDEN)
        assert len(seen) == 0

    def test_half_a_character_in_a_secret_spoils_no_later_line(self):
        """A secret that no encoding holds is hidden as the trace writes it, beside what else there is."""
        seen = KnownSecrets()
        seen.add("CANARY\ud83d")
        assert redacted({"echo": "CANARY\\ud83d", "b": 1}, seen=seen) == {"echo": HIDDEN, "b": 1}

    def test_memory_is_bounded(self):
        """A tool that returns thousands of secrets does not make the search for them slow."""
        seen = KnownSecrets()
        seen.add([f"secret-{number}" for number in range(1_000)])
        assert len(seen) == 64

    def test_however_many_secrets_a_run_has_met_the_latest_stay_hidden(self):
        """The failure of the hundredth call does not repeat its password; one that is in use is not forgotten."""
        seen = KnownSecrets()
        for number in range(100):
            asked = {"password": f"CANARY-{number}", "token": "CANARY-always"}
            line = {"event": "e", "reason": f"no CANARY-{number} nor CANARY-always", "arguments": asked}
            assert b"CANARY" not in REDACTOR.redact_event(dumped(line), seen=seen)


def test_the_latest_hashes_are_kept():
    """Of the digests of secrets the latest 64 are remembered, so that no run grows without end."""
    seen = KnownSecrets()
    for number in range(70):
        seen.add_hash(f"digest {number}", f"shown {number}")
    assert list(seen.hashes) == [f"digest {number}" for number in range(6, 70)]
