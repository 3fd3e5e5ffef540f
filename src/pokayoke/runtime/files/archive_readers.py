"""Reads zip and tar archives member by member, with the parsers of the standard library.

In: an archive as a seekable binary file.
Out: its members, in order; or an `ArchiveRefused`.
Never: more memory than the limits give, whatever the headers say, or an archive that ends early and passes as whole.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import IO, Any, Protocol, Self

from pokayoke.errors import ArchiveRefused
from pokayoke.runtime.files.archive_members import (
    ArchiveLimits,
    ArchiveMember,
    refuse_archive,
    refuse_member,
    refuse_size,
)

_PIECE = 65_536  # bytes that are unpacked at once
_SLACK = 1_048_576  # bytes of metadata for one member of a tar, and of its blocks that are read ahead
_HEADER_BYTES = 2_048  # of one member of a tar, in the sum of all
_ZIP_ENTRY = b"PK\x01\x02"
_ENTRY_BYTES = 1_024  # of one member in the directory of a zip, in the sum of all
_LOCAL_HEADER = 30  # bytes, without name and extra fields
_ENCRYPTED = 0x2041  # bits for encryption, strong encryption and a masked header (APPNOTE 4.4.4)
_REPARSE_POINT = 0x400  # a link, in attributes of Windows
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without a limit to the piece
_ZERO_BLOCK = bytes(tarfile.BLOCKSIZE)
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError),
    *(OverflowError, RuntimeError, LookupError, MemoryError),
)  # what the parsers raise for hostile bytes; a recursion that is too deep is a RuntimeError


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def read_members(file: IO[bytes], limits: ArchiveLimits) -> Iterator[ArchiveMember]:
    """Yield the members of an archive; each is read before the next one is asked for.

    Args:
        file: a zip, or a tar that is plain or packed with gzip, bzip2 or xz.
        limits: how much it may unpack to.

    Raises:
        ArchiveRefused: it is none of these, damaged, encrypted, or holds a link or device.
        OSError: the file cannot be read.
    """
    with _reading():
        file.seek(0)
        head = file.read(6)
        file.seek(0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        yield from _read_zip(file, limits)
    else:
        yield from _read_tar(_open_packed(file, head), limits)


@contextmanager
def _reading() -> Generator[None]:
    """Turn what the parsers raise for damaged archives into one error. An error of the disk stays what it is."""
    try:
        yield
    except ArchiveRefused:
        raise
    except _DAMAGE as error:
        raise refuse_archive("damaged", f"cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise refuse_archive("damaged", f"cannot be read: {str(error)[:200]}") from None  # gzip and bz2 raise it so


def _read_pieces(data: _Readable, size: int) -> Iterator[bytes]:
    """Yield the data of a member, and compare its length with what the header claims."""
    count = 0
    while True:
        with _reading():
            piece = data.read(_PIECE)
        if not piece:
            break
        count += len(piece)
        yield piece
    if count != size:
        raise refuse_archive("size", f"holds a member of {count} bytes that claims to have {size}")


# -- zip -------------------------------------------------------------------------------------------


class _ZipSource:
    """A zip file whose directory is counted before the parser makes objects of it."""

    def __init__(self, file: IO[bytes], limits: ArchiveLimits) -> None:
        self._file, self._limits, self.is_open = file, limits, False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        most = _SLACK + _ENTRY_BYTES * self._limits.members
        data = self._file.read(most + 1 if size < 0 else min(size, most + 1))
        if not self.is_open and (len(data) > most or data.count(_ZIP_ENTRY) > self._limits.members):
            raise refuse_size("members", f"has more than {self._limits.members} members, or too long names")
        return data


def _read_zip(file: IO[bytes], limits: ArchiveLimits) -> Iterator[ArchiveMember]:
    source = _ZipSource(file, limits)
    with _reading():
        archive = zipfile.ZipFile(source)
    source.is_open = True
    with archive:
        _check_overlaps(archive.infolist())
        for info in archive.infolist():
            name = info.orig_filename  # not cut at a NUL
            _check_zip_member(info, name)
            yield ArchiveMember(name, name.endswith("/"), info.file_size, _zip_reader(archive, info))


def _zip_reader(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], Iterator[bytes]]:
    def read() -> Iterator[bytes]:
        with _reading():
            data = archive.open(info)
        with data:
            yield from _read_pieces(data, info.file_size)

    return read


def _check_zip_member(info: zipfile.ZipInfo, name: str) -> None:
    """Refuse a member that is no plain file or folder."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK or (info.create_system == 0 and info.external_attr & _REPARSE_POINT):
        raise refuse_member("link", name, "is a link")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise refuse_member("device", name, "is no ordinary file or folder")
    if info.flag_bits & _ENCRYPTED:
        raise refuse_member("encrypted", name, "is encrypted")
    if info.compress_type not in _METHODS:
        raise refuse_member("method", name, "is packed by another method than deflate")
    if name.endswith("/") and (info.file_size or kind == stat.S_IFREG):
        raise refuse_member("kind", name, "is a folder by its name and a file by the rest")


def _check_overlaps(infos: list[zipfile.ZipInfo]) -> None:
    """Refuse members that share bytes of the archive, by which a small one unpacks to a huge one."""
    end = 0
    for info in sorted(infos, key=lambda one: one.header_offset):
        if info.header_offset < end:
            raise refuse_member("overlap", info.orig_filename, "shares its bytes with another member")
        end = info.header_offset + _LOCAL_HEADER + info.compress_size


# -- tar -------------------------------------------------------------------------------------------


def _open_packed(file: IO[bytes], head: bytes) -> _Readable:
    """Return the bytes of a tar, unpacked by what its first bytes say."""
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if head.startswith(b"BZh"):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if head.startswith(b"\xfd7zXZ\x00") else file


class _TarSource:
    """The bytes of a tar. How many may be read is set before each step of the parser."""

    def __init__(self, inner: _Readable, limits: ArchiveLimits) -> None:
        self._inner, self._left = inner, _SLACK
        self._all = limits.total_bytes + _HEADER_BYTES * limits.members + 2 * _SLACK

    def allow(self, count: int) -> None:
        """Allow the next step to read `count` bytes, and some around them."""
        self._left = count + _SLACK

    def read(self, size: int = -1, /) -> bytes:
        data = self._inner.read(min(size, _PIECE) if size >= 0 else _PIECE)
        self._left -= len(data)
        self._all -= len(data)
        if self._left < 0 or self._all < 0:
            raise refuse_size("metadata", "holds more data about its members than is allowed")
        return data


class _StrictTarInfo(tarfile.TarInfo):
    """A header that is whole. The parser takes a damaged one in the middle for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if bytes(buf) == _ZERO_BLOCK:
            return super().frombuf(buf, encoding, errors)  # raises: the end
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            raise refuse_archive("damaged", f"has no valid header where one belongs: {error}") from None
        if info.size < 0:
            raise refuse_archive("damaged", "has a member of a negative size")
        return info


def _read_tar(inner: _Readable, limits: ArchiveLimits) -> Iterator[ArchiveMember]:
    source = _TarSource(inner, limits)
    opened: Any = source  # it has the one method that the parser of a stream calls
    with _reading():
        archive = tarfile.open(fileobj=opened, mode="r|", tarinfo=_StrictTarInfo)  # noqa: SIM115 - closed below
    with archive:
        while True:
            source.allow(0)
            with _reading():
                info = archive.next()
            if info is None:
                break
            _check_tar_member(info)
            source.allow(info.size)
            yield ArchiveMember(info.name, info.isdir(), 0 if info.isdir() else info.size, _tar_reader(archive, info))
        source.allow(0)
        with _reading():  # to the end, where the checksum of a packed tar stands
            while source.read(_PIECE):
                pass


def _tar_reader(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], Iterator[bytes]]:
    def read() -> Iterator[bytes]:
        with _reading():
            data = archive.extractfile(info)
        if data is not None:
            yield from _read_pieces(data, info.size)

    return read


def _check_tar_member(info: tarfile.TarInfo) -> None:
    """Refuse a member that is no plain file or folder."""
    if info.issym() or info.islnk():
        raise refuse_member("link", info.name, "is a link")
    if info.issparse():
        raise refuse_member("sparse", info.name, "is a file with holes, whose size says nothing")
    if not (info.isreg() or info.isdir()):
        raise refuse_member("device", info.name, "is no ordinary file or folder")
    if info.size < 0:
        raise refuse_archive("damaged", "has a member of a negative size")
