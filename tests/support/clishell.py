"""Commands as a user runs them: words in, two streams and an exit code out."""

import contextlib
import io
import json
import sys
from types import SimpleNamespace
from unittest import mock

from pokayoke.cli import main


def _stream(text=""):
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)


class Shell:
    """Runs `pokayoke` in a folder, in this process; what it imported and changed is undone."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *words, stdin=""):
        """Run one command; returns returncode, stdout and stderr."""
        out, err = _stream(), _stream()
        modules, path = set(sys.modules), list(sys.path)
        code = 0
        with (
            contextlib.chdir(self.folder),
            mock.patch.multiple(sys, argv=["pokayoke", *map(str, words)], stdin=_stream(stdin), stdout=out, stderr=err),
        ):
            try:
                main()
            except SystemExit as leaving:
                code = leaving.code or 0
        sys.path[:] = path
        for name in {"shop", "broken"} & (set(sys.modules) - modules):
            del sys.modules[name]
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
        return SimpleNamespace(returncode=code, stdout=texts[0], stderr=texts[1])


def json_lines(done):
    """The lines of JSON that a command has printed."""
    return [json.loads(line) for line in done.stdout.splitlines()]
