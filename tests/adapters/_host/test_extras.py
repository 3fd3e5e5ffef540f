"""Imports of what may be missing."""

import pytest

from pokayoke.adapters._host.extras import require_extra
from pokayoke.errors import MissingExtraError


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
