"""One process of a trial: it wants every effect, tells what it was told, and may be killed at any moment."""

import asyncio
import contextvars
import itertools
import os
import random
import time

from effects_target import Ground
from effects_tools import KINDS, TOKEN, contract

from pokayoke import Guard, ToolCall, open_store
from pokayoke.errors import StoreError
from pokayoke.stores.operations import NO_WRITES, Operation
from pokayoke.testing import FailingStore

PER_RUN = 64
OTHER_MEMO_SHARE = 0.02
PATIENCE = 2
"""Times a doubt is asked about again after the moment the ledger names."""
AGAIN = frozenset(("in_progress", "store_unavailable"))


class Careless(FailingStore):
    """Decides on what it has read a moment ago: what a ledger is that checks first and then acts."""

    def run(self, act):
        """Carry out an admission in two transactions instead of one."""
        if act.name != "admit":
            return super().run(act)
        books = self._store.run(Operation("look", act.need, lambda found: (NO_WRITES, found)))
        changes, result = act.decide(books)
        self._store.run(Operation("write", act.need, lambda _: (changes, None)))
        return result


class Worker:
    """Calls the tool of a trial for one key after the other.

    Args:
        trial: what is run.
        name: of this process; part of the names of its calls.
    """

    def __init__(self, trial, name):
        self.trial, self.name = trial, name
        self.ground = Ground(trial.folder)
        self._numbers = itertools.count(1)
        self._opened = (None, None)
        self.retry_after = None
        self._runner = asyncio.Runner() if trial.asynchronous else None
        store = until(lambda: open_store(trial.store))
        if KINDS[trial.configuration].careless:
            store = Careless(store)
        self.guard = Guard(
            [contract(trial, self.ground)],
            store=store,
            config={
                "execution": {"lease_margin_seconds": trial.margin, "max_lost_workers": 1_000},
                "trace": {"payloads": "off"},
            },
        )

    def wanted(self, n):
        """Ask for one effect until there is an answer, and note every answer. Returns the last one."""
        for _ in range(1 + PATIENCE):
            while (said := self.asked(n, "m")) in AGAIN:
                time.sleep(random.uniform(0.001, 0.02))
            if said != "in_doubt" or self.retry_after is None:
                break
            time.sleep(self.retry_after)
        return said

    def asked(self, n, memo):
        """Ask once. Returns the finding that ended the call, or its status."""
        token = f"{self.name}.{next(self._numbers)}"
        TOKEN.set(token)
        outcome = self._call(n, ToolCall(token, "charge", {"n": n, "memo": memo}))
        said, self.retry_after = outcome.status, outcome.retry_after
        if said == "refused" or (said == "in_doubt" and outcome.findings[0].code == "not_recorded"):
            said = outcome.findings[0].code
        receipt = outcome.value["receipt"] if outcome.status in ("ok", "replayed") and outcome.value else "-"
        self.ground.note("answers", n, memo, said, outcome.key or "-", token, receipt)
        return said

    def _call(self, n, call):
        run = self._run(f"job-{n // PER_RUN}")
        if self._runner is None:
            return run.call(call)
        return self._runner.run(run.acall(call), context=contextvars.copy_context())

    def _run(self, ident):
        if self._opened[0] != ident:
            self._opened = (ident, until(lambda: self.guard.run(ident)))
        return self._opened[1]


def until(act, patience=60.0):
    """Do something that needs the store until it can be reached."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return act()
        except Exception as error:
            passing = isinstance(error, (StoreError, OSError)) or type(error).__module__.startswith("psycopg")
            if not passing or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def ordered(trial, slot, position):
    """Return the key at a position of a worker's order: as good as equal for all, and its own in each block."""
    block = position // trial.block
    order = list(range(block * trial.block, min((block + 1) * trial.block, trial.keys)))
    random.Random(f"{trial.seed}/{slot}/{block}").shuffle(order)
    return order[position % trial.block]


def work(trial, slot, board):
    """Be a worker: go on where the one before was killed. `board` says how far the others allow it to go."""
    worker = Worker(trial, f"{slot}.{os.getpid()}")
    chance = random.Random()
    while (position := board.position(slot)) < trial.keys:
        if trial.wanted_by and (slot - position // trial.block) % trial.workers >= trial.wanted_by:
            board.advance(slot)
            continue
        while position > board.allowed():
            time.sleep(0.001)
        n = ordered(trial, slot, position)
        worker.wanted(n)
        if chance.random() < OTHER_MEMO_SHARE:
            worker.asked(n, "x")
        board.advance(slot)


def sweep(trial):
    """Ask for everything once more, when all others are gone; twice where doubts need time to settle."""
    worker = Worker(trial, f"sweep.{os.getpid()}")
    doubtful = range(trial.keys)
    for rest in ((trial.timeout or 0.0) + trial.margin, trial.slow + 1.0):
        time.sleep(rest)
        doubtful = [n for n in doubtful if worker.wanted(n) not in ("ok", "replayed")]
        if not doubtful or trial.configuration == "human":
            break
