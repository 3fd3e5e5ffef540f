"""The command line as a whole: help, exit codes, errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pokayoke import __version__
from pokayoke.cli import main
from pokayoke.errors import StoreError


def test_help_lists_the_commands_and_shows_examples(shell):
    """Every command has a help page with an example of its own use."""
    listing = shell("--help").stdout
    assert "Exit codes: 0 clean, 1 findings, 2 could not run." in listing
    assert "..." not in listing.replace("[ARGS]...", "")
    for name in (
        "check",
        "doctor",
        "trace",
        "demo",
        "learn",
        "replay",
        "contracts",
        "ledger",
        "approvals",
        "safe-mode",
        "install",
        "uninstall",
        "status",
        "listings",
    ):
        assert name in listing
        assert f"pokayoke {name} " in shell(name, "--help").stdout.split("\n", 1)[1]


def test_every_step_of_a_rollout_has_an_example(shell):
    """Each command of `pokayoke contracts` shows how it is used."""
    listing = shell("contracts", "--help").stdout
    for name in (
        "lock",
        "check",
        "status",
        "history",
        "diff",
        "shadow",
        "canary",
        "widen",
        "promote",
        "rollback",
        "drop",
    ):
        assert f"  {name} " in listing
        assert f"pokayoke contracts {name}" in shell("contracts", name, "--help").stdout.split("\n", 1)[1]


def test_the_version_is_the_packages(shell):
    """--version prints one line of data."""
    assert shell("--version").stdout == f"pokayoke {__version__}\n"


@pytest.mark.parametrize("words", [["nosuch"], ["--nosuch"]])
def test_a_wrong_word_is_exit_code_2(shell, words):
    """What is no command cannot run."""
    done = shell(*words)
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize("error", [StoreError("the \x1b store"), OSError(28, "No space left on device")])
def test_errors_are_a_sentence_and_exit_code_2(monkeypatch, capsys, error):
    """No traceback reaches a user for what is not a bug, and nothing unescaped."""

    def broken():
        raise error

    monkeypatch.setattr(sys, "argv", ["pokayoke", "doctor"])
    monkeypatch.setattr("pokayoke.cli.app.build_app", lambda words: broken)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert "\x1b" not in told


def test_importing_the_library_loads_nothing_of_the_command_line():
    """typer, rich and ruamel.yaml are loaded by commands and files, never by `import pokayoke`."""
    code = (
        "import sys, pokayoke, pokayoke.runtime.config.config, pokayoke.runtime.trace.trace;"
        "print([m for m in ('typer', 'rich', 'ruamel.yaml', 'pydantic', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "[]\n"


def test_a_terminal_without_unicode_gets_escapes(tmp_path):
    """Under an ASCII locale text is escaped, not lost and not a crash."""
    (tmp_path / "t.jsonl").write_text('{"event": "客户"}\n', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pokayoke.cli", "trace", str(tmp_path / "t.jsonl")],
        capture_output=True, check=False, timeout=50, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0
    assert b"\\u5ba2\\u6237" in done.stdout


SMALL = ["--version"]
LARGE = ["trace", "t.jsonl"]


@pytest.mark.parametrize("words", [SMALL, LARGE])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_enough_is_no_finding(tmp_path, words, unbuffered):
    """`pokayoke ... | head` ends with 0 and without a word, however little there was to say."""
    (tmp_path / "t.jsonl").write_text('{"event": "e"}\n' * 50_000)
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "pokayoke", *words],
        cwd=tmp_path, stdout=writes, stderr=subprocess.PIPE, check=False, timeout=50,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("words", "code"), [("--version >&-", 0), ("trace report - <&-", 0), ("trace missing 2>&-", 2), ("check nofile >&- 2>&- <&-", 2)]
)  # fmt: skip
def test_a_closed_stream_is_no_traceback(tmp_path, words, code):
    """What a shell has closed is written to nobody, and read as nothing; the exit code stays."""
    done = subprocess.run(
        f"{sys.executable} -m pokayoke {words}", shell=True, cwd=tmp_path, capture_output=True, check=False, timeout=50
    )  # fmt: skip
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


LOADED = (
    "import sys; sys.argv[1:] = {words!r}\n"
    "from pokayoke.cli import main\n"
    "try: main()\n"
    "except SystemExit: print(sorted(m for m in sys.modules if m == 'typer' or m.startswith('pokayoke.cli.')), file=sys.stderr)"
)
OWN = ["pokayoke.cli.main", "pokayoke.cli.output"]


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["--version"], OWN),
        (
            ["safe-mode", "--help"],
            ["pokayoke.cli.app", *OWN[:1], "pokayoke.cli.options", *OWN[1:], "pokayoke.cli.safe_mode", "typer"],
        ),
    ],
)
def test_a_command_imports_its_own_module_only(words, loaded):
    """No command waits for the modules of another one, and the version for none."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(words=words)], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stderr == f"{loaded}\n"


def test_a_shell_completes_commands_and_options(tmp_path):
    """The script tells bash which commands and options fit what was typed."""

    def complete(*words):
        env = {
            **os.environ,
            "_POKAYOKE_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        script = Path(sys.executable).with_name("pokayoke")
        done = subprocess.run([script], capture_output=True, text=True, timeout=50, check=False, env=env)
        return done.stdout.split()

    assert complete("pokayoke", "led") == ["ledger"]
    assert complete("pokayoke", "ledger", "rec") == ["reconcile"]
    assert "--in-doubt" in complete("pokayoke", "ledger", "list", "--in")


@pytest.mark.parametrize("options", [[], ["-OO"]])
def test_the_package_itself_can_be_run(options):
    """`python -m pokayoke` is the command, also without docstrings and assertions."""
    command = [sys.executable, *options, "-m", "pokayoke"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pokayoke", __version__]
    told = subprocess.run([*command, "doctor", "--json"], capture_output=True, text=True, check=False)
    assert all(probe["fired"] for probe in json.loads(told.stdout)["probes"])
