"""The warnings that FastMCP causes."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Ignore them in every test of this folder: FastMCP and its server warn of what they will drop."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"))
