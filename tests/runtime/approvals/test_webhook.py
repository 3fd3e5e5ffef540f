"""Announcing questions: who is told, what they see, and that no call ever waits for it."""

import base64
import contextlib
import http.server
import json
import os
import socket
import sys
import threading
import time
from datetime import UTC, datetime

import msgspec
import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.policy import TracePolicy, WebhookPolicy
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.approvals.signature import (
    ID,
    SECRET,
    SIGNATURE,
    TIMESTAMP,
    secrets_from_environment,
    sign,
    verify,
)
from pokayoke.runtime.approvals.webhook import ConfiguredWebhook, Webhook
from pokayoke.runtime.config.config import load_policy
from pokayoke.runtime.threads.clock import SystemClock
from pokayoke.runtime.trace.trace import Trace

pytestmark = pytest.mark.xdist_group("timing")  # its deadlines are short

KEY = bytes(range(32))
WHSEC = "whsec_" + base64.b64encode(KEY).decode()
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
    monkeypatch.setenv(SECRET, WHSEC)
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
    event = json.loads(body)
    assert (event["type"], event["timestamp"][-1]) == ("approval.asked", "Z")
    assert event["data"] == {
        "id": "ap-1", "kind": "call", "status": "waiting", "tool": "pay", "contract": "pay@1", "run": "r1",
        "arguments": {"to": "ann", "password": "[redacted]", "iban": "[redacted]"},
        "asked": QUESTION.asked_at, "expires": QUESTION.expires_at, "why": [], "approvers": 1, "approved_by": None,
        "limits": [], "wanted": "",
    }  # fmt: skip
    assert path == "/hook?team=a"
    assert headers[ID] == f"ap-1-{int(QUESTION.asked_at)}"
    assert standardwebhooks.Webhook(WHSEC).verify(body, headers) == event
    assert events == []


def test_a_question_is_announced_once_as_long_as_it_is_open(receiver, announcing):
    """The same question again, as every repeated call finds it, is no news; another one is."""
    there = receiver(204)
    hook, _ = announcing(there.url)
    for _ in range(5):
        hook.enqueue_approval(QUESTION)
    hook.enqueue_approval(question(2))
    hook.close(20)
    assert [json.loads(body)["data"]["id"] for _, _, body in there.got] == ["ap-1", "ap-2"]


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
        assert events[0]["reason"].split(":")[0] in ("ConnectError", "ReadTimeout")


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
    monkeypatch.setenv(SECRET, WHSEC)
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
        assert {event["reason"].split(":")[0] for event in events} == {"ReadTimeout"}


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://localhost/x", ("localhost", 80)),
        ("http://localhost:8080/x", ("localhost", 8080)),
        ("https://example.org/x", ("example.org", 443)),
    ],
)
def test_a_receiver_is_found_by_its_name_and_port(announcing, monkeypatch, url, asked):
    """The port is the URL's own, or that of its scheme; a name without an address is told in the trace."""
    found = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found.append(given) or [])
    webhook, events = announcing(url, pauses=())
    webhook.enqueue_approval(question(1))
    assert until(lambda: bool(events))
    assert found == [asked]
    assert events[0]["reason"].startswith("ConnectError")


@pytest.mark.parametrize("url", ["http://[::1]:{}/x", "http://127.0.0.1:{}/x"])
def test_a_receiver_is_found_by_its_address(announcing, url):
    """The last group of an IPv6 address is no port."""
    kind = socket.AF_INET6 if "[" in url else socket.AF_INET
    try:
        there = socket.create_server(("::1" if "[" in url else "127.0.0.1", 0), family=kind)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with there:
        webhook, _ = announcing(url.format(there.getsockname()[1]), pauses=())
        webhook.enqueue_approval(question(1))
        with there.accept()[0] as connection:
            assert connection.recv(64).startswith(b"POST /x HTTP/1.1")
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")


def test_a_name_of_this_machine_that_leads_elsewhere_is_not_followed(announcing, monkeypatch):
    """Plain http is for this machine: a `localhost` that resolves to another address is refused, and the trace says so."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found)
    webhook, events = announcing("http://localhost/x", pauses=())
    webhook.enqueue_approval(question(1))
    assert until(lambda: bool(events))
    assert "10.0.0.7" in events[0]["reason"]


def test_proxies_of_the_environment_are_not_used(receiver, announcing, monkeypatch):
    """A question is no business of a proxy: it goes to the receiver itself."""
    there, proxy = receiver(200), receiver(200)
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    hook, _ = announcing(there.url)
    hook.enqueue_approval(QUESTION)
    assert there.arrived.acquire(timeout=20)
    assert (len(there.got), proxy.got) == (1, [])


def test_a_missing_client_names_the_install_command(monkeypatch):
    """A guard with a webhook and without the extra does not start, and says what to install."""
    monkeypatch.setenv(SECRET, WHSEC)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, "pokayoke.runtime.network.client", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'pokayoke\[urls\]'"):
        Webhook(WebhookPolicy(url="https://host.example/"), Trace(TracePolicy()))


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
        assert events[0]["reason"].startswith("ReadTimeout")


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
    assert [json.loads(body)["data"]["id"] for _, _, body in there.got] == ["ap-1", "ap-child"]


@pytest.mark.parametrize("url", [
    "http://evil.example/", "http://127.0.0.1@evil.example/", "http://127.0.0.1:80@evil.example/", "http://127.0.0.1.evil/",
    "https://user:password@host/", "ftp://host/", "https://host\n", "", "https://", "//host",
])  # fmt: skip
def test_questions_go_to_https_or_stay_on_this_machine(monkeypatch, url):
    """Any other URL is a mistake, in a file and in code, and its message does not repeat a password."""
    monkeypatch.setenv(SECRET, WHSEC)
    with pytest.raises(ConfigurationError, match=r"approvals\.webhook\.url") as found:
        load_policy({"approvals": {"webhook": {"url": url}}})
    assert "password@" not in str(found.value)
    with pytest.raises(ConfigurationError, match=r"approvals\.webhook\.url is neither"):
        Webhook(WebhookPolicy(url=url), Trace(TracePolicy()))


@pytest.mark.parametrize(
    "secret",
    [None, "", "short", "0" * 64, "whsec_", "whsec_!!!", "whsec_" + "AAAA" * 7, "whsec_" + "AAAA" * 22, f"{WHSEC} old"],
)
def test_without_a_secret_nothing_is_announced_unsigned(monkeypatch, secret):
    """A missing, guessable or misspelt secret is a configuration error that says how to make one, and does not show it."""
    monkeypatch.delenv(SECRET, raising=False)
    if secret is not None:
        monkeypatch.setenv(SECRET, secret)
    with pytest.raises(ConfigurationError, match="openssl rand") as found:
        Webhook(WebhookPolicy(url="https://host/"), Trace(TracePolicy()))
    assert WHSEC not in str(found.value)


VECTOR = {
    "body": b'{"test": 2432232314}',
    "headers": {
        ID: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        TIMESTAMP: "1614265330",
        SIGNATURE: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
}


def test_the_published_message_is_signed_and_verified(monkeypatch):
    """The reference message of the specification gets its published signature."""
    monkeypatch.setenv(SECRET, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    secrets = secrets_from_environment()
    assert sign(secrets, VECTOR["headers"][ID], VECTOR["body"], 1614265330.9) == VECTOR["headers"]
    assert verify(secrets, **VECTOR, now=1614265600.0) == 1614265330.0


@given(
    st.binary(min_size=24, max_size=64),
    st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True),
    st.text().map(str.encode),
)
def test_other_implementations_agree(key, message_id, body):
    """The specification's own library verifies what is signed here, and is verified here, whatever is signed."""
    other, now = standardwebhooks.Webhook(key), time.time()
    signed = sign((key,), message_id, body, now)
    other.verify(body, signed, json_parse=False)
    moment = datetime.fromtimestamp(int(now), UTC)
    theirs = other.sign(message_id, moment, body.decode())
    assert verify((key,), body, headers=signed | {SIGNATURE: f"v1a,x {theirs}"}, now=now) == float(int(now))


def test_secrets_are_exchanged_without_a_gap():
    """A message signed with the old and the new secret is accepted by those who have either."""
    old, new = KEY, KEY[::-1]
    both = sign((old, new), "m", b"{}", 1_000.0)
    assert len(both[SIGNATURE].split(" ")) == 2
    for known in ((old,), (new,), (new, old)):
        assert verify(known, b"{}", headers=both, now=1_000.0) == 1_000.0
    assert verify((old, new), b"{}", headers=sign((new,), "m", b"{}", 1_000.0), now=1_000.0) == 1_000.0


@pytest.mark.parametrize(
    "change",
    [
        {"secrets": (KEY + b"x",)}, {"secrets": ()}, {"body": b"{}"}, {"body": b""}, {"now": 1_301.0}, {"now": 699.0},
        {"headers": {}}, {"headers": {TIMESTAMP: "1000"}}, {"changed": {ID: "m2"}}, {"changed": {ID: ""}},
        {"changed": {TIMESTAMP: "1001"}}, {"changed": {TIMESTAMP: "9" * 5_000}}, {"changed": {TIMESTAMP: "\ud800"}},
        {"changed": {SIGNATURE: "v1,\xff"}}, {"changed": {SIGNATURE: "\ud800"}}, {"changed": {SIGNATURE: "v1," * 9_999}},
    ],
)  # fmt: skip
def test_a_signature_holds_for_one_message_only(change):
    """Another secret, id, body, time, or no signature at all: not signed."""
    secrets, body = (KEY,), b'{"decision":"approve"}'
    message = {"secrets": secrets, "body": body, "headers": sign(secrets, "m1", body, 1_000.0), "now": 1_299.0}
    forged = message | change
    forged["headers"] = forged["headers"] | forged.pop("changed", {})

    def verified(secrets, body, **rest):
        return verify(secrets, body, **rest)

    assert verified(**message) == 1_000.0
    assert verified(**forged) is None


def test_no_part_of_a_message_passes_for_another():
    """Id, time and body are joined by dots: an id that holds one could be read in two ways, and is never accepted."""
    signed = sign((KEY,), "m.1000", b"2.{}", 1_000.0)
    assert verify((KEY,), b"2.{}", headers=signed, now=1_000.0) is None


def test_a_changed_policy_announces_elsewhere(receiver, monkeypatch):
    """Nothing without a URL, then to the one, then to the other; a policy that cannot be kept changes nothing."""
    monkeypatch.setenv(SECRET, WHSEC)
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
    assert [[json.loads(body)["data"]["id"] for _, _, body in one.got] for one in (first, second)] == [
        ["ap-0"],
        ["ap-1", "ap-5"],
    ]
    trace.close()


ANY = {"type": "object"}


def test_a_guard_announces_what_waits_and_nothing_else(receiver, monkeypatch, driver):
    """New questions and reviews, each once, redacted by the contract's marks; not what a callback answers at once."""
    monkeypatch.setenv(SECRET, WHSEC)
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
    told = [json.loads(body)["data"] for _, _, body in there.got]
    assert [(one["kind"], one["tool"], one["run"]) for one in told] == [
        ("call", "pay", "r1"), ("call", "pay", "r1"), ("output", "look", "r1"), ("call", "pay", "r2"),
    ]  # fmt: skip
    assert [told[0]["arguments"], told[1]["arguments"], told[3]["arguments"]] == [
        {"to": "ann", "iban": "[redacted]"}, {"to": "bob"}, {"to": "dan"},
    ]  # fmt: skip


def test_a_dead_receiver_delays_no_call(monkeypatch, driver):
    """Nobody listens: the call is pending at once, and closing does not wait for the retries."""
    monkeypatch.setenv(SECRET, WHSEC)
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
