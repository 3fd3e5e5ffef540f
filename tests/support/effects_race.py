"""Real processes race for effects and are killed: `python -m effects_race --help`, from the folder of this file.

The parent never opens the ledger: it forks workers, kills them at random moments, restarts them, and
lets a last process ask for everything once more and another one verify what files and ledger say.
"""

import argparse
import contextlib
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import effects_own
import msgspec
from effects_target import Ground, reachable, serve
from effects_tools import CONFIGURATIONS, KINDS, UNSAFE, Trial
from effects_verify import verified
from effects_worker import Worker, sweep, work
from pgserver import Cluster, Missing, empty_schema

from pokayoke import open_store

COLUMNS = (
    "configuration", "store", "workers", "keys", "kills", "stops", "restarts", "calls", "executions", "cut executions", "effects",
    "double", "completed", "in doubt", "doubts that happened", "late effects", "lost", "unequal", "violations", "seconds",
)  # fmt: skip
MISSING = 3
"""Exit code: this machine lacks what the trial needs."""


class Board:
    """How far each worker has come, in memory that outlives it."""

    def __init__(self, workers):
        self._memory = mmap.mmap(-1, 8 * (workers + 1))
        self._workers = workers

    def position(self, slot):
        return struct.unpack_from("q", self._memory, 8 * slot)[0]

    def advance(self, slot):
        struct.pack_into("q", self._memory, 8 * slot, self.position(slot) + 1)

    def allowed(self):
        return struct.unpack_from("q", self._memory, 8 * self._workers)[0]

    def allow(self, position):
        struct.pack_into("q", self._memory, 8 * self._workers, position)

    def least(self):
        return min(map(self.position, range(self._workers)))


def forked(function, folder):
    """Run a function in a child; its traceback, if it has one, goes to the folder's `errors`. Returns the pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        function()
        code = 0
    except BaseException:
        with (Path(folder) / "errors").open("a") as file:
            file.write(f"{os.getpid()}\n{traceback.format_exc()}\n")
    finally:
        os._exit(code)


def in_child(function, folder):
    """Run a function in a child and return its value, which is JSON.

    Raises:
        RuntimeError: it failed.
    """
    path = Path(folder) / "value"

    def kept():
        path.write_text(json.dumps(function()))

    _, status = os.waitpid(forked(kept, folder), 0)
    if status:
        raise RuntimeError((Path(folder) / "errors").read_text())
    return json.loads(path.read_text())


def warm(trial):
    """Load here what every worker would load on its way to its first call, where it would mostly be killed."""
    quiet = msgspec.structs.replace(trial, configuration="human", timeout=None, pace=0.0, hang=0.0, store="memory://")
    with tempfile.TemporaryDirectory() as folder:
        Worker(msgspec.structs.replace(quiet, folder=folder), "warm").wanted(0)


class Race:
    """One trial from its first process to its last.

    Args:
        trial: what is run.
        cluster: the server of its ledger, if it has one of its own.
        progress: called with the share that is done, now and then.
    """

    def __init__(self, trial, cluster=None, progress=lambda race, share: None):
        self.trial, self._cluster, self._progress = trial, cluster, progress
        self.board = Board(trial.workers)
        self.kills = self.stops = self.restarts = 0
        self._pids, self._stopped = {}, {}
        self._random = random.Random(trial.seed)

    def run(self):
        """Run it. Returns the figures and violations.

        Raises:
            RuntimeError: a process failed, or it took too long.
        """
        trial, ground, kind = self.trial, Ground(self.trial.folder), KINDS[self.trial.configuration]
        begun = time.monotonic()
        in_child(lambda: self._prepare(kind), trial.folder)
        target = forked(lambda: serve(ground, dedupes=kind.dedupes), trial.folder) if kind.remote else None
        try:
            if target:
                reachable(ground)
            self._race(begun)
            raced = time.monotonic() - begun
            in_child(lambda: sweep(trial), trial.folder)
            found = in_child(lambda: verified(trial), trial.folder)
        finally:
            for pid in (*self._pids.values(), *([target] if target else [])):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        found["figures"] |= {
            "kills": self.kills, "stops": self.stops, "restarts": self.restarts, "seconds": round(raced, 1),
            "violations": found["violation_count"],
        }  # fmt: skip
        return found

    def _prepare(self, kind):
        open_store(self.trial.store, create=True).close()
        if kind.own:
            effects_own.prepare(self.trial.store)

    def _race(self, begun):
        trial = self.trial
        warm(trial)
        for slot in range(trial.workers):
            self._start(slot)
        next_kill, restarter = time.monotonic(), None
        while self._pids:
            now = time.monotonic()
            if now - begun > trial.limit:
                raise RuntimeError(f"not done after {trial.limit:g} s: positions {self._positions()}")
            self._reap()
            if self._is_due(self.kills, trial.kills) and now >= next_kill:
                os.kill(self._random.choice(list(self._pids.values())), signal.SIGKILL)
                self.kills += 1
                next_kill = now + self._random.expovariate(1 / trial.every)
            self._suspend(now)
            restarter = self._restarted(restarter)
            self.board.allow(self._allowed())
            self._progress(self, self.board.least() / trial.keys)
            time.sleep(0.002)
        if restarter:
            os.waitpid(restarter, 0)

    def _is_due(self, done, wanted):
        """Disturbances come all along the way: not faster than the work, as it is not faster than they (`_allowed`)."""
        trial = self.trial
        return bool(self._pids) and done < min(wanted, wanted * (self.board.least() + trial.block) / trial.keys)

    def _suspend(self, now):
        """Stop one worker at a time for longer than its lease: what it then does comes late."""
        trial = self.trial
        for pid, until in tuple(self._stopped.items()):
            if now >= until:
                del self._stopped[pid]
                if pid in self._pids.values():  # else it was killed meanwhile
                    os.kill(pid, signal.SIGCONT)
        if not self._stopped and self._is_due(self.stops, trial.stops):
            pid = self._random.choice(list(self._pids.values()))
            os.kill(pid, signal.SIGSTOP)
            self._stopped[pid] = now + (trial.timeout or 0.0) + trial.margin + self._random.uniform(0.05, 0.3)
            self.stops += 1

    def _allowed(self):
        """How far a worker may go: disturbances come all along the way, not after it."""
        trial, allowed = self.trial, self.trial.keys
        if trial.kills:
            allowed = min(allowed, trial.keys * self.kills // trial.kills + 2 * trial.block)
        if trial.stops:
            allowed = min(allowed, trial.keys * self.stops // trial.stops + 2 * trial.block)
        if self.kills < trial.kills or self.stops < trial.stops:
            allowed = min(allowed, trial.keys - 2)
        if self.restarts < trial.restarts:
            allowed = min(allowed, trial.keys * (self.restarts + 1) // (trial.restarts + 1))
        return allowed

    def _restarted(self, restarter):
        """Restart the database server when it is time; in a child, as it takes a while."""
        trial = self.trial
        if restarter is not None:
            pid, status = os.waitpid(restarter, os.WNOHANG)
            if not pid:
                return restarter
            if status:
                raise RuntimeError((Path(trial.folder) / "errors").read_text())
            self.restarts += 1
            return None
        if self.restarts >= trial.restarts or self.board.least() < trial.keys * self.restarts // (trial.restarts + 1):
            return None
        return forked(self._cluster.restart, trial.folder)

    def _start(self, slot):
        self._pids[slot] = forked(lambda: work(self.trial, slot, self.board), self.trial.folder)

    def _reap(self):
        for slot, pid in tuple(self._pids.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            del self._pids[slot]
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                self._start(slot)
            elif status:
                raise RuntimeError(f"worker {slot}: {(Path(self.trial.folder) / 'errors').read_text()}")

    def _positions(self):
        return [self.board.position(slot) for slot in range(self.trial.workers)]


@contextlib.contextmanager
def place(store, folder):
    """Yield the URL of an empty ledger and its own server or None, for a word or URL of `Trial.store`.

    Raises:
        Missing: this machine has no such server.
    """
    with contextlib.ExitStack() as stack:
        if store == "sqlite":
            yield f"sqlite:///{folder}/ledger.db", None
        elif store == "postgres":
            yield stack.enter_context(empty_schema()), None
        elif store == "cluster":
            cluster = stack.enter_context(Cluster())
            yield cluster.url, cluster
        else:
            yield store, None


def run(progress=lambda race, share: None, **fields):
    """Run one trial in a folder of its own. Returns figures and violations.

    Raises:
        Missing: this machine lacks what it needs.
        RuntimeError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="effects-") as folder, place(fields["store"], folder) as (url, cluster):
        trial = msgspec.convert({**fields, "folder": folder, "store": url}, Trial)
        return Race(trial, cluster, progress).run()


def apart(**fields):
    """`run` in a process of its own, for callers that have threads.

    Raises:
        Missing: as `run`.
        RuntimeError: as `run`.
    """
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, __file__, "--json", "--trial", json.dumps(fields)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))},
    )
    if done.returncode == MISSING:
        raise Missing(done.stderr.strip())
    if done.returncode:
        raise RuntimeError(done.stderr[-3_000:])
    return json.loads(done.stdout)


def table(rows):
    """Return figures as a Markdown table."""
    shown = [COLUMNS, tuple("---" for _ in COLUMNS)]
    shown += [tuple(str(row.get(name, "")) for name in COLUMNS) for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in shown)


def main(words=None):
    """Run trials from the command line."""
    parser = argparse.ArgumentParser(prog="effects_race", description=__doc__.splitlines()[0])
    parser.add_argument("--trial", default="{}", help="fields of the trial as JSON; see effects_tools.Trial")
    parser.add_argument("--configurations", nargs="*", default=[], help=f"of {', '.join(KINDS)}; or `safe`, `unsafe`")
    parser.add_argument("--stores", nargs="*", default=[], help="sqlite, postgres, cluster")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args(words)
    fields = {"store": "sqlite", "configuration": "human", **json.loads(given.trial)}
    names = {"safe": list(CONFIGURATIONS), "unsafe": list(UNSAFE)}
    chosen = [name for word in given.configurations for name in names.get(word, [word])]
    if not given.json:
        print(table([]), flush=True)
    try:
        for store in given.stores or [fields["store"]]:
            for name in chosen or [fields["configuration"]]:
                found = run(**{**fields, "store": store, "configuration": name})
                print(json.dumps(found) if given.json else table([found["figures"]]).splitlines()[-1], flush=True)
                print(*([] if given.json else found["violations"]), sep="\n", file=sys.stderr, end="")
    except Missing as error:
        print(error, file=sys.stderr)
        sys.exit(MISSING)


if __name__ == "__main__":
    main()
