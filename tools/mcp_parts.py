"""Servers and clients of MCP by others, for the tests of the gateway: `python -m tools.mcp_parts`.

npm's go to `.mcp-parts/node_modules`, those of PyPI into an environment of their own in `.mcp-parts/python`. Exact
versions stand here, so that a new release of one of them changes no test; nothing of them is part of the package.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".mcp-parts"
NPM: Final = {
    "@modelcontextprotocol/client": "2.4.0",  # both eras
    "@modelcontextprotocol/inspector": "1.0.3",  # the last one that Node 20 runs
    "@modelcontextprotocol/sdk": "1.32.2",  # the era with a handshake
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "zod": "4.6.7",
}
PYPI: Final = {"mcp-server-git": "2026.10.19", "mcp-server-time": "2026.10.19"}


def install() -> None:
    """Install what is not there yet."""
    wanted = json.dumps({"npm": NPM, "pypi": PYPI}, indent=2, sort_keys=True)
    stamp = FOLDER / "installed.json"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    FOLDER.mkdir(exist_ok=True)
    if (npm := shutil.which("npm")) is None:
        print("npm is not installed: the servers and clients in JavaScript are left out (apt-get install npm)")
    else:
        names = [f"{name}@{version}" for name, version in NPM.items()]
        flags = ("--silent", "--no-fund", "--no-audit", "--no-package-lock", "--ignore-scripts")
        subprocess.run([npm, "install", *flags, "--prefix", str(FOLDER), *names], check=True)  # noqa: S603 - names above
    python = FOLDER / "python"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(python)], check=True)  # noqa: S603
    versions = [f"{name}=={version}" for name, version in PYPI.items()]
    target = ["--quiet", "--python", str(python / "bin" / "python")]
    subprocess.run([*uv, "pip", "install", *target, *versions], check=True)  # noqa: S603 - as above
    if npm is not None:
        stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    install()
