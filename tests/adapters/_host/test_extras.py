"""Imports of what may be missing."""

import contextlib
import importlib
from importlib import metadata

import pytest

from pokayoke import adapters
from pokayoke.adapters._host.extras import lower_bounds, require_extra
from pokayoke.errors import MissingExtraError, UnknownAdapterError
from tools.environments import NAMES


@pytest.mark.parametrize(("extra", "named"), [("toy", "toy"), ("", "no-such-package")])
def test_a_failed_import_says_what_to_install(extra, named):
    """The extra is called like the distribution if none is given; the import's own error is the cause."""
    with (
        pytest.raises(MissingExtraError, match=rf"pokayoke\[{named}\]") as raised,
        require_extra("no-such-package", extra),
    ):
        raise ImportError("no_such_module")
    assert str(raised.value.__cause__) == "no_such_module"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs the metadata of a distribution before all others."""

    def install(name, version, *requirements):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requirements]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")

    monkeypatch.syspath_prepend(tmp_path)
    return install


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [
        ("1.3.9", True), ("0.99", True), ("1.4", False), ("1.4.0", False), ("1.4rc1", False), ("1.10", False),
        ("2.5", False), ("unknown", False),
    ],
)  # fmt: skip
def test_a_version_below_the_bound_of_the_extra_is_refused(installed, version, is_refused):
    """The error names both versions and the command, before anything is imported; a newer one is never refused."""
    installed("pokayoke", "9", "toy[all]<2,>=1.4; extra == 'toys'", "toy>=7; extra == 'other'", "toy>=8")
    installed("toy", version)
    told = rf"^toy {version} is installed, and pokayoke needs 1\.4 or newer\. Run: .*'pokayoke\[toys\]'$"
    expected = pytest.raises(MissingExtraError, match=told) if is_refused else contextlib.nullcontext()
    with expected, require_extra("toy", "toys"):
        assert not is_refused


def test_each_distribution_of_an_extra_has_its_bound(installed):
    """The second one of an extra is refused too, whichever the adapter imports."""
    installed("pokayoke", "9", "toy>=1; extra == 'toy'", "toy-core<2,>=1.5; extra == 'toy'")
    installed("toy", "1")
    installed("toy-core", "1.4")
    with (
        pytest.raises(MissingExtraError, match=r"toy-core 1\.4 is installed, and pokayoke needs 1\.5"),
        require_extra("toy"),
    ):
        pass
    with require_extra("toy", bounded=False):
        pass


def test_without_metadata_no_version_is_refused(monkeypatch):
    """A copied folder has no bounds, and a package without metadata no version."""

    def find(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", find)
    assert not list(lower_bounds("langchain"))
    with require_extra("langchain"):
        pass


def test_every_framework_has_a_bound():
    """The metadata of pokayoke itself are read: each framework's extra has a lower bound."""
    assert not [name for name in NAMES if name != "plain" and not list(lower_bounds(name))]


def test_another_error_goes_through_as_it_is():
    """Only a failed import is reported anew."""
    with pytest.raises(ValueError, match="other"), require_extra("no-such-package"):
        raise ValueError("other")


@pytest.mark.parametrize(
    ("name", "advice"), [("langgraph", "import pokayoke.adapters.langchain"), ("llama_index", "write-an-adapter")]
)
def test_an_adapter_that_does_not_exist_says_what_to_do_instead(name, advice):
    """The error of the import names the adapter of that framework or a way without one, and all that there are."""
    with pytest.raises(ImportError, match=advice) as raised:
        exec(f"from pokayoke.adapters import {name}", {})
    assert isinstance(raised.value, UnknownAdapterError)
    assert "anthropic, autogen, crewai" in str(raised.value)
    with pytest.raises(UnknownAdapterError):
        getattr(adapters, name)


def test_an_adapter_that_exists_is_imported_as_before():
    """Neither a module that is not loaded yet nor a name that is none of an adapter is reported."""
    exec("from pokayoke.adapters import _host", {})
    assert importlib.import_module("pokayoke.adapters._host") is adapters._host
    assert not hasattr(adapters, "__wrapped__")
