"""Scores files on several processes: blocks of lines go out, counts come back.

At most two blocks per process are in progress. A format whose records span lines is joined here and sent as
recordings.

In: opened recordings.
Out: one `Score`.
Never: memory that grows with the file.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, Final, Self

from pokayoke.errors import PokayokeError
from pokayoke.replay.readers.lines import LineBlock
from pokayoke.replay.readers.source import Source, SourceFormat, read_block
from pokayoke.replay.recording import ReadResult
from pokayoke.replay.score.counts import Score, Tally
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.scorer import Scorer
from pokayoke.system import CAN_FORK

_BATCH: Final = 1_000
_PER_WORKER: Final = 2
ReportProgress = Callable[[int, int], None]

# A forked worker inherits this: contracts may hold functions, which cannot be sent.
_scorer: Scorer | None = None


def default_jobs() -> int:
    """Return how many processes can run at the same time here; 1 where a process cannot fork."""
    if not CAN_FORK:
        return 1
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Replay:
    """Scores files. Use it as a context manager: the processes live as long as it does.

    Args:
        judges: one set of contracts, or two to compare.
        jobs: number of processes; 1 does all work in this one, as does any number where a process cannot fork.
    """

    def __init__(self, judges: Sequence[Judge], *, jobs: int = 1) -> None:
        global _scorer  # noqa: PLW0603 - inherited by the forked workers
        self._scorer = Scorer(judges)
        self._jobs = jobs = jobs if CAN_FORK else 1
        self._pool: ProcessPoolExecutor | None = None
        self.score = Score(tallies=[Tally() for _ in judges])
        self._files = 0
        if jobs > 1:
            _scorer = self._scorer
            # Ctrl-C reaches every process of the terminal; this one ends the others.
            self._pool = ProcessPoolExecutor(
                jobs, mp_context=multiprocessing.get_context("fork"), initializer=_ignore_interrupts
            )
            # All processes are forked with the first task, before any thread starts (such as a progress bar's).
            self._pool.submit(_start_processes).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        global _scorer  # noqa: PLW0603 - as above
        if self._pool is not None:
            if kind is not None:  # the results are not needed any more
                for process in list((self._pool._processes or {}).values()):  # noqa: SLF001 - before Python 3.14 there is no other way
                    process.terminate()
            # Wait in this case too: otherwise the exiting interpreter would meet the pool's thread while it ends.
            self._pool.shutdown(cancel_futures=True)
            _scorer = None

    def score_source(self, source: Source, told: ReportProgress | None = None) -> None:
        """Score one file.

        Args:
            source: the opened file.
            told: called after every block with the bytes read and the calls scored so far.

        Raises:
            ConfigurationError: the file cannot be read to its end.
            PokayokeError: a process was ended from outside.
        """
        waiting: deque[tuple[Future[Score] | Score, int]] = deque()
        calls = 0
        most = self._jobs * _PER_WORKER if self._pool is not None else 0
        for task, read in self._split_tasks(source):
            waiting.append((self._submit_task(task), read))
            while len(waiting) > most:
                calls += self._collect_score(*waiting.popleft(), calls, told)
        while waiting:
            calls += self._collect_score(*waiting.popleft(), calls, told)
        self._files += 1

    def _submit_task(self, task: tuple[Any, ...]) -> Future[Score] | Score:
        if self._pool is None:
            return _score_task(self._scorer, *task)
        try:
            return self._pool.submit(_score_in_worker, *task)
        except BrokenProcessPool:
            broken: Future[Score] = Future()
            broken.set_exception(BrokenProcessPool())
            return broken

    def _collect_score(self, done: Future[Score] | Score, read: int, calls: int, told: ReportProgress | None) -> int:
        try:
            part = done if isinstance(done, Score) else done.result()
        except BrokenProcessPool:
            _close_broken_pool(self._pool)
            raise PokayokeError(
                "a process of the replay was ended from outside, perhaps for want of memory. Score with fewer: --jobs 1"
            ) from None
        self.score.merge(part)
        if told is not None:
            told(read, calls + part.calls)
        return part.calls

    def _split_tasks(self, source: Source) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Yield the tasks, and how far in the file each one ends."""
        if not source.kind.build_reader().joins:
            for block in source.read_blocks():
                yield (self._files, source.kind, block), block.read
            return
        position = 0

        def join_lines() -> Iterator[ReadResult]:
            nonlocal position
            reader = source.kind.build_reader()
            for block in source.read_blocks():
                position = block.read
                yield from read_block(block, reader)
            yield from reader.finish()

        reads = join_lines()
        while batch := list(islice(reads, _BATCH)):
            yield (self._files, None, batch), position


def _close_broken_pool(pool: ProcessPoolExecutor | None) -> None:
    """Let a broken pool end.

    Before Python 3.11.5 its own thread waits without end to send a task to a dead process, and the interpreter
    waits for that thread (python/cpython#94777).
    """
    reader = getattr(getattr(pool, "_call_queue", None), "_reader", None)
    if sys.version_info < (3, 11, 5) and reader is not None:
        reader.close()


def _score_task(scorer: Scorer, file: int, kind: SourceFormat | None, what: Any) -> Score:
    if kind is None:
        return scorer.score_recordings(what, file)
    assert isinstance(what, LineBlock), "lines come with the kind of their file"
    return scorer.score_recordings(read_block(what, kind.build_reader()), file)


def _score_in_worker(file: int, kind: SourceFormat | None, what: Any) -> Score:
    assert _scorer is not None, "forked with it"
    return _score_task(_scorer, file, kind, what)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _start_processes() -> None:
    """The task that has the processes started."""
