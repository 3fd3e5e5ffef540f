"""Unpacks archives into a folder of a workspace: all of it, or nothing.

In: an archive, and a confined path.
Out: the files that were written; or an `ArchiveRefused`, and nothing is left behind.
Never: a file outside the root, also while another process swaps folders for links; a link, a device, an owner or a
permission of the archive; an archive inside the archive that is unpacked too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

from pokayoke.errors import UsageError
from pokayoke.runtime.files import confined_open as beneath
from pokayoke.runtime.files.archive_members import ArchiveLimits, ByteMeter, MemberNames
from pokayoke.runtime.files.workspace import ConfinedPath

_LIMITS = ArchiveLimits()


def extract_archive(
    archive: ConfinedPath | IO[bytes], to: ConfinedPath, *, limits: ArchiveLimits = _LIMITS
) -> list[ConfinedPath]:
    """Unpack a zip or tar into a new folder.

    The folder appears as a whole once all of it was written. Files get the permissions of new files; owners, times
    and permissions of the archive are not kept. What a name, a size or a kind may be is the same for every format.

    Args:
        archive: a zip, or a tar that is plain or packed with gzip, bzip2 or xz; a path in a workspace, or a file
            that is open for reading in binary mode and can seek.
        to: the folder to make. The folder above it exists; it itself does not, or is empty.
        limits: how much the archive may unpack to.

    Returns:
        the files, in the order of the archive.

    Raises:
        ArchiveRefused: with a `.finding`: a member is a link or device, encrypted, there twice (also where case does
            not count), or has a name that leaves the folder or means something else on another system; it unpacks to
            too much; or it is damaged.
        PathEscape: the folder, or the archive, leaves its root.
        OSError: it cannot be read or written, such as FileExistsError for a folder that is not empty.
        UsageError: `to` is the root itself, or the file cannot seek.
    """
    if not isinstance(cast("object", to), ConfinedPath) or to.relative == ".":
        raise UsageError("extract_archive needs a ConfinedPath of a folder below its root")
    with ExitStack() as stack:
        file = stack.enter_context(archive.open("rb")) if isinstance(archive, ConfinedPath) else archive
        if not file.seekable():
            raise UsageError("extract_archive needs a file that can seek: write it to the workspace first")
        if to.exists() and to.names():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(to))
        above = to.relative.rpartition("/")[0]
        draft = f".pokayoke-{os.urandom(8).hex()}"
        staged = ConfinedPath(to.root, f"{above}/{draft}" if above else draft)
        staged.mkdir()
        try:
            written = _write_members(file, staged, limits)
            _act_on(staged, _rename_to(to.relative.rpartition("/")[2]))
        except BaseException:
            _act_on(staged, _remove_tree)
            raise
    return [ConfinedPath(to.root, f"{to.relative}/{path}") for path in written]


def _write_members(file: IO[bytes], folder: ConfinedPath, limits: ArchiveLimits) -> list[str]:
    """Write the members below a folder; return the paths of the files, relative to it."""
    from pokayoke.runtime.files.archive_readers import read_members  # noqa: PLC0415 - loaded with the first archive

    names, meter = MemberNames(limits), ByteMeter(limits, file.seek(0, os.SEEK_END))
    written: list[str] = []
    for member in read_members(file, limits):
        path, new_folders = names.add(member)
        for new in new_folders:
            _below(folder, new).mkdir(exist_ok=True)
        if member.is_folder:
            continue
        meter.start_member(member.size)
        with _below(folder, path).open("xb") as target:
            for piece in member.read():
                meter.add(len(piece))
                target.write(piece)
        written.append(path)
    return written


def _below(folder: ConfinedPath, path: str) -> ConfinedPath:
    return ConfinedPath(folder.root, f"{folder.relative}/{path}")


def _act_on(folder: ConfinedPath, act: Callable[[int | None, str], None]) -> None:
    """Act on a folder by its name in the folder above it, which is reached without following a link out."""
    beneath.walk_to(folder.root, folder.relative, act, follow=False)


def _rename_to(name: str) -> Callable[[int | None, str], None]:
    def rename(directory: int | None, draft: str) -> None:
        if directory is None:
            Path(draft).rename(Path(draft).with_name(name))
        else:
            os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)

    return rename


def _remove_tree(directory: int | None, name: str) -> None:
    """Remove a folder and what is in it, without following a link."""
    import shutil  # noqa: PLC0415 - loaded with the first archive that is refused

    shutil.rmtree(name, dir_fd=directory)
