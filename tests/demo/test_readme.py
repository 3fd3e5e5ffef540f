"""The table of README.md shows failures of the demo, by the words the demo uses."""

import re
from pathlib import Path

from pokayoke.demo.scenarios import SCENARIOS

README = Path(__file__).parents[2] / "README.md"


def test_the_failures_of_the_table_are_those_of_the_demo():
    """Each row names the kind of a script of the demo in which something goes wrong, and each name of `--only` fits one."""
    text = README.read_text(encoding="utf-8")
    table = text.split("| what goes wrong (`pokayoke demo`) |")[1].split("\n\n")[0]
    kinds = [row.split(" | ")[0].strip("| ") for row in table.splitlines()[2:]]
    scenarios = [make() for make in SCENARIOS]
    bad = {one.kind for one in scenarios if not one.good}
    assert len(kinds) == 6
    assert set(kinds) <= bad
    for name in re.findall(r"--only (\S+?)[ `]", text):
        assert any(name in one.name for one in scenarios), name
