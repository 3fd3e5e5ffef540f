"""Questions outlive their askers: restarts, expiry, edited calls, reviews, over real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from clishell import Shell
from pgserver import Missing, empty_schema

from pokayoke import open_store
from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.stores.values import AuditEntry

# Reads one line of JSON per order, answers with one. The effect is a line in a file that no store touches.
AGENT = """
import json, os, sys
import pokayoke

ANY = {"type": "object"}
def pay(**given):
    with open("effects.log", "a") as file:
        file.write(json.dumps(given) + "\\n")
    return {}
def look(**given):
    return {"wrong": 1} if os.path.exists("broken") else {"ok": True}

guard = pokayoke.Guard(
    [
        pokayoke.Contract.from_schema("pay", ANY, output_schema={}, handler=pay, approval="approve" in sys.argv),
        pokayoke.Contract.from_schema("look", ANY, output_schema={"required": ["ok"]}, effect="read", handler=look),
    ],
    config={"approvals": {"expires_seconds": float(os.environ.get("EXPIRES", "3600"))},
            "safe_mode": {"on_invalid_output": "human_review"}},
    store=os.environ["POKAYOKE_STORE"],
)
with guard.run("r1") as run:
    for number, line in enumerate(sys.stdin):
        name, arguments = json.loads(line)
        outcome = run.call(pokayoke.ToolCall(f"c{number}", name, arguments))
        code = outcome.findings[0].code if outcome.findings else None
        print(json.dumps([outcome.status, code, outcome.approval]), flush=True)
guard.close()
"""


@pytest.fixture
def shell(tmp_path):
    """`pokayoke` in this folder."""
    return Shell(tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path, need, monkeypatch, shell):
    """A ledger, named in the environment."""
    monkeypatch.delenv("POKAYOKE_STORE_KEY", raising=False)

    def ready(url):
        monkeypatch.setenv("POKAYOKE_STORE", url)
        assert shell("ledger", "init").returncode == 0
        return url

    if request.param == "sqlite":
        yield ready(f"sqlite:///{tmp_path / 'ledger.db'}")
        return
    try:
        with empty_schema() as found:
            yield ready(found)
    except Missing as missing:
        need(str(missing))


class Agent:
    """A process with a guard. It takes one call at a time and says what became of it."""

    def __init__(self, folder, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, *words], cwd=folder, env=os.environ, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, tool, **arguments):
        self.process.stdin.write(json.dumps([tool, arguments]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self, how=None):
        if how is not None:
            self.process.send_signal(how)
        self.process.stdin.close()
        self.process.wait(50)
        self.process.stdout.close()


@pytest.fixture
def agent(tmp_path, url):
    """Start a process; all of them are ended."""
    started = []

    def start(*words):
        started.append(Agent(tmp_path, *words))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def effects(tmp_path):
    file = tmp_path / "effects.log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_approval_survives_the_death_of_who_asked(shell, agent, tmp_path):
    """Asked by a process that is killed, answered by another one, used by a third: once; then replayed."""
    first = agent("approve")
    status, _, approval = first("pay", to="ann")
    assert status == "pending"
    first.end(signal.SIGKILL)
    assert [one["id"] for one in lines(shell("approvals", "list", "--json"))] == [approval]
    assert shell("approvals", "approve", approval, "--by", "bob").returncode == 0
    second = agent("approve")
    assert second("pay", to="ann")[0] == "ok"
    assert second("pay", to="ann")[0] == "replayed"
    assert effects(tmp_path) == [{"to": "ann"}]


def test_an_edited_call_asks_anew(shell, agent, tmp_path):
    """The yes to one amount is no yes to another: the edited call waits, and nothing of it runs."""
    one = agent("approve")
    approval = one("pay", to="ann", amount=5)[2]
    shell("approvals", "approve", approval, "--by", "bob")
    status, _, other = one("pay", to="ann", amount=500)
    assert (status, other != approval, effects(tmp_path)) == ("pending", True, [])
    shell("approvals", "deny", other, "--by", "bob")
    assert one("pay", to="ann", amount=500)[:2] == ["refused", "approval_denied"]
    assert one("pay", to="ann", amount=5)[0] == "ok"
    assert effects(tmp_path) == [{"to": "ann", "amount": 5}]


@pytest.mark.parametrize("approved", [False, True])
def test_a_question_expires_into_a_refusal(shell, agent, tmp_path, monkeypatch, approved):
    """Nobody answered in time, or the yes was not used in time: refused, in another process, and asked anew."""
    monkeypatch.setenv("EXPIRES", "1.5")
    first = agent("approve")
    approval = first("pay", to="ann")[2]
    asked = time.monotonic()
    first.end()
    if approved:
        shell("approvals", "approve", approval, "--by", "bob")
    monkeypatch.setenv("EXPIRES", "3600")
    second = agent("approve")
    time.sleep(max(0.0, 1.6 - (time.monotonic() - asked)))
    assert second("pay", to="ann")[:2] == ["refused", "approval_expired"]
    status, _, again = second("pay", to="ann")
    assert (status, effects(tmp_path)) == ("pending", [])
    shell("approvals", "approve", again, "--by", "bob")
    assert second("pay", to="ann")[0] == "ok"


@pytest.mark.parametrize("word", ["approve", "deny"])
def test_a_review_opens_the_latch_of_a_run_in_another_process(shell, agent, tmp_path, word):
    """After an invalid output writes wait for a person: a yes from the shell lets the open run write, a no does not."""
    one = agent()
    assert one("pay", to="before")[0] == "ok"
    (tmp_path / "broken").touch()
    _, _, review = one("look")
    assert one("pay", to="latched")[0] == "refused"
    assert (lines(shell("approvals", "list", "--json"))[0]["kind"], review[:3]) == ("output", "rv-")
    assert shell("approvals", word, review, "--by", "bob", "--reason", "looked").returncode == 0
    expected = "ok" if word == "approve" else "refused"
    assert one("pay", to="after")[0] == expected
    one.end()
    assert agent()("pay", to="restarted")[0] == expected
    store = open_store(os.environ["POKAYOKE_STORE"])
    assert bool(store.load_run("r1").taints) == (word == "deny")
    store.close()


def test_waiting_holds_nothing(shell, agent, tmp_path, url):
    """While three processes wait for an answer, others claim and settle; the answer then reaches all three."""
    one = agent("approve")
    approval = one("pay", to="ann")[2]
    command = [sys.executable, "-m", "pokayoke.cli", "approvals", "wait", approval, "--timeout", "50s"]
    waiting = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)]
    try:
        store = open_store(url)
        for number in range(50):
            key, now = f"{number:064x}", time.time()
            answer = store.admit(
                AdmissionRequest("r2", "t", "write", (), now, Claim(key, "h", key, "t", "t@1", "r2", now, 60))
            )
            assert answer.kind == "execute"
            assert store.settle(Settlement(key, key, "completed", now)).accepted
        store.close()
        assert [process.poll() for process in waiting] == [None] * 3
        shell("approvals", "approve", approval, "--by", "bob")
        assert [process.wait(50) for process in waiting] == [0] * 3
    finally:
        for process in waiting:
            process.kill()
            process.wait()


# -- what reaches a terminal -------------------------------------------------------------------------

EVIL = "\x1b]52;c;cHduZWQ=\x07\x1b[2J\x1b]8;;http://evil\x07x\x9b31m\u202e\u2028\r\n"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_no_terminal_escape_of_a_tool_reaches_the_terminal(shell, url, tmp_path):
    """Escapes in tools, runs, failures, references, reasons, rows and arguments: none raw on stdout or stderr."""
    store, at = open_store(url), time.time() - 9_999
    for letter, state in (("a", "completed"), ("b", "in_doubt"), ("c", "failed_final")):
        key = letter * 64
        store.admit(
            AdmissionRequest(
                "r", EVIL, "write", (), at, Claim(key, "h", letter, EVIL, f"{EVIL}@1", EVIL, at, 60, owner=EVIL)
            )
        )
        store.settle(Settlement(key, letter, state, at, failure=EVIL, reference=EVIL))
    store.propose(Approval("ap-000000000001", "f", EVIL, EVIL, {EVIL: [EVIL]}, EVIL, at, at + 99_999))
    store.note(AuditEntry(at, "late_effect", "a" * 64, EVIL, EVIL, {"reference": EVIL}))
    store.close()
    rows = [{"key": "a" * 64, "reference": EVIL + "2"}, {"key": EVIL, "reference": EVIL, "tool": EVIL}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "shop.py").write_text(
        "import pokayoke\nTOOL = pokayoke.Contract.from_schema('x', {'type': 'object'}, compensate=print)\n"
    )
    reconcile = ("ledger", "reconcile", "--rows", "rows.jsonl")
    commands = [
        ("ledger", "list"), ("ledger", "list", "--in-doubt"), ("ledger", "list", "--tool", EVIL), ("ledger", "show", "a"),
        ("ledger", "show", "b"), ("ledger", "show", EVIL), ("ledger", "list", "--state", EVIL), ("approvals", "list"),
        ("approvals", "show", "ap"), ("approvals", "show", EVIL), ("approvals", "deny", "ap-000000000001", "--by", EVIL, "--reason", EVIL),
        ("approvals", "list", "--all"), ("approvals", "show", "ap"), ("approvals", "wait", "ap"), reconcile,
        (*reconcile, "--compensate", "--contracts", "shop:TOOL"), (*reconcile, "--map", EVIL),
        ("ledger", "resolve", "bbbbbb", "--happened", EVIL, "--by", EVIL, "--reason", EVIL), ("ledger", "show", "b"),
        ("ledger", "prune", "--older-than", "0s", "--force"), ("ledger", "prune", "--older-than", "0s", "--force", "--yes", "--by", EVIL),
    ]  # fmt: skip
    told = ""
    for command in [*commands[:6], *([*one, "--json"] for one in commands[:10]), *commands[6:]]:
        done = shell(*command)
        assert RAW.findall(done.stdout) == [], command
        assert RAW.findall(done.stderr) == [], command
        told += done.stdout + done.stderr
    assert told.count("cHduZWQ=") > 20
