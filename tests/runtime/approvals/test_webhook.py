"""Announcing questions: who is told, what they see, and that no call ever waits for it."""

import contextlib
import http.server
import json
import os
import socket
import ssl
import threading
import time

import msgspec
import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.policy import TracePolicy, WebhookPolicy
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.approvals.signature import SECRET, SIGNATURE, TIMESTAMP, sign, verify
from pokayoke.runtime.approvals.webhook import ConfiguredWebhook, Webhook
from pokayoke.runtime.config.config import load_policy
from pokayoke.runtime.threads.clock import SystemClock
from pokayoke.runtime.trace.trace import Trace

pytestmark = pytest.mark.xdist_group("timing")  # its deadlines are short

KEY = b"0123456789abcdef"
QUESTION = Approval(
    "ap-1", "f", "pay", "pay@1", {"to": "ann", "password": "hunter2", "iban": "DE00"}, "r1", time.time(), time.time() + 86_400
)  # fmt: skip


def question(number):
    return Approval(f"ap-{number}", "f", "pay", "pay@1", {}, "r1", time.time(), time.time() + 86_400)


class Receiver:
    """An HTTP server that keeps what it was sent and answers with the given statuses, the last one for ever."""

    def __init__(self, *statuses):
        self.got = []
        self.arrived = threading.Semaphore(0)
        there, waiting = self, list(statuses)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                there.got.append((self.path, dict(self.headers), body))
                self.send_response(waiting.pop(0) if len(waiting) > 1 else waiting[0])
                self.send_header("Location", f"http://127.0.0.1:{there.port}/elsewhere")
                self.end_headers()
                there.arrived.release()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hook?team=a"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    made = []

    def make(*statuses):
        made.append(Receiver(*statuses))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def announcing(monkeypatch):
    """Build a webhook, and the events its trace was given."""
    monkeypatch.setenv(SECRET, KEY.decode())
    made = []

    def build(url, **options):
        trace = Trace(TracePolicy(redact_fields=("nickname",)))
        recorded, record = [], trace.record
        trace.record = lambda event: (recorded.append(dict(event)), record(event))[1]
        hook = Webhook(WebhookPolicy(url=url, timeout_seconds=options.pop("timeout", 2.0)), trace, **options)
        made.append((hook, trace))
        return hook, recorded

    yield build
    for hook, trace in made:
        hook.close(0)
        trace.close()


def until(condition, seconds=20.0):
    """Wait for another thread; False if it takes too long."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_a_question_is_announced_signed_and_redacted(receiver, announcing):
    """The receiver gets id, tool, run and times, the arguments without secrets, and a signature it can verify."""
    there = receiver(200)
    hook, events = announcing(there.url)
    hook.enqueue_approval(msgspec.structs.replace(QUESTION, marks=("iban",)))
    assert there.arrived.acquire(timeout=20)
    path, headers, body = there.got[0]
    told = json.loads(body)
    assert told == {
        "id": "ap-1", "kind": "call", "status": "waiting", "tool": "pay", "contract": "pay@1", "run": "r1",
        "arguments": {"to": "ann", "password": "[redacted]", "iban": "[redacted]"},
        "asked": QUESTION.asked_at, "expires": QUESTION.expires_at, "why": [],
    }  # fmt: skip
    assert path == "/hook?team=a"
    assert verify(KEY, "POST", path, body, headers=headers, now=time.time()) is not None
    assert verify(KEY, "POST", "/hook", body, headers=headers, now=time.time()) is None
    assert events == []


def test_a_question_is_announced_once_as_long_as_it_is_open(receiver, announcing):
    """The same question again, as every repeated call finds it, is no news; another one is."""
    there = receiver(204)
    hook, _ = announcing(there.url)
    for _ in range(5):
        hook.enqueue_approval(QUESTION)
    hook.enqueue_approval(question(2))
    hook.close(20)
    assert [json.loads(body)["id"] for _, _, body in there.got] == ["ap-1", "ap-2"]


@pytest.mark.parametrize(("statuses", "sent", "failed"), [
    ((500, 503, 200), 3, False), ((429, 200), 2, False), ((500,), 4, True), ((403,), 1, True), ((302,), 1, True),
])  # fmt: skip
def test_what_may_go_away_is_tried_again(receiver, announcing, statuses, sent, failed):
    """Server errors are tried four times, a refusal and a redirect once; a failure is an event of the trace."""
    there = receiver(*statuses)
    hook, events = announcing(there.url, pauses=(0.01, 0.01, 0.01))
    hook.enqueue_approval(QUESTION)
    assert until(lambda: len(there.got) == sent and (bool(events) or not failed))
    hook.close(20)
    assert len(there.got) == sent
    assert [(e["event"], e["ok"], e["approval"]) for e in events] == [("webhook", False, "ap-1")] * failed


@pytest.mark.parametrize("kind", ["closed", "silent"])
def test_a_dead_receiver_holds_nobody_up(announcing, kind):
    """A port nobody listens on, or one that never answers: `tell` is back at once, the trace says what happened."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        if kind == "silent":
            dead.listen()
        hook, events = announcing(f"http://127.0.0.1:{dead.getsockname()[1]}/", pauses=(0.01,), timeout=0.2)
        begun = time.monotonic()
        for number in range(100):
            hook.enqueue_approval(question(number))
        assert time.monotonic() - begun < 5.0
        assert until(lambda: bool(events))
        assert events[0]["reason"] in ("ConnectionRefusedError", "TimeoutError")


def test_what_is_left_when_it_closes_is_in_the_trace(announcing):
    """Nobody answers: the question under way and those behind it are each told once, before `close` is back."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hook, events = announcing(f"http://127.0.0.1:{silent.getsockname()[1]}/", pauses=(), timeout=30.0)
        for number in range(3):
            hook.enqueue_approval(question(number))
        with silent.accept()[0]:
            hook.close(0.05)
            told = [(event["approval"], event["ok"], event["reason"]) for event in events]
        assert told == [
            ("ap-0", False, "closed before it was answered"),
            ("ap-1", False, "closed before it was announced"),
            ("ap-2", False, "closed before it was announced"),
        ]
        hook._thread.join(20)  # the connection is gone now, and that is no further news
        assert len(events) == 3


def test_what_is_left_of_a_former_policy_is_in_the_trace(receiver, monkeypatch):
    """A receiver that was exchanged while it did not answer: closing tells of its questions, too."""
    monkeypatch.setenv(SECRET, KEY.decode())
    trace, events = Trace(TracePolicy()), []
    trace.record = events.append
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        former = WebhookPolicy(url=f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_seconds=30.0)
        announcer = ConfiguredWebhook(former, trace, SystemClock())
        announcer.enqueue_approval(question(1))
        with silent.accept()[0]:
            announcer.prepare_swap(WebhookPolicy(url=receiver(200).url))()
            announcer.close(0.05)
            assert [event["approval"] for event in events] == ["ap-1"]
    trace.close()


def test_an_answer_byte_by_byte_holds_up_no_other_question(announcing):
    """An attempt ends after its timeout, however often the receiver says a little more."""
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen()
        hook, events = announcing(f"http://127.0.0.1:{slow.getsockname()[1]}/", pauses=(), timeout=0.3)
        for number in range(2):
            hook.enqueue_approval(question(number))
        for _ in range(2):
            with slow.accept()[0] as connection, contextlib.suppress(OSError):
                while True:  # until it is cut
                    connection.sendall(b"H")
                    time.sleep(0.01)
        assert until(lambda: len(events) == 2)
        assert {event["reason"] for event in events} == {"TimeoutError"}


class SteppedClock(SystemClock):
    """Its seconds pass only when it is told so."""

    passed = 0.0

    def monotonic(self):
        return self.passed


def test_addresses_that_do_not_answer_share_one_timeout(announcing, monkeypatch):
    """A host with three dead addresses takes no longer than one with a single one, and each of them is tried."""
    clock, tried = SteppedClock(), []

    def connect(connection, address):
        tried.append(address)
        clock.passed += connection.gettimeout()
        raise TimeoutError

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", 1)) for last in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found)
    monkeypatch.setattr(socket.socket, "connect", connect)
    hook, events = announcing("http://localhost:1/", pauses=(), timeout=3.0, clock=clock)
    hook.enqueue_approval(QUESTION)
    assert until(lambda: bool(events))
    assert [address for address, _ in tried] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert clock.passed == pytest.approx(3.0)
    assert events[0]["reason"] == "TimeoutError"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://[fd00::12]/x", ("fd00::12", 443)),
        ("http://[::1]/x", ("::1", 80)),
        ("http://[::1]:8080/x", ("::1", 8080)),
        ("https://example.org/x", ("example.org", 443)),
    ],
)
def test_a_receiver_is_found_by_whatever_address(announcing, monkeypatch, url, asked):
    """The last group of an IPv6 address is no port."""
    found = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found.append(given) or [])
    webhook, _ = announcing(url, pauses=())
    webhook.enqueue_approval(question(1))
    assert until(lambda: found == [asked])


def test_a_handshake_has_what_connecting_has_left(announcing, monkeypatch):
    """Two of three seconds went by before the receiver was reached: the third is all the handshake gets."""
    clock, given, connect = SteppedClock(), [], socket.socket.connect

    def slowly(connection, address):
        clock.passed += 2.0
        connect(connection, address)

    def no_handshake(connection, *args):
        given.append(connection.gettimeout())
        raise TimeoutError

    monkeypatch.setattr(socket.socket, "connect", slowly)
    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", no_handshake)
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        hook, events = announcing(f"https://127.0.0.1:{there.getsockname()[1]}/", pauses=(), timeout=3.0, clock=clock)
        hook.enqueue_approval(QUESTION)
        assert until(lambda: bool(events))
    assert given == [pytest.approx(1.0)]


def test_half_an_answer_is_no_receipt(announcing):
    """A status that goes on until the attempt is cut may be read as a good one; the trace says that it was none."""
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen()
        hook, events = announcing(f"http://127.0.0.1:{slow.getsockname()[1]}/", pauses=(), timeout=0.3)
        hook.enqueue_approval(QUESTION)
        with slow.accept()[0] as connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 O")
            while True:  # until it is cut
                connection.sendall(b"K")
                time.sleep(0.01)
        assert until(lambda: bool(events))
        assert events[0]["reason"] == "TimeoutError"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_announces_its_own_questions(receiver, announcing):
    """The child has no thread of its parent; it starts one."""
    there = receiver(200)
    hook, _ = announcing(there.url)
    hook.enqueue_approval(QUESTION)
    assert there.arrived.acquire(timeout=20)
    child = os.fork()
    if not child:
        hook.enqueue_approval(Approval("ap-child", "g", "pay", "pay@1", {}, "r1", time.time(), time.time() + 86_400))
        hook.close(20)
        os._exit(0)
    os.waitpid(child, 0)
    assert [json.loads(body)["id"] for _, _, body in there.got] == ["ap-1", "ap-child"]


@pytest.mark.parametrize("url", [
    "http://evil.example/", "http://127.0.0.1@evil.example/", "http://127.0.0.1:80@evil.example/", "http://127.0.0.1.evil/",
    "https://user:password@host/", "ftp://host/", "https://host\n", "", "https://", "//host",
])  # fmt: skip
def test_questions_go_to_https_or_stay_on_this_machine(monkeypatch, url):
    """Any other URL is a mistake, in a file and in code, and its message does not repeat a password."""
    monkeypatch.setenv(SECRET, KEY.decode())
    with pytest.raises(ConfigurationError, match=r"approvals\.webhook\.url") as found:
        load_policy({"approvals": {"webhook": {"url": url}}})
    assert "password@" not in str(found.value)
    with pytest.raises(ConfigurationError, match=r"approvals\.webhook\.url is neither"):
        Webhook(WebhookPolicy(url=url), Trace(TracePolicy()))


@pytest.mark.parametrize("secret", [None, "", "short"])
def test_without_a_secret_nothing_is_announced_unsigned(monkeypatch, secret):
    """A missing or guessable secret is a configuration error that says how to make one."""
    monkeypatch.delenv(SECRET, raising=False)
    if secret is not None:
        monkeypatch.setenv(SECRET, secret)
    with pytest.raises(ConfigurationError, match="openssl rand"):
        Webhook(WebhookPolicy(url="https://host/"), Trace(TracePolicy()))


@pytest.mark.parametrize(
    "change",
    [
        {"secret": KEY + b"x"}, {"method": "GET"}, {"path": "/approvals/ap-2"}, {"body": b"{}"}, {"now": 1_301.0},
        {"now": 699.0}, {"headers": {}}, {"headers": {TIMESTAMP: "1000"}}, {"headers": {TIMESTAMP: "\ud800", SIGNATURE: "v1=\xff"}},
    ],
)  # fmt: skip
def test_a_signature_holds_for_one_message_only(change):
    """Another secret, method, path, body, time, or no signature at all: not signed."""
    message = {"secret": KEY, "method": "POST", "path": "/approvals/ap-1", "body": b'{"decision":"approve"}'}
    message |= {"headers": sign(*message.values(), 1_000.0), "now": 1_299.0}

    def verified(secret, method, path, body, **rest):
        return verify(secret, method, path, body, **rest)

    assert verified(**message) == 1_000.0
    assert verified(**(message | change)) is None


def test_a_changed_policy_announces_elsewhere(receiver, monkeypatch):
    """Nothing without a URL, then to the one, then to the other; a policy that cannot be kept changes nothing."""
    monkeypatch.setenv(SECRET, KEY.decode())
    trace, first, second = Trace(TracePolicy()), receiver(200), receiver(200)
    announcer = ConfiguredWebhook(WebhookPolicy(), trace, SystemClock())
    announcer.enqueue_approval(QUESTION)
    for number, there in enumerate((first, second)):
        announcer.prepare_swap(WebhookPolicy(url=there.url))()
        announcer.enqueue_approval(question(number))
        assert there.arrived.acquire(timeout=20)
    with pytest.raises(ConfigurationError):
        announcer.prepare_swap(WebhookPolicy(url="http://elsewhere.example/"))()
    announcer.enqueue_approval(question(5))
    assert second.arrived.acquire(timeout=20)
    announcer.close(20)
    announcer.enqueue_approval(question(6))
    assert [[json.loads(body)["id"] for _, _, body in one.got] for one in (first, second)] == [
        ["ap-0"],
        ["ap-1", "ap-5"],
    ]
    trace.close()


ANY = {"type": "object"}


def test_a_guard_announces_what_waits_and_nothing_else(receiver, monkeypatch, driver):
    """New questions and reviews, each once, redacted by the contract's marks; not what a callback answers at once."""
    monkeypatch.setenv(SECRET, KEY.decode())
    there = receiver(200)
    pay = Contract.from_schema(
        "pay", ANY, output_schema={}, approval=True, redact=("iban",), handler=lambda **given: {}
    )
    look = Contract.from_schema("look", ANY, output_schema={"required": ["ok"]}, effect="read", handler=lambda **_: {})
    config = {"approvals": {"webhook": {"url": there.url}}, "safe_mode": {"on_invalid_output": "human_review"}}
    guard = Guard([pay, look], config=config)
    run = guard.run("r1")
    for call in [{"to": "ann", "iban": "DE1"}, {"to": "ann", "iban": "DE1"}, {"to": "bob"}]:
        assert driver.call(run, ToolCall("c", "pay", call)).status == "pending"
    driver.call(run, ToolCall("c", "look", {}))
    guard.close()
    guard = Guard([pay], config=config, on_ask=lambda approval: True if approval.arguments["to"] == "eve" else None)
    run = guard.run("r2")
    assert driver.call(run, ToolCall("c", "pay", {"to": "eve"})).status == "ok"
    assert driver.call(run, ToolCall("c", "pay", {"to": "dan"})).status == "pending"
    guard.close()
    told = [json.loads(body) for _, _, body in there.got]
    assert [(one["kind"], one["tool"], one["run"]) for one in told] == [
        ("call", "pay", "r1"), ("call", "pay", "r1"), ("output", "look", "r1"), ("call", "pay", "r2"),
    ]  # fmt: skip
    assert [told[0]["arguments"], told[1]["arguments"], told[3]["arguments"]] == [
        {"to": "ann", "iban": "[redacted]"}, {"to": "bob"}, {"to": "dan"},
    ]  # fmt: skip


def test_a_dead_receiver_delays_no_call(monkeypatch, driver):
    """Nobody listens: the call is pending at once, and closing does not wait for the retries."""
    monkeypatch.setenv(SECRET, KEY.decode())
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{dead.getsockname()[1]}/"
        guard = Guard(
            [Contract.from_schema("pay", ANY, output_schema={}, approval=True, handler=lambda **given: {})],
            config={"approvals": {"webhook": {"url": url}}},
        )
        begun = time.monotonic()
        assert driver.call(guard.run("r1"), ToolCall("c", "pay", {})).status == "pending"
        guard.close()
        assert time.monotonic() - begun < 20.0


def test_without_a_thread_a_question_waits_for_the_next_one(receiver, announcing, monkeypatch):
    """Telling never raises; with the next question both are announced."""
    start = threading.Thread.start

    def refused(thread):
        raise RuntimeError("can't start new thread")

    there = receiver(200)
    webhook, _ = announcing(there.url)
    monkeypatch.setattr(threading.Thread, "start", refused)
    webhook.enqueue_approval(question(1))
    monkeypatch.setattr(threading.Thread, "start", start)
    webhook.enqueue_approval(question(2))
    assert all(there.arrived.acquire(timeout=10) for _ in range(2))
