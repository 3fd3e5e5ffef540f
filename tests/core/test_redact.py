"""Secrets do not get past redaction, and what is no secret comes through untouched."""

import hashlib
import json
import re
import string
import time
from urllib.parse import quote, urlencode

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.redaction import prefilter as secret_looks
from pokayoke.core.redaction.card_numbers import is_card
from pokayoke.core.redaction.known_secrets import HIDDEN, KnownSecrets
from pokayoke.core.redaction.redactor import REDACTION_FAILED, REDACTION_FAILED_JSON, Redactor
from pokayoke.core.redaction.secret_rules import NameRules, SecretPattern
from pokayoke.errors import PolicyError

REDACTOR = Redactor()


def dumped(value):
    return orjson.dumps(value)


def redacted(value, redactor=REDACTOR, **more):
    return orjson.loads(redactor.redact_payload(dumped(value), **more))


SECRET_NAMES = [
    "password",
    "Password",
    "PASSWORD",
    "userPassword",
    "user_passwd",
    "pass_word",
    "passwort",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "clientSecret",
    "secrets",
    "token",
    "accessToken",
    "access_token",
    "csrf-token",
    "api_key",
    "apiKey",
    "API-KEY",
    "apikey",
    "x-api-key",
    "authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie",
    "private_key",
    "privateKey",
    "PrivateKeyPem",
    "access_key",
    "secretAccessKey",
    "signing_key",
    "encryptionKey",
    "credentials",
    "db_credential",
    "card_number",
    "cardNumber",
    "card_no",
    "pin",
    "otp",
    "cvv",
    "cvc",
    "ssn",
    "auth",
    "basic_auth",
    "bearer",
    *("pass_phrase", "pass-phrase", "pass_code", "passCode", "pass.word", "pass \t.word", "pass/code"),
    *("pin_code", "pinCode", "pin1", "\npin", "é_PIN", "PINCode", "otp_code", "otpCode", "otp1", "OTP-2"),
    *("cvv2", "cvv_code", "cvc2", "ssn_number", "ssn_last4", "pwd_hash", "pwdHash", "db_pwd_old", "DBPwd", "PWD1"),
    *("authHeader", "auth2", "AUTH2", "x-auth", "api.key", "api/key", "aPiKey", "API  KEY", "access.key"),
    *("private.key", "encryption.key", "signing\u2003key", "card.number", "card--no"),
    *("DB_PASS", "smtpPass", "user.pass", "x-functions-key", "Ocp-Apim-Subscription-Key", "connectionString"),
    *("connection_string", "AZURE_STORAGE_CONNECTION_STRING"),
    "kennwort",
    "contraseña",
    "密码",
    "用户密码",
    "令牌",
    "密钥",
    "口令",
]
HARMLESS_NAMES = [
    "author",
    "secretary",
    "key",
    "primary_key",
    "foreignKey",
    "tokenizer",
    "compass_code",
    "discard_number",
    "passenger",
    "spin",
    "shopping",
    "authored_by",
    "id",
    "name",
    "note",
    "monkey",
    "keyboard",
    "description",
    *("pincode", "pinned", "PINGS", "oauth", "authority", "hotpot", "classname", "api", "primary.key"),
    *("pass_rate", "boardingPass", "bypass", "db_passed", "dbpass_rate", "subscription", "connection", "functions"),
    *("compassCode", "secretariat", "cardinal", "apiary", "xpwd"),
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_value_under_a_secret_name_is_hidden(name):
    """Text, numbers, lists and objects under a secret name are all hidden, at any depth."""
    for value in ("x", 17, 1.5, ["a"], {"deep": "a"}):
        assert redacted({"outer": [{name: value, "other": "kept"}]}) == {"outer": [{name: HIDDEN, "other": "kept"}]}


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_a_name_that_only_resembles_a_secret_one_keeps_its_value(name):
    """Names that contain a secret word by accident are not hidden, also when a walk happens."""
    value = {name: "kept", "password": "x"}
    assert redacted(value)[name] == "kept"


@pytest.mark.parametrize("value", [True, False, None, "", [], {}])
def test_what_tells_nothing_stays_readable(value):
    """Truth values, null and empty values under a secret name are kept: they explain and reveal nothing."""
    assert redacted({"has_password": value, "x": "secret"})["has_password"] == value


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("max_tokens", 4096, True),
        ("tokens", 17, True),
        ("total_token_count", 17, True),
        ("token_limit", 3, True),
        ("token", 123456, False),
        ("tokens", ["a"], False),
        ("max_tokens", "abc", False),
        ("secret_max_tokens", 4096, False),
        ("otp", 123456, False),
    ],
)
def test_counts_of_tokens_are_numbers_not_secrets(name, value, kept):
    """A number under a counting token name is kept; a text there, or a one-time code, is not."""
    assert (redacted({name: value})[name] == value) is kept
    text = f"{name}: {value}"
    assert isinstance(value, list) or (REDACTOR.redact_text(text) == text) is kept


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnop",
        "sk-proj-abc_def-123456",
        "sk_live_4242abcd",
        "rk_test_4242abcd",
        "ASIA12345678",
        "ghp_16charsofrandomm",
        "github_pat_11ABCDEFG0",
        "glpat-abcdefghijklmnop",
        "xoxb-1234567890-abc",
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "AIzaSyA1234567890abcdefg",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "hf_abcdefghijklmnopqrst",
        *(
            f"{head}{'aB3dE5gH7jK9mN1pQ3sT'}"
            for head in ("gsk_", "xai-", "pplx-", "nvapi-", "GOCSPX-", "ABSK", "lsv2_pt_")
        ),
        *(
            f"{head}{'aB3dE5gH7jK9mN1pQ3sT'}"
            for head in ("bedrock-api-key-", "tvly-dev-", "xapp-1-A0-", "whsec_", "hvs.")
        ),
        *(
            f"{head}{'aB3dE5gH7jK9mN1pQ3sT'}"
            for head in ("dckr_pat_", "dop_v1_", "ntn_", "lin_api_", "ATATT3x", "sb_secret_")
        ),
        *(f"{head}{'0a1b2c3d' * 4}" for head in ("dapi", "shpat_", "key-", "sbp_", "nfp_", "PMAK-", "NRAK-", "glrt-")),
        "xoxe.xoxp-1-Mi0yLTk4NzY1",
        "xoxc-1234567890-abc",
        "xoxd-aB3dE5gH%2F7jK9",
        f"SG.{'aB3dE5gH7jK9mN1pQ3sT_v'}.{'aB3dE5gH7jK9mN1pQ3sT' * 2}",
        f"123456789:AA{'aB3dE5gH7jK9mN1pQ3sT' * 2}",
        *(f"{head}{'0a1b2c3d' * 4}" for head in ("gldt-", "glptt-", "shpss_", "rubygems_", "dp.pt.", "glsa_")),
        *(f"{head}{'aB3dE5gH7jK9mN1pQ3sT'}" for head in ("figd_", "pscale_tkn_", "sq0csp-", "Ab3dE5gH7jK9mN.atlasv1.")),
        "AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111111111111111",
        "3782 822463 10005",
        "30569309025904",
        "5555555555554444",
        "6212345678901265",
    ],
)
def test_a_secret_is_known_by_its_shape(secret):
    """Keys, tokens and card numbers are hidden wherever they stand: as a value, in a text, as a name met again."""
    for value in ({"note": secret}, [f"it is {secret}, ok"], {secret: 1}, {secret: 2}, secret, f"({secret})"):
        assert secret not in json.dumps(redacted(value))
        assert secret not in REDACTOR.redact_text(f"failed: {value}")


@pytest.mark.parametrize("gap", [r"\n", r"\t", r"\r\n", r"\u000a", r"\\n"])
@pytest.mark.parametrize(
    ("before", "secret"),
    [
        ("", "sk-abcdefghijklmnop"),
        ("", "AKIAIOSFODNN7EXAMPLE"),
        ("", "4111 1111 1111 1111"),
        ("Bearer ", "abcdefgh1234"),
        ("Authorization: Basic ", "dXNlcjpwdw=="),
        ("--password ", "hunter22"),
        ("password: ", "hunter22"),
    ],
)
def test_a_secret_at_the_start_of_a_line_is_hidden_in_a_text_that_is_json(gap, before, secret):
    """A line break that is still spelled with letters holds a secret apart from what was before it."""
    for text in (f"{{'note': 'mine:{gap}{before}{secret}', 'x", json.dumps({"note": f"mine:{gap}{before}{secret} ok"})):
        assert secret not in REDACTOR.redact_text(text)
        assert secret not in json.dumps(redacted({"raw": text}))


@pytest.mark.parametrize("gap", [r"\n", r"\t", r"\\n"])
def test_a_short_name_at_the_start_of_a_line_is_a_name(gap):
    """So it is with names that only count as words of their own."""
    assert "4711" not in REDACTOR.redact_text(f"{{'note': 'mine:{gap}pin: 4711', 'x")
    assert REDACTOR.redact_text(f"{{'note': 'mine:{gap}spin: 4711', 'x") == f"{{'note': 'mine:{gap}spin: 4711', 'x"


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("https://hooks.slack.com/services/", "T0A1B2C3D/B0A1B2C3D/aB3dE5gH7jK9mN1pQ3sT5vX7"),
        ("https://discord.com/api/webhooks/", "123456789012345678/aB3dE5gH7jK9-mN1pQ3sT5vX7_yZ"),
    ],
)
def test_a_webhook_whose_path_is_its_secret_is_hidden(url, secret):
    """Who knows the URL may post, so what makes it unguessable is hidden, and the host stays."""
    assert redacted({"url": url + secret}) == {"url": url + HIDDEN}
    assert redacted({"url": url + "docs"}) == {"url": url + "docs"}


def test_the_token_of_a_bot_is_hidden_in_its_url():
    """Telegram's URLs have letters right before the token, and it is hidden there, too."""
    token = f"123456789:AA{'aB3dE5gH7jK9mN1pQ3sT' * 2}"
    url = f"https://api.telegram.org/bot{token}/sendMessage"
    assert redacted({"url": url}) == {"url": f"https://api.telegram.org/bot{HIDDEN}/sendMessage"}


@pytest.mark.parametrize(
    "text",
    [
        "task-management-system",
        "risk-adjusted returns",
        "1763730309123",
        "1763730309123456789",
        "4111111111111112",
        "0.4837462837462837",
        "2026-01-02T10:11:12.123456Z",
        "00000000-4111-1111-1111-111111111111",
        "the Asian market",
        "https://example.org/a?b=c",
        "keyJoint",
        "gsk_ and xai-1, dapi calls, hvs.example, whsec_x, ABSKenntnis, sig=a, AccountKey=x",
        "SG.com and SG.statistics, xoxo. xoxe, xoxo-kisses, key-value, monkey-0a1b2c3d, glrt- sbp_x, 12:AA, cache-key-0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d, 12345678:AAAA",
        "figd_ pscale_tkn_, glsa_x, dp.pt.x, gldt-1, an age-secret-key-, shpss_is, sq0csp-x, atlasv1. rubygems_org",
        "PASS: test_login (0.01s), pass: yes, Boarding Pass: 12, the pass = 5",
        '["password", "email"] and ("tokens", 55)',
        "12345678901234567890",
        "99999 12345678901234567890 1",
        "5 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95",
        "DE12 4111 1111 1111 1111 22",
    ],
)
def test_what_only_resembles_a_shape_is_kept(text):
    """Times, ids, words with `sk-` inside and numbers with a wrong check digit are kept as they are."""
    assert redacted({"note": text, "password": "x"})["note"] == text
    assert REDACTOR.redact_text(text) == text


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


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "https://x.blob.core.windows.net/c?sv=2&sig=aB3dE5gH7jK9mN1pQ3sT%2Fv%3D&se=4",
            "https://x.blob.core.windows.net",
        ),
        ("AccountName=x;AccountKey=aB3dE5gH7jK9mN1pQ3sT/v+==;EndpointSuffix=y", "AccountName=x;AccountKey="),
        (
            "https://b.s3.amazonaws.com/o?X-Amz-Expires=9&X-Amz-Signature=aB3dE5gH7jK9mN1pQ3sT00&x=1",
            "https://b.s3.amazonaws.com/o?X-Amz-Expires=9&X-Amz-Signature=",
        ),
        (
            "https://storage.googleapis.com/o?X-Goog-Signature=aB3dE5gH7jK9mN1pQ3sT00&x=1",
            "https://storage.googleapis.com/o?",
        ),
        (
            "https://d.cloudfront.net/o?Expires=9&Signature=aB3dE5gH7jK9mN1pQ3sT~-__&x=1",
            "https://d.cloudfront.net/o?Exp",
        ),
        ('<a href="https://d.cloudfront.net/o?a=9&amp;Signature=aB3dE5gH7jK9mN1pQ3sT~-__">x</a>', "<a href="),
    ],
)
def test_a_storage_accounts_key_and_signature_are_hidden(text, kept):
    """What opens a storage account or a file in one stands in a connection string or a link; the rest is kept."""
    for found in (REDACTOR.redact_text(text), redacted({"note": text})["note"]):
        assert found.startswith(kept)
        assert "aB3dE5gH7jK9mN1pQ3sT" not in found
        assert found.endswith(text[-3:])


def test_a_private_key_is_hidden_as_a_whole():
    """A PEM block goes from its first dash to its last; without an end it goes to the end of the text."""
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc==\n-----END RSA PRIVATE KEY-----"
    assert REDACTOR.redact_text(f"before {block} after") == f"before {HIDDEN} after"
    assert REDACTOR.redact_text(f"before {block[:40]}") == f"before {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("login failed for password=hunter2 at host", f"login failed for password={HIDDEN} at host"),
        ('{"password": "hun\\"ter2", "b": 1', f'{{"password": "{HIDDEN}", "b": 1'),
        ("{'api_key': 'hunter2', 'b': 1}", f"{{'api_key': '{HIDDEN}', 'b': 1}}"),
        ('{\\"password\\": \\"hunter2\\", \\"b\\": 1}', f'{{\\"password\\": \\"{HIDDEN}\\", \\"b\\": 1}}'),
        ("password: `hunter2`", f"password: `{HIDDEN}`"),
        ("api key: hunter2", f"api key: {HIDDEN}"),
        ("密码：hunter2 好", f"密码：{HIDDEN} 好"),
        ("detail: password=hunter2", f"detail: password={HIDDEN}"),
        ("Authorization: Bearer hunter2.x-y\nHost: a", f"Authorization: {HIDDEN}\nHost: a"),
        ("Cookie: a=hunter2; b=c\nHost: a", f"Cookie: {HIDDEN}\nHost: a"),
        ("auth: Bearer hunter2 x", f"auth: {HIDDEN} x"),
        ("sent bearer hunter2abc", f"sent bearer {HIDDEN}"),
        ("postgres://bob:hunter2@db/x", f"postgres://bob:{HIDDEN}@db/x"),
        ('{"secrets": ["hunter2", "x"', f'{{"secrets": {HIDDEN}'),
        ("pass\\u0077ord=hunter2", f"password={HIDDEN}"),
        ("tokens: 55 used", "tokens: 55 used"),
        ("password: null, token=true", "password: null, token=true"),
        ("password=", "password="),
        ("a password is needed", "a password is needed"),
        ("pin_code=hunter2", f"pin_code={HIDDEN}"),
        ("cvv2: hunter2", f"cvv2: {HIDDEN}"),
        ("api.key = hunter2", f"api.key = {HIDDEN}"),
        ("password: |\n  hunter2\n\n  more\nb: 1", f"password: {HIDDEN}\nb: 1"),
        ("a:\n  password: >-\n    hunter2\n  b: 1", f"a:\n  password: {HIDDEN}\n  b: 1"),
        ("auth:\n  token: hunter2\n\n  b: hunter2\nc: 1", f"auth:\n  {HIDDEN}\nc: 1"),
        ("a:\n  secrets:\r\n\r\n      prod: hunter2\r\n  b: 1", f"a:\n  secrets:\r\n\r\n      {HIDDEN}\n  b: 1"),
        ("tokens:\n- hunter2\n- a: hunter2\n  b: 1\nc: 1", f"tokens:\n{HIDDEN}\nc: 1"),
        ("- password:\n        hunter2\n- b: 1", f"- password:\n        {HIDDEN}\n- b: 1"),
        ('{\n  "password":\n        "hunter2",\n  "b": 1', f'{{\n  "password":\n        "{HIDDEN}",\n  "b": 1'),
        ("if not token:\n    raise\nif True:\n    b = 1", "if not token:\n    raise\nif True:\n    b = 1"),
        ("  password: \n  token: hunter2\n  b: 1", f"  password: \n  token: {HIDDEN}\n  b: 1"),
        ("bad token: password: hunter2", f"bad token: password: {HIDDEN}"),
        ("kind: Secret\ndata:\n  password: hunter2", f"kind: Secret\ndata:\n  password: {HIDDEN}"),
        ('password = """hunter2\nhunter2"""\nb = 1', f'password = """{HIDDEN}"""\nb = 1'),
        ("password = '''hunter2", f"password = '''{HIDDEN}'''"),
        ("**Password:** hunter2", f"**Password:** {HIDDEN}"),
        ("**Password**: hunter2", f"**Password**: {HIDDEN}"),
        ('password == "hunter2"', f'password == "{HIDDEN}"'),
        ("password -> hunter2", f"password -> {HIDDEN}"),
        ('os.environ["DB_PASSWORD"] = "hunter2"', f'os.environ["DB_PASSWORD"] = "{HIDDEN}"'),
        ("user[password]=hunter2&a=1", f"user[password]={HIDDEN}&a=1"),
        ("run --password hunter2 -v", f"run --password {HIDDEN} -v"),
        ("run --no-password file --token --v", "run --no-password file --token --v"),
        ("<Password>hunter2</Password><b>x</b>", f"<Password>{HIDDEN}</Password><b>x</b>"),
        (
            '<ns:password type="x"><![CDATA[hunter2]]></ns:password>',
            f'<ns:password type="x"><![CDATA[{HIDDEN}</ns:password>',
        ),
        ("Password:        hunter2\nUser: x", f"Password:        {HIDDEN}\nUser: x"),
        ("password\t\t\t\t\t\t= hunter2", f"password\t\t\t\t\t\t= {HIDDEN}"),
        ("password:\n\n\n\n\nNext chapter", "password:\n\n\n\n\nNext chapter"),
        ("login(password=b'hunter2', n=1)", f"login(password=b'{HIDDEN}', n=1)"),
        ("{'password': rb\"hunter2\"}", f"{{'password': rb\"{HIDDEN}\"}}"),
        ("user=bob pass=hunter2", f"user=bob pass={HIDDEN}"),
        ('{"pass": "hunter2", "n"', f'{{"pass": "{HIDDEN}", "n"'),
        ("[(b'x-api-key', b'hunter2'), (b'a', b'b')]", f"[(b'x-api-key', b'{HIDDEN}'), (b'a', b'b')]"),
        ('[["Cookie", "sid=hunter2"], ["a", "b"]]', f'[["Cookie", "{HIDDEN}"], ["a", "b"]]'),
        (
            '<parameter name="a">b</parameter><parameter name="password">hun<ter2</parameter> ok',
            f'<parameter name="a">b</parameter><parameter name="password">{HIDDEN}</parameter> ok',
        ),
        (
            "<parameter=user>\nbob\n</parameter>\n<parameter=password>\nhunter2",
            f"<parameter=user>\nbob\n</parameter>\n<parameter=password>{HIDDEN}",
        ),
        (
            "f<arg_key>password</arg_key>\n<arg_value>hunter2</arg_value><arg_key>n</arg_key><arg_value>1</arg_value>",
            f"f<arg_key>password</arg_key>\n<arg_value>{HIDDEN}</arg_value><arg_key>n</arg_key><arg_value>1</arg_value>",
        ),
        (
            '<ns:parameter name="pin" type="int">4711</ns:parameter>',
            f'<ns:parameter name="pin" type="int">{HIDDEN}</ns:parameter>',
        ),
        ('<parameter name="password">null</parameter><parameter name="max_tokens">5</parameter>',) * 2,
        ("<tokens>55</tokens> for <password> or <b>", "<tokens>55</tokens> for <password> or <b>"),
        ('<add key="DbPassword" value="hunter2" /><b/>', f'<add key="DbPassword" value="{HIDDEN}" /><b/>'),
        (
            "<input type='text' name='password'\n id='a' value='hunter2'><input name='a' value='b'>",
            f"<input type='text' name='password'\n id='a' value='{HIDDEN}'><input name='a' value='b'>",
        ),
        (r'{"x": "<p name=\"pin\" value=\"hunter2\"/>', rf'{{"x": "<p name=\"pin\" value=\"{HIDDEN}\"/>'),
        ('<p name="max_tokens" value="5"/><p name="token" value=""/>',) * 2,
        ("postgres://bob:hunt@er2@db/x?a=b@c", f"postgres://bob:{HIDDEN}@db/x?a=b@c"),
        ("postgres://bob:hunter2@db?a=b@c", f"postgres://bob:{HIDDEN}@db?a=b@c"),
        (r'password="a\npassword=b hunter2" x', f'password="{HIDDEN}" x'),
        (r'password="api_key=\"b\" hunter2" x', f'password="{HIDDEN}" x'),
        ('password=""', 'password=""'),
        ("max_tokens=5, secret=hunter2 token=hunter2", f"max_tokens=5, secret={HIDDEN} token={HIDDEN}"),
    ],
)
def test_assignments_in_a_text_are_hidden(text, expected):
    """What is assigned to a secret name in a log line, a header or damaged JSON is hidden, and no more."""
    assert REDACTOR.redact_text(text) == expected
    assert redacted({"raw": text}) == {"raw": expected}


@pytest.mark.parametrize("field", ["ausweis nr", "ausweis_nr", "AusweisNr"])
@pytest.mark.parametrize(
    "text",
    [
        "Ausweis Nr: {}", "der ausweis  nr={}", "ausweis-nr={}", '<parameter name="ausweis nr">{}</parameter>',
        "<parameter=AusweisNr>\n{}\n", "<arg_key>ausweis_nr</arg_key><arg_value>{}</arg_value>",
    ],
)  # fmt: skip
def test_a_configured_field_is_found_in_words_and_tags(field, text):
    """However many words a configured name is written in, what is assigned to it or stands in its tag is hidden."""
    redactor = Redactor(fields=[field])
    for found in (redactor.redact_text(text.format("A4242")), redacted({"raw": text.format("A4242")}, redactor)["raw"]):
        assert found.split() == text.format(HIDDEN).split() or found == text.replace("\n", "").format(HIDDEN)
    assert redactor.redact_text("Nr: 4242, Ausweis: 5") == "Nr: 4242, Ausweis: 5"


def test_pairs_of_names_and_values_are_read_as_members():
    """Headers in a list are hidden by their names; a list of names is no such pair, nor is a list of lists of texts."""
    headers = [["X-Api-Key", "abc"], ["Cookie", "sid=1"], ["Accept", "*/*"], ["X-Api-Key", "xyz"]]
    assert redacted({"headers": headers}) == {
        "headers": [["X-Api-Key", HIDDEN], ["Cookie", HIDDEN], ["Accept", "*/*"], ["X-Api-Key", HIDDEN]]
    }
    assert Redactor().redact_value([("Cookie", "sid=1")]) == [["Cookie", HIDDEN]]
    kept = {"required": ["password", "email"], "rows": [["token", "a"], ["b"]], "none": [], "n": [["token", 5]]}
    assert redacted(kept) == kept


def test_a_member_called_pass_is_a_secret_text_and_a_count():
    """`pass` hides a text, and keeps the number and the truth value of a verdict."""
    assert redacted({"pass": "hunter2"}) == {"pass": HIDDEN}
    for verdict in ({"pass": 12, "fail": 3}, {"pass": True}):
        assert redacted(verdict) == verdict


def test_a_payload_without_secrets_is_the_very_same_object():
    """Nothing is copied, parsed or reordered where nothing is hidden."""
    data = dumped({"b": 1, "a": [1.5, "text", None], "客": "值"})
    assert REDACTOR.redact_payload(data) is data
    assert REDACTOR.is_clean(data)


def test_numbers_of_any_size_survive_the_walk():
    """An integer beyond 64 bits beside a secret keeps every digit."""
    data = b'{"n":123456789012345678901234567890,"password":"x"}'
    assert REDACTOR.redact_payload(data) == b'{"n":123456789012345678901234567890,"password":"[redacted]"}'


def test_a_card_number_as_a_number_is_hidden():
    """A card number is secret whether it is sent as text, as an integer or as a float; other fractions stay."""
    for card in (4111111111111111, 4111111111111111.0, 378282246310005.0, 30569309025904):
        assert redacted({"a": card, "b": -3, "c": 34.567890123456}) == {"a": HIDDEN, "b": -3, "c": 34.567890123456}


@pytest.mark.parametrize(
    "spelling", ["card_holder", "cardHolder", "CARD-HOLDER", "card holder", "customer.card_holder"]
)
def test_configured_fields_ignore_spelling_and_path(spelling):
    """A configured field hides its name in every spelling, and values of every kind but null."""
    redactor = Redactor(fields=[spelling])
    value = {"cardHolder": "x", "card_holder": True, "Card-Holder": {"a": 1}, "card holder": None, "holder": "y"}
    assert redacted(value, redactor) == {
        "cardHolder": HIDDEN,
        "card_holder": HIDDEN,
        "Card-Holder": HIDDEN,
        "card holder": None,
        "holder": "y",
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fields": ["größe"]}, json.dumps({"größe": "geheim-4242"})),
        ({"fields": ["GRÖSSE"]}, json.dumps({"a": json.dumps({"grösse": "geheim-4242"}, ensure_ascii=False)})),
        ({}, json.dumps({"contraseña": "geheim-4242"})),
        ({}, json.dumps({"密码": "geheim-4242"})),
        ({}, json.dumps({"note": "😀 密码：geheim-4242"})),
        ({"patterns": ["größe-\\d+"]}, json.dumps({"x": "größe-4242"})),
        ({"patterns": ["geheim-[0-9]+"]}, '{"x": "geheim\\u002d4242"}'),
    ],
)
def test_names_in_any_script_are_found_in_json_of_ascii(options, text):
    """What `json.dumps` makes of a name hides no secret, in a text of its own or within an output."""
    redactor = Redactor(**options)
    assert "4242" not in redactor.redact_text(text)
    assert "4242" not in json.dumps(redacted({"result": text}, redactor))


@pytest.mark.parametrize(
    "text", ['{"name": "M\\u00fcller", "x": "\\u0041"}', "\\ud83d alone", "\\u00e9\\u", '"\\u0022"']
)
def test_escapes_stay_where_nothing_is_hidden(text):
    """A text without a secret is written as it came, though it was read with its escapes undone."""
    assert REDACTOR.redact_text(text) == text
    assert redacted({"raw": text}) == {"raw": text}


def test_a_spelled_quote_does_not_end_a_secret():
    r"""`\u0022` within a value is part of it, so nothing of the value is left behind it."""
    assert REDACTOR.redact_text('{"password": "ab\\u0022hunter2", "n": 1') == f'{{"password": "{HIDDEN}", "n": 1'


def test_contract_marks_count_for_their_tool_only():
    """A name that one contract marks is hidden where the mark is handed in, and nowhere else."""
    value = {"iban": "DE02", "x": 1}
    assert redacted(value, marks=("iban",)) == {"iban": HIDDEN, "x": 1}
    assert redacted(value) == value
    assert REDACTOR.redact_text("iban: DE02", marks=("iban",)) == f"iban: {HIDDEN}"
    assert REDACTOR.redact_text("iban: DE02") == "iban: DE02"


def test_an_empty_mark_hides_nothing():
    """A mark that is blank or only punctuation does not hide everything."""
    assert redacted({"a": "b"}, marks=("", "--")) == {"a": "b"}


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"ACCT-\d{4,}", "see ACCT-12345, please", f"see {HIDDEN} please"),
        (r"\bZZ\d{3}\b", "a\nZZ123 b", f"a\n{HIDDEN} b"),
        (r"[\w.+-]+@[\w-]+\.[a-z]+", "to bob@example.org now", f"to {HIDDEN} now"),
        (r"^\d{4}$", "1234", HIDDEN),
        (r"^\d{4}$", "12345", "12345"),
        (r"case \d+", "the case 17 is open", HIDDEN),
        (r'say "\w+"', 'they say "hi"', HIDDEN),
        (r"(?i)projectx", "a PROJECTX b", f"a {HIDDEN} b"),
    ],
)
def test_configured_patterns_hide_their_matches(pattern, text, expected):
    """A pattern hides the words it matches; one that may span words hides the whole text."""
    redactor = Redactor(patterns=[pattern])
    assert redacted({"a": text, "b": "kept"}, redactor) == {"a": expected, "b": "kept"}
    assert redactor.redact_text(text) == expected


def test_a_pattern_also_reads_numbers_and_names():
    """Digits that a pattern names are hidden where they are a number or part of a name."""
    redactor = Redactor(patterns=[r"\d{9}"])
    assert redacted({"a": 123456789, "id 123456789": 1}, redactor) == {"a": HIDDEN, f"id {HIDDEN}": 1}


@pytest.mark.parametrize("pattern", ["(a", "(?=a)b", r"(a)\1", "a*", "", "(?<!x)y"])
def test_patterns_that_cannot_be_kept_are_refused_while_building(pattern):
    """What does not compile on the linear engine, or matches everything, is a PolicyError that names it."""
    with pytest.raises(PolicyError, match=re.escape(repr(pattern))):
        Redactor(patterns=[pattern])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "([a-z]+)*[0-9]!"])
def test_an_exploding_pattern_stays_linear(pattern):
    """A pattern that hangs a backtracking engine takes no time here: 20,000 characters well within 2 s."""
    try:
        redactor = Redactor(patterns=[pattern])
    except PolicyError:
        return
    began = time.monotonic()
    redactor.redact_text("a" * 20_000 + "!")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "text",
    ["password" * 5_000, "a:" * 20_000, "=" * 40_000, "\\" * 40_000, "eyJ" * 10_000, "4" * 40_000, "://a" * 10_000,
     "-----BEGIN " * 4_000, 'secret="' * 5_000, "token" + " " * 40_000, "bearer " * 8_000, "[" * 40_000,
     "1 " * 20_000, "密码" * 20_000, "password: |\n " * 3_000, "password: |\n a" + "\n" * 40_000, "<secret>" * 5_000,
     "<secret " * 5_000, "<parameter=password>" * 2_000, "<parameter=" + "a" * 40_000, "<parameter name=a " * 2_500,
     "<arg_key>pin</arg_key><arg_value>" * 1_200, "('password', '" * 3_000, "[[" * 20_000, "('token',\"\\" * 4_000,
     "password" + "\t" * 40_000, ' name="pin"' * 4_000, ' name="pin" value="' * 2_500, "  password:\n" * 3_000, "password:" * 4_500, "- password:\n- " * 3_000,
     "".join(" " * deep + "password:\n" for deep in range(270)), "auth:\n" + "\n  " * 13_000, "pass " * 8_000 + ":", "://a:b" + "@c" * 20_000, "--token " * 5_000],
)  # fmt: skip
def test_the_own_rules_stay_linear(text):
    """No text of 40,000 characters keeps the built-in rules busy for more than 2 s."""
    began = time.monotonic()
    REDACTOR.redact_text(text)
    assert time.monotonic() - began < 2


def test_the_users_redactor_sees_every_payload_and_its_answer_is_written():
    """A user's redactor gets the parsed value, and what it returns is still searched for secrets."""
    redactor = Redactor(own=lambda value: {"was": type(value).__name__, "password": "x", "card": 4111111111111111})
    hidden = {"password": HIDDEN, "card": HIDDEN}
    assert not redactor.is_clean(b"[1]")
    assert redacted([1], redactor) == {"was": "list", **hidden}
    assert redactor.redact_value("a") == {"was": "str", **hidden}
    line = redactor.redact_event(dumped({"event": "e", "arguments": {"a": 1}, "step": 3}))
    assert orjson.loads(line) == {"event": "e", "arguments": {"was": "dict", **hidden}, "step": 3}


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), RecursionError()])
def test_a_users_redactor_that_raises_costs_the_payload_only(error):
    """Whatever a user's redactor raises, the payload is replaced and nothing is thrown."""

    def broken(value):
        raise error

    redactor = Redactor(own=broken)
    assert redacted({"password": "x"}, redactor) == REDACTION_FAILED
    assert redactor.redact_value({"a": 1}) == REDACTION_FAILED


def test_a_users_redactor_that_returns_no_json_costs_the_payload():
    """A redactor's answer that cannot be written is dropped, not shown as a repr."""
    assert Redactor(own=lambda value: object()).redact_payload(b"1") == REDACTION_FAILED_JSON


def test_a_value_that_is_no_json_is_dropped():
    """What cannot be written is replaced, not shown as a repr."""
    assert REDACTOR.redact_value({"a": object()}) == REDACTION_FAILED


@pytest.mark.parametrize("data", [b"{", b'{"password": 1', b"\xff", b"[" * 5_000 + b'"secret"' + b"]" * 5_000])
def test_what_cannot_be_read_is_never_written(data):
    """Bytes that are no JSON, or too deep for a walk, are dropped if they might hold a secret."""
    result = REDACTOR.redact_payload(data)
    assert result == REDACTION_FAILED_JSON or REDACTOR.is_clean(data)


def test_failure_of_an_event_or_a_value_or_a_text_is_said():
    """An event that cannot be made safe is None; a value or text is the failure marker."""
    assert REDACTOR.redact_event(b'{"password": ') is None
    assert REDACTOR.redact_value({"password": {1, 2}, 3: object()}) == REDACTION_FAILED
    assert REDACTOR.redact_text(None) == REDACTION_FAILED


def test_the_names_of_an_event_itself_are_not_a_tools_fields():
    """A mark called `status` hides the tool's status, not the event's own."""
    line = dumped({"event": "tool_result", "status": "ok", "result": {"status": "x"}})
    assert orjson.loads(REDACTOR.redact_event(line, marks=("status",))) == {
        "event": "tool_result",
        "status": "ok",
        "result": {"status": HIDDEN},
    }
    assert orjson.loads(REDACTOR.redact_event(dumped({"a": 1}))) == {"a": 1}


@pytest.mark.parametrize("asked", ["arguments", "raw"])
def test_a_hidden_pin_cannot_be_tried_out(asked):
    """Where something that was asked for is hidden, the hash is that of what is shown; every other line keeps its own."""
    lines = {}
    for pin in ("4711", "4712"):
        told = {"door": "D1", "pin": pin} if asked == "arguments" else f"door=D1 pin={pin}"
        line = dumped({"event": "tool_call", "args_hash": hashlib.sha256(pin.encode()).hexdigest(), asked: told})
        lines[pin] = REDACTOR.redact_event(line)
    assert lines["4711"] == lines["4712"]
    for line in (dumped({"args_hash": "a", asked: {"x": 1}}), dumped({"args_hash": "a", "reason": "x"})):
        assert REDACTOR.redact_event(line) is line
    kept = orjson.loads(REDACTOR.redact_event(dumped({"args_hash": "a", asked: "x", "reason": "pin=1234"})))
    assert kept == {"args_hash": "a", asked: "x", "reason": f"pin={HIDDEN}"}
    assert REDACTOR.redact_event(dumped({asked: "pin=1234"})) == dumped({asked: f"pin={HIDDEN}"})


def test_findings_and_corrections_at_a_secret_place_lose_their_values():
    """Before, after, message and data go where `at` points below a secret name; code and place stay."""
    value = {
        "findings": [{"code": "c", "at": "/user/password", "message": "got 'x'", "data": {}}],
        "corrections": [{"at": "/pin", "rule": "r", "before": "1", "after": 1}, {"at": "/n", "before": 2, "after": 3}],
    }
    assert redacted(value) == {
        "findings": [{"code": "c", "at": "/user/password", "message": HIDDEN, "data": {}}],
        "corrections": [
            {"at": "/pin", "rule": "r", "before": HIDDEN, "after": HIDDEN},
            {"at": "/n", "before": 2, "after": 3},
        ],
    }


def test_what_is_said_of_a_secret_is_not_taken_for_one():
    """After a call without its password, words such as `required` and `password` stay readable in the run."""
    seen = KnownSecrets()
    told = {"at": "/password", "message": "it is required", "data": {"rule": "field_name", "suggestion": "password"}}
    line = {"event": "e", "arguments": {"password": "CANARY"}, "findings": [told], "reason": "no CANARY"}
    assert b"CANARY" not in REDACTOR.redact_event(dumped(line), seen=seen)
    later = {"text": "the required field_name is password"}
    assert redacted(later, seen=seen) == later


@pytest.mark.parametrize(
    ("asked", "meant", "kept"),
    [("pascode", "passcode", False), ("vouchre", "voucher", False), ("amout", "amount", True)],
)
@pytest.mark.parametrize("arguments", ['{"%s": "4711"}', {}])
@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_secret_under_a_misspelt_name_is_hidden(asked, meant, kept, arguments, effect):
    """What the guard takes for a slip of a secret name, whether it puts it right or says so, is a secret's name."""
    schema = {
        "type": "object",
        "properties": {meant: {"type": "string"}},
        "required": [meant],
        "additionalProperties": False,
    }
    contract = Contract.from_schema("t", schema, effect=effect, handler=lambda **_: None, redact=("voucher",))
    with Guard([contract]).run() as run:
        given = arguments % asked if arguments else {asked: "4711"}
        outcome = run.call(ToolCall("c", "t", given))
        assert outcome.status == ("ok" if effect == "read" else "refused")
        assert (b"4711" in b"".join(run.trace.lines)) is kept


def test_a_value_beside_its_name_is_hidden():
    """Settings, headers and variables are often listed as a name and a value; words are no such name."""
    for listed in ({"name": "DB_PASSWORD", "value": "x"}, {"Key": "Authorization", "Value": "x"}):
        assert set(redacted([listed])[0].values()) == {next(iter(listed.values())), HIDDEN}
    kept = [{"name": "max_tokens", "value": 5}, {"name": "The secret garden", "value": 9}, {"name": "a", "value": "b"}]
    kept += [{"kind": "password", "value": "x"}, {"name": 5, "value": "x"}]
    assert redacted(kept) == kept


def test_secret_names_do_not_swallow_each_other():
    """Two names that are both hidden stay two entries."""
    assert len(redacted({"sk-abcdefghijkl": 1, "sk-mnopqrstuvwx": 2})) == 2


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


def test_names_are_remembered_up_to_a_bound():
    """Names an attacker makes up do not fill the memory."""
    rules = NameRules()
    for number in range(10_000):
        rules.kind_of(f"name{number}")
    assert len(rules._kinds) == 4_096
    assert rules.kind_of("password") == "secret"


def test_marks_are_remembered_up_to_a_bound(monkeypatch):
    """A new set of marks beyond the bound still works."""
    monkeypatch.setattr("pokayoke.core.redaction.redactor._REMEMBERED_MARKS", 1)
    assert redacted({"zebra": 1}, Redactor(), marks=("zebra",)) == {"zebra": HIDDEN}


def test_only_digits_make_a_card():
    """Arabic digits, letters and wrong lengths are no card numbers."""
    assert is_card("4111 1111-1111 1111")
    for text in ("٤١١١١١١١١١١١١١١١", "abc", "", "4111111111111", "411111111111111111111"):
        assert not is_card(text)


def test_a_plain_pattern_is_judged_on_the_bytes():
    """Only patterns that cannot match across a JSON escape skip the walk."""
    for source in (r"ACCT-\d+", "[A-Z]{2}[0-9]+", r"\w+@\w+", "(?:a|b)c?"):
        assert SecretPattern(source).prefilter is not None
    for source in ("^a", "a.b", r"a\sb", "[^a]b", '"a"', "a b", r"[!-~]z", r"\Bx"):
        assert SecretPattern(source).prefilter is None


def test_the_first_search_holds_a_piece_of_every_literal():
    """What the exact searches look for is never missed by the quick one before them, and it stays quick."""
    bare = re.sub(r"\[.*?\}", "", secret_looks._SHAPE_LITERALS).replace("\\", "").split("|")
    literals = [*secret_looks._NAME_LITERALS.split("|"), *bare]
    assert all(secret_looks._compile_searches().literal(f"a {literal} b") for literal in literals)
    assert len(literals) < 64
    assert all(len(literal.encode()) >= 4 for literal in literals)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.sampled_from(SECRET_NAMES), st.text(string.ascii_letters, min_size=6, max_size=20))
def test_no_canary_survives_beside_anything(value, name, tail):
    """Whatever stands around it, a canary under a secret name is gone, and the rest is valid JSON."""
    canary = f"CANARY{tail}"
    result = REDACTOR.redact_payload(dumped({"around": value, name: canary, "list": [{name: [canary]}]}))
    assert canary.encode() not in result
    assert orjson.loads(result)[name] == HIDDEN


NAME_PARTS = st.sampled_from([
    *["db", "smtp", "functions", "subscription", "connection", "string"],
    *["pass", "word", "wd", "phrase", "code", "api", "key", "private", "access", "signing", "encryption", "secret", "token", "tokens", "max", "count"],
    *["card", "no", "number", "auth", "pin", "otp", "cvv", "cvc", "ssn", "pwd", "cookie", "bearer", "contrase", "ñ", "ña", "Ñ", "na", "密", "密码", "K", "İ", "ſ"],
    *("_", "-", ".", "/", " ", "__", "\t", "\n", "\x01", "\x85", "\u2003", '"', "\\", "1", "2", "s", "x", "i", "I"),
])  # fmt: skip
CASES = st.sampled_from([str, str.title, str.upper, str.swapcase])
spelled_names = st.lists(st.builds(lambda case, part: case(part), CASES, NAME_PARTS), max_size=6).map("".join)


@given(spelled_names)
@example("aPIKey")
@example("pIN")
def test_the_quick_look_at_the_bytes_is_never_narrower_than_the_walk(name):
    """Whatever the walk would hide, the bytes are never called clean: by name, by number, in a text."""
    data = dumped({name: "kept1", "list": [f"{name}=kept2", {name: 7}]})
    if REDACTOR._name_set(()).rules.is_secret(name):
        assert not REDACTOR.is_clean(data)
    assert orjson.loads(REDACTOR.redact_payload(data)) == REDACTOR.redact_value(orjson.loads(data))


@given(spelled_names, spelled_names)
@example("kunden_nummer", "kunden--nummer")
@example("kunden_nummer", "kunden\u2003nummer")
@example("kunden_nummer", "x.kunden\tnummer")
@example("İsim", "İSİM")
@example('a"b', 'A"b')
def test_the_quick_look_at_configured_names_is_never_narrower_than_the_walk(field, name):
    """However a configured field is spelled in the payload, the bytes are called clean only if no name is it."""
    redactor = Redactor(fields=[field])
    for key in (name, field):
        data = dumped({key: "kept", "list": [f"{key}=kept2"]})
        if redactor._name_set(()).rules.is_secret(key):
            assert not redactor.is_clean(data)
        assert orjson.loads(redactor.redact_payload(data)) == redactor.redact_value(orjson.loads(data))


@given(json_values)
def test_redacting_twice_equals_redacting_once(value):
    """What was made safe is left alone the second time."""
    once = REDACTOR.redact_payload(dumped(value))
    assert REDACTOR.redact_payload(once) == once


@given(st.text())
def test_no_text_makes_redaction_raise(text):
    """Any text goes through, surrogates and all, and twice is once."""
    once = REDACTOR.redact_text(text)
    assert REDACTOR.redact_text(once) == once


SECRETIVE = st.sampled_from([
    *("passw", "密码", "令牌", "口令", "kennwort", "contraseña", "sk-abcdef", "://a", "@", "é" * 30, "ü", "日本", "4111"),
    *("gldt-", "shpss_", "dp.pt.", ".atlasv1.", "pass", "\\u00fc"),
    *("\\u0070", "AKIA0000", "1" * 14, "2" + "0" * 13, "6 ", "-", "PIN", '"', "K", "a", " "),
])  # fmt: skip


@given(st.lists(SECRETIVE).map("".join))
@example("密钥")
@example("://" + "é" * 200 + "@")
@example("://" + "é" * 45 + "@")
def test_the_searches_find_as_much_in_flat_text(text):
    """Text made plain for the searches answers them as the text itself does."""
    flat, lowered = secret_looks.search_text(text.encode())
    assert secret_looks.matching_prefilters(flat, lowered) == secret_looks.matching_prefilters(text, text.lower())


@given(st.lists(SECRETIVE).map("".join))
@example('a"b\\u0070')
def test_what_is_found_in_a_text_is_found_in_its_json(text):
    """A look that finds nothing in the bytes of a value has nothing to find in a text of that value."""
    assert set(secret_looks.matching_prefilters(text, text.lower())) <= set(
        secret_looks.matching_prefilters(*secret_looks.search_text(dumped({text: [text]})))
    )


@given(st.lists(SECRETIVE).map("".join))
@example("password")
@example("card number")
@example("PIN=")
@example("sk-abcdef")
@example("://a@")
@example("\\u0070")
@example("2" + "0" * 13)
def test_the_first_glance_at_a_text_misses_no_look(text):
    """What is found at once to hold nothing holds nothing for any look, each asked alone."""
    alone = tuple(look for look in secret_looks.PREFILTERS if look(text, text.lower()))
    assert secret_looks.matching_prefilters(text, text.lower()) == alone


def test_every_literal_beside_ascii_is_looked_for_in_the_text_itself():
    """A new name in another script is not lost: its first byte is one of those that need the whole text."""
    foreign = [name for name in secret_looks._NAME_LITERALS.split("|") if not name.isascii()]
    assert foreign
    assert {name.encode()[0] for name in foreign} <= set(secret_looks._NON_ASCII_LEADS)
    for source in (
        secret_looks._SHAPE_LITERALS,
        secret_looks._SHORT_SHAPES,
        secret_looks._SPELLED_LETTER,
        secret_looks._CARD_DIGITS,
    ):
        assert source.isascii()
    assert secret_looks._WHOLE_WORDS.isascii()
