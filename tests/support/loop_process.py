"""A reference loop in a process of its own that is killed: `lived(spec)` there, `run_until_done(spec)` here.

What it shares with the process after it is a ledger, a file of effects and the history, one message per line.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pokayoke
from pokayoke.testing import crash_at

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"], "additionalProperties": False}


def lines(path):
    """The JSON lines of a file; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _note(path, value):
    with path.open("a") as file:
        file.write(json.dumps(value) + "\n")
        file.flush()
        os.fsync(file.fileno())


def call(name, number, **arguments):
    """A tool call as a chat completion holds it."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"c{number}", "type": "function", "function": function}


def lived(spec):
    """Run the loop once; the process may be killed at any moment.

    Args:
        spec: folder, script (a list of turns: a text, or a list of [tool, arguments]), crash (a step and how
            often it is passed, or `ask` and at which request), and whether it is asynchronous.
    """
    folder = Path(spec["folder"])
    asked = 0

    def put(key):
        _note(folder / "effects", key)
        return {"key": key}

    def get(key):
        return {"key": key}

    def model(messages, tools):
        nonlocal asked
        asked += 1
        if spec["crash"] == ["ask", asked]:
            os.kill(os.getpid(), signal.SIGKILL)
        at = sum(message["role"] == "assistant" for message in messages)
        turn = spec["script"][min(at, len(spec["script"]) - 1)]
        message = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
        if not isinstance(turn, str):
            message["tool_calls"] = [call(name, f"{at}_{n}", **given) for n, (name, given) in enumerate(turn)]
        return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}

    def told(what, value):
        if what == "message":
            _note(folder / "messages", value)

    step, times = spec["crash"] or ("", 0)
    made = [("put", "write", put), ("get", "read", get)]
    guard = pokayoke.Guard(
        [
            pokayoke.Contract.from_schema(n, KEY, output_schema={"type": "object"}, effect=e, handler=h)
            for n, e, h in made
        ],
        store=pokayoke.open_store(f"sqlite:///{folder}/ledger.db"),
        config=spec.get("config", {}),
        on_step=crash_at(step, times) if step.startswith(("after", "before")) else None,
    )
    known = lines(folder / "messages")
    if not known:
        _note(folder / "messages", {"role": "user", "content": "go"})
        known = lines(folder / "messages")
    if spec.get("asynchronous"):
        import asyncio  # noqa: PLC0415 - as the package does

        ended = asyncio.run(guard.aloop(model, messages=known, run_id="r", on_event=told))
    else:
        ended = guard.loop(model, messages=known, run_id="r", on_event=told)
    keys = ("text", "verified", "stop_reason", "rounds", "done")
    print(json.dumps({key: getattr(ended, key) for key in keys} | {"bad": guard.run("r").state.loop.bad}))
    guard.close()


def process(spec):
    """Run `lived` in a process of its own; return its exit code and what it printed."""
    here = Path(__file__).parent
    source = f"import sys, json; sys.path.insert(0, {str(here)!r}); import loop_process; loop_process.lived(json.loads(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", source, json.dumps(spec)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout
