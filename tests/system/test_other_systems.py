"""What works where macOS and Windows lack something: a child process has it taken away before pokayoke is loaded."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mcp_lines import LineClient, status

from pokayoke import system as this_system

SUPPORT = Path(__file__).parents[1] / "support"
CHILD = SUPPORT / "other_system.py"
SYSTEMS = pytest.mark.parametrize("system", ["macos", "windows"])

COMMAND = "from pokayoke.cli import main\nmain()\n"
SHOP = """
import asyncio, json, pathlib, sys, time
import pokayoke

@pokayoke.tool(effect="write", identity=("sku",), timeout=5)
def order(sku: str) -> dict[str, str]:
    "Order one."
    with open("orders.txt", "a") as file:
        file.write(sku + "\\n")
    return {"id": "O-" + sku}

def call(name, **arguments):
    return pokayoke.ToolCall("c-" + str(time.monotonic_ns()), name, arguments)
"""


def run_there(system, folder, body, *arguments, code=0):
    """Run a script on the other system and return what it prints."""
    script = folder / "script.py"
    script.write_text(body)
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-W", "error", str(CHILD), system, str(script), *arguments],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "cp1252", "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@SYSTEMS
def test_every_module_can_be_imported(system, tmp_path):
    """No module needs what the system lacks; the only obstacle is an extra that is not installed."""
    body = """
import importlib, json, pathlib, pokayoke
root = pathlib.Path(pokayoke.__file__).parent
loaded, missing = [], {}
for path in sorted(root.rglob("*.py")):
    if path.stem == "__main__":  # it runs what another module holds
        continue
    name = ".".join(("pokayoke", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    try:
        importlib.import_module(name)
    except pokayoke.MissingExtraError as error:
        missing[name] = str(error)
    else:
        loaded.append(name)
print(json.dumps([loaded, missing]))
"""
    loaded, missing = json.loads(run_there(system, tmp_path, body))
    assert len(loaded) > 400
    for name, told in missing.items():
        assert name.startswith("pokayoke.adapters."), told
        assert re.match(r"'[\w-]+' is not installed\. Run: .*install .*'pokayoke\[", told), told


@SYSTEMS
def test_a_guarded_call_runs_sync_and_async(system, tmp_path):
    """A write with a deadline runs once, and its repetition is replayed, in both kinds of runs."""
    body = f"""{SHOP}
with pokayoke.Guard([order]).run() as run:
    print([run.call(call("order", sku="a")).status for _ in range(2)])
async def main():
    async with pokayoke.Guard([order]).run() as run:
        return [(await run.acall(call("order", sku="b"))).status for _ in range(2)]
print(asyncio.run(main()), pathlib.Path("orders.txt").read_text().split())
"""
    assert run_there(system, tmp_path, body) == "['ok', 'replayed']\n['ok', 'replayed'] ['a', 'b']\n"


@SYSTEMS
@pytest.mark.parametrize("library", ["apsw", "sqlite3"])
def test_a_ledger_in_a_file_outlives_its_process(system, library, tmp_path):
    """A write that one process has made is replayed in the next one."""
    body = f"""{SHOP}
url = "sqlite:///ledger.db?library={library}"
pokayoke.open_store(url, create=True).close()
guard = pokayoke.Guard([order], store=url)
print(guard.run("order-1").call(call("order", sku="a")).status)
guard.close()
"""
    assert [run_there(system, tmp_path, body) for _ in range(2)] == ["ok\n", "replayed\n"]


@SYSTEMS
def test_a_killed_process_leaves_a_doubt_and_no_second_effect(system, tmp_path):
    """A claim whose process was killed is never taken for free, where nothing proves that the process is dead."""
    body = f"""{SHOP}
import os
url = "sqlite:///ledger.db"
pokayoke.open_store(url, create=True).close()
def die(step):
    if step == "after_invoke":
        os._exit(9)
guard = pokayoke.Guard([order], store=url, on_step=die)
print(guard.run("order-1").call(call("order", sku="a")).status)
guard.close()
"""
    run_there(system, tmp_path, body, code=9)
    assert run_there(system, tmp_path, body) == "refused\n"
    assert (tmp_path / "orders.txt").read_text() == "a\n"


@SYSTEMS
def test_a_trace_is_whole_lines_and_rotates(system, tmp_path):
    """Every line of a trace that was rotated is JSON, ends in one newline, and none is lost."""
    body = f"""{SHOP}
config = {{"trace": {{"path": "trace.jsonl", "max_bytes": 20_000, "backups": 9}}}}
guard = pokayoke.Guard([order], config=config)
for number in range(40):
    with guard.run(f"run-{{number}}") as run:
        run.call(call("order", sku=str(number)))
        time.sleep(0.01)
guard.close()
print(guard.trace.problem)
"""
    assert run_there(system, tmp_path, body) == "None\n"
    files = sorted(tmp_path.glob("trace.jsonl*"))
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    assert len(files) > 1
    assert all(line.endswith(b"}\n") and not line.endswith(b"\r\n") for line in lines)
    assert len({json.loads(line)["run_id"] for line in lines}) == 40


@SYSTEMS
def test_a_path_that_leaves_through_a_link_is_refused(system, tmp_path):
    """A confined path opens a file below its root, and a link that leads out is refused."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "in.txt").write_text("inside")
    (tmp_path / "out.txt").write_text("outside")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "out.txt")
    body = """
import pokayoke
path = pokayoke.ConfinedPath
with pokayoke.open_beneath("root", "in.txt") as file:
    print(file.read())
for name in ("link", "../out.txt", "/etc/passwd", "link/x"):
    try:
        pokayoke.open_beneath("root", name).close()
    except pokayoke.PathEscape as escape:
        print(escape.finding.code)
with pokayoke.open_beneath("root", "new.txt", "w") as file:
    file.write("new")
"""
    assert run_there(system, tmp_path, body).split() == ["inside", *["path_escape"] * 4]
    assert (tmp_path / "root" / "new.txt").read_text() == "new"


@SYSTEMS
def test_the_command_line_helps_and_works(system, tmp_path):
    """The help of every command is printed on a narrow character set, and a demo, a lock and a replay run."""
    record = {"tool": "order", "arguments": '{"sku": "a"}', "output": '{"id": "O-a"}', "run": "1"}
    (tmp_path / "calls.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "tools.yaml").write_text(
        "contracts:\n- name: order\n  effect: write\n  input_schema: {type: object, properties: {sku: {type: string}}}\n"
    )
    body = """
import sys
from pokayoke.cli import main
from pokayoke.cli.app import build_app
for words in ([], *([name] for name in %r)):
    sys.argv = ["pokayoke", *words, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""
    commands = ["check", "contracts", "demo", "doctor", "learn", "ledger", "replay", "safe-mode", "trace", "verify"]
    shown = run_there(system, tmp_path, body % commands)
    assert all(f"pokayoke {name}" in shown for name in commands)
    run_there(system, tmp_path, COMMAND, "check", "tools.yaml", code=1)
    run_there(system, tmp_path, COMMAND, "contracts", "lock", "tools.yaml", "--by", "me", "--reason", "first")
    assert (tmp_path / "contracts.lock").exists()
    run_there(system, tmp_path, COMMAND, "replay", "calls.jsonl", "--contracts", "tools.yaml", "--jobs", "4", "--json")


@SYSTEMS
def test_doctor_names_what_is_weaker_there(system, tmp_path):
    """Every guard fires on the other system, and the notes say what it lacks, with the same words as `weaknesses`."""
    found = json.loads(run_there(system, tmp_path, COMMAND, "doctor", "--json"))
    assert [probe["name"] for probe in found["probes"] if not probe["fired"]] == []
    missing = {note.split(" here")[0] for note in found["notes"] if " here" in note}
    windows = {
        "no process groups",
        "no folder descriptors",
        "no file locks",
        "open files cannot be renamed",
        "no file modes",
        "no process can fork",
        "pipes have no deadlines",
    }
    assert missing == {"no /proc"} | (windows if system == "windows" else {"no openat2"})


@SYSTEMS
def test_a_key_file_is_made_and_read_again(system, tmp_path):
    """A key is made once and accepted again, although a mode may not say who can read it."""
    body = """
import pathlib
from pokayoke.runtime.files.key_file import load_key
print(load_key(pathlib.Path("key"), "o") == load_key(pathlib.Path("key"), "o"))
"""
    assert run_there(system, tmp_path, body) == "True\n"


def test_asking_a_server_where_pipes_have_no_deadlines_says_what_to_do(tmp_path):
    """`learn` refuses to ask an MCP server there, in one sentence with the way out."""
    body = """
import sys
from pokayoke.errors import ConfigurationError
from pokayoke.replay.learn.mcp_listing import ask_server
try:
    ask_server([sys.executable, "-c", "pass"])
except ConfigurationError as error:
    print(str(error).partition(": ")[2])
"""
    assert run_there("windows", tmp_path, body) == (
        "a server cannot be asked on this system. Save its tools/list answer in a file, and name that\n"
    )


def has_ended(pid):
    """Return whether there is soon no process of this number, or only what is left of one."""
    for _ in range(500):  # a signal that was sent may not have arrived yet
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@SYSTEMS
def test_the_gateway_guards_a_server_and_ends_it(system, tmp_path):
    """A call comes back, a repetition is replayed, and a server that hangs is ended when its client is gone."""
    script, pid = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(COMMAND)
    server = [sys.executable, "-c", f"""
import os, runpy, sys
open({str(pid)!r}, "w").write(str(os.getpid()))
sys.argv = ["server", "hangs", {str(tmp_path / "effects")!r}]
runpy.run_path({str(SUPPORT / "hostile_mcp_server.py")!r}, run_name="__main__")
"""]  # fmt: skip
    with LineClient(sys.executable, str(CHILD), system, str(script), "mcp", "--", *server) as client:
        client.initialize()
        assert [status(client.call("look", {"n": 0})) for _ in range(2)] == ["ok", "ok"]
        assert [status(client.call("act", {"n": 0})) for _ in range(2)] == ["ok", "replayed"]
        client.send(id=99, method="tools/call", params={"name": "act", "arguments": {"n": 1}})
    assert client.process.returncode == 0
    assert has_ended(int(pid.read_text()))


def test_a_server_that_reads_nothing_is_ended_where_pipes_have_no_deadlines(tmp_path):
    """A call that is larger than a pipe is answered when its deadline has passed, and the gateway ends."""
    script = tmp_path / "script.py"
    script.write_text(COMMAND)
    server = [sys.executable, str(SUPPORT / "small_mcp_server.py"), "silent"]
    with LineClient(
        sys.executable, str(CHILD), "windows", str(script), "mcp", "--deadline", "1", "--", *server
    ) as client:
        assert "error" in client.request("x/large", {"text": "x" * 1_000_000})
    assert client.process.returncode is not None


@SYSTEMS
def test_a_server_of_the_gateway_for_many_is_ended(system, tmp_path):
    """A server that does not end with its input answers first, and is gone when its connection is closed."""
    (tmp_path / "server.py").write_text("""
import os, sys, time
sys.stdin.readline()
print('{"jsonrpc": "2.0", "id": 1, "result": {"pid": %d}}' % os.getpid(), flush=True)
time.sleep(3600)
""")
    body = """
import anyio, sys
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest
from pokayoke.gateway.servers.process import open_process
async def main():
    async with open_process([sys.executable, "server.py"], env={}, cwd="", errlog=None) as (read, write):
        await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
        print((await read.receive()).message.result["pid"])
anyio.run(main)
"""
    assert has_ended(int(run_there(system, tmp_path, body)))


def test_a_server_is_ended_with_its_children_on_macos(tmp_path):
    """A child that outlives its server is ended with it, although the server's end cannot be seen without `wait`."""
    body = """
import subprocess
from pokayoke.system import end_session
command = ["sh", "-c", "sleep 3600 & echo $!; exit 3"]
process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
child = int(process.stdout.readline())
process.stdout.close()
end_session(process, 5.0)
print(process.returncode, child)
"""
    code, child = run_there("macos", tmp_path, body).split()
    assert code == "3"
    assert has_ended(int(child))


def test_a_program_is_started_by_its_path_where_names_leave_the_ending_out(monkeypatch):
    """With PATHEXT the whole path is named, if there is one; without it, the name as it is given."""
    assert this_system.find_program("sh") == "sh"
    monkeypatch.setenv("PATHEXT", ".CMD;.EXE")
    assert this_system.find_program("sh") == shutil.which("sh")
    assert this_system.find_program("no-such-program") == "no-such-program"
