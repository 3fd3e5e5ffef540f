"""An index of trace files: where each run's lines lie, so that a page reads them by seeking and never by scanning.

The index is a file of its own in the cache folder. It can be deleted at any time and is then built anew.

In: trace files that other processes append to, rotate, cut off or damage.
Out: runs, calls and figures of tools; lines by their place.
Never: a change to a trace file, or a line that is shown as another than it is.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from pokayoke.core.json.values import is_object
from pokayoke.stores.lists import PAGE

_FORMAT: Final = 2
_CHUNK: Final = 4_000_000
"""Bytes that are indexed in one transaction."""
_LONGEST_LINE: Final = 16_000_000
_HEAD: Final = 256
"""Bytes at its beginning by which a file is known again, beside its number: numbers are used again."""
_MOST_BACKUPS: Final = 100
_LOOK_SECONDS: Final = 0.5
_MOST_TRIES, _TRY_SECONDS = 100, 0.05
_CALLS: Final = frozenset({"tool_call", "tool_result"})
_BOUNDS: Final = (100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
                  2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000)  # fmt: skip
"""Upper bounds of the classes of durations, in microseconds."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY, path TEXT, device INTEGER, inode INTEGER, head TEXT, done INTEGER, broken INTEGER,
    first_broken INTEGER, lines INTEGER, cut INTEGER DEFAULT 0
);
CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT PRIMARY KEY, first REAL, last REAL, calls INTEGER, failed INTEGER, writes INTEGER, stops TEXT
);
CREATE INDEX IF NOT EXISTS runs_last ON runs (last, run_id);
CREATE INDEX IF NOT EXISTS runs_failed ON runs (last, run_id) WHERE failed > 0;
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, run_id TEXT, step INTEGER, kind TEXT, call_id TEXT, tool TEXT, contract TEXT, ts REAL,
    ok INTEGER, decision TEXT, status TEXT, code TEXT, us INTEGER, effect TEXT, key TEXT, fixes TEXT,
    file INTEGER, place INTEGER, end_file INTEGER, end_place INTEGER
);
CREATE INDEX IF NOT EXISTS calls_run ON calls (run_id, id);
CREATE INDEX IF NOT EXISTS calls_tool ON calls (tool, id);
CREATE TABLE IF NOT EXISTS figures (tool TEXT, kind TEXT, name TEXT, number INTEGER, PRIMARY KEY (tool, kind, name));
"""


class _Finding(msgspec.Struct, gc=False):
    code: str = ""


class _Correction(msgspec.Struct, gc=False):
    rule: str = ""


class _Line(msgspec.Struct, gc=False):
    """What the index keeps of a line."""

    event: str
    run_id: str = ""
    ts: float = 0.0
    step: int = 0
    tool: str = ""
    call_id: str | None = None
    ok: bool | None = None
    contract: str | None = None
    decision: str | None = None
    status: str | None = None
    us: int | None = None
    effect: str | None = None
    key: str | None = None
    reason: str | None = None
    mode: str | None = None
    findings: list[_Finding] = []
    repairs: list[Any] = []
    corrections: list[_Correction] = []


class TracedRun(msgspec.Struct, frozen=True):
    """One run in a trace.

    Args:
        run_id: its id.
        first: wall-clock second of its first line.
        last: wall-clock second of its last line.
        calls: calls of tools.
        failed: calls that were refused or failed.
        writes: calls that had an effect, or may have had one.
        stops: why writes or the run were stopped, the latest last.
    """

    run_id: str
    first: float
    last: float
    calls: int
    failed: int
    writes: int
    stops: str


class TracedCall(msgspec.Struct, frozen=True):
    """One call of a run, or another event of it; fields as in the trace.

    Args:
        number: its place in the index.
        code: of its first finding.
        fixes: names of repairs and corrections.
        status: how a call ended; of a stop, the mode of the run from then on.
        place: where its first line lies.
    """

    number: int
    run_id: str
    step: int
    kind: str
    call_id: str | None
    tool: str
    contract: str | None
    ts: float
    ok: bool | None
    decision: str | None
    status: str | None
    code: str
    us: int | None
    effect: str | None
    key: str | None
    fixes: str
    file: int
    place: int
    end_file: int | None
    end_place: int | None


class TracedFile(msgspec.Struct, frozen=True):
    """One trace file.

    Args:
        path: where it lies now.
        size: its bytes now.
        done: bytes that are indexed.
        lines: events in it.
        broken: lines that are none.
        first_broken: where the first of them begins.
        cut: how often it was cut off.
    """

    path: str
    size: int
    done: int
    lines: int
    broken: int
    first_broken: int | None
    cut: int


class RunPage(msgspec.Struct, frozen=True):
    """Which runs or calls a page shows.

    Args:
        failed: only those that failed.
        writes: only those with an effect.
        start: only runs whose id begins like this.
        tool: only calls of this tool.
        after: the place of the last row of the page before.
        limit: how many at most.
    """

    failed: bool = False
    writes: bool = False
    start: str = ""
    tool: str = ""
    after: tuple[Any, ...] | None = None
    limit: int = PAGE


class TraceIndex:
    """An index of one trace file and of those it was rotated into.

    Args:
        path: of the trace file.
        folder: where the index lies; the user's cache folder by default.
    """

    def __init__(self, path: Path, folder: Path | None = None) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute() keeps `..`
        name = hashlib.sha256(f"{_FORMAT}:{self.path}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.file = _cache_folder(folder) / f"trace-{name}.db"
        self._lock = threading.Lock()
        self._reader: tuple[tuple[int, int], sqlite3.Connection] | None = None
        self._reader_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    # -- reading ---------------------------------------------------------------------------------

    def runs(self, page: RunPage) -> list[TracedRun]:
        """Return a page of runs, the latest first."""
        conditions: list[str] = ["run_id <> ''"]  # alerts and problems of a guard belong to no run
        values: list[Any] = []
        if page.failed:
            conditions.append("failed > 0")
        if page.start:
            conditions.append("run_id >= ? AND run_id < ?")
            values += [page.start, page.start + "\U0010ffff"]
        if page.after is not None:
            conditions.append("(last, run_id) < (?, ?)")
            values += page.after
        sql = f"SELECT * FROM runs WHERE {' AND '.join(conditions)} ORDER BY last DESC, run_id DESC LIMIT ?"  # noqa: S608 - values are bound
        return [TracedRun(*row) for row in self._fetch(sql, [*values, page.limit])]

    def run(self, run_id: str) -> TracedRun | None:
        """Return one run, or None if no line names it."""
        found = self._fetch("SELECT * FROM runs WHERE run_id = ?", [run_id])
        return TracedRun(*found[0]) if found else None

    def calls(self, run_id: str | None, page: RunPage) -> list[TracedCall]:
        """Return a page of the calls of a run, the first first; of a tool without a run, the latest first."""
        # A plus keeps SQLite from the index of a column: that of the tool would lead through all of its calls.
        conditions: list[str] = ["+run_id <> ''"]
        values: list[Any] = []
        for name, value in (("run_id", run_id), ("tool" if run_id is None else "+tool", page.tool or None)):
            if value is not None:
                conditions.append(f"{name} = ?")
                values.append(value)
        if page.failed:
            conditions.append("ok = 0")
        if page.writes:
            conditions.append("effect IN ('done', 'unknown')")
        order, sign = ("", ">") if run_id is not None else (" DESC", "<")
        if page.after is not None:
            conditions.append(f"id {sign} ?")
            values += page.after
        sql = f"SELECT * FROM calls WHERE {' AND '.join(conditions)} ORDER BY id{order} LIMIT ?"  # noqa: S608 - as above
        return [_as_call(row) for row in self._fetch(sql, [*values, page.limit])]

    def stops(self, run_id: str) -> list[TracedCall]:
        """Return the first events by which a run, or its writes, were stopped or let go on."""
        sql = "SELECT * FROM calls WHERE run_id = ? AND kind IN ('stop', 'latch') ORDER BY id LIMIT ?"
        return [_as_call(row) for row in self._fetch(sql, [run_id, PAGE])]

    def reports(self, limit: int, *, kind: str = "", tool: str = "") -> list[TracedCall]:
        """Return the latest events of guards themselves, which belong to no run: alerts, versions, servers, stores.

        Args:
            limit: how many at most.
            kind: only events of this kind.
            tool: only those about this tool.
        """
        sql = "SELECT * FROM calls WHERE run_id = '' AND ? IN ('', kind) AND ? IN ('', tool) ORDER BY id DESC LIMIT ?"
        return [_as_call(row) for row in self._fetch(sql, [kind, tool, limit])]

    def latest(self) -> float | None:
        """Return the wall-clock second of the latest line, or None."""
        found = self._fetch("SELECT ts FROM calls ORDER BY id DESC LIMIT 1", [])
        return float(found[0][0]) if found else None

    def call(self, number: int) -> TracedCall | None:
        """Return one call, or None."""
        found = self._fetch("SELECT * FROM calls WHERE id = ?", [number])
        return _as_call(found[0]) if found else None

    def figures(self, tool: str | None = None) -> dict[str, dict[str, Counter[str]]]:
        """Return by tool and kind (status, refusal, fix, version, us) how often each name was counted."""
        where = "" if tool is None else " WHERE tool = ?"
        values: list[Any] = [] if tool is None else [tool]
        found: dict[str, dict[str, Counter[str]]] = {}
        for name, kind, what, number in self._fetch(f"SELECT * FROM figures{where}", values):  # noqa: S608 - as above
            found.setdefault(name, {}).setdefault(kind, Counter())[what] += number
        return found

    def files(self) -> list[TracedFile]:
        """Return what is known of each file, the present one first."""
        rows = self._fetch("SELECT path, done, lines, broken, first_broken, cut FROM files ORDER BY id DESC", [])
        return [
            TracedFile(path, _size_of(path), done, lines, broken, first, cut)
            for path, done, lines, broken, first, cut in rows
        ]

    def read_line(self, file: int, place: int) -> tuple[dict[str, Any] | None, str, str]:
        """Return the event of a line, the file in which it lies, and why it cannot be shown, if so."""
        found = self._fetch("SELECT path, device, inode, head FROM files WHERE id = ?", [file])
        if not found:
            return None, "", "its file is not indexed any more"
        path, device, inode, head = found[0]
        try:
            with Path(path).open("rb") as opened:
                now = os.fstat(opened.fileno())
                if (now.st_dev, now.st_ino) != (device, inode) or not _has_head(opened.read(_HEAD), head):
                    return None, path, "the file was rotated away or replaced since it was indexed"
                opened.seek(place)
                line = opened.readline(_LONGEST_LINE)
        except OSError as error:
            return None, path, f"the file cannot be read: {error.strerror}"
        try:
            event: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = None
        if not is_object(event):
            return None, path, "the line is damaged, or was overwritten since it was indexed"
        return event, path, ""

    def stamp(self) -> object:
        """Return what changes with the files, and keep the index growing beside them."""
        self._start_growing()
        return tuple((path, size) for path, size in ((str(one), _size_of(str(one))) for one in self._paths()[:2]))

    # -- growing ---------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Index what is new, one chunk of each file. Returns whether there is more."""
        with self._lock, self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            more = False
            # The oldest first: a write's decision lies before its end.
            for path in reversed(self._paths()):
                more = self._grow(connection, path) or more
            connection.execute("COMMIT")
        return more

    def refresh_all(self) -> None:
        """Index everything that is there now."""
        while self.refresh():
            pass

    def _start_growing(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._keep_growing, name="pokayoke-trace-index", daemon=True)
            self._thread.start()

    def _keep_growing(self) -> None:
        pause = threading.Event()
        known: object = None
        while True:
            sizes = [(str(path), _size_of(str(path))) for path in self._paths()]
            try:
                while sizes != known and self.refresh():
                    pass
                known = sizes
            except (OSError, sqlite3.Error):
                known = None
            pause.wait(_LOOK_SECONDS)

    def _paths(self) -> list[Path]:
        paths = [self.path]
        for number in range(1, _MOST_BACKUPS):
            rotated = self.path.with_name(f"{self.path.name}.{number}")
            if not rotated.exists():
                break
            paths.append(rotated)
        return [path for path in paths if path.exists()]

    def _grow(self, connection: sqlite3.Connection, path: Path) -> bool:
        try:
            opened = path.open("rb")
        except OSError:
            return False
        with opened:
            file, done = _find_file(connection, path, opened)
            opened.seek(done)
            data = opened.read(_CHUNK)
            end = data.rfind(b"\n") + 1
            if end == 0 and len(data) == _CHUNK:  # a line that is longer than a chunk
                data += opened.readline(_LONGEST_LINE)
                end = len(data)
        grown = _Growth(connection, file)
        place = done
        for line in data[:end].splitlines(keepends=True):
            grown.add_line(line, place)
            place += len(line)
        grown.finish(place)
        return len(data) >= _CHUNK

    def _fetch(self, sql: str, values: Sequence[Any]) -> list[Any]:
        self._start_growing()
        with self._reader_lock:
            return self._open_reader().execute(sql, values).fetchall()

    def _open_reader(self) -> sqlite3.Connection:
        """Return the connection that reads, opened anew if the index was deleted or replaced."""
        try:
            found = os.stat(self.file)  # noqa: PTH116 - several times for each page
            place = (found.st_dev, found.st_ino)
        except OSError:
            place = None
        if self._reader is not None and self._reader[0] == place:
            return self._reader[1]
        if self._reader is not None:
            self._reader[1].close()
            self._reader = None
        with self._lock, self._open():  # makes what is missing
            found = os.stat(self.file)  # noqa: PTH116 - as above
            connection = sqlite3.connect(self.file, timeout=10.0, isolation_level=None, check_same_thread=False)
        self._reader = ((found.st_dev, found.st_ino), connection)
        return connection

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.file, timeout=10.0, isolation_level=None)) as connection:
            _use_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous = OFF")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")  # nobody sees some of them
            yield connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers and the writer of an index go side by side. Of two that switch at once, SQLite lets none wait."""
    for _ in range(_MOST_TRIES):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            time.sleep(_TRY_SECONDS)
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")


class _Growth:
    """The lines of one chunk on their way into the index."""

    def __init__(self, connection: sqlite3.Connection, file: int) -> None:
        self._connection, self._file = connection, file
        self._decode = msgspec.json.Decoder(_Line, strict=False).decode
        self._lines = self._broken = 0
        self._first_broken: int | None = None
        self._figures: Counter[tuple[str, str, str]] = Counter()
        self._runs: dict[str, list[Any]] = {}

    def add_line(self, line: bytes, place: int) -> None:
        """Index one line."""
        if not line.strip():
            return
        try:
            found = self._decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._broken += 1
            self._first_broken = place if self._first_broken is None else self._first_broken
            return
        self._lines += 1
        code = found.findings[0].code if found.findings else ("" if found.event in _CALLS else found.reason or "")
        ends_write = found.event == "tool_result" and found.decision is None
        is_end = ends_write and self._end_write(found, code, place)
        if not is_end:
            self._add_call(found, code, place)
        self._count(found, code, is_end=is_end)

    def finish(self, done: int) -> None:
        """Write the counts of the chunk."""
        execute = self._connection.execute
        execute(
            "UPDATE files SET done = ?, lines = lines + ?, broken = broken + ?, "
            "first_broken = COALESCE(first_broken, ?) WHERE id = ?",
            [done, self._lines, self._broken, self._first_broken, self._file],
        )
        self._connection.executemany(
            "INSERT INTO figures VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET number = number + excluded.number",
            [(*name, number) for name, number in self._figures.items()],
        )
        self._connection.executemany(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "first = min(first, excluded.first), last = max(last, excluded.last), calls = calls + excluded.calls, "
            "failed = failed + excluded.failed, writes = writes + excluded.writes, "
            "stops = substr(trim(stops || ' ' || excluded.stops), -400)",
            [(run_id, *values) for run_id, values in self._runs.items()],
        )

    def _add_call(self, found: _Line, code: str, place: int) -> None:
        fixes = [*map(_fix_name, found.repairs), *(one.rule for one in found.corrections)]
        self._connection.execute(
            "INSERT INTO calls VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
            [
                _clean(found.run_id), found.step, _clean(found.event), _clean(found.call_id), _clean(found.tool),
                found.contract, found.ts, None if found.ok is None else int(found.ok), found.decision,
                found.mode if found.event == "stop" else found.status,
                _clean(code)[:200], found.us, found.effect, found.key, ", ".join(fixes)[:300], self._file, place,
            ],
        )  # fmt: skip

    def _end_write(self, found: _Line, code: str, place: int) -> bool:
        changed = self._connection.execute(
            "UPDATE calls SET ok = ?, status = ?, code = CASE WHEN ? = '' THEN code ELSE ? END, us = ?, effect = ?, "
            "key = COALESCE(?, key), end_file = ?, end_place = ? WHERE id = (SELECT id FROM calls WHERE run_id = ? AND "
            "step = ? AND call_id IS ? AND end_place IS NULL AND kind = 'tool_call' ORDER BY id DESC LIMIT 1)",
            [
                None if found.ok is None else int(found.ok), found.status, code, _clean(code)[:200], found.us,
                found.effect, found.key, self._file, place, _clean(found.run_id), found.step, _clean(found.call_id),
            ],
        )  # fmt: skip
        return changed.rowcount > 0

    def _count(self, found: _Line, code: str, *, is_end: bool) -> None:
        run = self._runs.setdefault(_clean(found.run_id), [found.ts, found.ts, 0, 0, 0, ""])
        run[0], run[1] = min(run[0], found.ts), max(run[1], found.ts)
        if found.event == "stop":
            run[5] = f"{run[5]} {_clean(found.reason or '')}"[-200:]
        if found.event not in _CALLS:
            return
        if found.ok is False:
            run[3] += 1
        if found.effect in ("done", "unknown"):
            run[4] += 1
        if not is_end:
            run[2] += 1
            self._count_call(found, code)
        self._count_end(found)

    def _count_call(self, found: _Line, code: str) -> None:
        tool, add = _clean(found.tool), self._figures
        add[tool, "version", found.contract or "–"] += 1
        for fix in (*map(_fix_name, found.repairs), *(one.rule for one in found.corrections)):
            add[tool, "fix", fix] += 1
        if len(found.findings) > 1 and found.findings[0].code == "monitored":
            add[tool, "monitored", _clean(found.findings[1].code)] += 1
        if found.decision not in (None, "allow", "replay"):
            add[tool, "refusal", _clean(code) or str(found.decision)] += 1
            add[tool, "status", str(found.decision)] += 1

    def _count_end(self, found: _Line) -> None:
        tool, add = _clean(found.tool), self._figures
        if found.status is not None:
            add[tool, "status", found.status] += 1
        if found.us is not None:
            add[tool, "us", str(_class_of(found.us))] += 1


def _find_file(connection: sqlite3.Connection, path: Path, opened: BinaryIO) -> tuple[int, int]:
    """Return the number of a file and how much of it is indexed; a file that was cut off begins anew."""
    now, start = os.fstat(opened.fileno()), opened.read(_HEAD)
    head = f"{len(start)}:{hashlib.sha256(start).hexdigest()}"
    sql = "SELECT id, done, head FROM files WHERE device = ? AND inode = ? ORDER BY id DESC LIMIT 1"
    found = connection.execute(sql, [now.st_dev, now.st_ino]).fetchone()
    cut = 0
    if found is not None:
        file, done, known = found
        if now.st_size >= done and _has_head(start, known):
            connection.execute("UPDATE files SET path = ?, head = ? WHERE id = ?", [str(path), head, file])
            return file, done
        cut = 1
        connection.execute("UPDATE files SET inode = NULL WHERE id = ?", [file])
    sql = "INSERT INTO files VALUES (NULL, ?, ?, ?, ?, 0, 0, NULL, 0, ?)"
    inserted = connection.execute(sql, [str(path), now.st_dev, now.st_ino, head, cut])
    return int(inserted.lastrowid or 0), 0


def _has_head(start: bytes, known: str) -> bool:
    """Return whether a file begins as it did when it was indexed, as far as it reached then."""
    length, _, digest = known.partition(":")
    return hashlib.sha256(start[: int(length)]).hexdigest() == digest


def _as_call(row: Sequence[Any]) -> TracedCall:
    values = list(row)
    values[8] = None if values[8] is None else bool(values[8])
    return TracedCall(*values)


def _class_of(us: int) -> int:
    return next((bound for bound in _BOUNDS if us <= bound), _BOUNDS[-1])


def _fix_name(repair: Any) -> str:
    return repair if isinstance(repair, str) else str(repair.get("name", "?")) if is_object(repair) else "?"


def _clean(text: str | None) -> Any:
    """Return a text as SQLite takes it: a lone surrogate becomes its escape."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()[:1_000]


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - twice a second
    except OSError:
        return 0


def _cache_folder(folder: Path | None) -> Path:
    """Return a folder of this user's own, for an index that may be deleted."""
    wanted = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pokayoke"
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="pokayoke-"))
    return wanted if os.access(wanted, os.W_OK) else Path(tempfile.mkdtemp(prefix="pokayoke-"))
