"""Where clients keep their configuration, and how pokayoke is started: tables of pure functions."""

import os
import stat
import subprocess
import sys

import pytest

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients import launcher
from pokayoke.gateway.clients.launcher import check_launcher, find_launcher, find_package
from pokayoke.gateway.clients.locations import CLIENTS, data_folder, locate_configuration

WINDOWS = {"APPDATA": r"C:\Users\ann\AppData\Roaming", "LOCALAPPDATA": r"C:\Users\ann\AppData\Local"}
HOME = {"linux": "/home/ann", "macos": "/Users/ann", "windows": r"C:\Users\ann"}

PATHS = [
    ("claude-desktop", "linux", {}, "/home/ann/.config/Claude/claude_desktop_config.json"),
    ("claude-desktop", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Claude/claude_desktop_config.json"),
    ("claude-desktop", "macos", {}, "/Users/ann/Library/Application Support/Claude/claude_desktop_config.json"),
    ("claude-desktop", "windows", WINDOWS, r"C:\Users\ann\AppData\Roaming\Claude\claude_desktop_config.json"),
    ("claude-desktop", "windows", {}, r"C:\Users\ann\AppData\Roaming\Claude\claude_desktop_config.json"),
    ("claude-code", "linux", {}, "/home/ann/.claude.json"),
    ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/opt/claude"}, "/opt/claude/.claude.json"),
    ("claude-code", "windows", WINDOWS, r"C:\Users\ann\.claude.json"),
    ("cursor", "linux", {}, "/home/ann/.cursor/mcp.json"),
    ("cursor", "windows", WINDOWS, r"C:\Users\ann\.cursor\mcp.json"),
    ("vscode", "linux", {}, "/home/ann/.config/Code/User/mcp.json"),
    ("vscode", "macos", {}, "/Users/ann/Library/Application Support/Code/User/mcp.json"),
    ("vscode", "windows", WINDOWS, r"C:\Users\ann\AppData\Roaming\Code\User\mcp.json"),
    ("codex", "linux", {}, "/home/ann/.codex/config.toml"),
    ("codex", "macos", {"CODEX_HOME": "/opt/codex"}, "/opt/codex/config.toml"),
    ("codex", "windows", {"CODEX_HOME": r"D:\codex"}, r"D:\codex\config.toml"),
    ("windsurf", "macos", {}, "/Users/ann/.codeium/windsurf/mcp_config.json"),
    ("zed", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/zed/settings.json"),
    ("zed", "macos", {}, "/Users/ann/.config/zed/settings.json"),
    ("zed", "windows", WINDOWS, r"C:\Users\ann\AppData\Roaming\Zed\settings.json"),
    ("gemini", "linux", {}, "/home/ann/.gemini/settings.json"),
    ("copilot-cli", "linux", {}, "/home/ann/.copilot/mcp-config.json"),
    ("opencode", "linux", {}, "/home/ann/.config/opencode/opencode.json"),
    ("opencode", "windows", WINDOWS, r"C:\Users\ann\.config\opencode\opencode.json"),
    ("cline", "linux", {}, "/home/ann/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    ("lm-studio", "macos", {}, "/Users/ann/.lmstudio/mcp.json"),
]  # fmt: skip


@pytest.mark.parametrize(("client", "system", "environ", "path"), PATHS)
def test_where_a_client_keeps_its_configuration(client, system, environ, path):
    """The usual place on each system, moved by the variables that move it."""
    assert locate_configuration(client, system, HOME[system], environ)[0] == path


@pytest.mark.parametrize("system", HOME)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_absolute_paths_of_its_own(client, system):
    """No two clients share a file, and no path depends on the folder one stands in."""
    paths = locate_configuration(client, system, HOME[system], {})
    others = [
        path for other in CLIENTS if other != client for path in locate_configuration(other, system, HOME[system], {})
    ]
    assert all(path.startswith(HOME[system]) for path in paths)
    assert not set(paths) & set(others)
    assert "{" not in "".join(paths)


def test_an_unknown_client_is_told_which_are_known():
    """The error names every client, and the other way: a path."""
    with pytest.raises(ConfigurationError, match=r"'emacs' is neither a file nor .* amazon-q, .*cursor.* zed"):
        locate_configuration("emacs", "linux", "/home/ann", {})


def test_ledgers_are_kept_with_the_users_data():
    """Each system has its folder for the data of programs."""
    assert data_folder("linux", "/home/ann", {}) == "/home/ann/.local/share/pokayoke"
    assert data_folder("linux", "/home/ann", {"XDG_DATA_HOME": "/d"}) == "/d/pokayoke"
    assert data_folder("macos", "/Users/ann", {}) == "/Users/ann/Library/Application Support/pokayoke"
    assert data_folder("windows", r"C:\Users\ann", WINDOWS) == r"C:\Users\ann\AppData\Local\pokayoke"


THERE = ("/venv/bin/pokayoke", "/home/ann/.local/bin/pokayoke", "/c/uv/archive-v0/Xy/bin/pokayoke")
PACKAGE = "pokayoke==1.2"
LAUNCHERS = [
    # how it was installed, sys.argv[0], sys.executable, variables, programs that exist, the words
    ("script", "/venv/bin/pokayoke", "/venv/bin/python", {}, {}, ("/venv/bin/pokayoke",)),
    ("script on the path", "pokayoke", "/usr/bin/python3", {}, {"pokayoke": "/home/ann/.local/bin/pokayoke"}, ("/home/ann/.local/bin/pokayoke",)),
    ("script beside python", "pokayoke", "/venv/bin/python", {}, {"pokayoke": "/other/pokayoke"}, ("/venv/bin/pokayoke",)),
    ("windows", r"C:\py\Scripts\pokayoke", r"C:\py\python.exe", {}, {r"C:\py\Scripts\pokayoke": "/py/Scripts/pokayoke.exe"}, ("/py/Scripts/pokayoke.exe",)),
    ("module", "/venv/lib/pokayoke/__main__.py", "/venv/bin/python", {}, {}, ("/venv/bin/python", "-m", "pokayoke")),
    ("module of a python named by a long way", "/v/pokayoke/__main__.py", "/x/../venv/bin/python", {}, {}, ("/venv/bin/python", "-m", "pokayoke")),
    ("command string", "-c", "/venv/bin/python", {}, {}, ("/venv/bin/python", "-m", "pokayoke")),
    ("another program", "/venv/bin/pytest", "/venv/bin/python", {}, {}, ("/venv/bin/python", "-m", "pokayoke")),
    ("uvx", "/c/uv/archive-v0/Xy/bin/pokayoke", "/c/uv/archive-v0/Xy/bin/python", {"UV": "/bin/uv"}, {}, ("/bin/uv", "tool", "run", "--from", PACKAGE, "pokayoke")),
    ("uvx without UV", "/c/uv/archive-v0/Xy/bin/pokayoke", "/c/uv/archive-v0/Xy/bin/python", {}, {"uv": "/bin/uv"}, ("/bin/uv", "tool", "run", "--from", PACKAGE, "pokayoke")),
    ("uvx on windows", r"C:\uv\cache\archive-v0\X\Scripts\pokayoke", r"C:\uv\cache\archive-v0\X\Scripts\python.exe", {"UV": r"C:\uv\uv.exe"}, {}, (r"C:\uv\uv.exe", "tool", "run", "--from", PACKAGE, "pokayoke")),
    ("uv run --with", "/c/uv/builds-v0/.tmpX/bin/pokayoke", "/c/uv/builds-v0/.tmpX/bin/python", {"UV": "/bin/uv"}, {}, ("/bin/uv", "tool", "run", "--from", PACKAGE, "pokayoke")),
    ("uv tool install", "/home/ann/.local/bin/pokayoke", "/home/ann/.local/share/uv/tools/pokayoke/bin/python", {"UV": "/bin/uv"}, {}, ("/home/ann/.local/bin/pokayoke",)),
    ("pipx run", "/home/ann/.local/pipx/.cache/ab/bin/pokayoke", "/home/ann/.local/pipx/.cache/ab/bin/python", {}, {"pipx": "/bin/pipx"}, ("/bin/pipx", "run", "--spec", PACKAGE, "pokayoke")),
    ("pipx install", "/home/ann/.local/bin/pokayoke", "/home/ann/.local/pipx/venvs/pokayoke/bin/python", {}, {"pipx": "/bin/pipx"}, ("/home/ann/.local/bin/pokayoke",)),
]  # fmt: skip


@pytest.mark.parametrize(("program", "python", "environ", "programs", "words"), [row[1:] for row in LAUNCHERS], ids=[row[0] for row in LAUNCHERS])  # fmt: skip
def test_what_starts_pokayoke_again(program, python, environ, programs, words):
    """Each way to install it gives absolute words; an environment that will be deleted is not among them."""
    found = find_launcher(program, python, PACKAGE, environ, {**{path: path for path in THERE}, **programs}.get)
    assert found == words
    assert os.path.isabs(found[0]) or found[0].startswith("C:")


ORIGINS = [
    (None, "pokayoke==1.2"),
    ('{"url": "file:///src/pokayoke", "dir_info": {"editable": true}}', "pokayoke @ file:///src/pokayoke"),
    ('{"url": "https://x/pokayoke.whl", "archive_info": {}}', "pokayoke @ https://x/pokayoke.whl"),
    (
        '{"url": "https://x/p.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}',
        "pokayoke @ git+https://x/p.git@ab12",
    ),
]


@pytest.mark.parametrize(("recorded", "package"), ORIGINS)
def test_an_installer_is_asked_for_what_is_installed(tmp_path, monkeypatch, recorded, package):
    """Its version where it came from a registry, otherwise the place it came from."""
    folder = tmp_path / "pokayoke-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pokayoke\nVersion: 1.2\n")
    if recorded:
        (folder / "direct_url.json").write_text(recorded)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find_package("1.2") == package


def test_a_process_without_an_interpreter_says_what_to_do():
    """Inside another program Python does not know itself."""
    with pytest.raises(ConfigurationError, match="--launcher"):
        find_launcher("-c", "", PACKAGE, {}, lambda name: None)


def write_program(path, text):
    """A program that a client could start."""
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('pokayoke 0.0.1')", "does not show the gateway"),
        ("raise SystemExit('no \\x1b such command')", r"exit code 1\)\. .* It said: no"),
        ("import sys; sys.exit(3)", "exit code 3"),
    ],
)
def test_a_program_that_is_no_gateway_is_refused(tmp_path, text, said):
    """What a client would start has to answer before it is written anywhere."""
    with pytest.raises(ConfigurationError, match=said):
        check_launcher([write_program(tmp_path / "pokayoke", text)], os.environ)
    with pytest.raises(ConfigurationError, match="could not start"):
        check_launcher([str(tmp_path / "missing")], os.environ)


def test_the_check_leaves_this_environment_behind(tmp_path):
    """It has the variables that the official client hands on, starts in the home folder, and reads nothing."""
    program = write_program(
        tmp_path / "pokayoke",
        "import os, sys\nassert not {'PYTHONPATH', 'UV_INDEX', 'POKAYOKE_STORE'} & set(os.environ) and os.environ['PATH']\n"
        "assert os.getcwd() == os.path.expanduser('~')\nassert sys.stdin.read() == ''\nprint('Usage: pokayoke mcp', sys.argv[1:])",
    )
    more = {"PYTHONPATH": "/src", "UV_INDEX": "x", "POKAYOKE_STORE": "y"}
    check_launcher([program], {**os.environ, **more})
    assert subprocess.run([program], capture_output=True, check=False, env={**os.environ, **more}).returncode
    stdio = pytest.importorskip("mcp.client.stdio")
    assert set(stdio.DEFAULT_INHERITED_ENV_VARS) <= launcher._INHERITED
