"""`pokayoke install`, `status` and `uninstall`: what they show, ask, write and refuse."""

import json
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from clishell import json_lines
from nobody import as_nobody

from pokayoke.cli import client_config
from pokayoke.gateway.clients.config_file import ConfigFile

CONFIG = """{
  // my servers
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "files"], "env": { "KEY": "secret" } },
    "time": { "command": "uvx" },
  },
}
"""
REMOTE = '{"mcpServers": {"web": {"url": "https://example.com/mcp"}, "files": {"command": "npx"}}}'
STAND_IN = """#!{python}
import os, sys
if sys.argv[1:] == ["mcp", "--help"]:
    print("Usage: pokayoke mcp [OPTIONS] -- COMMAND")
else:
    words = sys.argv[sys.argv.index("--") + 1 :]
    os.execvp(words[0], words)
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user with a folder of their own; every command starts a stand-in for the gateway."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "POKAYOKE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    program = tmp_path / "bin" / "pokayoke"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("POKAYOKE_LAUNCHER", shlex.quote(str(program)))
    return folder


@pytest.fixture
def config(tmp_path):
    """A configuration in a project."""
    path = tmp_path / "mcp.json"
    path.write_text(CONFIG)
    return path


def backup_of(path):
    """The backup of a configuration."""
    return path.with_name(path.name + ".pokayoke-backup")


def test_there_and_back(shell, config, tmp_path, home):
    """Two commands: guarded, and byte for byte what it was; the backup stands beside it in the meantime."""
    assert shell("status", config).returncode == 1
    done = shell("install", config, "--yes")
    assert done.returncode == 0
    assert f"wrote {config}: 2 servers. Backup: {backup_of(config)}" in done.stderr
    assert backup_of(config).read_text() == CONFIG
    assert "  // my servers\n" in config.read_text()
    states = json_lines(shell("status", config, "--json"))
    assert [(one["server"], one["state"], one["command"]) for one in states] == [
        ("files", "wrapped", ["npx", "-y", "files"]),
        ("time", "wrapped", ["uvx"]),
    ]
    assert {one["client"] for one in states} == {one["scope"] for one in states}
    (store,) = {one["store"] for one in states}
    assert store.startswith(f"sqlite:///{home}/.local/share/pokayoke/mcp-")
    assert shell("ledger", "list", "--store", store).returncode == 0
    assert stat.S_IMODE((home / ".local/share/pokayoke").stat().st_mode) == 0o700
    assert shell("status", config).returncode == 0
    done = shell("uninstall", config, "--yes")
    assert done.returncode == 0
    assert "It is what it was before" in done.stderr
    assert config.read_text() == CONFIG
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "home", "mcp.json"]


def test_each_change_is_shown_and_asked(shell, config):
    """Yes to one and no to the other: one is wrapped, and the exit code says that one is not."""
    done = shell("install", config, stdin="y\n\n")
    assert done.returncode == 1
    assert "wrap files (mcpServers)? [y/N] wrap time (mcpServers)? [y/N] wrote" in done.stderr
    assert "wrap files (mcpServers)\n  - npx -y files\n  + " in done.stdout
    assert " -- npx -y files\n" in done.stdout
    assert "secret" not in done.stdout + done.stderr
    assert [one["state"] for one in json_lines(shell("status", config, "--json"))] == ["wrapped", "not wrapped"]
    assert shell("install", config, stdin="n\n").returncode == 1
    assert shell("install", config, stdin="yes\n").returncode == 0
    assert backup_of(config).read_text() == CONFIG


@pytest.mark.parametrize("words", [["install"], ["uninstall"]])
@pytest.mark.parametrize("answers", [{"stdin": "n\nn\n"}, {"stdin": ""}, {"dry": True}])
def test_nothing_is_written_without_a_yes(shell, config, words, answers, home):
    """No, no answer at all, and a dry run leave the file and its folder as they were."""
    if words == ["uninstall"]:
        shell("install", config, "--yes")
    before = {path: path.read_bytes() for path in config.parent.iterdir() if path.is_file()}
    done = shell(*words, config, *(["--dry-run"] if "dry" in answers else []), stdin=answers.get("stdin", ""))
    assert done.returncode == {"dry": 0, "": 2}.get("dry" if "dry" in answers else answers["stdin"], 1)
    assert {path: path.read_bytes() for path in config.parent.iterdir() if path.is_file()} == before
    assert "nothing was written" in done.stderr
    assert " files (mcpServers)" in done.stdout
    if words == ["install"]:
        assert list(home.iterdir()) == []


def test_installed_twice_is_installed_once(shell, config):
    """The second time there is nothing to do, and the file is not touched."""
    shell("install", config, "--yes")
    before = config.stat()
    done = shell("install", config)
    assert (done.returncode, done.stdout) == (0, "")
    assert "there is nothing to wrap or repair" in done.stderr
    assert config.stat() == before


def test_a_server_that_was_added_shares_the_store_of_the_others(shell, config, tmp_path):
    """Run again without options: what the first installation chose holds."""
    store = f"sqlite:///{tmp_path}/own.db"
    shell("install", config, "--yes", "--store", "sqlite:///own.db", "--client", "mine", "--scope", "team")
    text = config.read_text()
    config.write_text(text.replace('"mcpServers": {', '"mcpServers": { "new": { "command": "n" },'))
    assert shell("install", config, "--yes").returncode == 0
    states = json_lines(shell("status", config, "--json"))
    assert [(one["server"], one["store"], one["client"], one["scope"]) for one in states] == [
        (name, store, "mine", "team") for name in ("new", "files", "time")
    ]
    done = shell("uninstall", config, "--yes")
    assert f"Backup: {backup_of(config)}" in done.stderr
    assert config.read_text() == CONFIG.replace('"mcpServers": {', '"mcpServers": { "new": { "command": "n" },')


def test_a_ledger_that_was_in_use_is_not_created_anew(shell, config, tmp_path):
    """A missing ledger has forgotten writes: a repair says so and writes nothing, until another store is named."""
    shell("install", config, "--yes", "--server", "time", "--store", "sqlite:///own.db")
    before = config.read_bytes()
    (tmp_path / "own.db").unlink()
    done = shell("install", config, "--yes")
    assert done.returncode == 2
    assert "own.db" in done.stderr
    assert config.read_bytes() == before
    assert not (tmp_path / "own.db").exists()
    assert shell("install", config, "--yes", "--store", "sqlite:///new.db").returncode == 0


def test_a_pokayoke_that_has_moved_is_seen_and_repaired(shell, config, tmp_path, monkeypatch):
    """`status` says what is missing, `install` writes the new place."""
    shell("install", config, "--yes")
    old = tmp_path / "bin" / "pokayoke"
    new = old.rename(tmp_path / "pokayoke")
    done = shell("status", config)
    assert done.returncode == 1
    assert f"{old} is not there; install again" in done.stdout
    monkeypatch.setenv("POKAYOKE_LAUNCHER", str(new))
    done = shell("install", config, "--yes")
    assert done.returncode == 0
    assert "repair files (mcpServers): pokayoke is started in another way" in done.stdout
    assert shell("status", config).returncode == 0


def test_the_options_of_the_gateway_are_written(shell, config):
    """What stands behind `--` reaches every server, and a later installation keeps it."""
    shell("install", config, "--yes", "--", "--mode", "monitor")
    assert {tuple(one["options"]) for one in json_lines(shell("status", config, "--json"))} == {("--mode", "monitor")}
    assert shell("install", config).returncode == 0
    shell("install", config, "--yes", "--", "--mode", "enforce")
    assert {tuple(one["options"]) for one in json_lines(shell("status", config, "--json"))} == {("--mode", "enforce")}
    assert "is not an option of `pokayoke mcp`" in shell("install", config, config).stderr


def test_only_the_named_servers(shell, config):
    """`--server` wraps and unwraps some; a name that does not exist is no reason to do nothing in silence."""
    assert shell("install", config, "--yes", "--server", "time").returncode == 1
    assert [one["state"] for one in json_lines(shell("status", config, "--json"))] == ["not wrapped", "wrapped"]
    done = shell("install", config, "--yes", "--server", "tiem")
    assert done.returncode == 2
    assert "no server 'tiem'; there are files, time" in done.stderr
    assert shell("uninstall", config, "--yes", "--server", "time").returncode == 0
    assert config.read_text() == CONFIG


def test_a_server_behind_an_address_is_left_and_said_so(shell, config):
    """It is not guarded: the message, the state and the exit code say it."""
    config.write_text(REMOTE)
    done = shell("install", config, "--yes")
    assert done.returncode == 1
    assert "left as it is: web (mcpServers): the client reaches it by its address" in done.stderr
    assert [one["state"] for one in json_lines(shell("status", config, "--json"))] == ["remote", "wrapped"]
    lines = json_lines(shell("install", config, "--json"))
    assert [(line["server"], line["action"]) for line in lines] == [("web", "leave")]


def test_a_wrapped_server_starts_the_real_one(shell, tmp_path):
    """A client reads the file, starts the command with its variables in its folder, and speaks to the server."""
    server = tmp_path / "server.py"
    server.write_text(
        "import os, sys\nfor line in sys.stdin: print(line.strip(), os.environ['KEY'], os.getcwd(), sys.argv[1:])"
    )
    entry = {
        "command": sys.executable,
        "args": ["-u", str(server), "a b", ""],
        "env": {"KEY": "k"},
        "cwd": str(tmp_path),
    }
    path = tmp_path / "claude_desktop_config.json"
    path.write_text(json.dumps({"mcpServers": {"echo": entry}}, indent=2))
    assert shell("install", path, "--yes").returncode == 0
    read = json.loads(path.read_text())["mcpServers"]["echo"]
    assert read["command"] == str(tmp_path / "bin" / "pokayoke")
    done = subprocess.run(
        [read["command"], *read["args"]], input="ping\n", capture_output=True, text=True, cwd=read["cwd"],
        env={"PATH": os.environ["PATH"], **read["env"]}, check=True, timeout=50,
    )  # fmt: skip
    assert done.stdout == f"ping k {tmp_path} ['a b', '']\n"


WRONG = [
    ("missing.json", None, "there is no such file. Add a server with the client first"),
    ("empty.json", b"", "it is empty"),
    ("blank.json", b"\xef\xbb\xbf \n", "it is empty"),
    ("wide.json", "{}".encode("utf-16"), "it is not UTF-8 at byte 0"),
    ("bad.json", b'{"mcpServers": {', "bad.json: line 1, column 17: expected a key"),
    ("twice.json", b'{"mcpServers": {"a": {}, "a": {}}}', "twice.json: line 1, column 26: the key 'a' stands here for the second"),
    ("none.json", b'{"theme": 1}', "it has no list of MCP servers"),
    ("config.yaml", b"mcpServers: {}", "in YAML are not edited. Put `pokayoke mcp --` in front"),
    ("config.toml", b"= 1", "config.toml: it is not TOML"),
]  # fmt: skip


@pytest.mark.parametrize("command", ["install", "uninstall", "status"])
@pytest.mark.parametrize(("name", "data", "said"), WRONG)
def test_what_is_no_configuration_is_exit_code_2(shell, tmp_path, command, name, data, said):
    """One sentence that says where and what to do; nothing is written."""
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = shell(command, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert not backup_of(tmp_path / name).exists()
    assert data is None or (tmp_path / name).read_bytes() == data


@pytest.mark.parametrize("command", ["install", "uninstall", "status"])
def test_what_is_no_file_is_refused(shell, tmp_path, command):
    """A folder, a pipe and a file without end: no wait, no crash."""
    assert "it is a folder. Name the configuration file in it" in shell(command, tmp_path).stderr
    os.mkfifo(tmp_path / "pipe.json")
    assert "it is not a regular file" in shell(command, tmp_path / "pipe.json").stderr
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(64_000_001)
    assert "larger than 64 MB" in shell(command, tmp_path / "large.json").stderr


def test_a_file_that_changes_while_it_asks_is_not_overwritten(shell, config, monkeypatch):
    """The client writes its file between the question and the answer: its change is there, ours is not."""

    def answer(question):
        config.write_text(CONFIG.replace("my servers", "mine"))
        return True

    monkeypatch.setattr(client_config, "_ask", answer)
    done = shell("install", config)
    assert done.returncode == 2
    assert "something else has changed it since it was read, so nothing was written" in done.stderr
    assert config.read_text() == CONFIG.replace("my servers", "mine")
    assert not backup_of(config).exists()


def test_a_file_that_changes_while_it_is_written_is_not_overwritten(config, monkeypatch):
    """Also in the last moment, when the new content is on the disk beside it already."""
    file = ConfigFile(config)
    write = ConfigFile._write_backup

    def change(self):
        write(self)
        config.write_text("{}")

    monkeypatch.setattr(ConfigFile, "_write_backup", change)
    with pytest.raises(Exception, match="nothing was written"):
        file.replace("new", back_up=True)
    assert config.read_text() == "{}"
    assert sorted(path.name for path in config.parent.iterdir() if path.is_file()) == [
        "mcp.json", "mcp.json.pokayoke-backup",
    ]  # fmt: skip


def test_permissions_and_links_stay(shell, config, tmp_path):
    """A link stays a link, a secret file stays secret, and so does its backup."""
    config.chmod(0o600)
    (tmp_path / "dotfiles").mkdir()
    real = config.rename(tmp_path / "dotfiles" / "mcp.json")
    config.symlink_to(real)
    assert shell("install", config, "--yes").returncode == 0
    assert config.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert stat.S_IMODE(backup_of(real).stat().st_mode) == 0o600
    assert shell("uninstall", config, "--yes").returncode == 0
    assert config.is_symlink()
    assert real.read_text() == CONFIG


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_the_owner_stays(shell, config):
    """An administrator installs for a user: the file and its backup still belong to that user."""
    os.chown(config, 65534, 65534)
    assert shell("install", config, "--yes").returncode == 0
    for path in (config, backup_of(config)):
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


@pytest.mark.parametrize("protected", ["file", "folder"])
def test_without_permission_nothing_is_asked(protected):
    """A file or a folder that takes no write is found out before the first question."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "mcp.json"
        path.write_text(CONFIG)
        os.chmod(name, 0o755 if protected == "folder" else 0o777)
        path.chmod(0o666 if protected == "folder" else 0o444)
        said = as_nobody(lambda: ConfigFile(path).require_writable())
    expected = "the folder takes no new file" if protected == "folder" else "Permission denied"
    assert said.startswith("PermissionError: ")
    assert expected in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--store", "postgresql://app:pw@db/app"), "--store holds a password"),
        (("--store", "memory://"), "memory:// ends with its process"),
        (("--store", "mysql://x"), "is not a kind of store"),
        (("--launcher", "no-such-program x"), "there is no such program"),
        (("--launcher", ""), "there is no such program"),
        (("--launcher", "'open"), "is not a line of a shell"),
        (("--launcher", "true"), "does not show the gateway"),
        (("--client", "${x}"), "which clients replace"),
        (("--client", "a\nb"), "control character"),
    ],
)
def test_options_that_cannot_work_are_refused(shell, config, options, said):
    """Exit code 2, and the file is as it was."""
    done = shell("install", config, "--yes", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert config.read_text() == CONFIG
    assert not backup_of(config).exists()


def test_a_client_is_found_by_its_name(shell, home):
    """Where it is kept is known; where it is not there yet, the error says where it would be."""
    done = shell("install", "cursor")
    assert done.returncode == 2
    assert f"{home}/.cursor/mcp.json, and there is no such file" in done.stderr
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(CONFIG)
    assert shell("install", "cursor", "--yes").returncode == 0
    assert {one["client"] for one in json_lines(shell("status", "cursor", "--json"))} == {"cursor"}
    assert {one["client"] for one in json_lines(shell("status", path, "--json"))} == {"cursor"}
    assert shell("uninstall", path, "--yes").returncode == 0
    assert "known by name" in shell("install", "emacs").stderr


def test_status_looks_at_every_client(shell, home):
    """Without a configuration, those of all well-known clients; one that cannot be read is passed over aloud."""
    assert "no configuration of a well-known client was found" in shell("status").stderr
    for name, text in (
        (".cursor/mcp.json", CONFIG),
        (".codex/config.toml", '[mcp_servers.x]\ncommand = "x"'),
        (".claude.json", "{"),
    ):
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    shell("install", "codex", "--yes")
    done = shell("status")
    assert done.returncode == 1
    assert f"skipped: {home}/.claude.json: line 1, column 2" in done.stderr
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:]] == [
        ["x", "wrapped", str(home.parent / "bin" / "pokayoke")],
        ["files", "not", "wrapped"],
        ["time", "not", "wrapped"],
    ]


def test_status_looks_at_the_project_here(shell, tmp_path):
    """A project brings servers of its own, which the client starts as well."""
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text('{"servers": {"a": {"command": "npx"}}}')
    (line,) = json_lines(shell("status", "--json"))
    assert (line["config"], line["server"], line["state"]) == (".vscode/mcp.json", "a", "not wrapped")


def test_a_server_that_is_wrapped_by_hand_stays_as_it_is(shell, config, tmp_path):
    """It is guarded, no installation changes it, and it is said that it shares nothing with the others."""
    text = json.dumps(
        {"mcpServers": {"own": {"command": str(tmp_path / "bin/pokayoke"), "args": ["mcp", "--", "npx"]}}}
    )
    config.write_text(text)
    assert shell("status", config).returncode == 0
    for command in ("install", "uninstall"):
        done = shell(command, config, "--yes")
        assert done.returncode == 0
        assert config.read_text() == text
    assert "own (mcpServers): it is wrapped by hand, and shares no store" in shell("install", config).stderr


def test_a_format_without_its_library_says_what_to_install(shell, tmp_path, monkeypatch):
    """TOML needs the extra; JSON needs none."""
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    (tmp_path / "config.toml").write_text("[mcp_servers.x]")
    done = shell("install", "config.toml")
    assert done.returncode == 2
    assert "pip install 'pokayoke[gateway]'" in done.stderr


def test_a_server_without_its_command_cannot_come_back(shell, config):
    """Somebody has deleted the words behind `--`: nothing is guessed, and the message says what to do."""
    shell("install", config, "--yes")
    config.write_text(config.read_text().replace('"uvx"]', "]").replace('"--", ]', '"--"]'))
    for command in ("install", "uninstall"):
        done = shell(command, config, "--yes")
        assert done.returncode == 1
        assert "time (mcpServers): no command stands behind the gateway's `--`" in done.stderr
    assert [one["state"] for one in json_lines(shell("status", config, "--json"))] == ["not wrapped", "broken"]


def test_nothing_in_a_configuration_reaches_the_terminal_unescaped(shell, config):
    """Names and words with control characters are shown, not obeyed."""
    config.write_text('{"mcpServers": {"a\\u001b[2J": {"command": "x\\u001b]8;;", "args": ["\\u202e"]}}}')
    for done in (
        shell("install", config, "--dry-run"),
        shell("status", config),
        shell("install", config, "--json", stdin="n\n"),
    ):
        assert "\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in done.stdout + done.stderr
        assert done.returncode in (0, 1)
