"""Limits of a response: counted as it arrives, before and after decompression."""

import gzip
import tracemalloc
import zlib

import pytest

from pokayoke import ConfigurationError, UrlRefused
from pokayoke.runtime.network.limits import BodyReader, Deadline, HttpLimits


def read(body, encoding="", declared="", limit=1_000, piece=100):
    """The whole body, as a client would read it."""
    reader = BodyReader(encoding, declared, limit)
    got = [part for start in range(0, len(body), piece) for part in reader.read(body[start : start + piece])]
    reader.end()
    return b"".join(got)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", " GZIP "])
@pytest.mark.parametrize("piece", [1, 7, 1_000])
def test_a_gzip_is_decompressed(encoding, piece):
    """A body arrives whole however it is cut, also one of several gzip files."""
    body = gzip.compress(b"hello " * 20) + gzip.compress(b"again")
    assert read(body, encoding, piece=piece) == b"hello " * 20 + b"again"


def test_an_empty_body_is_no_damage():
    """An answer to HEAD names an encoding and has no body."""
    assert read(b"", "gzip") == b""
    assert read(b"as it is", "identity") == b"as it is"


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("response_too_large", {"body": b"x" * 1_001}),
        ("response_too_large", {"body": b"", "declared": "1001"}),
        ("response_too_large", {"body": b"", "declared": "9" * 10_000}),
        ("response_too_large", {"body": gzip.compress(b"x" * 1_001), "encoding": "gzip"}),
        ("response_too_large", {"body": b"".join(gzip.compress(b"x" * 400) for _ in range(3)), "encoding": "gzip"}),
        ("response_encoding", {"body": b"no gzip", "encoding": "gzip"}),
        ("response_encoding", {"body": gzip.compress(b"hello")[:-4], "encoding": "gzip"}),
        ("response_encoding", {"body": gzip.compress(b"hello") + b"tail", "encoding": "gzip"}),
        ("response_encoding", {"body": zlib.compress(b"x"), "encoding": "deflate"}),
        ("response_encoding", {"body": b"", "encoding": "br"}),
        ("response_encoding", {"body": b"", "encoding": "gzip, gzip"}),
    ],
)
def test_a_body_that_may_not_be_read_is_refused(code, arguments):
    """Size, declared size, size after decompression, damage and unknown encodings each have their code."""
    with pytest.raises(UrlRefused) as refused:
        read(**arguments)
    assert refused.value.finding.code == code
    assert refused.value.finding.hint


def test_a_bomb_takes_no_memory():
    """A gzip of 100 MB of zeros is refused at its limit, with a few hundred kilobytes in use."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(packer.compress(b"\0" * 1_000_000) for _ in range(100)), packer.flush()])
    tracemalloc.start()
    with pytest.raises(UrlRefused):
        for _ in BodyReader("gzip", "", 5_000_000).read(bomb):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    "fields",
    [{"redirects": -1}, {"redirects": 1.5}, {"max_bytes": 0}, {"max_bytes": True}, {"seconds": 0}, {"seconds": float("inf")}, {"seconds": float("nan")}, {"seconds": "1"}],
)  # fmt: skip
def test_limits_that_limit_nothing_are_an_error(fields):
    """A limit is a number of its kind."""
    with pytest.raises(ConfigurationError, match=f"HttpLimits: {next(iter(fields))}"):
        HttpLimits(**fields)


def test_a_deadline_cuts_each_step():
    """A step takes its own time or what is left, and none once the time is up."""
    assert Deadline(60).cut(1.0, TimeoutError) == 1.0
    assert 0 < Deadline(1).cut(None, TimeoutError) <= 1
    with pytest.raises(TimeoutError):
        Deadline(-1).cut(None, TimeoutError)
