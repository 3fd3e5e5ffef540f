"""Events: the reason that a finding gives in the trace."""

import pytest

from pokayoke.core.call import Finding
from pokayoke.core.flow.events import reason_of


@pytest.mark.parametrize(
    ("finding", "reason"),
    [
        (Finding(code="wrong_content_type", data={"reason": "content-type text/html"}), "content-type text/html"),
        (Finding(code="wrong_type", at="/a"), "wrong_type at /a"),
        (Finding(code="not_finite"), "not_finite"),
    ],
)
def test_reasons_in_the_trace(finding, reason):
    """A finding's own reason comes first, then code and place."""
    assert reason_of(finding) == reason
