"""Links, swaps, and paths that mean something else somewhere."""

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import time
from collections import Counter

import pytest

from pokayoke.errors import PathEscape
from pokayoke.runtime.files import confined_open as beneath
from pokayoke.runtime.files.roots import prepare_roots
from pokayoke.runtime.files.workspace import ConfinedPath, confine

INSIDE, OUTSIDE = "inside", "OUTSIDE"


@pytest.fixture(params=["openat2", "walk"])
def method(request, monkeypatch):
    """Both ways of reaching a file that promise to win races."""
    if request.param == "walk":
        monkeypatch.setattr(beneath, "_load_openat2", lambda: None)
    elif beneath.open_method() != "openat2":
        pytest.skip("this kernel has no openat2")
    return request.param


@pytest.fixture
def places(tmp_path):
    """A workspace with a folder and a file, and the same names outside of it."""
    root, outside = tmp_path / "ws", tmp_path / "outside"
    for folder, text in ((root, INSIDE), (outside, OUTSIDE)):
        (folder / "dir" / "deep").mkdir(parents=True)
        for name in ("f.txt", "dir/f.txt", "dir/deep/f.txt"):
            (folder / name).write_text(text)
    (tmp_path / "f.txt").write_text(OUTSIDE)
    return root, outside


SWAP = """
import ctypes, os, sys
exchange, one, two = ctypes.CDLL(None).renameat2, os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
parent = os.getppid()
print("go", flush=True)
while os.getppid() == parent:
    for _ in range(1_000):
        exchange(-100, one, -100, two, 2)
"""


@contextlib.contextmanager
def swapping(one, two):
    """Let another process exchange two directory entries, each time in one act, as fast as it can."""
    if getattr(ctypes.CDLL(None), "renameat2", None) is None:
        pytest.skip("needs renameat2, which exchanges two names in one act")
    with subprocess.Popen([sys.executable, "-c", SWAP, one, two], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"go\n"
        try:
            yield
        finally:
            process.kill()


def dir_and_link(root, outside):
    """A folder is exchanged with a link to the folder outside."""
    (root / "swap").symlink_to(outside / "dir")
    return root / "dir", root / "swap", "dir/f.txt"


def file_and_link(root, outside):
    """A file is exchanged with a link to the file outside."""
    (root / "swap").symlink_to(outside / "f.txt")
    return root / "f.txt", root / "swap", "f.txt"


def upper_and_link(root, outside):
    """A folder further up is exchanged, with a relative link."""
    (root / "swap").symlink_to("../outside/dir")
    return root / "dir", root / "swap", "dir/deep/f.txt"


def link_and_link(root, outside):
    """A link that stays inside is exchanged with one that leaves."""
    (root / "in").symlink_to("dir")
    (root / "swap").symlink_to("../outside/dir")
    return root / "in", root / "swap", "in/deep/f.txt"


def moved_out(root, outside):
    """A folder that holds a link with `..` is moved out of the workspace while the link is followed.

    Only read: what is written into a folder while it is moved away goes with it, by any method.
    """
    (root / "dir/deep/up").symlink_to("../../f.txt")
    (outside / "dir/deep/up").symlink_to("../../f.txt")
    (outside / "slot").mkdir()
    return root / "dir/deep", outside / "slot", "dir/deep/up"


def file_and_fifo(root, outside):
    """A file is exchanged with a FIFO nobody writes to."""
    os.mkfifo(root / "swap")
    return root / "f.txt", root / "swap", "f.txt"


RACES = [dir_and_link, file_and_link, upper_and_link, link_and_link, moved_out, file_and_fifo]


def attempt(path, mode):
    """Open once; return what came of it."""
    try:
        with path.open(mode) as file:
            if mode == "r":
                return file.read()
            file.write("")
            return INSIDE
    except PathEscape:
        return "refused"
    except OSError:
        return "missing"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("race", RACES)
def test_swapping_never_leads_outside(method, race, places, full, capsys):
    """However fast entries are exchanged, `.open` reads and writes inside the root or not at all."""
    root, outside = places
    one, two, relative = race(root, outside)
    path = ConfinedPath(str(root), relative)
    attempts = 100_000 if full else 1_500
    seen: Counter[str] = Counter()
    with swapping(one, two):
        for count in range(attempts):
            seen[attempt(path, "r" if count % 4 or race is moved_out else "a")] += 1
        # The figures prove something only if both sides of the swap were met.
        end = time.monotonic() + 20
        while (len(seen) < 2 or not seen[INSIDE]) and time.monotonic() < end:
            seen[attempt(path, "r")] += 1
    with capsys.disabled():
        print(f"\n    {method} {race.__name__}: {dict(seen)}", end="")
    assert seen[OUTSIDE] == 0
    assert seen[INSIDE] > 0
    assert seen["refused"] + seen["missing"] > 0
    assert [(outside / name).read_text() for name in ("f.txt", "dir/f.txt")] == [OUTSIDE, OUTSIDE]


@pytest.mark.timeout(120)
def test_the_swap_beats_resolve_then_open(places):
    """The attack is real: checking with resolve() and opening after it is led outside."""
    root, outside = places
    one, two, relative = dir_and_link(root, outside)
    led_out = False
    with swapping(one, two):
        end = time.monotonic() + 100
        while not led_out and time.monotonic() < end:
            with contextlib.suppress(OSError, RuntimeError):
                resolved = (root / relative).resolve()
                if resolved.is_relative_to(root):
                    led_out = (root / relative).read_text() == OUTSIDE
    assert led_out


def test_creating_and_removing_while_swapping(method, places, full):
    """Files and folders are made and removed inside the root or not at all."""
    root, outside = places
    one, two, _ = dir_and_link(root, outside)
    before = sorted(outside.rglob("*"))
    done: Counter[str] = Counter()
    with swapping(one, two):
        for count in range(20_000 if full else 500):
            for act in (
                lambda n=count: ConfinedPath(str(root), f"dir/new{n}").open("x").close(),
                lambda n=count: ConfinedPath(str(root), f"dir/made{n}/in").mkdir(parents=True),
                lambda n=count: ConfinedPath(str(root), f"dir/new{n}").unlink(),
                lambda: ConfinedPath(str(root), "dir/f.txt").unlink(),
            ):
                try:
                    act()
                    done["inside"] += 1
                except (PathEscape, OSError) as problem:
                    done[type(problem).__name__] += 1
    assert sorted(outside.rglob("*")) == before
    assert done["inside"] > 0
    assert done["PathEscape"] > 0


def test_symlinks(method, places):
    """A link that leaves is refused at the check and at the opening, wherever it stands."""
    root, outside = places
    for name, target in [("l1", outside), ("dir/l2", "../../outside"), ("l3", "dir/l2"), ("l4", "/"), ("l5", "..")]:
        (root / name).symlink_to(target)
        for path in (name, f"{name}/f.txt"):
            with pytest.raises(PathEscape):
                confine(path, prepare_roots(root))
            with pytest.raises(PathEscape):
                ConfinedPath(str(root), path).open()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "\0",
        "f.txt\0.png",
        "..\\..\\x",
        "dir\\..\\..\\x",
        "C:\\x",
        "C:x",
        "C:/x",
        "c:",
        "\\\\server\\share\\x",
        "//server/share/x",
        "\\\\?\\C:\\x",
        "\\\\.\\COM1",
        "\\??\\C:\\x",
        "CON",
        "nul.txt",
        "dir/COM1",
        "dir/lpt1.log",
        "aux.",
        "/proc/self/root",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/f.txt",
        "/dev/fd/0",
        "/dev/null",
        "/dev/stdin",
        "~/f.txt",
        "~root",
        "../f.txt",
        "dir/../../f.txt",
        "..",
        "/",
        "/etc/passwd",
        "../ws-evil/x",
        "..%2ff.txt",
        "%2e%2e/f.txt",
        "..%c0%af..%2ff.txt",
        "..／f.txt",
        "．．/f.txt",
        "....//f.txt/../../../f.txt",
        "file:///etc/passwd",
        "\ud800",
        "f.txt\n",
        "f.txt ",
        ".. /f.txt",
        "x" * 300,
        "x/" * 5_000,
    ],
)
def test_forms(path, places):
    """Forms that leave the workspace on some system are refused on this one."""
    root, _ = places
    with pytest.raises(PathEscape) as caught:
        confine(path, prepare_roots(root))
    assert caught.value.finding.code in {"path_escape", "bad_path"}
    assert str(root) not in caught.value.finding.hint


def test_special_files(method, places):
    """FIFOs, sockets and files with a second name are refused, and nothing waits."""
    root, outside = places
    os.mkfifo(root / "fifo")
    os.link(outside / "f.txt", root / "hard")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)  # socket paths are short
        server.bind("socket")
        os.chdir(here)
        for name in ("fifo", "socket", "hard"):
            with pytest.raises(PathEscape):
                confine(name, prepare_roots(root))
            for mode in ("r", "w", "a", "r+b"):
                with pytest.raises(PathEscape):
                    ConfinedPath(str(root), name).open(mode)
    assert (outside / "f.txt").read_text() == OUTSIDE


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and /dev are those of Linux")
def test_magic_links_and_devices(method):
    """Magic links and devices are refused even when their folder is the workspace."""
    for root, names in [
        ("/proc", ["self/root/etc/passwd", "self/cwd", "self/fd/0", "self/exe", "1/root"]),
        ("/dev", ["null", "zero", "tty", "fd/0", "stdin"]),
    ]:
        for name in names:
            with pytest.raises(PathEscape):
                confine(name, root, must_exist=True)
            with pytest.raises((PathEscape, OSError)):
                ConfinedPath(root, name).open("rb")
