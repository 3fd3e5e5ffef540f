"""Ledgers for the faults: an empty one of each durable kind, with a folder for what lies outside of it."""

from contextlib import ExitStack

import pytest
from effects_stage import Spec
from pgserver import Missing, empty_schema

from pokayoke import open_store


@pytest.fixture(params=["sqlite", "postgres"])
def spec(request, tmp_path, need):
    """A process's instructions with the URL of an empty ledger; change them with `msgspec.structs.replace`."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/ledger.db"
        if request.param == "postgres":
            try:
                url = stack.enter_context(empty_schema())
            except Missing as error:
                need(str(error))
        open_store(url, create=True).close()
        yield Spec(url=url, folder=str(tmp_path))
