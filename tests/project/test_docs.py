"""The documentation is executed: what it shows is what happens.

Per page, in a folder of its own and in one namespace:

- ```` ```python ```` runs; a ```` ```text output ```` block after it is exactly what it printed;
- ```` ```console ```` runs each line that starts with `$ pokayoke `; `  # exit 1` at its end names the exit code,
  0 if absent;
- ```` ```yaml file=NAME ```` (or any language) is written to NAME first;
- ```` ```text ```` and ```` ```sh ```` are shown only.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from source import ROOT, name

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN_ONLY = {"text", "sh", "mermaid"}


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    info: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    fence: tuple[str, str, int] | None = None
    body: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r"^(`{3,})\s*(\S*)\s*(.*)$", line)
        if fence is None and match:
            fence, body = (match.group(2), match.group(3), number), []
        elif fence is not None and line.startswith("```"):
            found.append(Block(fence[0], fence[1], "\n".join(body) + "\n", fence[2]))
            fence = None
        elif fence is not None:
            body.append(line)
    assert fence is None, f"{page}: the block of line {fence and fence[2]} is never closed"
    return found


RUNNABLE = [page for page in PAGES if any(block.language not in SHOWN_ONLY for block in blocks(page))]


def run_console(block: Block) -> None:
    """Run the commands of a console block; the exit code has to be the one the page names."""
    for line in block.text.splitlines():
        if not line.startswith("$ pokayoke "):
            continue
        command, _, note = line[2:].partition("  # exit ")
        done = subprocess.run(
            [sys.executable, "-c", "from pokayoke.cli import main; main()", *shlex.split(command)[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert done.returncode == int(note or 0), f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch):
    """The blocks of a page run in order, print what the page says they print, and leave nothing to install."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict = {"__name__": "page"}
    printed = ""
    for block in blocks(page):
        if match := re.search(r"file=(\S+)", block.info):
            target = tmp_path / match.group(1)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            out = io.StringIO()
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with contextlib.redirect_stdout(out):
                exec(code, space)
            printed = out.getvalue()
        elif block.language == "console":
            run_console(block)
        elif block.language == "text" and block.info == "output":
            assert printed.strip() == block.text.strip(), f"{name(page)} line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page):
    """A fenced block names its language; one that is not run is marked as text or sh."""
    known = {"python", "console", "yaml", "json", "jsonl", *SHOWN_ONLY}
    assert [f"line {block.line}: {block.language!r}" for block in blocks(page) if block.language not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
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


@pytest.mark.parametrize("page", [page for page in PAGES if "reference" not in page.parts], ids=name)
def test_a_sentence_stands_on_its_own_line(page):
    """In prose, no source line holds the end of one sentence and the beginning of another."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    wrong = [
        line
        for line in text.splitlines()
        if not line.lstrip().startswith(("|", "<")) and re.search(r"[a-z0-9`)*][.!?] [A-Z]", line)
    ]
    assert wrong == []
