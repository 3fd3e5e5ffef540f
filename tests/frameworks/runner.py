"""Play scenarios with one host, inside its environment; prints one JSON line per conversation.

    python tests/frameworks/runner.py --host langchain --modes async,stream --only "wrong type" --ways alone

A child process holds the conversations, one after the other. One that crashes or hangs is noted, and a new child
goes on with the next.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "support", HERE.parent / "core"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from framework_shop import Shop  # noqa: E402 - as above
from job import Job  # noqa: E402 - found in the folders above
from judge import Facts, alone, judge  # noqa: E402 - as above
from model_server import ModelServer  # noqa: E402 - as above
from scenarios import BY_NAME, SCENARIOS  # noqa: E402 - as above

LIMIT = 20.0
"""Seconds after which a conversation is ended."""
BEGIN = 300.0
"""Seconds that a child may take to import its framework."""
ENDED = 3
"""Exit code of a child that ended a conversation and itself with it."""
MOST = 40
"""Requests after which a loop counts as endless."""


def load(name: str, hosts: Path = HERE / "hosts"):
    """Return a host; its file is named like the framework, so it is no module of that name."""
    path = hosts / f"{name.replace('-', '_')}.py"
    if not path.exists():
        raise SystemExit(f"there is no host {name}: write {path}")
    spec = importlib.util.spec_from_file_location(f"host_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cells(host, modes=None, wires=None, only=None, guarded=True) -> list[dict]:
    """The conversations to have: every scenario that a wire can carry, in every mode.

    Args:
        host: the host's module.
        modes: some of its modes; None for all.
        wires: some of its wires; None for all.
        only: names of scenarios; None for all.
        guarded: False for the framework alone.
    """
    return [
        {"scenario": one.name, "mode": mode, "wire": wire, "guarded": guarded}
        for wire in host.WIRES
        for mode in host.MODES
        for one in SCENARIOS
        if (wires is None or wire in wires) and (modes is None or mode in modes)
        if (only is None or one.name in only) and one.plays(wire, mode)
        if not (one.blocking and mode == "sync")
    ]


def wanted(host, modes=None, wires=None, only=None, ways=("guarded",)) -> list[dict]:
    """The conversations that somebody asks for, the framework alone first: adapters may change it for good.

    Args:
        host: the host's module.
        modes: as in `cells`.
        wires: as in `cells`, but None is the first one only for the framework alone.
        only: as in `cells`.
        ways: `guarded`, `alone` or both.
    """
    todo = []
    if "alone" in ways:
        todo += cells(host, modes, wires or host.WIRES[:1], only, guarded=False)
    if "guarded" in ways:
        todo += cells(host, modes, wires, only)
    return todo


def conversation(host, cell: dict, folder: Path, limit: float = LIMIT, ended=None) -> dict:
    """Have one conversation and judge it.

    Args:
        host: the host's module.
        cell: which one, from `cells`.
        folder: where its log may lie.
        limit: seconds after which `ended` is called.
        ended: called with the result of a conversation that takes too long; has to end the process.
    """
    scenario = BY_NAME[cell["scenario"]]
    shop = Shop(Path(tempfile.mkdtemp(dir=folder)) / "log", scenario.hangs_for)
    began = time.monotonic()
    with ModelServer(list(scenario.turns), most=MOST) as server:
        facts = Facts(server.requests, server.refused, server.at)

        def result() -> dict:
            facts.happened = shop.happened()
            found = judge(scenario, facts)
            text = ("ok" if not found.wrong else "WRONG") if cell["guarded"] else alone(scenario, facts)
            return {
                **cell,
                "cell": text,
                "ok": not found.wrong,
                "wrong": [what for _, what in found.wrong],
                "text": (facts.text or "")[:300],
                "requests": len(facts.requests),
                "seconds": round(time.monotonic() - began, 3),
            }

        def late() -> None:
            facts.late = True
            ended(result())

        watch = threading.Timer(limit, late) if ended else None
        if watch:
            watch.daemon = True
            watch.start()
        job = Job(server.url, shop, cell["wire"], cell["mode"], cell["guarded"], blocking=scenario.blocking)
        try:
            facts.text = host.play(job)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a crash is a result
            facts.error = f"{type(error).__name__}: {str(error)[:300]}"
        if watch:
            watch.cancel()
        return result()


def about(name: str, host, todo: list[dict]) -> dict:
    """What is said of a host before its conversations begin."""
    version = importlib.metadata.version(host.PACKAGE)
    known = {"host": name, "title": host.TITLE, "version": version, "impossible": host.IMPOSSIBLE}
    return {**known, "conversations": len(todo)}


def child(name: str, asked: dict, limit: float, hosts: Path) -> None:
    """Have conversations one after the other. What frameworks print goes to stderr.

    Args:
        name: the host.
        asked: which conversations: `todo`, a list, or `options` of `wanted`.
        limit: seconds that one of them may take.
        hosts: folder of the host.
    """
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(value) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    host = load(name, hosts)
    todo = asked.get("todo")
    if todo is None:
        todo = wanted(host, **asked["options"])
        tell({"about": about(name, host, todo), "todo": todo})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for cell in todo:

            def ended(result) -> None:
                tell({"result": result})
                os._exit(ENDED)  # what hangs cannot be asked to stop

            tell({"begin": cell})
            tell({"result": conversation(host, cell, Path(folder), limit, ended)})
    out.flush()
    os._exit(0)  # threads of tools that were given up would keep it alive


def played(name: str, asked: dict, *, limit: float = LIMIT, quiet: bool = True, hosts: Path = HERE / "hosts"):
    """Yield what is known of a host, then the result of each conversation; a child that is lost is replaced.

    Args:
        name: the host.
        asked: as in `child`.
        limit: seconds that a conversation may take.
        quiet: False to show what the framework writes to stderr.
        hosts: folder of the host.
    """
    rest = asked.get("todo")
    command = [sys.executable, __file__, "--child", "--host", name, "--limit", str(limit), "--hosts", str(hosts)]
    while rest is None or rest:
        with tempfile.TemporaryFile() as noise:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise if quiet else None,
                start_new_session=True,
            )
            begun = None
            try:
                with process.stdin as stdin:
                    stdin.write(json.dumps(asked if rest is None else {"todo": rest}).encode())
                for line in _lines(process, limit + 10):
                    if "about" in line:
                        rest = line["todo"]
                        yield line["about"]
                    elif "begin" in line:
                        begun = line["begin"]
                    else:
                        begun = None
                        rest.pop(0)
                        yield line["result"]
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                process.stdout.close()
            noise.seek(0)
            said = noise.read().decode(errors="replace")[-3_000:]
        if begun is not None:
            rest.pop(0)
            why = f"the process died (exit {process.returncode}): {said[-300:]}"
            yield {**begun, "cell": "C process died", "ok": False, "wrong": [why], "requests": 0, "seconds": 0.0}
        elif rest is None or (rest and process.returncode != ENDED):
            raise SystemExit(f"{name} cannot be played (exit {process.returncode})\n{said}")


def _lines(process, limit: float):
    """The lines of a child, until it ends or says nothing for too long."""
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    wait, rest = BEGIN, b""
    while selector.select(wait):
        data = os.read(process.stdout.fileno(), 65_536)
        if not data:
            return
        wait = limit
        *whole, rest = (rest + data).split(b"\n")
        yield from map(json.loads, whole)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--modes", help="some of sync,async,stream; default: all the host has")
    parser.add_argument("--wires", help="some of chat,responses,anthropic; default: all, alone the first")
    parser.add_argument("--only", help="names of scenarios, separated by semicolons")
    parser.add_argument("--ways", choices=("guarded", "alone", "both"), default="guarded", help="default: guarded")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds per conversation ({LIMIT:.0f})")
    parser.add_argument("--here", action="store_true", help="in this process, for a debugger")
    parser.add_argument("--loud", action="store_true", help="show what the framework writes to stderr")
    parser.add_argument("--hosts", type=Path, default=HERE / "hosts", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.host, json.load(sys.stdin), given.limit, given.hosts)
        return

    def some(text, sign=","):
        return [one.strip() for one in text.split(sign)] if text else None

    only = some(given.only, ";")
    if strangers := set(only or ()) - set(BY_NAME):
        raise SystemExit(f"no scenario is called {', '.join(sorted(strangers))}; there are {', '.join(BY_NAME)}")
    ways = {"both": ["alone", "guarded"]}.get(given.ways, [given.ways])
    options = {"modes": some(given.modes), "wires": some(given.wires), "only": only, "ways": ways}
    if given.here:
        host = load(given.host)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for cell in wanted(host, **options):
                print(json.dumps(conversation(host, cell, Path(folder))), flush=True)
        return
    for line in played(given.host, {"options": options}, limit=given.limit, quiet=not given.loud):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
