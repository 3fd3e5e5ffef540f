"""The README as a package index shows it, for the metadata of what is built (a metadata hook of hatchling).

A link into the repository is dead there: one to a page of docs/ leads to the site that [project.urls] declares, and
any other one, or each as long as no site is declared, is its text alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_BLOCK_OR_LINK = re.compile(r"(?ms)^(```.*?^```)$|\[([^\]\n]+)\]\((?![a-z][a-z0-9+.-]*:)([^)\s]*)\)")
_PAGE = re.compile(r"docs/(.+)\.md(#.*)?")


def rewrite_links(text: str, address: str | None) -> str:
    """Return a page without relative links.

    Args:
        text: Markdown at the top of the repository.
        address: of the documentation site; None if there is none.
    """

    def rewrite(found: re.Match[str]) -> str:
        block, shown, target = found.groups()
        if block is not None:
            return block
        page = _PAGE.fullmatch(target)
        if address is None or page is None:
            return shown
        return f"[{shown}]({address.rstrip('/')}/{page[1]}.html{page[2] or ''})"

    return _BLOCK_OR_LINK.sub(rewrite, text)


class LongDescription(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml lists under `dynamic`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text to the metadata of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Documentation")
        metadata["readme"] = {"content-type": "text/markdown", "text": rewrite_links(text, address)}
