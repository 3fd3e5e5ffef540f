"""A cluster of one engine as the processes that its own commands start, and the CPU time of all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 120


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        on: its address, as `--on` takes it.
        environment: what a driver needs in its environment.
        roots: the processes that were started; all others are below them.
        worker: what is in the command line of a process that scores.
    """

    on: str
    environment: dict[str, str]
    roots: list[int]
    worker: bytes

    def kill_worker(self) -> int:
        """Kill a process that scores; return its number."""
        for pid in list_below(self.roots):
            with contextlib.suppress(OSError):
                if self.worker in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    return pid
        raise LookupError("no worker scores")


@contextlib.contextmanager
def start_dask(workers: int, folder: str) -> Iterator[Cluster]:
    port = find_free_port()
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    worker = [
        sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", "--nworkers", str(workers),
        "--nthreads", "1", "--memory-limit", "0", "--local-directory", folder,
    ]  # fmt: skip
    with start_processes([[*scheduler, "--no-dashboard"], [*worker, "--no-dashboard"]], folder) as roots:
        from distributed import Client  # noqa: PLC0415 - not in the environment of Ray

        with Client(f"tcp://127.0.0.1:{port}", timeout=START_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=START_SECONDS)
        yield Cluster(f"dask://127.0.0.1:{port}", {}, roots, b"spawn_main")


@contextlib.contextmanager
def start_ray(workers: int, folder: str, *, client_port: bool = False) -> Iterator[Cluster]:
    # Ray takes 127.0.0.1 for an address of the network, which other processes then do not find.
    address = f"127.0.0.2:{find_free_port()}"
    host, _, port = address.partition(":")
    ray = [
        str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--node-ip-address", host,
        "--port", port, "--num-cpus", str(workers), "--include-dashboard", "false", "--disable-usage-stats",
        "--object-store-memory", "200000000", "--temp-dir", folder,
    ]  # fmt: skip
    outside = f"{host}:{find_free_port()}"
    if client_port:
        ray += ["--ray-client-server-port", outside.rpartition(":")[2]]
    with start_processes([ray], folder) as roots:
        wait_for_ray(address)
        on = f"ray://{outside}" if client_port else "ray"
        yield Cluster(on, {"RAY_ADDRESS": address}, roots, b"ray::score_part")


def wait_for_ray(address: str) -> None:
    connect = [sys.executable, "-c", "import ray; ray.init('auto', log_to_driver=False, logging_level='ERROR')"]
    end = time.monotonic() + START_SECONDS
    while True:
        done = subprocess.run(
            connect, env={**os.environ, "RAY_ADDRESS": address}, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
        if time.monotonic() > end:
            raise TimeoutError(f"no Ray cluster answers at {address}: {done.stderr[-1_000:]}")
        time.sleep(1)


ENGINES = {"dask": start_dask, "ray": start_ray}


@contextlib.contextmanager
def start_processes(commands: list[list[str]], folder: str) -> Iterator[list[int]]:
    """Run commands as long as the with block; everything below them ends with them."""
    with Path(folder, "cluster.log").open("ab") as log:
        started = [subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL) for words in commands]
    roots = [one.pid for one in started]
    try:
        yield roots
    finally:
        below = list_below(roots)
        for one in reversed(started):
            one.terminate()
        for one in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(30)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for one in started:
            one.wait()


def find_free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def list_below(roots: list[int]) -> dict[int, tuple[int, float]]:
    """Return the processes below some, and these, with their start and the CPU seconds each has used itself."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[int, float]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = file.read_text().rpartition(")")[2].split()
            pid = int(file.parent.name)
            parents[pid], used[pid] = int(fields[1]), (int(fields[19]), (int(fields[11]) + int(fields[12])) / TICKS)
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return {pid: used[pid] for pid in found if pid in used}


class Meter(contextlib.AbstractContextManager["Meter"]):
    """Adds up the CPU seconds of some processes and all below them, those that end meanwhile too.

    Attributes:
        seconds: so far; of a process that ends, all but its last tenth of a second.
    """

    def __init__(self, roots: list[int]) -> None:
        self._roots = roots
        self._before = {(pid, start): used for pid, (start, used) in list_below(roots).items()}
        self._last = dict(self._before)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()

    @property
    def seconds(self) -> float:
        return sum(self._last.values()) - sum(self._before.values())

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            self._look()

    def _look(self) -> None:
        self._last |= {(pid, start): used for pid, (start, used) in list_below(self._roots).items()}
