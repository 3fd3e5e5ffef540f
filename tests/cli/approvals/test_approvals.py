"""`pokayoke approvals`: list, show, answer, wait, and the small server that takes signed answers."""

import base64
import http.client
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from clishell import json_lines

from pokayoke import Contract, Guard, ToolCall
from pokayoke.cli.output import print_message
from pokayoke.core.ledger.admission import Approval
from pokayoke.dashboard.machine import SignedApprovals
from pokayoke.dashboard.serve import build_server, listen_on
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.approvals.signature import ID, SECRET, SIGNATURE, TIMESTAMP, sign
from pokayoke.runtime.config.config import load_policy
from pokayoke.runtime.trace.redaction import build_redactor

pytestmark = pytest.mark.xdist_group("timing")  # its deadlines are short

KEY = bytes(range(32))
WHSEC = "whsec_" + base64.b64encode(KEY).decode()
ARGUMENTS = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "password": {"type": "string"}},
    "required": ["to"],
}


@pytest.fixture(autouse=True)
def named_secret(monkeypatch, named_store):
    """Every command of these tests finds its store and its secret in the environment."""
    monkeypatch.setenv(SECRET, WHSEC)


def asked(ledger, number=1, *, kind="call", expires=3_600.0, at=None, **fields):
    """Put a question into the store, as a guard does."""
    at = time.time() if at is None else at
    approval = Approval(
        f"{'ap' if kind == 'call' else 'rv'}-{number:012x}", f"f{number}", "pay", "pay@1", {"to": "ann", "password": "hunter2"},
        "r1", at, at + expires, kind=kind, **fields,
    )  # fmt: skip
    store = ledger()
    store.propose(approval)
    store.close()
    return approval.id


# -- the commands ------------------------------------------------------------------------------------


def guarded(store, effects):
    contract = Contract.from_schema(
        "pay", ARGUMENTS, output_schema={}, approval=True, handler=lambda **given: effects.append(given) or {}
    )
    return Guard([contract], store=store)


@pytest.mark.parametrize(("word", "status", "runs"), [("approve", "ok", 1), ("deny", "refused", 0)])
def test_an_answer_from_the_shell_decides_the_call(shell, ledger, word, status, runs):
    """The question is listed and shown; the same call then runs or is refused; an edited one asks anew."""
    effects = []
    guard = guarded(ledger(), effects)
    call = ToolCall("c1", "pay", {"to": "ann"})
    with guard.run("r1") as run:
        pending = run.call(call)
        (listed,) = json_lines(shell("approvals", "list", "--json"))
        assert (listed["id"], listed["tool"], listed["arguments"]) == (pending.approval, "pay", {"to": "ann"})
        assert '"ann"' in shell("approvals", "show", pending.approval[:6]).stdout
        done = shell("approvals", word, pending.approval[:9], "--by", "bob", "--reason", "because", "--json")
        assert (json_lines(done)[0]["by"], json_lines(done)[0]["reason"]) == ("bob", "because")
        assert run.call(call).status == status
        assert run.call(ToolCall("c2", "pay", {"to": "eve"})).status == "pending"
    guard.close()
    assert len(effects) == runs
    assert shell("approvals", word, pending.approval, "--by", "bob").returncode == 2
    assert [one["status"] for one in json_lines(shell("approvals", "list", "--all", "--json"))] == [
        {"approve": "approved", "deny": "denied"}[word], "waiting",
    ]  # fmt: skip


def test_an_answer_without_a_reason_ends_with_who_gave_it(shell, ledger):
    """No colon announces a reason that is not there."""
    for number, words in enumerate([(), ("--reason", "checked")]):
        ident = asked(ledger, number)
        shell("approvals", "approve", ident, "--by", "bob", *words)
        (line,) = [line for line in shell("approvals", "show", ident).stdout.splitlines() if "answered" in line]
        assert line.endswith("by bob" + ": checked" * number)


def test_what_has_expired_cannot_be_answered(shell, ledger):
    """It is no longer listed as waiting, and a late yes is refused."""
    late = asked(ledger, expires=10.0, at=time.time() - 20.0)
    assert json_lines(shell("approvals", "list", "--json")) == []
    done = shell("approvals", "approve", late, "--by", "bob")
    assert done.returncode == 2
    assert "expired" in done.stderr


def test_waiting_ends_with_the_answer(shell, ledger):
    """Wait is 0 for a yes, 1 for a no, for an expiry and for a time that is over."""
    yes, no, never, late = (asked(ledger, number) for number in (1, 2, 3, 4))
    shell("approvals", "deny", no, "--by", "bob")
    assert shell("approvals", "wait", no).returncode == 1
    assert shell("approvals", "wait", never, "--timeout", "0.2s").stdout == f"{never} is waiting\n"
    assert shell("approvals", "wait", asked(ledger, 5, expires=0.4), "--json").returncode == 1
    command = [sys.executable, "-m", "pokayoke.cli", "approvals", "wait"]
    with (
        subprocess.Popen([*command, yes], cwd=shell.folder) as waiting,
        subprocess.Popen([*command, late, "--timeout", "1h"], cwd=shell.folder) as other,
    ):
        time.sleep(0.5)
        assert (waiting.poll(), other.poll()) == (None, None)
        shell("approvals", "approve", yes, "--by", "bob")
        shell("approvals", "deny", late, "--by", "bob")
        assert (waiting.wait(30), other.wait(30)) == (0, 1)


@pytest.mark.parametrize(
    "words",
    [
        ("show", "ap-"), ("show", ""), ("show", "zz"), ("approve", "ap-000000000001"), ("approve", "ap-", "--by", "a"),
        ("approve", "ap-000000000001", "--by", " "), ("wait", "nope"), ("wait", "ap-000000000001", "--timeout", "soon"),
        ("serve", "--listen", "8787"), ("serve", "--listen", "host:port"), ("serve", "--listen", "127.0.0.1:99999"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_exit_code_2(shell, ledger, words):
    """No such question, two that fit, nobody named, a wrong time or address: a sentence on stderr."""
    asked(ledger, 1)
    asked(ledger, 2)
    done = shell("approvals", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_a_question_is_not_answered_by_a_slip(shell, ledger):
    """Too little of an id shows a question and answers none."""
    waits = asked(ledger, 1)
    assert shell("approvals", "show", "ap-").returncode == 0
    for word, start in itertools.product(("approve", "deny"), ("ap-", waits[:8])):
        done = shell("approvals", word, start, "--by", "bob")
        assert (done.returncode, done.stdout) == (2, "")
        assert "at least 6 digits" in done.stderr
    assert shell("approvals", "approve", waits[:9], "--by", "bob").returncode == 0


def test_an_address_that_is_taken_is_named(shell, ledger):
    """Who starts a second server reads which address the first one has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = shell("approvals", "serve", "--listen", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot listen on {address}" in done.stderr


def test_the_server_does_not_start_without_a_secret(shell, ledger, monkeypatch):
    """No secret, no server: nothing is ever taken unsigned."""
    monkeypatch.delenv(SECRET)
    done = shell("approvals", "serve", "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert SECRET in done.stderr


def test_the_server_says_where_it_is_while_it_runs(shell, ledger):
    """Who starts the server on any free port, and reads its output from a pipe, learns which one that is."""
    del ledger
    command = [sys.executable, "-m", "pokayoke.cli", "approvals", "serve", "--listen", "127.0.0.1:0"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, cwd=shell.folder, env=buffered, stdout=subprocess.PIPE) as server:
        try:
            readable, _, _ = select.select([server.stdout], [], [], 30)
            assert readable
            assert server.stdout.readline().startswith(b"http://127.0.0.1:")
        finally:
            server.kill()


def test_a_second_person_has_to_approve(shell, ledger):
    """The first yes is shown and waits, the same person again is refused, and the second one decides."""
    one = asked(ledger, approvers=2)
    first = shell("approvals", "approve", one, "--by", "ann", "--reason", "fine")
    assert (first.returncode, first.stdout) == (0, f"{one} is approved by ann, and waits for a second person\n")
    shown = shell("approvals", "show", one).stdout
    assert "two different people" in shown
    assert "by ann: fine" in shown
    again = shell("approvals", "approve", one, "--by", "Ann")
    assert (again.returncode, "a second person" in again.stderr) == (2, True)
    assert "is approved by bob" in shell("approvals", "approve", one, "--by", "bob").stdout


# -- the server --------------------------------------------------------------------------------------


class Client:
    """Sends requests to a server of a store, signed as told."""

    def __init__(self, server):
        self.port = server.getsockname()[1]

    def __call__(self, path, body=b"", method=None, *, secret=KEY, at=None, headers=None, about=None):
        method = method or ("POST" if body else "GET")
        if not isinstance(body, bytes):
            body = json.dumps({"id": about or path.rpartition("/")[2]} | body).encode()
        stamps = sign((secret,), "msg-1", body, time.time() if at is None else at)
        return self.send(method, path, body, {**stamps, **(headers or {})})

    def send(self, method, path, body=b"", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body or None, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def raw(self, data):
        """The first line of what is answered to raw bytes; "" if the connection is closed without a word."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as conn:
            conn.sendall(data)
            conn.shutdown(socket.SHUT_WR)
            return conn.makefile("rb").readline().decode()


@pytest.fixture
def client(ledger):
    """A server over the ledger, and somebody who talks to it."""
    store = ledger()
    ready = threading.Event()
    endpoint = SignedApprovals(Approvals(store), (KEY,), build_redactor(load_policy(None).trace), print_message)
    with listen_on("127.0.0.1:0", "--listen") as listening:
        server = build_server(endpoint, ready=ready.set)
        thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
        thread.start()
        assert ready.wait(30)
        yield Client(listening)
        server.should_exit = True
        thread.join(30)
    store.close()


YES = {"decision": "approve", "by": "bob", "reason": "ok"}


def status_of(ledger, approval_id):
    store = ledger()
    found = next(one for one in store.approvals() if one.id == approval_id)
    store.close()
    return found.status, found.by


def test_questions_go_out_redacted_and_answers_come_in(client, ledger):
    """A signed GET lists what waits without secrets; a signed POST decides; the same again is harmless."""
    yes, no = asked(ledger, 1), asked(ledger, 2)
    status, told = client("/approvals")
    assert status == 200
    assert [one["id"] for one in told] == [yes, no]
    assert told[0]["arguments"] == {"to": "ann", "password": "[redacted]"}
    for _ in range(2):
        assert client(f"/approvals/{yes}", YES) == (200, {"id": yes, "status": "approved", "by": "bob"})
    assert client(f"/approvals/{no}", {"decision": "deny", "by": "bob"})[0] == 200
    assert client(f"/approvals/{no}", YES)[0] == 409
    assert (status_of(ledger, yes), status_of(ledger, no)) == (("approved", "bob"), ("denied", "bob"))
    assert client("/approvals") == (200, [])
    store = ledger()
    assert [entry.kind for entry in store.audit()] == ["approved", "denied"]
    store.close()


def test_what_the_contract_marks_goes_out_redacted_too(client, ledger):
    """The marks stay with the question: who lists it needs no contract."""
    asked(ledger, marks=("to",))
    assert client("/approvals")[1][0]["arguments"] == {"to": "[redacted]", "password": "[redacted]"}


FORGED = {
    "another secret": {"secret": KEY + b"x"},
    "too old": {"at": time.time() - 301},
    "from the future": {"at": time.time() + 900},
    "no signature": {"headers": {SIGNATURE: ""}},
    "a signature that is no text": {"headers": {SIGNATURE: "v1,\xff\xfe"}},
    "another time": {"headers": {TIMESTAMP: str(int(time.time()) + 1)}},
    "no time": {"headers": {TIMESTAMP: ""}},
    "another id": {"headers": {ID: "msg-2"}},
}


@pytest.mark.parametrize("how", FORGED)
def test_only_what_is_signed_now_and_for_this_question_counts(client, ledger, how):
    """A wrong secret, time, path or signature is 401 for both directions, and nothing is decided or shown."""
    one = asked(ledger, 1)
    assert client(f"/approvals/{one}", YES, **FORGED[how])[0] == 401
    assert client("/approvals", **FORGED[how]) == (
        401,
        {"error": "the signature does not hold: see the guide on approvals for what is signed"},
    )
    assert status_of(ledger, one) == ("waiting", None)


def test_two_people_answer_over_http(client, ledger):
    """The first signed yes waits, the same again is harmless and no second one, and another person decides."""
    one = asked(ledger, 1, approvers=2)
    for _ in range(2):
        assert client(f"/approvals/{one}", YES) == (200, {"id": one, "status": "waiting", "by": None})
    assert [(found["approvers"], found["approved_by"]) for found in client("/approvals")[1]] == [(2, "bob")]
    assert client(f"/approvals/{one}", YES | {"by": "ann"}) == (200, {"id": one, "status": "approved", "by": "ann"})


def test_a_yes_to_one_question_is_none_to_another(client, ledger):
    """A signed answer that is sent to the path of another question is refused, and decides neither."""
    one, other = asked(ledger, 1), asked(ledger, 2)
    assert client(f"/approvals/{one}", YES, about=other)[0] == 400
    assert (status_of(ledger, one)[0], status_of(ledger, other)[0]) == ("waiting", "waiting")


def test_an_answer_from_before_the_question_is_not_about_it(client, ledger):
    """A question that is asked again has its old id: a yes that was kept from then is refused."""
    kept = time.time() - 60
    one = asked(ledger, 1)
    assert client(f"/approvals/{one}", YES, at=kept)[0] == 409
    assert status_of(ledger, one) == ("waiting", None)
    assert client(f"/approvals/{one}", YES)[0] == 200


def test_an_expired_question_takes_no_answer(client, ledger):
    """409, and the question stays expired."""
    one = asked(ledger, 1, expires=0.0)
    assert client(f"/approvals/{one}", YES)[0] == 409


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/approvals/ap-ffffffffffff", 404), ("/approvals/../approvals/ap-000000000001", 404),
        ("/approvals//ap-000000000001", 404), ("/approvals/ap-000000000001/", 404), ("/approvals/ap-000000000001?x=1", 404),
        ("/approvals/%61p-000000000001", 404), ("/approvals/AP-000000000001", 404), ("/", 404), ("/approvals", 404),
        ("//127.0.0.1/approvals/ap-000000000001", 404), ("http://127.0.0.1/approvals/ap-000000000001", 404),
    ],
)  # fmt: skip
def test_there_is_one_way_to_write_a_path(client, ledger, path, status):
    """Dots, doubled slashes, escapes, queries and whole URLs lead nowhere, though they are signed."""
    one = asked(ledger, 1)
    assert client(path, YES)[0] in (status, 401)
    assert client("/approvals/ap-000000000001", b"", "GET")[0] == 404
    assert status_of(ledger, one) == ("waiting", None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400), (b"[]", 400), ({"decision": "approve"}, 400), ({"decision": "yes", "by": "bob"}, 400),
        ({"decision": ["approve"], "by": "bob"}, 400), ({"decision": "approve", "by": ""}, 400),
        ({"decision": "approve", "by": "bob", "reason": 1}, 400), ({"decision": "approve", "by": "bob", "x": 1}, 400),
        ({"id": None, "decision": "approve", "by": "bob"}, 400), (b'{"decision": "approve", "by": "bob"}', 400),
        (b'{"id": "ap-000000000001", "decision": "deny", "decision": "approve", "by": "bob"}', 400), (b"\xff", 400),
        (b"x" * 16_385, 413),
    ],
)  # fmt: skip
def test_a_decision_is_read_strictly(client, ledger, body, status):
    """No JSON, an unknown word, two decisions, a missing name, too much: refused, nothing decided."""
    one = asked(ledger, 1)
    assert client(f"/approvals/{one}", body)[0] == status
    assert status_of(ledger, one) == ("waiting", None)


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"POST /approvals/ap-1 HTTP/1.1\r\nHost: x\r\n\r\n", "411"),
        (b"POST /approvals/ap-1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "400"),
        (b"POST /approvals/ap-1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "411"),
        (b"POST /approvals/ap-1 HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"),
        (b"POST /approvals/ap-1 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", "413"),
        (b"POST /approvals/ap-1 HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nshort", ""),
        (b"DELETE /approvals/ap-1 HTTP/1.1\r\nHost: x\r\n\r\n", "401"),
        (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", "401"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", "400"),
        (b"", ""),
    ],
)  # fmt: skip
def test_what_is_no_request_is_answered_in_order(client, ledger, data, answer, capfd):
    """No or two lengths, chunks, another protocol: an error status, no traceback, no raw byte on the terminal."""
    assert answer in client.raw(data)
    told = capfd.readouterr()
    assert "Traceback" not in told.err
    assert "\x16" not in told.err


def test_a_silent_client_does_not_hold_up_the_others(client, ledger):
    """Forty connections that say nothing or stop in the middle, and the next one is served at once."""
    silent = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(40)]
    for one in silent[:20]:
        one.sendall(b"POST /approvals/ap-000000000001 HTTP/1.1\r\nHost: x\r\nContent-Le")
    assert client("/approvals")[0] == 200
    for one in silent:
        one.close()
    assert client("/approvals")[0] == 200


def test_the_command_serves_until_it_is_stopped(shell, ledger):
    """`approvals serve` says its address, answers, and ends cleanly with Ctrl-C."""
    one = asked(ledger, 1)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "pokayoke.cli", "approvals", "serve", "--listen", "127.0.0.1:0"],
        cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - no lock is taken
    )  # fmt: skip
    try:
        address = process.stdout.readline()
        port = int(address.rsplit(":", 1)[1].split("/")[0])
        client = Client(type("Server", (), {"getsockname": lambda _: ("127.0.0.1", port)})())
        assert client(f"/approvals/{one}", YES)[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert f"POST /approvals/{one}" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()
