"""A Python process that lacks what macOS or Windows lack, for tests that run on Linux.

    python other_system.py macos|windows SCRIPT [ARGUMENT...]

Everything is taken away before the script, and so before pokayoke, is loaded. It is not the other system: it
has no drive letters and no other C library; it shows what happens where an ability is missing.
"""

import builtins
import contextlib
import io
import os
import sys

_FLAGS = ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "O_PATH", "O_NOCTTY")
_CALLS = (  # all but `sysconf`, which asyncio calls as soon as it is loaded
    *("register_at_fork", "fork", "forkpty", "killpg", "waitid", "setsid", "getpgid", "fchmod", "fchown", "chown"),
    *("getuid", "geteuid", "uname", "pread", "pwrite", "statvfs", "fstatvfs", "sched_getaffinity"),
    *("getgid", "getegid", "getgroups", "getpgrp", "getsid", "setpgid", "lchown", "mkfifo", "mknod", "nice", "openpty"),
    *("pipe2", "preadv", "pwritev", "readv", "writev", "lockf", "sync", "fdatasync", "fchdir", "ttyname"),
    *("confstr", "getloadavg", "environb", "getenvb", "wait", "wait3", "wait4"),
)
_SIGNALS = (
    *("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP"),
    *("SIGCONT", "SIGWINCH", "pthread_sigmask", "pthread_kill", "setitimer", "alarm", "sigwait", "pause"),
)
_MODULES = ("fcntl", "pwd", "grp", "pty", "resource", "syslog", "termios", "tty")
_LINUX_ONLY = ("O_PATH", "sched_getaffinity", "sched_setaffinity", "waitid", "pidfd_open", "fdatasync", "pipe2")
"""What macOS lacks; it has `waitid` since Python 3.13."""
_BINARY = 0o100000  # O_LARGEFILE on Linux, where it changes nothing


def main(system, script, *arguments):
    """Become the other system, then run the script."""
    import sysconfig  # noqa: PLC0415 - with the next one: both read files that are named after the system
    import urllib.request  # noqa: PLC0415, F401

    with contextlib.suppress(ImportError):  # compiled for this system, and loaded by the packages of others
        import psutil  # noqa: PLC0415, F401

    sysconfig.get_config_vars()
    real = os.listdir, os.readlink
    _hide_proc()
    sys.platform = {"macos": "darwin", "windows": "other"}[system]
    _take_away(os, _LINUX_ONLY)
    if system == "windows":
        _become_windows(*real)
    sys.argv = [script, *arguments]
    with open(script, encoding="utf-8") as file:
        code = compile(file.read(), script, "exec")
    exec(code, {"__name__": "__main__", "__file__": script})


def _take_away(module, names):
    for name in names:
        if hasattr(module, name):  # no system has all of them, and nothing is missing twice
            delattr(module, name)


def _take_away_modules():
    """Nothing but the packages of others can import what Windows lacks.

    They ask `sys.platform`, which cannot say "win32" here: the standard library itself would follow it.
    """
    real = builtins.__import__

    def import_there(name, *rest, **named):
        importer = (rest[0] if rest else named.get("globals")) or {}
        is_ours = importer.get("__name__", "").partition(".")[0] == "pokayoke"
        if name in _MODULES and (is_ours or "site-packages" not in (importer.get("__file__") or "")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **named)

    builtins.__import__ = import_there


def _hide_proc():
    """Nothing exists below /proc."""

    def hiding(real):
        def call(path, *args, **kwargs):
            if isinstance(path, (str, os.PathLike)) and f"{os.fspath(path)}/".startswith("/proc/"):
                raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
            return real(path, *args, **kwargs)

        return call

    for name in ("open", "stat", "listdir", "readlink", "scandir", "lstat"):
        real = getattr(os, name)
        setattr(os, name, hiding(real))
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if real in able:
                able.add(getattr(os, name))
    builtins.open = io.open = hiding(io.open)


def _become_windows(*real):
    import select  # noqa: PLC0415 - not loaded on every system
    import shutil  # noqa: PLC0415 - has looked at the system already
    import signal  # noqa: PLC0415

    _take_away(select, ("poll", "epoll"))
    _take_away(signal, _SIGNALS)
    _take_away(os, (*_FLAGS, *_CALLS))
    _take_away_modules()
    os.O_BINARY = _BINARY
    shutil._use_fd_functions = False
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        able.clear()
    _refuse_descriptors_of_folders()
    _refuse_renames_of_open_files(*real)
    _write_carriage_returns()
    _ignore_modes()

    def refuse_link(*_, **__):
        raise OSError(1314, "A required privilege is not held by the client")

    os.symlink = refuse_link


def _refuse_descriptors_of_folders():
    def without(real, *options):
        def call(*args, **kwargs):
            if any(kwargs.get(option) is not None for option in options):
                raise NotImplementedError("dir_fd unavailable on this platform")
            return real(*args, **kwargs)

        return call

    for name in ("open", "stat", "unlink", "mkdir", "rmdir", "readlink"):
        setattr(os, name, without(getattr(os, name), "dir_fd"))
    real_open = os.open

    def open_file(path, flags, *args, **kwargs):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, flags, *args, **kwargs)

    os.open = open_file


def _refuse_renames_of_open_files(list_names, read_link):
    def is_open(path):
        links = []
        for fd in list_names("/proc/self/fd"):
            try:
                links.append(read_link(f"/proc/self/fd/{fd}"))
            except OSError:  # that of the listing itself
                continue
        return os.path.realpath(path) in links

    def careful(real):
        def call(path, *args, **kwargs):
            if is_open(path):
                raise PermissionError(13, "The process cannot access the file because it is being used", path)
            return real(path, *args, **kwargs)

        return call

    for name in ("rename", "replace", "unlink", "remove"):
        setattr(os, name, careful(getattr(os, name)))


def _write_carriage_returns():
    """A descriptor that was opened without O_BINARY gets a carriage return before each newline."""
    text = set()
    real_open, real_write = os.open, os.write

    def open_file(path, flags, *args, **kwargs):
        fd = real_open(path, flags, *args, **kwargs)
        (text.discard if flags & _BINARY else text.add)(fd)
        return fd

    def write(fd, data):
        if fd not in text:
            return real_write(fd, data)
        real_write(fd, bytes(data).replace(b"\n", b"\r\n"))
        return len(data)

    os.open, os.write = open_file, write


def _ignore_modes():
    """Every file may be read and written by everybody, as far as its mode tells."""
    real = os.stat

    def stat(*args, **kwargs):
        found = real(*args, **kwargs)
        more = {name for name in dir(found) if name.startswith("st_")} - set(found.__match_args__)
        return os.stat_result((found.st_mode | 0o666, *found[1:]), {name: getattr(found, name) for name in more})

    os.stat = stat


if __name__ == "__main__":
    main(*sys.argv[1:])
