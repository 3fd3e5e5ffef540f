"""What the browser tests of the dashboard need beside Python: `python -m tools.browser`.

Chromium comes from the system; axe-core, which looks for what shuts people out, from npm into `.browser-parts`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".browser-parts"
NPM: Final = {"axe-core": "4.14.1", "htmx.org": "4.0.1"}
"""What axe checks with, and the package with which the vendored files are compared."""


def find_chromium() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


def install() -> None:
    """Install what is not there yet, or say how."""
    if find_chromium() is None:
        apt = shutil.which("apt-get")
        if apt is None or os.geteuid() != 0:
            print("Chromium is not installed: as root, apt-get install chromium", file=sys.stderr)
        else:
            subprocess.run([apt, "update", "-qq"], check=False)  # noqa: S603 - words above
            subprocess.run([apt, "install", "-y", "-qq", "--no-install-recommends", "chromium"], check=False)  # noqa: S603
    if all((FOLDER / "node_modules" / name).is_dir() for name in NPM):
        return
    if (npm := shutil.which("npm")) is None:
        print("npm is not installed, and axe-core comes from it: apt-get install npm", file=sys.stderr)
        return
    FOLDER.mkdir(exist_ok=True)
    flags = ("--silent", "--no-fund", "--no-audit", "--no-package-lock", "--ignore-scripts")
    names = [f"{name}@{version}" for name, version in NPM.items()]
    subprocess.run([npm, "install", *flags, "--prefix", str(FOLDER), *names], check=True)  # noqa: S603 - names above


if __name__ == "__main__":
    install()
