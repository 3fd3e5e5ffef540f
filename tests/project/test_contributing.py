"""CONTRIBUTING.md leads to files that exist, by short ways."""

import re

from source import PACKAGE, ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def paths_named_in(text: str) -> list[str]:
    """The paths that a text names in backticks: a file with its ending, or a folder with a slash at its end."""
    code = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return [one for one in code if re.fullmatch(r"[\w.\-/]+(?:/|\.(?:py|md|toml|lock))", one)]


def test_every_path_it_names_exists():
    """A path in backticks exists in the repository, or below src/pokayoke."""
    named = paths_named_in(TEXT)
    assert len(named) > 50
    assert [one for one in named if not (ROOT / one).exists() and not (PACKAGE / one).exists()] == []


def test_every_room_is_on_the_map():
    """Every folder of the core has its row or place on the map of the house, and only one."""
    rooms = [path.parent for path in (PACKAGE / "core").glob("*/__init__.py")]
    places = re.findall(r"`(core/\w+/)`", "".join(re.findall(r"(?m)^\| (`.+?`) \|", TEXT)))
    assert sorted(places) == sorted(f"core/{room.name}/" for room in rooms)


def test_an_errand_needs_three_files():
    """A row of the table of errands, and a recipe, name at most three files to open."""
    table = TEXT.split("## Where to look\n")[1].split("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    recipes = TEXT.split("## Recipes\n")[1].split("\n## ")[0].split("\n### ")[1:]
    assert len(rows) == 9
    assert len(recipes) == 6
    for text in rows + recipes:
        assert len({one for one in paths_named_in(text) if one.endswith(".py")}) <= 3, text


def test_the_tables_it_names_exist():
    """The tables and classes that the recipes name stand in the files they name."""
    for path, word in [
        ("core/intake/reading.py", "REPAIRS"),
        ("core/finding_codes.py", "counts_as"),
        ("core/intake/reader.py", "record_repair"),
        ("core/correct/proposals.py", "class Proposal"),
        ("core/finding_codes.py", "FindingCode"),
        ("core/gate/confidence.py", "confidence"),
        ("stores/base.py", "class Store"),
        ("stores/__init__.py", "def open_store"),
        ("adapters/_host/model.py", "class ModelSide"),
        ("cli/app.py", "_COMMANDS"),
    ]:
        text = (PACKAGE / path).read_text(encoding="utf-8")
        assert word in text, f"{path}: {word}"
        assert word.split()[-1] in TEXT, word
