"""Runs the blocks of the documentation; `python -m tools.examples` also writes their output into the pages.

Per page, in a folder of its own and in one namespace:

- ```` ```python ```` runs; a ```` ```text output ```` block after it is exactly what it printed;
- ```` ```console ```` runs each line that starts with `$ pokayoke `; `  # exit 1` at its end names the exit code,
  0 if absent;
- ```` ```yaml file=NAME ```` (or any language) is written to NAME first;
- ```` ```text ````, ```` ```sh ```` and ```` ```js ```` are shown only (`make mcp` runs what is in JavaScript).
- `needs=MODULE` in a block's info: the page cannot run without that module; `needs=NAME:` (with a colon): it needs
  a server, named by the environment variable NAME.
- `host=NAME`: the page runs in the environment of a framework, where POKAYOKE_HOST is that name:
  `make frameworks ARGS=NAME` runs it there, and with `--write` writes its output. For `host=services` it is
  `make services`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN_ONLY = {"text", "sh", "mermaid", "js"}


class Block(NamedTuple):
    """One fenced block of a page; `line` is that of its opening fence, counted from 1."""

    language: str
    info: str
    text: str
    line: int


def read_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    fence: tuple[str, str, int] | None = None
    body: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r"^`{3,}\s*(\S*)\s*(.*)$", line)
        if fence is None and match:
            fence, body = (match.group(1), match.group(2), number), []
        elif fence is not None and line.startswith("```"):
            found.append(Block(fence[0], fence[1], "".join(f"{one}\n" for one in body), fence[2]))
            fence = None
        elif fence is not None:
            body.append(line)
    if fence is not None:
        raise ValueError(f"{page}: the block of line {fence[2]} is never closed")
    return found


def has_runnable_blocks(page: Path) -> bool:
    """Return whether a page has anything to run."""
    return any(block.language not in SHOWN_ONLY for block in read_blocks(page))


def missing_requirements(page: Path) -> list[str]:
    """Return what a page needs and this machine lacks: modules, and servers by their environment variable."""
    needed = [need for block in read_blocks(page) for need in re.findall(r"needs=(\S+)", block.info)]
    return [need for need in needed if not (os.environ.get(need[:-1]) if need.endswith(":") else find_spec(need))]


def host_of(page: Path) -> str | None:
    """Return the framework in whose environment a page runs; None for the project's own."""
    return next((match[1] for block in read_blocks(page) if (match := re.search(r"host=(\S+)", block.info))), None)


def write_file(block: Block, folder: Path) -> bool:
    """Write a block that is a file into a folder; returns whether it is one."""
    if not (match := re.search(r"file=(\S+)", block.info)):
        return False
    target = folder / match.group(1)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(block.text, encoding="utf-8")
    return True


def run_page(page: Path, folder: Path) -> Iterator[tuple[Block, str]]:
    """Run a page in a folder; yield each output block with what the code before it really printed.

    The current folder must be `folder`, and it must be on `sys.path`.
    """
    module = ModuleType("page")  # dataclasses and type hints look their module up
    sys.modules["page"] = module
    environment, printed = dict(os.environ), ""
    try:
        for block in read_blocks(page):
            if write_file(block, folder):
                continue
            if block.language == "python":
                out = io.StringIO()
                code = compile("\n" * block.line + block.text, str(page), "exec")
                with contextlib.redirect_stdout(out):
                    exec(code, module.__dict__)  # noqa: S102 - the project's own pages
                printed = out.getvalue()
            elif block.language == "console":
                _console(block)
            elif (block.language, block.info) == ("text", "output"):
                yield block, printed
    finally:  # a page may set variables for itself
        os.environ.clear()
        os.environ.update(environment)


def _console(block: Block) -> None:
    for line in block.text.splitlines():
        if not line.startswith("$ pokayoke "):
            continue
        command, _, code = line[2:].partition("  # exit ")
        done = subprocess.run(  # noqa: S603 - the project's own pages
            [sys.executable, "-c", "from pokayoke.cli import main; main()", *shlex.split(command)[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "NO_COLOR": "1"},
        )
        if done.returncode != int(code or 0):
            raise AssertionError(f"{command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}")


def rewrite_page(page: Path) -> bool:
    """Write the output of a page's blocks into it; returns whether that changed it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    before = list(lines)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        sys.path.insert(0, folder)
        found = list(run_page(page, Path(folder)))
        sys.path.remove(folder)
    for block, printed in reversed(found):
        lines[block.line : block.line + block.text.count("\n")] = printed.strip().splitlines()
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines != before


if __name__ == "__main__":
    for name in sys.argv[1:] or [str(page) for page in PAGES if has_runnable_blocks(page) and host_of(page) is None]:
        if rewrite_page(Path(name).resolve()):
            print(f"wrote {name}", file=sys.stderr)
