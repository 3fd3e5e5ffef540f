"""Which failures may be tried again."""

import pytest

from pokayoke import Contract, Raw
from pokayoke.core.flow.steps import NotStarted, Raised, Returned, TimedOut
from pokayoke.core.flow.walk import is_transient


def contract(effect="read", **fields):
    return Contract.from_schema(
        "tool", fields.pop("schema", {"type": "object"}), effect=effect, output_schema={}, **fields
    )


@pytest.mark.parametrize(
    ("reaction", "fields", "transient"),
    [
        (Raised(ConnectionError()), {}, True),
        (Raised(TimeoutError()), {}, True),
        (Raised(ValueError()), {}, False),
        (Raised(ValueError()), {"transient_errors": (ValueError,)}, True),
        (Raised(ConnectionError()), {"transient_errors": (ValueError,)}, False),
        (Raised(ConnectionError()), {"effect": "write"}, False),
        (Raised(LookupError()), {"effect": "write", "no_effect_errors": (LookupError,)}, True),
        (Raised(ConnectionError()), {"effect": "write", "no_effect_errors": (LookupError,)}, False),
        (
            Raised(KeyError()),
            {"effect": "write", "no_effect_errors": (LookupError,), "transient_errors": (IndexError,)},
            False,
        ),
        (TimedOut(1.0), {}, False),
        (NotStarted("x"), {}, False),
        (Returned(Raw("", "text/plain", 503)), {}, True),
        (Returned(Raw("", "text/plain", 429)), {}, True),
        (Returned(Raw("", "text/plain", 500)), {}, False),
        (Returned(Raw("", "text/plain", 503)), {"effect": "write"}, False),
        (Returned("text"), {}, False),
        (Returned({}), {}, False),
    ],
)
def test_transient_failures_are_retried(reaction, fields, transient):
    """Only failures that may pass and had no effect are retried."""
    assert is_transient(contract(**fields), reaction) is transient
