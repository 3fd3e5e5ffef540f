"""Build what would be published, and look at it: `python -m tools.release`, with requirements/release.lock installed.

A wheel and a source archive in dist/ pass `twine check --strict`, and no link of their description is relative; the
wheel is installed into a bare environment of each interpreter from 3.11 on that this machine has, where a guarded call,
the command line and `doctor` run; and what such an environment holds is dist/sbom.cdx.json (CycloneDX). Nothing is
uploaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
USE: Final = """
import pokayoke

@pokayoke.tool(effect="write", output="text")
def order(sku: str) -> str:
    "Order one."
    return "ordered"

with pokayoke.Guard([order]).run() as run:
    calls = [pokayoke.ToolCall(f"c{n}", "order", '{"sku": "S-7",}') for n in range(2)]
    assert [run.call(call).status for call in calls] == ["ok", "replayed"]
"""


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command and return what it prints; end with its output if it fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=cwd)  # noqa: S603 - below
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def find_interpreters() -> dict[str, str]:
    """Return the interpreters of this machine by version."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {version: shutil.which(f"python{version}") for version in VERSIONS} | {here: sys.executable}
    return {version: path for version in VERSIONS if (path := found.get(version)) is not None}


def relative_links(wheel: Path) -> list[str]:
    """Return the links and images of a wheel's long description that lead nowhere on a package index."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        text = message_from_bytes(archive.read(name)).get_payload(decode=True).decode()
    return re.findall(r'(?:href|src)="(?![a-z][a-z0-9+.-]*:)([^"]*)"', MarkdownIt().render(text))


def try_wheel(wheel: Path, interpreter: str, folder: Path) -> Path | None:
    """Install a wheel into a bare environment, use it there, and return that environment's interpreter.

    None if the interpreter is a shim without a version behind it.
    """
    if subprocess.run([interpreter, "-c", ""], check=False, capture_output=True).returncode:  # noqa: S603 - an interpreter
        return None
    run(interpreter, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    (folder / "use.py").write_text(USE, encoding="utf-8")
    run(python, folder / "use.py", cwd=folder)
    run(folder / "bin" / "pokayoke", "--version", cwd=folder)
    run(folder / "bin" / "pokayoke", "doctor", cwd=folder)
    return python


def main() -> int:
    """Build and look; an exit with what failed if something is wrong."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST)
    built = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *built)
    for file in built:
        print(f"built     {file.name}, {file.stat().st_size:,} bytes")
    (wheel,) = DIST.glob("*.whl")
    if dead := relative_links(wheel):
        raise SystemExit(f"dead on a package index, as README.md links them: {', '.join(dead)}")
    tried = []
    with tempfile.TemporaryDirectory() as folder:
        for version, interpreter in find_interpreters().items():
            python = try_wheel(wheel, interpreter, Path(folder) / version)
            if python is None:
                continue
            tried.append(version)
            print(f"works on  Python {version}")
            if len(tried) == 1:
                sbom = DIST / "sbom.cdx.json"
                run(sys.executable, "-m", "cyclonedx_py", "environment", "--of", "JSON", "-o", sbom, python)
                print(f"wrote     {sbom.name}, {sbom.stat().st_size:,} bytes")
    missing = [version for version in VERSIONS if version not in tried]
    print(f"not here  Python {', '.join(missing)}" if missing else "every version was tried")
    return 0


if __name__ == "__main__":
    sys.exit(main())
