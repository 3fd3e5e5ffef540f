"""The documentation is executed, so that its outputs are true. The rules for blocks are in tools/examples.py."""

import os
import re
import warnings
from pathlib import Path

import pytest
from source import ROOT, name

from tools.environments import NAMES
from tools.examples import PAGES, SHOWN_ONLY, has_runnable_blocks, host_of, missing_requirements, read_blocks, run_page

PROSE = [*PAGES, *(ROOT / f"{page}.md" for page in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]
"""The pages whose blocks run, and those that have none to run."""


@pytest.mark.timeout(300)  # a page starts many commands, and the suite keeps every processor busy
@pytest.mark.parametrize("page", [page for page in PAGES if has_runnable_blocks(page)], ids=name)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch, need):
    """The blocks of a page run in order and print exactly what the page says they print."""
    if (where := host_of(page)) is not None and where != os.environ.get("POKAYOKE_HOST"):
        pytest.skip(f"runs in an environment of its own: {command_of(where)}")
    if lacking := missing_requirements(page):
        need(f"{name(page)} needs {lacking[0]}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    if where is not None:
        warnings.simplefilter("ignore")  # frameworks warn of their own insides
    renew = "make docs" if where is None else command_of(where, " --write")
    for block, printed in run_page(page, tmp_path):
        assert printed.strip() == block.text.strip(), f"{name(page)} line {block.line}: run `{renew}`"


def command_of(host: str, more: str = "") -> str:
    """The command that runs the pages of an environment; `more` is for those of frameworks."""
    return f'make frameworks ARGS="{host}{more}"' if host in NAMES else f"make {host}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page):
    """A fenced block names its language; one that is not run is marked as text or sh."""
    known = {"python", "console", "yaml", "json", "jsonl", *SHOWN_ONLY}
    assert [
        f"line {block.line}: {block.language!r}" for block in read_blocks(page) if block.language not in known
    ] == []


@pytest.mark.parametrize("page", PROSE, ids=name)
def test_every_link_leads_somewhere(page):
    """A relative link points at a file that exists, and its anchor at a heading of that file."""
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """The anchors a page's headings have where Markdown is rendered."""
    headings = re.findall(r"^#+\s+(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PROSE if "reference" not in page.parts], ids=name)
def test_a_sentence_stands_on_its_own_line(page):
    """In prose, no source line holds the end of one sentence and the beginning of another."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    wrong = [
        line
        for line in text.splitlines()
        if not line.lstrip().startswith(("|", "<", "#")) and re.search(r"(?!^\d)[a-z0-9`)*][.!?] [A-Z]", line)
    ]
    assert wrong == []


def glossary_tables() -> list[list[list[str]]]:
    """The tables of the glossary: words of our own, then standard words; each a list of rows of cells."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [
        [[cell.strip() for cell in row.strip("|").split("|")] for row in part.splitlines() if row.startswith("| ")][1:]
        for part in text.split("\n## ")[1:]
    ]


def test_the_glossary_has_few_words_of_its_own():
    """At most twelve words are our own, and each has the nearest standard term next to it."""
    own, _ = glossary_tables()
    assert len(own) <= 12
    assert [word for word, standard, _ in own if not standard] == []


def test_the_glossary_explains_each_word_once():
    """Each table is sorted, every row has a meaning, and no word has two rows."""
    words: list[str] = []
    for table in glossary_tables():
        names = [row[0] for row in table]
        assert names == sorted(names)
        assert [row[0] for row in table if len(row) != 3 or not row[2]] == []
        words += names
    assert len(words) == len(set(words))


def test_the_changelog_has_one_change_per_bullet():
    """The newest version has at most 120 lines, in the sections Added, Changed and Fixed, and no bullet a semicolon."""
    newest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    lines = newest.splitlines()
    assert len(lines) <= 120
    assert {line for line in lines if line.startswith("#")} <= {"### Added", "### Changed", "### Fixed"}
    bullets = [line for line in lines if line.startswith("- ")]
    assert [line for line in bullets if ";" in line or not line.endswith(".")] == []


@pytest.mark.parametrize("name", [one for one in NAMES if one != "plain"])
def test_an_adapters_page_says_how_a_wish_and_a_no_are_told(name):
    """Each has both sections, which point to the page that has the rules."""
    text = (ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")
    for heading, page in (("When the user wants it twice", "wanted-twice"), ("How a tool says no", "saying-no")):
        assert f"]({page}.md)" in text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
