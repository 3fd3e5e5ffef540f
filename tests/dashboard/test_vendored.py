"""What comes from elsewhere is what it says it is."""

import hashlib
from importlib import resources

import pytest

from tools.browser import FOLDER, NPM

STATIC = resources.files("pokayoke.dashboard") / "static" / "vendor"
SOURCES = {
    "htmx.min.js": "dist/htmx.min.js",
    "hx-csp.min.js": "dist/ext/hx-csp.min.js",
    "hx-sse.min.js": "dist/ext/hx-sse.min.js",
    "LICENSE": "LICENSE",
}


def sums():
    """Name and digest of each vendored file, as they are written down."""
    lines = (STATIC / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert f"htmx.org {NPM['htmx.org']} (0BSD)" in lines[0]
    return {name: digest for digest, name in (line.split() for line in lines[1:])}


@pytest.mark.parametrize("name", SOURCES)
def test_a_vendored_file_has_its_digest(name):
    """Each file is the one whose digest is written down, and nothing else lies there."""
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == sums()[name]
    assert {one.name for one in STATIC.iterdir()} == {*SOURCES, "SHA256SUMS"}


@pytest.mark.parametrize("name", SOURCES)
def test_a_vendored_file_is_that_of_its_package(name):
    """Byte for byte, where the package is installed."""
    file = FOLDER / "node_modules" / "htmx.org" / SOURCES[name]
    if not file.exists():
        pytest.skip("the npm package is not installed: make browser")
    assert file.read_bytes() == (STATIC / name).read_bytes()
