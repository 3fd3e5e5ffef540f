"""Archives: what is unpacked, what is refused, and that nothing is left behind."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import stat
import struct
import tarfile
import threading
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pokayoke import (
    ArchiveLimits,
    ArchiveRefused,
    ConfigurationError,
    ConfinedPath,
    Guard,
    PathEscape,
    ToolCall,
    UsageError,
    extract_archive,
    tool,
)
from pokayoke.core.finding_codes import CODES_BY_ROOM


@pytest.fixture
def root(tmp_path):
    """A workspace, beside a file that nothing may touch."""
    (tmp_path / "outside.txt").write_text("untouched")
    (tmp_path / "ws").mkdir()
    yield tmp_path / "ws"
    assert (tmp_path / "outside.txt").read_text() == "untouched"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["outside.txt", "ws"]


def name_value(value):
    """Name an archive by its place in the table: it holds the time at which it was made, and each worker makes its own."""
    return "archive" if isinstance(value, bytes) else None


def unpack(root, data, **limits):
    """Unpack bytes into `out`, and return the files below it with their content."""
    written = extract_archive(io.BytesIO(data), ConfinedPath(str(root), "out"), limits=ArchiveLimits(**limits))
    found = {
        one.relative_to(root / "out").as_posix(): one.read_bytes() for one in (root / "out").rglob("*") if one.is_file()
    }
    assert sorted(found) == sorted(one.relative.removeprefix("out/") for one in written)
    return found


def refused(root, data, **limits):
    """Unpack bytes that are refused; return code and rule. Nothing is left behind."""
    before = sorted(root.rglob("*"))
    with pytest.raises(ArchiveRefused) as error:
        extract_archive(io.BytesIO(data), ConfinedPath(str(root), "out"), limits=ArchiveLimits(**limits))
    assert sorted(root.rglob("*")) == before
    finding = error.value.finding
    assert finding.code in CODES_BY_ROOM["files"]
    assert finding.hint
    assert finding.message == str(error.value)
    assert finding.message.isprintable()
    return finding.code, finding.data["rule"]


def zipped(*members, method=zipfile.ZIP_DEFLATED, comment=b""):
    """A zip of (name or ZipInfo, bytes)."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
        archive.comment = comment
    return file.getvalue()


def tarred(*members, packer=bytes, kind=tarfile.PAX_FORMAT):
    """A tar of (name or TarInfo, bytes)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            if info.isreg():
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packer(file.getvalue())


def zip_entry(name, *, mode=0, system=3, attributes=0, flags=0):
    """A header of a member of a zip."""
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr, info.flag_bits = system, mode << 16 | attributes, flags
    return info


def tar_entry(name, kind=tarfile.REGTYPE, link="", **fields):
    """A header of a member of a tar."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    for field, value in fields.items():
        setattr(info, field, value)
    return info


FILES = [("a.txt", b"hello"), ("b/c/d.txt", b"deep"), ("b/empty", b""), ("./e", b"dot"), ("日本/ü.txt", b"x" * 200_000)]
WANTED = {"a.txt": b"hello", "b/c/d.txt": b"deep", "b/empty": b"", "e": b"dot", "日本/ü.txt": b"x" * 200_000}


@pytest.mark.parametrize(
    "data",
    [
        zipped(*FILES), zipped(*FILES, method=zipfile.ZIP_STORED), zipped(*FILES, comment=b"PK\x01\x02"), tarred(*FILES),
        tarred(*FILES, packer=gzip.compress), tarred(*FILES, packer=bz2.compress), tarred(*FILES, packer=lzma.compress),
        tarred(*FILES, kind=tarfile.GNU_FORMAT), gzip.compress(tarred(*FILES)[:1_024]) + gzip.compress(tarred(*FILES)[1_024:]),
    ],
    ids=["zip", "stored", "comment", "tar", "gz", "bz2", "xz", "gnu", "two-gz"],
)  # fmt: skip
def test_an_archive_is_unpacked(root, data):
    """Every format arrives whole, with its folders."""
    assert unpack(root, data, ratio=100_000) == WANTED


def test_folders_are_made(root):
    """Empty folders, folders named twice and the folder itself are fine in both formats."""
    zip_data = zipped(("d/", b""), ("d/e/", b""), ("d/e/f", b"x"))
    tar_data = tarred(*((tar_entry(name, tarfile.DIRTYPE), b"") for name in (".", "d", "d", "d/e")), ("d/e/f", b"x"))
    for number, data in enumerate((zip_data, tar_data)):
        extract_archive(io.BytesIO(data), ConfinedPath(str(root), f"out{number}"))
        assert (root / f"out{number}/d/e/f").read_bytes() == b"x"
    extract_archive(io.BytesIO(tarred()), ConfinedPath(str(root), "none"))
    assert list((root / "none").iterdir()) == []


def test_permissions_of_the_archive_are_not_kept(root):
    """A file is an ordinary new file: no program, nobody's rights."""
    for number, data in enumerate(
        (zipped((zip_entry("x", mode=0o106777), b"")), tarred((tar_entry("x", mode=0o6777, uid=0), b"")))
    ):
        extract_archive(io.BytesIO(data), ConfinedPath(str(root), f"o{number}"))
        assert stat.S_IMODE((root / f"o{number}/x").stat().st_mode) & 0o7111 == 0


def test_an_archive_in_the_archive_is_a_file(root):
    """Nesting is not followed."""
    inner = zipped(("x", b"y"))
    assert unpack(root, zipped(("inner.zip", inner))) == {"inner.zip": inner}


BAD_NAMES = [
    ("absolute", "/etc/passwd"),
    ("absolute", "//server/share"),
    ("climbs", "../outside.txt"),
    ("climbs", "a/../../outside.txt"),
    ("climbs", "a/../b"),
    ("climbs", ".."),
    ("backslash", "..\\outside.txt"),
    ("drive", "C:/x"),
    ("drive", "c:x"),
    ("home", "~/x"),
    ("device", "nul.txt"),
    ("device", "a/COM1"),
    ("control", "a\nb"),
    ("control", "a\u202etxt"),
    ("dots", "a/.../b"),
    ("space", "a /b"),
    ("encoded", "%2e%2e/x"),
    ("look_alike", "a／b"),
    ("too_long", "x" * 300),
    ("url", "file:///etc/passwd"),
    ("name", "."),
]  # fmt: skip


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(("rule", "name"), BAD_NAMES)
def test_a_name_that_leads_out_is_refused(root, rule, name, pack):
    """Names are judged as paths are: what leaves the folder, or means something else elsewhere, is refused."""
    assert refused(root, pack(("good.txt", b"x"), (name, b"evil"))) == ("archive_member", rule)


def test_a_name_with_a_nul_is_refused(root):
    """A zip's name that the parser would cut at its NUL is judged as it stands."""
    data = zipped(("good.txtX.exe", b"x")).replace(b"good.txtX", b"good.txt\0")
    assert refused(root, data) == ("archive_member", "control")


def test_an_empty_name_is_refused(root):
    """A zip's member without a name is no member."""
    assert refused(root, zipped(("x", b"y")).replace(b"x", b"\0")) == ("archive_member", "control")


def test_a_name_in_a_broken_encoding_is_refused(root):
    """A tar's name that is no UTF-8 is no name on every system."""
    assert refused(root, tarred(("\udcff", b"x"), kind=tarfile.GNU_FORMAT)) == ("archive_member", "surrogate")


BAD_MEMBERS = [
    ("link", zipped((zip_entry("l", mode=0o120777), b"/etc/passwd"))),
    ("link", zipped((zip_entry("l", system=0, attributes=0x400), b"C:/x"))),
    ("device", zipped((zip_entry("d", mode=0o020666), b""))),
    ("device", zipped((zip_entry("d", mode=0o010666), b""))),
    ("kind", zipped((zip_entry("d/", mode=0o100666), b""))),
    ("method", zipped(("x", b"x"), method=zipfile.ZIP_BZIP2)),
    ("method", zipped(("x", b"x"), method=zipfile.ZIP_LZMA)),
    ("link", tarred((tar_entry("l", tarfile.SYMTYPE, "../outside.txt"), b""))),
    ("link", tarred((tar_entry("l", tarfile.SYMTYPE, "."), b""), ("l/outside.txt", b"evil"))),
    ("link", tarred((tar_entry("l", tarfile.LNKTYPE, "/etc/passwd"), b""))),
    ("device", tarred((tar_entry("d", tarfile.CHRTYPE), b""))),
    ("device", tarred((tar_entry("d", tarfile.BLKTYPE), b""))),
    ("device", tarred((tar_entry("d", tarfile.FIFOTYPE), b""))),
    ("device", tarred((tar_entry("d", b"Z"), b""))),
    ("sparse", tarred((tar_entry("d", tarfile.GNUTYPE_SPARSE), b""), kind=tarfile.GNU_FORMAT)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "data"), BAD_MEMBERS, ids=name_value)
def test_a_member_that_is_no_plain_file_is_refused(root, rule, data):
    """Links, devices, files with holes and odd packings are refused, in both formats."""
    assert refused(root, data) == ("archive_member", rule)


@pytest.mark.parametrize("bit", [0x1, 0x40, 0x2000])
def test_an_encrypted_member_is_refused(root, bit):
    """Each sign of encryption counts."""
    data = bytearray(zipped(("x", b"y")))
    place = data.index(b"PK\x01\x02")
    data[place + 8 : place + 10] = struct.pack("<H", bit)
    assert refused(root, bytes(data)) == ("archive_member", "encrypted")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "a"), ("a", "./a"), ("a/b", "a//b"), ("a", "A"), ("é", "e\u0301"), ("straße", "STRASSE"), ("ﬁ", "fi"), ("x/a", "X/b"), ("a", "a/b"), ("a/b", "a"), ("a", "a.")],
)  # fmt: skip
def test_a_name_that_is_there_before_is_refused(root, one, other, pack):
    """Equal names, names that some file systems take for equal, and a file where a folder is."""
    assert refused(root, pack((one, b"1"), (other, b"2"))) == ("archive_member", "duplicate")


BOMB = zipped(("zeros", b"\0" * 20_000_000))


@pytest.mark.parametrize(
    ("rule", "data", "limits"),
    [
        ("ratio", BOMB, {}),
        ("ratio", tarred(("zeros", b"\0" * 20_000_000), packer=gzip.compress), {}),
        ("ratio", tarred(("zeros", b"\0" * 20_000_000), packer=bz2.compress), {}),
        ("ratio", tarred(("zeros", b"\0" * 20_000_000), packer=lzma.compress), {}),
        ("member_bytes", zipped(("x", b"x" * 101)), {"member_bytes": 100}),
        ("member_bytes", tarred(("x", b"x" * 101)), {"member_bytes": 100}),
        ("total_bytes", zipped(("x", b"x" * 60), ("y", b"y" * 60)), {"total_bytes": 100}),
        ("total_bytes", tarred(("x", b"x" * 60), ("y", b"y" * 60)), {"total_bytes": 100}),
        ("members", zipped(*((str(n), b"") for n in range(11))), {"members": 10}),
        ("members", tarred(*((str(n), b"") for n in range(11))), {"members": 10}),
        ("members", tarred(("/".join("abcdefghijk"), b"")), {"members": 10}),
        ("members", zipped(("/".join("abcdefghijk"), b"")), {"members": 10}),
    ],
    ids=name_value,
)
def test_an_archive_beyond_its_limits_is_refused(root, rule, data, limits):
    """Members (with implied folders), sizes and the ratio to the archive are capped."""
    assert refused(root, data, **limits) == ("archive_too_large", rule)


@pytest.mark.parametrize(
    "data", [zipped(("x", b"x" * 100), ("d/y", b"")), tarred(("x", b"x" * 100), ("d/y", b""))], ids=name_value
)
def test_an_archive_at_its_limits_is_unpacked(root, data):
    """The limits themselves are allowed."""
    assert len(unpack(root, data, members=3, member_bytes=100, total_bytes=100)) == 2


def test_a_million_members_are_refused_before_they_are_objects(root):
    """The directory of a zip is counted as bytes: a million entries cost no million objects."""
    entry = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    count = 1_000_000
    directory = entry * count
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count & 0xFFFF, count & 0xFFFF, len(directory), 0, 0)
    # A zip begins with a member; this one has its directory first.
    data = b"PK\x03\x04" + bytes(26) + directory + end
    tracemalloc.start()
    assert refused(root, data) == ("archive_too_large", "members")
    assert tracemalloc.get_traced_memory()[1] < 150_000_000  # the archive itself has 47 MB, and so has its copy
    tracemalloc.stop()
    small = b"PK\x03\x04" + bytes(26) + entry * 20_000
    small += b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 20_000, 20_000, len(entry) * 20_000, 30, 0)
    assert refused(root, small) == ("archive_too_large", "members")


def patched(data, offset, value, form="<I"):
    """A zip with one number of its first directory entry, and of its first local header, changed."""
    out = bytearray(data)
    place = data.index(b"PK\x01\x02") + offset
    out[place : place + struct.calcsize(form)] = struct.pack(form, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (patched(zipped(("x", b"x" * 500)), 24, 100), ("bad_archive", "damaged")),  # claims less: its checksum differs
        (patched(zipped(("x", b"x" * 500)), 24, 600), ("bad_archive", "size")),  # claims more
        (patched(zipped(("x", b"x" * 500)), 24, 2**32 - 2), ("archive_too_large", "member_bytes")),
        (patched(zipped(("x", b"x" * 500)), 20, 3), ("bad_archive", "damaged")),  # packed bytes cut
        (patched(zipped(("x", b"x" * 500)), 16, 7), ("bad_archive", "damaged")),  # wrong checksum
        (patched(zipped(("x", b"x" * 500)), 42, 40), ("bad_archive", "damaged")),  # no header there
        (patched(zipped(("x", b"x" * 500)), 46, ord("y"), "B"), ("bad_archive", "damaged")),  # two names for one member
        (zipped(("x", b"x" * 500))[:-10], ("bad_archive", "damaged")),
        (zipped(("x", b"x" * 500))[:50], ("bad_archive", "damaged")),
        (b"", ("bad_archive", "damaged")),
        (b"hello, I am a text", ("bad_archive", "damaged")),
        (b"\x1f\x8bno gzip", ("bad_archive", "damaged")),
        (b"BZhno bzip2", ("bad_archive", "damaged")),
        (b"\xfd7zXZ\x00no xz", ("bad_archive", "damaged")),
        (b"PK\x03\x04" + bytes(100), ("bad_archive", "damaged")),
    ],
    ids=name_value,
)
def test_a_damaged_or_lying_archive_is_refused(root, data, found):
    """Sizes, checksums, names and places that do not agree are no archive."""
    assert refused(root, data) == found


def test_a_lying_size_of_zip_is_caught_while_unpacking(root):
    """A member that claims to be small and is a bomb is stopped by its checksum or its count, never unpacked."""
    code, _ = refused(root, patched(BOMB, 24, 10))
    assert code == "bad_archive"


@pytest.mark.parametrize("packer", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_tar_that_is_cut_off_is_refused(root, packer, share):
    """An archive that ends early is never taken for a whole one, wherever it is cut."""
    noise = random.Random(7).randbytes
    data = tarred(*((f"f{n}", noise(3_000)) for n in range(20)))
    whole = packer(data[: data.rindex(b"f19") + 3_584 + 1_024])
    assert refused(root, whole[: int(len(whole) * share)])[0] == "bad_archive"


def test_a_tar_that_ends_between_two_members_is_refused(root):
    """Without its end marker, nobody knows whether more should have come."""
    data = tarred(("a", b"1"), ("b", b"2"))
    assert refused(root, data[:1_024]) == ("bad_archive", "damaged")
    broken = bytearray(data)
    broken[1_024 + 150] ^= 1  # the checksum of the second header
    assert refused(root, bytes(broken)) == ("bad_archive", "damaged")


def raw_header(name, kind, size):
    """The header of a tar, with a size of one's own."""
    info = tar_entry(name, kind)
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


HUGE = b"%011o\0" % 0o77777777777
NEGATIVE = b"\xff" * 10 + b"\xfe\x00"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_metadata_of_a_tar_takes_bounded_memory(root, kind):
    """An extended header that claims 8 GiB is read as far as a member's metadata may go, and no further."""
    data = gzip.compress(raw_header("x", kind, HUGE) + b"\0" * 50_000_000)
    tracemalloc.start()
    assert refused(root, data) == ("archive_too_large", "metadata")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_many_extended_headers_are_refused(root):
    """A chain of headers for one member neither recurses without end nor hides the size of it all."""
    header = raw_header("x", tarfile.XGLTYPE, b"%011o\0" % 512) + b"11 path=ab\n".ljust(512, b"\0")
    code, _ = refused(root, gzip.compress(header * 5_000))
    assert code in ("bad_archive", "archive_too_large")


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_negative_size_is_refused(root, kind):
    """A size below zero would lead the parser back to where it was."""
    data = tarred(("a", b"1"))[:1_024] + raw_header("x", kind, NEGATIVE) + bytes(2_048)
    assert refused(root, data) == ("bad_archive", "damaged")


def test_a_negative_size_in_an_extended_header_is_refused(root):
    """The same where the size is text."""
    info = tar_entry("x", pax_headers={"size": "-1024"})
    assert refused(root, tarred((info, b"")))[0] == "bad_archive"


def test_a_size_that_a_tar_claims_is_checked_before_it_is_read(root):
    """A member of 8 GiB is refused by its header, and one below the limits by its end."""
    assert refused(root, raw_header("x", tarfile.REGTYPE, HUGE)) == ("archive_too_large", "member_bytes")
    assert refused(root, raw_header("x", tarfile.REGTYPE, b"%011o\0" % 5_000) + bytes(512)) == (
        "bad_archive",
        "damaged",
    )


def test_data_behind_the_end_is_bounded(root):
    """Zeros without end behind a small tar are not read for ever."""
    assert refused(root, gzip.compress(tarred(("a", b"1")) + bytes(5_000_000))) == ("archive_too_large", "metadata")


def overlapping():
    """Two members that share the same packed bytes, as zip bombs without recursion have them."""
    data = zipped(("x", b"\0" * 1_000_000))
    place, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry = data[place:end]
    directory = entry + entry.replace(b"x", b"y")
    tail = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 2, 2, len(directory), place, 0)
    return data[:place] + directory + tail


def test_members_that_share_their_bytes_are_refused(root):
    """Overlapping members are named as that before any of them is unpacked."""
    assert refused(root, overlapping()) == ("archive_member", "overlap")


def test_a_failure_of_the_disk_leaves_nothing(root, monkeypatch):
    """An error of the disk in the middle is raised as it is, and what was written is removed."""
    real, count = ConfinedPath.open, []

    def fail(self, *arguments, **options):
        count.append(self)
        if len(count) == 3:
            raise OSError(28, "No space left on device")
        return real(self, *arguments, **options)

    monkeypatch.setattr(ConfinedPath, "open", fail)
    with pytest.raises(OSError, match="No space left"):
        unpack(root, zipped(*FILES))
    assert list(root.iterdir()) == []


def test_a_file_that_cannot_be_read_is_an_error_of_the_disk(root):
    """What the disk says is not taken for damage of the archive."""

    class Broken(io.BytesIO):
        def read(self, *arguments):
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        extract_archive(Broken(zipped(("x", b"y"))), ConfinedPath(str(root), "out"))
    assert list(root.iterdir()) == []


def test_an_interruption_leaves_nothing(root, monkeypatch):
    """Ctrl-C in the middle removes what was written, too."""
    real = ConfinedPath.mkdir

    def interrupt(self, *arguments, **options):
        if self.relative.endswith("/b"):
            raise KeyboardInterrupt
        return real(self, *arguments, **options)

    monkeypatch.setattr(ConfinedPath, "mkdir", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(root, zipped(*FILES))
    assert list(root.iterdir()) == []


def test_only_a_new_or_empty_folder_is_filled(root):
    """Nothing that is there is changed: a folder with content and a file are errors, an empty folder is filled."""
    data = zipped(("x", b"y"))
    (root / "full").mkdir()
    (root / "full/kept").write_text("kept")
    (root / "file").write_text("kept")
    (root / "empty").mkdir()
    with pytest.raises(FileExistsError):
        extract_archive(io.BytesIO(data), ConfinedPath(str(root), "full"))
    with pytest.raises(NotADirectoryError):
        extract_archive(io.BytesIO(data), ConfinedPath(str(root), "file"))
    with pytest.raises(FileNotFoundError):
        extract_archive(io.BytesIO(data), ConfinedPath(str(root), "no/out"))
    extract_archive(io.BytesIO(data), ConfinedPath(str(root), "empty"))
    assert {one.relative_to(root).as_posix() for one in root.rglob("*")} == {
        "full",
        "full/kept",
        "file",
        "empty",
        "empty/x",
    }


def test_a_folder_that_is_filled_meanwhile_is_not_replaced(root, monkeypatch):
    """What another process puts there while the archive is unpacked stays; the unpacked files go."""
    real = ConfinedPath.open

    def race(self, *arguments, **options):
        (root / "out").mkdir(exist_ok=True)
        (root / "out/theirs").write_text("theirs")
        return real(self, *arguments, **options)

    monkeypatch.setattr(ConfinedPath, "open", race)
    with pytest.raises(OSError, match="not empty"):
        extract_archive(io.BytesIO(zipped(("x", b"y"))), ConfinedPath(str(root), "out"))
    assert {one.name for one in root.rglob("*")} == {"out", "theirs"}


@pytest.mark.timeout(60)
def test_a_race_with_links_cannot_lead_out(root, tmp_path):
    """While another thread swaps folders of the draft for links that lead out, nothing is written outside."""
    outside, stop = tmp_path / "ws/../elsewhere", threading.Event()
    outside.mkdir()
    data = zipped(*((f"d{n % 5}/f{n}", b"x") for n in range(200)))

    def swap():
        while not stop.is_set():
            for draft in root.glob(".pokayoke-*"):
                for number in range(5):
                    place = draft / f"d{number}"
                    try:
                        place.rename(draft / f"moved{number}-{random.random()}")
                        place.symlink_to(outside)
                    except OSError:
                        pass

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(15):
            with contextlib.suppress(PathEscape, OSError):
                extract_archive(io.BytesIO(data), ConfinedPath(str(root), f"out{number}"))
    finally:
        stop.set()
        thread.join()
    assert list(outside.iterdir()) == []
    outside.rmdir()


def test_the_folder_itself_is_confined(root, tmp_path):
    """A link on the way to the new folder that leads out is refused, and nothing is written through it."""
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(PathEscape, match="leaves its root through a link"):
        extract_archive(io.BytesIO(zipped(("x", b"y"))), ConfinedPath(str(root), "link/out"))


@pytest.mark.parametrize("to", ["text", None])
def test_a_target_that_confines_nothing_is_an_error(root, to):
    """The target is a confined path below its root, and the archive a file that can seek."""
    data = io.BytesIO(zipped(("x", b"y")))
    with pytest.raises(UsageError, match="ConfinedPath of a folder below its root"):
        extract_archive(data, str(root) if to else ConfinedPath(str(root), "."))
    read, write = os.pipe()
    with open(read, "rb") as pipe, open(write, "wb"), pytest.raises(UsageError, match="can seek"):
        extract_archive(pipe, ConfinedPath(str(root), "out"))


@pytest.mark.parametrize("fields", [{"members": 0}, {"ratio": 1.5}, {"total_bytes": True}, {"member_bytes": -1}])
def test_limits_that_limit_nothing_are_an_error(fields):
    """A limit is a whole number from 1."""
    with pytest.raises(ConfigurationError, match=f"ArchiveLimits: {next(iter(fields))}"):
        ArchiveLimits(**fields)


def test_a_tool_unpacks_through_the_guard(root):
    """A tool unpacks what its confined paths name; a hostile archive fails the call and leaves nothing."""
    (root / "good.zip").write_bytes(zipped(("a/b.txt", b"hello")))
    (root / "evil.zip").write_bytes(zipped(("../outside.txt", b"evil")))

    @tool(output="text", paths={"archive": [str(root)], "folder": [str(root)]}, no_effect_errors=(ArchiveRefused,))
    def unpack_file(archive: ConfinedPath, folder: ConfinedPath) -> str:
        """Unpack an archive into a new folder."""
        return " ".join(one.relative for one in extract_archive(archive, folder))

    with Guard([unpack_file]).run() as run:
        done = run.call(ToolCall("a", "unpack_file", {"archive": "good.zip", "folder": "new"}))
        assert (done.status, done.value) == ("ok", "new/a/b.txt")
        failed = run.call(ToolCall("b", "unpack_file", {"archive": "evil.zip", "folder": "bad"}))
        assert (failed.status, failed.effect, failed.findings[0].data["reason"]) == ("failed", "none", "ArchiveRefused")
    assert sorted(one.name for one in root.iterdir()) == ["evil.zip", "good.zip", "new"]


NAMES = st.lists(
    st.sampled_from(["a", "b", "A", "..", ".", "/", "//", "\\", "C:", "~", "%2e%2e", "é", "\0", " ", "nul", "x" * 50]),
    min_size=1,
    max_size=5,
).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(names=st.lists(NAMES, max_size=4, unique=True), kind=st.sampled_from(["zip", "tar"]), link=st.booleans())
@example(names=["a/../../outside.txt"], kind="zip", link=False)
def test_no_archive_writes_outside(root, names, kind, link):
    """Whatever the names, either everything lies below the folder or nothing was written at all."""
    names = dict.fromkeys(name.replace("\0", "") or "a" for name in names)  # the writers cut names there
    members = [(name, b"data") for name in names]
    if kind == "tar":
        links = [(tar_entry("l", tarfile.SYMTYPE, "../.."), b"")] if link else []
        data = tarred(*links, *members)
    else:
        data = zipped(*((zip_entry(name), content) for name, content in members))
    before = {one: one.stat().st_mtime_ns for one in root.parent.rglob("*") if one != root}
    try:
        written = extract_archive(io.BytesIO(data), ConfinedPath(str(root), "out"))
    except ArchiveRefused:
        written = None
    now = {
        one: one.stat().st_mtime_ns
        for one in root.parent.rglob("*")
        if one != root and root / "out" not in (one, *one.parents)
    }
    assert now == before
    assert (written is None) is not (root / "out").exists()
    if written is not None:
        assert {Path(one) for one in written} == {one for one in (root / "out").rglob("*") if one.is_file()}
        extract_archive(io.BytesIO(zipped()), ConfinedPath(str(root), "none"))
        for one in sorted([*(root / "out").rglob("*"), root / "out", root / "none"], reverse=True):
            one.rmdir() if one.is_dir() else one.unlink()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.data(),
    base=st.sampled_from([zipped(*FILES[:4]), tarred(*FILES[:4]), tarred(*FILES[:4], packer=gzip.compress)]),
)
def test_any_damage_is_refused_or_harmless(root, data, base):
    """Bytes changed anywhere give another archive or a refusal: never another exception, and nothing is left."""
    out = bytearray(base)
    for _ in range(data.draw(st.integers(1, 4))):
        out[data.draw(st.integers(0, len(out) - 1))] = data.draw(st.integers(0, 255))
    try:
        extract_archive(io.BytesIO(bytes(out)), ConfinedPath(str(root), "out"))
    except ArchiveRefused:
        assert list(root.iterdir()) == []
    else:
        for one in sorted([*(root / "out").rglob("*"), root / "out"], reverse=True):
            one.rmdir() if one.is_dir() else one.unlink()


def test_the_parsers_are_those_of_the_standard_library():
    """The bombs of these tests are real: without limits, the standard library unpacks them."""
    with zipfile.ZipFile(io.BytesIO(BOMB)) as archive:
        assert len(archive.read("zeros")) == 20_000_000
    assert len(BOMB) < 25_000
    assert zlib.crc32(b"") == 0
