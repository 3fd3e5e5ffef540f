"""The trace: every event as one JSON line without secrets, in a ring and, if wanted, in a file.

What enters: event dictionaries (`core/event.py` makes them). What leaves: lines in the shape of seed
001. What must never happen here: an exception during a call, a second line in one event, an unredacted
byte in a file or a ring.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import orjson

from pokayoke.core.policy import TracePolicy
from pokayoke.core.redact import FAILED, Redactor
from pokayoke.core.secret import Seen, matcher
from pokayoke.runtime.tracefile import TraceFile

# Fields that hold names, numbers and hashes of ours. A call that ended well has no others, and needs no
# search for secrets. (`tool` is a resolved name unless there are findings, and those are searched.)
_OURS: Final = frozenset(
    {"ts", "run_id", "step", "event", "tool", "ok", "call_id", "room", "decision", "args_hash", "confidence"}
    | {"contract", "status", "us", "attempts", "effect", "key", "mode", "repairs", "safe_mode", "occurrence"}
)
_JSON_PAYLOADS: Final = ("arguments", "result")
_REMEMBERED_RUNS: Final = 256
_SHORT_TEXT: Final = 1_000
_MOST_FINDINGS: Final = 20

# What ends a line or moves a terminal's cursor although JSON allows it in a string: C1 controls, U+2028,
# U+2029, and the marks that reorder text. Written as \uXXXX it is the same JSON.
_UNQUIET: Final = r"[\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
_unquiet_hit = matcher(_UNQUIET)
_unquiet = re.compile(_UNQUIET)


def quiet(line: bytes) -> bytes:
    """Return the same JSON with every character escaped that could end a line or steer a terminal."""
    if line.isascii():
        return line
    text = line.decode()
    if not _unquiet_hit(text):
        return line
    return _unquiet.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


class Ring:
    """The latest events of one run, kept as lines and read as dictionaries.

    Args:
        size: how many are kept.
    """

    __slots__ = ("_lines",)

    def __init__(self, size: int) -> None:
        self._lines: deque[bytes] = deque(maxlen=size)

    def append(self, line: bytes) -> None:
        """Add what `Trace.record` returned."""
        self._lines.append(line)

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The lines themselves, oldest first."""
        return tuple(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([msgspec.json.decode(line) for line in tuple(self._lines)])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return cast("dict[str, Any]", msgspec.json.decode(self._lines[index]))

    def __repr__(self) -> str:
        return f"Ring({list(self)!r})"


class Trace:
    """Redacts events and writes them down. Safe to share between threads.

    Args:
        policy: where to, and what of the payloads.
        redactor: takes the secrets out; built from the policy if None.
        clock: seconds since the epoch, for events that carry no `ts`.

    Raises:
        ConfigurationError: the file cannot be written.
        PolicyError: a redaction pattern cannot be used.
    """

    def __init__(
        self,
        policy: TracePolicy,
        redactor: Redactor | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._seen: OrderedDict[Any, Seen] = OrderedDict()
        self._lost = 0
        self._problem: str | None = None
        self._file: TraceFile | None = None
        self._policy: TracePolicy | None = None
        self.use(policy, redactor)

    def use(self, policy: TracePolicy, redactor: Redactor | None = None) -> None:
        """Go on under a changed policy. What was met as a secret stays one.

        Raises:
            ConfigurationError: the new file cannot be written; then nothing has changed.
            PolicyError: a redaction pattern cannot be used; then nothing has changed.
        """
        built = redactor or Redactor(policy.redact_fields, policy.redact_patterns)
        old, before = self._file, self._policy
        place = (policy.path, policy.max_bytes, policy.backups)
        if before is None or place != (before.path, before.max_bytes, before.backups):
            opened = None
            if policy.path is not None:
                opened = TraceFile(policy.path, max_bytes=policy.max_bytes, backups=policy.backups)
            self._file = opened
            if old is not None:
                old.close()
                self._lost += old.dropped
        self._policy, self.redactor = policy, built
        self._payloads, self._limit = policy.payloads, policy.max_payload_chars
        self._longest_line = 4 * self._limit + 32_768

    @property
    def dropped(self) -> int:
        """Events that could not be written."""
        return self._lost + (self._file.dropped if self._file else 0)

    @property
    def problem(self) -> str | None:
        """Why the latest event was dropped, or None if it was not."""
        return (self._file.problem if self._file else None) or self._problem

    def emit(self, event: dict[str, Any]) -> dict[str, Any]:
        """Write an event down and return it as it may be shown."""
        return cast("dict[str, Any]", msgspec.json.decode(self.record(event)))

    def record(self, event: dict[str, Any]) -> bytes:
        """Write an event down and return its line, for a `Ring`.

        Args:
            event: becomes the trace's own. `arguments` and `result` are canonical JSON bytes, `raw` is
                a text or bytes as they came; `marks` (names that the contract marks as secret) is used
                and not written; findings and corrections may be the values themselves.

        Returns:
            The line without its newline: redacted, one line whatever the event holds.
        """
        try:
            if "ts" not in event:
                event["ts"] = self._clock()
            # The common event is written here and now; everything else takes the longer way.
            line = quiet(_dumps(event)) if _OURS.issuperset(event) else self._line(event)
        except Exception as error:  # noqa: BLE001 - an event that cannot be made safe costs itself, not the call
            self._lost += 1
            self._problem = f"an event could not be written: {type(error).__name__}"
            line = _stub(event)
        file = self._file
        if file is not None:
            file.write(line, event["ts"], at_once=event.get("ok") is False)
        return line

    def seen(self, run_id: str | None) -> Seen:
        """The secrets met in a run, for texts of that run that are shown elsewhere."""
        seen = self._seen.get(run_id)
        if seen is None:
            seen = self._seen[run_id] = Seen()
            if len(self._seen) > _REMEMBERED_RUNS:
                self._seen.popitem(last=False)
        return seen

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Flush and close the file. Later events only reach rings."""
        if self._file is not None:
            self._file.close()

    def _line(self, event: dict[str, Any]) -> bytes:
        marks = tuple(event.pop("marks", ()))
        seen = self.seen(event.get("run_id"))
        if self._payloads == "redacted":
            self._place_payloads(event)
        else:
            self._withhold_payloads(event)
        line = _dumps(event)
        if len(line) > self._longest_line:
            line = _dumps(_shortened(event))
        redacted = self.redactor.event(line, marks=marks, seen=seen)
        if redacted is None:
            raise ValueError(FAILED)
        return quiet(redacted)

    def _place_payloads(self, event: dict[str, Any]) -> None:
        for key in _JSON_PAYLOADS:
            data = event.get(key)
            if isinstance(data, bytes) and len(data) > self._limit:
                event[key] = _digest(data)
        raw = event.get("raw")
        if isinstance(raw, (str, bytes)):
            text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
            event["raw"] = text if len(text) <= self._limit else _digest(_bytes(text))

    def _withhold_payloads(self, event: dict[str, Any]) -> None:
        for key in (*_JSON_PAYLOADS, "raw"):
            data = event.pop(key, None)
            if data is not None and self._payloads == "hash":
                event[key] = _digest(data if isinstance(data, bytes) else _bytes(str(data)))
        findings = event.get("findings")
        if findings:
            # Messages, hints and reasons repeat values; the code and the place do not.
            event["findings"] = [{"code": f.code, "at": f.at, "blame": f.blame} for f in findings]
            event["reason"] = findings[0].code
        elif "reason" in event and "tool" in event:
            event["reason"] = event.get("status", "withheld")
        if event.get("corrections"):
            event["corrections"] = [{"at": c.at, "rule": c.rule, "class": c.kind} for c in event["corrections"]]


def _digest(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _dumps(event: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(event, default=_plain)
    except TypeError:  # a lone surrogate, an integer beyond 64 bits
        return msgspec.json.encode(_sturdy(event))


def _plain(value: Any) -> Any:
    """What orjson does not know: payloads that are JSON already, findings and corrections."""
    if isinstance(value, bytes):
        return orjson.Fragment(value)
    if isinstance(value, msgspec.Struct):
        return orjson.Fragment(msgspec.json.encode(value))
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, cast("set[Any]", value)))
    return f"<{type(value).__name__}>"


def _sturdy(value: Any) -> Any:
    """The same event out of what any JSON writer takes."""
    if isinstance(value, str):
        return _bytes(value).decode()
    if isinstance(value, dict):
        items = cast("Mapping[Any, Any]", value).items()
        return {_sturdy(str(key)): _sturdy(item) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_sturdy(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, msgspec.Struct):
        return _sturdy(msgspec.to_builtins(value))
    if isinstance(value, bytes):
        return msgspec.Raw(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return f"<{type(value).__name__}>"


def _shortened(event: dict[str, Any]) -> dict[str, Any]:
    """An event that outgrew every limit: its scalars, and the codes of its first findings."""
    short: dict[str, Any] = {}
    for key, value in event.items():
        if isinstance(value, str):
            short[key] = _bytes(value[:_SHORT_TEXT]).decode()
        elif value is None or isinstance(value, (bool, int, float)):
            short[key] = value
    findings = event.get("findings") or ()
    short["findings"] = [{"code": f.code, "at": _bytes(f.at[:_SHORT_TEXT]).decode()} for f in findings[:_MOST_FINDINGS]]
    short["shortened"] = True
    return short


def _stub(event: dict[str, Any]) -> bytes:
    """What is left of an event that could not be made safe: which one it was."""
    kept = {key: event.get(key) for key in ("ts", "run_id", "step", "event", "tool", "ok")}
    safe = {key: value if isinstance(value, (bool, int, float)) else _name(value) for key, value in kept.items()}
    return quiet(msgspec.json.encode({**safe, "payload": FAILED}))


def _name(value: Any) -> str | None:
    """An identifier as it is; anything longer or stranger is not repeated."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.:@-]{1,64}", value) else None
