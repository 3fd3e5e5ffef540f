"""Which names and shapes mark a secret, and which only resemble one."""

import json
import time

import pytest
from redaction_cases import REDACTOR, SECRET_NAMES, redacted

from pokayoke.core.redaction.known_secrets import HIDDEN
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.core.redaction.secret_rules import NameRules

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


def test_secret_names_do_not_swallow_each_other():
    """Two names that are both hidden stay two entries."""
    assert len(redacted({"sk-abcdefghijkl": 1, "sk-mnopqrstuvwx": 2})) == 2


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


@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        ("curl -u bob:hunter22 https://x", "curl -u bob:[redacted] https://x"),
        ("curl -subob:hunter22 https://x", "curl -subob:[redacted] https://x"),
        ('curl -s -u "bob:hunt er 22" https://x', 'curl -s -u "bob:[redacted]" https://x'),
        ("curl --user='bob:hu\"nter22' https://x", "curl --user='bob:[redacted]' https://x"),
        ("curl x --proxy-user bob:hunter22", "curl x --proxy-user bob:[redacted]"),
    ],
)
def test_the_login_of_a_command_is_hidden(command, hidden):
    """`curl -u name:password`, quoted or not, as a text, in JSON and in JSON within JSON."""
    assert REDACTOR.redact_text(command) == hidden
    assert redacted({"cmd": command}) == {"cmd": hidden}
    assert "hunter" not in REDACTOR.redact_text(json.dumps({"cmd": command}))


@pytest.mark.parametrize("command", ["docker run -u 1000:1000 x", "curl -u bob https://x:80/", "curl x -o a:b"])
def test_what_is_no_login_stays(command):
    """Other commands mean something else by that option, and a name alone is no secret."""
    assert redacted({"cmd": command}) == {"cmd": command}
