"""Fixtures of the tests of LangChain's adapter."""

import pytest
from langchain_script import Shop


@pytest.fixture
def shop():
    return Shop()
