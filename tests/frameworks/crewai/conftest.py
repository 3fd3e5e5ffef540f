"""Fixtures of the tests of CrewAI's adapter, and what CrewAI needs to be tested."""

import warnings

import pytest
from runner import load

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # CrewAI's own imports raise some
    load("crewai")  # sets CrewAI's environment variables before the first import

from crewai.tools import tool

# CrewAI leaves event loops of threads open, and files of its storage.
IGNORED = (
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning:crewai",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """Ignore CrewAI's own warnings in each test of this environment."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings(*IGNORED))


@pytest.fixture
def done():
    """What the tools did."""
    return []


@pytest.fixture
def tools(done):
    """A read and a write."""

    @tool("Get Order")
    def get_order(order_id: str) -> dict:
        """Look up an order."""
        done.append(("get_order", order_id))
        return {"order_id": order_id, "qty": 2}

    @tool
    def refund(order_id: str, amount: int) -> dict:
        """Refund an order."""
        done.append(("refund", order_id, amount))
        return {"refunded": order_id}

    return [get_order, refund]
