"""Forks with an open store, threads in processes, and resources that run out."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
from effects_stage import call, only_record, receipts
from effects_target import Ground

from pokayoke import open_store
from pokayoke.stores.base import RecordQuery

HERE = Path(__file__).parent.parent / "support"
HEAD = f"""
import json, os, resource, signal, sys, threading, time
sys.path.insert(0, {str(HERE)!r})
import msgspec
from effects_stage import Spec, called, charge, guarded
from effects_target import Ground
spec = msgspec.json.decode(sys.argv[1], type=Spec)
numbered = lambda n: msgspec.structs.replace(spec, arguments={{"n": n}})
def told(outcome):
    return outcome.findings[0].code if outcome.status == "refused" else outcome.status
"""


def scripted(spec, body, *words, lethal=False):
    """Run a program in a process of its own. Returns what it printed, as JSON; None if it may die and did."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEAD + body, msgspec.json.encode(spec).decode(), *words],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    if lethal and done.returncode in (-signal.SIGSEGV, -signal.SIGABRT):
        return None
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)


def effects_of(spec):
    """Effects per number of the call."""
    counts = {}
    for n, *_ in Ground(spec.folder).lines("effects"):
        counts[int(n)] = counts.get(int(n), 0) + 1
    return counts


# -- forks ---------------------------------------------------------------------------------------------------------

FORKED = """
guard = guarded(spec)
run = guard.run("r")
first = told(called(guard, numbered(0)))      # the store is open, its threads run
ready, go = os.pipe()
children = []
def race(seed):
    said = {}
    def one(shift):
        for i in range(25):
            n = (i + shift * 3 + seed) % 25
            while (word := told(called(guard, numbered(n)))) == "in_progress":
                time.sleep(0.002)
            said.setdefault(word, []).append(n)
    threads = [threading.Thread(target=one, args=(shift,)) for shift in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return {word: len(numbers) for word, numbers in said.items()}
for seed in range(3):
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(into, json.dumps(race(seed)).encode())
        os._exit(0)
    os.close(into)
    children.append((pid, out))
said = [race(7)]
for pid, out in children:
    said.append(json.loads(os.read(out, 10_000)))
    assert os.waitpid(pid, 0)[1] == 0
print(json.dumps([first, said]))
"""


def test_a_fork_after_the_store_was_opened(spec):
    """Parent and children, four threads each, share no connection: every key has one effect, and all get answers."""
    first, said = scripted(spec, FORKED)
    assert first == "ok"
    assert len(said) == 4
    for words in said:
        assert set(words) <= {"ok", "replayed"}, said
        assert sum(words.values()) == 100
    assert effects_of(spec) == dict.fromkeys(range(25), 1)


IN_FLIGHT = """
held = threading.Event()
entered = threading.Event()
def handler(n, memo="m"):
    Ground(spec.folder).note("effects", n, f"{n}-{os.getpid()}", memo)
    entered.set()
    held.wait(20)
    return {"receipt": "parent"}
guard = guarded(spec, contract=charge(spec, Ground(spec.folder), handler=handler))
run = guard.run("r")
said = []
thread = threading.Thread(target=lambda: said.append(told(called(guard, spec))))
thread.start()
entered.wait(20)
out, into = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(into, told(called(guard, spec)).encode())
    os._exit(0)
child = os.read(out, 100).decode()
os.waitpid(pid, 0)
held.set()
thread.join(20)
print(json.dumps([said, child, told(called(guard, spec))]))
"""


def test_a_fork_while_a_write_is_under_way(spec):
    """The child's copy of the claim is not its own: it is told that the write runs, and the parent completes it."""
    assert scripted(spec, IN_FLIGHT) == [["ok"], "in_progress", "replayed"]
    assert effects_of(spec) == {1: 1}


# -- resources that run out ----------------------------------------------------------------------------------------

NO_FILES = """
guard = guarded(spec)
run = guard.run("r")
said = [told(called(guard, numbered(0)))]
used = max(map(int, os.listdir("/proc/self/fd")))
resource.setrlimit(resource.RLIMIT_NOFILE, (used, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
guard.store.close() if sys.argv[2] == "reopened" else None
from pokayoke import open_store
try:
    open_store(spec.url)
    said.append("opened")
except Exception as error:
    said.append("not opened")
begun = time.monotonic()
said += [told(called(guard, numbered(n))) for n in (1, 2)]
said.append(time.monotonic() - begun < 30)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for fd in taken:
    os.close(fd)
said += [told(called(guard, numbered(n))) for n in (1, 2)]
print(json.dumps(said))
os._exit(0)
"""


def test_no_file_descriptor_is_left(spec):
    """A store that is open goes on or refuses; no new one opens; nothing hangs, and nothing happens twice."""
    first, opened, *said, quick, again, and_again = scripted(spec, NO_FILES, "open")
    assert (first, opened, quick) == ("ok", "not opened", True)
    assert set(said) <= {"ok", "store_unavailable", "in_doubt"}
    assert {again, and_again} <= {"ok", "replayed", "in_doubt"}
    assert all(count == 1 for count in effects_of(spec).values())
    assert effects_of(spec).keys() >= {0}


NO_MEMORY = """
def handler(n, memo="m"):
    Ground(spec.folder).note("effects", n, f"{n}-x", memo)
    if n == 1:
        return {"receipt": "x" * 150_000_000}
    if n == 2:
        raise MemoryError
    return {"receipt": f"{n}"}
guard = guarded(spec, contract=charge(spec, Ground(spec.folder), handler=handler))
run = guard.run("r")
said = [told(called(guard, numbered(0)))]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000, resource.RLIM_INFINITY))
said += [told(called(guard, numbered(n))) for n in (1, 2)]
hoard = []
size = 1 << 20
while size >= 1 << 15:  # below that, libraries in C end the process, which is as good as a kill
    try:
        hoard.append(bytearray(size))
    except MemoryError:
        size //= 2
try:
    starved = told(called(guard, numbered(3)))
except MemoryError:
    starved = "memory"
hoard.clear()
said.append(starved)
said += [told(called(guard, numbered(n))) for n in (1, 2, 4)]
print(json.dumps(said))
os._exit(0)
"""


AFTER = """
guard = guarded(spec)
print(json.dumps(["ok", "in_doubt", "in_doubt", *(told(called(guard, numbered(n))) for n in (3, 1, 2, 4))]))
os._exit(0)
"""


def test_no_memory_is_left(spec):
    """A tool that runs out of memory is in doubt; a call that cannot even be claimed starts nothing; then it goes on.

    Where no kilobyte is left, a library in C may end the process; what the next one finds is the same.
    """
    first, large, raising, starved, *after = scripted(spec, NO_MEMORY, lethal=True) or scripted(spec, AFTER)
    assert first == "ok"
    assert (large, raising) == ("in_doubt", "in_doubt")
    assert starved in ("store_unavailable", "in_doubt", "ok", "memory")
    assert after == ["in_doubt", "in_doubt", "ok"]
    assert all(count == 1 for count in effects_of(spec).values())


NO_THREADS = """
guard = guarded(spec, contract=charge(spec, Ground(spec.folder), timeout=5.0))
run = guard.run("r")
def refused(*_, **__):
    raise RuntimeError("can't start new thread")
real = threading.Thread.start
threading.Thread.start = refused
said = [told(called(guard, numbered(1)))]
threading.Thread.start = real
said.append(told(called(guard, numbered(1))))
print(json.dumps(said))
os._exit(0)
"""


def test_no_thread_is_left(spec):
    """A write whose worker or writer cannot start is refused before its effect; later the same call succeeds."""
    said = scripted(spec, NO_THREADS)
    assert said[0] in ("store_unavailable", "failed")
    assert said[1] == "ok"
    assert all(count == 1 for count in effects_of(spec).values())
    assert len(list(_records(spec))) == 1


def _records(spec):
    store = open_store(spec.url)
    try:
        return store.records(RecordQuery())
    finally:
        store.close()


def test_a_ledger_is_whole_after_all_that(spec):
    """The last word of the ledger is what a new process reads."""
    assert call(spec).status == "ok"
    assert only_record(spec).state == "completed"
    assert len(receipts(spec)) == 1
