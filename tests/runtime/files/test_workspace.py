"""Workspaces: every path ends inside its root or in a refusal, with each method of reaching it."""

import contextlib
import copy
import errno
import os
import pickle
import socket
import sys
from pathlib import Path

import msgspec
import orjson
import pytest

from pokayoke.core.finding_codes import CODES_BY_ROOM
from pokayoke.core.gate.paths import check_path
from pokayoke.errors import ConfigurationError, PathEscape
from pokayoke.runtime.files import confined_open as beneath
from pokayoke.runtime.files import roots
from pokayoke.runtime.files.roots import prepare_roots
from pokayoke.runtime.files.workspace import ConfinedPath, confine, open_beneath

METHODS = ["openat2", "walk", "resolve"]


def force(monkeypatch, method):
    """Make this process reach files by the named method."""
    if method == "openat2":
        if beneath.open_method() != "openat2":
            pytest.skip("this kernel has no openat2")
        return
    monkeypatch.setattr(beneath, "_load_openat2", lambda: None)
    monkeypatch.setattr(beneath, "open_method", lambda: method)


@pytest.fixture(params=METHODS)
def method(request, monkeypatch):
    """Each way of reaching a file, forced."""
    force(monkeypatch, request.param)
    return request.param


@pytest.fixture
def outside(tmp_path):
    """A folder beside the workspace, with a secret."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def root(tmp_path, outside):
    """A workspace with files, folders, and links of every kind."""
    ws = tmp_path / "ws"
    (ws / "dir" / "deep").mkdir(parents=True)
    (ws / "a.txt").write_text("a")
    (ws / "dir" / "b.txt").write_text("b")
    links = {
        "in": "dir",
        "in_file": "dir/b.txt",
        "in_up": "dir/deep/../b.txt",
        "dir/deep/up": "../../a.txt",
        "in_abs": ws / "dir",
        "in_dots": "dir/deep/..",
        "in_self": ".",
        "in_root": ws,
        "via": "in/deep/up",
        "in_new": "dir/new.txt",
        "out": outside,
        "out_file": outside / "secret.txt",
        "out_rel": "../outside",
        "out_sly": "dir/../../outside/secret.txt",
        "out_hop": "in/../../outside",
        "out_new": outside / "new.txt",
        "out_two": "out_rel/secret.txt",
        "out_proc": "/proc/self/root",
        "out_prefix": f"{ws}-evil",
        "loop": "loop",
        "pong": "ping",
        "ping": "pong",
    }
    for name, target in links.items():
        (ws / name).symlink_to(target)
    return ws


def read(confined):
    """Return the text of a confined file, and close it."""
    with confined.open() as file:
        return file.read()


def refused(act, *args, **kwargs):
    """Return the code of the finding an act is refused with."""
    with pytest.raises(PathEscape) as caught:
        act(*args, **kwargs)
    finding = caught.value.finding
    assert finding.code in {*CODES_BY_ROOM["gate"], *CODES_BY_ROOM["files"]}
    assert str(caught.value) == finding.message
    assert 0 < len(finding.hint) < 600
    return finding.code


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.txt", "a"),
        ("dir/b.txt", "b"),
        ("in/b.txt", "b"),
        ("in_file", "b"),
        ("in_up", "b"),
        ("via", "a"),
        ("in_abs/b.txt", "b"),
        ("in_dots/b.txt", "b"),
        ("in_self/in_self/a.txt", "a"),
        ("in_root/dir/b.txt", "b"),
        ("dir/../a.txt", "a"),
    ],
)
def test_links_that_stay_inside_are_followed(method, root, path, text):
    """A file reached directly or over links inside the root opens, and reads as itself."""
    confined = confine(path, prepare_roots(root))
    assert read(confined) == text
    assert confined.exists()
    assert str(confined).startswith(f"{root}/")
    assert Path(confined).read_text() == text


@pytest.mark.parametrize(
    "path",
    [
        "out/secret.txt",
        "out",
        "out_file",
        "out_rel/secret.txt",
        "out_sly",
        "out_hop/secret.txt",
        "out_new",
        "out_two",
        "in/../out/secret.txt",
        "out_proc/etc/passwd",
        "out_prefix",
        "loop",
        "ping/x",
    ],
)
def test_links_that_leave_are_refused(method, root, outside, path):
    """A link to the outside is refused when it is confined and when it is opened, for reading and writing."""
    Path(f"{root}-evil").mkdir()
    assert refused(confine, path, prepare_roots(root)) == "path_escape"
    confined = ConfinedPath(str(root), path if ".." not in path else "out_file")
    for mode in ("r", "w", "a", "rb", "r+b"):
        assert refused(confined.open, mode) == "path_escape"
    assert not confined.exists()
    assert sorted(p.name for p in outside.iterdir()) == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "secret"


def test_new_files_and_folders(method, root):
    """What does not exist yet may be confined and made, also over a link that points inside."""
    roots = prepare_roots(root)
    for path in ("new.txt", "dir/new2.txt", "in_new", "in/new3.txt"):
        confined = confine(path, roots)
        assert not confined.exists()
        with confined.open("w") as file:
            file.write("ä")
        assert (root / path).read_bytes() == "ä".encode()
    assert (root / "dir/new.txt").read_text(encoding="utf-8") == "ä"
    with pytest.raises(FileExistsError):
        confine("new.txt", roots).open("x")
    with confine("new.txt", roots).open("a") as file:
        file.write("b")
    with confine("new.txt", roots).open("w") as file:
        file.write("c")
    assert (root / "new.txt").read_text() == "c"
    with pytest.raises(FileNotFoundError):
        confine("no/such/folder.txt", roots).open("w")


def test_make_list_and_remove(method, root):
    """Folders are made, listed and files removed inside the root; a link is removed, not its target."""
    roots = prepare_roots(root)
    confine("x/y/z", roots).mkdir(parents=True)
    confine("x/y/z", roots).mkdir(parents=True, exist_ok=True)
    confine("x/one", roots).mkdir()
    assert confine("x", roots).names() == ["one", "y"]
    assert confine("in_dots", roots).names() == ["b.txt", "deep"]
    with pytest.raises(FileExistsError):
        confine("x", roots).mkdir()
    with pytest.raises(FileExistsError):
        confine("a.txt", roots).mkdir(exist_ok=True)
    with pytest.raises(FileNotFoundError):
        confine("q/r", roots).mkdir()
    confine("in_file", roots).unlink()
    assert (root / "dir/b.txt").exists()
    confine("dir/b.txt", roots).unlink()
    confine("dir/b.txt", roots).unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        confine("dir/b.txt", roots).unlink()
    with pytest.raises(NotADirectoryError):
        confine("a.txt", roots).names()


def test_make_list_and_remove_stay_inside(method, root, outside):
    """Nothing is made, listed or removed outside, even by a path that was never confined."""
    for relative, act in [
        ("out/new", ConfinedPath.mkdir),
        ("out_rel/new", lambda path: path.mkdir(parents=True)),
        ("out/secret.txt", ConfinedPath.unlink),
        ("out", ConfinedPath.names),
    ]:
        assert refused(act, ConfinedPath(str(root), relative)) == "path_escape"
    assert [p.name for p in outside.iterdir()] == ["secret.txt"]


def test_the_root_itself(method, root):
    """The root can be confined and listed, and opens as little as any folder."""
    confined = confine(".", prepare_roots(root))
    assert (str(confined), confined.relative) == (str(root), ".")
    assert "a.txt" in confined.names()
    with pytest.raises(IsADirectoryError):
        confined.open()
    with pytest.raises(OSError, match="irectory"):
        confined.open("w")


def test_only_ordinary_files(method, root):
    """FIFOs, sockets and devices are refused at once, for reading and writing, and never wait."""
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)  # socket paths are short
        server.bind("socket")
        os.chdir(here)
        for name in ("fifo", "socket"):
            assert refused(confine, name, prepare_roots(root)) == "special_file"
            for mode in ("rb", "wb", "r+b"):
                assert refused(ConfinedPath(str(root), name).open, mode) == "special_file"


@pytest.mark.skipif(sys.platform != "linux", reason="names the device folder of Linux")
def test_devices(method):
    """A device below a root is refused; a terminal does not become the controlling one."""
    for name in ("null", "zero"):
        assert refused(confine, name, ("/dev",)) == "special_file"
        assert refused(ConfinedPath("/dev", name).open, "rb") == "special_file"


def test_hard_links(method, root, outside):
    """A file with a second name is refused and left untouched, unless the workspace allows such files."""
    os.link(outside / "secret.txt", root / "hard.txt")
    roots = prepare_roots(root)
    assert refused(confine, "hard.txt", roots) == "hard_link"
    for mode in ("r", "w", "a"):
        assert refused(ConfinedPath(str(root), "hard.txt").open, mode) == "hard_link"
    assert (outside / "secret.txt").read_text() == "secret"
    assert read(confine("hard.txt", roots, hard_links=True)) == "secret"
    with open_beneath(str(root), "hard.txt", hard_links=True) as file:
        assert file.read() == "secret"


def test_lexical_rules_come_first(method, root):
    """A malformed path never reaches the disk."""
    roots = prepare_roots(root)
    for path in ("", "../x", "C:\\x", "a\0b", "/etc/passwd", 7):
        assert refused(confine, path, roots) in {"bad_path", "path_escape"}
    assert refused(open_beneath, str(root), "../outside/secret.txt") == "path_escape"
    with open_beneath(str(root), "./a.txt", "rb") as file:
        assert file.read() == b"a"
    assert confine(Path("a.txt"), str(root)) == f"{root}/a.txt"


def test_a_root_is_written_as_programmers_write_it(method, root, tmp_path, monkeypatch):
    """A relative root, a slash at its end and a detour mean the folder they mean now, also after a change of folder."""
    (tmp_path / "sub").mkdir()
    for folder, spelt in (
        (root.parent, root.name),
        (root.parent, f"{root.name}/"),
        (tmp_path / "sub", f"../{root.name}"),
    ):
        monkeypatch.chdir(folder)
        with open_beneath(spelt, "a.txt", "rb") as file:
            assert file.read() == b"a"
        assert confine("a.txt", spelt) == f"{root}/a.txt"
    other = tmp_path / "sub" / root.name
    other.mkdir()
    (other / "a.txt").write_text("other")
    monkeypatch.chdir(tmp_path / "sub")
    with open_beneath(root.name, "a.txt") as file:
        assert file.read() == "other"
    for wrong in ("missing", ""):
        with pytest.raises(ConfigurationError):
            open_beneath(wrong, "a.txt")


def test_what_cannot_be_reached(method, root):
    """A missing file, a file used as a folder and an overlong whole are told apart."""
    roots = prepare_roots(root)
    assert refused(confine, "missing", roots, must_exist=True) == "path_missing"
    assert refused(confine, "a.txt/b", roots) == "bad_path"
    with pytest.raises(NotADirectoryError):
        ConfinedPath(str(root), "a.txt/b").open()


def test_host_trouble_is_not_blamed_on_the_model(root, monkeypatch):
    """An error of the machine is a refusal that blames the host, never another exception."""

    def full(*_):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(beneath, "stat_confined", full)
    with pytest.raises(PathEscape) as caught:
        confine("a.txt", prepare_roots(root), at="/path")
    assert (caught.value.finding.code, caught.value.finding.blame) == ("path_unreachable", "host")
    assert caught.value.finding.at == "/path"


def test_a_root_that_disappears(method, root):
    """When the root is gone, nothing is created anywhere and the host is blamed."""
    roots = prepare_roots(root)
    confined = confine("new.txt", roots)
    root.rename(root.with_name("elsewhere"))
    assert refused(confine, "a.txt", roots) == "root_moved"
    assert refused(confine, "new.txt", roots) == "root_moved"
    assert refused(confined.open, "w") == "root_moved"


def test_a_root_swapped_for_a_link(method, root, outside):
    """A link put where the root was is not followed."""
    if method == "resolve":
        pytest.skip("this method resolves the root with the path")
    roots = prepare_roots(root)
    confined = confine("new.txt", roots)
    root.rename(root.with_name("elsewhere"))
    root.symlink_to(outside)
    assert refused(confine, "secret.txt", roots) == "root_moved"
    assert refused(confined.open, "w") == "root_moved"
    assert [p.name for p in outside.iterdir()] == ["secret.txt"]


def test_a_root_made_anew_is_the_root(method, root):
    """A root is a place: a new folder under the same path is used, the one moved away is not."""
    roots = prepare_roots(root)
    old = root.with_name("old")
    root.rename(old)
    root.mkdir()
    confine("n.txt", roots).open("w").close()
    assert (root / "n.txt").exists()
    assert not (old / "n.txt").exists()


def test_a_root_behind_a_link(method, tmp_path, root, outside):
    """A root declared through a link accepts both spellings, and is refused once the link points elsewhere."""
    link = tmp_path / "current"
    link.symlink_to(root)
    roots = prepare_roots(link)
    assert roots == (str(link), str(root))
    for path in ("a.txt", f"{link}/a.txt", f"{root}/a.txt"):
        assert check_path(path, roots) is None
        assert confine(path, roots) == f"{root}/a.txt"
    link.unlink()
    assert refused(confine, "a.txt", roots) == "root_moved"
    link.symlink_to(outside)
    assert refused(confine, "secret.txt", roots) == "root_moved"
    assert confine("secret.txt", prepare_roots(link)) == f"{outside}/secret.txt"


def test_several_roots(method, tmp_path):
    """A relative path belongs to the root that has it, the first if none has, and to none if several have."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "both.txt").write_text(folder.name)
        (folder / f"{folder.name}.txt").write_text(folder.name)
    (one / "file").write_text("")
    (two / "file").mkdir()
    (two / "file" / "x").write_text("")
    roots = prepare_roots([one, two])
    assert confine("two.txt", roots).root == str(two)
    assert confine("one.txt", roots).root == str(one)
    assert confine("new.txt", roots).root == str(one)
    assert confine("file/x", roots).root == str(two)
    assert confine(".", roots).root == str(one)
    assert refused(confine, "both.txt", roots) == "path_ambiguous"
    assert read(confine(f"{two}/both.txt", roots)) == "two"


@pytest.mark.parametrize("roots", [[], "", "/", "no-such-folder", "a\0b", "half\ud800", __file__, ["."] * 2 + ["/"]])
def test_roots_that_cannot_work(roots):
    """A root that is missing, no folder, or the whole disk is the programmer's error."""
    with pytest.raises(ConfigurationError):
        prepare_roots(roots)


def test_roots_that_were_never_prepared(root):
    """Unprepared roots are prepared at first use; a missing one is still the programmer's error."""
    assert confine("a.txt", str(root)) == confine("a.txt", (str(root),))
    with pytest.raises(ConfigurationError):
        confine("a.txt", ())
    with pytest.raises(ConfigurationError):
        confine("a.txt", str(root / "no"))


def test_prepared_roots_are_bounded(root, monkeypatch):
    """Roots made per run do not fill the memory."""
    monkeypatch.setattr(roots, "MOST_WORKSPACES", 3)
    monkeypatch.setattr(roots, "_workspaces", {})
    for index in range(10):
        (root / f"r{index}").mkdir()
        confine("x", str(root / f"r{index}"))
    assert len(roots._workspaces) <= 3


def test_prepared_roots_outlive_any_number_of_others(tmp_path, root, outside, monkeypatch):
    """What was resolved at registration is never resolved again: a link in the root's place stays refused."""
    monkeypatch.setattr(roots, "MOST_WORKSPACES", 3)
    prepared = prepare_roots(root)
    root.rename(root.with_name("elsewhere"))
    root.symlink_to(outside)
    for index in range(5):
        (tmp_path / f"r{index}").mkdir()
        prepare_roots(tmp_path / f"r{index}")
        confine("x", str(tmp_path / f"r{index}"))
    assert refused(confine, "secret.txt", prepared) == "root_moved"
    root.unlink()
    assert refused(confine, "secret.txt", prepared) == "root_moved"


def test_relative_roots_count_from_here(root, monkeypatch):
    """A relative root is fixed when it is prepared, whatever the current folder is later."""
    monkeypatch.chdir(root)
    roots = prepare_roots("dir")
    monkeypatch.chdir("/")
    assert confine("b.txt", roots) == f"{root}/dir/b.txt"


def test_a_confined_path_is_a_string(root):
    """It serialises as text, and a copy knows its root."""
    confined = confine("dir/b.txt", prepare_roots(root))
    assert orjson.dumps({"p": confined}) == msgspec.json.encode({"p": str(confined)})
    for twin in (copy.copy(confined), copy.deepcopy(confined), pickle.loads(pickle.dumps(confined))):
        assert (twin, twin.root, twin.relative, twin.hard_links) == (confined, str(root), "dir/b.txt", False)


@pytest.mark.parametrize(
    "relative", ["..", "../outside/secret.txt", "dir/../../outside/secret.txt", "a.txt/../../x", "/etc/passwd", "a\0b"]
)
def test_a_path_joined_by_hand_leads_nowhere_else(root, relative):
    """Joined by hand, copied or read from a pickle: what leaves the root by its text alone is no confined path."""
    inside = ConfinedPath(str(root), "dir")
    assert refused(ConfinedPath, str(root), relative) in ("path_escape", "bad_path")
    assert refused(ConfinedPath, inside.root, f"{inside.relative}/../../{relative}") in ("path_escape", "bad_path")
    forged = pickle.dumps(ConfinedPath(str(root), "x" * len(relative))).replace(
        ("x" * len(relative)).encode(), relative.encode()
    )
    assert refused(pickle.loads, forged) in ("path_escape", "bad_path")


def test_a_path_joined_by_hand_is_worked_out(method, root):
    """`..` that stays inside means what it means in every other path, and dots in a name are dots."""
    joined = ConfinedPath(str(root), "dir/deep/../b.txt")
    assert (joined, joined.relative, read(joined)) == (f"{root}/dir/b.txt", "dir/b.txt", "b")
    assert ConfinedPath(str(root), "dir/..").relative == "."
    assert ConfinedPath(str(root), "a..b").relative == "a..b"


def test_no_descriptor_is_lost(method, root):
    """Success, refusal and failure all close what they opened."""
    fds = "/proc/self/fd"
    if not os.path.isdir(fds):
        pytest.skip("counts open files where /proc shows them")
    os.mkfifo(root / "fifo")
    roots = prepare_roots(root)
    before = len(os.listdir(fds))
    for path in ("a.txt", "via", "out_file", "loop", "missing", "a.txt/b", "fifo", "dir", "in_new"):
        for act in (
            lambda p=path: confine(p, roots),
            lambda p=path: ConfinedPath(str(root), p).open("r+").close(),
            lambda p=path: ConfinedPath(str(root), p).names(),
            lambda p=path: ConfinedPath(str(root), p).mkdir(parents=True),
        ):
            with contextlib.suppress(OSError, PathEscape):
                act()
    assert len(os.listdir(fds)) == before


def test_descriptors_are_not_inherited(method, root):
    """A program started meanwhile does not get the file."""
    with confine("a.txt", prepare_roots(root)).open() as file:
        assert not os.get_inheritable(file.fileno())


def test_many_links_end(method, root):
    """A chain of links longer than the limit is refused, a short one followed."""
    if method == "resolve":
        pytest.skip("the operating system counts")
    for index in range(beneath.MAX_RESTARTS + 5):
        (root / f"l{index}").symlink_to(f"l{index + 1}" if index else "l1")
    (root / f"l{beneath.MAX_RESTARTS + 5}").write_text("end")
    assert refused(confine, "l0", prepare_roots(root)) == "path_escape"
    assert read(confine(f"l{beneath.MAX_RESTARTS}", prepare_roots(root))) == "end"


def test_without_the_system_call(monkeypatch):
    """Where the kernel lacks the call, or the system is another, the walk is chosen."""
    monkeypatch.setattr(beneath, "_load_openat2", lambda: None)
    assert beneath.open_method() == "walk"
    monkeypatch.setattr(os, "supports_dir_fd", set())
    assert beneath.open_method() == "resolve"


def test_the_probe_of_the_system_call(monkeypatch):
    """An unknown call number is taken for an old kernel, another platform is never asked."""
    probe = beneath._load_openat2.__wrapped__
    monkeypatch.setattr(beneath, "_SYS_OPENAT2", 100_000)
    assert probe() is None
    monkeypatch.setattr(beneath.sys, "platform", "other")
    assert probe() is None
