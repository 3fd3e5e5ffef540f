"""Confidence: what each repair and correction takes from it."""

import pytest

from pokayoke.core.call import Correction
from pokayoke.core.gate.confidence import call_confidence


@pytest.mark.parametrize(
    ("repairs", "corrections", "given_value", "expected"),
    [
        ((), (), None, 1.0),
        (("a", "b"), (), None, 0.9),
        ((), [("/a", "r", "equivalent")], None, 0.9),
        ((), [("/a", "r", "likely")], None, 0.6),
        ((), [("/a", "r", "likely"), ("/b", "r", "likely")], None, 0.2),
        ((), [("/a/0", "r", "equivalent"), ("/a/1", "r", "equivalent"), ("/a/2", "r", "equivalent")], None, 0.9),
        (("x",) * 40, (), None, 0.0),
        ((), (), 0.7, 0.7),
        ((), [("/a", "r", "likely")], 0.7, 0.55),
        (("x",), (), 0.7, 0.65),
        ((), (), 7.0, 1.0),
        ((), (), -1.0, 0.0),
        ((), (), float("nan"), 0.0),
    ],
)
def test_confidence(repairs, corrections, given_value, expected):
    """The confidence follows the documented deductions; the host's own is lowered by at most 0.15."""
    made = [Correction(at, rule, 1, 2, kind) for at, rule, kind in corrections]
    assert call_confidence(repairs, made, given_value) == expected
