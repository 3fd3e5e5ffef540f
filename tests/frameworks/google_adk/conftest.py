"""The settings of the tests of Google ADK, and the warnings that ADK causes."""

import os
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # LiteLLM asks the network for prices otherwise

import pytest

# ADK and its libraries warn of their own experimental features and of each other.
WARNINGS = (
    "ignore::UserWarning",
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items):
    """Ignore these warnings in every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(*WARNINGS))
