"""Members of archives: which names and how many bytes may leave one.

In: names and pieces of data, as an archive gives them.
Out: paths below a folder, and pieces that were counted; or an `ArchiveRefused`.
Never: a size that a header claims. Everything is counted while it is unpacked.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.gate.paths import display_path, normalise_path
from pokayoke.errors import ArchiveRefused, ConfigurationError

_ROOT = ("/archive",)  # names are checked as paths below a folder; this one is never looked up
_SMALL = 1_048_576  # bytes below which no ratio is measured: short texts of one line repeated pack very well
_HINTS = {
    "bad_archive": "The archive cannot be read: it is damaged, cut off or of an unknown kind. Choose another file.",
    "archive_member": "The archive holds what may not be unpacked here. Choose another file, or tell the user.",
    "archive_too_large": "The archive unpacks to more than is allowed here. Choose another file, or tell the user.",
}


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much an archive may unpack to.

    Args:
        members: files and folders, with the folders that names only imply.
        total_bytes: all files together.
        member_bytes: one file.
        ratio: how many times the size of the archive itself all files may have; not measured below 1 MiB.

    Raises:
        ConfigurationError: a limit is no whole number from 1.
    """

    members: int = 10_000
    total_bytes: int = 500_000_000
    member_bytes: int = 100_000_000
    ratio: int = 100

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing."""
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"ArchiveLimits: {name} is a whole number from 1, not {value!r}")


class ArchiveMember(msgspec.Struct, frozen=True):
    """One file or folder of an archive.

    Attributes:
        name: as the archive has it.
        is_folder: True for a folder.
        size: what its header claims, in bytes.
        read: returns its data, piece by piece.
    """

    name: str
    is_folder: bool
    size: int
    read: Callable[[], Iterable[bytes]]


class MemberNames:
    """The names that were taken from one archive.

    Args:
        limits: how many there may be.
    """

    __slots__ = ("_limits", "_taken")

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._taken: dict[str, tuple[str, bool]] = {}  # folded path -> (path, whether it is a folder)

    def add(self, member: ArchiveMember) -> tuple[str, list[str]]:
        """Return the path of a member below the folder, and the new folders that lead to it; "." is that folder.

        Raises:
            ArchiveRefused: the name leaves the folder, is not the same on every system, or is taken.
        """
        path = _check_name(member.name)
        if path == ".":
            if not member.is_folder:
                raise refuse_member("name", member.name, "names the folder itself")
            return path, []
        names = path.split("/")
        folders = ["/".join(names[:count]) for count in range(1, len(names) + (1 if member.is_folder else 0))]
        new = [folder for folder in folders if self._take(folder, member.name, is_folder=True)]
        if not member.is_folder:
            self._take(path, member.name, is_folder=False)
        return path, new

    def _take(self, path: str, name: str, *, is_folder: bool) -> bool:
        """Take a path; return whether it is new. Only a folder of the same spelling may come again."""
        folded = "/".join(_fold_name(one) for one in path.split("/"))
        known = self._taken.get(folded)
        if known is None:
            if len(self._taken) >= self._limits.members:
                raise refuse_size("members", f"has more than {self._limits.members} members")
            self._taken[folded] = path, is_folder
            return True
        if known != (path, is_folder) or not is_folder:
            same = (
                "twice" if known[0] == path else f"beside {display_path(known[0])}, which is the same to some systems"
            )
            raise refuse_member("duplicate", name, f"is there {same}")
        return False


class ByteMeter:
    """Counts what leaves one archive.

    Args:
        limits: how much it may be.
        archive_size: bytes of the archive itself.
    """

    __slots__ = ("_limits", "_member", "_most", "_total")

    def __init__(self, limits: ArchiveLimits, archive_size: int) -> None:
        self._limits, self._member, self._total = limits, 0, 0
        self._most = max(_SMALL, limits.ratio * archive_size)

    def start_member(self, claimed: int) -> None:
        """Begin a member. A size that is too large as claimed is refused before anything is read."""
        self._member = 0
        self._check(claimed, self._total + claimed)

    def add(self, count: int) -> None:
        """Count bytes of the member.

        Raises:
            ArchiveRefused: the member, all members, or their ratio to the archive are too large.
        """
        self._member += count
        self._total += count
        self._check(self._member, self._total)

    def _check(self, member: int, total: int) -> None:
        if member > self._limits.member_bytes:
            raise refuse_size("member_bytes", f"has a member of more than {self._limits.member_bytes} bytes")
        if total > self._limits.total_bytes:
            raise refuse_size("total_bytes", f"unpacks to more than {self._limits.total_bytes} bytes")
        if total > self._most:
            raise refuse_size("ratio", f"unpacks to more than {self._limits.ratio} times its size")


def refuse_archive(rule: str, why: str) -> ArchiveRefused:
    """Return the error for an archive that cannot be read."""
    return _build_refusal("bad_archive", f"the archive {why}", {"rule": rule})


def refuse_size(rule: str, why: str) -> ArchiveRefused:
    """Return the error for an archive that unpacks to too much."""
    return _build_refusal("archive_too_large", f"the archive {why}", {"rule": rule})


def refuse_member(rule: str, name: str, why: str) -> ArchiveRefused:
    """Return the error for a member that may not be unpacked."""
    shown = display_path(name)
    return _build_refusal("archive_member", f"member {shown} {why}", {"rule": rule, "member": shown})


def _build_refusal(code: str, message: str, data: dict[str, str]) -> ArchiveRefused:
    return ArchiveRefused(message, Finding(code, "", "tool", message, _HINTS[code], data))


def _check_name(name: str) -> str:
    """Return the path that a name means below the folder."""
    if name.startswith("/"):
        raise refuse_member("absolute", name, "has an absolute name")
    if ".." in name.split("/"):
        raise refuse_member("climbs", name, "has .. in its name")
    located = normalise_path(name, _ROOT)
    if isinstance(located, Finding):
        rule = str(cast("dict[str, Any]", located.data)["rule"])
        raise refuse_member(rule, name, f"has a name that is refused as a path ({rule})")
    return located[1]


def _fold_name(name: str) -> str:
    """Return a name as a file system may compare it that knows no case and drops dots and spaces at the end."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", name).casefold()).rstrip(". ")
