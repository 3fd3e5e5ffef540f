"""The documentation site: what is put into it. `make site` builds it, and looks up every link and anchor."""

import re

import pytest

import pokayoke
from pokayoke.core.finding_codes import FINDING_CODES
from tools import site
from tools.reference import finding_pages


def test_every_page_stands_in_the_navigation_once():
    """No page of docs/ is left out of the navigation, and none stands in it twice."""
    names = [name for names in site.navigation().values() for name in names]
    assert sorted(names) == sorted(str(page.relative_to(site.DOCS).with_suffix("")) for page in site.DOCS.rglob("*.md"))


def test_every_page_that_comes_first_exists():
    """A name in the table of sections is the name of a page."""
    named = [name for first in site.SECTIONS.values() for name in first]
    assert [name for name in named if not (site.DOCS / f"{name}.md").exists()] == []


def test_every_finding_code_has_a_page_with_a_stable_address():
    """The page of a code is named after it, says what it means, and leads to pages that exist."""
    pages = finding_pages()
    assert pages.keys() == FINDING_CODES.keys()
    for code, text in pages.items():
        assert text.startswith(f"# {code}\n")
        assert FINDING_CODES[code].meaning[1:] in text
        for target in re.findall(r"\]\(\.\./\.\./([^)]+)\)", text):
            assert (site.DOCS / target).exists(), target


def test_every_public_name_is_in_one_group_of_the_api():
    """Each name that `pokayoke` exports is rendered on one page of docs/api/, and nothing else is."""
    named = [
        name
        for page in (site.DOCS / "api").glob("*.md")
        for name in re.findall(r"^::: (.+)$", page.read_text(), re.MULTILINE)
    ]
    assert sorted(named) == sorted(f"pokayoke.{name}" for name in pokayoke.__all__)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="gone.html">x</a>', "page.html: gone.html does not exist"),
        ('<a href="#gone">x</a>', "page.html: #gone has no such anchor"),
        ('<a href="other.html#gone">x</a>', "page.html: other.html#gone has no such anchor"),
        ('<img src="https://elsewhere.example/x.png">', "page.html: loads https://elsewhere.example/x.png"),
        ('<link rel="stylesheet" href="//elsewhere.example/x.css">', "page.html: loads //elsewhere.example/x.css"),
        (
            '<a id="here" href="other.html#there">x</a><a href="#here">y</a><a href="https://elsewhere.example">z</a>',
            "",
        ),
    ],
)
def test_a_dead_link_and_a_foreign_file_are_found(body, problem, tmp_path):
    """A link to no page or anchor, and a file from another server, is a problem; a link to another server is none."""
    (tmp_path / "page.html").write_text(body)
    (tmp_path / "other.html").write_text('<h1 id="there">x</h1>')
    assert list(site.site_problems(tmp_path)) == ([problem] if problem else [])


def test_what_only_the_tests_read_is_not_shown():
    """The line of a fence keeps its language and loses the rest, and everything else stays."""
    text = "a\n```python host=langchain file=x.py\nfile=x\n```\n```text output\nb\n```\n"
    assert site.plain_fences(text) == "a\n```python\nfile=x\n```\n```text\nb\n```\n"
