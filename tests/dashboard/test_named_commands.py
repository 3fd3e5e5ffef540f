"""Commands that pages name: each exists, with the options that stand beside it."""

import re
from pathlib import Path

import pytest
import typer.main

from pokayoke import dashboard
from pokayoke.cli.app import build_app

TEMPLATES = Path(dashboard.__file__).parent / "templates"
NAMED = sorted(
    {
        (file.name, found)
        for file in TEMPLATES.glob("*.html")
        for found in re.findall(r"<code>pokayoke ([^<{]*)</code>", file.read_text(encoding="utf-8"))
    }
)


@pytest.mark.parametrize(("page", "words"), NAMED)
def test_a_command_that_a_page_names_exists(page, words):
    """A page never leads to a command or an option that is not there."""
    del page
    command = typer.main.get_command(build_app())
    known = {"--help"}
    for word in words.partition(" -- ")[0].split():
        if hasattr(command, "commands") and word in command.commands:
            command = command.commands[word]
            known |= {name for option in command.params for name in option.opts}
        elif word.startswith("--"):
            assert word in known, words
        else:
            assert not hasattr(command, "commands") or word.isupper(), words
    assert command.name != "pokayoke"


def test_the_pages_name_commands():
    """The test above looks at something."""
    assert len(NAMED) > 10
