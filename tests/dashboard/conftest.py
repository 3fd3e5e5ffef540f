"""A dashboard over each durable store, and visitors of it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from dashboard_site import NOW, Dashboard
from pgserver import Missing, empty_schema

import pokayoke
from pokayoke.stores.base import Store
from pokayoke.testing import FrozenClock

POSTGRES = pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))


@pytest.fixture(params=["sqlite", POSTGRES])
def store(request, tmp_path, need) -> Iterator[Store]:
    """An empty durable store of each kind."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/ledger.db"
        if request.param == "postgres":
            try:
                url = stack.enter_context(empty_schema())
            except Missing as missing:
                need(str(missing))
        opened = pokayoke.open_store(url, create=True)
        stack.callback(opened.close)
        yield opened


@pytest.fixture
def clock():
    """The time stands still."""
    return FrozenClock(NOW)


@pytest.fixture
def dashboard(store, clock):
    """A dashboard over each store."""
    return Dashboard(store, clock)


@pytest.fixture
async def ann(dashboard):
    """Somebody who has signed in and may decide."""
    return await dashboard.sign_in()
