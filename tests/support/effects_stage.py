"""One write at a time, in a process that may be killed at a named point: `staged(...)` there, `call(...)` here.

Points: `store_admit_before`, `store_admit_after` and the same for `settle` (a number after them means the n-th time), the
steps a guard announces, and `before_effect`, `after_effect`, `in_lookup`.
"""

import asyncio
import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import msgspec
from effects_target import Ground, receipt_of

from pokayoke import Contract, Guard, ToolCall, open_store, this_effect
from pokayoke.core.flow.resolve import NOT_FOUND, Found
from pokayoke.testing import STEPS, FailingStore, crash_at

ARGUMENTS = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "memo": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}
RECEIPT = {"type": "object", "properties": {"receipt": {"type": "string"}}, "required": ["receipt"]}
LOOKUP = {"on_ambiguous": "lookup", "lookup_safe": "executor_dead"}


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does.

    Args:
        url: of the ledger.
        folder: of the files outside it.
        crash: point at which the process kills itself, or "".
        fields: of the contract, as far as they are data; `on_ambiguous: lookup` gets a lookup in the files.
        policy: execution options.
        arguments: of the call.
        asynchronous: which driver.
        holds: the tool waits for the file `go` before it acts.
        run: id of the run.
        clock: seconds the wall clock of this process is off.
    """

    url: str
    folder: str
    crash: str = ""
    fields: dict = {}
    policy: dict = msgspec.field(default_factory=lambda: {"lease_margin_seconds": 0.2})
    arguments: dict = msgspec.field(default_factory=lambda: {"n": 1})
    asynchronous: bool = False
    holds: bool = False
    run: str = "r"
    clock: float = 0.0


class Skewed:
    """A wall clock that is wrong by so many seconds, also in the middle of a call."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.monotonic, self.sleep = time.monotonic, time.sleep

    def now(self):
        return time.time() + self.seconds

    async def asleep(self, seconds):
        await asyncio.sleep(seconds)


def die(*_):
    """End this process as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def charge(spec, ground, **fields):
    """Return the write: it leaves a line when it starts, and one for its effect."""

    def handler(n, memo="m"):
        effect = this_effect()
        ground.note("starts", n, effect.key, effect.attempt)
        if spec.crash == "before_effect":
            die()
        while spec.holds and not (ground.folder / "go").exists():
            time.sleep(0.005)
        receipt = receipt_of(n)
        ground.note("effects", n, receipt, memo)
        if spec.crash == "after_effect":
            die()
        return {"receipt": receipt}

    def lookup(key, arguments):
        ground.note("asked", key)
        if spec.crash == "in_lookup":
            die()
        receipt = ground.found(arguments["n"])
        return NOT_FOUND if receipt is None else Found({"receipt": receipt})

    given = {"handler": handler, "identity": ("n",), **spec.fields, **fields}
    if given.get("on_ambiguous") == "lookup":
        given["lookup"] = lookup
    return Contract.from_schema("charge", given.pop("input_schema", ARGUMENTS), output_schema=RECEIPT, **given)


def guarded(spec, *, contract=None, store=None, on_step=None, clock=None):
    """Return a guard for the write on the ledger of `spec`; what is given replaces what `spec` says."""
    store = store or open_store(spec.url)
    name, _, number = spec.crash.removeprefix("store_").partition("_")
    if spec.crash.startswith("store_"):
        when, _, number = number.partition("_")
        store = FailingStore(store, {name: [int(number or 1)]}, after=when == "after", error=die)
    return Guard(
        [contract or charge(spec, Ground(spec.folder))],
        store=store,
        config={"execution": spec.policy},
        on_step=crash_at(spec.crash) if spec.crash in STEPS else on_step,
        clock=clock or Skewed(spec.clock),
    )


def called(guard, spec):
    """Make the call of `spec` and return the outcome."""
    run, call = guard.run(spec.run), ToolCall("c", "charge", spec.arguments)
    return asyncio.run(run.acall(call)) if spec.asynchronous else run.call(call)


def call(spec, **options):
    """Make the call in this process, with a guard of its own. Waits for somebody else's lease; returns the outcome."""
    guard = guarded(spec, **options)
    try:
        deadline = time.monotonic() + 20
        while (outcome := called(guard, spec)).findings and outcome.findings[0].code == "in_progress":
            assert time.monotonic() < deadline, "the lease does not lapse"
            time.sleep(0.02)
    finally:
        if "store" not in options:
            guard.close()
    return outcome


def source_of(spec):
    """The program that makes the call of `spec` and prints what became of it."""
    here = str(Path(__file__).parent)
    return (
        f"import sys; sys.path.insert(0, {here!r})\n"
        f"from effects_stage import perform\nperform({msgspec.json.encode(spec).decode()!r})\n"
    )


def staged(spec):
    """Make the call in a process of its own, forked from one that has loaded everything. Returns it, finished."""
    nursery = _nursery()
    nursery.stdin.write(msgspec.json.encode(spec) + b"\n")
    nursery.stdin.flush()
    code = int(nursery.stdout.readline())
    return Done(code, (Path(spec.folder) / "said").read_text())


class Done(msgspec.Struct, frozen=True):
    """A process that has ended: its code as `subprocess` gives it, and what it printed."""

    returncode: int
    said: str


@functools.cache
def _nursery():
    here = str(Path(__file__).parent)
    source = f"import sys; sys.path.insert(0, {here!r}); import effects_stage; effects_stage.fork_on_demand()"
    nursery = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(_close, nursery)
    return nursery


def _close(nursery):
    nursery.stdin.close()
    nursery.stdout.close()
    nursery.wait(10)


def fork_on_demand():
    """Be that process: it has no threads and no store, and forks one child for every line it reads."""
    with tempfile.TemporaryDirectory() as folder:
        for asynchronous in (False, True):
            call(Spec(url="memory://", folder=folder, asynchronous=asynchronous))
        store = open_store(f"sqlite:///{folder}/warm.db", create=True)
        store.close()
    with contextlib.suppress(ImportError):
        importlib.import_module("psycopg")
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            _perform_and_exit(line)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _perform_and_exit(line):
    code = 1
    with (Path(msgspec.json.decode(line)["folder"]) / "said").open("w") as said, contextlib.redirect_stdout(said):
        try:
            perform(line)
            code = 0
        except BaseException:
            traceback.print_exc(file=said)
        finally:
            said.flush()
            os._exit(code)


def perform(text):
    """What that process does."""
    spec = msgspec.json.decode(text, type=Spec)
    guard = guarded(spec)
    outcome = called(guard, spec)
    code = outcome.findings[0].code if outcome.findings else ""
    print(json.dumps({"status": outcome.status, "code": code, "value": outcome.value, "effect": outcome.effect}))
    sys.stdout.flush()
    deadline = time.monotonic() + 10  # a tool that comes back late gets the time to say so
    while guard.workers.lost_count and time.monotonic() < deadline:
        time.sleep(0.01)
    guard.close()


def receipts(spec):
    """The receipts of all effects, in order."""
    return [receipt for _, receipt, *_ in Ground(spec.folder).lines("effects")]


def only_record(spec):
    """The one record of the ledger, with its output, or None if there is none."""
    from pokayoke.stores.base import RecordQuery  # noqa: PLC0415 - the processes that are killed do without it

    store = open_store(spec.url)
    try:
        listed = store.records(RecordQuery())
        assert len(listed) <= 1
        return store.record(listed[0].key) if listed else None
    finally:
        store.close()


def late_effects(spec):
    """How many late effects the audit tells of."""
    store = open_store(spec.url)
    try:
        return sum(entry.kind == "late_effect" for entry in store.audit())
    finally:
        store.close()
