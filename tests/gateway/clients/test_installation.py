"""Configurations of real clients: wrapped, unwrapped, repaired, and everything else in them untouched."""

import json
import re
import shutil
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.config_file import ConfigFile
from pokayoke.gateway.clients.installation import (
    apply_changes,
    describe_servers,
    plan_installation,
    plan_removal,
)
from pokayoke.gateway.clients.jsonc_config import JsoncConfig
from pokayoke.gateway.clients.toml_config import TomlConfig
from pokayoke.gateway.clients.wrapping import Gateway

GATEWAY = Gateway(("/usr/bin/pokayoke",), "cursor", "sqlite:////home/ann/cursor.db", "cursor")
FRONT = GATEWAY.words

DESKTOP = """{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/home/ann"
      ]
    },
    "time": {
      "command": "uvx",
      "args": ["mcp-server-time", "--local-timezone=Europe/Berlin"],
      "env": {"TZ": "UTC", "API_KEY": "s3cr\\u0065t"}
    }
  },
  "globalShortcut": "Ctrl+Space"
}
"""
VS_CODE = """// Servers of this workspace
{
\t"inputs": [
\t\t{ "type": "promptString", "id": "key", "description": "API key", "password": true, },
\t],
\t"servers": {
\t\t/* local */
\t\t"perplexity": {
\t\t\t"type": "stdio",
\t\t\t"command": "npx",
\t\t\t"args": ["-y", "server-perplexity-ask", "--key", "${input:key}"], // the key is asked for
\t\t\t"env": { "KEY": "${input:key}" },
\t\t\t"cwd": "${workspaceFolder}/tools",
\t\t},
\t\t"bare": { "type": "stdio", "command": "${workspaceFolder}/server.sh" },
\t\t"remote": { "type": "http", "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer ${input:key}" } },
\t},
}
"""
CLAUDE_CODE = json.dumps(
    {
        "numStartups": 184,
        "mcpServers": {"git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {}}},
        "projects": {
            "/home/ann/shop": {
                "history": [{"display": 'a { "mcpServers": [', "pastedContents": {}}] * 40,
                "mcpServers": {
                    "db": {"type": "stdio", "command": "node", "args": [], "env": {"URL": "postgres://x"}},
                    "web": {"type": "sse", "url": "https://example.com/sse"},
                },
                "lastCost": 0.1234567890123456789,
            },
            "/home/ann/empty": {"mcpServers": {}},
        },
        "oauthAccount": {"accountUuid": "ab\u00e9\ud83d\ude00"},
    },
    indent=2,
)
ZED = """{
  "theme": "One Dark",
  "context_servers": {
    "postgres": { "source": "custom", "command": "pg-server", "args": [ "--url", "x" ], "env": null },
    "older": { "command": { "path": "/opt/older", "args": ["serve"], "env": {} }, "settings": {} },
    "oldest": { "command": { "path": "/opt/oldest" } },
    "extension": { "source": "extension", "enabled": true, "settings": {} },
  },
}
"""
CODEX = """# Codex
model = "gpt-5"

[mcp_servers.files]
command = "npx"   # from npm
args = ["-y",
  "files", # all of them
]
startup_timeout_sec = 20

[mcp_servers.files.env]
"API_KEY" = 'x'

  [mcp_servers."with dots.and blanks"]
  command = 'C:\\tools\\server.exe'
  enabled = true

[mcp_servers.remote]
url = "https://example.com/mcp"
bearer_token_env_var = "TOKEN"

[mcp_servers]
inline = { command = "a", args = [ "b" ], env = { A = "1" } }
short = { command = "a" }
dotted.command = "x"
dotted.args = []
lone . command = "y"

[profiles.fast]
args = ["not a server"]

[mcp_servers.last]
command = "z\""""
OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "local": { "type": "local", "command": ["bunx", "my-server"], "environment": { "A": "1" }, "enabled": true },
    "far": { "type": "remote", "url": "https://example.com/mcp" }
  }
}"""
CONTINUE = (
    '{"mcpServers": [{"name": "sqlite", "command": "npx", "args": ["-y", "mcp-sqlite"]}, {"command": "nameless"}]}'
)
COMPACT = '{"mcpServers":{"a":{"command":"x"},"b":{"args":["1"],"command":"y"},"c":{"command":"z","args":[]}}}'
AMP = '{ "amp.mcpServers": { "a": { "command": "npx", "args": ["-y", "a"] } } }'
SETTINGS = '{ "editor.tabSize": 2, "mcp": { "inputs": [], "servers": { "a": { "command": "npx" } } } }'

CONFIGS = {
    "claude_desktop_config.json": (DESKTOP, ["filesystem", "time"], []),
    "windows.json": (DESKTOP.replace("\n", "\r\n"), ["filesystem", "time"], []),
    "marked.json": ("\ufeff" + DESKTOP, ["filesystem", "time"], []),
    "mcp.json": (VS_CODE, ["perplexity", "bare"], ["remote"]),
    ".claude.json": (CLAUDE_CODE, ["git", "db"], ["web"]),
    "settings.json": (ZED, ["postgres", "older", "oldest"], ["extension"]),
    "config.toml": (CODEX, ["files", "with dots.and blanks", "inline", "short", "dotted", "lone", "last"], ["remote"]),
    "windows.toml": (CODEX.replace("\n", "\r\n"), ["files", "with dots.and blanks", "inline", "short", "dotted", "lone", "last"], ["remote"]),
    "opencode.json": (OPENCODE, ["local"], ["far"]),
    "continue.json": (CONTINUE, ["sqlite", "number 2"], []),
    "compact.json": (COMPACT, ["a", "b", "c"], []),
    "amp.json": (AMP, ["a"], []),
    "code.json": (SETTINGS, ["a"], []),
}  # fmt: skip


def parse(name, text):
    """The configuration in a text, in the format of the file's name."""
    return (TomlConfig if name.endswith(".toml") else JsoncConfig)(text)


def install(name, text, gateway=GATEWAY):
    """The text of a configuration after an installation."""
    config = parse(name, text)
    return apply_changes(config, plan_installation(config, gateway, keeps_options=True), lambda new: parse(name, new))


def uninstall(name, text):
    """The text of a configuration after an uninstallation."""
    config = parse(name, text)
    return apply_changes(config, plan_removal(config), lambda new: parse(name, new))


def values(name, text):
    """What another parser makes of a configuration: comments and last commas removed, as an editor does."""
    if name.endswith(".toml"):
        return tomllib.loads(text)
    bare = re.sub(
        r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/',
        lambda part: part[1] or "",
        text.removeprefix("\ufeff"),
        flags=re.DOTALL,
    )
    return json.loads(re.sub(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', lambda part: part[1] or "", bare))


def without_commands(value):
    """A document without what an installation may change."""
    if isinstance(value, dict):
        return {key: without_commands(one) for key, one in value.items() if key not in ("command", "args")}
    return [without_commands(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", CONFIGS)
def test_a_server_is_wrapped_and_nothing_else_changes(tmp_path, name):
    """As another parser reads it: the gateway stands in front of the same words, and all other values are equal."""
    text, wrapped, left = CONFIGS[name]
    (tmp_path / name).write_bytes(text.encode())
    file = ConfigFile(tmp_path / name)
    before, new = file.parse(), install(name, file.text)
    after = parse(name, new)
    assert [server.name for server in after.servers if server.keys] == wrapped
    assert [server.name for server in after.servers if not server.keys] == left
    for old, server in zip(before.servers, after.servers, strict=True):
        if server.keys:
            assert after.find_command_line(server).words == (*FRONT, *before.find_command_line(old).words)
    assert without_commands(values(name, new)) == without_commands(values(name, file.text))
    assert new != file.text


@pytest.mark.parametrize("name", CONFIGS)
def test_it_comes_back_byte_for_byte(name):
    """Installed and uninstalled, each configuration is what it was; so is one that nothing had wrapped."""
    text = CONFIGS[name][0].removeprefix("\ufeff")
    assert uninstall(name, install(name, text)) == text
    assert uninstall(name, text) == text


@pytest.mark.parametrize("name", CONFIGS)
def test_a_second_installation_changes_nothing(name):
    """Nothing is wrapped twice."""
    once = install(name, CONFIGS[name][0].removeprefix("\ufeff"))
    assert install(name, once) == once
    assert plan_installation(parse(name, once), GATEWAY, keeps_options=True) == []


def words_of(name, text, server):
    """The command line of one server."""
    config = parse(name, text)
    return config.find_command_line(next(one for one in config.servers if one.name == server)).words


def test_a_client_that_writes_its_file_anew_loses_nothing():
    """After a client has formatted the whole file, the servers come back with their words; an empty list may stay."""
    written = json.dumps(json.loads(install("a.json", COMPACT)), indent=2)
    back = json.loads(uninstall("a.json", written))
    assert back == {
        "mcpServers": {
            "a": {"command": "x", "args": []},
            "b": {"args": ["1"], "command": "y"},
            "c": {"command": "z", "args": []},
        }
    }


EDITS = [
    # what somebody does to the wrapped file, the server's words afterwards, what else is still there
    (('"-y", "a"]', '"-y", "a", "--verbose"]'), ("npx", "-y", "a", "--verbose"), ""),
    (('"-y", "a"]', '"-y", "b" /* mine */ ]'), ("npx", "-y", "b"), "/* mine */"),
    (('"npx", "-y"', '"npx" /* its name */ , "-y"'), ("npx", "-y", "a"), ""),
    (('"npx", "-y", "a"]', '"npx"]'), ("npx",), ""),
    (('"npx", "-y", "a"]', '"npx" , ]'), ("npx",), ""),
    (('"args": [', '"timeout": 5, "args": [\n // which\n'), ("npx", "-y", "a"), '"timeout": 5, "args": [\n // which\n'),
    (('"npx"', '"bunx"'), ("bunx", "-y", "a"), ""),
    (('"mcpServers"', '"theme": "dark", "mcpServers"'), ("npx", "-y", "a"), '"theme": "dark"'),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "words", "rest"), EDITS)
def test_an_edit_made_meanwhile_stays(edit, words, rest):
    """Only the gateway's words are taken away: what is left starts the server, and the edit is there."""
    installed = install("a.json", '{ "mcpServers": { "a": { "command": "npx", "args": ["-y", "a"] } } }')
    edited = installed.replace(*edit, 1)
    assert edited != installed
    assert words_of("a.json", edited, "a") == (*FRONT, *words)
    left = uninstall("a.json", edited)
    assert words_of("a.json", left, "a") == words
    assert rest in left
    assert "pokayoke" not in left


REPAIRS = [
    # what somebody did to the wrapped file, why it is repaired
    (("/usr/bin/pokayoke", "/gone/pokayoke"), "pokayoke is started in another way"),
    (("/home/ann/cursor.db", "/tmp/other.db"), "it does not share client, store and scope with the other servers"),
    (('"--scope", "cursor", ', ""), "it does not share client, store and scope with the other servers"),
    (('"--scope", "cursor"', '"--scope=else"'), "it does not share client, store and scope with the other servers"),
    (('"args": ["mcp"', '"args": ["mcp", "--client", "cursor", "--", "/usr/bin/pokayoke", "mcp"'), "it is wrapped more than once"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "reason"), REPAIRS)
def test_a_wrapped_server_is_repaired(edit, reason):
    """A second installation makes it what the first one had made, and says why."""
    text = '{ "mcpServers": { "a": { "command": "npx", "args": ["-y", "a"] } } }'
    installed = install("a.json", text)
    broken = installed.replace(*edit)
    assert broken != installed
    (change,) = plan_installation(JsoncConfig(broken), GATEWAY, keeps_options=True)
    assert (change.action, change.reason) == ("repair", reason)
    assert install("a.json", broken) == installed
    assert uninstall("a.json", broken) == text


def test_a_server_that_was_added_is_wrapped():
    """The others stay as they are."""
    installed = install("a.json", AMP)
    added = installed.replace('{ "a":', '{ "new": { "command": "n" }, "a":')
    (change,) = plan_installation(JsoncConfig(added), GATEWAY, keeps_options=True)
    assert (change.action, change.server.name, change.after) == ("wrap", "new", (*FRONT, "n"))


def test_an_option_that_somebody_has_added_stays():
    """A repair keeps what it does not own, unless new options are given."""
    installed = install("a.json", AMP).replace('"--", ', '"--mode", "enforce", "--", ')
    assert install("a.json", installed) == installed
    moved = Gateway(("/opt/pokayoke",), GATEWAY.client, GATEWAY.store, GATEWAY.scope)
    assert '"--mode", "enforce", "--", "npx", "-y", "a"' in install("a.json", installed, moved)
    (change,) = plan_installation(JsoncConfig(installed), GATEWAY, keeps_options=False)
    assert change.after == (*FRONT, "npx", "-y", "a")
    assert change.reason == "its options are others"


STATES = [
    ('{"command": "npx", "args": ["-y"]}', "not wrapped", ""),
    ('{"command": "{sh}", "args": ["mcp", "--client", "c", "--store", "s", "--scope", "c", "--", "npx"]}', "wrapped", ""),
    ('{"command": "pokayoke", "args": ["mcp", "--", "npx"]}', "broken", "pokayoke is not there"),
    ('{"command": "{sh}", "args": ["-m", "pokayoke", "mcp", "--", "npx"]}', "wrapped by hand", ""),
    ('{"command": "{sh}", "args": ["--from", "pokayoke[gateway]==1.2", "pokayoke", "mcp", "--mode", "monitor", "--", "npx"]}', "wrapped by hand", ""),
    ('{"command": "{sh}", "args": ["run", "-i", "ghcr.io/x/pokayoke:1", "mcp", "--", "npx"]}', "wrapped by hand", ""),
    ('{"command": "/gone/pokayoke", "args": ["mcp", "--client", "c", "--store", "s", "--scope", "c", "--", "npx"]}', "broken", "/gone/pokayoke is not there"),
    ('{"command": "{sh}", "args": ["pokayoke", "mcp", "--client", "c", "--store", "s", "--scope", "c", "--"]}', "broken", "no command stands behind"),
    ('{"command": "{sh}", "args": ["pokayoke", "mcp", "--client", "c", "--store", "s", "--scope", "c"]}', "broken", "no command stands behind"),
    ('{"command": "{sh}", "args": ["pokayoke", "mcp", "--client", "c", "--", "npx"]}', "broken", "--store or --scope is missing"),
    ('{"command": "{sh}", "args": ["pokayoke", "mcp", "--client"]}', "broken", "no command stands behind"),
    ('{"command": "npx", "args": ["server-filesystem", "/home/ann/pokayoke", "--", "mcp"]}', "not wrapped", ""),
    ('{"command": "npx", "args": ["pokayoke-mcp", "mcp", "--client", "x", "--", "y"]}', "not wrapped", ""),
    ('{"command": "mcp", "args": ["pokayoke"]}', "not wrapped", ""),
    ('{"command": "/bin/pokayoke", "args": ["gateway", "--stdio", "servers.json"]}', "wrapped by hand", "`pokayoke gateway` guards"),
    ('{"command": "uvx", "args": ["--from", "pokayoke[gateway]", "pokayoke", "gateway"]}', "wrapped by hand", "`pokayoke gateway` guards"),
    ('{"command": "python", "args": ["-m", "pokayoke", "--client", "c", "--", "npx"]}', "broken", "it starts pokayoke without `mcp`"),
    ('{"command": "pokayoke"}', "broken", "it starts pokayoke without `mcp`"),
    ('{"command": "uvx", "args": ["mcp-server-git", "--repository", "/src/pokayoke"]}', "not wrapped", ""),
    ('{"command": "uvx", "args": ["mcp-server-git", "--repository", "pokayoke"]}', "not wrapped", ""),
    ('{"command": "uvx", "args": ["mcp-server-git", "/src/pokayoke"]}', "not wrapped", ""),
    ('{"command": "npx", "args": ["server-filesystem", "/home/ann/pokayoke"]}', "not wrapped", ""),
    ('{"url": "https://example.com"}', "remote", "only a command can be wrapped"),
    ('{"serverUrl": "https://example.com"}', "remote", "only a command can be wrapped"),
    ('{"command": "npx", "url": "https://example.com"}', "not wrapped", ""),
    ('{"command": " "}', "unusable", "its command is empty"),
    ('{"command": "npx", "args": "-y"}', "unusable", "args are not a list of texts"),
    ('{"command": "npx", "args": ["-p", 80]}', "unusable", "args are not a list of texts"),
    ('{"command": []}', "unusable", "not a list of texts"),
    ('{"command": [["npx"]]}', "unusable", "not a list of texts"),
    ('{"command": 5}', "unusable", "it has no command"),
    ("{}", "unusable", "it has no command"),
    ('"npx"', "unusable", "its entry is not an object"),
    ("null", "unusable", "its entry is not an object"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "state", "detail"), STATES)
def test_the_state_of_a_server(entry, state, detail):
    """What stands in front of a server, seen in its command line alone."""
    config = JsoncConfig(f'{{"mcpServers": {{"a": {entry.replace("{sh}", shutil.which("sh"))}}}}}')
    (found,) = describe_servers(config, shutil.which)
    assert found.state == state
    assert detail in found.detail
    assert bool(found.detail) == (state not in ("wrapped", "not wrapped"))
    assert found.is_guarded == state.startswith("wrapped")
    changes = plan_installation(config, GATEWAY, keeps_options=True)
    assert all("".join(change.after).count("sqlite:") == 1 for change in changes)
    if state in ("remote", "unusable", "wrapped by hand") or "without `mcp`" in found.detail:
        assert changes == []


def test_servers_of_one_client_that_share_nothing_are_broken():
    """The first one counts: another store would not hold back the writes of the others."""
    two = '{"mcpServers": {"a": {"command": "npx"}, "b": {"command": "npx"}}}'
    sh = Gateway((shutil.which("sh"),), "c", "s", "c")
    apart = install("a.json", two, sh)
    place = apart.rindex('"s"')
    apart = f'{apart[:place]}"t"{apart[place + 3 :]}'
    states = describe_servers(JsoncConfig(apart), shutil.which)
    assert [(state.state, state.detail) for state in states] == [
        ("wrapped", ""),
        ("broken", "it does not share client, store and scope with the other servers; install again"),
    ]


REFUSED = [
    ("a.json", "[]", "expected an object"),
    ("a.json", '{"theme": "dark"}', "no list of MCP servers"),
    ("a.json", '{"mcpServers": {}}', "lists no server yet"),
    ("a.json", '{"mcpServers": []}', "lists no server yet"),
    ("a.json", '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "line 1, column 40: the key 'a'"),
    ("a.json", '{"mcpServers": {"a": {"command": "x",\n "command": "y"}}}', "line 2, column 2: the key 'command'"),
    ("a.json", '{"mcpServers": {"a": {"command": "x"}}', "line 1, column 39: expected ',' or '}', got the end of the file"),
    ("a.json", '{"a": ' + "[" * 300, "nested more than 100 levels deep"),
    ("a.json", "command = 1", "line 1, column 1: expected a value, got 'c'"),
    ("a.json", '{"mcpServers": {"a": {"command": "x\ny"}}}', "line 1, column 34: expected a string"),
    ("a.json", "{} {}", "expected the end of the file"),
    ("a.json", "{'a': 1}", "expected a key in double quotes"),
    ("a.json", '{"a": 1 /* open }', "expected ',' or '}', got '/'"),
    ("a.toml", "{}", "it is not TOML"),
    ("a.toml", "a = 1\na = 2", "it is not TOML"),
    ("a.toml", "model = 'x'", "no list of MCP servers"),
    ("a.toml", "[mcp_servers]", "lists no server yet"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "said"), REFUSED)
def test_what_is_no_configuration_is_refused(name, text, said):
    """The error says where, and what was expected."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        parse(name, text)


def test_a_word_that_cannot_be_written_is_refused():
    """A control character in a path would reach the configuration as an escape that not every format has."""
    with pytest.raises(ConfigurationError, match="control character"):
        install("a.json", AMP, Gateway(("/a\x1bb",), "c", "s", "c"))


# -- laws ------------------------------------------------------------------------------------------

BLANKS = st.sampled_from(["", " ", "\n", "\t", "\r\n  ", "   "])
COMMENTS = st.sampled_from(["", '// a "b" ]}\n', "/* , } */", "/**/ ", " //\r\n"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def escaped(draw, text):
    """A text in one of the spellings that JSON has for it."""
    return json.dumps(text, ensure_ascii=draw(st.booleans()))


@st.composite
def jsonc(draw, comments=True):
    """A configuration with servers among other things, in any layout."""

    def blank():
        return draw(BLANKS) + (draw(COMMENTS) if comments else "") + draw(BLANKS)

    def joined(opener, members, closer):
        last = draw(st.sampled_from([",", ""])) if comments and members else ""
        inner = ",".join(f"{blank()}{member}{blank()}" for member in members)
        return f"{opener}{inner}{last}{blank()}{closer}"

    def mapping(members):
        return joined("{", [f"{escaped(draw, key)}{blank()}:{blank()}{value}" for key, value in members.items()], "}")

    def words(least):
        return joined("[", [escaped(draw, draw(TEXTS)) for _ in range(draw(st.integers(least, 3)))], "]")

    def other():
        return draw(st.sampled_from(["1.50e+3", "true", "null", '"\\u0041"', "[ 1,2 ]", '{"a":{ "b": []}}']))

    def server():
        members = {"env": '{ "A" : "${input:x}" }', "type": '"stdio"', draw(TEXTS): other()}
        program = escaped(draw, draw(TEXTS.filter(str.strip)))
        match draw(st.integers(0, 3)):
            case 0:
                members["command"] = program
            case 1:
                members |= {"args": words(0), "command": program}
            case 2:
                members["command"] = words(1)
            case _:
                members["command"] = mapping({"path": program} | ({"args": words(0)} if draw(st.booleans()) else {}))
        keys = draw(st.permutations(list(members)))
        return mapping({key: members[key] for key in keys})

    servers = {name: server() for name in draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True))}
    members = {
        "theme": other(),
        "mcpServers": mapping(servers),
        "projects": mapping({"/p": mapping({"mcpServers": mapping(servers)})}),
    }
    keys = draw(st.permutations(list(members)))
    return blank() + mapping({key: members[key] for key in keys}) + blank()


def quoted(text):
    """A text as a basic string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@st.composite
def toml(draw):
    """A configuration in TOML with servers among other things."""
    end = draw(st.sampled_from(["\n", "\r\n"]))

    def word(text):
        spellings = [quoted(text)]
        if re.fullmatch(r"[^'\x00-\x1f\x7f]*", text):
            spellings.append(f"'{text}'")
        return draw(st.sampled_from(spellings))

    def words(inline):
        items = [word(draw(TEXTS)) for _ in range(draw(st.integers(0, 3)))]
        gap = (
            draw(st.sampled_from(["", " "]))
            if inline
            else draw(st.sampled_from(["", " ", end + "  ", f" # ], 'x{end}"]))
        )
        return f"[{gap}{f',{gap}'.join(items)}{',' if items and draw(st.booleans()) else ''}{gap}]"

    def server(place):
        program = word(draw(TEXTS.filter(str.strip)))
        equals, note = draw(st.sampled_from(["=", " = ", "  ="])), draw(st.sampled_from(["", " # note"]))
        if place == "inline":
            arguments = f", args{equals}{words(inline=True)}" if draw(st.booleans()) else ""
            return [f"mcp_servers.{key} = {{ env = {{}}, command{equals}{program}{arguments} }}{note}"]
        pad = draw(st.sampled_from(["", "  "]))
        prefix = f"mcp_servers . {key}." if place == "dotted" else ""
        entries = [f"{pad}{prefix}command{equals}{program}{note}", f"{pad}{prefix}t = 2.50"]
        if draw(st.booleans()):
            entries.append(f"{pad}{prefix}'args'{equals}{words(inline=False)}")
        header = [f"[mcp_servers.{key}]"] if place == "table" else []
        return [*header, *draw(st.permutations(entries))]

    head, tables = ['# servers = "x"', "args = [1]"], []
    for name in draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True)):
        key = word(name) if "\n" not in name else quoted(name)
        match draw(st.sampled_from(["inline", "dotted", "table"])):
            case "table":
                tables += [*server("table"), "", f"[mcp_servers.{key}.env]", "A = 'b'"]
            case place:
                head += server(place)
    # TOML forbids a table below keys that were written with dots.
    lines = [*head, *tables] if len(head) == 2 else head if not tables or draw(st.booleans()) else [*head[:2], *tables]
    return end.join([*lines, draw(st.sampled_from(["", "[last]"]))])


@settings(max_examples=300)
@given(jsonc())
def test_any_json_with_comments_comes_back(text):
    """Law: install, then uninstall, gives the same text; a second installation changes nothing."""
    installed = install("a.json", text)
    assert uninstall("a.json", installed) == text
    assert install("a.json", installed) == installed
    assert without_commands(values("a.json", installed)) == without_commands(values("a.json", text))


@settings(max_examples=150)
@given(jsonc(comments=False))
def test_plain_json_stays_plain_json(text):
    """Law: what a strict parser reads before, it reads afterwards, and a wrapped command has the words it had."""
    before, after = json.loads(text), json.loads(install("a.json", text))
    assert without_commands(after) == without_commands(before)
    assert uninstall("a.json", install("a.json", text)) == text


@settings(max_examples=200)
@given(toml())
def test_any_toml_comes_back(text):
    """Law: install, then uninstall, gives the same text, and another parser reads the same values beside the commands."""
    installed = install("a.toml", text)
    assert uninstall("a.toml", installed) == text
    assert install("a.toml", installed) == installed
    assert without_commands(tomllib.loads(installed)) == without_commands(tomllib.loads(text))


def commands(name, text):
    """The command line of each server."""
    config = parse(name, text)
    return [config.find_command_line(server).words for server in config.servers]


@settings(max_examples=150)
@given(jsonc(comments=False), st.sampled_from([None, 0, 2, "\t"]))
def test_a_file_that_a_client_writes_anew_can_be_unwrapped(text, indent):
    """Law: after a program has formatted it, every server has its own command line again; repairs find nothing to do."""
    anew = json.dumps(json.loads(install("a.json", text)), indent=indent, ensure_ascii=indent is None)
    assert plan_installation(parse("a.json", anew), GATEWAY, keeps_options=True) == []
    assert commands("a.json", uninstall("a.json", anew)) == commands("a.json", text)


@settings(max_examples=150)
@given(jsonc(), st.data())
def test_a_file_that_a_person_lays_out_anew_can_be_unwrapped(text, data):
    """Law: comments, blanks and line ends put anywhere into a wrapped file never make an unwrapped one invalid."""
    tokens = re.findall(
        r'"(?:\\.|[^"\\])*"|//[^\n]*\n?|/\*.*?\*/|\s+|[\w.+-]+|[^\s"]', install("a.json", text), re.DOTALL
    )
    places = data.draw(st.lists(st.integers(0, len(tokens)), max_size=12))
    for place in sorted(places, reverse=True):
        tokens.insert(place, data.draw(st.sampled_from([" ", "\n", '/* ], " , */', '// }, "\n'])))
    laid_out = "".join(tokens)
    assert commands("a.json", uninstall("a.json", laid_out)) == commands("a.json", text)
