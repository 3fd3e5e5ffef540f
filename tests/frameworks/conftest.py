"""Which tests of frameworks run here: those of the framework in this environment, see `tools/frameworks.py`."""

import os
import sys
from pathlib import Path

import pytest
from framework_shop import Shop

from tools.frameworks import SHARED

HERE = Path(__file__).resolve().parent
FRAMEWORK = os.environ.get("POKAYOKE_HOST", "").replace("-", "_")
"""The framework whose environment this is; empty in every other environment."""

collect_ignore = [
    path.name for path in HERE.iterdir() if path.is_dir() and path.name not in {"hosts", "__pycache__", FRAMEWORK}
]
sys.path.insert(0, str(HERE / FRAMEWORK))  # helpers beside the tests of the framework
if FRAMEWORK:
    from conversation import play, possible  # noqa: F401 - fixtures
else:
    collect_ignore += SHARED


@pytest.fixture
def shop(tmp_path):
    """The tools and their log."""
    return Shop(tmp_path / "log")
