"""Processes that run an agent of Pydantic AI as far as they get, and may be killed: `Nursery`.

What one process shares with the next is a folder: the ledger, a file of effects, and the history, which is kept
after every step. The framework is imported once; each process is a fork of the one that has done so.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path


class Nursery:
    """Starts processes one after the other; use it in a with block."""

    def __enter__(self):
        """Import the framework."""
        self._mother = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *exc):
        """End."""
        self._mother.stdin.close()
        self._mother.stdout.close()
        self._mother.wait(10)

    def run(self, folder, contract, **spec):
        """Run a process; return its exit code, and what it found out before it ended, if it came to that.

        Args:
            folder: where it finds and leaves everything.
            contract: how a doubt is settled: human, lookup or key.
            spec: dies (in the middle of the write), again (the model asks a second time), conversation (its id),
                config of the guard, answers of people by call id.
        """
        given = {"folder": str(folder), "contract": contract, "conversation": "order-1", **spec}
        self._mother.stdin.write(json.dumps(given) + "\n")
        self._mother.stdin.flush()
        code = int(self._mother.stdout.readline())
        found = Path(folder) / "found.json"
        return code, json.loads(found.read_text()) if code == 0 else None


def effects(folder):
    """What happened outside, in order."""
    file = Path(folder) / "effects"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def tool(folder, dies):
    """A tool that pays by a service that drops repeats of a key."""

    async def pay(order: str, key: str = "") -> dict:
        """Pay an order."""
        if key and any(one["key"] == key for one in effects(folder)):
            return {"paid": order}
        with (folder / "effects").open("a") as file:
            file.write(json.dumps({"order": order, "key": key}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"paid": order}

    return pay


async def lived(spec):
    """Run the agent once; the process may be killed at any moment."""
    folder = Path(spec["folder"])
    ledger = folder / "ledger.db"
    url = spec.get("store", f"sqlite:///{ledger}")
    store = pokayoke.open_store(url, create=not ledger.exists()) if url else pokayoke.open_store(None)
    pay = tool(folder, spec.get("dies"))
    made = contracts([pay], fields={"pay": {"output_schema": {"type": "object"}, **_fields(spec["contract"], folder)}})
    guard = pokayoke.Guard(made, store=store, config=spec.get("config"))
    agent = Agent(_model(spec), tools=[pay], capabilities=[Guarded(guard)], output_type=[str, DeferredToolRequests])
    kept = folder / "history.json"
    history = ModelMessagesTypeAdapter.validate_json(kept.read_bytes()) if kept.exists() else None
    results = DeferredToolResults(approvals=spec["answers"]) if "answers" in spec else None
    async with agent.iter(
        None if history else "Pay my order.",
        message_history=history,
        conversation_id=spec["conversation"],
        deferred_tool_results=results,
    ) as run:
        async for _ in run:
            _keep(kept, run.all_messages())
    _keep(kept, run.all_messages())
    output = run.result.output
    waits = [one.tool_call_id for one in output.approvals] if isinstance(output, DeferredToolRequests) else None
    found = {
        "output": output if waits is None else waits,
        "answers": [p.content for m in run.all_messages() for p in m.parts if p.part_kind == "tool-return"],
        "ledger": [[one.state, one.attempt] for one in store.records(RecordQuery())],
    }
    (folder / "found.json").write_text(json.dumps(found))
    guard.close()


def _fields(contract, folder):
    def look(key, arguments):
        """Ask the service whether it knows a key."""
        if any(one["key"] == key for one in effects(folder)):
            return pokayoke.Found({"paid": arguments["order"]})
        return pokayoke.NOT_FOUND

    return {
        "human": {},
        "lookup": {"key_argument": "key", "on_ambiguous": "lookup", "lookup": look, "lookup_safe": "downstream_key"},
        "key": {"key_argument": "key", "on_ambiguous": "downstream_key"},
    }[contract]


def _model(spec):
    """A model that pays once, a second time if it is told to, and then answers."""

    def said(messages, info):
        for tool in info.function_tools:  # none after the second no to one call
            shown = tool.parameters_json_schema["properties"]
            assert ("key" in shown) == (spec["contract"] == "human"), "the model must not see the key"
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        again = turn == 1 and spec.get("again")
        call = ToolCallPart("pay", json.dumps({"order": "A1"}), f"c{turn}")
        return ModelResponse([call] if turn == 0 or again else [TextPart("Done.")])

    return FunctionModel(said)


def _keep(file, messages):
    new = file.with_suffix(".new")
    new.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))
    new.replace(file)


def _mother():
    # What is imported when it is needed is needed by all: once, here.
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(lived({"folder": folder, "contract": "human", "conversation": "warm", "store": None}))
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            code = 1
            try:
                asyncio.run(lived(json.loads(line)))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

    import pokayoke
    from pokayoke.adapters.pydantic_ai import Guarded, contracts
    from pokayoke.stores.values import RecordQuery

    _mother()
