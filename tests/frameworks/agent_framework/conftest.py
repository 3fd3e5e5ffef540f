"""Tools for the tests of Agent Framework."""

import pytest


@pytest.fixture
def done():
    """What the tools did."""
    return []


@pytest.fixture
def tools(done):
    """A read and a write."""

    async def get_order(order_id: str) -> dict:
        """Look up an order."""
        done.append(("get_order", order_id))
        return {"order_id": order_id, "qty": 2}

    async def refund(order_id: str, amount: float) -> dict:
        """Refund an order."""
        done.append(("refund", order_id, amount))
        return {"refunded": order_id}

    return [get_order, refund]
