"""Canary secrets: put at every place of a call, and searched for in the raw bytes of everything that is written or shown.

A row of `WAYS` says how the call ends. Each sink is read as bytes: files with their WAL, free pages and rotated parts,
rows of PostgreSQL, requests that a real server received, what the approvals server answers, log records, output of
commands.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import logging
import re
import stat

import pytest
from canaries import (
    ECHOES,
    LETTERS,
    NAMED,
    SHAPES,
    Logged,
    Receiver,
    assert_clean,
    database_rows,
    draw_letters,
    hits,
    pick,
    served_questions,
)
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

LAW = settings(deadline=None)
WAYS = ("ok", "refused", "corrected", "failing", "chained", "invalid output", "pending", "repeated")


def scene(folder, way, arguments, echo, *, url=None, output=None, config=None, call_id="c1"):
    """Run one call to its end, and return the bytes of every sink by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    receiver, logged, observed, served = Receiver(), Logged(), [], b""
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
                served = served_questions(store)
                assert b'"tool":"pay"' in served
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
        "server": served,
        "message": outcome.text.encode() if way in ("failing", "chained", "pending") else b"",
    }  # fmt: skip


@pytest.fixture(autouse=True)
def webhook_secret(monkeypatch):
    """The webhook signs, and the store does not encrypt."""
    monkeypatch.setenv(SECRET, "whsec_" + "AAAA" * 8)
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_canary_in_the_open_is_found(tmp_path):
    """The search can fail: a word that nothing marks is in the sinks that repeat it."""
    _, sinks = scene(tmp_path, "pending", {"note": "plainword-canary"}, "")
    assert {"trace", "ring", "store", "webhook", "server", "cli"} <= set(hits(sinks, "plainword-canary"))


@pytest.mark.timeout(1_200)  # for the full size
def test_a_named_secret_is_found_nowhere(tmp_path, full):
    """What stands under a marked or a secret name is found in no sink, however it is repeated there."""
    for number, (place, echo, way) in enumerate(pick([*itertools.product(NAMED, ECHOES, WAYS)], full)):
        secret = draw_letters(number)
        _, sinks = scene(tmp_path / str(number), way, NAMED[place](secret), ECHOES[echo](secret))
        assert_clean(sinks, secret, (place, echo, way))


@pytest.mark.timeout(1_200)  # for the full size
def test_a_secret_by_structure_is_found_nowhere(tmp_path, full):
    """What its structure makes a secret is found in no sink, as an argument, in an output or in an exception."""
    for number, (shape, way, deep) in enumerate(pick([*itertools.product(SHAPES, WAYS, (False, True))], full)):
        text, secret = SHAPES[shape](draw_letters(number))
        arguments = {"more": [{"x": text}]} if deep else {"note": f"see {text}"}
        _, sinks = scene(tmp_path / str(number), way, arguments, f"no: {text}")
        assert_clean(sinks, secret, (shape, way, deep))


@LAW
@given(st.text(LETTERS, min_size=24, max_size=24), st.sampled_from(sorted(SHAPES)), st.text(max_size=20), st.booleans())
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
