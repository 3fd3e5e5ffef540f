"""One isolated environment per framework: their pins contradict each other, so no environment holds two of them.

`python -m tools.environments langchain` builds `.frameworks/langchain` from its lock, `--lock` rewrites the lock.
`langchain-lowest` is the same with the lowest versions that the extra admits: `requirements/frameworks/lowest/`.
An environment is rebuilt when its lock, the project file or the interpreter has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "requirements" / "frameworks"
PLACE = ROOT / ".frameworks"
NAMES = (
    "langchain",
    "pydantic-ai",
    "openai-agents",
    "agent-framework",
    "autogen",
    "crewai",
    "google-adk",
    "fastmcp",
    "litellm",
    "plain",
)
"""Each is an extra of its own, except `plain`, which has the SDKs alone."""
OTHERS = ("ray", "services")
"""Software that guides name and the ordinary environment has no room for: `make ray`, `make services`."""
LOWEST = "-lowest"
"""The ending of an environment's name that has the lowest versions which an extra admits."""
LOWESTS = tuple(name + LOWEST for name in NAMES if name != "plain")
EVERY = NAMES + LOWESTS + OTHERS
EXTRAS = {"plain": ("openai", "anthropic"), "services": ()}
GROUPS = ("build", "frameworks")

Say = Callable[[str], None]


class BuildError(Exception):
    """An environment cannot be built; the text says what failed."""


def python(name: str) -> Path:
    """Return the interpreter of an environment."""
    return PLACE / name / "bin" / "python"


def lock_of(name: str) -> Path:
    """Return the lock of an environment."""
    framework = name.removesuffix(LOWEST)
    return LOCKS / ("lowest" if name != framework else "") / f"{framework}.lock"


async def build(name: str, say: Say) -> None:
    """Build an environment, unless it exists already.

    Args:
        name: one of `NAMES`, `LOWESTS` or `OTHERS`.
        say: called when building begins.

    Raises:
        BuildError: it cannot be built.
    """
    lock = lock_of(name)
    if not lock.exists():
        raise BuildError(f"there is no {lock.relative_to(ROOT)}: make lock")
    stamp, wanted = PLACE / name / ".built", _digest(lock)
    if stamp.exists() and stamp.read_text() == wanted and python(name).exists():
        return
    say("building its environment")
    stamp.unlink(missing_ok=True)
    at = str(python(name))
    if not python(name).exists():
        await _uv("venv", "--clear", "--python", _base_python(), str(PLACE / name))
    await _uv("pip", "sync", "--python", at, "--require-hashes", str(lock))
    await _uv("pip", "install", "--python", at, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    stamp.write_text(wanted)


async def lock(name: str, *more: str) -> None:
    """Write the lock of an environment.

    Args:
        name: one of `NAMES`, `LOWESTS` or `OTHERS`.
        more: more arguments of `uv pip compile`, such as `--upgrade`.

    Raises:
        BuildError: the requirements contradict each other, or the registry cannot be reached.
    """
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    out, framework = lock_of(name), name.removesuffix(LOWEST)
    extras = [part for extra in EXTRAS.get(framework, (framework,)) for part in ("--extra", extra)]
    groups = [part for group in (*GROUPS, f"host-{framework}") if group in known for part in ("--group", group)]
    options = ["--universal", "--generate-hashes", "--python-version", "3.11", "--no-header"]
    if name != framework:  # a version in the old lock would be preferred to a lower one
        options += ["--resolution", "lowest-direct", "--upgrade"]
    await _uv("pip", "compile", "pyproject.toml", *options, *extras, *groups, "--quiet", "-o", str(out), *more)


def _digest(lock: Path) -> str:
    parts = (lock.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), _base_python().encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _base_python() -> str:
    """Return the interpreter that the environment of this one was made with."""
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")


async def _uv(*arguments: str) -> None:
    neighbour = Path(sys.executable).parent / "uv"
    uv = str(neighbour) if neighbour.exists() else shutil.which("uv")
    if uv is None:
        raise BuildError("uv is missing: run it by `make frameworks`, which installs it, or pip install uv")
    process = await asyncio.create_subprocess_exec(
        uv, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise BuildError(f"uv {' '.join(arguments[:3])} failed:\n{out.decode(errors='replace')[-3_000:]}")


async def _build_all(names: Iterable[str], *, locks: bool, more: list[str]) -> None:
    for name in names:
        if locks:
            print(f"locking {name}", file=sys.stderr)
            await lock(name, *more)
        else:
            await build(name, lambda what, name=name: print(f"{name}: {what}", file=sys.stderr))


def main() -> int:
    """Build environments, or write their locks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="framework", help=f"some of {', '.join(EVERY)}; default: all")
    parser.add_argument("--lock", action="store_true", help="write the locks instead")
    given, more = parser.parse_known_args()
    try:
        asyncio.run(_build_all(given.names or EVERY, locks=given.lock, more=more))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
