"""Reach a file below a root so that no link, rename or swap on the way can lead outside.

In: an absolute root without any symbolic link in its path; a relative path with / between names and no `.` or
    `..` (as `pokayoke.core.gate.paths.normalise` returns it).
Out: a descriptor, a status or names; or an OSError. With errno EXDEV the path leaves the root; `RootMoved`
    means that the root itself has changed.
Never: anything outside the root.

Three methods, chosen once per process:

- `openat2` (Linux 5.6 and later): one system call with RESOLVE_NO_SYMLINKS for the whole path. No link (magic
  links of /proc included) is followed and no `..` exists, so the result lies below the root by construction.
  This is stricter than RESOLVE_BENEATH and keeps no directory open, so there is nothing to share between threads
  or to lose in a fork. Where it meets a link, the walk takes over.
- `walk` (any POSIX system): one name at a time, each opened with O_NOFOLLOW relative to the directory before it.
  A link is read and spliced into the path, and the walk starts again at the root; a target outside the root is
  refused, an absolute one inside it is followed.
- `resolve` (Windows): the path is resolved, compared with the root, then opened. Another process that swaps a
  directory for a link between those two steps can get through: on Windows links that leave the root are refused,
  but races are not prevented.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from stat import S_ISLNK
from typing import Literal, TypeVar

_T = TypeVar("_T")
Method = Literal["openat2", "walk", "resolve"]
PathAction = Callable[[int | None, str], _T]
"""The final action: gets a directory (None on Windows) and a name in it. ELOOP means that the name is a link."""

MAX_RESTARTS = 100
"""Links and `..` in link targets to follow before a path is refused (Linux allows 40 links)."""

_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)
_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
_NO_FILE: int = getattr(os, "O_DIRECTORY", 0)
_DIRECTORY: int = _PATH_ONLY | _NO_FILE | _NOFOLLOW | _CLOEXEC
_CREATED_MODE = 0o666  # before the umask
_SYS_OPENAT2 = 437
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04
_HOW_BYTES = 24
_MOVED = "the root is not the directory it was"
# Errors for opening a link with O_NOFOLLOW: on Linux and macOS, with O_DIRECTORY, on FreeBSD.
_MAYBE_LINK = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})


class RootMoved(OSError):  # noqa: N818 - the name says what happened
    """The root is gone, or a link was put into its path after it was prepared."""


@functools.cache
def _open_how(flags: int, mode: int) -> bytes:
    """Return `struct open_how`: three 64-bit integers. The kernel only reads it."""
    return b"".join(part.to_bytes(8, sys.byteorder) for part in (flags, mode, _RESOLVE_NO_SYMLINKS))


@functools.cache
def _load_openat2() -> Callable[[bytes, int, int], int] | None:
    """Return the system call as a function of (path, flags, mode), or None where there is none."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - milliseconds of import, needed by users of paths only

    # Saving `errno` costs a tenth of a call, so only a call that has failed is repeated with it.
    call, again = ctypes.CDLL(None).syscall, ctypes.CDLL(None, use_errno=True).syscall
    call.restype = again.restype = ctypes.c_long
    get_errno = ctypes.get_errno
    # Converted once: that takes a fifth of the time of a call. Bytes are passed as pointers to themselves.
    number, here, size = ctypes.c_long(_SYS_OPENAT2), ctypes.c_long(_AT_FDCWD), ctypes.c_size_t(_HOW_BYTES)

    looking = _open_how(_PATH_ONLY | _CLOEXEC, 0)

    def openat2(path: bytes, flags: int, mode: int) -> int:
        how = looking if flags == _PATH_ONLY else _open_how(flags | _CLOEXEC, mode)
        fd: int = call(number, here, path, how, size)
        if fd < 0:
            fd = again(number, here, path, how, size)
        if fd < 0:
            problem = get_errno()
            raise OSError(problem, os.strerror(problem))
        return fd

    try:
        os.close(openat2(b"/", _PATH_ONLY, 0))
    except OSError:  # an older kernel, or a sandbox that blocks the call
        return None
    return openat2


def open_method() -> Method:
    """Return how paths are opened in this process."""
    if _load_openat2() is not None:
        return "openat2"
    return "walk" if os.open in os.supports_dir_fd else "resolve"


def open_fd(root: str, relative: str, flags: int) -> int:
    """Open a file below a root.

    Args:
        root: absolute path of the root, without links.
        relative: path below it, "." for the root itself.
        flags: as for os.open; O_CLOEXEC is added. Not O_PATH.

    Returns:
        a file descriptor.

    Raises:
        OSError: as os.open does; EXDEV if the path leaves the root.
    """
    fd = _open_at_once(root, relative, flags)
    if fd is not None:
        return fd

    def open_last(directory: int | None, name: str) -> int:
        return os.open(name, flags | _NOFOLLOW | _CLOEXEC, _CREATED_MODE, dir_fd=directory)

    return walk_to(root, relative, open_last)


def stat_confined(root: str, relative: str) -> os.stat_result:
    """Return the status of a path below a root, links followed, without opening the file.

    Raises:
        OSError: as os.stat does; EXDEV if the path leaves the root.
    """
    call = _load_openat2()
    if call is not None:
        try:
            fd = call(f"{root}/{relative}".encode("utf-8", "surrogateescape"), _PATH_ONLY, 0)
        except OSError as problem:
            _reraise_unless_link(root, problem)
        else:
            try:
                return os.fstat(fd)
            finally:
                os.close(fd)

    def stat_last(directory: int | None, name: str) -> os.stat_result:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return found

    return walk_to(root, relative, stat_last)


def list_names(root: str, relative: str) -> list[str]:
    """Return the names in a folder below a root, in no order.

    Raises:
        OSError: as os.listdir does; EXDEV if the path leaves the root.
    """
    if open_method() == "resolve":
        return walk_to(root, relative, lambda _, path: os.listdir(path))  # noqa: PTH208 - names
    fd = open_fd(root, relative, os.O_RDONLY | _NO_FILE)
    try:
        return os.listdir(fd)  # noqa: PTH208 - of a descriptor
    finally:
        os.close(fd)


def walk_to(root: str, relative: str, act: PathAction[_T], *, follow: bool = True) -> _T:
    """Walk to the directory that holds a path's last name, and act there.

    Args:
        root: absolute path of the root, without links.
        relative: path below it.
        act: the action; called with the directory and the last name.
        follow: True if a link at the end is followed, False to act on the link itself.

    Returns:
        what `act` returns.

    Raises:
        OSError: raised by `act`, or the reason why the directory cannot be reached; EXDEV if the path leaves.
    """
    if open_method() == "resolve":
        return act(None, _resolve_path(root, relative, follow=follow))
    names = relative.split("/")
    for _ in range(MAX_RESTARTS):
        answer = _walk_once(root, names, act)
        if isinstance(answer, tuple):
            return answer[0]
        names = answer
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _open_at_once(root: str, relative: str, flags: int) -> int | None:
    """Open with one system call; None where that is not possible, or where a link is in the way."""
    call = _load_openat2()
    if call is None:
        return None
    try:
        mode = _CREATED_MODE if flags & os.O_CREAT else 0
        return call(f"{root}/{relative}".encode("utf-8", "surrogateescape"), flags, mode)
    except OSError as problem:
        _reraise_unless_link(root, problem)
        return None


def _reraise_unless_link(root: str, problem: OSError) -> None:
    """Raise the problem, unless it is only a link in the way."""
    if problem.errno == errno.ELOOP:
        return
    if problem.errno == errno.ENOENT:
        os.close(_open_root(root))  # a missing root is not a missing file
    raise problem


def _open_root(root: str) -> int:
    """Open the root directory; no component of its path may be a link."""
    call = _load_openat2()
    try:
        if call is not None:
            return call(os.fsencode(root), _DIRECTORY, 0)
        fd = os.open("/", _DIRECTORY)
        for name in root.split("/")[1:]:
            try:
                below = os.open(name, _DIRECTORY, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
    except OSError as problem:
        raise RootMoved(problem.errno, _MOVED) from problem
    return fd


def _walk_once(root: str, names: list[str], act: PathAction[_T]) -> tuple[_T] | list[str]:
    """Walk once; return (result of `act`,), or the names to walk after a link was spliced in.

    Names before the current one were opened without following a link, so `..` may drop the last of them.
    """
    fd = _open_root(root)
    try:
        for index, name in enumerate(names[:-1]):
            if name == "..":
                return _step_up(names, index)
            try:
                below = os.open(name, _DIRECTORY, dir_fd=fd)
            except OSError as problem:
                return _splice_link(root, names, index, _read_link(fd, name, problem))
            os.close(fd)
            fd = below
        if names[-1] == "..":
            return _step_up(names, len(names) - 1)
        try:
            return (act(fd, names[-1]),)
        except OSError as problem:
            return _splice_link(root, names, len(names) - 1, _read_link(fd, names[-1], problem))
    finally:
        os.close(fd)


def _read_link(directory: int, name: str, problem: OSError) -> str:
    """Return the target of a link; raise the earlier problem if the name is not a link."""
    if problem.errno not in _MAYBE_LINK:
        raise problem
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        raise problem from None


def _splice_link(root: str, names: list[str], index: int, target: str) -> list[str]:
    """Return the names to walk when the one at `index` is a link to `target`."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    before = names[:index]
    if target.startswith("/"):
        base = [part for part in root.split("/") if part]
        if parts[: len(base)] != base:
            raise _escape_error()
        parts, before = parts[len(base) :], []
    return [*before, *parts, *names[index + 1 :]] or ["."]


def _step_up(names: list[str], index: int) -> list[str]:
    """Return the names without the `..` at `index` and the name before it."""
    if index == 0:
        raise _escape_error()
    return [*names[: index - 1], *names[index + 1 :]] or ["."]


def _resolve_path(root: str, relative: str, *, follow: bool) -> str:
    """Resolve a path and compare it with the root: for systems that cannot open relative to a directory."""
    head, _, last = relative.rpartition("/")
    base = Path(root)
    if not base.is_dir():
        raise RootMoved(errno.ENOENT, _MOVED)
    full = Path(os.path.realpath(base / (relative if follow else head)))
    if not full.is_relative_to(base):
        raise _escape_error()
    return str(full if follow else full / last)


def _escape_error() -> OSError:
    """Return the error that says a path leaves its root."""
    return OSError(errno.EXDEV, os.strerror(errno.EXDEV))
