"""Where parts of recordings are worked on: this process, processes of this machine, a Ray or a Dask cluster.

Each is an executor of `concurrent.futures`, and one loop hands parts to any of them.

In: parts, a function for one of them, and what it needs.
Out: results in the order of the parts, and the parts that no worker survived.
Never: all parts under way at once, or an engine imported that was not asked for.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from typing import Any, Final

import msgspec

from pokayoke.errors import ConfigurationError, PokayokeError
from pokayoke.replay.extras import import_extra
from pokayoke.replay.job import inherit_scorer
from pokayoke.replay.parts import Merger, Part, PartResult, Work
from pokayoke.replay.score.scorer import Scorer
from pokayoke.replay.score.summary import ContractSet
from pokayoke.system import CAN_FORK

_PER_WORKER: Final = 4
# Results that wait for an earlier part: 16 KB each.
_MOST_EARLY: Final = 1_000
_CONNECT_SECONDS: Final = 30
_WORKER_SECONDS: Final = 120


class Engine(msgspec.Struct, frozen=True):
    """An executor, and what is to be known of it.

    Attributes:
        executor: runs a function of this package with one part.
        job: what the function gets beside the part, in the form the executor wants.
        workers: how many parts it can work on at the same time.
        lost: exceptions of a part whose worker died as often as the engine tries.
        may_blame_others: True if they can also befall a part that waited for the worker another one killed.
        is_remote: True if its workers do not see what this process has read.
    """

    executor: Executor
    job: Any
    workers: int = 1
    lost: tuple[type[BaseException], ...] = ()
    may_blame_others: bool = False
    is_remote: bool = False


def run(engine: Engine, work: Work, parts: Iterable[Part], merger: Merger) -> list[Part]:
    """Work on parts and add their results in order; return the parts that killed their workers.

    Args:
        engine: where.
        work: a function of this package, which workers import.
        parts: with numbers from 0 on, in order.
        merger: what results are added to.

    Raises:
        ConfigurationError: a part cannot be read, or a worker cannot do the job.
        PokayokeError: the engine failed.
    """
    loop = _PartLoop(engine, work, merger)
    try:
        loop.run(parts)
    except BrokenExecutor:
        _close_broken_pool(engine.executor)
        raise PokayokeError(
            "a process of the replay was ended from outside, perhaps for want of memory. Score with fewer: --jobs 1"
        ) from None
    finally:
        for future in loop.under_way:
            future.cancel()
    return loop.lost


class _PartLoop:
    """The state of one `run`."""

    def __init__(self, engine: Engine, work: Work, merger: Merger) -> None:
        self.engine, self.work, self.merger = engine, work, merger
        self.under_way: dict[Future[PartResult], Part] = {}
        self.lost: list[Part] = []
        self._early: dict[int, tuple[Part, PartResult | None]] = {}
        self._next = 0
        self._suspects: list[Part] = []
        self._is_alone = False

    def run(self, parts: Iterable[Part]) -> None:
        waiting = iter(parts)
        most = self.engine.workers * _PER_WORKER
        while True:
            while len(self.under_way) < most and len(self._early) < _MOST_EARLY:
                if (part := next(waiting, None)) is None:
                    break
                self._submit(part)
            if not self.under_way:
                if not self._suspects:
                    return
                self._is_alone = True
                self._submit(self._suspects.pop(0))
            done, _ = wait(self.under_way, return_when=FIRST_COMPLETED)
            for future in done:
                self._collect(self.under_way.pop(future), future)
            self._is_alone = False

    def _submit(self, part: Part) -> None:
        self.under_way[self.engine.executor.submit(self.work, part, self.engine.job)] = part

    def _collect(self, part: Part, future: Future[PartResult]) -> None:
        error = future.exception()
        if error is None:
            self._early[part.number] = (part, future.result())
        elif not isinstance(error, self.engine.lost):
            raise _worker_error(error) if self.engine.is_remote else error
        elif self.engine.may_blame_others and not self._is_alone:
            self._suspects.append(part)
        else:
            self.lost.append(part)
            self._early[part.number] = (part, None)
        while (found := self._early.pop(self._next, None)) is not None:
            self._next += 1
            if found[1] is None:
                self.merger.skip(found[0])
            else:
                self.merger.add(found[0], found[1])


def _worker_error(error: BaseException) -> PokayokeError:
    """Return what went wrong on a worker of a cluster."""
    if isinstance(error, PokayokeError):
        return ConfigurationError(f"on a worker: {error}")
    return PokayokeError(
        f"a worker could not work on a part: {type(error).__name__}: {error}. Do the workers have this version of "
        "pokayoke, and Python of the same minor version?"
    )


class _InlineExecutor(Executor):
    """Runs everything in the caller's thread, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is taken
            future.set_exception(error)
        return future


def default_jobs() -> int:
    """Return how many processes can run at the same time here; 1 where a process cannot fork."""
    if not CAN_FORK:
        return 1
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def open_local(sets: Sequence[ContractSet] = (), *, jobs: int = 1) -> Generator[Engine]:
    """Yield processes of this machine, which live as long as the with block.

    Args:
        sets: one set of contracts, or two to compare; none to learn.
        jobs: number of processes; 1 does all work in this one, as does any number where a process cannot fork.
    """
    scorer = Scorer([one.judge for one in sets])
    if jobs == 1 or not CAN_FORK:
        yield Engine(_InlineExecutor(), scorer)
        return
    job = inherit_scorer(scorer)
    # Ctrl-C reaches every process of the terminal; this one ends the others.
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"), initializer=_ignore_interrupts)
    # All processes are forked with the first task, before any thread starts (such as a progress bar's).
    pool.submit(_start_processes).result()
    try:
        yield Engine(pool, job, jobs)
    except BaseException:  # the results are not needed any more
        for process in list((pool._processes or {}).values()):  # noqa: SLF001 - before Python 3.14 there is no other way
            process.terminate()
        raise
    finally:
        # Wait in this case too: otherwise the exiting interpreter would meet the pool's thread while it ends.
        pool.shutdown(cancel_futures=True)
        inherit_scorer(None)


def open_cluster(on: str, job: bytes) -> AbstractContextManager[Engine]:
    """Return the workers of a cluster: `ray`, `ray://HOST:PORT`, `dask://HOST:PORT` or `tls://HOST:PORT` (Dask's).

    Args:
        on: its address; `ray` is the cluster this program runs in.
        job: from `pack_job`.

    Raises:
        ConfigurationError: the address is of no known kind, or nothing answers there (on entering).
        MissingExtraError: the engine is not installed (on entering).
    """
    kind, _, address = on.partition("://")
    if on == "ray":
        return _open_ray("auto", job)
    if kind == "ray" and address:
        return _open_ray(on, job)
    if kind in ("dask", "tls") and address:
        return _open_dask(f"{'tcp' if kind == 'dask' else kind}://{address}", job)
    raise ConfigurationError(f"--on {on!r}: expected ray, ray://HOST:PORT, dask://HOST:PORT or tls://HOST:PORT")


@contextmanager
def _open_ray(address: str, job: bytes) -> Generator[Engine]:
    ray, failures = import_extra("ray", "ray"), import_extra("ray.exceptions", "ray")
    is_ours = not ray.is_initialized()
    try:
        if is_ours:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        workers = int(ray.cluster_resources().get("CPU", 1))
        shared = ray.put(job)
    except Exception as error:  # what cannot be reached is told in many ways
        raise ConfigurationError(
            f"--on {address}: no Ray cluster answers: {type(error).__name__}: {error}. Start one: ray start --head"
        ) from error
    lost = (failures.WorkerCrashedError, failures.NodeDiedError, failures.OutOfMemoryError)
    with ExitStack() as stack:
        # Ray prints to stdout that a worker died, whatever it is told about logs: it would stand before a report.
        stack.enter_context(redirect_stdout(sys.stderr))
        if is_ours:
            stack.callback(ray.shutdown)
        yield Engine(_RayExecutor(ray.remote), shared, max(1, workers), lost, is_remote=True)


class _RayExecutor(Executor):
    """Runs each call as a task, which is tried on three workers if they die.

    Args:
        remote: Ray's decorator.
    """

    def __init__(self, remote: Any) -> None:
        self._remote = functools.cache(remote(max_retries=2))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        made: Future[Any] = Future()
        task: Future[Any] = self._remote(fn).remote(*args, **kwargs).future()
        task.add_done_callback(lambda done: _copy_result(done, made))
        return made


def _copy_result(done: Future[Any], made: Future[Any]) -> None:
    """Hand on a result, or the exception that a task raised, without Ray's own around it."""
    if not made.set_running_or_notify_cancel():
        return
    if (error := done.exception()) is None:
        made.set_result(done.result())
    else:
        cause = getattr(error, "cause", None)
        made.set_exception(cause if isinstance(cause, Exception) else error)


@contextmanager
def _open_dask(address: str, job: bytes) -> Generator[Engine]:
    distributed = import_extra("distributed", "dask", "distributed")
    lost = (import_extra("distributed.scheduler", "dask", "distributed").KilledWorker,)
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--on {address}: no Dask scheduler answers: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        except TimeoutError as error:
            raise ConfigurationError(f"--on {address}: the scheduler has no workers") from error
        # Equal parts would be worked on once: `pure` is for functions whose results may be shared.
        with client.get_executor(pure=False) as executor:
            workers = sum(client.nthreads().values())
            yield Engine(executor, job, workers, lost, may_blame_others=True, is_remote=True)


def _close_broken_pool(pool: Executor) -> None:
    """Let a broken pool end.

    Before Python 3.11.5 its own thread waits without end to send a task to a dead process, and the interpreter
    waits for that thread (python/cpython#94777).
    """
    reader = getattr(getattr(pool, "_call_queue", None), "_reader", None)
    if sys.version_info < (3, 11, 5) and reader is not None:
        reader.close()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _start_processes() -> None:
    """The task that has the processes started."""
