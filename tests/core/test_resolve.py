"""When "not found" is proof enough to execute again, and how long that takes."""

import pytest

from pokayoke.core import resolve
from pokayoke.core.contract import Contract


def contract(safe, **more):
    return Contract.from_schema(
        "pay",
        {"type": "object"},
        output_schema={"type": "object"},
        on_ambiguous="lookup",
        lookup=lambda key, arguments: resolve.UNKNOWN,
        lookup_safe=safe,
        handler=dict,
        **more,
    )


@pytest.mark.parametrize(
    ("safe", "more", "dead_since", "now", "wait"),
    [
        ("downstream_key", {"forwards_key": True}, None, None, 0.0),
        ("executor_dead", {}, None, 50.0, None),
        ("executor_dead", {}, 10.0, None, 0.0),
        ("settled", {"settle_after": 30.0}, None, 50.0, None),
        ("settled", {"settle_after": 30.0}, 45.0, 50.0, 25.0),
        ("settled", {"settle_after": 30.0}, 10.0, 50.0, -10.0),
        # Another machine, or another boot: no clock of ours says how long it has been.
        ("settled", {"settle_after": 30.0}, 10.0, None, None),
    ],
)
def test_how_long_to_wait(safe, more, dead_since, now, wait):
    """Seconds until a second execution is safe, row by row; None is never."""
    assert resolve._wait(contract(safe, **more), dead_since, now) == wait
