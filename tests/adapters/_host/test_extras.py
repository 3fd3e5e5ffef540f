"""Imports of what may be missing."""

import importlib

import pytest

from pokayoke import adapters
from pokayoke.adapters._host.extras import require_extra
from pokayoke.errors import MissingExtraError, UnknownAdapterError


@pytest.mark.parametrize(("extra", "named"), [("toy", "toy"), ("", "no-such-package")])
def test_a_failed_import_says_what_to_install(extra, named):
    """The extra is called like the distribution if none is given; the import's own error is the cause."""
    with (
        pytest.raises(MissingExtraError, match=rf"pokayoke\[{named}\]") as raised,
        require_extra("no-such-package", extra),
    ):
        raise ImportError("no_such_module")
    assert str(raised.value.__cause__) == "no_such_module"


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
