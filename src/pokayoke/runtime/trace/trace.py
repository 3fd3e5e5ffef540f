"""The trace: every event as one JSON line without secrets, in a ring and optionally in a file.

A call only hands its events over. They are searched for secrets and written as lines when they are read or go
to the file: after a failure at once, otherwise after a second or 64 KB. Many short texts searched together cost
a third of what each would cost alone.

In: event dictionaries.
Out: JSON lines.
Never: an exception during a call, a second line in one event, an unredacted byte in a file or a ring.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import orjson

from pokayoke.core.policy import TracePolicy
from pokayoke.core.redaction.known_secrets import KnownSecrets
from pokayoke.core.redaction.redactor import REDACTION_FAILED, Redactor
from pokayoke.runtime.threads.forks import on_fork
from pokayoke.runtime.trace.file import TraceFile
from pokayoke.runtime.trace.line import (
    COMMON_FIELDS,
    digest_of,
    dump_event,
    escape_controls,
    has_no_controls,
    is_only_unchecked,
    minimal_event,
    orjson_default,
    shorten_event,
    to_utf8,
    withhold_payloads,
)
from pokayoke.runtime.trace.log import LOGGED_EVENTS, log_event, log_problem
from pokayoke.runtime.trace.observers import Observer, notify_observers, public_event
from pokayoke.runtime.trace.redaction import build_redactor
from pokayoke.runtime.trace.ring import PendingEvent

_BUFFER_BYTES: Final = 65_536
_BUFFER_SECONDS: Final = 1.0
_DONE: Final[dict[str, Any]] = {}
_USUAL_BYTES: Final = 400  # size of a common event without its payload
_JSON_PAYLOADS: Final = ("arguments", "result")
_REMEMBERED_RUNS: Final = 256


class Trace:
    """Redacts events and writes them. Safe to share between threads.

    Args:
        policy: where to write, and what to keep of the payloads.
        redactor: the user's own; it gets every payload first.
        clock: seconds since the epoch, for events that carry no `ts`.

    Raises:
        ConfigurationError: the file cannot be written.
        PolicyError: a redaction pattern cannot be used.
    """

    def __init__(
        self,
        policy: TracePolicy,
        *,
        redactor: Callable[[Any], Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._own = clock, redactor
        # Reentrant: a user's redactor, or a finalizer, may record an event while a line is made.
        self._lock = threading.RLock()
        self._waiting: deque[PendingEvent] = deque()
        self._ready: list[bytes] = []
        self._bytes = 0
        self._since = 0.0
        self._seen: OrderedDict[Any, KnownSecrets] = OrderedDict()
        self._observers: tuple[Observer, ...] = ()
        self._broken: list[Observer] = []
        self._lost = 0
        self._problem: str | None = None
        self._file: TraceFile | None = None
        self._policy: TracePolicy | None = None
        self.apply_policy(policy)
        _open_traces.add(self)
        on_fork(self, Trace.reset_after_fork)

    def apply_policy(self, policy: TracePolicy) -> None:
        """Go on under a changed policy; raises as `prepare_swap`. A known secret stays one."""
        self.prepare_swap(policy)()

    def prepare_swap(self, policy: TracePolicy) -> Callable[[], None]:
        """Open what a changed policy names. The returned function puts it in force, and cannot fail.

        Raises:
            ConfigurationError: the new file cannot be written, or the key of the tags not be used.
            PolicyError: a redaction pattern cannot be used.
        """
        built = build_redactor(policy, self._own)
        before, opened = self._policy, self._file
        place = (policy.path, policy.max_bytes, policy.backups)
        if before is None or place != (before.path, before.max_bytes, before.backups):
            opened = None
            if policy.path is not None:
                opened = TraceFile(policy.path, max_bytes=policy.max_bytes, backups=policy.backups)
        return partial(self._put_in_force, policy, built, opened)

    def _put_in_force(self, policy: TracePolicy, redactor: Redactor, opened: TraceFile | None) -> None:
        with self._lock:  # also of `append`: a descriptor closed under it may belong to another file at once
            self.flush()
            old, self._file = self._file, opened
            if old is not None and old is not opened:
                old.close()
                self._lost += old.dropped
            self._policy, self.redactor = policy, redactor
            self._payloads, self._limit = policy.payloads, policy.max_payload_chars
            self._as_they_are = policy.payloads == "redacted"
            self._longest_line = 4 * self._limit + 32_768

    @property
    def dropped_count(self) -> int:
        """Events that could not be written so far."""
        return self._lost + (self._file.dropped if self._file else 0)

    @property
    def problem(self) -> str | None:
        """Why the latest event was dropped, or None if it was not."""
        return (self._file.problem if self._file else None) or self._problem

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The registered observers."""
        return self._observers

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call an observer for every event from now on, in the thread of the call, once it is recorded.

        Args:
            observer: called with the public part of an event (`runtime/trace/observers.py`): no payloads, no texts. The
                first exception it raises is recorded as an `observer` event; no call ever sees one.

        Returns:
            A function that removes the observer.
        """
        with self._lock:
            self._observers = (*self._observers, observer)
        return lambda: self._remove_observer(observer)

    def record(self, event: dict[str, Any]) -> PendingEvent:
        """Record an event.

        Args:
            event: becomes the trace's own. `arguments` and `result` are canonical JSON bytes, `raw` is a text or bytes
                as received; `marks` (names that the contract marks as secret) is used and not written; findings and
                corrections may be the values themselves.

        Returns:
            The entry for an `EventRing`. It reaches the file within a second of the next one, at once if `ok` is false.
        """
        now = event.get("ts")
        if now is None:
            now = event["ts"] = self._clock()
        common = COMMON_FIELDS.issuperset(event) or (self._as_they_are and is_only_unchecked(event))
        recorded = PendingEvent(self, event, common)
        # Copied now: once the event waits, another thread may make its line, which changes it.
        seen = public_event(event, common=common) if self._observers else None
        size = _USUAL_BYTES
        if "arguments" in event or "result" in event:
            size += self._place_payloads(recorded)
        # No lock: appending to a deque is atomic, and the count of bytes only decides when to write.
        self._waiting.append(recorded)
        failed = event.get("ok") is False
        if not (recorded.common or failed):
            # It refers to findings and corrections that may still change: only bytes and text can wait.
            size = len(self.line_of(recorded))
        self._bytes += size
        # A clock that ran backwards counts as old.
        if failed or self._bytes >= _BUFFER_BYTES or not 0.0 <= now - self._since < _BUFFER_SECONDS:
            self._since = now
            self.flush()
        if failed and event["event"] in LOGGED_EVENTS:
            log_event(self.line_of(recorded))
        if seen is not None:
            notify_observers(self._observers, seen, self._broken, self.record)
        return recorded

    def line_of(self, recorded: PendingEvent) -> bytes:
        """Return the line of a recorded event; the lines of earlier events are made first."""
        with self._lock:
            self._make_ready()
            if recorded.made is None:  # a forked child finds it in a ring, but no longer in the queue
                self._make_lines([recorded])
            return cast("bytes", recorded.made)

    def redact_text_of_call(self, run_id: str, text: str, marks: tuple[str, ...], arguments: bytes) -> str:
        """Return a text of a call, such as that of its exception, as the trace would write it.

        Args:
            run_id: the run of the call.
            text: the text.
            marks: names that the tool's contract marks as secret.
            arguments: those of the call, as JSON: what is secret there is secret in the text.
        """
        with self._lock:
            seen = self.secrets_of_run(run_id)
            self.redactor.redact_payload(arguments, marks=marks, seen=seen)
            return self.redactor.redact_text(text, marks=marks, seen=seen)

    def secrets_of_run(self, run_id: str | None) -> KnownSecrets:
        """Return the secrets found in a run, for texts of that run that are shown elsewhere.

        With many runs, those without a secret are forgotten first, then those whose secrets were used least recently.
        The end of a run forgets nothing: a tool may still answer late.
        """
        seen = self._seen.get(run_id)
        if seen is None:
            if len(self._seen) >= _REMEMBERED_RUNS:
                del self._seen[next((one for one, met in self._seen.items() if not met), next(iter(self._seen)))]
            seen = self._seen[run_id] = KnownSecrets()
        elif seen:
            self._seen.move_to_end(run_id)
        return seen

    def flush(self) -> None:
        """Pass everything to the operating system."""
        with self._lock:
            self._make_ready()
            lines, self._ready, self._bytes = self._ready, [], 0
            if self._file is not None and lines:
                before = self._file.problem
                self._file.append(lines)
                # Once, and not for every line that is lost; after `close` rings alone take events, as is said there.
                if not self._file.is_closed and self._file.problem not in (None, before):
                    log_problem(
                        "trace", f"{self._file.path}: {self._file.problem}. Events are lost until it is writable"
                    )

    def close(self) -> None:
        """Flush and close the file. Later events only reach rings."""
        with self._lock:  # as in `_put_in_force`
            self.flush()
            if self._file is not None:
                self._file.close()

    def __del__(self) -> None:
        if getattr(self, "_policy", None) is not None:
            self.close()

    def reset_after_fork(self) -> None:
        """Start anew in a child process: waiting events are the parent's to write."""
        self._lock = threading.RLock()
        self._waiting.clear()
        self._ready, self._bytes = [], 0
        if self._file is not None:
            self._file.reset_after_fork()

    def _remove_observer(self, observer: Observer) -> None:
        with self._lock:
            self._observers = tuple([one for one in self._observers if one is not observer])

    def _place_payloads(self, recorded: PendingEvent) -> int:
        """Replace payloads that are not written unchanged. Returns the bytes of the others."""
        event, limit = recorded.event, self._limit
        arguments, result = event.get("arguments", b""), event.get("result", b"")
        if not self._as_they_are or type(arguments) is not bytes or type(result) is not bytes:
            return self._place_withheld(recorded)
        if len(arguments) > limit:
            event["arguments"], arguments = self._replace_long_payload(recorded, arguments), b""
        if len(result) > limit:
            event["result"], result = self._replace_long_payload(recorded, result), b""
        recorded.payloads = (arguments, result)
        return len(arguments) + len(result)

    def _place_withheld(self, recorded: PendingEvent) -> int:
        """`_place_payloads` under another policy, or for a payload that is not bytes."""
        event = recorded.event
        for key in [one for one in _JSON_PAYLOADS if one in event]:
            data = event[key]
            if self._as_they_are and isinstance(data, bytes):
                if len(data) <= self._limit:
                    recorded.payloads += (data,)
                else:
                    event[key] = self._replace_long_payload(recorded, data)
            elif self._payloads == "hash":
                event[key] = digest_of(data if isinstance(data, bytes) else to_utf8(str(data)))
            elif self._payloads == "off":
                del event[key]
            else:
                recorded.common = False
        return sum(map(len, recorded.payloads))

    def _replace_long_payload(self, recorded: PendingEvent, data: bytes) -> dict[str, int]:
        """Return the replacement of a payload. Other texts of the event may repeat a secret from it."""
        if not recorded.common:
            event = recorded.event
            with self._lock:
                self.redactor.redact_payload(
                    data, marks=tuple(event.get("marks", ())), seen=self.secrets_of_run(event.get("run_id"))
                )
        return {"bytes": len(data)}

    def _make_ready(self) -> None:
        """Make the lines of all waiting events."""
        if waiting := self._waiting:
            self._ready += self._make_lines([waiting.popleft() for _ in range(len(waiting))])

    def _make_lines(self, events: list[PendingEvent]) -> list[bytes]:
        """Make the lines of events; the payloads of all common ones are searched together."""
        harmless = self._is_harmless(events)
        secrets = self._seen
        lines: list[bytes] = []
        for recorded in events:
            event = recorded.event
            # A value found under a secret name must be searched for in every later payload of the run.
            if recorded.common and harmless and not (secrets and secrets.get(event.get("run_id"))):
                try:
                    lines.append(
                        orjson.dumps(event, orjson_default, orjson.OPT_APPEND_NEWLINE)[:-1]
                    )  # as `tight.dumps`
                    continue
                except TypeError:  # a lone surrogate, an integer beyond 64 bits: the slow path handles them
                    pass
            lines.append(self._safe_line(event))
        if not has_no_controls(b"".join(lines)):
            lines = [escape_controls(line) for line in lines]
        for recorded, line in zip(events, lines, strict=True):
            recorded.made, recorded.event, recorded.payloads = line, _DONE, ()
        return lines

    def _is_harmless(self, events: list[PendingEvent]) -> bool:
        """True if no payload of the common events, and no id next to one, needs a closer search."""
        texts: list[bytes] = []
        ids: list[str] = []
        for recorded in events:
            if recorded.common:
                texts += recorded.payloads
                ids += (str(recorded.event.get("call_id")), str(recorded.event.get("run_id")))
        try:
            return not ids or self.redactor.is_clean(b"\n".join([*texts, to_utf8("\n".join(ids))]))
        except Exception:  # noqa: BLE001 - not UTF-8: each event is searched by itself
            return False

    def _safe_line(self, event: dict[str, Any]) -> bytes:
        try:
            return self._redact_line(event)
        except Exception as error:  # noqa: BLE001 - an event that cannot be redacted must not fail the call
            self._lost += 1
            self._problem = f"an event could not be written: {type(error).__name__}"
            return minimal_event(event)

    def _redact_line(self, event: dict[str, Any]) -> bytes:
        marks = tuple(event.pop("marks", ()))
        seen = self.secrets_of_run(event.get("run_id"))
        if self._as_they_are:
            self._place_raw(event, marks, seen)
        else:
            withhold_payloads(event, self._payloads)
        line = dump_event(event)
        if len(line) > self._longest_line:
            line = dump_event(shorten_event(event))
        redacted = self.redactor.redact_event(line, marks=marks, seen=seen)
        if redacted is None:
            raise ValueError(REDACTION_FAILED)
        return redacted

    def _place_raw(self, event: dict[str, Any], marks: tuple[str, ...], seen: KnownSecrets) -> None:
        raw = event.get("raw")
        if isinstance(raw, (str, bytes)):
            text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
            if len(text) > self._limit:
                self.redactor.redact_text(text, marks=marks, seen=seen)  # as in `_replace_long_payload`
            event["raw"] = text if len(text) <= self._limit else {"bytes": len(to_utf8(text))}


_open_traces: weakref.WeakSet[Trace] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for trace in list(_open_traces):
        trace.flush()
