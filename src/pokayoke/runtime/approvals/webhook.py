"""Announces new questions to another program, off the path of the call that asked.

A slow, wrong or dead receiver costs no call anything: the question waits in the store, where `pokayoke approvals
list` finds it, and the trace records that it could not be announced.

In: questions.
Out: signed POST requests.
Never: an exception or a wait in a call, or an unredacted argument.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract.url_rule import DEFAULT_PORTS, UrlRule
from pokayoke.core.flow.questions import redact_question
from pokayoke.core.gate.urls import parse_url
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.policy import WEBHOOK_URL, WebhookPolicy
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.approvals.signature import secrets_from_environment, sign
from pokayoke.runtime.threads.clock import Clock, SystemClock
from pokayoke.runtime.threads.forks import on_fork
from pokayoke.runtime.threads.worker_pool import start_thread

if TYPE_CHECKING:
    import httpx2

_PAUSES: Final = (1.0, 5.0, 15.0)
"""Seconds between the attempts."""
_MOST_WAITING: Final = 1_000
_REMEMBERED: Final = 10_000
_GOOD, _TRY_AGAIN = range(200, 300), (408, 425, 429)
_SERVER_ERRORS: Final = 500
_REASON_CHARS: Final = 200
ASKED: Final = "approval.asked"
"""The type of the event that announces a question."""
_NETWORKS: Final = ("loopback", "private", "link_local", "cgnat", "reserved")
"""Kinds of addresses that an https receiver may have beside public ones: whoever writes the configuration decides."""


class _EventSink(Protocol):
    """The part of a trace that a webhook needs."""

    redactor: Redactor

    def record(self, event: dict[str, Any], /) -> object:
        """Record an event."""
        ...


class Webhook:
    """Announces questions to one receiver. Safe to share between threads; its thread starts with the first one.

    Args:
        policy: the receiver, and the seconds of an attempt, from the look-up of its name to its status line.
        trace: redacts the arguments, and records what could not be announced.
        clock: gives the time.
        pauses: seconds before each further attempt.

    Raises:
        ConfigurationError: there is no URL, it is neither https nor on this machine, there is no secret, or the HTTP
            client is not installed (a MissingExtraError).
    """

    def __init__(
        self,
        policy: WebhookPolicy,
        trace: _EventSink,
        *,
        clock: Clock | None = None,
        pauses: tuple[float, ...] = _PAUSES,
    ) -> None:
        if policy.url is None or not WEBHOOK_URL.fullmatch(policy.url):
            raise ConfigurationError(
                "approvals.webhook.url is neither https:// nor http:// to this machine, without a password"
            )
        self._url, self._secrets = policy.url, secrets_from_environment()
        self._client = _open_client(policy.url, policy.timeout_seconds)
        self._trace, self._pauses = trace, pauses
        self._clock: Clock = clock or SystemClock()
        self._told: OrderedDict[str, float] = OrderedDict()
        self._waiting: deque[Approval] = deque(maxlen=_MOST_WAITING)
        self._under_way: Approval | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        on_fork(self, Webhook.reset_after_fork)

    def enqueue_approval(self, approval: Approval) -> None:
        """Announce a question, once as long as it is open. Returns at once and never raises."""
        with self._lock:
            until = self._told.get(approval.id)
            if self._closed or (until is not None and self._clock.now() < until):
                return
            self._told[approval.id] = approval.expires_at
            self._told.move_to_end(approval.id)
            if len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)
            dropped = self._waiting[0].id if len(self._waiting) == _MOST_WAITING else None
            self._waiting.append(approval)
            if self._thread is None:
                self._thread = start_thread(
                    "pokayoke-webhook", self._run_worker
                )  # without a thread, the next question tries again
            self._changed.notify_all()
        if dropped is not None:
            self._record_failure(dropped, "too many questions wait to be announced")

    def close(self, timeout: float = 2.0) -> None:
        """Announce waiting questions for at most `timeout` seconds, and end the thread. The trace records the rest."""
        self.retire()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        with self._lock:
            asked, self._under_way = self._under_way, None
            left = list(self._waiting)
            self._waiting.clear()
        if asked is not None:
            self._record_failure(asked.id, "closed before it was answered")
        for approval in left:
            self._record_failure(approval.id, "closed before it was announced")

    def retire(self) -> None:
        """Take no more questions. Waiting ones are announced, then the thread ends."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """True as long as a question waits or is being announced."""
        with self._lock:
            return bool(self._waiting) or self._under_way is not None

    def reset_after_fork(self) -> None:
        """Start anew in a child process: waiting questions are the parent's to announce."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting.clear()
        self._thread = self._under_way = None

    def _run_worker(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                self._under_way = approval = self._waiting.popleft()
            try:
                why = self._deliver_with_retries(approval)
            except Exception as error:  # noqa: BLE001 - the thread must survive for the next question
                why = type(error).__name__
            if self._finish_current() and why:
                self._record_failure(approval.id, why)

    def _finish_current(self) -> bool:
        """Mark the current question as done. False if `close` did not wait for it and has recorded it."""
        with self._lock:
            ended, self._under_way = self._under_way, None
        return ended is not None

    def _deliver_with_retries(self, approval: Approval) -> str:
        """Announce a question, with several attempts. Returns why that failed, or an empty text."""
        body, message_id = announcement_body(approval, self._trace.redactor), _message_id(approval)
        why = ""
        for pause in (*self._pauses, None):
            try:
                status = self._post_once(message_id, body)
            except Exception as error:  # noqa: BLE001 - no connection, no HTTP, no such host: all may be temporary
                why, again = f"{type(error).__name__}: {error}"[:_REASON_CHARS], True
            else:
                if status in _GOOD:
                    return ""
                why, again = f"it answered {status}", status >= _SERVER_ERRORS or status in _TRY_AGAIN
            if not again or pause is None or self._wait_or_give_up(approval, pause):
                break
        return why

    def _post_once(self, message_id: str, body: bytes) -> int:
        """Send once and return the status. What follows the headers of an answer is not read."""
        headers = {"Content-Type": "application/json", "User-Agent": "pokayoke"}
        signed = sign(self._secrets, message_id, body, self._clock.now())
        with self._client.stream("POST", self._url, content=body, headers=headers | signed) as response:
            return response.status_code

    def _wait_or_give_up(self, approval: Approval, pause: float) -> bool:
        """Wait before the next attempt. True if there should be none."""
        with self._lock:
            self._changed.wait_for(lambda: self._closed, pause)
            return self._closed or self._clock.now() >= approval.expires_at

    def _record_failure(self, approval_id: str, why: str) -> None:
        self._trace.record(
            {"ts": self._clock.now(), "event": "webhook", "ok": False, "approval": approval_id, "reason": why}
        )


class ConfiguredWebhook:
    """The webhook of the policy in force, if there is one.

    Args:
        policy: the receiver.
        trace: as for `Webhook`.
        clock: gives the time.

    Raises:
        ConfigurationError: as for `Webhook`.
    """

    def __init__(self, policy: WebhookPolicy, trace: _EventSink, clock: Clock) -> None:
        self._trace, self._clock = trace, clock
        self._policy, self._webhook = policy, self._build_webhook(policy)
        self._former: list[Webhook] = []

    def prepare_swap(self, policy: WebhookPolicy) -> Callable[[], None]:
        """Create what a changed policy names. The returned function puts it in force; waiting questions are unaffected.

        Raises:
            ConfigurationError: as for `Webhook`.
        """
        made = self._webhook if policy == self._policy else self._build_webhook(policy)

        def put_in_force() -> None:
            if self._webhook is not None and made is not self._webhook:
                self._webhook.retire()
                self._former = [one for one in (*self._former, self._webhook) if one.is_busy]
            self._policy, self._webhook = policy, made

        return put_in_force

    def enqueue_approval(self, approval: Approval) -> None:
        """Announce a question. Returns at once and never raises."""
        if self._webhook is not None:
            self._webhook.enqueue_approval(approval)

    def close(self, timeout: float = 2.0) -> None:
        """Announce waiting questions for at most `timeout` seconds. The trace records the rest."""
        end = self._clock.monotonic() + timeout
        for webhook in (*self._former, self._webhook):
            if webhook is not None:
                webhook.close(max(0.0, end - self._clock.monotonic()))

    def _build_webhook(self, policy: WebhookPolicy) -> Webhook | None:
        return None if policy.url is None else Webhook(policy, self._trace, clock=self._clock)


def announcement_body(approval: Approval, redactor: Redactor) -> bytes:
    """Return a question as an event for another program, without secrets.

    Args:
        approval: the question.
        redactor: of the trace.
    """
    asked = datetime.fromtimestamp(approval.asked_at, UTC).isoformat().replace("+00:00", "Z")
    return msgspec.json.encode({"type": ASKED, "timestamp": asked, "data": question_data(approval, redactor)})


def question_data(approval: Approval, redactor: Redactor) -> dict[str, Any]:
    """Return what another program may know of a question, without secrets.

    Args:
        approval: the question.
        redactor: of the trace.
    """
    shown = redact_question(approval, redactor)
    return {
        "id": shown.id,
        "kind": shown.kind,
        "status": shown.status,
        "tool": shown.tool,
        "contract": shown.contract,
        "arguments": shown.arguments,
        "why": shown.why,
        "wanted": shown.wanted,
        "limits": shown.limits,
        "approvers": shown.approvers,
        "approved_by": shown.first.by if shown.first else None,
        "run": shown.run_id,
        "asked": shown.asked_at,
        "expires": shown.expires_at,
    }


def _message_id(approval: Approval) -> str:
    """Return the id of the event: a question that is asked anew under its id is another event."""
    return f"{approval.id}-{int(approval.asked_at)}"


def _open_client(url: str, seconds: float) -> httpx2.Client:
    """Return a client that reaches this receiver only: no redirects, no proxies, one deadline for an attempt.

    Raises:
        ConfigurationError: the URL cannot be reached, or the client is not installed.
    """
    # Needed by guards with a webhook only.
    from pokayoke.runtime.network.client import open_client  # noqa: PLC0415 - as above, and an extra
    from pokayoke.runtime.network.limits import HttpLimits  # noqa: PLC0415 - as above

    try:
        parts = urlsplit(url)
        rule = UrlRule(
            schemes=(parts.scheme,),
            hosts=(parts.hostname or "",),
            ports=(parts.port or DEFAULT_PORTS[parts.scheme],),
            addresses=_NETWORKS if parts.scheme == "https" else ("loopback",),
        )
    except (ContractError, ValueError) as error:
        raise ConfigurationError(f"approvals.webhook.url has no usable host or port: {error}") from None
    found = parse_url(url, rule)
    if isinstance(found, Finding):  # its message would show the path, which may be a secret
        raise ConfigurationError(f"approvals.webhook.url is refused ({found.code}). {found.hint}")
    return open_client(rule, limits=HttpLimits(redirects=0, seconds=seconds), follow_redirects=False)
