"""The disk is full, the ledger's file is damaged, exchanged, gone or forbidden."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from effects_stage import Spec, call, called, charge, guarded, only_record, receipts
from effects_target import Ground, receipt_of
from pgserver import Cluster, Missing, joined

from pokayoke import open_store
from pokayoke.errors import StoreError

HERE = Path(__file__).parent.parent / "support"


@pytest.fixture
def spec(tmp_path):
    """Only SQLite has a file. Effects are written elsewhere than the ledger."""
    (tmp_path / "disk").mkdir()
    url = f"sqlite:///{tmp_path}/disk/ledger.db"
    open_store(url, create=True).close()
    return Spec(url=url, folder=str(tmp_path))


@pytest.fixture
def small(tmp_path, need):
    """The same on a disk of its own with 300 kB; needs the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        need(f"root and the right to mount a tmpfs: {done.stderr.strip()}")
    try:
        url = f"sqlite:///{disk}/ledger.db"
        open_store(url, create=True).close()
        yield Spec(url=url, folder=str(tmp_path))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def changed(spec, **fields):
    return msgspec.structs.replace(spec, **fields)


def numbered(spec, n):
    return changed(spec, arguments={"n": n})


def path_of(spec):
    return Path(spec.url.removeprefix("sqlite:///"))


def begun(spec, **options):
    """A guard on the ledger, and its run: while that is open, it is not loaded again."""
    guard = guarded(spec, **options)
    return guard, guard.run(spec.run)


def fill(spec):
    """Leave no byte free on the ledger's disk."""
    with (path_of(spec).parent / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)


def free(spec):
    (path_of(spec).parent / "filler").unlink()


# -- a full disk ---------------------------------------------------------------------------------------------------


@pytest.mark.privileged
def test_a_disk_that_is_full_at_the_claim(small):
    """Writes are refused and nothing is executed; as many effects as completed records; with space it goes on."""
    guard, _run = begun(small)
    said = [called(guard, numbered(small, n)) for n in range(3)]
    fill(small)
    for n in range(3, 2_000):
        said.append(called(guard, numbered(small, n)))
        if said[-1].status == "refused":
            break
    refused = said[-1]
    assert (refused.findings[0].code, refused.effect) == ("store_unavailable", "none")
    assert "free some space" in refused.message
    assert "free some space" not in refused.text
    told = sum(outcome.status == "ok" for outcome in said)
    doubtful = sum(outcome.findings[:1] != () and outcome.findings[0].code == "not_recorded" for outcome in said)
    assert told + doubtful == len(said) - 1 == len(receipts(small))
    assert called(guard, numbered(small, 5_000)).status == "refused"
    assert len(receipts(small)) == len(said) - 1
    free(small)
    assert called(guard, numbered(small, 5_000)).status == "ok"
    guard.close()
    assert [call(numbered(small, n)).status for n in range(3)] == ["replayed"] * 3


@pytest.mark.privileged
def test_a_disk_that_is_full_at_the_completion(small):
    """The tool fills the disk: its output is told with a doubt where it cannot be kept, and it never runs again."""
    ground = Ground(small.folder)

    def handler(n, memo="m"):
        fill(small)
        ground.note("effects", n, receipt_of(n), memo)
        return {"receipt": receipts(small)[-1] + "x" * 150_000}

    contract = charge(small, ground, handler=handler, timeout=5.0)
    guard, _run = begun(small, contract=contract)
    outcome = called(guard, small)
    assert (outcome.status, outcome.findings[0].code, outcome.effect) == ("in_doubt", "not_recorded", "done")
    assert outcome.value["receipt"].startswith(receipts(small)[0])
    free(small)
    assert called(guard, small).findings[0].code == "in_progress"
    guard.close()
    # The process that holds the claim lives: only its lease tells that it will not report any more.
    late = changed(small, clock=60.0)
    assert call(late, contract=contract).status == "in_doubt"
    assert (only_record(small).state, len(receipts(small))) == ("in_doubt", 1)


# -- a damaged file ------------------------------------------------------------------------------------------------


def damaged(spec, *, header):
    """Overwrite the header or everything behind it; returns the file's bytes."""
    path = path_of(spec)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(0 if header else 4_096)
        file.write(random.Random(1).randbytes(100 if header else size - 4_096))
    return path.read_bytes()


@pytest.mark.parametrize("header", [True, False], ids=["header", "pages"])
def test_a_damaged_file_is_not_used_and_not_repaired(spec, header):
    """Writes are refused at the start and at the call; the file stays as it is, and nothing runs again."""
    for n in range(20):
        assert call(numbered(spec, n)).status == "ok"
    done = receipts(spec)
    bytes_now = damaged(spec, header=header)
    with pytest.raises(StoreError, match=r"restore a backup|no database|damaged"):
        open_store(spec.url)
    with pytest.raises(StoreError):
        open_store(spec.url, create=True)
    assert receipts(spec) == done
    assert path_of(spec).read_bytes() == bytes_now


@pytest.mark.parametrize("header", [True, False], ids=["header", "pages"])
def test_a_file_that_is_damaged_while_it_is_open(spec, header):
    """What was done is answered as before or refused, never done again; another process refuses."""
    guard, _run = begun(spec)
    for n in range(20):
        assert called(guard, numbered(spec, n)).status == "ok"
    done = receipts(spec)
    guard.store.close()  # so that the file is whole, and all of it is in the file
    guard, _run = begun(spec)
    assert called(guard, numbered(spec, 0)).status == "replayed"
    damaged(spec, header=header)
    for n in range(20):
        outcome = called(guard, numbered(spec, n))
        assert outcome.status == "replayed" or outcome.findings[0].code == "store_unavailable", outcome
    assert receipts(spec) == done
    with pytest.raises(StoreError):
        open_store(spec.url)
    with contextlib.suppress(StoreError):
        guard.close()


# -- another file, or none -----------------------------------------------------------------------------------------


def emptied(path):
    path.write_bytes(b"")


def deleted(path):
    path.unlink()


def moved(path):
    path.rename(path.with_name("elsewhere.db"))


def exchanged(path):
    """Put a ledger that knows nothing in its place."""
    other = path.with_name("other.db")
    open_store(f"sqlite:///{other}", create=True).close()
    other.replace(path)


def restored_elsewhere(path):
    """Put a copy of itself in its place: another file, which has not seen what comes."""
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.replace(path)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("change", [emptied, deleted, moved, exchanged, restored_elsewhere, cut])
def test_a_file_that_is_not_the_one_that_was_opened(spec, change):
    """A process that has it open refuses every write, known or new, and executes nothing."""
    guard, _run = begun(spec)
    assert called(guard, spec).status == "ok"
    change(path_of(spec))
    for n in (1, 2, 3):
        outcome = called(guard, numbered(spec, n))
        assert (outcome.status, outcome.findings[0].code) == ("refused", "store_unavailable"), outcome
    assert len(receipts(spec)) == 1
    guard.close()


@pytest.mark.parametrize("change", [emptied, deleted, moved, cut])
def test_a_file_that_is_gone_is_not_made_anew(spec, change):
    """A process that starts after it is told what to do, and a forgotten ledger is no new one."""
    assert call(spec).status == "ok"
    change(path_of(spec))
    with pytest.raises(StoreError):
        open_store(spec.url)
    assert len(receipts(spec)) == 1


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_the_log_of_a_killed_process_is_deleted(spec, suffix):
    """Without its log a file forgets what was in it alone: nothing is claimed that the ledger cannot keep."""
    assert call(spec).status == "ok"
    guard, _run = begun(spec)
    assert called(guard, numbered(spec, 2)).status == "ok"
    path = path_of(spec)
    log = path.with_name(path.name + suffix)
    if not log.exists():
        pytest.skip(f"this library keeps no {suffix} beside the file")
    log.unlink()
    said = [called(guard, numbered(spec, n)) for n in (1, 2, 3, 3)]
    for outcome in said:
        assert outcome.ok or outcome.findings[0].code == "store_unavailable", outcome
    assert len(receipts(spec)) == len(set(receipts(spec))) <= 3
    guard.close()
    if all(outcome.ok for outcome in said):
        assert call(numbered(spec, 3)).status == "replayed"


# -- no right to read or write -------------------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import msgspec
from effects_stage import Spec, call, called, guarded
from pokayoke.errors import StoreError
spec = msgspec.json.decode(sys.argv[2], type=Spec)
call(Spec(url="memory://", folder=spec.folder))
call(msgspec.structs.replace(spec, arguments={"n": 1}))  # everything is loaded, and the ledger knows one effect
opened = guarded(spec) if sys.argv[3] == "opened" else None
os.chmod(spec.folder, 0o777)
os.chown(spec.folder + "/effects", 65534, 65534)
os.chown(spec.folder + "/starts", 65534, 65534)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    outcome = called(opened or guarded(spec), msgspec.structs.replace(spec, arguments={"n": 2}))
    print(outcome.status, outcome.findings[0].code, outcome.findings[0].message)
except StoreError as error:
    print("refused at_start", error)
"""


def as_nobody(spec, need, *, opened=False):
    """Make the call as a user without rights. Returns what it was told."""
    if os.getuid():
        need("root, which becomes another user")
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(HERE), msgspec.json.encode(spec).decode(), "opened" if opened else "new"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def reachable():
    """The same in a folder above which every user may pass."""
    with tempfile.TemporaryDirectory(prefix="effects-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "disk").mkdir()
        url = f"sqlite:///{folder}/disk/ledger.db"
        open_store(url, create=True).close()
        yield Spec(url=url, folder=name)


@pytest.mark.privileged
@pytest.mark.parametrize(
    ("mode", "folder_mode"),
    [(0o644, 0o755), (0o666, 0o755), (0o600, 0o755), (0o600, 0o777), (0o444, 0o777), (0o666, 0o700)],
    ids=["read-only", "folder read-only", "foreign", "foreign in open folder", "read-only in open folder", "folder closed"],
)  # fmt: skip
def test_a_ledger_that_may_not_be_written(reachable, need, mode, folder_mode):
    """Whoever lacks a right is told at the start or at the call, clearly, and nothing is executed."""
    path_of(reachable).chmod(mode)
    path_of(reachable).parent.chmod(folder_mode)
    said = as_nobody(reachable, need)
    assert said.startswith(("refused at_start", "refused store_unavailable")), said
    assert any(word in said for word in ("right", "belong", "read-only", "owns", "StoreError")), said
    assert {receipt.partition("-")[0] for receipt in receipts(reachable)} == {"1"}


def test_a_missing_folder_and_a_missing_file_are_told_apart(tmp_path):
    """The error at the start names what is missing and the command that makes it."""
    with pytest.raises(StoreError, match=r"folder .* is missing"):
        open_store(f"sqlite:///{tmp_path}/no/such/ledger.db")
    with pytest.raises(StoreError, match="ledger init"):
        open_store(f"sqlite:///{tmp_path}/ledger.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_goes_away_at_the_call(spec):
    """A store that was open refuses what its file cannot keep."""
    guard, _run = begun(spec)
    assert called(guard, spec).status == "ok"
    shutil.rmtree(path_of(spec).parent)
    assert called(guard, numbered(spec, 2)).findings[0].code == "store_unavailable"
    assert len(receipts(spec)) == 1
    guard.close()


# -- a full disk below PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture
def cramped(tmp_path, need, monkeypatch):
    """A PostgreSQL of its own on a small disk of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=90m,mode=1777", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode:
        need(f"root and the right to mount a tmpfs: {done.stderr.strip()}")
    for above in tmp_path.parents[:3]:  # one folder more where the suite runs in several processes
        if above.owner() == tmp_path.owner() and above != Path(tempfile.gettempdir()):
            above.chmod(0o711)
    tmp_path.chmod(0o711)
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    try:
        with Cluster(autovacuum="off") as cluster:
            open_store(cluster.url, create=True).close()
            yield Spec(url=joined(cluster.url, "act_timeout=2"), folder=str(tmp_path)), cluster.folder
    except Missing as error:
        need(str(error))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.privileged
def test_the_server_has_no_space_left(cramped):
    """Each write is done and told, done and doubted, or refused before its effect; with space it goes on."""
    spec, folder = cramped
    ground = Ground(spec.folder)

    def handler(n, memo="m"):
        ground.note("effects", n, receipt_of(n), memo)
        return {"receipt": random.Random(n).randbytes(9_000).hex()}

    guard, _run = begun(spec, contract=charge(spec, ground, handler=handler))
    assert called(guard, numbered(spec, 0)).status == "ok"
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 8_192)
    said = []
    for n in range(1, 400):
        outcome = called(guard, numbered(spec, n))
        said.append(outcome.findings[0].code if outcome.findings else outcome.status)
        if said.count("store_unavailable") == 5 or said.count("not_recorded") == 5:
            break
    assert set(said) <= {"ok", "not_recorded", "store_unavailable"}, said
    assert {"not_recorded", "store_unavailable"} & set(said), "the disk was not full"
    assert len(receipts(spec)) == 1 + said.count("ok") + said.count("not_recorded")
    filler.unlink()
    for n, word in enumerate(said, 1):
        later = changed(numbered(spec, n), clock=100.0)
        expected = {"ok": "replayed", "not_recorded": "in_doubt", "store_unavailable": "ok"}[word]
        assert call(later, contract=charge(spec, ground, handler=handler)).status == expected
    assert len(receipts(spec)) == len({receipt.partition("-")[0] for receipt in receipts(spec)}) == 1 + len(said)
    guard.close()
