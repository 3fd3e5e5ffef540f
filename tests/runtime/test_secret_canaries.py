"""Canary secrets: put at every place of a call, and searched for in the raw bytes of everything that is written or shown.

A row of `NAMED` or `SHAPES` says where the canary stands and what makes it known as a secret, one of `ECHOES` how it is
repeated, one of `WAYS` how the call ends. Each sink is read as bytes: files with their WAL, free pages and rotated parts, rows of PostgreSQL, requests that
a real server received, log records, output of commands, labels and attributes.
"""

import base64
import contextlib
import hashlib
import http.server
import itertools
import json
import logging
import random
import re
import stat
import string
import threading
from urllib.parse import quote

import pytest
from clishell import Shell
from hypothesis import given, settings
from hypothesis import strategies as st
from pgserver import Missing, empty_schema

from pokayoke import Contract, Guard, ToolCall, open_store
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.errors import StoreError
from pokayoke.runtime.approvals.signature import SECRET
from pokayoke.stores.encryption import VARIABLE

pytestmark = pytest.mark.xdist_group("postgres")

ANY = {
    "type": "object",
    "properties": {"note": {"type": "string"}, "nip": {"type": "string"}, "more": {}, "n": {"type": "integer"}},
}
OUT = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}

_LETTERS = string.ascii_letters + string.digits
LAW = settings(deadline=None)


def _luhn(digits):
    total = sum(int(d) for d in digits[-2::-2]) + sum(sum(divmod(2 * int(d), 10)) for d in digits[-1::-2])
    return digits + str(-total % 10)


def _jwt(text):
    parts = (
        base64.urlsafe_b64encode(json.dumps({"typ": "JWT", "v": text[:8]}).encode()).decode().rstrip("="),
        text,
        text[::-1],
    )
    return ".".join(parts)


# Structure alone makes each of these a secret: the text to write, and the part of it that must not be found.
SHAPES = {
    "sk": lambda t: (f"sk-{t}", t),
    "github": lambda t: (f"ghp_{t}", t),
    "aws": lambda t: (f"AKIA{t[:16].upper()}", t[:16].upper()),
    "jwt": lambda t: (_jwt(t), t),
    "pem": lambda t: (f"-----BEGIN RSA PRIVATE KEY-----\n{t[:12]}\n{t}\n-----END RSA PRIVATE KEY-----", t),
    "url": lambda t: (f"postgresql://app:{t}@db.example.org/x", t),
    "assignment": lambda t: (f"login failed: password={t} for ann", t),
    "json in text": lambda t: (json.dumps(json.dumps({"a": {"api_key": t}})), t),
    "card": lambda t: (card := _luhn("4" + str(int.from_bytes(t.encode(), "big"))[-14:]), card),
    "iban": lambda t: (iban := _iban(t), iban),
    "header": lambda t: (f"Authorization: Bearer {t}", t),
}  # fmt: skip


def _iban(text):
    number = str(int.from_bytes(text.encode(), "big"))[-18:]
    return f"DE{98 - int(number + '131400') % 97:02d}{number}"


# Places of a secret that only a mark or a name reveals: the arguments, and the texts that repeat it.
NAMED = {
    "marked": lambda s: {"nip": s},
    "named": lambda s: {"more": {"password": s}},
    "nested": lambda s: {"more": [{"a": {"client_secret": [s, {"b": s}]}}]},
    "header list": lambda s: {"more": [["Authorization", s]]},
    "setting": lambda s: {"more": [{"name": "DB_PASSWORD", "value": s}]},
}
# How a tool, or the text after it, repeats a secret that was named in the arguments.
ECHOES = {
    "plain": lambda s: f"no: {s}!",
    "repr": lambda s: repr({"x": s}),
    "json": lambda s: json.dumps(json.dumps({"x": s})),
    "url": lambda s: f"https://h/{quote(s, safe='')}",
    "base64": lambda s: "raw " + base64.b64encode(s.encode()).decode(),
    "base64 inside": lambda s: base64.b64encode(f"user:{s}:end".encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "bytes": lambda s: str(s.encode()),
}
WAYS = ("ok", "refused", "corrected", "failing", "chained", "invalid output", "pending", "repeated")


class Receiver:
    """A real HTTP server that keeps the bodies it is sent."""

    def __init__(self):
        self.got, self.arrived = [], threading.Event()
        there = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                there.got.append(str(self.headers).encode() + self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()
                there.arrived.set()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Logged(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


def forms(secret):
    """The spellings of a secret that must not be found: plain, in base64 and in hexadecimal."""
    data = secret.encode()
    inner = [base64.b64encode(b"\0" * lead + data)[(8 * lead + 5) // 6 :].rstrip(b"=")[:-1] for lead in range(3)]
    return [data, data.hex().encode(), *inner]


def database_rows(url):
    """Every row of every table of the schema, as bytes."""
    import psycopg  # noqa: PLC0415 - an extra

    with psycopg.connect(url) as conn:
        tables = [r[0] for r in conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
        dumped = b""
        for table in tables:
            with conn.cursor().copy(f'COPY "{table}" TO STDOUT (FORMAT binary)') as copy:
                dumped += b"".join(bytes(block) for block in copy)
        return dumped


def scene(folder, way, arguments, echo, *, url=None, output=None, config=None, call_id="c1"):
    """Run one call to its end, and return the bytes of every sink by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    receiver, logged, observed = Receiver(), Logged(), []
    url = url or f"sqlite:///{folder / 'ledger.db'}"
    logger = logging.getLogger("pokayoke")
    logger.addHandler(logged)

    def pay(**given):
        if way == "failing":
            raise RuntimeError(echo)
        if way == "chained":
            try:
                raise ValueError(echo)
            except ValueError as inner:
                raise RuntimeError("outer") from inner
        if way == "invalid output":
            return {"wrong": echo}
        return output or {"id": "p1", "said": echo}

    try:
        contract = Contract.from_schema(
            "pay", ANY, output_schema=OUT, effect="write", approval=way == "pending", redact=("nip",), handler=pay
        )
        trace = {"path": str(folder / "trace.jsonl"), "max_bytes": 4_000, **(config or {})}
        settings_ = {
            "trace": trace, "retry": {"retries": 0}, "approvals": {"webhook": {"url": receiver.url}}
        }  # fmt: skip
        with contextlib.closing(open_store(url, create=True)) as store:
            guard = Guard([contract], store=store, config=settings_)
            guard.trace.observe(lambda event: observed.append(dict(event)))
            run = guard.run("r1")
            given_ = {**arguments, **({"n": "many"} if way == "refused" else {"n": "7"} if way == "corrected" else {})}
            outcome = run.call(ToolCall(call_id, "pay", json.dumps(given_)))
            if way == "repeated":
                outcome = run.call(ToolCall(f"{call_id}b", "pay", json.dumps(given_)))
            if way == "pending":
                assert outcome.status == "pending", outcome
                assert receiver.arrived.wait(20)
            ring = b"\n".join(run.trace.lines)
            guard.close()
            files = b"".join(p.read_bytes() for p in sorted(folder.iterdir()) if p.name.startswith("ledger.db"))
        stored = files + b"".join(p.read_bytes() for p in sorted(folder.iterdir()) if p.name.startswith("ledger.db"))
        if url.startswith("postgres"):
            stored = database_rows(url)
        traced = b"".join(p.read_bytes() for p in sorted(folder.iterdir()) if p.name.startswith("trace.jsonl"))
    finally:
        logger.removeHandler(logged)
        receiver.close()
    shell, place = Shell(folder), ("--store", url)
    shown = []
    for words in (
        ("trace", "trace.jsonl"), ("trace", "trace.jsonl", "--json"), ("trace", "report", "trace.jsonl"),
        ("trace", "report", "trace.jsonl", "--json"),
        ("ledger", "show", *place), ("ledger", "list", *place), ("ledger", "list", *place, "--json"),
        ("approvals", "list", "--all", *place), ("approvals", "list", "--all", *place, "--json"),
        ("approvals", "show", "ap", *place), ("approvals", "show", "ap", *place, "--json"),
        ("approvals", "approve", "ap", "--by", "ann", *place, "--json"), ("status", *place, "--json"),
    ):  # fmt: skip
        done = shell(*words)
        shown.append(done.stdout + done.stderr)
    return outcome, {
        "trace": traced, "ring": ring, "store": stored, "log": "\n".join(logged.lines).encode(),
        "webhook": b"".join(receiver.got), "cli": "\n".join(shown).encode(), "observer": repr(observed).encode(),
        "message": outcome.text.encode() if way in ("failing", "chained", "pending") else b"",
    }  # fmt: skip


def hits(sinks, secret):
    """The sinks in which a spelling of a secret is found."""
    return sorted({name for name, data in sinks.items() for form in forms(secret) if form in data})


@pytest.fixture(autouse=True)
def webhook_secret(monkeypatch):
    """The webhook signs, and the store does not encrypt."""
    monkeypatch.setenv(SECRET, "whsec_" + "AAAA" * 8)
    monkeypatch.delenv(VARIABLE, raising=False)


def assert_clean(sinks, secret, about):
    """Fail with the sinks in which a spelling of the secret is found."""
    assert hits(sinks, secret) == [], about


def draw_letters(seed):
    """Random letters, the same for the same seed."""
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=24))


def pick(rows, full):
    """Every row at full size; else every ninth, so that each place, form and way still occurs."""
    return rows if full else rows[::9]


def test_a_canary_in_the_open_is_found(tmp_path):
    """The search can fail: a word that nothing marks is in the sinks that repeat it."""
    _, sinks = scene(tmp_path, "pending", {"note": "plainword-canary"}, "")
    assert {"trace", "ring", "store", "webhook", "cli"} <= set(hits(sinks, "plainword-canary"))


@pytest.mark.timeout(600)  # for the full size
def test_a_named_secret_is_found_nowhere(tmp_path, full):
    """What stands under a marked or a secret name is found in no sink, however it is repeated there."""
    for number, (place, echo, way) in enumerate(pick([*itertools.product(NAMED, ECHOES, WAYS)], full)):
        secret = draw_letters(number)
        _, sinks = scene(tmp_path / str(number), way, NAMED[place](secret), ECHOES[echo](secret))
        assert_clean(sinks, secret, (place, echo, way))


@pytest.mark.timeout(600)  # for the full size
def test_a_secret_by_structure_is_found_nowhere(tmp_path, full):
    """What its structure makes a secret is found in no sink, as an argument, in an output or in an exception."""
    for number, (shape, way, deep) in enumerate(pick([*itertools.product(SHAPES, WAYS, (False, True))], full)):
        text, secret = SHAPES[shape](draw_letters(number))
        arguments = {"more": [{"x": text}]} if deep else {"note": f"see {text}"}
        _, sinks = scene(tmp_path / str(number), way, arguments, f"no: {text}")
        assert_clean(sinks, secret, (shape, way, deep))


@LAW
@given(
    st.text(_LETTERS, min_size=24, max_size=24), st.sampled_from(sorted(SHAPES)), st.text(max_size=20), st.booleans()
)
def test_a_secret_is_hidden_wherever_it_stands(letters, shape, around, quoted):
    """Text around a secret, and JSON around that text, hide it from nobody."""
    text, secret = SHAPES[shape](letters)
    whole = f"{around} {text} {around}"
    whole = json.dumps({"x": whole}) if quoted else whole
    assert secret not in Redactor().redact_text(whole)


@pytest.mark.parametrize("way", WAYS)
def test_postgres_rows_hold_no_secret(way, tmp_path, need):
    """Every row of every table, as the server dumps it."""
    secret = draw_letters(way)
    try:
        with empty_schema() as url:
            _, sinks = scene(tmp_path, way, NAMED["marked"](secret), ECHOES["plain"](secret), url=url)
    except Missing as missing:
        need(str(missing))
    assert_clean(sinks, secret, way)


@pytest.mark.parametrize("way", ["ok", "pending", "repeated"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_sealed_store_holds_no_value(way, kind, tmp_path, need, monkeypatch):
    """With a key the store holds neither an argument nor an output that nothing marks."""
    monkeypatch.setenv(VARIABLE, base64.b64encode(b"s" * 32).decode())
    plain = draw_letters(way)
    try:
        with empty_schema() if kind == "postgres" else contextlib.nullcontext() as url:
            _, sinks = scene(tmp_path, way, {"note": plain}, plain, url=url)
    except Missing as missing:
        need(str(missing))
    assert hits({"store": sinks["store"]}, plain) == []
    assert hits({"trace": sinks["trace"]}, plain) == ["trace"], "it ran, and the trace may show what nothing marks"


@pytest.mark.parametrize("way", ["pending", "ok"])
def test_a_sealed_store_shows_no_named_secret(way, tmp_path, monkeypatch):
    """What the store keeps sealed, commands and the webhook show without its secrets."""
    monkeypatch.setenv(VARIABLE, base64.b64encode(b"s" * 32).decode())
    secret = draw_letters(way)
    _, sinks = scene(tmp_path, way, NAMED["marked"](secret), ECHOES["plain"](secret))
    assert_clean(sinks, secret, way)


@pytest.mark.parametrize("way", ["ok", "refused", "failing"])
def test_ids_and_names_hold_no_secret(way, tmp_path):
    """A run's id, a call's id and a tool's unknown name are searched like any text of the trace."""
    key = f"sk-{draw_letters(way)}"
    guard = Guard(
        [Contract.from_schema("pay", ANY, handler=lambda **_: {})],
        config={"trace": {"path": str(tmp_path / "trace.jsonl")}},
    )
    run = guard.run(f"run {key}")
    run.call(ToolCall(key, "pay", "{}"))
    run.call(ToolCall("c", f"pay_{key}" if way == "refused" else "pay", '{"n": "x"}'))
    lines = b"\n".join(run.trace.lines)
    guard.close()
    assert_clean({"trace": (tmp_path / "trace.jsonl").read_bytes(), "ring": lines}, key[3:], way)


def test_tags_match_across_guards_and_no_guess_fits_without_the_key(tmp_path):
    """Two guards with one key file write one tag for one value; nothing unkeyed of the value is written."""
    tags = []
    for name in ("a", "b"):
        config = {"redact_key_path": str(tmp_path / "key")}
        _, sinks = scene(tmp_path / name, "ok", {"nip": "4711-x"}, "", config=config)
        tags.append(set(re.findall(rb"\[redacted#[0-9a-f]{16}\]", sinks["trace"])))
        for guess in (b"4711-x", b'"4711-x"', b'{"nip":"4711-x"}'):
            assert hashlib.sha256(guess).hexdigest()[:16].encode() not in sinks["trace"]
    assert tags[0] == tags[1]
    assert len(tags[0]) == 1
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert len(bytes.fromhex((tmp_path / "key").read_text())) >= 32


@pytest.mark.parametrize(
    "url", ["host=h password=Sup3rS3cret", "/x?password=Sup3rS3cret", "postgresql://u:Sup3rS3cret@[h/x"]
)
def test_a_wrong_store_url_is_refused_without_its_password(url, tmp_path):
    """The exception does not repeat a connection string, nor does the command that prints it."""
    with pytest.raises(StoreError) as refused:
        open_store(url)
    assert "Sup3rS3cret" not in str(refused.value)
    done = Shell(tmp_path)("ledger", "list", "--store", url)
    assert done.returncode == 2
    assert "Sup3rS3cret" not in done.stdout + done.stderr
