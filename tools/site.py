"""Build the documentation site into build/site/html: `python -m tools.site`, with Zensical installed.

The pages are copied to build/site/docs, without what only the tests read in their blocks, and joined by a page for
each finding code. After the build, the Markdown of every page lies beside its HTML, `llms.txt` lists them, and every
link and anchor is looked up: a dead one, or a request to another server, fails the build.
"""

from __future__ import annotations

import html.parser
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.reference import finding_pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
STAGE = ROOT / "build" / "site"
HTML = STAGE / "html"

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("index", "installation", "tutorial", "guides/scopes", "faq", "troubleshooting", "comparison"),
    "Frameworks": (
        *("guides/frameworks", "guides/plain-loop", "guides/loop", "guides/langchain", "guides/pydantic-ai"),
        *("guides/openai-agents", "guides/agent-framework", "guides/autogen", "guides/crewai", "guides/google-adk"),
        *("guides/fastmcp", "guides/litellm", "guides/write-an-adapter"),
    ),
    "MCP": ("guides/install-into-a-client", "guides/mcp-gateway", "guides/gateway-many-servers"),
    "Migrate": (),
    "Guides": (),
    "Concepts": ("concepts/path-of-a-call", "concepts/outcomes", "concepts/at-most-once", "concepts/guarantees"),
    "Reference": ("reference/findings", "reference/readings", "reference/config", "reference/cli", "glossary"),
    "API": (
        *("api/guards", "api/contracts", "api/readings", "api/ledger", "api/context"),
        *("api/files-and-urls", "api/errors"),
    ),
    "Decisions": ("decisions/README",),
}
"""The sections of the navigation and the pages that come first; a folder of that name adds its other pages."""
LLMS_HEAD = """# pokayoke

> Mistake-proofing for the tool calls of AI agents: nothing wrong runs silently, and every effect happens at most once.

Each page is Markdown; with `.html` in place of `.md` it is the page for people.
"""
WORKER_ADDRESS = "https://unpkg.com/iframe-worker/shim"
_CODE_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def page_title(page: Path) -> str:
    """Return the first heading of a page."""
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else page.stem


def navigation() -> dict[str, list[str]]:
    """Return every page of docs/ once, by section: its path without the ending."""
    left = {str(page.relative_to(DOCS).with_suffix("")): page for page in sorted(DOCS.rglob("*.md"))}
    shown = {title: [name for name in first if left.pop(name, None)] for title, first in SECTIONS.items()}
    for name in sorted(left, key=lambda one: one if one.startswith("decisions") else page_title(left[one]).lower()):
        folder = name.partition("/")[0].capitalize().replace("Api", "API")
        shown[folder if folder in shown else "Guides"].append(name)
    return {title: names for title, names in shown.items() if names}


def plain_fences(text: str) -> str:
    """Return a page whose blocks name their language only: what else stands there is for the tests."""
    return re.sub(r"^(`{3,}\w+) .*$", r"\1", text, flags=re.MULTILINE)


def declared_address() -> str | None:
    """Return the address of the site, which [project.urls] in pyproject.toml declares; None until it does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address: str | None = project.get("urls", {}).get("Documentation")
    return address


def stage() -> None:
    """Write the project that is built: pages, finding codes, navigation, address."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for page in DOCS.rglob("*.md"):
        target = STAGE / "docs" / page.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = plain_fences(page.read_text(encoding="utf-8"))
        if page == DOCS / "reference" / "findings.md":
            text = _CODE_ROW.sub(r"| [`\1`](findings/\1.md) |", text)
        target.write_text(text, encoding="utf-8")
    (STAGE / "docs" / "reference" / "findings").mkdir()
    for code, text in finding_pages().items():
        (STAGE / "docs" / "reference" / "findings" / f"{code}.md").write_text(text, encoding="utf-8")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    lines = [settings.replace("build/html", "html").replace("[src]", "[../../src]")]
    if (address := declared_address()) is not None:
        lines.append(f"site_url: {address}\n")
    lines.append("nav:\n")
    for title, names in navigation().items():
        lines.append(f"  - {title}:\n")
        lines += [f"      - {name}.md\n" for name in names]
    (STAGE / "mkdocs.yml").write_text("".join(lines), encoding="utf-8")


def write_twins() -> None:
    """Write the Markdown of each page beside its HTML, and `llms.txt`, which lists them (llmstxt.org)."""
    for page in (STAGE / "docs").rglob("*.md"):
        shutil.copyfile(page, HTML / page.relative_to(STAGE / "docs"))
    lines = [LLMS_HEAD]
    base = f"{(declared_address() or '').rstrip('/')}/".lstrip("/")
    for title, names in navigation().items():
        lines.append(f"\n## {title if title != 'Decisions' else 'Optional'}\n\n")
        lines += [f"- [{page_title(DOCS / f'{name}.md')}]({base}{name}.md)\n" for name in names]
    lines.append(f"\nEach finding code has a page: {base}reference/findings/CODE.md\n")
    (HTML / "llms.txt").write_text("".join(lines), encoding="utf-8")


def keep_worker_here() -> None:
    """Load the script that lets the search run without a server from the site, not from unpkg.com."""
    shutil.copyfile(ROOT / "tools" / "site_worker.js", HTML / "assets" / "javascripts" / "worker.js")
    for page in HTML.rglob("*.html"):
        up = "../" * (len(page.relative_to(HTML).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(WORKER_ADDRESS, f"{up}assets/javascripts/worker.js"), encoding="utf-8")


class _Page(html.parser.HTMLParser):
    """The anchors of a page, the links it offers, and what a browser loads to show it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names, leads to and loads."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(given.get("href", ""))
        elif "src" in given:
            self.loads.append(given["src"])


def site_problems(folder: Path) -> Iterator[str]:
    """Yield each link or anchor that leads nowhere, and each file that comes from another server."""
    pages = {page.resolve(): _Page(page) for page in sorted(folder.rglob("*.html"))}
    for page, found in pages.items():
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        here = page.relative_to(folder.resolve())
        for target in [*found.links, *found.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in found.loads and parts.scheme != "data":
                    yield f"{here}: loads {target}"
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            if not file.exists():
                yield f"{here}: {target} does not exist"
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                yield f"{here}: {target} has no such anchor"
    for style in folder.rglob("*.css"):
        for target in re.findall(r"url\(['\"]?(https?:[^)'\"]+)", style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(folder)}: loads {target}"


def main() -> int:
    """Build the site; 1 if a page or a link is wrong."""
    stage()
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(STAGE / "mkdocs.yml")]
    done = subprocess.run(command, check=False, cwd=STAGE)  # noqa: S603 - the project's own documentation
    if done.returncode:
        return 1
    keep_worker_here()
    write_twins()
    problems = list(site_problems(HTML))
    print("".join(f"{problem}\n" for problem in problems), end="", file=sys.stderr)
    count = len(list(HTML.rglob("*.html")))
    print(f"{count} pages in {HTML.relative_to(ROOT)}, {len(problems)} dead links", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
