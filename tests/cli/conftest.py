"""Commands as a user runs them."""

import pytest
from clishell import Shell


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)
